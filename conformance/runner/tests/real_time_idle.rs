//! No case passes against a peer that does nothing. A case that did would pass against anything.
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

use std::path::Path;
use std::time::Duration;

use holdoff_conformance::adapter::{AdapterCommand, AdapterPool};
use holdoff_conformance::case::{CaseSet, Role, load_embedded};
use holdoff_conformance::report::{CaseReport, RequirementState};
use holdoff_conformance::run::{MAX_JOBS, RunContext, Target, run_cases, run_vectors};
use holdoff_conformance::score;
use holdoff_conformance::select::Selection;
use holdoff_conformance::server_drive::ServerTarget;
use holdoff_conformance::vector::Vectors;
use holdoff_conformance::verdict::Verdict;

fn idle(role: Role) -> AdapterPool {
    saying("", role)
}

/// A peer that does nothing, and says `words` of every call.
fn saying(words: &str, role: Role) -> AdapterPool {
    let dir = Path::new(env!("CARGO_BIN_EXE_holdoff-conformance"))
        .parent()
        .unwrap();
    let peer = dir.join("examples/idle_peer");
    assert!(
        peer.exists(),
        "build it first: cargo build -p holdoff-conformance --examples"
    );
    let line = format!("{} {} '{words}'", peer.display(), role.word());
    AdapterPool::new(AdapterCommand::parse(&line).unwrap(), role)
}

/// All cases side by side: nothing is measured, since nothing happens.
fn cases() -> CaseSet {
    let mut set = load_embedded().unwrap();
    for case in &mut set.cases {
        case.timing = false;
    }
    set
}

fn selection() -> Selection {
    Selection {
        jobs: MAX_JOBS / 2,
        ..Selection::default()
    }
}

#[track_caller]
fn none_passed(role: Role, set: &CaseSet, reports: &[CaseReport]) {
    let wanted = set.cases.iter().filter(|case| case.role() == role).count();
    let cases: Vec<&CaseReport> = reports
        .iter()
        .filter(|report| !report.id.starts_with("vector/"))
        .collect();
    assert_eq!(cases.len(), wanted);
    let said = |report: &&CaseReport| format!("{} {:?} {:?}", report.id, report.verdict, report.reason);
    let passed: Vec<String> = reports
        .iter()
        .filter(|report| report.verdict == Verdict::Pass)
        .map(|report| said(&report))
        .collect();
    assert!(passed.is_empty(), "{passed:#?}");
    // Nor may it be excused: it declares everything that a case could ask for.
    let excused: Vec<String> = reports
        .iter()
        .filter(|report| matches!(report.verdict, Verdict::NotApplicable | Verdict::HarnessError))
        .map(|report| said(&report))
        .collect();
    assert!(excused.is_empty(), "{excused:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_case_and_no_vector_passes_against_a_client_that_does_nothing() {
    let set = cases();
    let context = RunContext::new(1, Duration::from_millis(250));
    let vectors = Vectors::load_embedded(&set.requirements).unwrap();
    let target = Target::Client(idle(Role::Client));
    let mut reports = run_cases(&set, &target, &context, &selection(), |_| {}).await;
    if let Target::Client(pool) = &target {
        let all = run_vectors(&vectors, &set.requirements, pool, &context, &selection(), |_| {}).await;
        assert_eq!(all.len(), vectors.vectors.len());
        reports.extend(all);
    }
    target.stop().await;
    none_passed(Role::Client, &set, &reports);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_case_passes_against_a_client_that_does_nothing_and_boasts() {
    let set = cases();
    let context = RunContext::new(1, Duration::from_millis(250));
    let selection = selection();
    let boasts = [
        r#"{"kind":"response","status":200,"attempts":1,"elapsed_ms":1}"#,
        r#"{"kind":"overloaded","status":503,"why":"retry_forbidden","retry":"no","attempts":1,"elapsed_ms":1}"#,
        "{}",
    ];
    let (set, context, selection) = (&set, &context, &selection);
    let runs = boasts.into_iter().map(|words| async move {
        let target = Target::Client(saying(words, Role::Client));
        let reports = run_cases(set, &target, context, selection, |_| {}).await;
        target.stop().await;
        none_passed(Role::Client, set, &reports);
        let held = score::by_requirement(&set.requirements, &reports, |_| false)
            .into_iter()
            .filter(|line| line.state == RequirementState::Pass)
            .count();
        assert_eq!(held, 0, "{words}");
    });
    futures_util::future::join_all(runs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_server_case_passes_against_a_server_that_does_nothing() {
    let set = cases();
    let context = RunContext::new(1, Duration::from_millis(250));
    let target = Target::Server(ServerTarget::Adapter(idle(Role::Server)));
    let reports = run_cases(&set, &target, &context, &selection(), |_| {}).await;
    target.stop().await;
    none_passed(Role::Server, &set, &reports);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_relay_case_passes_against_a_relay_that_does_nothing() {
    let set = cases();
    let context = RunContext::new(1, Duration::from_millis(250));
    let target = Target::Relay(idle(Role::Relay));
    let reports = run_cases(&set, &target, &context, &selection(), |_| {}).await;
    target.stop().await;
    none_passed(Role::Relay, &set, &reports);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pair_case_passes_between_two_that_do_nothing() {
    let set = cases();
    let context = RunContext::new(1, Duration::from_millis(250));
    let target = Target::Both {
        client: idle(Role::Client),
        server: ServerTarget::Adapter(idle(Role::Server)),
    };
    let reports = run_cases(&set, &target, &context, &selection(), |_| {}).await;
    target.stop().await;
    none_passed(Role::Both, &set, &reports);
}
