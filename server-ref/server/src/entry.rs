//! The way in: from a request to a place, in the order that the crate's page gives.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use holdoff_admission::Rejection;
use holdoff_admission_tower::{Asked, Place, Refusal, RequestHead, drain};
use holdoff_contract::{Applied, Code, Hint, Overload, Retry, TaskClass, Tier};
use holdoff_journal::{Failed, Written};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, Response, StatusCode};

use crate::app::App;
use crate::clock;
use crate::keys::{Key, Print};
use crate::problem::Problem;
use crate::request::{self, Holding, Task};
use crate::tasks::Known;

/// Base and spread of the hint while the journal does not write, or too many wait for one answer: a disk comes back in
/// seconds, and callers must not come back together.
pub(crate) const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(1));
/// The same where keys are used up, which takes hours to pass: the profile's default ceiling of hints.
const KEYS_PAUSE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));

/// Who waits for the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The caller: it can be refused, not put off.
    Work,
    /// Nobody: it can be put off, and non-sheddable work must be durable.
    Tasks,
}

/// A request that was read and may be answered.
pub(crate) struct Arrived {
    pub(crate) asked: Asked,
    pub(crate) class: String,
    pub(crate) duration: Duration,
    /// The key of the operation, with the print of what was asked for.
    pub(crate) key: Option<(Arc<Key>, Print)>,
    /// When it asked.
    pub(crate) at: Instant,
}

/// Lets a request in. No place means that its key is known, or was a moment ago. The error is the answer.
pub(crate) async fn enter(
    app: &App,
    request: Request<Body>,
    route: Route,
) -> Result<(Arrived, Option<Place>), Response<Body>> {
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
    let checked = request::check_query(&parts.uri).and_then(|()| match bodiless {
        true => Ok(()),
        false => request::check_head(headers, &body, &app.limits),
    });
    if let Err(problem) = checked.and_then(|()| can_promise(app, &asked, route)) {
        drain(headers, body);
        return Err(problem.into_response());
    }
    asked.ask.bytes = body.size_hint().lower();
    let at = clock::now();
    let key = asked.fields.idempotency_key.clone().map(|key| {
        let tenant = asked.ask.tenant.clone();
        Arc::new(Key { tenant, key })
    });
    let repeats = key.as_ref().is_some_and(|key| app.tasks.knows(key));
    let mut place = None;
    let mut holding = Holding::Nothing;
    if !repeats && (bodiless || asked.ask.class.is_some()) {
        match app.gate.admit(&asked) {
            Ok(admitted) => place = Some(admitted),
            Err(refusal) => {
                drain(headers, body);
                return Err(refuse(refusal));
            }
        }
        holding = Holding::Place;
    }
    let (task, body) = read(app, headers, body, &mut asked, holding, bodiless).await?;
    if asked.ask.class.is_none() {
        asked.ask.class.clone_from(&task.class);
    }
    if !repeats && place.is_none() {
        place = Some(app.gate.admit(&asked).map_err(refuse)?);
    }
    let class = asked.ask.class.as_ref().map_or("other", TaskClass::as_str);
    let class = class.to_owned();
    let duration = app
        .worker
        .duration(&app.admission().profile(), &class, task.duration);
    let key = key.map(|key| (key, print(route, &parts.method, &asked, &body)));
    let arrived = Arrived {
        asked,
        class,
        duration,
        key,
        at,
    };
    Ok((arrived, place))
}

/// A 202 for non-sheddable work means durable; where nothing can be kept it is not given (CONTRACT section 1). An empty
/// server could not give it either, so this is no overload.
fn can_promise(app: &App, asked: &Asked, route: Route) -> Result<(), Problem> {
    if route == Route::Work || asked.ask.tier != Tier::NonSheddable || app.ledger.is_some() {
        return Ok(());
    }
    let limit = "critical or deferrable: this server has no data directory (--data DIR), so that nothing it keeps would \
                 survive it";
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    Err(Problem::field(
        status,
        "Overload-Tier",
        Tier::NonSheddable.as_str(),
        limit,
    ))
}

