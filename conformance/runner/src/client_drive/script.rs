//! The answers that the runner plays: one step per request, rendered to raw bytes.
//!
//! Hints break in odd ways (two lines, bad bytes, a body that never ends), so an answer is written as it stands and
//! no library gets the chance to tidy it up.

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::{Map, Value};

/// The largest body that a step may fill.
pub const MAX_FILL_BYTES: usize = 16 << 20;

/// One answer, or one way of not answering.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The status.
    pub status: Option<u16>,
    /// Field lines, `Name: value`, written as they stand. `{date}`, `{date+N}` and `{date-N}` (seconds), `{main}` and `{second}`
    /// (base URLs), `{path}` (of the request) are replaced.
    #[serde(default)]
    pub headers: Vec<String>,
    /// A body of text; the same placeholders as in `headers`.
    pub text: Option<String>,
    /// A body of application/problem+json.
    pub problem: Option<Value>,
    /// A body of so many bytes of text.
    pub fill: Option<usize>,
    /// A chunked body that never ends: as fast as it is taken, or slowly.
    pub endless: Option<Endless>,
    /// A whole contract response, from a few words.
    pub reject: Option<Reject>,
    /// Interim answers before it.
    #[serde(default)]
    pub interim: Vec<Interim>,
    /// How long the answer is held back.
    #[serde(default)]
    pub delay_ms: u64,
    /// No answer, but this.
    pub fault: Option<Fault>,
    /// How many requests are answered so.
    #[serde(default)]
    pub repeat: Repeat,
}

/// A body that never ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endless {
    /// As fast as it is taken.
    Fast,
    /// A byte every 50 ms.
    Drip,
}

/// A way of not answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The request is read and never answered.
    Hang,
    /// The request is read and the connection reset.
    Reset,
    /// The request is read and the connection closed.
    Close,
}

/// How many requests a step answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Repeat {
    /// So many.
    Times(usize),
    /// All that come.
    Word(RepeatWord),
}

/// The word in place of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepeatWord {
    /// All that come.
    Forever,
}

impl Default for Repeat {
    fn default() -> Self {
        Repeat::Times(1)
    }
}

/// A 1xx answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interim {
    /// 100 to 199.
    pub status: u16,
    /// Field lines.
    #[serde(default)]
    pub headers: Vec<String>,
}

/// A reject as a contract server writes it (CONTRACT section 2): status line, hint fields and body that agree.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reject {
    /// The code.
    pub code: String,
    /// The permission; `after` by default.
    #[serde(default = "after_word")]
    pub retry: String,
    /// `no` by default.
    #[serde(default = "no_word")]
    pub applied: String,
    /// D in ms.
    pub after: Option<u64>,
    /// M in ms.
    pub max: Option<u64>,
    /// The scope, where it is not the request.
    pub scope: Option<String>,
    /// The hops.
    pub hop: Option<u64>,
}

fn after_word() -> String {
    "after".to_owned()
}

fn no_word() -> String {
    "no".to_owned()
}

/// What a body is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyPlan {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Chunks without end.
    Endless(Endless),
}

/// An answer in bytes.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// Interim heads.
    pub interim: Vec<u8>,
    /// The head with its empty line.
    pub head: Vec<u8>,
    /// The body.
    pub body: BodyPlan,
    /// The head in one line, for the report.
    pub shown: String,
}

/// What placeholders stand for.
#[derive(Debug, Clone)]
pub struct Places {
    /// The base URL of the main port.
    pub main: String,
    /// The base URL of the second port.
    pub second: String,
}

impl Step {
    /// Checks what the types cannot say.
    ///
    /// # Errors
    /// A sentence that names the key and the limit.
    pub fn validate(&self) -> Result<(), String> {
        let bodies = [
            self.text.is_some(),
            self.problem.is_some(),
            self.fill.is_some(),
            self.endless.is_some(),
        ];
        let bodies = bodies.into_iter().filter(|there| *there).count();
        let answers = usize::from(self.status.is_some()) + usize::from(self.reject.is_some());
        match (self.fault, answers) {
            (Some(_), 0) | (None, 1) => {}
            _ => return Err("exactly one of `status`, `reject` and `fault` must be there".to_owned()),
        }
        if bodies > 1 || (self.reject.is_some() && bodies > 0) {
            return Err("one body only: text, problem, fill or endless; a reject brings its own".to_owned());
        }
        if self.status.is_some_and(|status| !(200..=599).contains(&status)) {
            return Err("status must be 200 to 599; 1xx go to `interim`".to_owned());
        }
        if self
            .interim
            .iter()
            .any(|interim| !(100..=199).contains(&interim.status))
        {
            return Err("interim status must be 100 to 199".to_owned());
        }
        if self.fill.is_some_and(|bytes| bytes > MAX_FILL_BYTES) {
            return Err(format!("fill is over {MAX_FILL_BYTES} bytes"));
        }
        let lines = self
            .headers
            .iter()
            .chain(self.interim.iter().flat_map(|interim| &interim.headers));
        match lines
            .clone()
            .find(|line| !line.contains(':') || line.contains(['\r', '\n']))
        {
            Some(line) => Err(format!("header {line:?} is not one `Name: value` line")),
            None => Ok(()),
        }
    }

