//! The quickstart as a person meets it: stopped half way, or given a value that it cannot take.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be read fails it")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

fn quickstart() -> Command {
    Command::new(env!("CARGO_BIN_EXE_quickstart"))
}

/// Runs it, sends it this signal once it has said where its server is and shown progress, and gives exit code and stdout.
#[cfg(unix)]
fn stopped_by(signal: &str) -> (Option<i32>, String) {
    let mut child = quickstart()
        .args(["--seconds", "600", "--workers", "2", "--plain"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap()).lines();
    progress.next().unwrap().unwrap();
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    drop(progress);
    (child.wait().unwrap().code(), said)
}

#[cfg(unix)]
#[test]
fn ctrl_c_and_sigterm_stop_it_cleanly_with_the_table_of_what_ran_and_their_exit_codes() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let (exit, said) = stopped_by(signal);
        assert_eq!(exit, Some(code), "{signal}: {said}");
        for row in [
            "stopped early",
            "= served in time",
            "+ cut off",
            "early retries",
            "state at the end",
        ] {
            assert!(said.contains(row), "{signal}: no {row:?} in {said}");
        }
    }
}

fn refused(arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = quickstart().args(arguments).output().unwrap();
    assert_eq!(status.code(), Some(2), "{arguments:?}");
    String::from_utf8(stderr).unwrap()
}

#[test]
fn a_value_out_of_range_is_refused_with_its_option_the_value_and_the_range() {
    for (option, value, range) in [
        ("--seconds", "0", "1..=600"),
        ("--seconds", "601", "1..=600"),
        ("--workers", "65", "1..=64"),
        ("--load", "0", "0.1 to 20"),
        ("--load", "NaN", "0.1 to 20"),
        ("--load", "three", "0.1 to 20"),
        ("--seconds", "abc", "1..=600"),
        ("--seconds", "-1", "1..=600"),
        ("--workers", "1.5", "1..=64"),
        ("--load", "-3", "0.1 to 20"),
        ("--seed", "-1", "0..=18446744073709551615"),
        ("--callers", "nobody", "both, holdoff, deaf"),
    ] {
        let said = refused(&[option, value]);
        assert!(
            [option, value, range].iter().all(|word| said.contains(word)),
            "{option} {value}: {said}"
        );
    }
    let said = refused(&["--seconds", "600", "--workers", "64", "--load", "20"]);
    assert!(said.contains("19200000 calls, and 1000000 is the most"), "{said}");
    assert!(said.contains("Usage: quickstart"), "{said}");
    assert!(!said.contains("holdoff-examples"), "{said}");
}

#[test]
fn help_says_what_a_run_that_shows_nothing_exits_with() {
    let help = quickstart().arg("--help").output().unwrap();
    let said = String::from_utf8(help.stdout).unwrap();
    assert!(said.contains("3 ran to its end and shows nothing"), "{said}");
    assert!(said.contains("Usage: quickstart"), "{said}");
}
