//! `self`: the suite shows that it sees.
//!
//! A suite that passes good programs proves nothing as long as nobody has watched it fail bad ones. So our own peers
//! are judged (each must conform; one that does not is told case by case), and then every mutant, a peer that breaks one rule: a
//! case that names that rule must find it broken. A case that fails because the peer died, or that blames another rule, has caught
//! nothing. What is to be run is data, `conformance/peers/peers.toml`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;
use futures_util::StreamExt as _;

use super::conduct::{Told, conduct};
use super::{At, Common, Interrupt, Judged, check, print};
use crate::peers::{Mutant, Peers, Reference};
use crate::render;
use crate::report::{CaseReport, Conclusion, RunReport};
use crate::select::Shard;
use crate::verdict::Verdict;

/// The options of `self`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Where the peers are, built with `--features mutants`
    #[arg(long, value_name = "DIR", default_value = "target/debug")]
    peers: PathBuf,
    /// Only mutants whose program, name or requirement contains this; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = check::part)]
    filter: Vec<String>,
    /// Only the i-th of n parts of the mutants
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Leave the references out
    #[arg(long)]
    mutants_only: bool,
    /// How many mutants are judged side by side, 1 to 8
    #[arg(long, default_value_t = 2, allow_negative_numbers = true, value_parser = check::whole(1..=8_usize))]
    jobs: usize,
}

/// Runs all of it. Exit code 1 where a reference does not conform or a mutant survives, 3 where nothing was run.
///
/// Interrupted, it says so; what it has told by then stands.
pub(super) async fn main(options: &Options, interrupt: &Interrupt) -> anyhow::Result<u8> {
    match interrupt.unless(look(options, interrupt)).await {
        Ok(code) => code,
        Err(signal) => {
            print(&format!(
                "interrupted by {signal}: what is above stands, the rest was not run\n"
            ))?;
            Ok(signal.exit_code())
        }
    }
}

async fn look(options: &Options, interrupt: &Interrupt) -> anyhow::Result<u8> {
    let peers = Peers::load_embedded()?;
    let mutants: Vec<&Mutant> = peers
        .mutants
        .iter()
        .filter(|mutant| options.filter.is_empty() || options.filter.iter().any(|text| mutant.is(text)))
        .enumerate()
        .filter(|(n, _)| options.shard.is_none_or(|shard| shard.holds(*n)))
        .map(|(_, mutant)| mutant)
        .collect();
    let mut bad = Vec::new();
    let references: &[Reference] = if options.mutants_only {
        &[]
    } else {
        &peers.references
    };
    if references.is_empty() && mutants.is_empty() {
        print("nothing was selected\n")?;
        return Ok(Conclusion::NothingVerified.exit_code());
    }
    for reference in references {
        let report = reference_run(reference, &options.peers, interrupt).await?;
        let words = report.conclusion.words();
        print(&told(reference, &report))?;
        if report.conclusion != Conclusion::Conformant {
            bad.push(format!("{}: {words}", reference.program));
        }
    }
    let mut runs = futures_util::stream::iter(&mutants)
        .map(|mutant| async move { (*mutant, mutant_run(mutant, &options.peers, interrupt).await) })
        .buffer_unordered(options.jobs);
    let mut count = 0_usize;
    while let Some((mutant, caught)) = runs.next().await {
        let name = format!("{} {}", mutant.program, mutant.name);
        let report = caught.with_context(|| name.clone())?;
        for requirement in &mutant.breaks {
            let by = caught_by(&report, requirement);
            if by.is_empty() {
                print(&survives(mutant, requirement, &report))?;
                bad.push(format!("{name} survives {requirement}"));
            } else {
                print(&format!(
                    "caught    {name:<40} {requirement} by {}\n",
                    by.join(" ")
                ))?;
            }
        }
        count += 1;
    }
    print(&format!(
        "{} references, {count} mutants: {}\n",
        references.len(),
        if bad.is_empty() {
            "every reference conforms, every mutant is caught".to_owned()
        } else {
            bad.join("; ")
        }
    ))?;
    Ok(if bad.is_empty() {
        Conclusion::Conformant.exit_code()
    } else {
        Conclusion::NotConformant.exit_code()
    })
}

