//! The command line: files that it writes, and bad input that it names.

#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn sim(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdoff-sim"))
        .current_dir(dir)
        .args(arguments)
        .output()
        .unwrap()
}

fn refused(arguments: &[&str], says: &str) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("bad.jsonl"), "{\"t_ms\":1}\n").unwrap();
    fs::write(dir.path().join("empty.jsonl"), "\n").unwrap();
    fs::write(dir.path().join("other.csv"), "a,b\n1,2\n").unwrap();
    let output = sim(dir.path(), arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(error.contains(says), "{arguments:?}: {error}");
}

#[test]
fn bad_input_is_named_and_ends_with_2() {
    refused(
        &["run", "a3"],
        "scenario is \"a3\"; it must be one of a2, a5, a10",
    );
    refused(&["gates", "network"], "network has no gate");
    refused(&["grid", "a2", "--seeds", "0"], "0 is not in 1..=1000");
    refused(&["grid", "a2", "--seeds", "1001"], "1001 is not in 1..=1000");
    refused(
        &["run", "a2", "--seed", "4294967296"],
        "4294967296 is not in 0..=4294967295",
    );
    refused(&["run", "a2", "--workers", "0"], "0 is not in 1..=4096");
    refused(&["run", "a2", "--clients", "nice"], "invalid value 'nice'");
    refused(
        &["replay", "bad.jsonl"],
        "bad.jsonl: line 1: missing field `class`",
    );
    refused(&["replay", "empty.jsonl"], "the trace has no decision");
    refused(&["replay", "none.jsonl"], "none.jsonl cannot be read");
    refused(
        &["run", "b", "--workers", "1", "--json", "no/such/dir.json"],
        "no/such/dir.json cannot be written",
    );
    refused(
        &["grid", "b", "--resume", "--csv", "other.csv"],
        "other.csv does not hold the columns of this version",
    );
}

#[test]
fn a_run_writes_figures_a_picture_and_a_trace_that_replay_judges_alike() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = [
        "run",
        "a5",
        "--workers",
        "2",
        "--json",
        "r.json",
        "--csv",
        "r.csv",
        "--svg",
        "plots",
        "--trace",
        "t.jsonl",
    ];
    let output = sim(dir.path(), &arguments);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path().join("r.json")).unwrap()).unwrap();
    let csv = fs::read_to_string(dir.path().join("r.csv")).unwrap();
    assert!(
        csv.starts_with("scenario,seed,admission,hint,clients,calls,goodput"),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), 2);
    let svg = fs::read_to_string(dir.path().join("plots/a5-holdoff-own-holdoff-1.svg")).unwrap();
    for text in [
        "a5: load steps to 5x",
        "Workers busy",
        "Attempts a second",
        "Oldest in the queue",
        "shedding",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    let output = sim(dir.path(), &["replay", "t.jsonl", "--workers", "2", "--json"]);
    let replay: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(replay["calls"], report[0]["calls"]);
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    assert!((number(&replay["false_accepts"]) - number(&report[0]["false_accepts"])).abs() < 1e-3);
    // The replay knows the need of what ran only, so its bound is near the true one and not the same.
    let goodput = 1.0 - number(&replay["regret"]);
    assert!((goodput - number(&report[0]["goodput"])).abs() < 0.1, "{goodput}");
}

#[test]
fn an_interrupted_grid_keeps_what_it_finished_and_goes_on_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let grid = [
        "grid",
        "b",
        "--seeds",
        "2",
        "--workers",
        "2",
        "--csv",
        "g.csv",
        "--resume",
    ];
    assert!(sim(dir.path(), &grid).status.success());
    let path = dir.path().join("g.csv");
    let whole = fs::read_to_string(&path).unwrap();
    // Cut off in the middle of the second run's line.
    let kept: Vec<&str> = whole.lines().take(2).collect();
    fs::write(&path, kept.join("\n") + "\n").unwrap();
    let output = sim(dir.path(), &grid);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1 runs\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), whole);
}

#[test]
fn gates_that_fail_end_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let output = sim(
        dir.path(),
        &[
            "gates",
            "b",
            "--seeds",
            "1",
            "--admission",
            "limit",
            "--clients",
            "none",
        ],
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.contains("| b     |") && table.contains("gates hold, over 1 seeds"),
        "{table}"
    );
}
