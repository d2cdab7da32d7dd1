//! How far it is: a bar on a terminal, a plain line a run otherwise, so that a log stays readable.

use std::io::{IsTerminal as _, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::metrics::Report;

/// Progress over a known number of runs, on standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    plain: bool,
    done: u64,
    of: u64,
}

impl Progress {
    pub(crate) fn new(of: u64) -> Self {
        let plain = !stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(Some(of), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} {msg} ({eta} left)") {
            bar.set_style(style);
        }
        Self {
            bar,
            plain,
            done: 0,
            of,
        }
    }

    /// A run is done.
    #[expect(clippy::print_stderr, reason = "the plain form of the bar")]
    pub(crate) fn done(&mut self, report: &Report) {
        self.done += 1;
        self.bar.inc(1);
        self.bar
            .set_message(format!("{} seed {}", report.scenario, report.seed));
        if self.plain {
            eprintln!(
                "{}/{} {} seed {} {}/{}/{}: goodput {:.3}, attempts {:.2}",
                self.done,
                self.of,
                report.scenario,
                report.seed,
                report.admission,
                report.hint,
                report.clients,
                report.goodput,
                report.attempts
            );
        }
    }

    /// All are done.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
