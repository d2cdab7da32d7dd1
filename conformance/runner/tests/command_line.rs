//! What the command line says when it cannot do what it was asked: at once, by name, with the exit code of that kind.
#![expect(clippy::expect_used, reason = "a helper of a test that cannot go on says why")]

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

mod said;

use said::{refused, runner};

/// A marker that shows whether the program under test was started.
fn marks(dir: &tempfile::TempDir) -> (String, std::path::PathBuf) {
    let mark = dir.path().join("started");
    (format!("touch {}", mark.display()), mark)
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (adapter, mark) = marks(&dir);
    let missing = dir.path().join("no/such/dir/report.json").display().to_string();
    let directory = dir.path().display().to_string();
    for (path, why) in [
        (&missing, "No such file or directory"),
        (&directory, "Is a directory"),
    ] {
        let args = ["client", "--adapter", adapter.as_str(), "--report", path.as_str()];
        refused(&args, 2, &["--report", path, "cannot be written", why]);
    }
    assert!(!mark.exists(), "the adapter was started all the same");
}

#[test]
fn a_report_that_is_there_is_kept_when_the_run_ends_before_it_has_one() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (old, new) = (dir.path().join("old.json"), dir.path().join("new.json"));
    std::fs::write(&old, "the last run").expect("written");
    for path in [&old, &new] {
        let path = path.display().to_string();
        refused(
            &["client", "--adapter", "/no/such/program", "--report", &path],
            2,
            &["/no/such/program"],
        );
    }
    assert_eq!(
        std::fs::read_to_string(&old).expect("still there"),
        "the last run"
    );
    assert!(!new.exists(), "an empty report is no report");
}

#[test]
fn a_url_that_cannot_be_driven_is_refused_with_what_is_wrong_with_it() {
    let with = |url: &str, words: &[&str]| {
        refused(&["server", "--url", url], 2, &[&["--url"], words].concat());
        refused(
            &["server", "--url", "http://127.0.0.1:1", "--metrics-url", url],
            2,
            &[&["--metrics-url"], words].concat(),
        );
    };
    with("ftp://x", &["ftp://x", "the scheme is ftp; it must be http"]);
    with("https://x", &["the scheme is https; it must be http"]);
    with("", &["it is empty; it must be http://host:port"]);
    with("127.0.0.1:4100", &["127.0.0.1:4100"]);
    with("http://127.0.0.1:4100/?a=b", &["it has a query"]);
    with("http://127.0.0.1:4100/#a", &["it has a fragment"]);
    with("http://me:secret@127.0.0.1:4100/", &["it has credentials"]);
}

#[test]
fn a_url_where_nobody_listens_is_said_within_the_start_limit() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("bound").port();
    drop(free);
    let url = format!("http://127.0.0.1:{port}");
    let place = format!("cannot connect to 127.0.0.1:{port}");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let there = format!("http://{}", taken.local_addr().expect("bound"));
    let args = ["server", "--url", &url, "--start-limit", "1"];
    refused(&args, 2, &["--url", &place, "refused", "tried for 1 s"]);
    let args = [
        "server",
        "--url",
        &there,
        "--metrics-url",
        &url,
        "--start-limit",
        "1",
    ];
    refused(&args, 2, &["--metrics-url", &place]);
}

/// One question and one answer, by hand: enough for a case that asks for nothing but validation errors.
fn answers_422_below(path: &'static str) -> String {
    use std::io::{Read as _, Write as _};
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}{path}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
            let mut head = [0_u8; 4096];
            let n = stream.read(&mut head).unwrap_or(0);
            let asked = String::from_utf8_lossy(&head[..n]).into_owned();
            let found = asked.starts_with(&format!("POST {path}/v1/work "));
            let status = if found {
                "422 Unprocessable"
            } else {
                "404 Not Found"
            };
            let _ = stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes());
        }
    });
    url
}

#[test]
fn a_url_with_a_path_is_the_base_of_what_is_asked() {
    let url = answers_422_below("/under/here");
    let ran = runner(&["server", "--url", &url, "--filter", "PLAIN-validation"]);
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert!(ran.text.contains("1 pass"), "{}", ran.text);
}

#[test]
fn what_only_a_metrics_page_shows_is_not_tested_where_none_was_named() {
    let url = answers_422_below("/");
    let args = ["server", "--url", url.trim_end_matches('/'), "--filter", "SEC-03"];
    refused(
        &args,
        3,
        &[
            "SRQ-07-class-labels-stay-bounded",
            "no --metrics-url was given",
            "nothing was verified",
        ],
    );
}

#[test]
fn a_server_run_without_a_target_names_both_ways_to_give_one() {
    refused(&["server"], 2, &["--adapter <CMD>", "--url <URL>"]);
    let both = ["server", "--adapter", "true", "--url", "http://127.0.0.1:1"];
    refused(&both, 2, &["--adapter", "--url"]);
}

#[test]
fn an_adapter_that_names_no_program_is_refused() {
    for mode in ["client", "server", "relay", "vectors"] {
        refused(
            &[mode, "--adapter", ""],
            2,
            &["--adapter", "it is empty; it must name a program"],
        );
    }
    refused(
        &["client", "--adapter", "a 'b"],
        2,
        &["--adapter", "cannot be split into words"],
    );
}

