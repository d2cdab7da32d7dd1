//! The rules that every single reject must keep, whatever made the server refuse. Each broken rule is a sentence with
//! the requirement's id, so that a report says what is wrong and not only that something is.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

use super::message::{Exchange, Seen, lines_of};
use super::reject::{BodyRead, Entry, Reading, SIGNAL, Signal, SignalRead};

/// The JSON Schema of the problem body.
const SCHEMA: &str = include_str!("../../../contract/overload.schema.json");
/// Longest Overload-Signal line (SRV-14).
pub const MAX_SIGNAL_BYTES: usize = 512;
/// Longest problem body (SRV-14).
pub const MAX_PROBLEM_BYTES: usize = 4096;
/// Largest `after` (SRV-25).
pub const MAX_AFTER_MS: i64 = 86_400_000;
/// Largest width of a window (SRV-25).
pub const MAX_WIDTH_MS: i64 = 60_000;
/// Smallest hint of a server's own (SRV-28).
pub const FLOOR_MS: i64 = 50;
/// Largest hint of a server's own, unless its profile says otherwise (SRV-28).
pub const CEILING_MS: i64 = 30_000;

/// The rules of this module, by requirement id.
pub const RULES: &[&str] = &[
    "SRV-01", "SRV-02", "SRV-03", "SRV-04", "SRV-05", "SRV-06", "SRV-07", "SRV-08", "SRV-09", "SRV-10",
    "SRV-12", "SRV-13", "SRV-14", "SRV-16", "SRV-18", "SRV-19", "SRV-23", "SRV-25", "SRV-27", "SRV-28",
    "SEC-02", "SEC-07", "VER-01",
];

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Requirement id.
    pub rule: &'static str,
    /// What is wrong.
    pub why: String,
}

/// The compiled schema, or why it does not compile (a fault of the suite, not of the server).
static PROBLEM: LazyLock<Result<Validator, String>> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(SCHEMA).map_err(|error| error.to_string())?;
    jsonschema::validator_for(&schema).map_err(|error| error.to_string())
});

/// Every rule that this answer breaks. An answer that is no reject can only break SRV-13 and SRV-18.
pub fn broken(exchange: &Exchange) -> Vec<Broken> {
    let Ok(seen) = &exchange.answer else {
        return Vec::new();
    };
    let mut judge = Judge {
        exchange,
        seen,
        reading: Reading::of(seen),
        broken: Vec::new(),
    };
    judge.trailers();
    if judge.reading.is_reject(seen.status) {
        judge.status();
        judge.signal();
        judge.permissions();
        judge.retry_after();
        judge.cache();
        judge.sizes();
        judge.body();
        judge.mirrors();
        judge.ranges();
        judge.deadline();
        judge.rate_limit();
        judge.secrets();
    }
    judge.broken
}

struct Judge<'a> {
    exchange: &'a Exchange,
    seen: &'a Seen,
    reading: Reading,
    broken: Vec<Broken>,
}

