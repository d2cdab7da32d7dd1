//! The files that the runner reads: what never ends, is no file, or is larger than its kind may be is refused by name.
#![expect(clippy::expect_used, reason = "a helper of a test that cannot go on says why")]

use std::process::Command;

mod said;

use said::refused;

/// As [`refused`], in little memory: a read without an end is stopped by the system, and not by filling the machine.
#[cfg(unix)]
#[track_caller]
fn refused_in_little_memory(args: &[&str], words: &[&str]) {
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 4194304; exec \"$@\"", "sh"])
        .args(["timeout", "20", env!("CARGO_BIN_EXE_holdoff-conformance")])
        .args(args)
        .output()
        .expect("the shell starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?}: {word:?} in:\n{said}");
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_never_ends_or_never_begins_is_refused_by_name_wherever_one_is_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let pipe = dir.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts");
    assert!(made.success());
    let cases = dir.path().join("cases");
    std::fs::create_dir(&cases).expect("made");
    let linked = cases.join("a.yaml");
    for target in [std::path::Path::new("/dev/zero"), &pipe] {
        let file = target.display().to_string();
        let words = [file.as_str(), "is not a regular file"];
        refused_in_little_memory(&["rejudge", &file], &words);
        refused_in_little_memory(&["table", &file], &words);
        refused_in_little_memory(&["client", "--adapter", "true", "--baseline", &file], &words);
        refused_in_little_memory(&["survey", "--adapter", "true", "--behaviours", &file], &words);
        refused_in_little_memory(&["survey", "--clients", &file], &words);
        std::os::unix::fs::symlink(target, &linked).expect("linked");
        let directory = cases.display().to_string();
        let words = ["--cases", &linked.display().to_string(), "is not a regular file"];
        refused_in_little_memory(&["list", "--cases", &directory], &words);
        std::fs::remove_file(&linked).expect("removed");
    }
}

#[test]
fn a_file_that_is_too_large_is_refused_with_the_limit_of_its_kind() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("large.yaml");
    let large = |bytes: u64| {
        let file = std::fs::File::create(&path).expect("made");
        file.set_len(bytes).expect("sparse: it takes no room");
    };
    let (file, directory) = (path.display().to_string(), dir.path().display().to_string());
    large((4 << 20) + 1);
    let words = [
        file.as_str(),
        "has more than 4194304 bytes, the most that is read",
    ];
    refused(&["list", "--cases", &directory], 2, &words);
    refused(&["client", "--adapter", "true", "--baseline", &file], 2, &words);
    large((256 << 20) + 1);
    let words = [
        file.as_str(),
        "has more than 268435456 bytes, the most that is read",
    ];
    refused(&["rejudge", &file], 2, &words);
}

#[cfg(unix)]
#[test]
fn directories_that_link_back_to_themselves_are_no_endless_set_of_cases() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for name in ["a", "b"] {
        std::os::unix::fs::symlink(dir.path(), dir.path().join(name)).expect("linked");
    }
    let directory = dir.path().display().to_string();
    let words = ["--cases", "more than 10000 files and directories"];
    refused(&["list", "--cases", &directory], 2, &words);
}
