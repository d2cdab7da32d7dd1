//! Reports of real runs: each form is read back by a parser that is not the one that wrote it.
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn runner(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdoff-conformance"))
        .args(args)
        .output()
        .unwrap()
}

fn tiny_client(fault: &str) -> String {
    let dir = Path::new(env!("CARGO_BIN_EXE_holdoff-conformance"))
        .parent()
        .unwrap();
    format!("{} --fault {fault}", dir.join("examples/tiny_client").display())
}

struct Reports {
    dir: tempfile::TempDir,
    output: Output,
}

/// A run with everything that can be written: one case that passes, one that fails, one that does not apply.
fn run(fault: &str, more: &[&str]) -> Reports {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let adapter = tiny_client(fault);
    let (json, junit, markdown, badge, record) = (
        file("report.json"),
        file("junit.xml"),
        file("report.md"),
        file("badge.json"),
        file("record"),
    );
    let mut args = vec![
        "client",
        "--adapter",
        &adapter,
        "--seed",
        "7",
        "--report",
        &json,
        "--junit",
        &junit,
        "--markdown",
        &markdown,
        "--badge",
        &badge,
        "--record",
        &record,
        "--filter",
        "stop-retry-no",
        "--filter",
        "stop-over-cap",
        "--filter",
        "holdoff-service",
    ];
    args.extend(more);
    let output = runner(&args);
    Reports { dir, output }
}

impl Reports {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text("report.json")).unwrap()
    }
}

fn case<'a>(report: &'a Value, id: &str) -> &'a Value {
    let cases = report["cases"].as_array().unwrap();
    cases.iter().find(|case| case["id"] == id).unwrap()
}

#[test]
fn a_real_report_fits_its_schema_whether_it_passed_or_failed() {
    let schema: Value = serde_json::from_str(include_str!("../report.schema.json")).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (fault, code) in [("none", 0), ("ignore-no", 1)] {
        let reports = run(fault, &[]);
        assert_eq!(reports.output.status.code(), Some(code), "{:?}", reports.output);
        let report = reports.json();
        let errors: Vec<String> = validator
            .iter_errors(&report)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
        assert_eq!(report["required"], "requirements/v1");
        // The schema can fail: a report that says less, or something else, is none.
        let mut broken = report.clone();
        broken["cases"][0]["verdict"] = "fine".into();
        assert!(!validator.is_valid(&broken));
        broken = report;
        broken.as_object_mut().unwrap().remove("conclusion");
        assert!(!validator.is_valid(&broken));
    }
}

#[test]
fn junit_is_xml_and_a_case_that_failed_has_a_failure_that_explains_itself() {
    let reports = run("ignore-no", &[]);
    let text = reports.text("junit.xml");
    let xml = roxmltree::Document::parse(&text).unwrap();
    let of = |id: &str| {
        xml.descendants()
            .find(|node| node.has_tag_name("testcase") && node.attribute("name") == Some(id))
            .unwrap()
    };
    let child = |id: &str, tag: &str| of(id).children().find(|node| node.has_tag_name(tag));
    let failure = child("stop-retry-no", "failure").unwrap();
    let said = failure.text().unwrap();
    for words in [
        "requirement    CLI-06 MUST NOT: Retry after retry=no.",
        "expected 1, saw 2",
        "answered 503",
        "after the reject's head",
        "run it again   holdoff-conformance client --adapter",
    ] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
    assert!(
        failure
            .attribute("message")
            .unwrap()
            .contains("expected 1, saw 2")
    );
    assert!(child("stop-over-cap", "failure").is_none() && child("stop-over-cap", "skipped").is_none());
    assert!(child("holdoff-service", "skipped").is_some());
    let root = xml.root_element();
    assert_eq!(root.attribute("failures"), Some("1"));
    let cases = xml
        .descendants()
        .filter(|node| node.has_tag_name("testcase"))
        .count();
    assert_eq!(root.attribute("tests"), Some(cases.to_string().as_str()));
    assert_eq!(reports.json()["cases"].as_array().unwrap().len(), cases);
}