fn command(dir: &Path, program: &str, more: &str) -> anyhow::Result<String> {
    let path = dir.join(program);
    ensure!(
        path.is_file(),
        "{} is not there; build it: cargo build -p holdoff-peers --features mutants",
        path.display()
    );
    let path = path.display().to_string();
    let quoted = shlex::try_quote(&path).context("--peers")?;
    Ok(format!("{quoted}{more}"))
}

async fn reference_run(
    reference: &Reference,
    dir: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<RunReport> {
    let common = Common {
        filter: reference.filter.clone(),
        profile: reference.profile()?,
        ..Common::plain()
    };
    let judged = Judged::of(
        reference.mode.word(),
        At::Adapter(command(dir, &reference.program, "")?),
        &common,
    )?;
    conduct(&judged, &common, Told::Nothing, interrupt).await
}

/// What came out for a reference: one line, and below it every case that did not hold, with the reason and one command to run it
/// again.
fn told(reference: &Reference, report: &RunReport) -> String {
    let words = report.conclusion.words();
    let count = report.cases.len();
    let warned = report.cases.iter().filter(|case| case.verdict == Verdict::Warn);
    let mut text = format!(
        "reference {:<15} {:<7} {words}, {count} cases, {} warnings\n",
        reference.program,
        reference.mode.word(),
        warned.count()
    );
    let held = |case: &&CaseReport| {
        case.verdict.fails() || matches!(case.verdict, Verdict::Warn | Verdict::HarnessError)
    };
    for case in report.cases.iter().filter(held) {
        text.push_str(&format!("{} {}\n", case.verdict.word(), case.id));
        text.push_str(&render::explain(case, &report.requirements));
    }
    text
}

/// Says how to build a program that refused `--mutant`, in the words of our peers' command line.
fn knows_no_mutants(mutant: &Mutant, error: anyhow::Error) -> anyhow::Error {
    let said = format!("{error:#}");
    if said.contains("unexpected argument") && said.contains("--mutant") {
        return error.context(format!(
            "{} was built without mutants; build it: cargo build -p holdoff-peers --features mutants",
            mutant.program
        ));
    }
    error
}

/// Judges a mutant by the cases of the rules that it breaks.
async fn mutant_run(mutant: &Mutant, dir: &Path, interrupt: &Interrupt) -> anyhow::Result<RunReport> {
    let line = command(dir, &mutant.program, &format!(" --mutant {}", mutant.name))?;
    let run = async |fail_fast| {
        let common = Common {
            filter: mutant.breaks.clone(),
            fail_fast,
            seed: Some(1),
            ..Common::plain()
        };
        let judged = Judged::of(mutant.mode.word(), At::Adapter(line.clone()), &common)?;
        conduct(&judged, &common, Told::Nothing, interrupt)
            .await
            .map_err(|error| knows_no_mutants(mutant, error))
    };
    // One case of one rule is enough; of several rules each needs its own. And the first that fails may have failed otherwise.
    if mutant.breaks.len() == 1 {
        let report = run(true).await?;
        if !caught_by(&report, &mutant.breaks[0]).is_empty() {
            return Ok(report);
        }
    }
    run(false).await
}

/// The cases that found a rule broken: those that name it, did not hold, looked at something that did not hold, and do not blame
/// another rule for it.
fn caught_by<'a>(report: &'a RunReport, requirement: &str) -> Vec<&'a str> {
    let caught = report.cases.iter().filter(|case| {
        case.requirements.iter().any(|id| id == requirement)
            && matches!(case.verdict_on(requirement), Verdict::Fail | Verdict::Warn)
            && case.checks.iter().any(|check| !check.ok)
    });
    caught.map(|case| case.id.as_str()).collect()
}

