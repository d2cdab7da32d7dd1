//! The rules that every single reject must keep, whatever made the server refuse. Each broken rule is a sentence with
//! the requirement's id, so that a report says what is wrong and not only that something is.

mod body;
mod hint;
mod reach;
mod signal;

pub use hint::two_digits;
pub use reach::reaches;

use super::message::{Exchange, Seen, lines_of};
use super::reject::{Entry, Reading, SIGNAL, Signal};

/// Longest Overload-Signal line (SRV-14).
pub const MAX_SIGNAL_BYTES: usize = 512;
/// Longest problem body (SRV-14).
pub const MAX_PROBLEM_BYTES: usize = 4096;
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
