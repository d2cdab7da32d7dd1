//! The real runner, run once: its exit code and everything that it said.

use std::process::Command;

pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

pub(crate) fn runner(args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_holdoff-conformance"))
        .args(args)
        .output()
        .expect("the runner starts");
    Ran {
        code: output.status.code(),
        text: String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
    }
}

/// The run is refused with this code and every one of these words.
#[track_caller]
pub(crate) fn refused(args: &[&str], code: i32, words: &[&str]) {
    let ran = runner(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.text);
    for word in words {
        assert!(ran.text.contains(word), "{args:?}: {word:?} in:\n{}", ran.text);
    }
}
