//! `rejudge`: recorded wire logs, judged again.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};

use super::print;
use crate::case::CaseSet;
use crate::client_drive;
use crate::input;
use crate::report::Conclusion;

/// Judges each record and says what came out. The exit code is that of a run.
pub(super) fn main(records: &[PathBuf], set: &CaseSet) -> anyhow::Result<u8> {
    let mut verdicts = Vec::with_capacity(records.len());
    for path in records {
        let text = input::text(path, input::MAX_RECORDED).with_context(|| path.display().to_string())?;
        let (id, level, findings) = client_drive::rejudge(set, &text)
            .map_err(|what| anyhow!(what).context(path.display().to_string()))?;
        let verdict = findings.verdict(level);
        let mut out = format!("{:<14} {id}\n", verdict.word());
        for check in findings.failed() {
            out.push_str(&format!(
                "  why            {}: expected {}, saw {}\n",
                check.name, check.expected, check.seen
            ));
        }
        print(&out)?;
        verdicts.push(verdict);
    }
    Ok(Conclusion::of(verdicts).exit_code())
}
