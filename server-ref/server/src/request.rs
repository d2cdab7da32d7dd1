//! What a caller may say, read strictly: each member is checked and a fault is named.

use std::time::Duration;

use axum::body::Body;
use axum::body::HttpBody as _;
use bytes::{Bytes, BytesMut};
use holdoff_admission_tower::drain;
use holdoff_contract::TaskClass;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::config::Limits;
use crate::problem::Problem;

mod media;
mod members;

/// A task, as its body describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Task {
    /// Kind; `None` where nothing was said, which means the default class (SRQ-07).
    pub(crate) class: Option<TaskClass>,
    /// How long it takes; `None` = drawn.
    pub(crate) duration: Option<Duration>,
}

/// What the head alone shows: media type, coding and declared length.
pub(crate) fn check_head(headers: &HeaderMap, body: &Body, limits: &Limits) -> Result<(), Problem> {
    media::check(headers)?;
    if body.size_hint().lower() > limits.max_body_bytes as u64 {
        return Err(too_large(&body.size_hint().lower().to_string(), limits));
    }
    Ok(())
}

/// Work has no query: one that were ignored would be a limit or a class that its caller believes in.
pub(crate) fn check_query(uri: &http::Uri) -> Result<(), Problem> {
    let Some(first) = uri.query().and_then(|query| query.split('&').next()) else {
        return Ok(());
    };
    let limit =
        "absent: the class goes into Overload-Task-Class or the body, duration_ms into the body of a POST";
    Err(invalid("query", &format!("{first:?}"), limit))
}

fn too_large(bytes: &str, limits: &Limits) -> Problem {
    let limit = format!("at most {} bytes", limits.max_body_bytes);
    Problem::field(StatusCode::PAYLOAD_TOO_LARGE, "body", bytes, limit)
}

/// Does the request wait for its body with a place, or without one?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holding {
    Nothing,
    /// A worker may be kept waiting by it, so the body has [`HELD_BODY_TIME`] at most.
    Place,
}

/// Longest time that a body may keep a place waiting: 1 s, many times what a body of this size takes.
const HELD_BODY_TIME: Duration = Duration::from_secs(1);

/// The whole body, within its limits of size and time.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    mut body: Body,
    limits: &Limits,
    holding: Holding,
) -> Result<Bytes, Problem> {
    let time = match holding {
        Holding::Nothing => Duration::from_millis(limits.body_ms),
        Holding::Place => Duration::from_millis(limits.body_ms).min(HELD_BODY_TIME),
    };
    match tokio::time::timeout(time, collect(&mut body, limits.max_body_bytes)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(Broken::TooLarge)) => {
            drain(headers, body);
            Err(too_large("larger", limits))
        }
        Ok(Err(Broken::Off)) => {
            let limit = "sent to its end, as Content-Length or the last chunk says";
            Err(Problem::field(
                StatusCode::BAD_REQUEST,
                "body",
                "broken off",
                limit,
            ))
        }
        Err(_) => {
            let limit = format!("complete within {} ms", time.as_millis());
            Err(Problem::field(
                StatusCode::REQUEST_TIMEOUT,
                "body",
                "incomplete",
                limit,
            ))
        }
    }
}

enum Broken {
    TooLarge,
    Off,
}

async fn collect(body: &mut Body, limit: usize) -> Result<Bytes, Broken> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Broken::Off)?.into_data() else {
            continue;
        };
        if data.len() > limit.saturating_sub(all.len()) {
            return Err(Broken::TooLarge);
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

/// Members that a task may have.
const MEMBERS: [&str; 3] = ["class", "payload", "duration_ms"];

impl Task {
    /// Parses a body.
    pub(crate) fn parse(body: &[u8], limits: &Limits) -> Result<Self, Problem> {
        let mut task = Self::default();
        for (name, value) in members::read(body, &MEMBERS)? {
            match name {
                "class" => task.class = class(&value)?,
                "duration_ms" => task.duration = duration(&value, limits)?,
                // The payload is the caller's own.
                _ => {}
            }
        }
        Ok(task)
    }
}

/// A class that nobody declared is the default one (SRQ-07); what is no name of a class is a mistake in the body.
fn class(value: &Value) -> Result<Option<TaskClass>, Problem> {
    let fits = "a class name: [a-z][a-z0-9._-]*, 1 to 64 characters";
    match value {
        Value::Null => Ok(None),
        Value::String(name) => match TaskClass::new(name) {
            Ok(class) => Ok(Some(class)),
            Err(_) => Err(invalid("class", &value.to_string(), fits)),
        },
        other => Err(invalid("class", &other.to_string(), fits)),
    }
}

fn duration(value: &Value, limits: &Limits) -> Result<Option<Duration>, Problem> {
    match value {
        Value::Null => Ok(None),
        value => match value.as_u64() {
            Some(ms) if ms <= limits.max_duration_ms => Ok(Some(Duration::from_millis(ms))),
            _ => {
                let limit = format!("an integer from 0 to {}", limits.max_duration_ms);
                Err(invalid("duration_ms", &value.to_string(), limit))
            }
        },
    }
}

pub(crate) fn invalid(field: &str, value: &str, limit: impl Into<String>) -> Problem {
    Problem::field(StatusCode::UNPROCESSABLE_ENTITY, field, value, limit)
}
