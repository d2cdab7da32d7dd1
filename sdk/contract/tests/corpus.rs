//! What the fuzzer has been given and has found, replayed on stable Rust through the fuzzer's own functions
//! (`sdk/fuzz`).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "test code, of which the functions are shared with a crate of its own"
)]

#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

use std::path::Path;

/// Runs the check over every file of a corpus, and over every beginning of it: a peer may stop anywhere.
fn replay(target: &str, check: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    let mut files = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        let data = std::fs::read(entry.unwrap().path()).unwrap();
        for end in 0..=data.len() {
            check(&data[..end]);
        }
        files += 1;
    }
    assert!(files >= 10, "{} has {files} files", dir.display());
}

#[test]
fn every_head_of_the_corpus_is_read_within_the_limits() {
    replay("header", fuzz::header);
}

#[test]
fn every_body_of_the_corpus_is_read_within_the_limits() {
    replay("body", fuzz::body);
}

#[test]
fn every_signal_of_the_corpus_is_read_within_the_limits() {
    replay("signal", fuzz::signal);
}

#[test]
fn every_response_of_the_corpus_can_be_passed_on_and_gets_no_wider() {
    replay("round_trip", fuzz::round_trip);
}
