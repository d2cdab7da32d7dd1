//! What a reject says about coming back: Retry-After, the window, the least deadline.

use super::Judge;
use crate::words::or_none;

/// Largest `after` (SRV-25).
const MAX_AFTER_MS: i64 = 86_400_000;
/// Largest width of a window (SRV-25).
const MAX_WIDTH_MS: i64 = 60_000;
/// Smallest hint of a server's own (SRV-28).
const FLOOR_MS: i64 = 50;
/// Largest hint of a server's own, unless its profile says otherwise (SRV-28).
const CEILING_MS: i64 = 30_000;

impl Judge<'_> {
    pub(super) fn retry_after(&mut self) {
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
        // Where Retry-After must not invite back, neither must this.
        let silent = applied == "maybe" && retry == "no";
        if let Some(after) = self.reading.after().filter(|_| !silent) {
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

    pub(super) fn ranges(&mut self) {
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
                    format!(
                        "after is at the ceiling, but max is {}: not widened to 1.5 x after",
                        or_none(max)
                    ),
                );
            }
        }
    }

    pub(super) fn deadline(&mut self) {
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

    pub(super) fn rate_limit(&mut self) {
        if self.reading.code() != Some("rate_limited") {
            return;
        }
        for name in ["ratelimit", "ratelimit-policy"] {
            if self.seen.lines(name).is_empty() {
                self.say("SRV-23", format!("rate_limited without a {name} field"));
            }
        }
    }
}

/// Whether a figure has at most two significant digits.
pub fn two_digits(value: i64) -> bool {
    let mut rest = value.unsigned_abs();
    while rest >= 100 && rest.is_multiple_of(10) {
        rest /= 10;
    }
    rest < 100
}
