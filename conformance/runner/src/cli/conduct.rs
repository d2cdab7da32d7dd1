//! One run: the cases are loaded, played and counted, and a report comes out.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, anyhow};

use super::progress::Progress;
use super::{Common, Interrupt, Judged, load, say};
use crate::adapter::Implementation;
use crate::baseline::Baseline;
use crate::case::CaseSet;
use crate::report::{CaseReport, Conclusion, Interrupted, RunReport};
use crate::required::Required;
use crate::requirement::Requirement;
use crate::run::{self, RunContext, Target};
use crate::score::{self, Scoring};
use crate::select::{Selection, VECTOR};
use crate::vector::Vectors;
use crate::{capability, clock, input, report, slack};

/// How much of a run is told while it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Each case as it ends.
    Each,
    /// Nothing: the caller tells what came out.
    Nothing,
}

/// Judges a program, and hands back the report: of the whole run, or of what was judged when it was interrupted.
pub(super) async fn conduct(
    judged: &Judged,
    common: &Common,
    told: Told,
    interrupt: &Interrupt,
) -> anyhow::Result<RunReport> {
    if let Some(profile) = common.profile {
        let mode = if judged.mode == "vectors" {
            "client"
        } else {
            judged.mode
        };
        anyhow::ensure!(
            profile.mode() == mode,
            "--profile {profile} is judged by `{}`, not by `{}`",
            profile.mode(),
            judged.mode
        );
    }
    anyhow::ensure!(
        judged.mode != "vectors" || common.cases.is_none(),
        "--cases: `vectors` judges the built-in hint vectors alone, and a directory of cases has none"
    );
    let set = load(common.cases.as_ref())?;
    let vectors = Vectors::load_embedded(&set.requirements).map_err(|error| anyhow!(error))?;
    let seed = common.seed.unwrap_or_else(clock::fresh_seed);
    let started = clock::now();
    let slack = slack::calibrate().await.context("loopback cannot be used")?;
    let ids = ids(&set, &vectors);
    let context = RunContext::new(seed, slack).with_scoring(scoring(common, &set, &ids)?);
    let known = |filter: &&String| ids.contains(*filter) || ids.contains(&format!("{VECTOR}{filter}"));
    let selection = Selection {
        filters: common.filter.clone(),
        exact: common.filter.iter().filter(known).cloned().collect(),
        profile: common.profile,
        shard: common.shard,
        fail_fast: common.fail_fast,
        jobs: common.jobs,
        seed,
        invocation: judged.invocation(),
    };
    let hello = match judged.target.pool() {
        // A program may be compiled first, so that this may take long.
        Some(pool) => match interrupt.unless(pool.get()).await {
            Ok(adapter) => Some(adapter?.hello().clone()),
            Err(_) => None,
        },
        None => None,
    };
    let declared = hello.as_ref().map_or(&[][..], |hello| &hello.capabilities);
    let warnings = capability::warnings(declared, &known_capabilities(common, &set)?);
    if told == Told::Each {
        for warning in &warnings {
            say(
                &mut std::io::stderr(),
                &format!("holdoff-conformance: warning: {warning}\n"),
            );
        }
    }
    let with_vectors = with_vectors(judged, common);
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
    let reports = RefCell::new(Vec::new());
    let done = |case: &CaseReport| {
        reports.borrow_mut().push(case.clone());
        if let Some(progress) = &progress {
            progress.done(case, &set.requirements);
        }
    };
    let play = async {
        if let (Target::Client(pool), true) = (&judged.target, with_vectors) {
            run::run_vectors(&vectors, &set.requirements, pool, &context, &selection, done).await;
        }
        let stop = selection.fail_fast && reports.borrow().iter().any(run::failed);
        if judged.mode != "vectors" && !stop {
            run::run_cases(&set, &judged.target, &context, &selection, done).await;
        }
    };
    let stopped = interrupt.unless(play).await.err();
    if let Some(progress) = &progress {
        progress.finish();
    }
    match stopped {
        None => judged.target.stop().await,
        Some(_) => judged.target.kill().await,
    }
    let elapsed_ms = run::millis(clock::now().saturating_duration_since(started));
    let mut report = assemble(
        judged,
        common,
        &set,
        &context,
        reports.into_inner(),
        hello.map(|hello| hello.implementation),
        elapsed_ms,
    );
    report.warnings.splice(0..0, warnings);
    let judged_by_then = report.cases.len();
    if let Some(by) = stopped {
        report.interrupted = Some(Interrupted {
            by,
            selected: cases + parsed,
        });
        report.conclusion = Conclusion::Interrupted;
    } else {
        report.left_out = (cases + parsed).saturating_sub(judged_by_then);
    }
    Ok(report)
}

/// Whether the hint vectors are among the cases: they are built in, and go with the built-in cases.
fn with_vectors(judged: &Judged, common: &Common) -> bool {
    matches!(judged.mode, "client" | "vectors") && common.cases.is_none()
}

/// What a program may declare: words of the built-in cases, and of one's own.
fn known_capabilities(common: &Common, set: &CaseSet) -> anyhow::Result<BTreeSet<String>> {
    let mut known = capability::known(set);
    if common.cases.is_some() {
        known.extend(capability::known(&load(None)?));
    }
    Ok(known)
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
        let parsed = if with_vectors(judged, common) {
            run::count_vectors(&vectors, &set.requirements, &alone)
        } else {
            0
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
        .map(|vector| format!("{VECTOR}{}", vector.id));
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
            let text = input::text(path, input::MAX_WRITTEN).with_context(named)?;
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
    let belongs = |requirement: &Requirement| judged.belongs(requirement, common.profile);
    let mut requirements = score::by_requirement(&set.requirements, &cases, belongs);
    if common.profile.is_some() {
        requirements = score::of_the_claim(requirements, &set.requirements, belongs);
    }
    RunReport {
        schema: report::SCHEMA.to_owned(),
        contract_version: 1,
        runner: env!("CARGO_PKG_VERSION").to_owned(),
        mode: judged.mode.to_owned(),
        target: judged.named.clone(),
        implementation,
        profile: common.profile.map(|profile| profile.to_string()),
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
        interrupted: None,
        left_out: 0,
        warnings: judged.target.bad_ends(),
        summary,
        conclusion: score::conclude(&cases),
        requirements,
        cases,
    }
}
