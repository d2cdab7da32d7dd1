//! Plots as SVG, by hand: a few bars and lines need no library. Colours hold on a white and on a dark page.

use std::fmt::Write;

use super::Results;
use crate::calls::Shape;
use crate::serve;
use crate::storm::{OURS, Storm, Trouble};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 300.0;
const BAR: f64 = 20.0;
const OURS_COLOUR: &str = "#2f9e44";
const OTHER_COLOURS: [&str; 3] = ["#e8590c", "#868e96", "#1971c2"];
const GREY: &str = "#868e96";

/// Writing into a string does not fail.
macro_rules! put {
    ($svg:expr, $($text:tt)*) => {
        let _ = writeln!($svg, $($text)*);
    };
}

/// A bar with its spread.
struct Bar {
    label: String,
    value: f64,
    between: (f64, f64),
    ours: bool,
}

/// Every plot that there are figures for.
pub(super) fn all(results: &Results) -> Vec<(&'static str, String)> {
    let mut plots = Vec::new();
    let calls: Vec<Bar> = results
        .calls
        .iter()
        .flat_map(|calls| {
            let shape = match calls.shape {
                Shape::Get => "GET",
                Shape::Post => "POST",
            };
            calls.clients.iter().skip(1).map(move |client| Bar {
                label: format!("{shape}: {}", client.name),
                value: client.p50_ratio.median,
                between: (client.p50_ratio.q1, client.p50_ratio.q3),
                ours: client.name.contains("holdoff"),
            })
        })
        .collect();
    if !calls.is_empty() {
        plots.push((
            "calls.svg",
            bars("p50 of a call, plain reqwest = 1 (line: quartiles)", &calls),
        ));
    }
    let rates: Vec<Bar> = results
        .throughput
        .iter()
        .chain(&results.refusals)
        .flat_map(|rates| {
            let shape = match rates.shape {
                serve::Shape::Get => "GET",
                serve::Shape::GetWithFields => "GET + fields",
                serve::Shape::Post => "POST",
                serve::Shape::Work => "GET, 100 us",
            };
            rates.servers.iter().skip(1).map(move |server| Bar {
                label: format!("{shape}: {}", server.name),
                value: server.rate_ratio.median,
                between: (server.rate_ratio.q1, server.rate_ratio.q3),
                ours: server.name == serve::OURS || server.name == serve::REFUSED,
            })
        })
        .collect();
    if !rates.is_empty() {
        plots.push((
            "rates.svg",
            bars(
                "requests/s; bare axum = 1, refused: served = 1 (line: quartiles)",
                &rates,
            ),
        ));
    }
    for storm in &results.storms {
        let name = match storm.trouble {
            Trouble::Overload => "overload.svg",
            Trouble::Stall => "stall.svg",
        };
        plots.push((name, lines(storm)));
    }
    plots
}

fn open(title: &str, height: f64) -> String {
    let mut svg = String::new();
    put!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="{GREY}">"#
    );
    put!(
        svg,
        r#"<text x="8" y="18" font-size="14">{}</text>"#,
        escape(title)
    );
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn bars(title: &str, bars: &[Bar]) -> String {
    let greatest = bars.iter().map(|bar| bar.between.1).fold(1.0, f64::max);
    let x = |value: f64| LEFT + (WIDTH - LEFT - 70.0) * value / greatest;
    let height = 40.0 + bars.len() as f64 * (BAR + 6.0);
    let mut svg = open(title, height);
    for (index, bar) in bars.iter().enumerate() {
        let y = 30.0 + index as f64 * (BAR + 6.0);
        let middle = y + BAR / 2.0;
        let colour = if bar.ours { OURS_COLOUR } else { GREY };
        put!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            LEFT - 8.0,
            middle + 4.0,
            escape(&bar.label)
        );
        put!(
            svg,
            r#"<rect x="{LEFT}" y="{y:.1}" width="{:.1}" height="{BAR}" fill="{colour}" fill-opacity="0.75"/>"#,
            x(bar.value) - LEFT
        );
        put!(
            svg,
            r#"<path d="M{:.1} {middle:.1}H{:.1}" stroke="{GREY}" stroke-width="2"/>"#,
            x(bar.between.0),
            x(bar.between.1)
        );
        put!(
            svg,
            r#"<text x="{:.1}" y="{:.1}">{:.3}</text>"#,
            x(bar.value.max(bar.between.1)) + 6.0,
            middle + 4.0,
            bar.value
        );
    }
    put!(
        svg,
        r#"<path d="M{0:.1} 26V{1:.1}" stroke="{GREY}" stroke-dasharray="4 3"/>"#,
        x(1.0),
        height - 8.0
    );
    put!(svg, "</svg>");
    svg
}

/// Share of calls served over time, the first run of each stack.
fn lines(storm: &Storm) -> String {
    const TOP: f64 = 34.0;
    const PLOT: f64 = 220.0;
    const AXIS: f64 = 50.0;
    let points = |index: usize| storm.stacks[index].runs.first().map_or(&[][..], |run| &run.line);
    let longest = (0..storm.stacks.len())
        .filter_map(|index| points(index).last())
        .map(|point| point.0)
        .fold(1.0, f64::max);
    let x = |second: f64| AXIS + (WIDTH - AXIS - 20.0) * second / longest;
    let y = |share: f64| TOP + PLOT * (1.0 - share);
    let height = TOP + PLOT + 40.0 + storm.stacks.len() as f64 * 18.0;
    let mut svg = open(
        "Share of calls served in time, by second of arrival (first run)",
        height,
    );
    let (begin, end) = storm.between;
    put!(
        svg,
        r#"<rect x="{:.1}" y="{TOP}" width="{:.1}" height="{PLOT}" fill="{GREY}" fill-opacity="0.15"/>"#,
        x(begin),
        x(end) - x(begin)
    );
    for share in [0.0, 0.5, 1.0] {
        put!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{:.0} %</text><path d="M{AXIS} {:.1}H{:.1}" stroke="{GREY}" stroke-opacity="0.4"/>"#,
            AXIS - 6.0,
            y(share) + 4.0,
            share * 100.0,
            y(share),
            WIDTH - 20.0
        );
    }
    for (index, stack) in storm.stacks.iter().enumerate() {
        let colour = if stack.name == OURS {
            OURS_COLOUR
        } else {
            OTHER_COLOURS[index % OTHER_COLOURS.len()]
        };
        let path: Vec<String> = points(index)
            .iter()
            .map(|(second, share)| format!("{:.1},{:.1}", x(*second), y(*share)))
            .collect();
        put!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"/>"#,
            path.join(" ")
        );
        let row = TOP + PLOT + 34.0 + index as f64 * 18.0;
        put!(
            svg,
            r#"<rect x="{AXIS}" y="{:.1}" width="14" height="4" fill="{colour}"/><text x="{:.1}" y="{row:.1}">{}</text>"#,
            row - 6.0,
            AXIS + 22.0,
            escape(stack.name)
        );
    }
    for second in (0..=longest as u32).step_by(2) {
        put!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{second} s</text>"#,
            x(f64::from(second)),
            TOP + PLOT + 16.0
        );
    }
    put!(svg, "</svg>");
    svg
}
