//! The program: what `check` finds, all of it, and what it must not do to a terminal.

use std::process::Stdio;

use tokio::io::AsyncWriteExt;

use crate::binary::{output, profile, program};

/// What `check` says against this file.
async fn refused(path: &std::path::Path) -> String {
    let output = output(&["check", path.to_str().unwrap()]).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    said
}

async fn refused_text(text: &str) -> String {
    refused(profile(text).path()).await
}

#[tokio::test]
async fn no_name_of_a_profile_reaches_the_terminal_as_anything_but_what_can_be_seen() {
    for text in [
        "\"\\e[31mred\\n\": 1\n",
        "classes:\n  \"\\e[31mred\\n\": {}\n",
        "classes:\n  t: {\"\\e[31mred\\n\": 1}\n",
        "server:\n  \"\\e[31mred\\n\": 1\n",
        "tenants:\n  \"\\e[31mred\\n\": {}\n",
        "tiers:\n  \"\\e[31mred\\n\": {}\n",
        "\"\\e[31mred\\n\": 1\n\"\\e[31mred\\n\": 2\n",
        "workers: \"\\e[31mred\\n\"\n",
        "anonymous: {tenant: \"\\e[31mred\\n\"}\n",
        "anonymous: {tiers: [\"\\e[31mred\\n\"]}\n",
        "server: {vocabulary: \"/nowhere/\\e[31mred\\n\"}\n",
        "observe: {trace: \"/nowhere/\\e[31mred\\n\"}\n",
    ] {
        let said = refused_text(text).await;
        let shown = said
            .trim_end()
            .replace("\n  line ", "")
            .replace("\n  tenants.", "");
        assert!(!shown.contains(char::is_control), "{text}: {said:?}");
        assert!(said.contains("\\u{1b}[31mred"), "{text}: {said:?}");
    }
    let mut toml = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::io::Write::write_all(&mut toml, b"\"\\u001b[31m\\nred\" = 1\n").unwrap();
    let said = refused(toml.path()).await;
    assert!(said.contains("\\u{1b}[31m\\nred is no key"), "{said:?}");
    let folder = tempfile::tempdir().unwrap();
    let said = refused(&folder.path().join("\u{1b}[31m\nred.yaml")).await;
    assert!(
        said.contains("\\u{1b}[31m\\nred.yaml: cannot be read"),
        "{said:?}"
    );
    assert_eq!(said.lines().count(), 1, "{said:?}");
}

