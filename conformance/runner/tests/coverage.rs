//! Requirement, case and mutant hold each other: no case without a requirement (the loader sees to it), no requirement
//! without a case and without something that its cases have been shown to fail on, unless `conformance/coverage.toml`
//! says why; and the page that shows it is the one that these data make.
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

use std::path::{Path, PathBuf};

use holdoff_conformance::case::{self, CaseSet};
use holdoff_conformance::peers::Peers;
use holdoff_conformance::required::Required;
use holdoff_conformance::trace::{COVERAGE, Coverage, OTHER_READING, Trace};
use holdoff_conformance::vector::Vectors;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

struct All {
    set: CaseSet,
    vectors: Vectors,
    peers: Peers,
    coverage: Coverage,
    required: Required,
}

impl All {
    fn load() -> Self {
        let set = case::load_embedded().unwrap();
        Self {
            vectors: Vectors::load_embedded(&set.requirements).unwrap(),
            peers: Peers::load_embedded().unwrap(),
            coverage: toml::from_str(COVERAGE).unwrap(),
            required: Required::v1(&set.requirements).unwrap(),
            set,
        }
    }

    fn gaps(&self) -> Vec<String> {
        self.trace().gaps()
    }

    fn trace(&self) -> Trace<'_> {
        Trace::new(
            &self.set,
            &self.vectors,
            &self.peers,
            &self.coverage,
            &self.required,
        )
    }
}

#[test]
fn every_requirement_has_a_case_and_something_that_it_catches_or_a_reason() {
    let gaps = All::load().gaps();
    assert!(gaps.is_empty(), "{gaps:#?}");
}

#[test]
fn a_gap_is_found_whatever_is_missing() {
    let said = |change: &dyn Fn(&mut All), words: &str| {
        let mut all = All::load();
        change(&mut all);
        let gaps = all.gaps();
        assert!(
            gaps.iter().any(|gap| gap.contains(words)),
            "{words:?} in {gaps:#?}"
        );
    };
    said(
        &|all| {
            all.set
                .cases
                .retain(|case| !case.requirements.contains(&"REQ-08".to_owned()));
        },
        "REQ-08 has no case",
    );
    said(
        &|all| all.peers.mutants.retain(|mutant| mutant.name != "one-parent"),
        "REQ-09 has no mutant",
    );
    said(
        &|all| {
            all.coverage
                .without_case
                .insert("REQ-08".to_owned(), "no good reason".to_owned());
        },
        "REQ-08 has a case",
    );
    said(&|all| all.coverage.without_case.clear(), "VER-06 has no case");
    said(
        &|all| all.peers.mutants[0].breaks.push("CLI-99".to_owned()),
        "CLI-99 is named",
    );
}

#[test]
fn the_traceability_page_is_the_one_that_these_data_make() {
    let page = std::fs::read_to_string(root().join("docs/TRACEABILITY.md")).unwrap();
    let made = All::load().trace().page();
    assert!(
        page == made,
        "docs/TRACEABILITY.md is stale: holdoff-conformance trace > docs/TRACEABILITY.md"
    );
}

#[test]
fn every_control_names_a_test_that_is_there() {
    let all = All::load();
    let named = all.coverage.controls.iter().map(|control| control.test.as_str());
    for test in named.chain([OTHER_READING]) {
        let (file, name) = test.split_once(": ").unwrap();
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        assert!(text.contains(&format!("fn {name}(")), "{test}");
    }
}
