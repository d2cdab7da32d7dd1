//! Every table and picture of docs/SIMULATION.md, so that the page says what today's code does.
//!
//! The words of the page are a person's and stay. Its figures stand between marks, `<!-- gates: begin -->` and
//! `<!-- gates: end -->`, and are replaced.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::args::{Jobs, Out, Policy, Seeds};
use super::batch::simulate;
use super::{compare, find, held, say, verdicts};
use crate::caller::ClientKind;
use crate::controls::CONTROLS;
use crate::door::Admission;
use crate::gates::{self, Verdict};
use crate::metrics::Report;
use crate::scenario::{self, GATED, Scenario};
use crate::{Setup, clock, plot, present};

/// A part of the page: its mark, and what makes it.
type Part = (&'static str, fn(Seeds, Jobs) -> anyhow::Result<String>);

const PARTS: [Part; 5] = [
    ("speed", speed),
    ("gates", gates_held),
    ("controls", controls),
    ("compare", ranked),
    ("beyond", beyond),
];

/// What can be made: the parts, and the pictures beside the page.
pub(super) const NAMES: [&str; 6] = ["speed", "gates", "controls", "compare", "beyond", PICTURES];
const PICTURES: &str = "pictures";

/// Scenarios whose first seed is drawn.
const DRAWN: [&str; 4] = ["a5", "b10", "d", "e"];
/// Scenarios in which policies are ranked.
const RANKED: [&str; 5] = ["a5", "b10", "d", "storm", "storm-stall"];
/// Scenarios that the speed is measured on, and how often; an unoptimised build is slow, and its speed says nothing.
const TIMED: [&str; 2] = ["a5", "a10"];
const TIMES: usize = if cfg!(debug_assertions) { 1 } else { 5 };

/// Makes the parts named in `only`, all where it is empty; into the document, or printed.
///
/// # Errors
/// Before anything is simulated: when the document cannot be read or lacks a mark. Later: when a file cannot be written.
pub(super) fn make(document: Option<&Path>, only: &[String], seeds: Seeds, jobs: Jobs) -> anyhow::Result<()> {
    let wanted = |name: &str| only.is_empty() || only.iter().any(|chosen| chosen == name);
    let parts: Vec<Part> = PARTS.into_iter().filter(|(name, _)| wanted(name)).collect();
    let Some(path) = document else {
        for (name, part) in parts {
            say(format!("{name}\n\n{}", part(seeds, jobs)?));
        }
        return Ok(());
    };
    let named = || path.display().to_string();
    let mut text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", named()))?;
    for (name, _) in &parts {
        replaced(&text, name, "").with_context(named)?;
    }
    for (name, part) in parts {
        text = replaced(&text, name, &part(seeds, jobs)?).with_context(named)?;
        // After each part, so that what is interrupted keeps what it finished.
        std::fs::write(path, &text).with_context(|| format!("{} cannot be written", named()))?;
    }
    if wanted(PICTURES) {
        pictures(path, seeds)?;
    }
    Ok(())
}

/// The document with this between the marks of a part.
fn replaced(text: &str, name: &str, part: &str) -> anyhow::Result<String> {
    let (begin, end) = (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"));
    let Some((head, rest)) = text.split_once(&begin) else {
        bail!("there is no {begin:?}");
    };
    let Some((_, tail)) = rest.split_once(&end) else {
        bail!("there is no {end:?} after {begin:?}");
    };
    Ok(format!("{head}{begin}\n{}\n{end}{tail}", part.trim_end()))
}

/// The folder beside the page, named as the page is.
fn pictures(page: &Path, seeds: Seeds) -> anyhow::Result<()> {
    let name = page
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let dir = page.with_file_name(format!("{name}-results"));
    std::fs::create_dir_all(&dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    for name in DRAWN {
        let run = crate::run(&Setup::product(find(name)?, seeds.first_seed), clock::now())?;
        plot::write(&dir.join(format!("{name}.svg")), &run, &run.report())?;
    }
    Ok(())
}

fn over(seeds: Seeds) -> String {
    let last = seeds.first_seed + seeds.seeds - 1;
    format!("Seeds {} to {last}, n = {}.", seeds.first_seed, seeds.seeds)
}

fn speed(seeds: Seeds, _: Jobs) -> anyhow::Result<String> {
    let mut table = present::table_of([
        "one run, one core",
        "calls",
        "simulated s",
        "processor s",
        "s for 100 000",
    ]);
    for name in TIMED {
        let setup = Setup::product(find(name)?, seeds.first_seed);
        let (mut calls, mut took) = (0, Vec::with_capacity(TIMES));
        for _ in 0..TIMES {
            let begun = clock::thread_cpu();
            calls = crate::run(&setup, clock::now())?.calls.len();
            took.push(clock::thread_cpu().saturating_sub(begun));
        }
        took.sort_unstable();
        let seconds = |at: usize| took.get(at).map_or(0.0, Duration::as_secs_f64);
        let median = seconds(TIMES / 2);
        table.add_row([
            name.to_owned(),
            calls.to_string(),
            format!("{:.0}", crate::time::as_seconds(setup.scenario.horizon())),
            format!("{median:.2} ({:.2} to {:.2})", seconds(0), seconds(TIMES - 1)),
            format!("{:.2}", median * 1e5 / calls as f64),
        ]);
    }
    Ok(format!(
        "n = {TIMES}, median, least and greatest; {} build.\n\n{table}",
        if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        }
    ))
}

fn gates_held(seeds: Seeds, jobs: Jobs) -> anyhow::Result<String> {
    let verdicts = verdicts(&[], seeds, Policy::PRODUCT, &Out::default(), jobs)?;
    let mut part = format!("{}. `!` fails.\n", held(&verdicts, seeds));
    for table in present::verdicts(&verdicts) {
        let _ = write!(part, "\n{table}\n");
    }
    Ok(part)
}

/// The gates of the ten scenarios that a control fails and the product holds.
fn controls(seeds: Seeds, jobs: Jobs) -> anyhow::Result<String> {
    let all: Vec<_> = gates::all().into_iter().filter(|gate| gate.of_table).collect();
    let failed = |judged: &Setup| -> anyhow::Result<Vec<Verdict>> {
        let cases = gates::cases(&all);
        let setups: Vec<Setup> = cases
            .iter()
            .flat_map(|case| seeds.all().filter_map(|seed| case.setup(judged, seed)))
            .collect();
        let reports = simulate(&setups, &Out::default(), false, jobs)?;
        let by_case = cases.iter().zip(reports.chunks(seeds.each()));
        let verdicts = by_case.flat_map(|(case, reports)| gates::judge(&all, *case, reports));
        Ok(verdicts.filter(|verdict| !verdict.passes()).collect())
    };
    let product = Setup::product(find(GATED[0])?, seeds.first_seed);
    let open = failed(&product)?;
    let is_open = |verdict: &Verdict| open.iter().any(|known| known.gate == verdict.gate);
    let mut table = present::table_of([
        "control",
        "gates that it fails and the product holds",
        "most telling",
    ]);
    for control in CONTROLS {
        let caught = failed(&control.setup(product.clone()))?;
        let caught: Vec<&Verdict> = caught.iter().filter(|verdict| !is_open(verdict)).collect();
        let telling = caught
            .iter()
            .find(|v| v.gate.figure == control.figure && v.gate.case.scenario == control.scenario);
        let telling = telling.map_or_else(
            || format!("NOT CAUGHT by {} in {}", control.figure, control.scenario),
            |v| {
                let (name, gate) = (v.gate.figure, &v.gate);
                let measured = present::figure(name, v.median);
                format!(
                    "{} {name} {measured}, gate {} {}",
                    gate.case.scenario,
                    gate.side.sign(),
                    gate.limit
                )
            },
        );
        table.add_row([control.name.to_owned(), caught.len().to_string(), telling]);
    }
    Ok(format!("{} Of {} gates.\n\n{table}", over(seeds), all.len()))
}

fn ranked(seeds: Seeds, jobs: Jobs) -> anyhow::Result<String> {
    let scenarios: Vec<Scenario> = RANKED.iter().filter_map(|name| Scenario::named(name)).collect();
    let mut part = format!("{} Median. Rows are admission / hint / callers.\n", over(seeds));
    for (_, table) in compare(&scenarios, seeds, &Out::default(), jobs)? {
        let _ = write!(part, "\n{table}\n");
    }
    Ok(part)
}

/// The scenarios without gates, beside those with that they vary.
fn beyond(seeds: Seeds, jobs: Jobs) -> anyhow::Result<String> {
    let product = Policy::PRODUCT;
    let no_edge = Policy {
        admission: Admission::NoEdge,
        ..product
    };
    let with = |clients| Policy { clients, ..product };
    let plain = |name: &str| Ok::<_, anyhow::Error>((name.to_owned(), find(name)?, product));
    let mut rows = vec![plain("a2")?, plain("a5")?, plain("d")?];
    for scenario in scenario::beyond() {
        rows.push((scenario.name.to_owned(), scenario, product));
    }
    rows.push(("hammer, no edge".to_owned(), find("hammer")?, no_edge));
    for name in ["a5", "d", "fleet", "gateway-room", "gateway-d"] {
        let policy = with(ClientKind::NoHoldOff);
        rows.push((format!("{name}, no hold-offs"), find(name)?, policy));
    }
    for name in ["a5", "b", "b10", "f5"] {
        rows.push((
            format!("{name}, legacy callers"),
            find(name)?,
            with(ClientKind::Legacy),
        ));
    }
    let setups: Vec<Setup> = rows
        .iter()
        .flat_map(|(_, scenario, policy)| policy.over(scenario, seeds))
        .collect();
    let reports = simulate(&setups, &Out::default(), false, jobs)?;
    let named = rows.iter().map(|(name, ..)| name.as_str());
    let rows: Vec<(&str, &[Report])> = named.zip(reports.chunks(seeds.each())).collect();
    Ok(format!(
        "{} Median (least to greatest).\n\n{}",
        over(seeds),
        present::spreads(&rows)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_and_the_pictures_can_be_asked_for_by_name() {
        let parts = PARTS.iter().map(|(name, _)| *name);
        assert!(parts.chain([PICTURES]).eq(NAMES));
    }

    #[test]
    fn only_what_stands_between_the_marks_of_a_part_is_replaced() {
        let page =
            "# Title\n<!-- a: begin -->\nold\n<!-- a: end -->\nwords\n<!-- b: begin --><!-- b: end -->\n";
        let once = replaced(page, "a", "new\n\n").unwrap();
        assert_eq!(once, page.replace("old", "new"));
        assert_eq!(replaced(&once, "a", "new").unwrap(), once);
        let error = |text: &str| replaced(text, "a", "").unwrap_err().to_string();
        assert_eq!(error("none"), r#"there is no "<!-- a: begin -->""#);
        let turned = "<!-- a: end --><!-- a: begin -->";
        assert!(error(turned).starts_with(r#"there is no "<!-- a: end -->" after"#));
    }
}
