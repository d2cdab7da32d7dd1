//! Every mutant is caught: a case of the requirement that it breaks fails, by its own verdict and not because
//! something else went wrong. (That the honest peers pass the same cases is what the conformance runs show.)

#![expect(clippy::unwrap_used, reason = "a test: what cannot be read fails it")]

use clap::{Parser, ValueEnum};
use holdoff_conformance::cli::{self, Cli};
use holdoff_conformance::peers::Peers;
use holdoff_peers::mutant::client::ClientMutant;
use holdoff_peers::mutant::grpc::{GrpcClientMutant, GrpcServerMutant};
use holdoff_peers::mutant::relay::RelayMutant;
use holdoff_peers::mutant::server::ServerMutant;
use serde_json::Value;

/// Runs the cases of a requirement against a peer and gives the report.
async fn judge(role: &str, adapter: &str, requirement: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.json");
    let args = [
        "holdoff-conformance",
        role,
        "--adapter",
        adapter,
        "--filter",
        requirement,
        "--seed",
        "1",
        "--fail-fast",
        "--report",
        file.to_str().unwrap(),
    ];
    cli::main(Cli::parse_from(args)).await;
    serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap()
}

/// Ids of the cases that name the requirement and failed.
fn caught_by(report: &Value, requirement: &str) -> Vec<String> {
    let cases = report["cases"].as_array().unwrap();
    let caught = cases.iter().filter(|case| {
        let names = case["requirements"]
            .as_array()
            .unwrap()
            .iter()
            .any(|id| id == requirement);
        names && matches!(case["verdict"].as_str(), Some("fail" | "warn"))
    });
    caught
        .map(|case| case["id"].as_str().unwrap().to_owned())
        .collect()
}

async fn survivors<M: ValueEnum + Copy>(
    role: &str,
    program: &str,
    breaks: fn(M) -> &'static str,
) -> Vec<String> {
    let mut survivors = Vec::new();
    for mutant in M::value_variants().iter().step_by(step()) {
        let name = mutant.to_possible_value().unwrap().get_name().to_owned();
        let requirement = breaks(*mutant);
        let report = judge(role, &format!("{program} --mutant {name}"), requirement).await;
        if caught_by(&report, requirement).is_empty() {
            survivors.push(format!("{name} (breaks {requirement})"));
        }
    }
    survivors
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_client_is_caught_by_a_case_of_the_rule_it_breaks() {
    let program = env!("CARGO_BIN_EXE_client-tower");
    let survivors = survivors("client", program, ClientMutant::breaks).await;
    assert!(survivors.is_empty(), "not caught: {survivors:#?}");
    assert!(ClientMutant::value_variants().len() >= 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_server_is_caught_by_a_case_of_the_rule_it_breaks() {
    let program = env!("CARGO_BIN_EXE_server");
    let survivors = survivors("server", program, ServerMutant::breaks).await;
    assert!(survivors.is_empty(), "not caught: {survivors:#?}");
    assert!(ServerMutant::value_variants().len() >= 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_relay_is_caught_by_a_case_of_the_rule_it_breaks() {
    let program = env!("CARGO_BIN_EXE_relay-axum");
    let survivors = survivors("relay", program, RelayMutant::breaks).await;
    assert!(survivors.is_empty(), "not caught: {survivors:#?}");
    assert!(RelayMutant::value_variants().len() >= 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_grpc_client_is_caught_by_a_case_of_the_rule_it_breaks() {
    let program = env!("CARGO_BIN_EXE_client-tonic");
    let survivors = survivors("client", program, GrpcClientMutant::breaks).await;
    assert!(survivors.is_empty(), "not caught: {survivors:#?}");
    assert!(GrpcClientMutant::value_variants().len() >= 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_grpc_server_is_caught_by_a_case_of_the_rule_it_breaks() {
    let program = env!("CARGO_BIN_EXE_server-tonic");
    let survivors = survivors("server", program, GrpcServerMutant::breaks).await;
    assert!(survivors.is_empty(), "not caught: {survivors:#?}");
    assert!(GrpcServerMutant::value_variants().len() >= 5);
}

/// `self` and the traceability page know the mutants from peers.toml: it holds every one of them, and no other.
#[test]
fn the_list_of_mutants_is_the_one_of_the_programs() {
    let mut wrong = Vec::new();
    let listed = Peers::load_embedded().unwrap().mutants;
    let mut have: Vec<(&str, String, &str)> = Vec::new();
    collect("client-tower", ClientMutant::breaks, &mut have);
    collect("server", ServerMutant::breaks, &mut have);
    collect("relay-axum", RelayMutant::breaks, &mut have);
    collect("client-tonic", GrpcClientMutant::breaks, &mut have);
    collect("server-tonic", GrpcServerMutant::breaks, &mut have);
    for (program, name, breaks) in &have {
        let there = listed
            .iter()
            .any(|it| it.program == *program && it.name == *name && it.breaks[0] == *breaks);
        if !there {
            wrong.push(format!("{program} {name} (breaks {breaks}) is not in peers.toml"));
        }
    }
    for it in &listed {
        let known = have
            .iter()
            .any(|(program, name, _)| it.program == *program && it.name == *name);
        if !known {
            wrong.push(format!("{} {} is in peers.toml alone", it.program, it.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(have.len() >= 20);
}

fn collect<M: ValueEnum + Copy>(
    program: &'static str,
    breaks: fn(M) -> &'static str,
    into: &mut Vec<(&'static str, String, &'static str)>,
) {
    for mutant in M::value_variants() {
        let name = mutant.to_possible_value().unwrap().get_name().to_owned();
        into.push((program, name, breaks(*mutant)));
    }
}

/// Every mutant, or one in four with `HOLDOFF_MUTANTS=some`: the smoke of CI, since all of them take minutes.
fn step() -> usize {
    if std::env::var_os("HOLDOFF_MUTANTS").is_some_and(|which| which == "some") {
        4
    } else {
        1
    }
}
