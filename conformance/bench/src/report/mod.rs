//! One run's figures, for people (Markdown with plots) and for programs (JSON with every figure).

mod markdown;
mod plot;
mod targets;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Serialize;

use crate::calls::Calls;
use crate::decide::Costs;
use crate::instructions::Counts;
use crate::machine::Header;
use crate::route::Routes;
use crate::serve::Rates;
use crate::storm::Storm;

pub use targets::{Target, Verdict};

/// Where a document keeps its results; what stands between is replaced.
const BEGIN: &str = "<!-- results: begin -->";
const END: &str = "<!-- results: end -->";

/// What was measured; parts that were not asked for are empty.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    /// A short run: its figures mean nothing beyond that everything works.
    pub smoke: bool,
    /// Call overhead, per kind of request.
    pub calls: Vec<Calls>,
    /// The same in instructions, per kind of request.
    pub instructions: Vec<Counts>,
    /// Decision costs.
    pub decide: Option<Costs>,
    /// What layers add to a request, no socket.
    pub route: Option<Routes>,
    /// Throughput of servers, per kind of request.
    pub throughput: Vec<Rates>,
    /// Served against refused on one server, per kind of request.
    pub refusals: Vec<Rates>,
    /// Storms.
    pub storms: Vec<Storm>,
}

#[derive(Serialize)]
struct Whole<'a> {
    machine: &'a Header,
    #[serde(flatten)]
    results: &'a Results,
    targets: Vec<Target>,
}

/// A report, ready to be written.
#[derive(Clone, Debug)]
pub struct Report {
    /// The page, without a title.
    pub markdown: String,
    json: String,
    /// File names and drawings.
    plots: Vec<(&'static str, String)>,
}

impl Report {
    /// Puts a report together. `beside` is how the page refers to the folder that its plots are in; `None` leaves
    /// them out.
    ///
    /// # Errors
    /// Never, as far as is known: the figures are numbers and words.
    pub fn new(header: &Header, results: &Results, beside: Option<&str>) -> anyhow::Result<Self> {
        // Figures that mean nothing meet and miss nothing.
        let targets = if results.smoke {
            Vec::new()
        } else {
            targets::judge(results)
        };
        let plots = match beside {
            Some(_) => plot::all(results),
            None => Vec::new(),
        };
        let names: Vec<_> = plots.iter().map(|(name, _)| *name).collect();
        let markdown = markdown::page(header, results, &targets, beside.unwrap_or_default(), &names);
        let whole = Whole {
            machine: header,
            results,
            targets,
        };
        let json = serde_json::to_string_pretty(&whole)?;
        Ok(Self {
            markdown,
            json,
            plots,
        })
    }

    /// Writes page, `.json` beside it, and plots into the folder of its name.
    ///
    /// # Errors
    /// When a file cannot be written; the error names it.
    pub fn write(&self, page: &Path) -> anyhow::Result<()> {
        let text = format!("# Benchmarks\n\n{}", self.markdown);
        write(page, &text)?;
        self.write_beside(page)
    }

    /// Replaces the results in a document between `<!-- results: begin -->` and `<!-- results: end -->`.
    ///
    /// # Errors
    /// When the document has no such place, or a file cannot be read or written; the error names it.
    pub fn update(&self, document: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(document)
            .with_context(|| format!("cannot read {}", document.display()))?;
        let text = replaced(&text, &self.markdown).with_context(|| document.display().to_string())?;
        write(document, &text)?;
        self.write_beside(document)
    }

    fn write_beside(&self, page: &Path) -> anyhow::Result<()> {
        let folder = folder_of(page);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        write(&folder.join("results.json"), &self.json)?;
        for (name, drawing) in &self.plots {
            write(&folder.join(name), drawing)?;
        }
        Ok(())
    }
}

/// The folder for what belongs to a page: its name, in lower case and without the ending.
pub fn folder_of(page: &Path) -> PathBuf {
    let name = page.file_stem().unwrap_or_default().to_string_lossy();
    page.with_file_name(format!("{}-results", name.to_lowercase()))
}

/// Checks before a long run that a document has a place for its results.
///
/// # Errors
/// When it cannot be read, or has none.
pub fn check_document(document: &Path) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(document).with_context(|| format!("cannot read {}", document.display()))?;
    replaced(&text, "")
        .map(drop)
        .with_context(|| document.display().to_string())
}

fn replaced(text: &str, results: &str) -> anyhow::Result<String> {
    let (Some(begin), Some(end)) = (text.find(BEGIN), text.find(END)) else {
        bail!("no place for results: {BEGIN:?} and {END:?} are missing");
    };
    let begin = begin + BEGIN.len();
    if end < begin {
        bail!("{END:?} stands before {BEGIN:?}");
    }
    Ok(format!(
        "{}\n\n{}\n{}",
        &text[..begin],
        results.trim_end(),
        &text[end..]
    ))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let before = format!("# Title\n{BEGIN}\nold\n{END}\ntail\n");
        let after = replaced(&before, "new\n\n").unwrap();
        assert_eq!(after, format!("# Title\n{BEGIN}\n\nnew\n{END}\ntail\n"));
        assert_eq!(replaced(&after, "new").unwrap(), after);
        assert!(replaced("no marks", "new").is_err());
        assert!(replaced(&format!("{END} {BEGIN}"), "new").is_err());
    }

    #[test]
    fn what_belongs_to_a_page_lies_in_a_folder_of_its_name() {
        assert_eq!(
            folder_of(Path::new("docs/BENCHMARKS.md")),
            Path::new("docs/benchmarks-results")
        );
    }
}
