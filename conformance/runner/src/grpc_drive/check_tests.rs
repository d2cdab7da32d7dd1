use http::HeaderValue;

use super::super::proto::Any;
use super::*;

fn good(code: &str) -> Seen {
    let retry = retry_of(code);
    let scope = if code == "tenant_limit" {
        "tenant"
    } else {
        "request"
    };
    let metadata = [
        ("contract_version", "1"),
        ("retry", retry),
        ("applied", "no"),
        ("scope", scope),
        ("hop", "0"),
    ];
    let info = ErrorInfo {
        reason: code.to_ascii_uppercase(),
        domain: "d".to_owned(),
        metadata: metadata.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
    };
    let mut details = vec![Any::of("ErrorInfo", &info)];
    if retry == "after" {
        let retry_delay = Some(Span::of_ms(400));
        details.push(Any::of("RetryInfo", &RetryInfo { retry_delay }));
    }
    let status = Status {
        code: 14,
        message: String::new(),
        details,
    };
    let mut head = HeaderMap::new();
    head.insert("grpc-status", HeaderValue::from_static(status_of(code)));
    head.insert(
        "grpc-status-details-bin",
        HeaderValue::try_from(status.to_base64()).unwrap(),
    );
    match retry {
        "after" => drop(head.insert("grpc-retry-pushback-ms", HeaderValue::from_static("500"))),
        "no" => drop(head.insert("grpc-retry-pushback-ms", HeaderValue::from_static("-1"))),
        _ => {}
    }
    Seen {
        http: 200,
        head,
        head_is_all: true,
        data: 0,
        trailers: None,
    }
}

fn held(rule: Rule, code: &str, break_it: impl Fn(&mut Seen)) -> bool {
    let mut seen = good(code);
    break_it(&mut seen);
    let body = GrpcServerCase {
        codes: vec![code.to_owned()],
        after_ms: vec![400],
        width_ms: 200,
        count: 1,
        identity: None,
        state: Some("shedding".to_owned()),
        rules: vec![rule],
    };
    let mut findings = Findings::default();
    judge(&mut findings, rule, &[Refusal::new(code, 400, 600, seen)], &body);
    assert!(!findings.checks.is_empty());
    findings.failed().next().is_none()
}

const RULES: [Rule; 5] = [
    Rule::Status,
    Rule::TrailersOnly,
    Rule::ErrorInfo,
    Rule::RetryInfo,
    Rule::Pushback,
];

fn put(name: &'static str, value: &'static str) -> impl Fn(&mut Seen) {
    move |seen| drop(seen.head.insert(name, HeaderValue::from_static(value)))
}

#[test]
fn a_good_refusal_of_each_permission_holds() {
    for code in ["queue_full", "draining", "deadline_expired", "tenant_limit"] {
        for rule in RULES {
            assert!(held(rule, code, |_| {}), "{rule:?} {code}");
        }
    }
}

#[test]
fn each_rule_sees_what_it_is_for() {
    assert!(!held(Rule::Status, "tenant_limit", put("grpc-status", "14")));
    assert!(!held(Rule::Status, "queue_full", put("grpc-status", "13")));
    assert!(!held(Rule::TrailersOnly, "queue_full", |seen| {
        seen.trailers = Some(std::mem::take(&mut seen.head));
        seen.head_is_all = false;
    }));
    assert!(!held(Rule::TrailersOnly, "queue_full", |seen| seen.http = 503));
    assert!(!held(
        Rule::ErrorInfo,
        "queue_full",
        put("grpc-status-details-bin", "")
    ));
    assert!(!held(
        Rule::ErrorInfo,
        "queue_full",
        put("overload-signal", "v=1, state=shedding")
    ));
    assert!(!held(
        Rule::RetryInfo,
        "queue_full",
        put("grpc-status-details-bin", "")
    ));
    assert!(!held(
        Rule::Pushback,
        "queue_full",
        put("grpc-retry-pushback-ms", "399")
    ));
    assert!(!held(
        Rule::Pushback,
        "queue_full",
        put("grpc-retry-pushback-ms", "601")
    ));
    assert!(!held(
        Rule::Pushback,
        "deadline_expired",
        put("grpc-retry-pushback-ms", "5")
    ));
    assert!(!held(
        Rule::Pushback,
        "draining",
        put("grpc-retry-pushback-ms", "500")
    ));
    assert!(!held(Rule::Pushback, "queue_full", |seen| {
        seen.head
            .append("grpc-retry-pushback-ms", HeaderValue::from_static("500"));
    }));
}

#[test]
fn no_refusal_at_all_holds_no_rule() {
    let body = GrpcServerCase {
        codes: Vec::new(),
        after_ms: Vec::new(),
        width_ms: 1,
        count: 1,
        identity: None,
        state: None,
        rules: Vec::new(),
    };
    for rule in RULES.into_iter().chain([Rule::Random]) {
        let mut findings = Findings::default();
        judge(&mut findings, rule, &[], &body);
        assert!(findings.failed().next().is_some(), "{rule:?}");
    }
}
