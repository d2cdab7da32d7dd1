//! The rules of the house as a test: which crate may use which, what the pure crates may not compile, and how
//! long a file may grow. docs/ARCHITECTURE.md says why.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be read fails it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

/// Longest Rust file, in lines. The house aims at 400; at 500 a file has two meanings.
const MAX_LINES: usize = 500;

/// Every crate of the workspace with the crates of the workspace it may use (normal and build dependencies).
const ARROWS: &[(&str, &[&str])] = &[
    ("holdoff-contract", &[]),
    ("holdoff-policy", &["holdoff-contract"]),
    ("holdoff-tower", &["holdoff-contract", "holdoff-policy"]),
    (
        "holdoff-reqwest",
        &["holdoff-contract", "holdoff-policy", "holdoff-tower"],
    ),
    ("holdoff-axum", &["holdoff-contract", "holdoff-tower"]),
    (
        "holdoff-tonic",
        &["holdoff-contract", "holdoff-policy", "holdoff-tower"],
    ),
    (
        "holdoff-reqwest-middleware",
        &[
            "holdoff-contract",
            "holdoff-policy",
            "holdoff-tower",
            "holdoff-reqwest",
        ],
    ),
    ("holdoff-backoff", &["holdoff-contract", "holdoff-policy"]),
    ("holdoff-testkit", &["holdoff-contract"]),
    (
        "holdoff",
        &[
            "holdoff-axum",
            "holdoff-contract",
            "holdoff-policy",
            "holdoff-tower",
            "holdoff-reqwest",
            "holdoff-reqwest-middleware",
            "holdoff-tonic",
        ],
    ),
    ("holdoff-admission", &["holdoff-contract"]),
    ("holdoff-journal", &[]),
    (
        "holdoff-admission-tower",
        &["holdoff-contract", "holdoff-admission"],
    ),
    (
        "holdoff-server",
        &[
            "holdoff-contract",
            "holdoff-admission",
            "holdoff-admission-tower",
            "holdoff-journal",
        ],
    ),
    ("holdoff-conformance", &[]),
    (
        "holdoff-peers",
        &[
            "holdoff",
            "holdoff-contract",
            "holdoff-policy",
            "holdoff-admission",
            "holdoff-admission-tower",
            "holdoff-server",
        ],
    ),
    (
        "holdoff-bench",
        &["holdoff", "holdoff-admission", "holdoff-admission-tower"],
    ),
    (
        "holdoff-sim",
        &["holdoff-contract", "holdoff-policy", "holdoff-admission"],
    ),
    (
        "holdoff-examples",
        &[
            "holdoff",
            "holdoff-admission",
            "holdoff-admission-tower",
            "holdoff-backoff",
            "holdoff-reqwest-middleware",
            "holdoff-server",
            "holdoff-testkit",
        ],
    ),
];

/// Crates that decide and do not act, and what must not be in their trees.
const PURE: &[&str] = &["holdoff-contract", "holdoff-policy", "holdoff-admission"];
const ACTING: &[&str] = &["tokio", "hyper", "reqwest", "mio", "async-std", "axum", "tonic"];

/// Unmaintained (RUSTSEC-2025-0012, RUSTSEC-2024-0384): never in a default tree.
const UNMAINTAINED: &[&str] = &["backoff", "instant"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(vec!["--offline".into(), "--locked".into()])
        .exec()
        .unwrap()
}

/// Names of everything that building `from` compiles: normal and build dependencies and, where `dev`, what its own
/// tests add.
fn tree(metadata: &Metadata, from: &str, dev: bool) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().unwrap();
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let start = metadata
        .workspace_packages()
        .into_iter()
        .find(|p| p.name == from)
        .unwrap();
    let mut seen = BTreeSet::new();
    let mut todo = vec![&start.id];
    while let Some(id) = todo.pop() {
        if !seen.insert(id) {
            continue;
        }
        for dep in &nodes[id].deps {
            let counts = dep
                .dep_kinds
                .iter()
                .any(|kind| kind.kind != DependencyKind::Development || (dev && *id == start.id));
            if counts {
                todo.push(&dep.pkg);
            }
        }
    }
    seen.into_iter().map(|id| metadata[id].name.to_string()).collect()
}

#[test]
fn the_arrows_between_crates_are_the_declared_ones() {
    let metadata = metadata();
    let ours: BTreeSet<String> = metadata
        .workspace_packages()
        .iter()
        .map(|package| package.name.to_string())
        .collect();
    let declared: BTreeSet<String> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(
        ours, declared,
        "a crate was added or removed: say in ARROWS what it may use"
    );

    let mut wrong = Vec::new();
    for package in metadata.workspace_packages() {
        let allowed = ARROWS.iter().find(|(name, _)| package.name == *name).unwrap().1;
        for dep in &package.dependencies {
            let inside = ours.contains(&dep.name) && dep.kind != DependencyKind::Development;
            if inside && !allowed.contains(&dep.name.as_str()) {
                wrong.push(format!("{} -> {}", package.name, dep.name));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "arrows that docs/ARCHITECTURE.md does not have: {wrong:?}"
    );
}

#[test]
fn the_conformance_runner_uses_no_sdk_or_server_crate_not_even_in_its_tests() {
    let inside: Vec<String> = tree(&metadata(), "holdoff-conformance", true)
        .into_iter()
        .filter(|name| name.starts_with("holdoff") && name != "holdoff-conformance")
        .collect();
    assert!(
        inside.is_empty(),
        "the judge must not share code with the judged: {inside:?}"
    );
}

#[test]
fn pure_crates_build_and_test_without_a_runtime() {
    let metadata = metadata();
    for pure in PURE {
        let tree = tree(&metadata, pure, true);
        let acting: Vec<&&str> = ACTING.iter().filter(|name| tree.contains(**name)).collect();
        assert!(acting.is_empty(), "{pure} compiles {acting:?}");
    }
}

#[test]
fn unmaintained_crates_are_in_no_default_tree() {
    let metadata = metadata();
    for (name, _) in ARROWS {
        let tree = tree(&metadata, name, false);
        let found: Vec<&&str> = UNMAINTAINED.iter().filter(|bad| tree.contains(**bad)).collect();
        assert!(found.is_empty(), "{name} compiles {found:?}");
    }
}

#[test]
fn no_rust_file_has_grown_past_its_meaning() {
    let mut long = Vec::new();
    let mut seen = 0;
    for top in ["sdk", "server-ref", "conformance", "examples"] {
        visit(&root().join(top), &mut |path| {
            if path.extension().is_some_and(|ext| ext == "rs") {
                seen += 1;
                let lines = std::fs::read_to_string(path).unwrap().lines().count();
                if lines > MAX_LINES {
                    long.push(format!(
                        "{} has {lines}",
                        path.strip_prefix(root()).unwrap().display()
                    ));
                }
            }
        });
    }
    assert!(seen > 20, "looked at {seen} files only");
    assert!(
        long.is_empty(),
        "over {MAX_LINES} lines, cut them where the meaning divides: {long:#?}"
    );
}

fn visit(dir: &Path, each: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                visit(&path, each);
            }
        } else {
            each(&path);
        }
    }
}
