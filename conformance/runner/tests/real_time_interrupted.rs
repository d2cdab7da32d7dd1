//! A run that is stopped half way keeps what it has judged, claims nothing, and leaves no program behind.
#![cfg(unix)]
#![expect(clippy::expect_used, reason = "a helper of a test that cannot go on says why")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Answers `hello`, refuses three commands and hangs on the fourth; deaf to every polite signal and to the end of its input,
/// and with a child of its own.
const STUBBORN: &str = r#"
trap '' TERM INT HUP
sleep 600 &
echo "$$ $!" > "$1"
n=0
while :; do
    read -r line || sleep 600
    id=$(printf %s "$line" | sed 's/.*"id":"\([0-9]*\)".*/\1/')
    case $line in
    *'"hello"'*) echo '{"id":"'$id'","protocol":1,"role":"client","implementation":{"name":"stub","version":"0"},"contract_versions":[1],"capabilities":["parse"]}' ;;
    *)
        n=$((n + 1))
        [ $n -lt 4 ] || sleep 600
        echo '{"id":"'$id'","error":"not today"}'
        ;;
    esac
done
"#;

struct Stopped {
    code: Option<i32>,
    said: String,
    /// The program and its child.
    pids: Vec<String>,
}

/// Runs `mode` in `dir`, and sends the signal once `lines` lines were told.
fn stopped(dir: &Path, signal: &str, lines: usize) -> Stopped {
    let (script, pids) = (dir.join("stubborn.sh"), dir.join("pids"));
    std::fs::write(&script, STUBBORN).expect("written");
    let adapter = format!("sh {} {}", script.display(), pids.display());
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdoff-conformance"))
        .args(["vectors", "--adapter", &adapter, "--seed", "1"])
        .args([
            "--report",
            "report.json",
            "--junit",
            "junit.xml",
            "--markdown",
            "report.md",
        ])
        .args(["--badge", "badge.json"])
        .current_dir(dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the runner starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut said = String::new();
    while said.lines().filter(|line| line.starts_with("fail ")).count() < lines {
        assert!(
            out.read_line(&mut said).expect("told") > 0,
            "it ended early: {said}"
        );
    }
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.expect("kill is there").success());
    out.read_to_string(&mut said).expect("told");
    Stopped {
        code: child.wait().expect("it ends").code(),
        said,
        pids: std::fs::read_to_string(pids)
            .expect("it was started")
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
    }
}

/// A process that is gone, or has ended and waits for init to collect it.
fn gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z ") || stat.contains(") X "))
}

/// The kill is sent before the runner ends; the system needs a moment to carry it out.
#[expect(
    clippy::disallowed_methods,
    reason = "a test outside any runtime waits for another process"
)]
fn soon_gone(pid: &str) -> bool {
    for _ in 0..200 {
        if gone(pid) {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    false
}

#[test]
fn a_signal_ends_a_run_with_a_report_that_says_so_and_with_every_program_killed() {
    for (signal, name, code) in [
        ("-INT", "SIGINT", 130),
        ("-TERM", "SIGTERM", 143),
        ("-HUP", "SIGHUP", 129),
    ] {
        if signal == "-HUP" && !Path::new("/proc/self/status").exists() {
            continue; // whether a hang-up counts cannot be told there
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let run = stopped(dir.path(), signal, 3);
        assert_eq!(run.code, Some(code), "{signal}: {}", run.said);
        let line = format!("interrupted by {name} with 3 of ");
        assert!(run.said.contains(&line), "{signal}: {line:?} in {}", run.said);
        let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).expect("the file is there");
        let report: Value = serde_json::from_str(&read("report.json")).expect("JSON");
        assert_eq!(report["conclusion"], "interrupted");
        assert_eq!(report["interrupted"]["by"], name);
        assert_eq!(report["cases"].as_array().expect("cases").len(), 3);
        assert!(report["interrupted"]["selected"].as_u64() > Some(3));
        assert!(read("junit.xml").contains(&line) && read("junit.xml").contains("<error"));
        assert!(read("report.md").contains(&line));
        assert!(read("badge.json").contains("\"interrupted\""));
        let schema: Value =
            serde_json::from_str(include_str!("../report.schema.json")).expect("the schema is JSON");
        let valid = jsonschema::validator_for(&schema).expect("the schema compiles");
        assert!(valid.is_valid(&report), "{:?}", valid.iter_errors(&report).next());
        assert_eq!(run.pids.len(), 2);
        for pid in &run.pids {
            assert!(soon_gone(pid), "{signal}: process {pid} lives on");
        }
    }
}
