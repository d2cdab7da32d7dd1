//! The second witness: what the server counts. A server that only answers right may still lose track of what it did, so
//! the metrics page is read as text by our own code and compared with the wire.

use std::collections::BTreeMap;

/// Series read from one page at most; a page with more is a finding of its own (SEC-03).
pub const MAX_SERIES: usize = 50_000;

/// One metrics page in the Prometheus text format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The text as it came.
    pub text: String,
    /// Its series.
    pub series: Vec<Sample>,
}

/// One series.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Metric name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Value.
    pub value: f64,
}

impl Sample {
    fn fits(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.name == name
            && labels
                .iter()
                .all(|(key, value)| self.labels.get(key) == Some(value))
    }
}

impl Page {
    /// Reads a page; lines that are no series are left out.
    pub fn parse(text: &str) -> Self {
        let series = text.lines().filter_map(sample).take(MAX_SERIES).collect();
        Self {
            text: text.to_owned(),
            series,
        }
    }

    /// The sum over all series of a metric that have these labels; `None` where there is none.
    pub fn sum(&self, name: &str, labels: &BTreeMap<String, String>) -> Option<f64> {
        let mut fitting = self
            .series
            .iter()
            .filter(|sample| sample.fits(name, labels))
            .peekable();
        fitting.peek()?;
        Some(fitting.map(|sample| sample.value).sum())
    }

    /// The sum over the series of a counter whose label satisfies a test.
    pub fn sum_where(&self, name: &str, test: impl Fn(&BTreeMap<String, String>) -> bool) -> f64 {
        let fitting = self
            .series
            .iter()
            .filter(|sample| sample.name == name && test(&sample.labels));
        fitting.map(|sample| sample.value).sum()
    }
}

fn sample(line: &str) -> Option<Sample> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (head, rest) = match line.find('{') {
        Some(open) => {
            let (labels, used) = labels(&line[open + 1..])?;
            let rest = line.get(open + 1 + used..)?;
            ((line[..open].trim(), labels), rest)
        }
        None => {
            let space = line.find(char::is_whitespace)?;
            ((&line[..space], BTreeMap::new()), &line[space..])
        }
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name: head.0.to_owned(),
        labels: head.1,
        value,
    })
}

/// The labels behind `{`, and how many bytes they take with the closing brace.
fn labels(text: &str) -> Option<(BTreeMap<String, String>, usize)> {
    let mut labels = BTreeMap::new();
    let mut chars = text.char_indices().peekable();
    loop {
        let mut name = String::new();
        loop {
            match chars.next()? {
                (at, '}') => return Some((labels, at + 1)),
                (_, '=') => break,
                (_, ',' | ' ') => {}
                (_, c) => name.push(c),
            }
        }
        if chars.next()?.1 != '"' {
            return None;
        }
        let mut value = String::new();
        loop {
            match chars.next()?.1 {
                '"' => break,
                '\\' => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    c => value.push(c),
                },
                c => value.push(c),
            }
        }
        labels.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn a_page_is_read_with_labels_comments_and_escapes() {
        let page = Page::parse(
            "# TYPE a counter\na{x=\"1\",y=\"q\\\"}\"} 3\na{x=\"2\"} 4 1700000000\nb 0.5\nbroken{\nc NaN-ish\n",
        );
        assert_eq!(page.series.len(), 3);
        assert_eq!(page.sum("a", &BTreeMap::new()), Some(7.0));
        assert_eq!(page.sum("a", &labels_of(&[("y", "q\"}")])), Some(3.0));
        assert_eq!(page.sum("b", &BTreeMap::new()), Some(0.5));
        assert_eq!(page.sum("none", &BTreeMap::new()), None);
    }
}
