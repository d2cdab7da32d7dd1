//! Which rules an answer can keep or break at all. "Every `after` is mirrored in milliseconds" holds of a server that never
//! says `after`, and shows nothing about it: such a rule was not looked at.

use super::RULES;
use crate::server_drive::message::Exchange;
use crate::server_drive::reject::{BodyRead, Reading, SignalRead};

/// True where this answer is one of those that the rule speaks of.
pub fn reaches(rule: &str, exchange: &Exchange) -> bool {
    let Ok(seen) = &exchange.answer else {
        return false;
    };
    let reading = Reading::of(seen);
    let object = matches!(reading.body, BodyRead::Object(_));
    let member = |name: &str| reading.body.member(name).is_some();
    match rule {
        "SRV-13" => return true,
        "SRV-18" => return (400..500).contains(&seen.status) && !matches!(seen.status, 408 | 425 | 429),
        _ if !reading.is_reject(seen.status) => return false,
        _ => {}
    }
    match rule {
        "SRV-01" | "SRV-16" => reading.code().is_some(),
        "SRV-06" => object && matches!(reading.signal, SignalRead::One(_)),
        "SRV-07" => member("status"),
        "SRV-08" => reading.retry() == Some("after"),
        "SRV-09" => !seen.lines("retry-after").is_empty(),
        "SRV-10" => reading.applied().is_some(),
        "SRV-19" => reading.code() == Some("deadline_unattainable") || member("min_deadline_ms"),
        "SRV-23" => reading.code() == Some("rate_limited"),
        "SRV-25" => reading.after().is_some() || reading.max().is_some(),
        "SRV-27" | "SRV-28" => reading.after().is_some(),
        "SEC-07" => member("min_deadline_ms") || member("predicted_wait_ms"),
        "VER-01" => object || matches!(reading.signal, SignalRead::One(_)),
        // What a reject must have, and what it must not have, is asked of every one.
        _ => RULES.contains(&rule),
    }
}
