//! The loader: what loads, and what is refused with which words.

use std::collections::BTreeSet;

use super::*;

const CASE: &str = "
schema: overload-cases/1
cases:
  - id: one
    title: A sentence.
    requirements: [CLI-01]
    client:
      calls:
        - script: [{status: 200}]
          expect: {requests: 1, result: {kind: response}}
";

fn error_of(text: &str) -> String {
    load([("some/file.yaml".to_owned(), text.to_owned())])
        .unwrap_err()
        .to_string()
}

#[test]
fn a_small_case_loads_with_its_defaults() {
    let set = load([("f.yaml".to_owned(), CASE.to_owned())]).unwrap();
    let case = &set.cases[0];
    assert_eq!(
        (case.role(), case.level, case.timing),
        (Role::Client, Level::Must, true)
    );
    assert_eq!(case.limit_ms, DEFAULT_LIMIT_MS);
}

#[test]
fn an_unknown_key_at_any_depth_is_refused_with_the_file_and_the_key() {
    for (from, to, key) in [
        ("    title:", "    titel: x\n    title:", "titel"),
        ("{status: 200}", "{status: 200, hangs: 3}", "hangs"),
        ("{requests: 1,", "{requests: 1, gasp: [],", "gasp"),
        ("{kind: response}", "{kind: response, whi: x}", "whi"),
    ] {
        let error = error_of(&CASE.replace(from, to));
        assert!(error.starts_with("some/file.yaml: "), "{error}");
        assert!(error.contains(key), "{key:?} in {error}");
    }
}

#[test]
fn an_unknown_requirement_is_refused_with_file_case_and_id() {
    let error = error_of(&CASE.replace("CLI-01", "CLI-99"));
    assert_eq!(
        error,
        "some/file.yaml: case one: requirement \"CLI-99\" is not in requirements.toml"
    );
}

#[test]
fn a_case_for_nothing_or_for_both_sides_or_without_a_second_witness_is_refused() {
    assert!(error_of(&CASE.replace("[CLI-01]", "[]")).contains("requirements is empty"));
    assert!(error_of(&CASE.replace(", result: {kind: response}", "")).contains("both witnesses"));
    assert!(error_of(&CASE.replace("requests: 1", "requests: 0")).contains("need a `why`"));
    assert!(error_of(&CASE.replace("    client:", "    limit_ms: 0\n    client:")).contains("limit_ms is 0"));
    assert!(error_of(&CASE.replace("cases/1", "cases/2")).contains("overload-cases/2"));
}

#[test]
fn a_word_that_no_reply_may_carry_is_refused_with_those_that_it_may() {
    let with = |words: &str| error_of(&CASE.replace("{kind: response}", words));
    for (words, key, bad) in [
        ("{kind: overloaded, why: banana}", "why", "banana"),
        ("{kind: overloaded, why: [held_off, banana]}", "why", "banana"),
        ("{kind: banana}", "kind", "banana"),
        ("{kind: overloaded, retry: never}", "retry", "never"),
        ("{kind: overloaded, applied: yes}", "applied", "yes"),
    ] {
        let error = with(words);
        assert!(
            error.contains(&format!("{key} is \"{bad}\"; allowed are ")),
            "{words}: {error}"
        );
    }
    assert!(with("{kind: overloaded, why: banana}").contains("hint_too_long"));
    let shares = "{requests: 1, results: [{calls: 1, result: {kind: error, why: banana}}]}";
    let error = error_of(&CASE.replace("{requests: 1, result: {kind: response}}", shares));
    assert!(error.contains("banana"), "{error}");
}

#[test]
fn a_mark_that_a_pass_says_nothing_about_a_requirement_names_one_of_the_case() {
    for key in ["limits_only", "metrics_show"] {
        let marked = |id: &str| CASE.replace("    client:", &format!("    {key}: [{id}]\n    client:"));
        assert!(error_of(&marked("CLI-02")).contains(&format!("{key} names \"CLI-02\"")));
        assert!(load([("f.yaml".to_owned(), marked("CLI-01"))]).is_ok());
    }
}

#[test]
fn every_requirement_that_a_case_can_only_show_broken_is_shown_held_by_another() {
    let set = load_embedded().unwrap();
    let marked: BTreeSet<&String> = set.cases.iter().flat_map(|case| &case.limits_only).collect();
    assert!(!marked.is_empty());
    for id in marked {
        let shows = |case: &&Case| case.requirements.contains(id) && !case.limits_only.contains(id);
        assert!(set.cases.iter().any(|case| shows(&case)), "{id}");
    }
}

#[test]
fn a_group_that_counts_from_another_names_one_before_it_and_says_how_long_after() {
    let with = |keys: &str| error_of(&CASE.replace("- script:", &format!("- {keys}\n          script:")));
    assert!(with("after: first").contains("after is \"first\"; it must name a group before this one"));
    let second = "result: {kind: response}}\n        - name: second\n          after: call\n          script: [{status: 200}]\n          expect: {requests: 1, result: {kind: response}}";
    let error = error_of(&CASE.replace("result: {kind: response}}", second));
    assert!(error.contains("at_ms must say how long after"), "{error}");
}

#[test]
fn an_id_that_is_used_twice_is_refused() {
    let twice = [
        ("a.yaml".to_owned(), CASE.to_owned()),
        ("b.yaml".to_owned(), CASE.to_owned()),
    ];
    assert_eq!(
        load(twice).unwrap_err().to_string(),
        "b.yaml: case one: the id is already used in a.yaml"
    );
}

#[test]
fn every_case_file_is_built_in_and_loads() {
    let set = load_embedded().unwrap();
    assert!(
        set.cases
            .iter()
            .filter(|case| case.role() == Role::Client)
            .count()
            >= 20
    );
    let mut paths = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases");
    collect(&root, &mut paths, &mut 0).unwrap();
    let mut on_disk: Vec<String> = paths
        .iter()
        .map(|path| path.strip_prefix(&root).unwrap().display().to_string())
        .collect();
    on_disk.sort();
    assert_eq!(
        on_disk,
        EMBEDDED
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect::<Vec<_>>()
    );
}
