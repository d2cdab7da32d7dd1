//! The Overload-Signal: one line, every member with its type, and only what the code may say.

use super::Judge;
use crate::server_drive::reject::{Entry, Signal, SignalRead};
use crate::words::or_none;

impl Judge<'_> {
    pub(super) fn signal(&mut self) {
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
            self.say(
                "SRV-04",
                format!("hop is {}; it lies in 0..16", or_none(signal.hop)),
            );
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
    pub(super) fn permissions(&mut self) {
        let Some(entry) = self.reading.code().and_then(Entry::of) else {
            return;
        };
        let code = entry.code;
        // A relay may only tighten what it was told (INT-07), which can be more than the registry has.
        let relayed = self
            .signal_value()
            .is_some_and(|signal| signal.hop.unwrap_or(0) > 0);
        if let Some(retry) = self.reading.retry().map(str::to_owned) {
            let tightened = retry == "no" || (relayed && retry == "elsewhere");
            if retry != entry.retry && !tightened {
                self.say(
                    "SRV-04",
                    format!("{code} says retry={retry}; the registry says {}", entry.retry),
                );
            }
        }
        if let Some(applied) = self.reading.applied().map(str::to_owned)
            && !entry.applied.allows(&applied)
            && !(relayed && applied == "maybe")
        {
            self.say(
                "SRV-04",
                format!("{code} says applied={applied}, which the registry does not allow"),
            );
        }
    }
}
