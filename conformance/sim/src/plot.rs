//! One picture of a run: what was done in time, who came and who asked, who was served, how old the queue was, what state
//! admission was in.
//!
//! Figures say whether a gate holds; only a picture shows when it went wrong. All panels share the time axis, and the
//! disturbance is shaded through all of them.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use holdoff_contract::{ServiceState, Tier};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::bound::schedule;
use crate::metrics::{Report, job};
use crate::record::{CallRecord, Run};
use crate::series::{BIN, Bin};
use crate::time::{Nanos, SECOND, as_seconds};
use crate::workers::supply;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

const SIZE: (u32, u32) = (1000, 960);
/// Where the title ends, and where each panel ends below it.
const HEAD: u32 = 84;
const PANELS: [i32; 4] = [230, 450, 640, 790];
const INK: RGBColor = RGBColor(38, 50, 56);
const QUIET: RGBColor = RGBColor(120, 134, 142);
const GRID: RGBColor = RGBColor(230, 234, 236);
const SHADE: RGBColor = RGBColor(255, 243, 224);
const EDGE: RGBColor = RGBColor(255, 183, 77);
const GOOD: RGBColor = RGBColor(0, 121, 107);
const WASTE: RGBColor = RGBColor(216, 67, 21);
const FIRST: RGBColor = RGBColor(21, 101, 192);
const AGAIN: RGBColor = RGBColor(239, 108, 0);
const ARRIVALS: RGBColor = RGBColor(158, 158, 158);
const AGE: RGBColor = RGBColor(106, 27, 154);
/// Critical, non-sheddable, deferrable.
const TIERS: [RGBColor; 3] = [
    RGBColor(194, 24, 91),
    RGBColor(21, 101, 192),
    RGBColor(120, 144, 156),
];
const FONT: &str = "Helvetica, Arial, sans-serif";
/// Bins of 100 ms that are drawn as one point.
const SMOOTH: usize = 5;
/// Time after the last arrival that is drawn: nothing new happens there but late returns.
const TAIL: Nanos = 5 * SECOND;

fn color(state: ServiceState) -> RGBColor {
    match state {
        ServiceState::Normal => RGBColor(165, 214, 167),
        ServiceState::Congested => RGBColor(255, 213, 79),
        ServiceState::Shedding => RGBColor(229, 115, 115),
        ServiceState::Recovering => RGBColor(129, 212, 250),
    }
}

/// Writes the picture of a run.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write(path: &Path, run: &Run, report: &Report) -> anyhow::Result<()> {
    let mut text = String::new();
    draw(&mut text, run, report).map_err(|error| anyhow!("the plot cannot be drawn: {error}"))?;
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(text: &mut String, run: &Run, report: &Report) -> Drawn {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (head, body) = root.split_vertically(HEAD);
    title(&head, run, report)?;
    let panels = body.split_by_breakpoints([] as [i32; 0], PANELS);
    work(&panels[0], run)?;
    attempts(&panels[1], run)?;
    served(&panels[2], run)?;
    age(&panels[3], run)?;
    state(&panels[4], run)?;
    root.present()?;
    Ok(())
}

fn title(area: &Area<'_>, run: &Run, report: &Report) -> Drawn {
    let scenario = &run.setup.scenario;
    let large = (FONT, 24).into_font().color(&INK);
    let small = (FONT, 14).into_font().color(&QUIET);
    let name = format!("{}: {}", scenario.name, scenario.about);
    area.draw_text(&name, &large, (24, 18))?;
    let figures = format!(
        "goodput {:.3} of the clairvoyant bound, {:.2} attempts a call, critical success {:.3}, false accepts {:.4}",
        report.goodput, report.attempts, report.critical, report.false_accepts
    );
    area.draw_text(&figures, &small, (24, 50))?;
    let setup = format!(
        "admission {}, hints {}, callers {}, seed {}, {} calls",
        report.admission, report.hint, report.clients, report.seed, report.calls
    );
    area.draw_text(&setup, &small, (24, 68))?;
    Ok(())
}

fn end(run: &Run) -> f64 {
    as_seconds(run.setup.scenario.horizon() + TAIL)
}

/// The frame of a panel: shading, grid, heading.
fn panel<'a, 'b>(
    area: &'b Area<'a>,
    run: &Run,
    heading: &str,
    most: f64,
) -> Result<Chart<'a, 'b>, Box<dyn std::error::Error>> {
    area.draw_text(heading, &(FONT, 15).into_font().color(&INK), (24, 10))?;
    let most = if most > 0.0 { most * 1.08 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .margin_top(34)
        .margin_right(24)
        .x_label_area_size(22)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end(run), 0.0..most)?;
    let (from, to) = (
        as_seconds(run.setup.scenario.quiet),
        as_seconds(run.setup.scenario.calm()),
    );
    chart.draw_series([Rectangle::new([(from, 0.0), (to, most)], SHADE.filled())])?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(QUIET)
        .x_labels(10)
        .y_labels(4)
        .label_style((FONT, 12).into_font().color(&QUIET))
        .x_label_formatter(&|s| format!("{s:.0} s"))
        .y_label_formatter(&|y| number(*y))
        .draw()?;
    Ok(chart)
}