    /// The answer in bytes. `path` is the request's; `head_only` answers HEAD.
    pub fn render(&self, places: &Places, path: &str, now: SystemTime, head_only: bool) -> Rendered {
        let (status, mut lines, body) = match &self.reject {
            Some(reject) => {
                let (status, lines, body) = reject.render();
                (status, lines, BodyPlan::Bytes(body))
            }
            None => self.plain(places, path, now),
        };
        lines.splice(
            0..0,
            self.headers.iter().map(|line| fill_in(line, places, path, now)),
        );
        let shown = format!("{status} {}", lines.join("; "));
        match &body {
            BodyPlan::Endless(_) => lines.push("Transfer-Encoding: chunked".to_owned()),
            BodyPlan::Bytes(_) if status == 204 || status == 304 => {}
            BodyPlan::Bytes(bytes) => lines.push(format!("Content-Length: {}", bytes.len())),
        }
        let mut interim = Vec::new();
        for one in &self.interim {
            let lines: Vec<String> = one
                .headers
                .iter()
                .map(|l| fill_in(l, places, path, now))
                .collect();
            interim.extend(head(one.status, &lines));
        }
        let body = if head_only {
            BodyPlan::Bytes(Vec::new())
        } else {
            body
        };
        Rendered {
            interim,
            head: head(status, &lines),
            body,
            shown,
        }
    }

    fn plain(&self, places: &Places, path: &str, now: SystemTime) -> (u16, Vec<String>, BodyPlan) {
        let status = self.status.unwrap_or(200);
        let mut lines = Vec::new();
        let body = match (&self.text, &self.problem, self.fill, self.endless) {
            (_, Some(problem), ..) => {
                lines.push("Content-Type: application/problem+json".to_owned());
                BodyPlan::Bytes(problem.to_string().into_bytes())
            }
            (_, _, Some(bytes), _) => BodyPlan::Bytes(vec![b'x'; bytes]),
            (.., Some(endless)) => BodyPlan::Endless(endless),
            (text, ..) => {
                let text = text.as_deref().unwrap_or_default();
                BodyPlan::Bytes(fill_in(text, places, path, now).into_bytes())
            }
        };
        (status, lines, body)
    }
}

impl Reject {
    /// Status, field lines and body.
    fn render(&self) -> (u16, Vec<String>, Vec<u8>) {
        let status = match self.code.as_str() {
            "tenant_limit" | "rate_limited" | "retry_throttled" => 429,
            "dependency_timeout" => 504,
            _ => 503,
        };
        let Reject {
            code, retry, applied, ..
        } = self;
        let mut signal = format!("v=1, code={code}, retry={retry}, applied={applied}");
        let mut body = Map::new();
        let mut member = |name: &str, value: Value| body.insert(name.to_owned(), value);
        member("type", format!("urn:overload:v1:{code}").into());
        member("title", "Overloaded".into());
        member("status", status.into());
        member("contract_version", 1.into());
        member("code", code.clone().into());
        member("retry", retry.clone().into());
        member("applied", applied.clone().into());
        for (key, long, value) in [
            ("after", "retry_after_ms", self.after),
            ("max", "retry_after_max_ms", self.max),
            ("hop", "hop", self.hop),
        ] {
            if let Some(value) = value {
                signal.push_str(&format!(", {key}={value}"));
                member(long, value.into());
            }
        }
        if let Some(scope) = &self.scope {
            signal.push_str(&format!(", scope={scope}"));
            member("scope", scope.clone().into());
        }
        let mut lines = vec!["Cache-Control: no-store".to_owned()];
        if let Some(after) = self.after {
            lines.push(format!("Retry-After: {}", after.div_ceil(1000).max(1)));
            lines.push(format!("retry-after-ms: {after}"));
        }
        lines.push(format!("Overload-Signal: {signal}"));
        lines.push("Content-Type: application/problem+json".to_owned());
        (status, lines, Value::Object(body).to_string().into_bytes())
    }
}

