//! The files that a run leaves behind.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::{Format, check, print};
use crate::render;
use crate::report::{RunReport, badge, junit, markdown};

/// Where a report goes besides standard output.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Outputs {
    /// Write the report as JSON to this file as well
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the report as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the report as Markdown, for instance for a job summary
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write a badge in the JSON of shields.io's endpoint
    #[arg(long, value_name = "FILE")]
    badge: Option<PathBuf>,
}

impl Outputs {
    /// Whether each of them can be written at the end.
    ///
    /// # Errors
    /// One cannot; names the option, the path and the reason.
    pub(super) fn writable(&self) -> anyhow::Result<()> {
        for (option, path) in [
            ("--report", &self.report),
            ("--junit", &self.junit),
            ("--markdown", &self.markdown),
            ("--badge", &self.badge),
        ] {
            if let Some(path) = path {
                check::writable(option, path)?;
            }
        }
        Ok(())
    }
}

/// Writes everything that was asked for.
pub(super) fn publish(report: &RunReport, outputs: &Outputs, format: Format) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(report).context("the report cannot be written as JSON")?;
    if let Some(path) = &outputs.report {
        write("--report", path, &json)?;
    }
    if let Some(path) = &outputs.junit {
        let xml = junit::render(report).context("the report cannot be written as JUnit")?;
        write("--junit", path, &xml)?;
    }
    if let Some(path) = &outputs.markdown {
        write("--markdown", path, &markdown::render(report))?;
    }
    if let Some(path) = &outputs.badge {
        write("--badge", path, &badge::render(report))?;
    }
    match format {
        Format::Text => print(&render::summary(report)),
        Format::Json => print(&format!("{json}\n")),
    }
}

/// Writes one file, and says which option it was for where that fails.
pub(super) fn write(option: &str, path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("{option} {}", path.display()))
}
