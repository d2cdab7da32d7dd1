//! `self`: the suite shows that it sees.
//!
//! A suite that passes good programs proves nothing as long as nobody has watched it fail bad ones. So our own peers
//! are judged (each must conform), and then every mutant, a peer that breaks one rule: a case of that rule must fail.
//! What is to be run is data, `conformance/peers/peers.toml`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;
use futures_util::StreamExt as _;

use super::conduct::{Told, conduct};
use super::{At, Common, Interrupt, Judged, check, print};
use crate::peers::{Mutant, Peers, Reference};
use crate::report::{Conclusion, RunReport};
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
        let warned = report
            .cases
            .iter()
            .filter(|case| case.verdict == Verdict::Warn)
            .count();
        print(&format!(
            "reference {:<15} {:<7} {words}, {} cases, {warned} warnings\n",
            reference.program,
            reference.mode.word(),
            report.cases.len()
        ))?;
        if report.conclusion != Conclusion::Conformant {
            bad.push(format!("{}: {words}", reference.program));
        }
    }
    let mut runs = futures_util::stream::iter(&mutants)
        .map(|mutant| async move { (*mutant, caught(mutant, &options.peers, interrupt).await) })
        .buffer_unordered(options.jobs);
    let mut count = 0_usize;
    while let Some((mutant, caught)) = runs.next().await {
        let name = format!("{} {}", mutant.program, mutant.name);
        for (requirement, by) in caught.with_context(|| name.clone())? {
            match by.first() {
                Some(_) => print(&format!(
                    "caught    {name:<40} {requirement} by {}\n",
                    by.join(" ")
                ))?,
                None => {
                    print(&format!("SURVIVES  {name:<40} {requirement}: {}\n", mutant.about))?;
                    bad.push(format!("{name} survives {requirement}"));
                }
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

/// The cases that caught a mutant, for each requirement that it breaks.
async fn caught(
    mutant: &Mutant,
    dir: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let common = Common {
        filter: mutant.breaks.clone(),
        // One case of one rule is enough; of several rules each needs its own.
        fail_fast: mutant.breaks.len() == 1,
        seed: Some(1),
        ..Common::plain()
    };
    let line = command(dir, &mutant.program, &format!(" --mutant {}", mutant.name))?;
    let judged = Judged::of(mutant.mode.word(), At::Adapter(line), &common)?;
    let report = conduct(&judged, &common, Told::Nothing, interrupt).await;
    let report = report.map_err(|error| {
        // What our peers' command line says where `--mutant` is not compiled in.
        let said = format!("{error:#}");
        match said.contains("unexpected argument") && said.contains("--mutant") {
            true => error.context(format!(
                "{} was built without mutants; build it: cargo build -p holdoff-peers --features mutants",
                mutant.program
            )),
            false => error,
        }
    })?;
    let by = |requirement: &String| {
        let failed = report.cases.iter().filter(|case| {
            case.requirements.contains(requirement) && matches!(case.verdict, Verdict::Fail | Verdict::Warn)
        });
        (requirement.clone(), failed.map(|case| case.id.clone()).collect())
    };
    Ok(mutant.breaks.iter().map(by).collect())
}