#[test]
fn the_badge_is_what_shields_reads_and_the_markdown_names_what_failed() {
    let reports = run("ignore-no", &[]);
    let badge: Value = serde_json::from_str(&reports.text("badge.json")).unwrap();
    assert_eq!(badge["schemaVersion"], 1);
    assert_eq!(badge["color"], "red");
    assert!(badge["label"].as_str().is_some_and(|label| !label.is_empty()));
    assert!(
        badge["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("not conformant"))
    );
    let markdown = reports.text("report.md");
    assert!(markdown.contains("NOT conformant"));
    assert!(markdown.contains("### fail `stop-retry-no`"));
    assert!(!markdown.contains("### fail `stop-over-cap`"));
    // A part of the cases is no claim, however green it is.
    let part: Value = serde_json::from_str(&run("none", &[]).text("badge.json")).unwrap();
    assert!(part["message"].as_str().unwrap().ends_with("of a part"));
}

#[test]
fn a_wire_log_says_what_was_seen_and_judged_again_gives_the_same_verdict() {
    for (fault, code) in [("none", 0), ("ignore-no", 1)] {
        let reports = run(fault, &[]);
        let report = reports.json();
        let record = case(&report, "stop-retry-no")["record"]
            .as_str()
            .unwrap()
            .to_owned();
        let text = std::fs::read_to_string(&record).unwrap();
        let events: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(events[0]["schema"], "overload-wire/1");
        let requests = events.iter().filter(|event| event["event"] == "request").count();
        assert_eq!(requests, code + 1);
        let again = runner(&["rejudge", &record]);
        assert_eq!(
            again.status.code(),
            Some(i32::try_from(code).unwrap()),
            "{again:?}"
        );
    }
    let broken = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(broken.path(), "{\"event\":\"case\",\"more\":1}\n").unwrap();
    let refused = runner(&["rejudge", &broken.path().display().to_string()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("line 1"));
}

#[test]
fn measured_delays_are_in_the_report_and_two_reports_make_a_table() {
    let (good, bad) = (run("none", &[]), run("ignore-no", &[]));
    let gaps = case(&bad.json(), "stop-retry-no")["measured"][0]["gaps_ms"].clone();
    assert_eq!(gaps.as_array().unwrap().len(), 1, "{gaps}");
    assert!(gaps[0].as_f64().unwrap() > 0.0);
    let dir = tempfile::tempdir().unwrap();
    let (html, markdown) = (dir.path().join("t.html"), dir.path().join("t.md"));
    let made = runner(&[
        "table",
        good.path("report.json").to_str().unwrap(),
        bad.path("report.json").to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
        "--markdown",
        markdown.to_str().unwrap(),
    ]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let html = std::fs::read_to_string(html).unwrap();
    assert!(html.contains("stop-retry-no") && html.contains(" ms</small>") && !html.contains("src="));
    let text = std::fs::read_to_string(markdown).unwrap();
    let row = text
        .lines()
        .find(|line| line.starts_with("| stop-retry-no |"))
        .unwrap();
    assert!(row.starts_with("| stop-retry-no | pass | fail, "), "{row}");
    let none = runner(&["table", "no-such-report.json"]);
    assert_eq!(none.status.code(), Some(2));
}

#[test]
fn a_baseline_turns_what_is_known_green_and_what_holds_again_red() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("baseline.toml");
    let write = |case: &str, expires: &str| {
        let text = format!(
            "schema = \"overload-baseline/1\"\n[[known]]\ncase = \"{case}\"\nkind = \"fail\"\nreason = \"tracked as #12\"\nexpires = {expires}\n"
        );
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let verdict = |reports: &Reports| case(&reports.json(), "stop-retry-no")["verdict"].clone();
    let soon = tomorrow();
    let known = run("ignore-no", &["--baseline", &write("stop-retry-no", &soon)]);
    assert_eq!(known.output.status.code(), Some(0), "{:?}", known.output);
    assert_eq!(verdict(&known), "known_fail");
    let stale = run("none", &["--baseline", &write("stop-retry-no", &soon)]);
    assert_eq!(stale.output.status.code(), Some(1));
    assert_eq!(verdict(&stale), "stale_baseline");
    let expired = run(
        "ignore-no",
        &["--baseline", &write("stop-retry-no", "2020-01-01")],
    );
    assert_eq!(expired.output.status.code(), Some(1));
    assert_eq!(verdict(&expired), "stale_baseline");
    let unknown = run("none", &["--baseline", &write("no-such-case", &soon)]);
    assert_eq!(unknown.output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.output.stderr).contains("no-such-case"));
}

/// A run of the example client with these options, and its report.
fn filtered(fault: &str, more: &[&str]) -> (Output, Value) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.json");
    let adapter = tiny_client(fault);
    let path = file.display().to_string();
    let mut args = vec!["client", "--adapter", &adapter, "--seed", "7", "--report", &path];
    args.extend(more);
    let output = runner(&args);
    let report = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    (output, report)
}

fn state(report: &Value, id: &str) -> Value {
    let all = report["requirements"].as_array().unwrap();
    all.iter().find(|line| line["id"] == id).unwrap()["state"].clone()
}

#[test]
fn a_run_of_nothing_but_what_is_known_to_fail_verifies_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("baseline.toml");
    for (kind, verdict) in [("fail", "known_fail"), ("flaky", "known_flaky")] {
        let text = format!(
            "schema = \"overload-baseline/1\"\n[[known]]\ncase = \"stop-retry-no\"\nkind = \"{kind}\"\nreason = \"tracked as #12\"\nexpires = {}\n",
            tomorrow()
        );
        std::fs::write(&file, text).unwrap();
        let path = file.display().to_string();
        let alone = ["--filter", "stop-retry-no", "--baseline", &path];
        let (output, report) = filtered("ignore-no", &alone);
        assert_eq!(case(&report, "stop-retry-no")["verdict"], verdict);
        assert_eq!(report["conclusion"], "nothing_verified");
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let beside = [&alone[..], &["--filter", "stop-over-cap"]].concat();
        let (output, report) = filtered("ignore-no", &beside);
        assert_eq!(report["conclusion"], "known_failures");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = said.lines().last().unwrap();
        assert!(
            last.starts_with("conformant but for 1 known: a baseline that excuses a MUST claims no profile"),
            "{last}"
        );
    }
}

