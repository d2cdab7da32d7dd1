//! How far a run has got: a bar on a terminal, plain lines everywhere else.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Format, say};
use crate::render;
use crate::report::CaseReport;
use crate::requirement::Requirements;

/// The progress of one run.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    format: Format,
}

impl Progress {
    /// A bar over `cases` cases where standard error is a terminal; lines alone where it is not, or `CI` is set.
    pub(super) fn start(cases: usize, format: Format) -> Self {
        let shown = std::io::stderr().is_terminal() && std::env::var_os("CI").is_none();
        let bar = ProgressBar::new(u64::try_from(cases).unwrap_or(u64::MAX));
        bar.set_draw_target(if shown {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        });
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
            bar.set_style(style);
        }
        Self { bar, format }
    }

    /// A case has ended.
    pub(super) fn done(&self, case: &CaseReport, requirements: &Requirements) {
        let text = render::case(case, requirements);
        self.bar.suspend(|| match self.format {
            Format::Text => say(&mut std::io::stdout(), &text),
            Format::Json => say(&mut std::io::stderr(), &text),
        });
        self.bar.set_message(case.id.clone());
        self.bar.inc(1);
    }

    /// The run is over.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
