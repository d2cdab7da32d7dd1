//! `trace`: the traceability page.

use anyhow::{Context as _, anyhow, ensure};

use super::print;
use crate::case;
use crate::peers::Peers;
use crate::required::Required;
use crate::trace::{COVERAGE, Coverage, Trace};
use crate::vector::Vectors;

/// Prints the page. Exit code 1 where a requirement is neither covered nor explained.
pub(super) fn main() -> anyhow::Result<u8> {
    let set = case::load_embedded()?;
    let vectors = Vectors::load_embedded(&set.requirements).map_err(|error| anyhow!(error))?;
    let peers = Peers::load_embedded()?;
    let coverage: Coverage = toml::from_str(COVERAGE).context("coverage.toml")?;
    let required = Required::v1(&set.requirements)?;
    let trace = Trace::new(&set, &vectors, &peers, &coverage, &required);
    print(&trace.page())?;
    let gaps = trace.gaps();
    ensure!(gaps.is_empty(), "{}", gaps.join("\n"));
    Ok(0)
}
