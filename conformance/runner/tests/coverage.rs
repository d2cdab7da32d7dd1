//! Requirement and case hold each other: no case without a requirement (the loader sees to it), and no requirement
//! without a case, unless `conformance/coverage.toml` says why.

use std::collections::{BTreeMap, BTreeSet};

use holdoff_conformance::case;
use holdoff_conformance::vector::{self, Vectors};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Coverage {
    /// Requirement id -> why no case speaks for it.
    without_case: BTreeMap<String, String>,
}

#[test]
fn every_requirement_has_a_case_or_a_reason_and_never_both() {
    let set = case::load_embedded().unwrap();
    let coverage: Coverage = toml::from_str(include_str!("../../coverage.toml")).unwrap();
    let mut spoken_for: BTreeSet<String> = BTreeSet::new();
    for case in set.cases.iter().filter(|case| case.excluded.is_none()) {
        spoken_for.extend(case.requirements.iter().cloned());
    }
    let vectors = Vectors::parse(vector::EMBEDDED, &set.requirements)
        .unwrap()
        .vectors;
    for vector in vectors {
        spoken_for.extend(vector.req);
    }
    let mut wrong = Vec::new();
    for requirement in set.requirements.iter() {
        let id = &requirement.id;
        match (spoken_for.contains(id), coverage.without_case.get(id)) {
            (false, None) => {
                wrong.push(format!(
                    "{id} has no case: write one, or say why in coverage.toml"
                ));
            }
            (true, Some(_)) => {
                wrong.push(format!("{id} has a case: take it out of coverage.toml"));
            }
            (false, Some(reason)) if reason.trim().len() < 10 => {
                wrong.push(format!("{id}: that is no reason"));
            }
            _ => {}
        }
    }
    for id in coverage
        .without_case
        .keys()
        .filter(|id| set.requirements.get(id).is_none())
    {
        wrong.push(format!("{id} in coverage.toml is no requirement"));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_profile_of_another_role_is_refused_instead_of_called_conformant() {
    for (mode, profile) in [
        ("client", "relay"),
        ("vectors", "server-admission"),
        ("client", "grpc-server"),
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_holdoff-conformance"))
            .args([mode, "--adapter", "true", "--profile", profile])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{mode} {profile}: {said}");
        assert!(said.contains("is judged by"), "{said}");
    }
}
