//! The server drive end to end, over real sockets, against a hand-written server: conformant, and with one fault at a
//! time. A case that passes on every fault would be no case.

#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

mod fake_server;

use std::time::Duration;

use fake_server::{FakeServer, Fault, start};
use holdoff_conformance::adapter::{AdapterCommand, AdapterPool};
use holdoff_conformance::case::{Body, CaseSet, Role, load_embedded};
use holdoff_conformance::report::{CaseReport, RequirementState};
use holdoff_conformance::run::{RunContext, Target, run_cases};
use holdoff_conformance::score;
use holdoff_conformance::select::Selection;
use holdoff_conformance::server_drive::ServerTarget;
use holdoff_conformance::server_drive::spec::Step;
use holdoff_conformance::verdict::Verdict;

fn cases() -> CaseSet {
    load_embedded().unwrap()
}

fn by_url(fake: &FakeServer) -> Target {
    let url = fake.url.parse().unwrap();
    let metrics_url = Some(format!("{}/metrics", fake.url).parse().unwrap());
    Target::Server(ServerTarget::Url { url, metrics_url })
}

fn by_adapter(fake: &FakeServer) -> Target {
    let command = AdapterCommand::parse(&fake.adapter_command()).unwrap();
    Target::Server(ServerTarget::Adapter(AdapterPool::new(command, Role::Server)))
}

async fn run(target: &Target, ids: &[&str]) -> Vec<CaseReport> {
    let selection = Selection {
        filters: ids.iter().map(|id| (*id).to_owned()).collect(),
        jobs: 1, // one fake server behind all of them
        ..Selection::default()
    };
    let context = RunContext::new(1, Duration::from_millis(250));
    let reports = run_cases(&cases(), target, &context, &selection, |_| {}).await;
    target.stop().await;
    reports
}

fn told(report: &CaseReport) -> String {
    let failed: Vec<String> = report
        .checks
        .iter()
        .filter(|check| !check.ok)
        .map(|check| format!("{}: expected {}, saw {}", check.name, check.expected, check.seen))
        .collect();
    format!(
        "{} {:?} {:?} {failed:#?}",
        report.id, report.verdict, report.reason
    )
}

