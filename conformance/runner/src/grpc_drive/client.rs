//! Plays a gRPC server and judges a client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::SERVICE;
use super::origin::Origin;
use super::spec::{GrpcClientCase, GrpcGroup};
use crate::adapter::{Adapter, AdapterPool, COMMAND_LIMIT};
use crate::case::Case;
use crate::client_drive::judge::{Played, judge};
use crate::client_drive::record;
use crate::client_drive::reply_of;
use crate::client_drive::seen::CallSeen;
use crate::client_drive::spec::{ClientCase, Group, Port, Start, Who};
use crate::client_drive::wire::{Exchange, WireLog};
use crate::run::{self, RunContext};
use crate::verdict::{Findings, NotRun, Outcome};
use crate::words::or_none;
use crate::{clock, slack};

/// How far `grpc-timeout` and Overload-Deadline-Ms may differ: both are cut to their unit.
const TIMEOUT_ROUNDING_US: u64 = 1000;

/// Runs one case against the client behind the adapter.
pub(crate) async fn run_case(
    case: &Case,
    body: &GrpcClientCase,
    adapters: &AdapterPool,
    context: &RunContext,
) -> Outcome {
    let give_up = run::give_up(case);
    let adapter = adapters.get().await?;
    let origin = Origin::open()
        .await
        .map_err(|error| NotRun::Harness(format!("loopback: {error}")))?;
    let started = clock::now();
    let client = format!("{}/{}", context.run_id, case.id);
    let mut configure =
        json!({"cmd": "configure", "client": client, "grpc": true, "trusted": [], "instances": []});
    if let Some(policy) = &body.policy {
        configure["policy"] = policy.clone();
    }
    adapter.request(configure, COMMAND_LIMIT).await?;
    let drive = Drive {
        client: &client,
        prefix: format!("/{SERVICE}/{}.{}", context.run_id, case.id),
        adapter: &adapter,
        origin: &origin,
        give_up,
        limit: Duration::from_millis(case.limit_ms),
    };
    let (groups, pace) = slack::during(join_all(body.calls.iter().map(|group| drive.group(group)))).await;
    tokio::time::sleep(Duration::from_millis(body.watch_ms)).await;
    let metrics = match body.metrics.is_empty() {
        true => None,
        false => adapter
            .request(json!({"cmd": "metrics", "client": client}), COMMAND_LIMIT)
            .await?
            .remove("result"),
    };
    let played = Played {
        groups,
        log: origin.log(),
        started,
        slack: pace.slack.max(context.slack),
        metrics,
        stills: pace.stills,
    };
    let mut findings = judge(&as_client_case(body), &played);
    findings.stood = played.stills.longest();
    for (group, calls) in body.calls.iter().zip(&played.groups) {
        judge_requests(&mut findings, group, calls, &played.log);
    }
    if context.records() {
        findings.record = record::lines(&case.id, &played);
    }
    Ok(findings)
}

/// The same case without its script, for the judge that HTTP clients are judged by.
fn as_client_case(body: &GrpcClientCase) -> ClientCase {
    let groups = body.calls.iter().map(|group| Group {
        name: group.name.clone(),
        count: group.count,
        start: Start::Together,
        at_ms: None,
        after: None,
        client: Who::Shared,
        port: Port::Main,
        request: group.request.clone(),
        incoming: group.incoming.clone(),
        cancel_at_ms: None,
        script: Vec::new(),
        expect: group.expect.clone(),
    });
    ClientCase {
        calls: groups.collect(),
        metrics: body.metrics.clone(),
        ..ClientCase::default()
    }
}

struct Drive<'a> {
    client: &'a str,
    prefix: String,
    adapter: &'a Adapter,
    origin: &'a Origin,
    give_up: Instant,
    /// What the case may take in all.
    limit: Duration,
}

