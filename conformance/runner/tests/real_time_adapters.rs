//! The runner against programs that break the protocol, lie, or behave: over real processes, sockets and time.
#![expect(clippy::expect_used, reason = "a helper of a test that cannot go on says why")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HELLO: &str = r#"printf '{"id":"1","protocol":1,"role":"client","implementation":{"name":"broken","version":"0"},"contract_versions":[1],"capabilities":["deadline","hold_off","budget","tier","compat","stream_body","cancel","incoming","instances"]}\n'"#;

/// A case file with one case and a short limit, so that a program that hangs costs little.
const ONE_CASE: &str = "
schema: overload-cases/1
cases:
  - id: one
    title: An overload is waited out.
    requirements: [CLI-01]
    limit_ms: 2000
    client:
      calls:
        - script: [{reject: {code: queue_full, after: 60, max: 100}}, {status: 200}]
          expect:
            requests: 2
            gaps: [{k: 1, min_ms: 60, max_ms: 100}]
            result: {kind: response, status: 200}
";

struct Ran {
    code: Option<i32>,
    text: String,
}

fn runner(args: &[&str]) -> Ran {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_holdoff-conformance"))
        .args(args)
        .output()
        .expect("the runner starts");
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    Ran {
        code: status.code(),
        text,
    }
}

/// Runs `ONE_CASE` against a shell script that says a proper hello and then does `body`.
fn broken(body: &str) -> Ran {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let script = dir.path().join("adapter.sh");
    std::fs::write(&script, format!("read -r hello\n{HELLO}\n{body}\n")).expect("the script is written");
    let cases = dir.path().join("cases");
    std::fs::create_dir(&cases).expect("a directory");
    std::fs::write(cases.join("one.yaml"), ONE_CASE).expect("the case is written");
    let adapter = format!("sh {}", script.display());
    // The vectors would meet the same broken program over and over; one case is enough.
    runner(&[
        "client",
        "--adapter",
        &adapter,
        "--cases",
        &cases.display().to_string(),
        "--filter",
        "one",
    ])
}

/// Each of these in a thread of its own: what they wait for is other programs.
fn side_by_side<T: Send>(these: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for one in these {
            scope.spawn(|| check(one));
        }
    });
}

#[track_caller]
fn fails_saying(ran: &Ran, words: &str) {
    assert_eq!(ran.code, Some(1), "{}", ran.text);
    assert!(ran.text.contains(words), "{words:?} in:\n{}", ran.text);
    assert!(!ran.text.contains("\npass "), "{}", ran.text);
}