const FORCED: &[&str] = &[
    "SRV-01-status",
    "SRV-04-one",
    "SRV-05-problem",
    "SRV-06-mirrors",
    "SRV-08-retry",
    "SRV-10-retry",
    "SRV-12-no-store",
    "SRV-13-no-trailers",
    "SRV-15-applied",
    "SRV-20-degraded",
    "SRV-22-head",
    "SRV-24-strangers",
    "SRV-27-milli",
    "SEC-05-reject",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conformant_server_passes_every_plain_case_by_its_url() {
    let fake = start(Fault::None).await;
    let reports = run(&by_url(&fake), &[]).await;
    let plain =
        |case: &&holdoff_conformance::case::Case| matches!(&case.body, Body::Server(body) if body.plain);
    let cases_read = cases();
    let is_excluded = |id: &str| {
        cases_read
            .cases
            .iter()
            .any(|case| case.id == id && case.excluded.is_some())
    };
    let expected = cases_read
        .cases
        .iter()
        .filter(plain)
        .filter(|case| case.excluded.is_none())
        .count();
    let reports: Vec<_> = reports
        .into_iter()
        .filter(|report| !is_excluded(&report.id))
        .collect();
    let passed = reports
        .iter()
        .filter(|report| report.verdict == Verdict::Pass)
        .count();
    for report in &reports {
        assert!(
            matches!(report.verdict, Verdict::Pass | Verdict::NotApplicable),
            "{}",
            told(report)
        );
        assert!(
            report.verdict == Verdict::Pass || report.reason.is_some(),
            "{}",
            told(report)
        );
    }
    assert_eq!(passed, expected);
    // Side by side they would disturb each other: there is only the one server.
    assert!(cases().cases.iter().filter(plain).all(|case| case.timing));
    assert!(expected >= 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conformant_server_passes_the_forced_cases_behind_its_adapter() {
    let fake = start(Fault::None).await;
    let reports = run(&by_adapter(&fake), FORCED).await;
    assert_eq!(reports.len(), FORCED.len());
    for report in &reports {
        assert_eq!(report.verdict, Verdict::Pass, "{}", told(report));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undeclared_fixture_makes_its_case_not_applicable() {
    let fake = start(Fault::None).await;
    let reports = run(
        &by_adapter(&fake),
        &["ADM-04-expired", "ADM-01-flood", "ADM-09-states"],
    )
    .await;
    let of = |id: &str| reports.iter().find(|report| report.id.starts_with(id)).unwrap();
    assert_eq!(of("ADM-01").verdict, Verdict::NotApplicable);
    assert_eq!(of("ADM-09").verdict, Verdict::NotApplicable);
    assert!(of("ADM-09").reason.as_ref().unwrap().contains("force_state"));
    // No fixture is needed here; but nobody is held to the rules of admission who does not say that they admit by them.
    assert_eq!(of("ADM-04").verdict, Verdict::NotApplicable);
    assert!(of("ADM-04").reason.as_ref().unwrap().contains("admission"));
}

/// One case was played against this fault; it failed, and says this word.
#[track_caller]
fn caught(fault: Fault, reports: &[CaseReport], word: &str) {
    assert_eq!(reports.len(), 1, "{fault:?}");
    let told = told(&reports[0]);
    assert_eq!(reports[0].verdict, Verdict::Fail, "{fault:?}: {told}");
    assert!(told.contains(word), "{fault:?}: {told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_is_caught_and_explained() {
    let faults = [
        (Fault::HttpDate, "SRV-08-retry", "whole seconds"),
        (Fault::Status500, "SRV-01-status", "reported with status 500"),
        (Fault::NoNoStore, "SRV-12-no-store", "without no-store"),
        (Fault::BodyDisagrees, "SRV-06-mirrors", "retry_after_ms"),
        (Fault::MaxBelowAfter, "SRV-25-ranges", "max is"),
        (Fault::LongSignal, "SRV-14-sizes", "512 are allowed"),
        (Fault::TwoRetryAfters, "SRV-08-retry", "2 Retry-After lines"),
        (Fault::Trailer, "SRV-13-no-trailers", "trailer section"),
        (Fault::BodyOnHead, "SRV-22-head", "bytes"),
        (Fault::WaitsForBody, "SEC-05-reject", "no complete answer within"),
    ];
    let each = faults.into_iter().map(|(fault, id, word)| async move {
        let fake = start(fault).await;
        caught(fault, &run(&by_adapter(&fake), &[id]).await, word);
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_is_caught_by_a_url_alone_too() {
    let faults = [
        (Fault::HttpDate, "PLAIN-rejects-are-whole", "whole seconds"),
        (
            Fault::Status500,
            "PLAIN-rejects-are-whole",
            "reported with status 500",
        ),
        (Fault::BodyDisagrees, "PLAIN-rejects-are-whole", "retry_after_ms"),
        (Fault::CodeOnValidation, "PLAIN-validation", "422 queue_full"),
        (
            Fault::StartsRejected,
            "SRQ-02-deadline-zero",
            "agent_task_start_delay_seconds_count",
        ),
        (Fault::CutsShort, "SRQ-03", "ended before a complete answer"),
        (Fault::Garbage, "SRQ-03", "not an HTTP answer"),
        (Fault::EndlessBody, "SRQ-03", "over 4194304 bytes"),
    ];
    let each = faults.into_iter().map(|(fault, id, word)| async move {
        let fake = start(fault).await;
        caught(fault, &run(&by_url(&fake), &[id]).await, word);
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_window_for_everybody_is_a_warning() {
    let fake = start(Fault::OneWindow).await;
    let reports = run(&by_url(&fake), &["PLAIN-hints-differ"]).await;
    assert_eq!(reports[0].verdict, Verdict::Warn, "{}", told(&reports[0]));
    assert!(
        told(&reports[0]).contains("1 in the poorest run"),
        "{}",
        told(&reports[0])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_everything_is_not_verified_instead_of_passed() {
    let fake = start(Fault::NeverRejects).await;
    let reports = run(&by_url(&fake), &["PLAIN-rejects-are-quick"]).await;
    assert_ne!(reports[0].verdict, Verdict::Pass, "{}", told(&reports[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_about_what_a_server_never_says_is_not_passed_and_is_not_what_broke() {
    let fake = start(Fault::KnowsNoContract).await;
    let reports = run(
        &by_url(&fake),
        &[
            "PLAIN-rejects-are-kind",
            "PLAIN-rejects-are-whole",
            "PLAIN-rejects-are-quick",
        ],
    )
    .await;
    let of = |id: &str| reports.iter().find(|report| report.id == id).unwrap();
    let kind = of("PLAIN-rejects-are-kind");
    assert_eq!(kind.verdict, Verdict::NotApplicable, "{}", told(kind));
    assert!(
        told(kind).contains("no answer is one that SRV-27 speaks of"),
        "{}",
        told(kind)
    );
    // What is asked of every reject is looked at all the same.
    let quick = of("PLAIN-rejects-are-quick");
    assert_eq!(quick.verdict, Verdict::Pass, "{}", told(quick));
    let whole = of("PLAIN-rejects-are-whole");
    assert_eq!(whole.verdict, Verdict::Fail, "{}", told(whole));
    let lines = score::by_requirement(&cases().requirements, &reports, |_| false);
    let in_state = |wanted: RequirementState| -> Vec<&str> {
        let lines = lines.iter().filter(|line| line.state == wanted);
        lines.map(|line| line.id.as_str()).collect()
    };
    assert_eq!(
        in_state(RequirementState::Fail),
        ["SRV-04", "SRV-05", "SRV-12", "SRV-24"]
    );
    let unseen = in_state(RequirementState::NotTested);
    for id in ["SRV-06", "SRV-08", "SRV-25", "SRV-27", "SRV-28", "VER-01"] {
        assert!(unseen.contains(&id), "{id} is not among {unseen:?}");
    }
    let held = in_state(RequirementState::Pass);
    assert!(held.contains(&"SRV-14") && held.contains(&"SEC-05"), "{held:?}");

    // Behind an adapter such a case does not hold: there a reject can be asked for.
    let reports = run(&by_adapter(&fake), &["PLAIN-rejects-are-kind"]).await;
    assert_eq!(reports[0].verdict, Verdict::Warn, "{}", told(&reports[0]));
    assert!(
        told(&reports[0]).contains("something to look at"),
        "{}",
        told(&reports[0])
    );
}

/// The plain cases that ask questions, which a throttled caller gets no answer to.
fn questions() -> Vec<String> {
    let asks = |case: &holdoff_conformance::case::Case| match &case.body {
        Body::Server(body) => body.plain && body.steps.iter().any(|step| matches!(step, Step::Probe(_))),
        _ => false,
    };
    let ids: Vec<String> = cases()
        .cases
        .iter()
        .filter(|case| asks(case))
        .map(|case| case.id.clone())
        .collect();
    assert!(ids.len() >= 8, "{ids:?}");
    ids
}

/// Each of these cases against a server of its own with this fault.
async fn each_alone(fault: Fault, ids: &[String]) -> Vec<CaseReport> {
    let runs = ids.iter().map(|id| async move {
        let fake = start(fault).await;
        run(&by_url(&fake), &[id.as_str()]).await.remove(0)
    });
    futures_util::future::join_all(runs).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_of_refusals_that_is_empty_at_the_start_flips_no_verdict() {
    let plain = |case: &&holdoff_conformance::case::Case| {
        matches!(&case.body, Body::Server(body) if body.plain) && case.excluded.is_none()
    };
    let all: Vec<String> = cases()
        .cases
        .iter()
        .filter(plain)
        .map(|case| case.id.clone())
        .collect();
    let questions = questions();
    for report in each_alone(Fault::EmptyBucket, &all).await {
        if questions.contains(&report.id) {
            assert_eq!(report.verdict, Verdict::Pass, "{}", told(&report));
            let waited = report
                .checks
                .iter()
                .any(|check| check.name == "answers set aside");
            assert!(waited, "it was throttled, and says so: {}", told(&report));
        } else {
            // A flood may end while the server still throttles; then it has shown nothing.
            let undone = report.verdict == Verdict::NotApplicable;
            let why = report.reason.clone().unwrap_or_default();
            assert!(
                report.verdict == Verdict::Pass || (undone && why.starts_with("inconclusive")),
                "{}",
                told(&report)
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_throttles_to_the_end_has_shown_nothing_and_neither_passes_nor_fails() {
    for report in each_alone(Fault::ThrottlesForever, &questions()).await {
        assert_eq!(report.verdict, Verdict::NotApplicable, "{}", told(&report));
        let why = report.reason.clone().unwrap_or_default();
        assert!(why.contains("so was an ordinary request"), "{why}");
    }
    let ids = ["PLAIN-hints-differ".to_owned()];
    let reports = each_alone(Fault::ThrottlesForever, &ids).await;
    assert_eq!(
        reports[0].verdict,
        Verdict::NotApplicable,
        "{}",
        told(&reports[0])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_only_the_probe_gets_is_its_answer_and_fails() {
    let ids = ["PLAIN-odd-tiers-are-served".to_owned()];
    let reports = each_alone(Fault::ThrottlesOddTiers, &ids).await;
    assert_eq!(reports[0].verdict, Verdict::Fail, "{}", told(&reports[0]));
    assert!(
        told(&reports[0]).contains("429 retry_throttled"),
        "{}",
        told(&reports[0])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_waited_out_must_be_a_whole_reject_all_the_same() {
    let ids = ["SRQ-03-deadline-too-large".to_owned()];
    let reports = each_alone(Fault::EmptyBucketNoNoStore, &ids).await;
    assert_eq!(reports[0].verdict, Verdict::Fail, "{}", told(&reports[0]));
    assert!(
        told(&reports[0]).contains("without no-store"),
        "{}",
        told(&reports[0])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_or_is_not_there_fails_in_bounded_time() {
    let fake = start(Fault::Hangs).await;
    let reports = run(
        &by_url(&fake),
        &["PLAIN-rejects-are-quick", "SRQ-02-deadline-zero"],
    )
    .await;
    assert_eq!(reports.len(), 2);
    for report in &reports {
        assert_eq!(report.verdict, Verdict::Fail, "{}", told(report));
        assert!(report.elapsed_ms < 20_000, "{}", told(report));
    }
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", nobody.local_addr().unwrap())
        .parse()
        .unwrap();
    drop(nobody);
    let target = Target::Server(ServerTarget::Url {
        url,
        metrics_url: None,
    });
    let reports = run(&target, &["PLAIN-rejects-are-quick", "SRQ-02-deadline-zero"]).await;
    for report in &reports {
        assert_eq!(report.verdict, Verdict::Fail, "{}", told(report));
        assert!(told(report).contains("cannot connect"), "{}", told(report));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_that_miscount_are_caught_by_the_second_witness() {
    // The miscounting server answers well on the wire; only its page gives it away.
    let fake = start(Fault::MiscountsRejects).await;
    let dir = tempfile::tempdir().unwrap();
    let text = "schema: overload-cases/1\ncases:\n  - id: T-agree\n    title: Wire and page agree.\n    \
                requirements: [ADM-01]\n    server:\n      plain: true\n      steps:\n        - scrape: a\n        \
                - load: [ { label: l, n: 4, deadline_ms: 0 } ]\n        - scrape: b\n      checks:\n        \
                - agree: { from: a, to: b, of: l }\n";
    std::fs::write(dir.path().join("t.yaml"), text).unwrap();
    let set = holdoff_conformance::case::load_dir(dir.path()).unwrap();
    let context = RunContext::new(1, Duration::from_millis(250));
    let target = by_url(&fake);
    let reports = run_cases(&set, &target, &context, &Selection::default(), |_| {}).await;
    assert_eq!(reports[0].verdict, Verdict::Fail);
    assert!(
        told(&reports[0]).contains("rejects on both witnesses"),
        "{}",
        told(&reports[0])
    );
    let honest = by_url(&start(Fault::None).await);
    let reports = run_cases(&set, &honest, &context, &Selection::default(), |_| {}).await;
    assert_eq!(reports[0].verdict, Verdict::Pass, "{}", told(&reports[0]));
}