#[test]
fn a_filter_that_matches_nothing_is_named_before_anything_runs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (adapter, mark) = marks(&dir);
    for (mode, filter) in [
        ("client", "no-such-case"),
        ("relay", "CLI-06"),
        ("vectors", "holdoff-service"),
    ] {
        let args = [mode, "--adapter", adapter.as_str(), "--filter", filter];
        refused(
            &args,
            3,
            &[&format!("--filter {filter}"), mode, "holdoff-conformance list"],
        );
    }
    // One of two is misspelt: the run would say less than it seems to.
    let args = [
        "client",
        "--adapter",
        adapter.as_str(),
        "--filter",
        "req-",
        "--filter",
        "widnow",
    ];
    refused(&args, 3, &["--filter widnow"]);
    assert!(!mark.exists(), "the adapter was started all the same");
}

#[test]
fn an_unknown_profile_lists_the_known_ones() {
    let args = ["client", "--adapter", "true", "--profile", "moon"];
    let known = [
        "client-core",
        "client-compat",
        "server-core",
        "server-admission",
        "relay",
        "grpc-client",
        "grpc-server",
    ];
    refused(&args, 2, &known);
    let args = ["client", "--adapter", "true", "--profile", "server-core"];
    refused(&args, 2, &["--profile server-core", "`server`", "`client`"]);
}

#[test]
fn help_says_the_range_and_default_of_every_number_and_the_exit_codes() {
    for mode in ["client", "server", "relay", "vectors"] {
        let help = runner(&[mode, "--help"]);
        assert_eq!(help.code, Some(0));
        for words in [
            "1 to 3600",
            "[default: 300]",
            "1 to 64",
            "[default: 4]",
            "0 to 18446744073709551615",
            "0 conformant, 1 not conformant, 2 the runner could not do its work, 3 nothing was verified",
        ] {
            assert!(help.text.contains(words), "{mode}: {words:?} in:\n{}", help.text);
        }
    }
    refused(
        &["client", "--adapter", "true", "--jobs", "0"],
        2,
        &["--jobs", "1..=64"],
    );
    refused(
        &["client", "--adapter", "true", "--jobs", "65"],
        2,
        &["--jobs", "1..=64"],
    );
    refused(
        &["client", "--adapter", "true", "--start-limit", "0"],
        2,
        &["--start-limit", "1..=3600"],
    );
    for (option, value) in [
        ("--seed", "-1"),
        ("--seed", "x"),
        ("--jobs", "-3"),
        ("--start-limit", "1.5"),
    ] {
        let range = match option {
            "--seed" => "0..=18446744073709551615",
            "--jobs" => "1..=64",
            _ => "1..=3600",
        };
        let args = ["client", "--adapter", "true", option, value];
        refused(&args, 2, &[option, &format!("'{value}'"), range]);
    }
    refused(&["self", "--jobs", "-1"], 2, &["--jobs", "1..=8"]);
    refused(&["survey", "--jobs", "33"], 2, &["--jobs", "1..=32"]);
}

#[test]
fn help_says_what_a_signal_does_and_its_exit_code() {
    for mode in ["client", "server", "relay", "vectors", "both"] {
        let help = runner(&[mode, "--help"]);
        let one_line = help.text.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "130, 143, 129 interrupted by SIGINT (Ctrl-C), SIGTERM, SIGHUP",
            "marked as interrupted",
        ] {
            assert!(one_line.contains(words), "{mode}: {words:?} in:\n{}", help.text);
        }
    }
}

#[test]
fn a_metrics_page_beside_an_adapter_is_refused_instead_of_forgotten() {
    let args = [
        "server",
        "--metrics-url",
        "http://127.0.0.1:1/metrics",
        "--adapter",
        "true",
    ];
    refused(&args, 2, &["--metrics-url", "--adapter", "cannot be used with"]);
    refused(
        &["server", "--metrics-url", "http://127.0.0.1:1/metrics"],
        2,
        &["--adapter", "--url"],
    );
}

#[test]
fn an_option_that_would_silently_mean_everything_is_refused() {
    for args in [
        &["client", "--adapter", "true", "--filter", ""][..],
        &["self", "--filter", " "],
    ] {
        refused(args, 2, &["--filter", "it is empty"]);
    }
    refused(&["survey", "--only", ""], 2, &["--only", "it is empty"]);
}

