//! The gRPC example does what it says.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be read fails it")]

use std::process::Command;

/// `name: N of ..`
fn served(output: &str, name: &str) -> u32 {
    let line = output.lines().find(|line| line.starts_with(name)).unwrap();
    let count = line.split([':', ' ']).find_map(|word| word.parse().ok());
    count.unwrap()
}

#[test]
fn callers_that_obey_are_served_where_plain_ones_are_not_and_none_comes_back_early() {
    let output = Command::new(env!("CARGO_BIN_EXE_grpc")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(
        served(&text, "with Holdoff") > 2 * served(&text, "plain tonic"),
        "{text}"
    );
    assert!(text.contains(" 0 of them cut short"), "{text}");
}