impl Judge<'_> {
    fn say(&mut self, rule: &'static str, why: impl Into<String>) {
        self.broken.push(Broken {
            rule,
            why: why.into(),
        });
    }

    fn signal_value(&self) -> Option<Signal> {
        self.reading.signal.signal().cloned()
    }

    fn trailers(&mut self) {
        for name in [SIGNAL, "retry-after", "retry-after-ms"] {
            if !lines_of(&self.seen.trailers, name).is_empty() {
                self.say("SRV-13", format!("{name} is in the trailer section"));
            }
        }
    }

    fn status(&mut self) {
        let status = self.seen.status;
        let code = self.reading.code().unwrap_or_default().to_owned();
        match Entry::of(&code) {
            Some(entry) if entry.status != status => {
                let own = if entry.status == 429 || status == 429 {
                    "SRV-01"
                } else {
                    "SRV-03"
                };
                self.say(
                    own,
                    format!("{code} came with status {status}; it goes with {}", entry.status),
                );
            }
            None if !code.is_empty() && !private(&code) => {
                self.say(
                    "SRV-16",
                    format!("the code {code:?} is neither registered nor private (x_...)"),
                );
            }
            _ => {}
        }
        if status == 504 {
            self.say(
                "SRV-02",
                format!("status 504 with code {code:?} from a server that is no relay"),
            );
        }
        if !matches!(status, 429 | 503 | 504) {
            self.say(
                "SRV-03",
                format!("overload (code {code:?}) was reported with status {status}"),
            );
        }
        let validation = (400..500).contains(&status) && !matches!(status, 408 | 425 | 429);
        if validation {
            self.say("SRV-18", format!("a {status} carries the overload code {code:?}"));
        }
    }

    fn signal(&mut self) {
        match self.reading.signal.clone() {
            SignalRead::Absent => self.say("SRV-04", "there is no Overload-Signal line"),
            SignalRead::Several(n) => self.say("SRV-04", format!("there are {n} Overload-Signal lines")),
            SignalRead::Broken(why) => {
                self.say(
                    "SRV-04",
                    format!("Overload-Signal is no RFC 9651 dictionary: {why}"),
                );
            }
            SignalRead::One(signal) => self.members(&signal),
        }
    }

    fn members(&mut self, signal: &Signal) {
        for wrong in &signal.wrong {
            self.say("SRV-04", format!("in Overload-Signal {wrong}"));
        }
        match signal.v {
            Some(1) => {}
            Some(v) => self.say("VER-01", format!("v is {v}; this is contract version 1")),
            None => {
                self.say("SRV-04", "Overload-Signal has no v");
                self.say("VER-01", "Overload-Signal has no major version");
            }
        }
        let missing = [
            ("code", signal.code.is_none()),
            ("retry", signal.retry.is_none()),
            ("applied", signal.applied.is_none()),
            (
                "after",
                signal.retry.as_deref() == Some("after") && signal.after.is_none(),
            ),
        ];
        for (key, _) in missing.into_iter().filter(|(_, missing)| *missing) {
            self.say("SRV-04", format!("Overload-Signal has no {key}"));
        }
        let words = [
            ("retry", &signal.retry, &["after", "elsewhere", "no"][..]),
            ("applied", &signal.applied, &["no", "maybe"][..]),
            ("scope", &signal.scope, &["request", "tenant", "service"][..]),
            (
                "state",
                &signal.state,
                &["normal", "congested", "shedding", "recovering"][..],
            ),
            (
                "tier",
                &signal.tier,
                &["critical", "non-sheddable", "deferrable"][..],
            ),
        ];
        for (key, word, allowed) in words {
            if let Some(word) = word.as_deref().filter(|word| !allowed.contains(word)) {
                self.say(
                    "SRV-04",
                    format!("{key}={word} is none of {}", allowed.join(", ")),
                );
            }
        }
        if signal.hop.is_some_and(|hop| !(0..=16).contains(&hop)) {
            self.say("SRV-04", format!("hop is {:?}; it lies in 0..16", signal.hop));
        }
        if signal.outcome.is_some() || signal.degraded.is_some() {
            self.say(
                "SRV-04",
                "a reject carries outcome or degraded, which belong to 2xx",
            );
        }
        let code = signal.code.as_deref().unwrap_or_default();
        let grammar = code.len() >= 2
            && code.len() <= 63
            && code.starts_with(|c: char| c.is_ascii_lowercase())
            && code
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if !code.is_empty() && !grammar {
            self.say(
                "SRV-16",
                format!("the code {code:?} is not [a-z][a-z0-9_]{{1,62}}"),
            );
        }
    }

    /// The table of CONTRACT section 1: what a code may say of coming back and of side effects.
    fn permissions(&mut self) {
        let Some(entry) = self.reading.code().and_then(Entry::of) else {
            return;
        };
        let code = entry.code;
        if let Some(retry) = self.reading.retry().map(str::to_owned) {
            let tightened = retry == "no";
            if retry != entry.retry && !tightened {
                self.say(
                    "SRV-04",
                    format!("{code} says retry={retry}; the registry says {}", entry.retry),
                );
            }
        }
        if let Some(applied) = self.reading.applied().map(str::to_owned)
            && !entry.applied.allows(&applied)
        {
            self.say(
                "SRV-04",
                format!("{code} says applied={applied}, which the registry does not allow"),
            );
        }
    }

    fn retry_after(&mut self) {
        let lines = self.seen.lines("retry-after");
        for line in &lines {
            if line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_digit()) {
                self.say(
                    "SRV-09",
                    format!("Retry-After is {line:?}; it must be whole seconds"),
                );
            }
        }
        let retry = self.reading.retry().unwrap_or_default().to_owned();
        let applied = self.reading.applied().unwrap_or_default().to_owned();
        if applied == "no" && lines.is_empty() {
            self.say(
                "SRV-10",
                format!("applied=no, retry={retry}, but there is no Retry-After"),
            );
        }
        if applied == "maybe" && retry == "no" && !lines.is_empty() {
            self.say(
                "SRV-10",
                "applied=maybe with retry=no, but there is a Retry-After",
            );
        }
        if retry == "after" && lines.len() != 1 {
            self.say(
                "SRV-08",
                format!("there are {} Retry-After lines; there must be one", lines.len()),
            );
        }
        if retry != "after" && lines.len() > 1 {
            self.say("SRV-10", format!("there are {} Retry-After lines", lines.len()));
        }
        self.seconds(&lines, if retry == "after" { "SRV-08" } else { "SRV-10" });
        let millis = self.seen.lines("retry-after-ms");
        if let Some(after) = self.reading.after() {
            let right = millis.len() == 1 && millis[0] == after.to_string();
            if !right {
                self.say(
                    "SRV-27",
                    format!("retry-after-ms is {millis:?}; after is {after}"),
                );
            }
        }
    }

    fn seconds(&mut self, lines: &[String], rule: &'static str) {
        for line in lines {
            let Ok(seconds) = line.parse::<i64>() else {
                self.say(rule, format!("Retry-After {line:?} is not delay-seconds"));
                continue;
            };
            if !(1..=86_400).contains(&seconds) {
                self.say(rule, format!("Retry-After is {seconds}; it lies in 1..86400"));
            }
            if let Some(after) = self.reading.after() {
                let ceil = after.max(0).saturating_add(999) / 1000;
                if seconds != ceil {
                    self.say(
                        rule,
                        format!("Retry-After is {seconds}; after={after} rounds up to {ceil}"),
                    );
                }
            }
        }
    }

    fn cache(&mut self) {
        let lines = self.seen.lines("cache-control").join(",");
        let stored = !lines
            .split(',')
            .any(|word| word.trim().eq_ignore_ascii_case("no-store"));
        if stored {
            self.say("SRV-12", format!("Cache-Control is {lines:?}, without no-store"));
        }
    }

    fn sizes(&mut self) {
        let signal: usize = self.seen.lines(SIGNAL).iter().map(String::len).sum();
        if signal > MAX_SIGNAL_BYTES {
            self.say(
                "SRV-14",
                format!("Overload-Signal has {signal} bytes; {MAX_SIGNAL_BYTES} are allowed"),
            );
        }
        let body = self.seen.body.len();
        if body > MAX_PROBLEM_BYTES {
            self.say(
                "SRV-14",
                format!("the body has {body} bytes; {MAX_PROBLEM_BYTES} are allowed"),
            );
        }
    }

    fn body(&mut self) {
        let head_only = self.exchange.ask.method == "HEAD";
        let media = self.seen.media_type();
        if media != "application/problem+json" {
            self.say(
                "SRV-05",
                format!("the media type is {media:?}; it must be application/problem+json"),
            );
        }
        if head_only {
            return;
        }
        let members = match self.reading.body.clone() {
            BodyRead::Absent => return self.say("SRV-05", "there is no body"),
            BodyRead::NotAnObject(why) => {
                return self.say("SRV-05", format!("the body is not a JSON object: {why}"));
            }
            BodyRead::Object(members) => members,
        };
        if let Some(status) = members.get("status")
            && status.as_u64() != Some(u64::from(self.seen.status))
        {
            self.say(
                "SRV-07",
                format!("the body says status {status}; {} was sent", self.seen.status),
            );
        }
        match members.get("contract_version") {
            Some(version) if version.as_i64() == Some(1) => {}
            other => self.say(
                "VER-01",
                format!("contract_version is {other:?}; this is version 1"),
            ),
        }
        let code = members.get("code").and_then(Value::as_str).unwrap_or_default();
        let wanted = format!("urn:overload:v1:{code}");
        if self.reading.body.text("type").is_some_and(|kind| kind != wanted) {
            self.say(
                "SRV-05",
                format!("type is {:?}; the code makes it {wanted}", members.get("type")),
            );
        }
        match PROBLEM.as_ref() {
            Ok(schema) => {
                let value = Value::Object(members);
                let errors: Vec<String> = schema
                    .iter_errors(&value)
                    .take(5)
                    .map(|error| format!("{} at {:?}", error, error.instance_path().to_string()))
                    .collect();
                for error in errors {
                    self.say("SRV-05", format!("the body does not fit the schema: {error}"));
                }
            }
            Err(why) => self.say("SRV-05", format!("the suite's schema does not compile: {why}")),
        }
    }

    fn mirrors(&mut self) {
        let (Some(signal), BodyRead::Object(members)) = (self.signal_value(), self.reading.body.clone())
        else {
            return;
        };
        let text = |value: &Option<String>| value.clone().map_or(Value::Null, Value::from);
        let number = |value: Option<i64>| value.map_or(Value::Null, Value::from);
        // Scope and hop have defaults, so that leaving one out is saying the default.
        let scope = signal.scope.clone().or_else(|| Some("request".to_owned()));
        let pairs = [
            ("code", "code", text(&signal.code), Value::Null),
            ("retry", "retry", text(&signal.retry), Value::Null),
            ("applied", "applied", text(&signal.applied), Value::Null),
            ("after", "retry_after_ms", number(signal.after), Value::Null),
            ("max", "retry_after_max_ms", number(signal.max), Value::Null),
            ("scope", "scope", text(&scope), Value::from("request")),
            ("hop", "hop", number(signal.hop.or(Some(0))), Value::from(0)),
            ("state", "state", text(&signal.state), text(&signal.state)),
            ("tier", "tier", text(&signal.tier), text(&signal.tier)),
        ];
        for (key, member, header, absent) in pairs {
            let body = members.get(member).cloned().unwrap_or(absent);
            // A body that says more than the header about state or tier is not contradicted by it.
            let silent = header.is_null() && matches!(key, "state" | "tier");
            if !silent && header != body {
                self.say("SRV-06", format!("header {key}={header}, body {member}={body}"));
            }
        }
    }

    fn ranges(&mut self) {
        let header = self.signal_value().map(|signal| (signal.after, signal.max));
        let body = &self.reading.body;
        let body = Some((body.integer("retry_after_ms"), body.integer("retry_after_max_ms")));
        for (place, (after, max)) in [("header", header), ("body", body)]
            .into_iter()
            .filter_map(|(p, v)| Some((p, v?)))
        {
            if let Some(after) = after.filter(|after| !(1..=MAX_AFTER_MS).contains(after)) {
                self.say(
                    "SRV-25",
                    format!("{place}: after is {after}; it lies in 1..{MAX_AFTER_MS}"),
                );
            }
            match (after, max) {
                (Some(after), Some(max)) if !(after..=after.saturating_add(MAX_WIDTH_MS)).contains(&max) => {
                    self.say(
                        "SRV-25",
                        format!("{place}: max is {max}; it lies in after..after+60000, after={after}"),
                    );
                }
                (None, Some(max)) => self.say("SRV-25", format!("{place}: max={max} without an after")),
                _ => {}
            }
        }
        let own = self
            .signal_value()
            .is_none_or(|signal| signal.hop.unwrap_or(0) == 0);
        if let Some(after) = self.reading.after().filter(|_| own) {
            if !(FLOOR_MS..=CEILING_MS).contains(&after) {
                self.say(
                    "SRV-28",
                    format!("after is {after}; own hints lie in {FLOOR_MS}..{CEILING_MS}"),
                );
            }
            if after == CEILING_MS && self.reading.max().is_none_or(|max| max < after + after / 2) {
                let max = self.reading.max();
                self.say(
                    "SRV-28",
                    format!("after is at the ceiling, but max is {max:?}: not widened to 1.5 x after"),
                );
            }
        }
    }

    fn deadline(&mut self) {
        let least = self.reading.body.member("min_deadline_ms").cloned();
        if self.reading.code() == Some("deadline_unattainable")
            && least.is_none()
            && self.exchange.ask.method != "HEAD"
            && self.exchange.forced.is_none()
        {
            self.say("SRV-19", "deadline_unattainable without min_deadline_ms");
        }
        for name in ["min_deadline_ms", "predicted_wait_ms"] {
            if let Some(value) = self.reading.body.integer(name)
                && !two_digits(value)
            {
                let rule = if name == "min_deadline_ms" {
                    "SRV-19"
                } else {
                    "SEC-07"
                };
                self.say(
                    rule,
                    format!("{name} is {value}: more than two significant digits"),
                );
                if rule == "SRV-19" {
                    self.say(
                        "SEC-07",
                        format!("{name} is {value}: more than two significant digits"),
                    );
                }
            }
        }
    }

    fn rate_limit(&mut self) {
        if self.reading.code() != Some("rate_limited") {
            return;
        }
        for name in ["ratelimit", "ratelimit-policy"] {
            if self.seen.lines(name).is_empty() {
                self.say("SRV-23", format!("rate_limited without a {name} field"));
            }
        }
    }

    fn secrets(&mut self) {
        let stranger = !self
            .exchange
            .ask
            .headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        if stranger {
            for name in ["predicted_wait_ms", "origin"] {
                if self.reading.body.member(name).is_some() {
                    self.say("SEC-02", format!("a stranger is told {name}"));
                }
            }
        }
        for name in [
            "tenant",
            "tenant_id",
            "queue_depth",
            "queue_length",
            "queue_limit",
            "host",
            "hostname",
            "instance_name",
        ] {
            let in_signal = self
                .signal_value()
                .is_some_and(|signal| signal.other.iter().any(|key| key == name));
            if in_signal || self.reading.body.member(name).is_some() {
                self.say("SEC-02", format!("the reject has a member {name}"));
            }
        }
    }
}

fn private(code: &str) -> bool {
    code.len() > 2 && code.starts_with("x_")
}

/// Whether a figure has at most two significant digits.
pub fn two_digits(value: i64) -> bool {
    let mut rest = value.unsigned_abs();
    while rest >= 100 && rest.is_multiple_of(10) {
        rest /= 10;
    }
    rest < 100
}