#[tokio::test]
async fn values_that_do_not_fit_each_other_are_all_named_with_the_one_that_sets_the_limit() {
    let said = refused_text(
        "workers: 4\nmax_deadline_ms: 100\ntiers:\n  critical:\n    slots: 5\n    reserved_workers: 4\n\
         thresholds: {enter_depth: 10, shed_depth: 5, exit_depth: 10, enter_wait: 0.95}\n\
         classes:\n  a: {mean_ms: 10, p95_ms: 4, deadline_ms: 5000}\n  b: {max_deadline_ms: 60}\n",
    )
    .await;
    for words in [
        "line 5, column 12: tiers.critical.slots is 5; it must be in 0..=4 (at most workers, which is 4)",
        "line 6, column 23: tiers.critical.reserved_workers is 4; it must be in 0..=3 (less than workers, which is 4)",
        "thresholds.shed_depth is 5; it must be in 10..=300000 (at least enter_depth, which is 10)",
        "thresholds.exit_depth is 10; it must be in 0..=9 (less than enter_depth, which is 10)",
        "line 7, column 13: thresholds.shed_wait is 0.9 (the default); it must be in 0.95..=10 (at least enter_wait, which is 0.95)",
        "classes.a.p95_ms is 4; it must be in 5..=86400000 (at least half of mean_ms, which is 10)",
        "classes.a.deadline_ms is 5000; it must be in 1..=100 (at most the profile's max_deadline_ms, which is 100)",
        "line 10, column 6: classes.b.deadline_ms is 5000 (the default); it must be in 1..=60 (at most its max_deadline_ms",
    ] {
        assert!(said.contains(words), "{words}\n{said}");
    }
    assert_eq!(said.trim_end().lines().count(), 8, "{said}");
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_refused() {
    for (text, words) in [
        (
            "anonymous: {tiers: []}\n",
            "anonymous.tiers is []; it must be a list of one or more of",
        ),
        (
            "anonymous:\n  tiers:\n",
            "anonymous.tiers is empty; it must be a list",
        ),
        (
            "anonymous: {tiers: [critical, critical]}\n",
            "[critical, critical]; it must be a list of one or more of critical, non-sheddable, deferrable, each once",
        ),
        ("identities: {tok: {tiers: []}}\n", "identities[0].tiers is []"),
        ("tenants: {a: {tiers: []}}\n", "tenants.a.tiers is []"),
        (
            "workers: 010\n",
            "workers is 010; it must be a whole number in 1..=4096 (tasks), without a leading zero, which others read as octal",
        ),
        (
            "classes: {a: {mean_ms: 010.5}}\n",
            "is 010.5; it must be a number",
        ),
    ] {
        let said = refused_text(text).await;
        assert!(said.contains(words), "{text}: {said}");
    }
    let file = profile("margin_share: 0.5\nbacklog: 0\nclasses:\n");
    let output = output(&["check", file.path().to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[tokio::test]
async fn files_that_a_profile_names_are_tried_and_left_as_they_were() {
    let said = refused_text(
        "workers: 1\nobserve:\n  trace: /nonexistent/x.jsonl\n  tenant_log: /proc/nope\nserver:\n  vocabulary: /nonexistent/words.toml\n",
    )
    .await;
    for words in [
        "line 3, column 10: observe.trace /nonexistent/x.jsonl: cannot be written: ",
        "line 4, column 15: observe.tenant_log /proc/nope: cannot be written: ",
        "line 6, column 15: server.vocabulary /nonexistent/words.toml: cannot be read: ",
    ] {
        assert!(said.contains(words), "{words}\n{said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(place(name), text).unwrap();
    write("old.jsonl", "kept\n");
    for (trace, log) in [("old.jsonl", "."), ("new.jsonl", "logs/a/b")] {
        let text = format!(
            "observe: {{trace: {}, tenant_log: {}}}\n",
            place(trace).display(),
            place(log).display()
        );
        write("p.yaml", &text);
        let output = output(&["check", place("p.yaml").to_str().unwrap()]).await;
        assert_eq!(output.status.code(), Some(0), "{text}{output:?}");
    }
    let mut left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["old.jsonl", "p.yaml"]);
    assert_eq!(std::fs::read_to_string(place("old.jsonl")).unwrap(), "kept\n");
    write(
        "p.yaml",
        &format!("observe: {{trace: {}}}\n", folder.path().display()),
    );
    assert!(refused(&place("p.yaml")).await.contains("directory"));
}

#[tokio::test]
async fn a_vocabulary_lies_beside_its_profile_and_is_named_with_profile_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(place(name), text).unwrap();
    write("p.yaml", "workers: 1\nserver:\n  vocabulary: words.toml\n");
    write("words.toml", "[[refusal]]\n");
    let said = refused(&place("p.yaml")).await;
    let words = place("words.toml").display().to_string();
    let start = format!(
        "{}: line 3, column 15: server.vocabulary {words}: line 1",
        place("p.yaml").display()
    );
    assert!(said.contains(&start), "{start}\n{said}");
    write(
        "words.toml",
        "[[refusals]]\ncode = \"concurrency_limit\"\nstatus = [503]\nheader = { name = \"x-error\", value = \"busy\" }\napplied = \"no\"\n",
    );
    let output = output(&["check", place("p.yaml").to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    write("p.yaml", "server:\n  vocabulary: .\n");
    let said = refused(&place("p.yaml")).await;
    assert!(
        said.contains("line 2, column 15: server.vocabulary")
            && said.contains("is a directory; it must be a file of text"),
        "{said}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_pipe_that_nobody_writes_to_is_refused_at_once_and_standard_input_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.yaml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    assert!(refused(&pipe).await.contains("is not a regular file"));
    let mut child = program()
        .args(["check", "/dev/stdin"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"workers: 3\n").await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("3 workers"));
}