fn number(y: f64) -> String {
    if y >= 10_000.0 {
        format!("{:.0}k", y / 1_000.0)
    } else if y.fract() == 0.0 {
        format!("{y:.0}")
    } else {
        format!("{y:.1}")
    }
}

/// Width of a letter of a legend, with some to spare: the reader's font is not known.
const LETTER: i32 = 7;

/// Words with their colors, at the right of the heading: each color just before its word.
fn legend(area: &Area<'_>, entries: &[(&str, RGBColor)]) -> Drawn {
    let width = |word: &str| word.len() as i32 * LETTER + 34;
    let mut x = SIZE.0 as i32 - 8 - entries.iter().map(|(word, _)| width(word)).sum::<i32>();
    let anchored = (FONT, 13)
        .into_font()
        .color(&INK)
        .pos(Pos::new(HPos::Left, VPos::Top));
    for (word, color) in entries {
        area.draw(&Rectangle::new([(x, 13), (x + 10, 23)], color.filled()))?;
        area.draw_text(word, &anchored, (x + 16, 12))?;
        x += width(word);
    }
    Ok(())
}

/// Where the disturbance begins and ends, above what was drawn.
fn borders(chart: &mut Chart<'_, '_>, run: &Run) -> Drawn {
    let scenario = &run.setup.scenario;
    let most = chart.y_range().end;
    for at in [scenario.quiet, scenario.calm()].map(as_seconds) {
        let line = PathElement::new([(at, 0.0), (at, most)], EDGE.stroke_width(1));
        chart.draw_series([line])?;
    }
    Ok(())
}

/// Something over time: points of half a second.
type Curve = Vec<(f64, f64)>;

fn curve(bins: &[Bin], of: impl Fn(&[Bin]) -> f64) -> Curve {
    let step = as_seconds(BIN) * SMOOTH as f64;
    let middle = |(n, bins): (usize, &[Bin])| ((n as f64 + 0.5) * step, of(bins));
    bins.chunks(SMOOTH).enumerate().map(middle).collect()
}

fn drawn(run: &Run) -> &[Bin] {
    let bins = run.series.bins();
    let most = ((run.setup.scenario.horizon() + TAIL) / BIN) as usize;
    &bins[..bins.len().min(most)]
}

fn peak(curve: &Curve) -> f64 {
    curve.iter().map(|(_, y)| *y).fold(0.0, f64::max)
}

/// Work done between instants, as workers over time.
struct Rate {
    step: Nanos,
    work: Vec<f64>,
}

impl Rate {
    fn new(run: &Run) -> Self {
        let step = BIN * SMOOTH as Nanos;
        let bins = (run.setup.scenario.horizon() + TAIL) / step;
        Self {
            step,
            work: vec![0.0; bins as usize],
        }
    }

    fn add(&mut self, from: Nanos, to: Nanos, work: f64) {
        let pace = work / (to - from).max(1) as f64;
        let mut at = from;
        while at < to {
            let bin = (at / self.step) as usize;
            let until = ((bin as Nanos + 1) * self.step).min(to);
            if let Some(sum) = self.work.get_mut(bin) {
                *sum += pace * (until - at) as f64;
            }
            at = until;
        }
    }

    fn curve(&self) -> Curve {
        let step = as_seconds(self.step);
        let point = |(n, work): (usize, &f64)| ((n as f64 + 0.5) * step, work / self.step as f64);
        self.work.iter().enumerate().map(point).collect()
    }
}

fn work(area: &Area<'_>, run: &Run) -> Drawn {
    let (mut kept, mut all, mut bound) = (Rate::new(run), Rate::new(run), Rate::new(run));
    for span in &run.spans {
        all.add(span.from, span.to, span.need as f64);
        if span.kept {
            kept.add(span.from, span.to, span.need as f64);
        }
    }
    let jobs: Vec<_> = run.calls.iter().map(job).collect();
    schedule(&jobs, &supply(&run.setup.scenario), |from, to, work| {
        bound.add(from, to, work);
    });
    let most = f64::from(run.setup.scenario.capacity());
    let mut chart = panel(area, run, "Workers busy", most)?;
    chart.draw_series(AreaSeries::new(all.curve(), 0.0, WASTE.filled()))?;
    chart.draw_series(AreaSeries::new(kept.curve(), 0.0, GOOD.filled()))?;
    chart.draw_series(LineSeries::new(bound.curve(), INK.stroke_width(1)))?;
    borders(&mut chart, run)?;
    legend(
        area,
        &[("in time", GOOD), ("wasted", WASTE), ("clairvoyant bound", INK)],
    )
}