/// What is said of a mutant that was not caught: what the cases of the rule said instead, and how to run them again.
fn survives(mutant: &Mutant, requirement: &str, report: &RunReport) -> String {
    let mut text = format!(
        "SURVIVES  {:<40} {requirement}: {}\n",
        format!("{} {}", mutant.program, mutant.name),
        mutant.about
    );
    let mut none = true;
    for case in &report.cases {
        if case.requirements.iter().any(|id| id == requirement) {
            none = false;
            let verdict = case.verdict.word();
            text.push_str(&format!("  {verdict:<14} {}: {}\n", case.id, case.in_short()));
            text.push_str(&format!("  run it again   {}\n", case.reproduce));
        }
    }
    if none {
        text.push_str("  no case names this requirement\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// A report of one case that names two rules of single rejects.
    fn report(verdict: Verdict, blames: &[&str], with_check: bool) -> RunReport {
        let blames: BTreeSet<&str> = blames.iter().copied().collect();
        let check = json!({"name": "rules of r", "ok": verdict == Verdict::Pass, "expected": "kept", "seen": "SRV-10 broken",
            "blames": blames});
        let case = json!({
            "id": "some-case", "title": "A title.", "requirements": ["SRV-01", "SRV-10"], "level": "MUST", "verdict": verdict,
            "scored": true, "reason": if with_check { None } else { Some("the program ended") },
            "checks": if with_check { vec![check] } else { Vec::new() },
            "timeline": [], "elapsed_ms": 1, "reproduce": "holdoff-conformance server --adapter x --filter some-case --seed 1",
        });
        let report = json!({
            "schema": crate::report::SCHEMA, "contract_version": 1, "runner": "0", "mode": "server", "target": "x", "seed": 1,
            "slack_ms": 250, "elapsed_ms": 1, "summary": {}, "conclusion": "not_conformant", "cases": [case],
            "requirements": [],
        });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn a_mutant_is_caught_by_a_case_that_finds_its_own_rule_broken_and_by_nothing_else() {
        let blaming = report(Verdict::Fail, &["SRV-10"], true);
        assert_eq!(caught_by(&blaming, "SRV-10"), ["some-case"]);
        // The case names the rule, and blames the other one.
        assert!(caught_by(&blaming, "SRV-01").is_empty());
        assert!(caught_by(&blaming, "SRV-02").is_empty());
        assert_eq!(
            caught_by(&report(Verdict::Warn, &[], true), "SRV-01"),
            ["some-case"]
        );
        for verdict in [Verdict::Pass, Verdict::Untestable, Verdict::HarnessError] {
            assert!(
                caught_by(&report(verdict, &[], true), "SRV-01").is_empty(),
                "{verdict:?}"
            );
        }
        // A program that died has broken no rule of the contract.
        assert!(caught_by(&report(Verdict::Fail, &[], false), "SRV-01").is_empty());
    }

    #[test]
    fn a_reference_that_does_not_conform_and_a_mutant_that_survives_say_why_and_how_to_run_it_again() {
        let peers = Peers::load_embedded().unwrap();
        let failed = told(&peers.references[0], &report(Verdict::Fail, &[], true));
        for part in [
            "fail some-case",
            "rules of r: expected kept, saw SRV-10 broken",
            "--filter some-case --seed 1",
        ] {
            assert!(failed.contains(part), "{part}: {failed}");
        }
        let left = survives(&peers.mutants[0], "SRV-01", &report(Verdict::Fail, &[], false));
        for part in [
            "SURVIVES",
            "some-case: the program ended",
            "--filter some-case --seed 1",
        ] {
            assert!(left.contains(part), "{part}: {left}");
        }
        assert!(
            survives(&peers.mutants[0], "CLI-01", &report(Verdict::Pass, &[], true))
                .contains("no case names")
        );
    }
}