#[test]
fn a_program_that_hangs_fails_within_the_limit_of_the_case() {
    fails_saying(
        &broken("echo 'waiting for godot' >&2\nwhile read -r line; do :; done"),
        "waiting for godot",
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_that_hangs_does_not_leave_its_own_children_behind() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("pid");
    fails_saying(
        &broken(&format!("sleep 300 & echo $! > {}\nwait", file.display())),
        "did not end within",
    );
    let pid = std::fs::read_to_string(file).expect("the script wrote its child's number");
    // A killed process is gone or a zombie that nobody has reaped yet; a sleeping one would say S.
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap_or_default();
    assert!(!status.contains("State:\tS"), "{status}");
}

#[test]
fn a_program_that_hangs_in_a_call_fails_with_the_wire_log() {
    let body = r#"read -r configure; printf '{"id":"2","ok":true}\n'; while read -r line; do :; done"#;
    fails_saying(&broken(body), "did not answer `call`");
}

#[test]
fn a_program_that_crashes_fails_with_its_last_words() {
    fails_saying(
        &broken("read -r line\necho 'boom at line 7' >&2\nexit 3"),
        "boom at line 7",
    );
}

#[test]
fn a_program_that_answers_garbage_fails() {
    fails_saying(
        &broken("read -r line\necho 'Starting up...'\nread -r line"),
        "not a JSON object",
    );
}

#[test]
fn a_program_that_answers_somebody_else_fails() {
    let body = r#"read -r line; printf '{"id":"77","ok":true}\n'; read -r line"#;
    fails_saying(&broken(body), r#"whose id \"77\""#.replace('\\', "").as_str());
}

#[test]
fn a_program_that_answers_twice_fails() {
    let body = r#"read -r line; printf '{"id":"2","ok":true}\n{"id":"2","ok":true}\n'; while read -r line; do :; done"#;
    fails_saying(&broken(body), "was answered before");
}

#[test]
fn a_program_that_floods_without_a_line_end_fails_and_costs_bounded_memory() {
    fails_saying(
        &broken("read -r line\nyes x | tr -d '\\n'"),
        "a line of more than",
    );
}

#[test]
fn a_program_that_refuses_to_be_configured_is_a_failed_setup_and_not_a_pass() {
    let body =
        r#"read -r line; printf '{"id":"2","error":"no such knob"}\n'; while read -r line; do :; done"#;
    fails_saying(&broken(body), "no such knob");
}

#[test]
fn a_policy_that_makes_no_sense_may_be_refused_by_name() {
    let refuse = |words: &str| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let script = dir.path().join("adapter.sh");
        let body = format!(r#"read -r line; printf '{{"id":"2","error":"{words}"}}\n'; cat > /dev/null"#);
        std::fs::write(&script, format!("read -r hello\n{HELLO}\n{body}\n")).expect("the script is written");
        let adapter = format!("sh {}", script.display());
        runner(&["client", "--adapter", &adapter, "--filter", "window-floor-binds"])
    };
    side_by_side(["backoff_base_ms is 0; it must be 1 or more", "no"], |words| {
        let ran = refuse(words);
        match words {
            "no" => fails_saying(&ran, "names \"backoff\""),
            _ => assert_eq!(ran.code, Some(0), "{}", ran.text),
        }
    });
}

#[test]
fn bad_arguments_broken_cases_and_programs_that_do_not_start_exit_with_2() {
    let code = |args: &[&str]| runner(args).code;
    assert_eq!(code(&["client"]), Some(2));
    assert_eq!(code(&["client", "--adapter", "a 'b"]), Some(2));
    assert_eq!(code(&["client", "--adapter", "/no/such/program"]), Some(2));
    assert_eq!(code(&["client", "--adapter", "true"]), Some(2));
    assert_eq!(
        code(&["client", "--adapter", "true", "--profile", "moon"]),
        Some(2)
    );
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("x.yaml"), ONE_CASE.replace("CLI-01", "CLI-99")).expect("written");
    let ran = runner(&["list", "--cases", &dir.path().display().to_string()]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.text.contains("x.yaml: case one: requirement \"CLI-99\""),
        "{}",
        ran.text
    );
}

#[test]
fn a_program_that_never_says_hello_does_not_hold_the_runner_up() {
    let ran = runner(&["client", "--adapter", "sleep 60", "--start-limit", "1"]);
    assert_eq!(ran.code, Some(2), "{}", ran.text);
    assert!(
        ran.text.contains("did not answer `hello` within 1000 ms"),
        "{}",
        ran.text
    );
}

/// The example client, which `cargo test` and `cargo nextest run` build beside the tests.
fn tiny_client() -> String {
    let runner = PathBuf::from(env!("CARGO_BIN_EXE_holdoff-conformance"));
    let path = runner
        .parent()
        .map(|dir| dir.join("examples/tiny_client"))
        .expect("the binary is in a directory");
    assert!(
        Path::new(&path).exists(),
        "build it first: cargo build -p holdoff-conformance --examples"
    );
    path.display().to_string()
}

fn judge_tiny(fault: &str, filter: &str) -> Ran {
    let adapter = format!("{} --fault {fault}", tiny_client());
    runner(&["client", "--adapter", &adapter, "--filter", filter])
}

#[test]
fn a_filter_that_matches_nothing_verifies_nothing_and_exits_with_3() {
    assert_eq!(judge_tiny("none", "no-such-case").code, Some(3));
    // Not declared by the example client: not applicable is not a pass either.
    assert_eq!(judge_tiny("none", "holdoff-service").code, Some(3));
}

#[test]
fn a_client_that_behaves_passes_and_the_report_says_what_was_tested() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let report = dir.path().join("report.json");
    let ran = runner(&[
        "client",
        "--adapter",
        &tiny_client(),
        "--filter",
        "req-",
        "--filter",
        "stop-attempts",
        "--filter",
        "window-spread",
        "--report",
        &report.display().to_string(),
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    let text = std::fs::read_to_string(report).expect("the report is written");
    let report: serde_json::Value = serde_json::from_str(&text).expect("the report is JSON");
    assert_eq!(report["schema"], "overload-report/1");
    assert_eq!(report["conclusion"], "conformant");
    let state = |id: &str| {
        let lines = report["requirements"].as_array().expect("an array");
        lines
            .iter()
            .find(|line| line["id"] == id)
            .expect("every requirement of the role is there")["state"]
            .clone()
    };
    assert_eq!(state("CLI-03"), "pass");
    assert_eq!(state("CLI-26"), "not_tested");
}

#[test]
fn each_fault_of_the_example_client_is_caught_by_the_case_that_is_made_for_it() {
    let faults = [
        (
            "early",
            "window-spread-at-the-cap",
            "gap[1]: expected 600 to 900 ms",
        ),
        ("no-jitter", "window-spread-at-the-cap", "is spread"),
        ("clamp", "stop-over-cap", "requests: expected 1, saw 2"),
        ("ignore-no", "stop-retry-no", "requests: expected 1, saw 2"),
        ("replay", "stop-post-applied-maybe", "requests: expected 1, saw 2"),
        ("stale-deadline", "window-cut-by-deadline", "Overload-Deadline-Ms"),
    ];
    side_by_side(faults, |(fault, case, why)| {
        let ran = judge_tiny(fault, case);
        assert_eq!(ran.code, Some(1), "{fault}: {}", ran.text);
        assert!(ran.text.contains(why), "{fault}: {why:?} in:\n{}", ran.text);
        assert!(
            ran.text.contains(&format!("--filter {case}")),
            "{fault}: it says how to run it again"
        );
        assert_eq!(
            judge_tiny("none", case).code,
            Some(0),
            "{case} passes without the fault"
        );
    });
}

#[test]
fn a_program_that_floods_its_stderr_is_judged_as_ever_and_only_the_end_of_it_is_kept() {
    let body = "yes noise | head -c 3000000 >&2\necho 'the last word' >&2\nread -r line\nexit 1";
    let ran = broken(body);
    fails_saying(&ran, "the last word");
    assert!(ran.text.len() < 100_000, "{} bytes", ran.text.len());
}

#[test]
fn a_program_that_floods_with_lines_that_nobody_asked_for_fails() {
    fails_saying(
        &broken(r#"read -r line; yes '{"id":"99","ok":true}'"#),
        "was not asked for",
    );
}

/// Runs one server case against a script that says this to `start`.
fn server_that_says(start: &str) -> Ran {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let script = dir.path().join("server.sh");
    let hello = HELLO.replace(r#""role":"client""#, r#""role":"server""#);
    let body = format!(
        "read -r line\nprintf '%s\\n' '{start}'\necho 'never listened' >&2\nwhile read -r line; do :; done"
    );
    std::fs::write(&script, format!("read -r hello\n{hello}\n{body}\n")).expect("the script is written");
    let adapter = format!("sh {}", script.display());
    runner(&[
        "server",
        "--adapter",
        &adapter,
        "--filter",
        "SRQ-03-deadline-too-large",
    ])
}

#[test]
fn a_server_that_never_listens_fails_and_so_does_one_without_an_address() {
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let nobody = free.local_addr().expect("an address");
    drop(free);
    let deaf = format!(r#"{{"id":"2","url":"http://{nobody}"}}"#);
    let ways = [
        (deaf.as_str(), "cannot connect"),
        (r#"{"id":"2","ok":true}"#, "has no url"),
        (r#"{"id":"2","url":"ftp://127.0.0.1"}"#, "must be http"),
    ];
    side_by_side(ways, |(start, words)| {
        fails_saying(&server_that_says(start), words);
    });
}

#[test]
fn replies_may_come_in_any_order() {
    // Two calls under way; the second is answered first, and neither sends a request: both fail, by what they said.
    let body = r#"while read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":"\([0-9]*\)".*/\1/')
  case $line in
    *'"call"'*) if [ -z "$first" ]; then first=$id; else
        printf '{"id":"%s","result":{"kind":"error","why":"second"}}\n{"id":"%s","result":{"kind":"error","why":"first"}}\n' "$id" "$first"
      fi ;;
    *) printf '{"id":"%s","ok":true}\n' "$id" ;;
  esac
done"#;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let script = dir.path().join("adapter.sh");
    std::fs::write(&script, format!("read -r hello\n{HELLO}\n{body}\n")).expect("the script is written");
    let cases = ONE_CASE.replace("- script", "- count: 2\n          script");
    std::fs::write(dir.path().join("one.yaml"), cases).expect("the case is written");
    let adapter = format!("sh {}", script.display());
    let cases = dir.path().display().to_string();
    let ran = runner(&[
        "client",
        "--adapter",
        &adapter,
        "--cases",
        &cases,
        "--filter",
        "one",
    ]);
    assert_eq!(ran.code, Some(1), "{}", ran.text);
    assert!(
        !ran.text.contains("broke the protocol") && !ran.text.contains("did not answer"),
        "{}",
        ran.text
    );
    let seen = |call: &str, why: &str| {
        let told = ran
            .text
            .split(&format!("call {call} made"))
            .nth(1)
            .unwrap_or_default();
        told.split(" made")
            .next()
            .unwrap_or_default()
            .contains(&format!(r#""why":"{why}""#))
    };
    assert!(
        seen("call-0", "first") && seen("call-1", "second"),
        "{}",
        ran.text
    );
}
