//! The words of `capabilities`, and what somebody who wrote another one probably meant.
//!
//! What is not declared is not judged. So a misspelt capability turns its cases off without a word, and the run is as green
//! as before.

use std::collections::BTreeSet;

use crate::case::{Body, CaseSet};

/// Words of ADAPTER.md that no case of this runner asks for: settings that a survey reads, and what a program may say for others.
const UNASKED: &[&str] = &[
    "call_time",
    "crash",
    "deadline",
    "degraded",
    "drain",
    "force_reject",
    "force_state",
    "freeze_controller",
    "grpc",
    "hold_workers",
    "panic_work",
    "redirect",
    "trust",
];

/// How many letters a word may be away from the one that was meant.
const MAX_DISTANCE: usize = 3;

/// Every capability that means something: what cases need, the fixtures that they use, and the words of ADAPTER.md.
pub fn known(set: &CaseSet) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = UNASKED.iter().map(|word| (*word).to_owned()).collect();
    for case in &set.cases {
        known.extend(case.needs.iter().cloned());
        if let Body::Server(body) = &case.body {
            known.extend(body.fixtures().into_iter().map(str::to_owned));
        }
    }
    known
}

/// One warning for each declared word that means nothing, with the nearest that does.
pub fn warnings(declared: &[String], known: &BTreeSet<String>) -> Vec<String> {
    let unknown = declared.iter().filter(|word| !known.contains(*word));
    unknown
        .map(|word| {
            let by_distance = known.iter().map(|other| (distance(word, other), other));
            let near = by_distance
                .min()
                .filter(|(distance, _)| *distance <= MAX_DISTANCE);
            let meant = near.map_or(String::new(), |(_, other)| format!("; did you mean {other:?}?"));
            let word: String = word.chars().take(80).collect();
            format!("the adapter declares the capability {word:?}, which no case knows{meant}")
        })
        .collect()
}

/// Letters to be put in, taken out or exchanged (Levenshtein), over at most 80 of each.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(80).collect(), b.chars().take(80).collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let exchanged = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = exchanged.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::load_embedded;

    fn said(declared: &[&str]) -> Vec<String> {
        let declared: Vec<String> = declared.iter().map(|word| (*word).to_owned()).collect();
        warnings(&declared, &known(&load_embedded().unwrap()))
    }

    #[test]
    fn a_misspelt_capability_is_named_with_the_nearest_one() {
        let said = said(&["deadline", "hold_of", "zzzzzzzzzz"]);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("\"hold_of\"") && said[0].contains("did you mean \"hold_off\"?"));
        assert!(said[1].contains("zzzzzzzzzz") && !said[1].contains("did you mean"));
    }

    #[test]
    fn every_word_of_the_protocol_is_known() {
        let words = [
            "deadline",
            "hold_off",
            "budget",
            "tier",
            "compat",
            "stream_body",
            "cancel",
            "redirect",
            "instances",
            "tracing",
            "vocabulary",
            "grpc",
            "replicas",
            "own_limit",
            "retry",
            "retry_throttle",
            "idempotency",
            "hold_workers",
            "freeze_controller",
            "force_state",
            "drain",
            "force_reject",
            "degraded",
            "crash",
            "trust",
            "panic_work",
        ];
        assert!(said(&words).is_empty(), "{:?}", said(&words));
    }

    #[test]
    fn the_distance_counts_letters() {
        for (a, b, n) in [
            ("", "abc", 3),
            ("hold_of", "hold_off", 1),
            ("teir", "tier", 2),
            ("tier", "tier", 0),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (n, n), "{a} {b}");
        }
    }
}
