//! One run: the cases are loaded, played and counted, and a report comes out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, anyhow};
use clap::ValueEnum as _;

use super::progress::Progress;
use super::{Common, Judged, load};
use crate::adapter::Implementation;
use crate::baseline::Baseline;
use crate::case::CaseSet;
use crate::report::{CaseReport, RunReport};
use crate::required::Required;
use crate::run::{self, RunContext, Target};
use crate::score::{self, Scoring};
use crate::select::Selection;
use crate::vector::Vectors;
use crate::{clock, report, slack};

/// How much of a run is told while it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Each case as it ends.
    Each,
    /// Nothing: the caller tells what came out.
    Nothing,
}

/// Judges a program, and hands back the report.
pub(super) async fn conduct(judged: &Judged, common: &Common, told: Told) -> anyhow::Result<RunReport> {
    if let Some(profile) = common.profile {
        let mode = if judged.mode == "vectors" {
            "client"
        } else {
            judged.mode
        };
        anyhow::ensure!(
            profile.mode() == mode,
            "--profile {profile:?} is judged by `{}`, not by `{}`",
            profile.mode(),
            judged.mode
        );
    }
    let set = load(common.cases.as_ref())?;
    let vectors = Vectors::load_embedded(&set.requirements).map_err(|error| anyhow!(error))?;
    let seed = common.seed.unwrap_or_else(clock::fresh_seed);
    let started = clock::now();
    let slack = slack::calibrate().await.context("loopback cannot be used")?;
    let ids = ids(&set, &vectors);
    let context = RunContext::new(seed, slack).with_scoring(scoring(common, &set, &ids)?);
    let known = |filter: &&String| ids.contains(*filter) || ids.contains(&format!("vector/{filter}"));
    let selection = Selection {
        filters: common.filter.clone(),
        exact: common.filter.iter().filter(known).cloned().collect(),
        profile: common.profile,
        shard: common.shard,
        fail_fast: common.fail_fast,
        jobs: usize::from(common.jobs),
        seed,
        invocation: judged.invocation(),
    };
    let implementation = match judged.target.pool() {
        Some(pool) => Some(pool.get().await?.hello().implementation.clone()),
        None => None,
    };
    let with_vectors = matches!(judged.mode, "client" | "vectors");
    let cases = match judged.mode {
        "vectors" => 0,
        _ => run::count(&set, &judged.target, &selection),
    };
    let parsed = if with_vectors {
        run::count_vectors(&vectors, &set.requirements, &selection)
    } else {
        0
    };
    let progress = (told == Told::Each).then(|| Progress::start(cases + parsed, common.format));
    let done = |case: &CaseReport| {
        if let Some(progress) = &progress {
            progress.done(case, &set.requirements);
        }
    };
    let mut reports = Vec::new();
    if let (Target::Client(pool), true) = (&judged.target, with_vectors) {
        reports = run::run_vectors(&vectors, &set.requirements, pool, &context, &selection, done).await;
    }
    let stop = selection.fail_fast && reports.iter().any(run::failed);
    if judged.mode != "vectors" && !stop {
        reports.extend(run::run_cases(&set, &judged.target, &context, &selection, done).await);
    }
    if let Some(progress) = &progress {
        progress.finish();
    }
    judged.target.stop().await;
    let elapsed_ms = run::millis(clock::now().saturating_duration_since(started));
    Ok(assemble(
        judged,
        common,
        &set,
        &context,
        reports,
        implementation,
        elapsed_ms,
    ))
}

/// The first filter that no case of the mode matches. A run without what it asks for would say less than it seems to.
pub(super) fn misspelt(judged: &Judged, common: &Common) -> anyhow::Result<Option<String>> {
    let set = load(common.cases.as_ref())?;
    let vectors = Vectors::load_embedded(&set.requirements).map_err(|error| anyhow!(error))?;
    let unknown = |filter: &&String| {
        let alone = Selection {
            filters: vec![(*filter).clone()],
            ..Selection::default()
        };
        let cases = match judged.mode {
            "vectors" => 0,
            _ => run::count(&set, &judged.target, &alone),
        };
        let parsed = match judged.mode {
            "client" | "vectors" => run::count_vectors(&vectors, &set.requirements, &alone),
            _ => 0,
        };
        cases + parsed == 0
    };
    Ok(common.filter.iter().find(unknown).cloned())
}

/// The ids of all cases and vectors.
fn ids(set: &CaseSet, vectors: &Vectors) -> BTreeSet<String> {
    let vectors = vectors
        .vectors
        .iter()
        .map(|vector| format!("vector/{}", vector.id));
    set.cases
        .iter()
        .map(|case| case.id.clone())
        .chain(vectors)
        .collect()
}

/// What an outcome counts for in this run.
fn scoring(common: &Common, set: &CaseSet, ids: &BTreeSet<String>) -> anyhow::Result<Scoring> {
    let baseline = match &common.baseline {
        None => None,
        Some(path) => {
            let named = || format!("--baseline {}", path.display());
            let text = std::fs::read_to_string(path).with_context(named)?;
            Some(Baseline::parse(&text, ids, clock::wall()).with_context(named)?)
        }
    };
    if let Some(dir) = &common.record {
        std::fs::create_dir_all(dir).with_context(|| format!("--record {}", dir.display()))?;
    }
    Ok(Scoring {
        // Cases of one's own make no claim about the contract, so that all of them count.
        required: match common.cases {
            None => Some(Required::v1(&set.requirements)?),
            Some(_) => None,
        },
        baseline,
        record: common.record.clone(),
    })
}

fn assemble(
    judged: &Judged,
    common: &Common,
    set: &CaseSet,
    context: &RunContext,
    cases: Vec<CaseReport>,
    implementation: Option<Implementation>,
    elapsed_ms: u64,
) -> RunReport {
    let mut summary = BTreeMap::new();
    for case in &cases {
        *summary.entry(case.verdict.key().to_owned()).or_insert(0) += 1;
    }
    RunReport {
        schema: report::SCHEMA.to_owned(),
        contract_version: 1,
        runner: env!("CARGO_PKG_VERSION").to_owned(),
        mode: judged.mode.to_owned(),
        target: judged.named.clone(),
        implementation,
        profile: common
            .profile
            .and_then(|p| p.to_possible_value())
            .map(|p| p.get_name().to_owned()),
        required: context
            .scoring
            .required
            .as_ref()
            .map(|required| required.name.clone()),
        shard: common.shard.map(|shard| shard.to_string()),
        filters: common.filter.clone(),
        seed: context.seed,
        slack_ms: context.slack_ms(),
        elapsed_ms,
        summary,
        conclusion: score::conclude(&cases),
        requirements: score::by_requirement(&set.requirements, &cases, |r| judged.belongs(r, common.profile)),
        cases,
    }
}
