//! The rules for a refusal over gRPC, read from its frames (GRP-01 to GRP-06). Pure: each has a test on made-up answers.

use std::collections::BTreeSet;

use http::HeaderMap;

use super::probe::Seen;
use super::proto::{ErrorInfo, RetryInfo, Span, Status};
use super::spec::{GrpcServerCase, Rule};
use crate::verdict::Findings;
use crate::words::{each_of, each_or_none, or_none};

/// One refusal, beside what the server was told to say.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    code: String,
    after: u64,
    max: u64,
    seen: Seen,
    details: Option<Status>,
}

/// What a code permits (CONTRACT section 1).
fn retry_of(code: &str) -> &'static str {
    match code {
        "draining" => "elsewhere",
        "deadline_unattainable" | "deadline_expired" | "dependency_timeout" => "no",
        _ => "after",
    }
}

/// The gRPC status of a code (GRP-01).
fn status_of(code: &str) -> &'static str {
    match code {
        "tenant_limit" | "rate_limited" | "retry_throttled" => "8",
        "deadline_unattainable" | "deadline_expired" => "4",
        _ => "14",
    }
}

impl Refusal {
    pub(super) fn new(code: &str, after: u64, max: u64, seen: Seen) -> Self {
        let details = seen
            .end()
            .get("grpc-status-details-bin")
            .and_then(|value| Status::from_base64(value.as_bytes()));
        Self {
            code: code.to_owned(),
            after,
            max,
            seen,
            details,
        }
    }

    /// In one line.
    pub(super) fn show(&self) -> String {
        let end = self.seen.end();
        let place = if self.seen.head_is_all {
            "trailers only"
        } else {
            "head and trailers"
        };
        format!(
            "{} after {} to {}: {} {place}, status {}, pushback {}, signal {}, details {:?}",
            self.code,
            self.after,
            self.max,
            self.seen.http,
            text(end, "grpc-status"),
            text(end, "grpc-retry-pushback-ms"),
            text(end, "overload-signal"),
            self.infos(),
        )
    }

    fn infos(&self) -> Vec<ErrorInfo> {
        let details = self.details.iter().flat_map(|status| &status.details);
        details.filter_map(|any| any.as_of("ErrorInfo")).collect()
    }

    fn retry_infos(&self) -> Vec<RetryInfo> {
        let details = self.details.iter().flat_map(|status| &status.details);
        details.filter_map(|any| any.as_of("RetryInfo")).collect()
    }

    fn pushback(&self) -> Vec<&str> {
        let lines = self.seen.end().get_all("grpc-retry-pushback-ms");
        lines.iter().map(|value| value.to_str().unwrap_or("?")).collect()
    }
}

pub(super) fn text<'a>(fields: &'a HeaderMap, name: &str) -> &'a str {
    fields
        .get(name)
        .map_or("none", |value| value.to_str().unwrap_or("?"))
}

/// Holds all refusals to one rule.
pub(super) fn judge(findings: &mut Findings, rule: Rule, refusals: &[Refusal], body: &GrpcServerCase) {
    let mut all = |name: &str, expected: &str, look: &dyn Fn(&Refusal) -> Result<(), String>| {
        let bad = refusals
            .iter()
            .find_map(|refusal| look(refusal).err().map(|why| format!("{}: {why}", refusal.code)));
        let ok = bad.is_none() && !refusals.is_empty();
        findings.check(
            name,
            ok,
            expected,
            bad.unwrap_or_else(|| format!("{} refusals", refusals.len())),
        );
    };
    match rule {
        Rule::Status => all("grpc-status", "that of the code", &status),
        Rule::TrailersOnly => all(
            "trailers only",
            "HTTP 200 and one head that ends the stream, with grpc-status in it",
            &trailers_only,
        ),
        Rule::ErrorInfo => {
            let state = body.identity.as_ref().and(body.state.as_deref());
            all("ErrorInfo", "one, with reason, domain and metadata", &|refusal| {
                error_info(refusal, state)
            });
            let domains: BTreeSet<String> = refusals
                .iter()
                .flat_map(Refusal::infos)
                .map(|info| info.domain)
                .collect();
            let one = domains.len() == 1 && !domains.contains("");
            findings.check("ErrorInfo.domain", one, "one for all", each_of(&domains));
        }
        Rule::RetryInfo => all(
            "RetryInfo",
            "one exactly with retry=after, its delay is after",
            &retry_info,
        ),
        Rule::Pushback => all(
            "grpc-retry-pushback-ms",
            "within [after, max], -1 or absent",
            &pushback,
        ),
        Rule::Random => random(findings, refusals),
    }
}

