//! The program: profiles and options that cannot be used, and what it says about them.

use std::io::Write;

use crate::binary::{output, profile};

#[tokio::test]
async fn a_bad_profile_names_file_line_key_value_and_limit_and_exits_with_2() {
    for (ending, text, words) in [
        (
            ".yaml",
            "workers: 0\n",
            &["line 1, column 10: workers is 0; it must be a whole number in 1..=4096 (tasks)"][..],
        ),
        (
            ".yaml",
            "workers: many\nqueue: 2.5\n",
            &[
                "workers is many",
                "line 2, column 8: queue is 2.5",
                "in 0..=100000",
            ],
        ),
        (
            ".yaml",
            "tiers:\n  critical:\n    queue: abc\n",
            &["line 3, column 12: tiers.critical.queue is abc", "0..=100000"],
        ),
        (
            ".yaml",
            "workers: 2\nworkerz: 3\n",
            &["line 2, column 1: workerz", "did you mean workers?"],
        ),
        (
            ".yaml",
            "server:\n  drain_ms: -1\n",
            &["line 2", "server.drain_ms is -1", "0..=3600000 (ms)"],
        ),
        (
            ".toml",
            "workers = 99999999999\n",
            &["line 1, column 11: workers is 99999999999; it must be a whole number in 1..=4096"],
        ),
        (
            ".toml",
            "[server]\nbody_ms = \"soon\"\n",
            &["line 2, column 11: server.body_ms is \"soon\"", "1..=60000 (ms)"],
        ),
        (
            ".yaml",
            "workers: 1\nworkers: 2\n",
            &["line 2, column 1: workers is written twice; the first is on line 1"],
        ),
        (".yaml", "{", &["line 1", "not YAML"]),
        (".yaml", "", &["declares nothing"]),
        (".toml", "# only words\n", &["declares nothing"]),
    ] {
        let mut file = tempfile::NamedTempFile::with_suffix(ending).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        is_refused(file.path().to_str().unwrap(), words).await;
    }
}

/// Both ways to give the program a profile refuse this one, name it, and say these words.
async fn is_refused(path: &str, words: &[&str]) {
    for args in [
        &["check", path][..],
        &["--profile", path, "--listen", "127.0.0.1:0"],
    ] {
        let output = output(args).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        for word in [path].iter().chain(words) {
            assert!(said.contains(word), "{args:?} should say {word:?}: {said}");
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_profile_that_is_no_readable_text_file_is_refused_with_its_name_and_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    is_refused(folder.path().to_str().unwrap(), &["is a directory"]).await;
    is_refused(&place("none.yaml"), &["cannot be read", "No such file"]).await;
    std::fs::write(place("latin.yaml"), b"workers: 1\n# caf\xe9\n").unwrap();
    is_refused(
        &place("latin.yaml"),
        &["is not UTF-8 text: byte 0xe9 on line 2 (at offset 16)"],
    )
    .await;
    std::fs::write(place("huge.yaml"), vec![b'#'; (1 << 20) + 1]).unwrap();
    is_refused(&place("huge.yaml"), &["more than 1048576 bytes"]).await;
    if std::path::Path::new("/dev/zero").exists() {
        is_refused("/dev/zero", &["is not a regular file"]).await;
    }
}

#[tokio::test]
async fn an_option_that_cannot_be_used_is_named_once_with_its_value_and_what_is_allowed_and_exits_with_2() {
    let free = ["--listen", "127.0.0.1:0"];
    for (args, words) in [
        (
            &["--listen", "nowhere"][..],
            &["--listen", "nowhere", "IP:PORT"][..],
        ),
        (
            &["--listen", "127.0.0.1:70000"],
            &["--listen", "the port is 70000", "0..=65535"],
        ),
        (
            &["--metrics-listen", "localhost:1"],
            &["--metrics-listen", "localhost:1", "IP:PORT"],
        ),
        (&["--seed", "-1"], &["--seed", "-1", "0..=18446744073709551615"]),
        (
            &["--log", "loud"],
            &["--log", "loud", "off, error, warn, info, debug or trace"],
        ),
        (&["--log", "a=b=c"], &["a=b=c", "target=level"]),
        (
            &["--data", "/proc/nope"],
            &["--data /proc/nope: the directory cannot be made: "],
        ),
        (
            &["--data", "/proc/version"],
            &["--data /proc/version: is a file; it must be a directory"],
        ),
        (
            &["--trace", "/proc/nope/x"],
            &["--trace /proc/nope/x: cannot be written: "],
        ),
        (&["check"], &["<FILE>"]),
        (&["burst-test", "--hard"], &["--hard"]),
    ] {
        let with_port = [
            args,
            if args[0].starts_with("--") && args[0] != "--listen" {
                &free
            } else {
                &[]
            },
        ]
        .concat();
        let output = output(&with_port).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{args:?} should say {word:?}: {said}");
        }
        let told = said
            .lines()
            .filter(|line| !line.contains("WARN"))
            .collect::<String>();
        assert!(told.matches("No such file").count() <= 1, "said once: {said}");
    }
}

#[tokio::test]
async fn help_says_range_and_default_of_every_option_that_takes_a_number() {
    let help = String::from_utf8(output(&["--help"]).await.stdout).unwrap();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "port in 0..=65535",
        "127.0.0.1:4100",
        "0..=18446744073709551615. Default: from the system",
        "1..=65536 MiB, default 256",
    ] {
        assert!(help.contains(words), "{words}: {help}");
    }
}

#[tokio::test]
async fn every_key_is_listed_with_unit_range_and_default() {
    let output = output(&["keys"]).await;
    assert_eq!(output.status.code(), Some(0));
    let listed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(listed.lines().count(), holdoff_server::config::schema::KEYS.len());
    assert!(
        listed.contains("workers: tasks that run at once (1..=4096 tasks; default 4)\n"),
        "{listed}"
    );
}

#[tokio::test]
async fn a_port_in_use_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let output = output(&["--listen", &addr]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    let words = format!("--listen {addr}: the port is in use");
    assert!(
        said.contains(&words) && said.matches("in use").count() == 1,
        "{said}"
    );
}

#[tokio::test]
async fn a_usable_profile_is_said_to_be_usable() {
    let file = profile("workers: 3\n");
    let output = output(&["check", file.path().to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("3 workers"));
}
