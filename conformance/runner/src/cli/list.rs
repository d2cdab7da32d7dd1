//! `list`: the cases, and what they speak for.

use anyhow::anyhow;

use super::print;
use crate::case::CaseSet;
use crate::vector::Vectors;

/// Lists all cases and vectors, as text or as JSON.
pub(super) fn main(json: bool, set: &CaseSet) -> anyhow::Result<u8> {
    let vectors = Vectors::load_embedded(&set.requirements).map_err(|error| anyhow!(error))?;
    let mut rows: Vec<serde_json::Value> = Vec::new();
    for case in &set.cases {
        rows.push(serde_json::json!({
            "id": case.id, "role": case.role(), "level": case.level, "title": case.title,
            "requirements": case.requirements, "needs": case.needs, "source": case.source,
            "excluded": case.excluded, "timing": case.timing,
        }));
    }
    for vector in &vectors.vectors {
        rows.push(serde_json::json!({
            "id": format!("vector/{}", vector.id), "role": "client", "level": vector.level(&set.requirements),
            "title": format!("The response {} is read as the contract says.", vector.id),
            "requirements": vector.req,
        }));
    }
    let mut out = String::new();
    if json {
        out = serde_json::to_string_pretty(
            &serde_json::json!({"schema": "overload-case-list/1", "cases": rows}),
        )?;
        out.push('\n');
    } else {
        for row in &rows {
            let requirements: Vec<&str> = row["requirements"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|r| r.as_str())
                .collect();
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            out.push_str(&format!(
                "{:<7} {:<44} {:<24} {}\n",
                text("role"),
                text("id"),
                requirements.join(" "),
                text("title")
            ));
        }
        out.push_str(&format!("{} cases\n", rows.len()));
    }
    print(&out)?;
    Ok(0)
}