fn head(status: u16, lines: &[String]) -> Vec<u8> {
    let reason = http::StatusCode::from_u16(status)
        .ok()
        .and_then(|s| s.canonical_reason())
        .unwrap_or("Other");
    let mut out = format!("HTTP/1.1 {status} {reason}\r\n");
    for line in lines {
        out.push_str(line);
        out.push_str("\r\n");
    }
    out.push_str("\r\n");
    out.into_bytes()
}

/// Replaces the placeholders of a field line.
fn fill_in(line: &str, places: &Places, path: &str, now: SystemTime) -> String {
    let mut out = line
        .replace("{main}", &places.main)
        .replace("{second}", &places.second)
        .replace("{path}", path);
    while let Some((start, end, seconds)) = find_date(&out) {
        let length = Duration::from_secs(seconds.unsigned_abs().into());
        let at = if seconds < 0 {
            now.checked_sub(length)
        } else {
            now.checked_add(length)
        };
        // A date before 1970 cannot be written.
        let at = at.unwrap_or(now).max(SystemTime::UNIX_EPOCH);
        out.replace_range(start..end, &httpdate::fmt_http_date(at));
    }
    out
}

/// The first `{date}`, `{date+N}` or `{date-N}`: where it is and how many seconds it is ahead.
fn find_date(text: &str) -> Option<(usize, usize, i32)> {
    let start = text.find("{date")?;
    let end = start + text.get(start..)?.find('}')? + 1;
    let inner = text.get(start + "{date".len()..end - 1)?;
    Some((start, end, inner.parse().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places {
            main: "http://127.0.0.1:1".to_owned(),
            second: "http://127.0.0.1:2".to_owned(),
        }
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn a_reject_says_the_same_in_every_place() {
        let reject = Reject {
            code: "queue_full".to_owned(),
            retry: "after".to_owned(),
            applied: "no".to_owned(),
            after: Some(1740),
            max: Some(2300),
            scope: None,
            hop: None,
        };
        let step = Step {
            reject: Some(reject),
            ..Step::default()
        };
        let out = step.render(&places(), "/c", SystemTime::UNIX_EPOCH, false);
        let head = text(&out.head);
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{head}");
        assert!(head.contains("\r\nRetry-After: 2\r\n"), "{head}");
        assert!(head.contains("\r\nretry-after-ms: 1740\r\n"), "{head}");
        let signal =
            "Overload-Signal: v=1, code=queue_full, retry=after, applied=no, after=1740, max=2300\r\n";
        assert!(head.contains(signal), "{head}");
        let BodyPlan::Bytes(body) = out.body else {
            panic!("a reject has a body")
        };
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&body["retry_after_ms"], &body["retry_after_max_ms"]),
            (&1740.into(), &2300.into())
        );
        assert_eq!(body["status"], 503);
    }

    #[test]
    fn dates_and_ports_are_filled_in_and_two_lines_stay_two_lines() {
        let headers = vec![
            "Retry-After: {date+2}".to_owned(),
            "Date: {date}".to_owned(),
            "Location: {second}{path}".to_owned(),
        ];
        let step = Step {
            status: Some(302),
            headers,
            ..Step::default()
        };
        let head = text(&step.render(&places(), "/c/1", SystemTime::UNIX_EPOCH, false).head);
        assert!(
            head.contains("Retry-After: Thu, 01 Jan 1970 00:00:02 GMT\r\n"),
            "{head}"
        );
        assert!(head.contains("Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"), "{head}");
        assert!(head.contains("Location: http://127.0.0.1:2/c/1\r\n"), "{head}");
    }

    #[test]
    fn a_date_may_lie_behind_but_not_before_1970() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(90);
        let date = |text: &str| fill_in(text, &places(), "/", at);
        assert_eq!(date("{date-60}"), "Thu, 01 Jan 1970 00:00:30 GMT");
        assert_eq!(date("{date-600}"), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn a_step_that_both_answers_and_hangs_is_refused() {
        let step = Step {
            status: Some(200),
            fault: Some(Fault::Hang),
            ..Step::default()
        };
        assert!(step.validate().is_err());
        assert!(Step::default().validate().is_err());
        assert!(
            Step {
                fault: Some(Fault::Reset),
                ..Step::default()
            }
            .validate()
            .is_ok()
        );
        let two = Step {
            status: Some(200),
            headers: vec!["a: b\r\nc: d".to_owned()],
            ..Step::default()
        };
        assert!(two.validate().is_err());
    }
}