fn status(refusal: &Refusal) -> Result<(), String> {
    let (seen, wanted) = (text(refusal.seen.end(), "grpc-status"), status_of(&refusal.code));
    (seen == wanted)
        .then_some(())
        .ok_or_else(|| format!("status {seen}, not {wanted}"))
}

fn trailers_only(refusal: &Refusal) -> Result<(), String> {
    let seen = &refusal.seen;
    let ok = seen.http == 200 && seen.head_is_all && seen.data == 0 && seen.head.contains_key("grpc-status");
    ok.then_some(()).ok_or_else(|| {
        format!(
            "HTTP {}, grpc-status in the head: {}, the head is all: {}, {} bytes of data",
            seen.http,
            seen.head.contains_key("grpc-status"),
            seen.head_is_all,
            seen.data
        )
    })
}

fn error_info(refusal: &Refusal, state: Option<&str>) -> Result<(), String> {
    let infos = refusal.infos();
    let [info] = infos.as_slice() else {
        return Err(format!("{} ErrorInfos", infos.len()));
    };
    let reason = refusal.code.to_ascii_uppercase();
    if info.reason != reason {
        return Err(format!("reason {:?}, not {reason}", info.reason));
    }
    let get = |key: &str| info.metadata.get(key).map(String::as_str);
    let applied = if refusal.code == "dependency_timeout" {
        "maybe"
    } else {
        "no"
    };
    let scope = match refusal.code.as_str() {
        "tenant_limit" | "rate_limited" => "tenant",
        _ => "request",
    };
    for (key, wanted) in [
        ("contract_version", Some("1")),
        ("retry", Some(retry_of(&refusal.code))),
        ("applied", Some(applied)),
        ("scope", Some(scope)),
        ("hop", Some("0")),
        ("state", state),
    ] {
        if get(key) != wanted {
            return Err(format!("{key} is {}, not {}", or_none(get(key)), or_none(wanted)));
        }
    }
    let signal = text(refusal.seen.end(), "overload-signal");
    if signal.contains("state=") != state.is_some() {
        return Err(format!("the signal says {signal:?}"));
    }
    Ok(())
}

fn retry_info(refusal: &Refusal) -> Result<(), String> {
    let seen: Vec<Option<i64>> = refusal
        .retry_infos()
        .iter()
        .map(|info| info.retry_delay.and_then(Span::as_ms))
        .collect();
    let wanted: Vec<Option<i64>> = match retry_of(&refusal.code) {
        "after" => vec![i64::try_from(refusal.after).ok()],
        _ => Vec::new(),
    };
    (seen == wanted)
        .then_some(())
        .ok_or_else(|| format!("delays {} ms, not {}", each_or_none(seen), each_or_none(wanted)))
}

fn pushback(refusal: &Refusal) -> Result<(), String> {
    let lines = refusal.pushback();
    let ok = match (retry_of(&refusal.code), lines.as_slice()) {
        ("after", [one]) => one
            .parse::<u64>()
            .is_ok_and(|ms| (refusal.after..=refusal.max).contains(&ms)),
        ("no", [one]) => *one == "-1",
        ("elsewhere", []) => true,
        _ => false,
    };
    ok.then_some(()).ok_or_else(|| {
        format!(
            "{} with retry={}, {} to {}",
            each_of(&lines),
            retry_of(&refusal.code),
            refusal.after,
            refusal.max
        )
    })
}

/// GRP-06: over the refusals of one hint, spread over more than half of the window and no value more than a tenth.
fn random(findings: &mut Findings, refusals: &[Refusal]) {
    let drawn: Vec<u64> = refusals
        .iter()
        .filter_map(|refusal| refusal.pushback().first()?.parse().ok())
        .collect();
    let (least, most) = (drawn.iter().min().copied(), drawn.iter().max().copied());
    let width = refusals.first().map_or(0, |refusal| refusal.max - refusal.after);
    let range = most.zip(least).map_or(0, |(most, least)| most - least);
    let commonest = drawn
        .iter()
        .map(|ms| drawn.iter().filter(|other| *other == ms).count())
        .max()
        .unwrap_or(0);
    findings.check(
        "pushbacks are drawn anew",
        drawn.len() >= 100 && range * 2 > width && commonest * 10 <= drawn.len(),
        format!("100 or more over more than half of {width} ms, no value more than a tenth of them"),
        format!(
            "{} over {range} ms, the commonest value {commonest} times",
            drawn.len()
        ),
    );
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