#[test]
fn a_vector_is_picked_by_its_own_name_as_well() {
    for name in ["ra-zero", "window-whole-second"] {
        let (_, report) = filtered("none", &["--filter", name]);
        let cases = report["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 1, "{name}: {cases:?}");
        assert_eq!(cases[0]["id"], format!("vector/{name}"));
    }
}

#[test]
fn a_case_that_shows_only_that_too_much_is_not_done_holds_no_requirement() {
    let (output, report) = filtered("none", &["--filter", "holdoff-none-for-a-bare-429"]);
    assert_eq!(
        case(&report, "holdoff-none-for-a-bare-429")["verdict"],
        "pass",
        "{output:?}"
    );
    assert_eq!(
        case(&report, "holdoff-none-for-a-bare-429")["unseen"][0],
        "CLI-15"
    );
    assert_eq!(state(&report, "CLI-15"), "not_tested");
}

#[test]
fn a_run_that_stopped_at_the_first_failure_says_that_it_is_a_part() {
    let (output, report) = filtered("ignore-no", &["--filter", "stop-", "--fail-fast"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(report["left_out"].as_u64().unwrap() > 0);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.lines()
            .last()
            .unwrap()
            .ends_with("only a part of the cases was played"),
        "{said}"
    );
}

#[cfg(unix)]
#[test]
fn a_capability_that_no_case_knows_is_warned_of_with_the_nearest_one() {
    let script = r#"while IFS= read -r line; do
        id=${line#*\"id\":\"}; id=${id%%\"*}
        case $line in
            *'"hello"'*) echo "{\"id\":\"$id\",\"protocol\":1,\"role\":\"client\",\"implementation\":{\"name\":\"sh\",\"version\":\"1\",\"configuration\":\"none\"},\"contract_versions\":[1],\"capabilities\":[\"deadline\",\"hold_of\"]}" ;;
            *'"stop"'*) echo "{\"id\":\"$id\",\"ok\":true}"; exit 0 ;;
            *) echo "{\"id\":\"$id\",\"error\":\"unknown_command\"}" ;;
        esac
    done"#;
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (dir.path().join("adapter.sh"), dir.path().join("report.json"));
    std::fs::write(&program, script).unwrap();
    let (adapter, path) = (format!("sh {}", program.display()), file.display().to_string());
    let args = [
        "client",
        "--adapter",
        &adapter,
        "--filter",
        "ra-zero",
        "--report",
        &path,
    ];
    let output = runner(&args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let words =
        "the adapter declares the capability \"hold_of\", which no case knows; did you mean \"hold_off\"?";
    assert!(
        said.contains(words) && said.matches("warning").count() == 1,
        "{said}"
    );
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(report["warnings"][0], words);
    let schema: Value = serde_json::from_str(include_str!("../report.schema.json")).unwrap();
    assert!(jsonschema::is_valid(&schema, &report));
    assert_eq!(report["implementation"]["configuration"], "none");
}

/// A date that is not past for as long as the test runs.
fn tomorrow() -> String {
    let day =
        httpdate::fmt_http_date(holdoff_conformance::clock::wall() + std::time::Duration::from_secs(86_400));
    // Sun, 06 Nov 1994 08:49:37 GMT
    let words: Vec<&str> = day.split(' ').collect();
    let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let month = months.iter().position(|month| *month == words[2]).unwrap() + 1;
    format!("{}-{month:02}-{}", words[3], words[1])
}

#[test]
fn shards_together_run_every_selected_case_once() {
    let ids = |shard: &str| -> Vec<String> {
        let reports = run("none", &["--shard", shard]);
        let report = reports.json();
        assert_eq!(report["shard"], shard);
        let cases = report["cases"].as_array().unwrap();
        cases
            .iter()
            .map(|case| case["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let whole = run("none", &[]).json()["cases"].as_array().unwrap().len();
    let mut parts = ids("1/2");
    parts.extend(ids("2/2"));
    assert_eq!(parts.len(), whole);
    parts.sort();
    parts.dedup();
    assert_eq!(parts.len(), whole);
    let refused = run("none", &["--shard", "3/2"]);
    assert_eq!(refused.output.status.code(), Some(2));
}
