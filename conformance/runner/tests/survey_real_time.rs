//! The survey and the adapter kits, over real processes, sockets and time.
#![expect(clippy::expect_used, reason = "a helper of a test that cannot go on says why")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says why")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use holdoff_conformance::survey::{self, Survey, table};

/// The longest that a kit may be: a file that a stranger reads before copying it.
const MAX_KIT_LINES: usize = 110;

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
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
    Ran {
        code: status.code(),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the repository is there")
}

/// True when the program runs and is of use; else the reason is printed and the test has nothing to show.
fn there(program: &str, args: &[&str], needs: &str) -> bool {
    let ran = Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let there = ran.is_ok_and(|status| status.success());
    if !there {
        eprintln!("skipped: {needs} is not here ({program} {})", args.join(" "));
    }
    there
}

const PYTHON: [&str; 2] = ["-c", "import sys; sys.exit(sys.version_info < (3, 10))"];
const NODE: [&str; 2] = [
    "-e",
    "process.exit(process.versions.node.split('.')[0] < 18 ? 1 : 0)",
];

fn kit(file: &str) -> String {
    root().join("conformance/kits").join(file).display().to_string()
}

/// A kit as it stands keeps the contract's main promise, and the runner says so.
#[track_caller]
fn passes(role: &str, program: &str, file: &str, cases: &[&str]) {
    let adapter = format!("{program} {}", kit(file));
    let mut args = vec![role, "--adapter", &adapter];
    args.extend(cases.iter().flat_map(|case| ["--filter", case]));
    let ran = runner(&args);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    for case in cases {
        assert!(
            ran.out.contains(&format!("pass           {case} ")),
            "{case} in:\n{}",
            ran.out
        );
    }
}

#[test]
fn the_python_client_kit_gets_its_first_verdict() {
    if there("python3", &PYTHON, "Python 3.10 or later") {
        passes(
            "client",
            "python3",
            "python/adapter.py",
            &["window-whole-seconds", "stop-retry-no"],
        );
    }
}

#[test]
fn the_python_server_kit_gets_its_first_verdict() {
    if there("python3", &PYTHON, "Python 3.10 or later") {
        passes(
            "server",
            "python3",
            "python/server.py",
            &["PLAIN-rejects-are-whole"],
        );
    }
}

#[test]
fn the_node_client_kit_gets_its_first_verdict() {
    if there("node", &NODE, "Node 18 or later") {
        passes(
            "client",
            "node",
            "node/adapter.mjs",
            &["window-whole-seconds", "stop-retry-no"],
        );
    }
}

#[test]
fn the_node_server_kit_gets_its_first_verdict() {
    if there("node", &NODE, "Node 18 or later") {
        passes("server", "node", "node/server.mjs", &["PLAIN-rejects-are-whole"]);
    }
}

#[test]
fn the_curl_kit_gets_its_first_verdict() {
    if there("curl", &["--version"], "curl") && there("bash", &["-c", "((BASH_VERSINFO[0] >= 5))"], "bash 5")
    {
        passes("client", "bash", "curl/adapter.sh", &["window-whole-seconds"]);
    }
}

#[test]
fn every_kit_is_one_short_file_beside_a_readme() {
    for file in [
        "python/adapter.py",
        "python/server.py",
        "node/adapter.mjs",
        "node/server.mjs",
        "curl/adapter.sh",
    ] {
        let text = std::fs::read_to_string(kit(file)).expect("the kit is there");
        let lines = text.lines().count();
        assert!(lines <= MAX_KIT_LINES, "{file} has {lines} lines");
        let readme = Path::new(&kit(file)).with_file_name("README.md");
        let steps = std::fs::read_to_string(&readme).expect("a README beside it");
        let name = Path::new(file)
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        assert!(
            steps.contains(&format!("/{name} ")),
            "{} says how to copy {name}",
            readme.display()
        );
    }
}

/// The example client, which `cargo test` and `cargo nextest run` build beside the tests.
fn tiny_client() -> String {
    let path = PathBuf::from(env!("CARGO_BIN_EXE_holdoff-conformance"))
        .parent()
        .map(|dir| dir.join("examples/tiny_client"))
        .expect("the binary is in a directory");
    assert!(
        path.exists(),
        "build it first: cargo build -p holdoff-conformance --examples"
    );
    path.display().to_string()
}

fn surveyed(adapter: &str, behaviours: &[&str]) -> (Ran, Option<Survey>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let report = dir.path().join("survey.json");
    let path = report.display().to_string();
    let mut args = vec!["survey", "--adapter", adapter, "--report", &path];
    args.extend(behaviours.iter().flat_map(|behaviour| ["--behaviour", behaviour]));
    let ran = runner(&args);
    (ran, survey::read(&report).ok())
}

#[test]
fn a_survey_measures_a_client_that_waits_and_one_that_comes_early() {
    let (ran, survey) = surveyed(&tiny_client(), &["seconds-503", "post"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let client = &survey.as_ref().expect("a report").clients[0];
    let waits: Vec<f64> = client.measured["seconds-503"].groups[0]
        .iter()
        .map(|call| call.waits_ms[0])
        .collect();
    assert!(
        waits.len() == 5 && waits.iter().all(|wait| *wait >= 1998.0),
        "{waits:?}"
    );
    assert!(
        client.measured["post"].groups[0]
            .iter()
            .all(|call| call.requests == 1)
    );
    assert!(!ran.out.contains("s *early*"), "{}", ran.out);

    let (ran, _) = surveyed(&format!("{} --fault early", tiny_client()), &["seconds-503"]);
    assert!(ran.out.contains("s *early*"), "{}", ran.out);
}

#[test]
fn a_survey_leaves_out_what_does_not_start_and_says_what_broke() {
    let (ran, survey) = surveyed("/no/such/program", &["zero"]);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
    assert!(ran.err.contains("left out: /no/such/program"), "{}", ran.err);
    assert!(survey.is_some_and(|survey| survey.clients[0].failed.is_some()));

    let hello = r#"{"id":"1","protocol":1,"role":"client","implementation":{"name":"broken"},"contract_versions":[1]}"#;
    let adapter = format!("sh -c 'read -r line; echo '\"'\"'{hello}'\"'\"'; read -r line; echo boom >&2'");
    let (ran, survey) = surveyed(&adapter, &["zero"]);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
    let why = survey
        .map(|survey| survey.clients[0].not_measured["zero"].clone())
        .expect("a report");
    assert!(why.contains("boom"), "{why}");
}

#[test]
fn arguments_that_leave_a_survey_nothing_to_do_exit_with_2() {
    assert_eq!(runner(&["survey"]).code, Some(2));
    assert_eq!(
        runner(&["survey", "--adapter", "true", "--behaviour", "no-such"]).code,
        Some(2)
    );
    assert_eq!(runner(&["survey", "--from", "/no/such/file"]).code, Some(2));
}

#[test]
fn the_page_of_clients_is_the_one_that_its_numbers_make() {
    let docs = root().join("docs");
    let survey = survey::read(&docs.join("clients-results/survey.json")).expect("the numbers are there");
    let page = std::fs::read_to_string(docs.join("CLIENTS.md")).expect("the page is there");
    assert!(
        page == table::page(&survey),
        "docs/CLIENTS.md: run holdoff-conformance survey --from docs/clients-results/survey.json --markdown docs/CLIENTS.md"
    );
}
