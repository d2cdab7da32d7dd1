//! The way in: from a request to a place, in the order that the crate's page gives.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use holdoff_admission::Rejection;
use holdoff_admission_tower::{Asked, Place, Refusal, RequestHead, drain};
use holdoff_contract::TaskClass;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, Response, StatusCode};

use crate::app::App;
use crate::clock;
use crate::problem::Problem;
use crate::request::{self, Holding, Task};
use crate::routes;
use crate::tasks::{Key, Known};

/// Who waits for the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The caller: it can be refused, not put off.
    Work,
    /// Nobody: it can be put off, and an Idempotency-Key makes it one task.
    Tasks,
}

/// A request that has a place.
pub(crate) struct Entered {
    pub(crate) asked: Asked,
    pub(crate) place: Place,
    pub(crate) class: String,
    pub(crate) duration: Duration,
    /// The key of the operation, with the fingerprint of its payload.
    pub(crate) key: Option<(Key, u64)>,
    /// When it asked.
    pub(crate) at: Instant,
}

/// Lets a request in. The error is the answer.
pub(crate) async fn enter(
    app: &App,
    request: Request<Body>,
    route: Route,
) -> Result<Entered, Response<Body>> {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    let mut asked = app.gate.read(RequestHead::from(&parts));
    asked.ask.may_defer = route == Route::Tasks;
    if let Some(overload) = app.fixtures.as_ref().and_then(|fixtures| fixtures.take_forced()) {
        drain(headers, body);
        return Err(refuse(asked.refusal(Rejection {
            overload: Box::new(overload),
        })));
    }
    // `curl -X POST` without anything is a task with nothing said; an empty JSON body is a mistake.
    let empty = body.is_end_stream() && !headers.contains_key(CONTENT_TYPE);
    let bodiless = parts.method != Method::POST || empty;
    if !bodiless && let Err(problem) = request::check_head(headers, &body, &app.limits) {
        drain(headers, body);
        return Err(problem.into_response());
    }
    asked.ask.bytes = body.size_hint().lower();
    let at = clock::now();
    let key = key(&asked, route);
    let repeats = key.as_ref().is_some_and(|key| app.tasks.knows(key));
    let (place, task, print) = if !repeats && (bodiless || asked.ask.class.is_some()) {
        let place = match app.gate.admit(&asked) {
            Ok(place) => place,
            Err(refusal) => {
                drain(headers, body);
                return Err(refuse(refusal));
            }
        };
        let (task, print) = read(app, headers, body, &mut asked, Holding::Place, bodiless).await?;
        (place, task, print)
    } else {
        let (task, print) = read(app, headers, body, &mut asked, Holding::Nothing, bodiless).await?;
        if let Some(key) = &key
            && let Some(known) = app.tasks.known(key, print, clock::now())
        {
            return Err(repeated(known));
        }
        if asked.ask.class.is_none() {
            asked.ask.class.clone_from(&task.class);
        }
        (app.gate.admit(&asked).map_err(refuse)?, task, print)
    };
    let class = asked
        .ask
        .class
        .as_ref()
        .map_or("other", TaskClass::as_str)
        .to_owned();
    let duration = app
        .worker
        .duration(&app.admission().profile(), &class, task.duration);
    Ok(Entered {
        asked,
        place,
        class,
        duration,
        key: key.map(|key| (key, print)),
        at,
    })
}

/// The operation's key; the caller's tenant is part of it.
fn key(asked: &Asked, route: Route) -> Option<Key> {
    let key = asked
        .fields
        .idempotency_key
        .clone()
        .filter(|_| route == Route::Tasks)?;
    Some(Key {
        tenant: asked.ask.tenant.clone(),
        key,
    })
}

/// Reads and parses the body; with it comes a fingerprint of what was asked for.
async fn read(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    asked: &mut Asked,
    holding: Holding,
    bodiless: bool,
) -> Result<(Task, u64), Response<Body>> {
    let (body, task) = if bodiless {
        drain(headers, body);
        (Bytes::new(), Task::default())
    } else {
        let body = request::read_body(headers, body, &app.limits, holding).await;
        let body = body.map_err(Problem::into_response)?;
        let task = Task::parse(&body, &app.limits).map_err(Problem::into_response)?;
        (body, task)
    };
    asked.ask.bytes = body.len() as u64;
    let mut print = DefaultHasher::new();
    (asked.fields.task_class.as_ref().map(TaskClass::as_str), &body[..]).hash(&mut print);
    Ok((task, print.finish()))
}

/// The answer to a key that is known: the first answer, or what is wrong with asking again.
pub(crate) fn repeated(known: Known) -> Response<Body> {
    match known {
        Known::Same(view) => routes::accepted(&view),
        Known::Other(key) => {
            let limit = "sent with the payload that it was first sent with";
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            Problem::field(status, "Idempotency-Key", key.key.as_str(), limit).into_response()
        }
    }
}

pub(crate) fn refuse(refusal: Refusal) -> Response<Body> {
    refusal.into_response().map(Body::from)
}