fn attempts(area: &Area<'_>, run: &Run) -> Drawn {
    let seconds = as_seconds(BIN);
    let rate = |bins: &[Bin], of: fn(&Bin) -> u32| {
        let sum: u32 = bins.iter().map(of).sum();
        f64::from(sum) / (bins.len() as f64 * seconds)
    };
    let first = curve(drawn(run), |bins| rate(bins, |bin| bin.first));
    let again = curve(drawn(run), |bins| rate(bins, |bin| bin.again));
    let arrivals = by_arrival(run, |_| true, |came, _| came / (seconds * SMOOTH as f64));
    let most = [&first, &again, &arrivals]
        .map(peak)
        .into_iter()
        .fold(0.0, f64::max);
    let mut chart = panel(area, run, "Calls and attempts a second", most)?;
    chart.draw_series(
        AreaSeries::new(first, 0.0, FIRST.mix(0.18).filled()).border_style(FIRST.stroke_width(2)),
    )?;
    chart.draw_series(LineSeries::new(again, AGAIN.stroke_width(2)))?;
    chart.draw_series(LineSeries::new(arrivals, ARRIVALS.stroke_width(1)))?;
    borders(&mut chart, run)?;
    legend(
        area,
        &[
            ("calls that begin", ARRIVALS),
            ("first attempts", FIRST),
            ("retries", AGAIN),
        ],
    )
}

/// What became of the calls of each half second that `counts` picks: of how many came and how many were served.
fn by_arrival(run: &Run, counts: impl Fn(&CallRecord) -> bool, of: impl Fn(f64, f64) -> f64) -> Curve {
    let step = BIN * SMOOTH as Nanos;
    let points = run.setup.scenario.horizon() / step;
    let mut bins = vec![(0_u32, 0_u32); points as usize];
    for call in run.calls.iter().filter(|call| counts(call)) {
        if let Some((came, good)) = bins.get_mut((call.arrival.at / step) as usize) {
            *came += 1;
            *good += u32::from(call.served.is_some());
        }
    }
    let point = |(n, (came, good)): (usize, &(u32, u32))| {
        let at = (n as f64 + 0.5) * as_seconds(step);
        (at, of(f64::from(*came), f64::from(*good)))
    };
    bins.iter().enumerate().map(point).collect()
}

fn served(area: &Area<'_>, run: &Run) -> Drawn {
    let mut chart = panel(area, run, "Served in time, % of the calls that began then", 100.0)?;
    // The most important on top.
    for tier in Tier::ALL.iter().copied().rev() {
        let color = TIERS[tier.index()];
        let of_tier = |call: &CallRecord| call.arrival.tier == tier;
        let share = by_arrival(run, of_tier, |came, good| 100.0 * good / came);
        // Nobody came: nothing to say.
        let share = share.into_iter().filter(|(_, y)| y.is_finite());
        chart.draw_series(LineSeries::new(share, color.stroke_width(2)))?;
    }
    borders(&mut chart, run)?;
    let named = |tier: Tier| (tier.as_str(), TIERS[tier.index()]);
    legend(area, &Tier::ALL.iter().copied().map(named).collect::<Vec<_>>())
}

fn age(area: &Area<'_>, run: &Run) -> Drawn {
    let oldest = |bins: &[Bin]| bins.iter().map(|bin| as_seconds(bin.oldest)).fold(0.0, f64::max);
    let ages = curve(drawn(run), oldest);
    let mut chart = panel(area, run, "Oldest in the queue, seconds", peak(&ages))?;
    chart
        .draw_series(AreaSeries::new(ages, 0.0, AGE.mix(0.18).filled()).border_style(AGE.stroke_width(2)))?;
    borders(&mut chart, run)
}

fn state(area: &Area<'_>, run: &Run) -> Drawn {
    let seconds = as_seconds(BIN);
    area.draw_text(
        "State of admission",
        &(FONT, 15).into_font().color(&INK),
        (24, 10),
    )?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(34)
        .margin_right(24)
        .margin_bottom(22)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end(run), 0.0..1.0)?;
    // One rectangle for each stretch of the same state.
    let bins = drawn(run);
    let mut from = 0;
    while from < bins.len() {
        let same = bins[from..]
            .iter()
            .take_while(|bin| bin.state == bins[from].state)
            .count();
        let (left, right) = (from as f64 * seconds, (from + same) as f64 * seconds);
        let stretch = Rectangle::new([(left, 0.0), (right, 1.0)], color(bins[from].state).filled());
        chart.draw_series([stretch])?;
        from += same;
    }
    let named = |state: ServiceState| (state.as_str(), color(state));
    legend(
        area,
        &ServiceState::ALL.iter().copied().map(named).collect::<Vec<_>>(),
    )
}