impl Drive<'_> {
    async fn group(&self, group: &GrpcGroup) -> Vec<CallSeen> {
        let steps = Arc::new(group.script.clone());
        let calls = (0..group.count).map(|index| {
            let path = format!("{}.{}-{index}", self.prefix, group.name);
            self.origin.route(path.clone(), Arc::clone(&steps));
            self.call(group, path)
        });
        join_all(calls.collect::<Vec<_>>()).await
    }

    async fn call(&self, group: &GrpcGroup, path: String) -> CallSeen {
        let ask = &group.request;
        let mut request = json!({
            "grpc": true, "method": "POST", "url": format!("{}{path}", self.origin.base()),
            "headers": ask.headers, "body": ask.body, "stream": ask.stream,
            "idempotency_key": ask.idempotency_key, "deadline_ms": ask.deadline_ms,
            "tier": ask.tier, "task_class": ask.task_class,
        });
        if let Some(tenant) = &ask.tenant {
            request["tenant"] = Value::String(tenant.clone());
        }
        let mut command = json!({"cmd": "call", "client": self.client, "grpc": true, "request": request});
        if let Some(incoming) = &group.incoming {
            command["incoming"] = incoming.clone();
        }
        let sent = clock::now();
        let left = self.give_up.saturating_duration_since(sent);
        let reply = match self.adapter.send(command).await {
            Ok(pending) => self.adapter.reply_in_case(pending, left, self.limit).await,
            Err(error) => Err(error),
        };
        let returned = clock::now();
        let reply = reply_of(self.adapter, reply).await;
        CallSeen::new(path, sent, returned, None, reply)
    }
}

/// What is gRPC's own about the requests: they are gRPC calls, and say their time twice (GRP-09).
fn judge_requests(findings: &mut Findings, group: &GrpcGroup, calls: &[CallSeen], log: &WireLog) {
    let requests = || {
        log.exchanges
            .iter()
            .filter(|exchange| calls.iter().any(|call| call.path == exchange.path))
    };
    let mut each = |what: &str, expected: &str, ok: &dyn Fn(&Exchange) -> Result<(), String>| {
        let bad = requests().find_map(|exchange| ok(exchange).err());
        let seen = requests().count();
        findings.check(
            format!("{}: {what}", group.name),
            bad.is_none() && seen > 0,
            expected,
            bad.unwrap_or_else(|| format!("{seen} requests")),
        );
    };
    each(
        "requests are gRPC",
        "POST, application/grpc, te: trailers",
        &|exchange| {
            let grpc = exchange
                .one_field("content-type")
                .is_some_and(|value| value.starts_with("application/grpc"));
            let ok = exchange.method == "POST" && grpc && exchange.one_field("te") == Some("trailers");
            ok.then_some(())
                .ok_or_else(|| format!("{} {:?}", exchange.method, exchange.fields))
        },
    );
    each(
        "metadata",
        "overload-* keys as printable ASCII, once each",
        &|exchange| {
            let ours = exchange
                .fields
                .iter()
                .filter(|(name, _)| name.starts_with("overload-"));
            let bad = ours.into_iter().find(|(name, value)| {
                exchange.one_field(name).is_none() || !value.bytes().all(|b| (0x20..0x7f).contains(&b))
            });
            bad.map_or(Ok(()), |(name, value)| Err(format!("{name}: {value}")))
        },
    );
    if group.timeout {
        let expected = "1 to 8 digits and a unit, the same time as Overload-Deadline-Ms";
        each("grpc-timeout", expected, &|exchange| {
            let timeout = exchange.one_field("grpc-timeout");
            let deadline = exchange
                .one_field("overload-deadline-ms")
                .and_then(|text| text.parse::<u64>().ok());
            let same = timeout
                .and_then(micros)
                .zip(deadline)
                .is_some_and(|(timeout, deadline)| {
                    timeout.abs_diff(deadline.saturating_mul(1000)) <= TIMEOUT_ROUNDING_US
                });
            same.then_some(()).ok_or_else(|| {
                let deadline = or_none(deadline.map(|ms| format!("{ms} ms")));
                format!("{} beside {deadline}", or_none(timeout))
            })
        });
    }
}

/// A `grpc-timeout` in microseconds; `None` where it is not of the grammar.
fn micros(text: &str) -> Option<u64> {
    let digits = text.get(..text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match text.chars().last()? {
        'H' => number.checked_mul(3_600_000_000),
        'M' => number.checked_mul(60_000_000),
        'S' => number.checked_mul(1_000_000),
        'm' => number.checked_mul(1000),
        'u' => Some(number),
        'n' => Some(number / 1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::micros;

    #[test]
    fn a_timeout_is_eight_digits_at_most_and_a_unit() {
        assert_eq!(micros("1500m"), Some(1_500_000));
        assert_eq!(micros("99999999u"), Some(99_999_999));
        assert_eq!(micros("2S"), Some(2_000_000));
        for bad in ["", "m", "5", "100000000n", "-5m", "5s", "1.5S", "5 m"] {
            assert_eq!(micros(bad), None, "{bad:?}");
        }
    }
}
