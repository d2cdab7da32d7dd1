//! `table`: several reports beside each other.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::print;
use super::publish::write;
use crate::input;
use crate::report::{self, RunReport, table};

/// Reads the reports and writes the tables.
pub(super) fn main(files: &[PathBuf], html: Option<&Path>, markdown: Option<&Path>) -> anyhow::Result<u8> {
    ensure!(
        files.len() <= table::MAX_REPORTS,
        "{} reports; a table takes at most {}",
        files.len(),
        table::MAX_REPORTS
    );
    let reports: Vec<RunReport> = files.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let table = table::Table::new(&reports);
    if let Some(path) = html {
        write("--html", path, &table::html(&table))?;
    }
    if let Some(path) = markdown {
        write("--markdown", path, &table::markdown(&table))?;
    }
    if html.is_none() && markdown.is_none() {
        print(&table::markdown(&table))?;
    }
    Ok(0)
}

fn read(path: &Path) -> anyhow::Result<RunReport> {
    let named = || path.display().to_string();
    let text = input::text(path, input::MAX_RECORDED).with_context(named)?;
    let report: RunReport = serde_json::from_str(&text).with_context(named)?;
    ensure!(
        report.schema == report::SCHEMA,
        "{}: schema is {:?}; this runner reads {:?}",
        named(),
        report.schema,
        report::SCHEMA
    );
    Ok(report)
}
