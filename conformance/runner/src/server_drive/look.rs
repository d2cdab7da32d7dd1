//! Which answers a check looks at, and how they are told in a report.

use super::message::{Exchange, Seen};
use super::play::Evidence;
use super::reject::{Reading, Signal};
use super::spec::Where;

/// The exchanges of a label, `*` for all.
pub fn of<'a>(evidence: &'a Evidence, label: &'a str) -> impl Iterator<Item = &'a Exchange> {
    evidence
        .exchanges
        .iter()
        .filter(move |exchange| label == "*" || exchange.label == label)
}

/// Answers of a label that fit a filter.
pub(super) fn fitting<'a>(
    evidence: &'a Evidence,
    label: &'a str,
    filter: &'a Where,
) -> Vec<(&'a Exchange, &'a Seen)> {
    of(evidence, label)
        .filter_map(|exchange| Some((exchange, exchange.answer.as_ref().ok()?)))
        .filter(|(_, seen)| filter.fits(seen))
        .collect()
}

impl Where {
    /// Whether an answer is of this kind.
    pub fn fits(&self, seen: &Seen) -> bool {
        let reading = Reading::of(seen);
        let signal = reading.signal.signal();
        let word = |wanted: &Option<String>, is: Option<&str>| wanted.is_none() || wanted.as_deref() == is;
        let of_signal =
            |get: fn(&Signal) -> &Option<String>| signal.and_then(|signal| get(signal).as_deref());
        let code = reading.code().unwrap_or_default();
        self.status.as_ref().is_none_or(|all| all.contains(&seen.status))
            && self
                .code
                .as_ref()
                .is_none_or(|all| all.iter().any(|one| one == code))
            && self
                .not_code
                .as_ref()
                .is_none_or(|all| all.iter().all(|one| one != code))
            && word(&self.retry, reading.retry())
            && word(&self.applied, reading.applied())
            && word(&self.tier, of_signal(|signal| &signal.tier))
            && word(&self.outcome, of_signal(|signal| &signal.outcome))
            && self
                .reject
                .is_none_or(|wanted| wanted == reading.is_reject(seen.status))
            && self
                .degraded
                .is_none_or(|wanted| wanted == signal.is_some_and(|signal| signal.degraded == Some(true)))
            && self
                .after_up_to
                .is_none_or(|most| reading.after().is_some_and(|after| after <= most))
            && self
                .with_header
                .as_deref()
                .is_none_or(|name| !seen.lines(name).is_empty())
    }

    pub(super) fn words(&self) -> String {
        let mut words = Vec::new();
        let mut put =
            |key: &str, value: Option<String>| words.extend(value.map(|value| format!("{key}={value}")));
        put("status", self.status.as_ref().map(|all| format!("{all:?}")));
        put("code", self.code.as_ref().map(|all| all.join("|")));
        put(
            "code",
            self.not_code.as_ref().map(|all| format!("not {}", all.join("|"))),
        );
        put("retry", self.retry.clone());
        put("applied", self.applied.clone());
        put("tier", self.tier.clone());
        put("outcome", self.outcome.clone());
        put("reject", self.reject.map(|wanted| wanted.to_string()));
        put("degraded", self.degraded.map(|wanted| wanted.to_string()));
        put("with", self.with_header.clone());
        put("after at most", self.after_up_to.map(|most| most.to_string()));
        if words.is_empty() {
            "any answer".to_owned()
        } else {
            words.join(" ")
        }
    }
}

/// What an answer was, in a few words, for reports.
pub fn brief(exchange: &Exchange) -> String {
    match &exchange.answer {
        Ok(seen) => {
            let reading = Reading::of(seen);
            let mut text = seen.status.to_string();
            if let Some(code) = reading.code() {
                text.push_str(&format!(" {code}"));
            }
            if let Some(after) = reading.after() {
                text.push_str(&format!(" after={after}"));
            }
            if let Some(max) = reading.max() {
                text.push_str(&format!(" max={max}"));
            }
            text
        }
        Err(error) => error.to_string(),
    }
}

/// How often each kind of answer came, most frequent first.
pub(super) fn tally<'a>(exchanges: impl Iterator<Item = &'a Exchange>) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for exchange in exchanges {
        let kind = match &exchange.answer {
            Ok(seen) => {
                let code = Reading::of(seen)
                    .code()
                    .map(|code| format!(" {code}"))
                    .unwrap_or_default();
                format!("{}{code}", seen.status)
            }
            Err(error) => error.to_string(),
        };
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, n)) => *n += 1,
            None => kinds.push((kind, 1)),
        }
    }
    kinds.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let shown: Vec<String> = kinds
        .iter()
        .take(8)
        .map(|(kind, n)| format!("{n} x {kind}"))
        .collect();
    if shown.is_empty() {
        "nothing was observed".to_owned()
    } else {
        shown.join(", ")
    }
}
