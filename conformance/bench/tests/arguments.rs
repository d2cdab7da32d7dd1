//! What the command does with arguments that are wrong, before it spends minutes on measuring.

#![expect(clippy::panic, reason = "a helper of tests")]

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff-bench"));
    let output = command.args(args).output();
    output.unwrap_or_else(|error| panic!("the command does not start: {error}"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn unknown_arguments_and_values_out_of_range_end_with_2_and_say_what_is_allowed() {
    for (args, word) in [
        (&["--fast"][..], "--fast"),
        (&["--only", "everything"], "everything"),
        (&["--rounds", "2"], "3..=1000"),
        (&["--calls", "7"], "20..=100000"),
        (&["--block", "0"], "1..=10000"),
        (&["--connections", "0"], "1..=1024"),
        (&["--storms", "51"], "1..=50"),
        (&["--workers", "33"], "1..=32"),
        (&["--seed", "x"], "--seed"),
        (&["--out", "a.md", "--update", "b.md"], "--update"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(word), "{args:?}: {}", said(&output));
    }
}

#[test]
fn a_document_without_a_place_for_results_is_found_before_anything_is_measured() {
    let path = std::env::temp_dir().join(format!("holdoff-bench-{}.md", std::process::id()));
    std::fs::write(&path, "# No place\n").unwrap();
    let output = run(&["--update", path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("no place for results"),
        "{}",
        said(&output)
    );
    let output = run(&["--update", "no/such/file.md"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("no/such/file.md"), "{}", said(&output));
}