/// What was asked for: the route, the method, the class in the head and the body, byte for byte.
fn print(route: Route, method: &Method, asked: &Asked, body: &[u8]) -> Print {
    let route = match route {
        Route::Work => "work",
        Route::Tasks => "tasks",
    };
    let class = asked.fields.task_class.as_ref().map_or("", TaskClass::as_str);
    Print::of(&[
        route.as_bytes(),
        method.as_str().as_bytes(),
        class.as_bytes(),
        body,
    ])
}

/// Reads and parses the body.
async fn read(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    asked: &mut Asked,
    holding: Holding,
    bodiless: bool,
) -> Result<(Task, Bytes), Response<Body>> {
    let (body, task) = if bodiless {
        drain(headers, body);
        (Bytes::new(), Task::default())
    } else {
        let body = tokio::select! {
            body = request::read_body(headers, body, &app.limits, holding) => body,
            () = app.cut_off.cancelled() => return Err(draining(app, asked, Applied::No)),
        };
        let body = body.map_err(Problem::into_response)?;
        let task = Task::parse(&body, &app.limits).map_err(Problem::into_response)?;
        (body, task)
    };
    asked.ask.bytes = body.len() as u64;
    Ok((task, body))
}

impl Arrived {
    /// Asks for a place.
    pub(crate) fn admit(&self, app: &App) -> Result<Place, Refusal> {
        app.gate.admit(&self.asked)
    }

    /// When its caller stops waiting, as admission sees it.
    pub(crate) fn patience(&self, app: &App) -> Instant {
        let profile = app.admission().profile();
        let class = profile.classes.get(&self.class).cloned();
        let class = class.unwrap_or_else(|| profile.other_class());
        let asked = self.asked.ask.deadline.unwrap_or(class.deadline());
        let time = asked.min(profile.max_deadline(&class));
        self.at.checked_add(time).unwrap_or(self.at)
    }

    /// Refuses with this code, to come back after `base` and a part of `spread` of its own.
    pub(crate) fn refuse(&self, code: Code, base: Duration, spread: Duration) -> Response<Body> {
        self.refuse_as(Overload::new(code), base, spread)
    }

    fn refuse_as(&self, mut overload: Overload, base: Duration, spread: Duration) -> Response<Body> {
        if overload.retry == Retry::After {
            let delay = base + spread.mul_f64(clock::share());
            overload.hint = Hint::Window {
                delay,
                max: delay + (delay / 5).max(Duration::from_millis(50)),
            };
        }
        refuse(self.asked.refusal(Rejection {
            overload: Box::new(overload),
        }))
    }

    /// The journal did not take it.
    pub(crate) fn not_durable(&self, failed: &Failed) -> Response<Body> {
        let mut overload = Overload::new(not_durable_code());
        if failed.written == Written::Unknown {
            overload.applied = Applied::Maybe;
        }
        self.refuse_as(overload, PAUSE.0, PAUSE.1)
    }

    /// The answer to a key that is not to be had.
    pub(crate) fn refuse_known(&self, known: &Known) -> Response<Body> {
        let key = self.key.as_ref().map_or("", |(key, _)| key.key.as_str());
        match known {
            Known::TenantFull => self.refuse(Code::TenantLimit, KEYS_PAUSE.0, KEYS_PAUSE.1),
            Known::Full => self.refuse(Code::QueueFull, KEYS_PAUSE.0, KEYS_PAUSE.1),
            // The others are answered before; a key that stands for something else is 422 in any case.
            Known::Other | Known::Task(_) | Known::Pending(..) | Known::Work(_) => {
                let limit = "sent again only with what it was first sent with: route, method, Overload-Task-Class and body. \
                             This request differs in one of them";
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                Problem::field(status, "Idempotency-Key", key, limit).into_response()
            }
        }
    }
}

/// The answer of an instance that goes away before it can give the real one.
pub(crate) fn draining(app: &App, asked: &Asked, applied: Applied) -> Response<Body> {
    let mut rejection = app.admission().cut_off(&asked.ask);
    rejection.overload.applied = applied;
    refuse(asked.refusal(rejection))
}

/// A private code: none of the contract says that the disk is at fault (CONTRACT section 1).
pub(crate) fn not_durable_code() -> Code {
    // A private code fits the grammar of codes, so this parses; should it not, the tier is shed at the door, which is true.
    "x_not_durable".parse().unwrap_or(Code::TierShed)
}

pub(crate) fn refuse(refusal: Refusal) -> Response<Body> {
    refusal.into_response().map(Body::from)
}