#[test]
fn a_directory_of_cases_that_is_not_there_is_named_with_its_option() {
    for args in [
        &["list", "--cases", "/no/such/dir"][..],
        &["client", "--adapter", "true", "--cases", "/no/such/dir"],
    ] {
        refused(args, 2, &["--cases /no/such/dir", "No such file or directory"]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_list_that_could_not_be_written_is_no_success() {
    use std::process::Stdio;
    for args in [&["list"][..], &["list", "--json"], &["trace"]] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("it is there");
        let ran = Command::new(env!("CARGO_BIN_EXE_holdoff-conformance"))
            .args(args)
            .stdout(full)
            .output()
            .expect("the runner starts");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {said}");
        assert!(
            said.contains("standard output") && said.contains("No space left"),
            "{said}"
        );
    }
    // Whoever closes the pipe has read enough.
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdoff-conformance"))
        .arg("list")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the runner starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn an_adapter_that_ended_is_told_with_how_it_ended() {
    let ended = |script: &str, how: &str| {
        let adapter = format!("sh -c '{script}'");
        refused(&["vectors", "--adapter", &adapter], 2, &[how]);
    };
    ended("exit 7", "exit status: 7");
    #[cfg(unix)]
    ended("kill -9 $$", "signal: 9");
}
#[test]
fn a_profile_of_another_role_is_refused_instead_of_called_conformant() {
    for (mode, profile) in [
        ("client", "relay"),
        ("vectors", "server-admission"),
        ("client", "grpc-server"),
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_holdoff-conformance"))
            .args([mode, "--adapter", "true", "--profile", profile])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{mode} {profile}: {said}");
        assert!(said.contains("is judged by"), "{said}");
    }
}

/// A wire log of a real run of a client.
const LOG: &str = include_str!("../src/client_drive/recorded/stop-retry-no.honest.jsonl");

#[test]
fn a_wire_log_that_was_cut_is_refused_and_one_of_a_server_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("log.jsonl");
    let path = file.display().to_string();
    let write = |text: &str| std::fs::write(&file, text).expect("written");
    write(LOG);
    assert_eq!(runner(&["rejudge", &path]).code, Some(0));
    let lines: Vec<&str> = LOG.lines().collect();
    for kept in [2, lines.len() - 1] {
        write(&lines[..kept].join("\n"));
        let missing = format!("after line {kept} the last line is missing");
        refused(
            &["rejudge", &path],
            2,
            &["log.jsonl", "stop-retry-no is cut", &missing, "`end`"],
        );
    }
    write("{\"event\":\"case\",\"schema\":\"overload-wire/1\",\"slack_us\":250000}\n");
    refused(
        &["rejudge", &path],
        2,
        &[
            "the log of a server or a relay",
            "only a client's can be judged again",
        ],
    );
}

#[test]
fn a_baseline_that_is_no_toml_is_said_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("baseline.toml");
    std::fs::write(&file, "schema = \"overload-baseline/1\"\n[[known]\n").expect("written");
    let path = file.display().to_string();
    let args = [
        "client",
        "--adapter",
        "true",
        "--filter",
        "stop-retry-no",
        "--baseline",
        &path,
    ];
    let ran = runner(&args);
    assert_eq!(ran.code, Some(2), "{}", ran.text);
    assert_eq!(ran.text.matches("TOML parse error").count(), 1, "{}", ran.text);
}

const OWN_CASES: &str = "schema: overload-cases/1
cases:
  - id: mine
    title: Mine.
    requirements: [CLI-06]
    client:
      calls:
        - script: [{status: 200}]
          expect: {requests: 1, result: {kind: response, status: 200}}
";

#[test]
fn cases_of_ones_own_replace_the_built_in_ones_and_the_vectors_and_know_the_words_of_a_reply() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("mine.yaml");
    let cases = dir.path().display().to_string();
    let (adapter, mark) = marks(&dir);
    std::fs::write(&file, OWN_CASES).expect("written");
    // Where the vectors were still there, this would be found among them.
    let client = [
        "client",
        "--adapter",
        &adapter,
        "--cases",
        &cases,
        "--filter",
        "vector/ra-zero",
    ];
    refused(&client, 3, &["--filter vector/ra-zero"]);
    let vectors = ["vectors", "--adapter", &adapter, "--cases", &cases];
    refused(&vectors, 2, &["--cases", "built-in hint vectors"]);
    let banana = OWN_CASES.replace("{kind: response, status: 200}", "{kind: overloaded, why: banana}");
    std::fs::write(&file, banana).expect("written");
    let words = ["mine.yaml", "case mine", "why is \"banana\"", "hint_too_long"];
    refused(&client, 2, &words);
    assert!(!mark.exists(), "the adapter was started all the same");
}

#[test]
fn a_url_that_is_none_is_answered_with_the_form_and_the_range_of_its_port() {
    for (url, words) in [
        (
            "x",
            ["it must be http://host:port", "relative URL without a base"],
        ),
        (
            "http://127.0.0.1:99999",
            ["it must be http://host:port", "1..=65535"],
        ),
    ] {
        refused(&["server", "--url", url], 2, &words);
    }
}

#[cfg(unix)]
#[test]
fn a_peer_that_was_built_without_mutants_is_answered_with_how_to_build_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let peer = dir.path().join("client-tower");
    let script = "#!/bin/sh\necho \"error: unexpected argument '--mutant' found\" >&2\nexit 2\n";
    std::fs::write(&peer, script).expect("written");
    std::fs::set_permissions(&peer, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let peers = dir.path().display().to_string();
    let args = [
        "self",
        "--peers",
        &peers,
        "--mutants-only",
        "--filter",
        "client-tower",
    ];
    let words = ["unexpected argument", "-p holdoff-peers --features mutants"];
    refused(&args, 2, &words);
}
