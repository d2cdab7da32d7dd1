//! Every check passes a caller that obeys and fails one that does not.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use holdoff_contract::{Applied, Code, Hint, Retry, Tier};
use holdoff_testkit::{Answer, CallKey, Record, Script, deferred, draining, overloaded, plain, served};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A server with this script, and its record.
async fn start(script: Script) -> (MockServer, Record) {
    let server = MockServer::start().await;
    let record = script.record();
    Mock::given(any()).respond_with(script).mount(&server).await;
    (server, record)
}

fn refused_once() -> Script {
    Script::new([overloaded(Code::QueueFull).after(ms(100)).max(ms(150))]).then(served())
}

/// The wait before a request, its path and its fields.
type Planned<'a> = (u64, &'a str, &'a [(&'a str, &'a str)]);

/// Sends requests with these waits before them.
async fn send(server: &MockServer, requests: &[Planned<'_>]) {
    let client = reqwest::Client::new();
    for (wait, path, fields) in requests {
        tokio::time::sleep(ms(*wait)).await;
        let mut request = client.post(format!("{}{path}", server.uri())).body("work");
        for (name, value) in *fields {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().bytes().await.unwrap();
    }
}

#[tokio::test]
async fn a_caller_that_comes_at_once_is_told_early_and_one_that_waits_is_not() {
    let (server, record) = start(refused_once()).await;
    send(&server, &[(0, "/a", &[]), (20, "/a", &[])]).await;
    let violation = record.check_never_early().unwrap_err();
    assert_eq!((violation.count, record.early()), (1, 1));
    assert!(violation.to_string().contains("POST /a: after"), "{violation}");

    let (server, record) = start(refused_once()).await;
    send(&server, &[(0, "/a", &[]), (100, "/a", &[])]).await;
    record.assert_never_early();
    record.assert_attempts(2);
}

#[tokio::test]
async fn a_caller_that_comes_after_its_window_is_told_late() {
    let (server, record) = start(refused_once()).await;
    send(&server, &[(0, "/a", &[]), (400, "/a", &[])]).await;
    assert_eq!(record.check_within_window(ms(200)).unwrap_err().count, 1);
    assert_eq!(record.check_within_window(Duration::from_secs(5)), Ok(()));
}

#[tokio::test]
async fn who_comes_back_after_a_no_is_told_so() {
    let script = Script::new([overloaded(Code::QueueFull).no_retry()]).then(served());
    let (server, record) = start(script).await;
    send(&server, &[(0, "/a", &[])]).await;
    record.assert_stops_when_told();
    send(&server, &[(0, "/a", &[])]).await;
    assert_eq!(record.check_stops_when_told().unwrap_err().count, 1);
}

#[tokio::test]
async fn the_number_of_requests_is_counted_in_all_and_for_each_call() {
    let (server, record) = start(Script::new([served()])).await;
    send(&server, &[(0, "/a", &[]), (0, "/a", &[]), (0, "/b", &[])]).await;
    assert!(record.check_attempts(2).is_err());
    record.assert_attempts(3);
    record.assert_attempts_per_call(2);
    let violation = record.check_attempts_per_call(1).unwrap_err();
    assert_eq!(violation.found, ["POST /a: 2 requests, 1 are allowed"]);
}

#[tokio::test]
async fn a_deadline_must_be_there_and_shrink_by_what_was_waited() {
    for (deadlines, holds) in [
        (["1000", "900"], true),
        (["1000", "950"], false),
        (["1000", "1000"], false),
        (["1000", "x"], false),
    ] {
        let (server, record) = start(refused_once()).await;
        let fields = deadlines.map(|deadline| [("overload-deadline-ms", deadline)]);
        send(&server, &[(0, "/a", &fields[0]), (100, "/a", &fields[1])]).await;
        assert_eq!(record.check_deadline_shrinks().is_ok(), holds, "{deadlines:?}");
    }
}

#[tokio::test]
async fn one_key_is_one_key() {
    let key = [("idempotency-key", "k1")];
    let other = [("idempotency-key", "k2")];
    for (second, holds) in [(&key[..], true), (&other[..], false), (&[][..], false)] {
        let (server, record) = start(Script::new([served()])).await;
        send(&server, &[(0, "/a", &key), (0, "/a", second)]).await;
        assert_eq!(record.check_same_key().is_ok(), holds, "{second:?}");
    }
}

#[tokio::test]
async fn a_body_that_changes_from_send_to_send_is_told() {
    let (server, record) = start(Script::new([served()])).await;
    let client = reqwest::Client::new();
    for body in ["work", "work"] {
        client.post(server.uri()).body(body).send().await.unwrap();
    }
    record.assert_same_body();
    client.post(server.uri()).send().await.unwrap();
    let violation = record.check_same_body().unwrap_err();
    assert_eq!(violation.found, ["POST /: 4 bytes, then 0"]);
}

#[tokio::test]
async fn callers_that_come_back_together_are_told_from_callers_that_spread() {
    let (server, record) = start(refused_once().each_call()).await;
    let callers = (0..20_u64).map(|caller| {
        let url = format!("{}/{caller}", server.uri());
        tokio::spawn(async move {
            let client = reqwest::Client::new();
            client.get(&url).send().await.unwrap();
            tokio::time::sleep(ms(100 + caller * 10)).await;
            client.get(&url).send().await.unwrap();
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    record.assert_never_early();
    // All twenty fall into one slot of a minute, and hardly two into one of a microsecond, however busy the machine is.
    record.assert_spread(Duration::from_micros(1), 0.5);
    let violation = record.check_spread(Duration::from_secs(60), 0.9).unwrap_err();
    assert!(violation.found[0].starts_with("20 of 20"), "{violation}");
}

#[tokio::test]
async fn nothing_is_said_of_the_spread_of_a_few() {
    let (server, record) = start(refused_once()).await;
    send(&server, &[(0, "/a", &[]), (100, "/a", &[])]).await;
    assert!(record.check_spread(ms(10), 1.0).is_err());
}

#[tokio::test]
async fn a_script_goes_on_with_its_last_answer_and_each_call_may_have_its_own() {
    let (server, record) = start(refused_once()).await;
    send(&server, &[(0, "/a", &[]), (0, "/b", &[]), (0, "/c", &[])]).await;
    let statuses = |record: &Record| -> Vec<u16> {
        let all = record.all();
        all.iter().map(|sent| sent.status.as_u16()).collect()
    };
    assert_eq!(statuses(&record), [503, 200, 200]);

    let (server, record) = start(refused_once().each_call()).await;
    send(&server, &[(0, "/a", &[]), (0, "/b", &[]), (0, "/a", &[])]).await;
    assert_eq!(statuses(&record), [503, 503, 200]);

    let by = CallKey::Field(http::HeaderName::from_static("x-call"));
    let (server, record) = start(refused_once().each_call().calls_by(by)).await;
    let (one, two) = ([("x-call", "1")], [("x-call", "2")]);
    send(&server, &[(0, "/a", &one), (0, "/a", &two), (0, "/b", &one)]).await;
    assert_eq!(statuses(&record), [503, 503, 200]);
}

#[tokio::test]
async fn what_goes_out_is_what_the_contract_says() {
    let refusal = overloaded(Code::TenantLimit)
        .after(ms(1740))
        .max(ms(2300))
        .tier(Tier::Deferrable);
    let (server, record) = start(Script::new([refusal])).await;
    let response = reqwest::get(server.uri()).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "2");
    assert_eq!(response.headers()["retry-after-ms"], "1740");
    assert_eq!(
        response.headers()["overload-signal"],
        "v=1, code=tenant_limit, retry=after, applied=no, after=1740, max=2300, scope=tenant, tier=deferrable"
    );
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert!(response.text().await.unwrap().contains("\"contract_version\":1"));
    let sent = record.all().remove(0);
    assert_eq!(sent.delay(), ms(1740));
    assert_eq!(sent.refusal.unwrap().applied, Applied::No);

    let head = reqwest::Client::new().head(server.uri()).send().await.unwrap();
    assert_eq!(head.headers()["retry-after"], "2");
}

#[tokio::test]
async fn a_date_is_read_alike_by_who_writes_it_and_who_gets_it() {
    let (server, record) = start(Script::new([plain(503).retry_after_date(ms(1500))])).await;
    let response = reqwest::get(server.uri()).await.unwrap();
    let read = |name: &str| {
        let text = response.headers()[name].to_str().unwrap();
        httpdate::parse_http_date(text).unwrap()
    };
    let delay = read("retry-after").duration_since(read("date")).unwrap();
    assert!((ms(1500)..=ms(3000)).contains(&delay), "{delay:?}");
    assert_eq!(record.all()[0].delay(), delay);
}

#[test]
fn what_strangers_send_is_read_as_a_caller_reads_it() {
    let delay = |answer: Answer| answer.overload().unwrap().hint.delay_or_zero();
    assert_eq!(delay(plain(503).retry_after(2)), ms(2000));
    assert_eq!(delay(plain(429).retry_after_ms(1500)), ms(1500));
    assert_eq!(delay(plain(429).x_ms_retry_after_ms(1501)), ms(1501));
    assert_eq!(delay(plain(503).x_amz_retry_after(1502)), ms(1502));
    assert_eq!(delay(plain(429).ratelimit_reset(3)), ms(3000));
    assert_eq!(
        plain(503).header("retry-after", "soon").overload().unwrap().hint,
        Hint::Absent
    );
    let retry = |answer: Answer| answer.overload().unwrap().retry;
    assert_eq!(retry(plain(429).should_not_retry()), Retry::No);
    assert_eq!(retry(draining().into()), Retry::Elsewhere);
    assert_eq!(retry(overloaded(Code::DeadlineUnattainable).into()), Retry::No);
    assert_eq!(served().overload(), None);
    assert_eq!(deferred("/tasks/1").overload(), None);
}
