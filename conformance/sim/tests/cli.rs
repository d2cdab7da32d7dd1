//! The command line: files that it writes, and bad input that it names.

#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

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
    fs::write(dir.path().join("late.jsonl"), GOOD.to_owned() + "\n" + LATE).unwrap();
    fs::write(dir.path().join("unmarked.md"), "# Simulation\n").unwrap();
    fs::write(dir.path().join("empty.jsonl"), "\n").unwrap();
    fs::write(dir.path().join("other.csv"), "a,b\n1,2\n").unwrap();
    let output = sim(dir.path(), arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(error.contains(says), "{arguments:?}: {error}");
}

const GOOD: &str = r#"{"t_ms":0,"class":"a","tier":"critical","deadline_ms":1000,"decision":"reject"}"#;
const LATE: &str =
    r#"{"t_ms":9,"class":"a","tier":"critical","deadline_ms":1,"decision":"accept","started_ms":3}"#;

#[test]
fn bad_input_is_named_and_ends_with_2() {
    refused(&["run", "gatway"], "tip: a similar value exists: 'gateway'");
    refused(&["grid", "a2", "hamer"], "tip: a similar value exists: 'hammer'");
    refused(&["compare", "no-such"], "invalid value 'no-such'");
    refused(&["gates", "network"], "invalid value 'network'");
    refused(&["gates", "network"], "[possible values: a2, a5, a10,");
    refused(&["gates", "a2", "--seeds", "0"], "0 is not in 1..=1000");
    refused(
        &["compare", "a2", "--first-seed=-1"],
        "invalid digit found in string",
    );
    refused(&["tables", "--seeds", "1001"], "1001 is not in 1..=1000");
    refused(&["grid", "a2", "--jobs", "0"], "0 is not in 1..=256");
    refused(&["run", "a2", "--seed", "first"], "invalid digit found in string");
    refused(
        &["replay", "bad.jsonl", "--workers", "0"],
        "0 is not in 1..=65536",
    );
    refused(
        &["tables", "--only", "beyonds"],
        "tip: a similar value exists: 'beyond'",
    );
    refused(&["tables", "--update", "none.md"], "none.md cannot be read");
    refused(
        &["tables", "--update", "unmarked.md"],
        "unmarked.md: there is no \"<!-- speed: begin -->\"",
    );
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
    refused(
        &["replay", "late.jsonl"],
        "late.jsonl: line 2: started_ms is 3, which is before 9",
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
        "--clients",
        "exact",
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
        csv.starts_with("scenario,workers,seed,admission,hint,clients,calls,goodput"),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), 2);
    let svg = fs::read_to_string(dir.path().join("plots/a5-holdoff-own-exact-1.svg")).unwrap();
    for text in [
        "a5: load steps to 5x",
        "Workers busy",
        "Calls and attempts a second",
        "calls that begin",
        "Served in time",
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
fn a_part_of_the_page_is_renewed_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let page = "# Simulation\n<!-- speed: begin -->\nold\n<!-- speed: end -->\nwords\n";
    fs::write(dir.path().join("page.md"), page).unwrap();
    let output = sim(dir.path(), &["tables", "--only", "speed", "--update", "page.md"]);
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(dir.path().join("page.md")).unwrap();
    assert!(
        page.starts_with("# Simulation\n<!-- speed: begin -->\nn = "),
        "{page}"
    );
    assert!(page.contains("| a10 "), "{page}");
    assert!(page.ends_with("|\n<!-- speed: end -->\nwords\n"), "{page}");
    assert!(!page.contains("old"), "{page}");
}

/// Recorded by `holdoff-server --trace` with its development profile: 50 callers at once, four calls each, of three tiers.
#[test]
fn the_trace_of_a_real_server_is_judged() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/server-trace.jsonl");
    let output = sim(Path::new("."), &["replay", trace, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let replay: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| replay[name].as_f64().unwrap();
    assert_eq!((number("decisions"), number("accepted")), (200.0, 167.0));
    assert_eq!(
        replay["refused"],
        serde_json::json!({"deadline_unattainable": 23, "queue_age_exceeded": 10})
    );
    // What it accepted it did in time, and it had little else to do with its workers.
    assert_eq!(number("unknown_need"), 0.0);
    assert!(number("false_accepts") < 0.05, "{replay}");
    assert!((0.0..0.5).contains(&number("regret")), "{replay}");
    let table = sim(Path::new("."), &["replay", trace]);
    let table = String::from_utf8(table.stdout).unwrap();
    for row in ["| false accepts", "| ghosts", "| avoidable loss", "| regret"] {
        assert!(table.contains(row), "{table}");
    }
}

/// The lines of a grid's file, in the order of their names: runs end in any order.
fn sorted(path: &Path) -> Vec<String> {
    let mut lines: Vec<String> = fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

/// How many runs a grid's file holds, the line under way not counted.
fn finished(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.matches('\n').count().saturating_sub(1))
}

#[test]
fn a_grid_that_is_killed_keeps_what_it_finished_and_goes_on_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let grid = |file: &str| {
        [
            "grid",
            "b",
            "a2",
            "--seeds",
            "6",
            "--workers",
            "2",
            "--csv",
            file,
            "--resume",
        ]
        .map(str::to_owned)
    };
    let run = |file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff-sim"));
        command.current_dir(dir.path()).args(grid(file));
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command
    };
    let path = dir.path().join("killed.csv");
    let mut killed = run("killed.csv").spawn().unwrap();
    while finished(&path) < 3 {
        assert_eq!(killed.try_wait().unwrap(), None, "it ended before it was killed");
        std::thread::yield_now();
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let kept = finished(&path);
    // A line that was cut off in the middle is what a full disk leaves.
    let mut torn = fs::OpenOptions::new().append(true).open(&path).unwrap();
    torn.write_all(b"b,2,99,holdoff,own").unwrap();
    let output = run("killed.csv").output().unwrap();
    let rest = 12 - kept;
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{rest} runs\n")
    );
    assert!(run("whole.csv").output().unwrap().status.success());
    let whole = sorted(&dir.path().join("whole.csv"));
    assert_eq!((sorted(&path), whole.len()), (whole, 13));
    let output = run("killed.csv").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0 runs\n");
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
        table.contains("| b     |") && table.contains("gates hold, over the seeds 1 to 1"),
        "{table}"
    );
}
