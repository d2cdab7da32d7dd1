//! Every mutant is caught: a case of the requirement that it breaks fails, by its own verdict and not because
//! something else went wrong. (That the honest peers pass the same cases is what the conformance runs show.)

#![expect(clippy::unwrap_used, reason = "a test: what cannot be read fails it")]

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use holdoff_conformance::cli::{self, Cli};
use holdoff_conformance::peers::Peers;
use holdoff_peers::mutant::client::ClientMutant;
use holdoff_peers::mutant::grpc::{GrpcClientMutant, GrpcServerMutant};
use holdoff_peers::mutant::relay::RelayMutant;
use holdoff_peers::mutant::server::ServerMutant;

/// Has `self` judge the mutants of a program. What it prints says which case caught which, and what the cases said of one that
/// survived.
async fn all_are_caught(program: &str) {
    let dir = Path::new(program).parent().unwrap();
    let name = Path::new(program).file_name().unwrap().to_str().unwrap();
    let mut args = vec![
        "holdoff-conformance",
        "self",
        "--mutants-only",
        "--jobs",
        "1",
        "--peers",
    ];
    let filter = format!("{name} ");
    args.extend([dir.to_str().unwrap(), "--filter", &filter]);
    let code = cli::main(Cli::parse_from(args)).await;
    assert_eq!(code, ExitCode::SUCCESS, "a mutant of {name} survives");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_client_is_caught_by_a_case_of_the_rule_it_breaks() {
    all_are_caught(env!("CARGO_BIN_EXE_client-tower")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_server_is_caught_by_a_case_of_the_rule_it_breaks() {
    all_are_caught(env!("CARGO_BIN_EXE_server")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_relay_is_caught_by_a_case_of_the_rule_it_breaks() {
    all_are_caught(env!("CARGO_BIN_EXE_relay-axum")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_grpc_client_is_caught_by_a_case_of_the_rule_it_breaks() {
    all_are_caught(env!("CARGO_BIN_EXE_client-tonic")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_grpc_server_is_caught_by_a_case_of_the_rule_it_breaks() {
    all_are_caught(env!("CARGO_BIN_EXE_server-tonic")).await;
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
