//! The routes. Work and tasks share their way in ([`crate::entry`]); they differ in who waits.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use futures_util::FutureExt;
use holdoff_admission_tower::{Asked, Permit, Place, Run};
use holdoff_contract::{Code, field_name};
use http::header::{CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::json;

use crate::app::App;
use crate::clock;
use crate::entry::{self, Entered, Route, enter, refuse};
use crate::problem::{Problem, json as answer};
use crate::tasks::{State as TaskState, View, whole_ms};

/// Most bytes of a fixture's members.
const MAX_FIXTURE_BYTES: usize = 16 * 1024;

/// The main listener's routes.
pub(crate) fn main(app: &App, with_metrics: bool) -> Router {
    let mut router = Router::new()
        .route("/v1/work", post(work).get(work))
        .route("/v1/tasks", post(submit))
        .route("/v1/tasks/{id}", get(look_up))
        .route("/healthz", get(health))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed);
    if with_metrics {
        router = router.route("/metrics", get(metrics));
    }
    if app.admin {
        router = router.route(crate::admin::PATH, get(crate::admin::admission));
    }
    if app.fixtures.is_some() {
        router = router.route("/fixtures/{name}", post(fixture));
    }
    router.with_state(App::clone(app))
}

/// The metrics listener's routes.
pub(crate) fn metrics_only(app: &App) -> Router {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route(crate::admin::PATH, get(crate::admin::admission))
        .route("/healthz", get(health));
    router.fallback(not_found).with_state(App::clone(app))
}

async fn not_found() -> Response<Body> {
    Problem::new(StatusCode::NOT_FOUND, "there is nothing here").into_response()
}

async fn not_allowed(method: Method) -> Response<Body> {
    let limit = "a method that this route has; see Allow";
    Problem::field(StatusCode::METHOD_NOT_ALLOWED, "method", method.as_str(), limit).into_response()
}

async fn health(State(app): State<App>) -> Response<Body> {
    let snapshot = app.admission().snapshot();
    let status = if snapshot.draining { "draining" } else { "ok" };
    answer(
        StatusCode::OK,
        &json!({"status": status, "state": snapshot.state.as_str()}),
    )
}

async fn metrics(State(app): State<App>) -> Response<Body> {
    app.admission().publish();
    let mut response = Response::new(Body::from(app.page.render()));
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

/// How work under a permit ended.
enum Ended {
    Done(Duration),
    Failed,
    Overdue,
}

/// Runs the work under its permit. A panic is a failure of this work only.
async fn run(app: &App, permit: Permit, duration: Duration) -> Ended {
    let started = clock::now();
    let work = AssertUnwindSafe(app.worker.work(duration)).catch_unwind();
    match permit.run(work).await {
        Run::Finished(Ok(()), permit) => {
            permit.completed();
            Ended::Done(clock::now().saturating_duration_since(started))
        }
        Run::Finished(Err(_), permit) => {
            permit.failed();
            Ended::Failed
        }
        Run::Overdue(permit) if app.worker.is_held() => {
            // The caller is answered; the held worker stays in use until it is released, as a stuck one would.
            let worker = std::sync::Arc::clone(&app.worker);
            tokio::spawn(async move {
                worker.released().await;
                permit.timed_out();
            });
            Ended::Overdue
        }
        Run::Overdue(permit) => {
            permit.timed_out();
            Ended::Overdue
        }
    }
}

/// `POST /v1/work`: the caller waits.
async fn work(State(app): State<App>, request: Request<Body>) -> Response<Body> {
    let Entered {
        asked,
        place,
        class,
        duration,
        at,
        ..
    } = match enter(&app, request, Route::Work).await {
        Ok(entered) => entered,
        Err(response) => return response,
    };
    let predicted = place.predicted_wait();
    let permit = match place.turn().await {
        Ok(permit) => permit,
        Err(rejection) => return refuse(asked.refusal(rejection)),
    };
    let waited = clock::now().saturating_duration_since(at);
    match run(&app, permit, duration).await {
        Ended::Done(service) => {
            let mut response = answer(
                StatusCode::OK,
                &json!({
                    "class": class, "tier": asked.ask.tier.as_str(), "waited_ms": whole_ms(waited),
                    "predicted_wait_ms": whole_ms(predicted), "service_ms": whole_ms(service),
                }),
            );
            advise(&app, &asked, response.headers_mut(), false);
            response
        }
        Ended::Failed => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the work failed").into_response(),
        Ended::Overdue => refuse(asked.overdue()),
    }
}

/// `POST /v1/tasks`: accepted work is run behind a `Location`.
async fn submit(State(app): State<App>, request: Request<Body>) -> Response<Body> {
    let Entered {
        asked,
        place,
        class,
        duration,
        key,
        ..
    } = match enter(&app, request, Route::Tasks).await {
        Ok(entered) => entered,
        Err(response) => return response,
    };
    let id = clock::task_id();
    let now = clock::now();
    let deferred = place.poll_after().is_some();
    let expected = place
        .poll_after()
        .unwrap_or(place.predicted_wait().saturating_add(duration));
    let view = match app.tasks.accept(id, &class, asked.ask.tier, now, expected, key) {
        Ok(view) => view,
        // The same key came in while this one was on its way; the place is given back.
        Err(known) => return entry::repeated(known),
    };
    let mut response = accepted(&view);
    advise(&app, &asked, response.headers_mut(), deferred);
    tokio::spawn(async move {
        let (state, code) = run_task(&app, id, place, duration).await;
        app.tasks.ended(id, clock::now(), state, code);
    });
    response
}

/// Waits for the task's turn and runs it; the result is its end.
async fn run_task(app: &App, id: uuid::Uuid, place: Place, duration: Duration) -> (TaskState, Option<Code>) {
    match place.turn().await {
        Ok(permit) => {
            app.tasks.started(id, clock::now());
            match run(app, permit, duration).await {
                Ended::Done(_) => (TaskState::Done, None),
                Ended::Failed => (TaskState::Failed, None),
                Ended::Overdue => (TaskState::Expired, Some(Code::DeadlineExpired)),
            }
        }
        Err(rejection) => match rejection.overload.code {
            code @ Some(Code::DeadlineExpired | Code::DeadlineUnattainable) => (TaskState::Expired, code),
            code => (TaskState::Evicted, code),
        },
    }
}

/// 202 with the task's place.
pub(crate) fn accepted(view: &View) -> Response<Body> {
    let mut response = described(StatusCode::ACCEPTED, view);
    if let Ok(location) = HeaderValue::try_from(format!("/v1/tasks/{}", view.id)) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

async fn look_up(State(app): State<App>, Path(id): Path<String>) -> Response<Body> {
    let view = id.parse().ok().and_then(|id| app.tasks.view(id, clock::now()));
    match view {
        Some(view) => described(StatusCode::OK, &view),
        None => Problem::field(
            StatusCode::NOT_FOUND,
            "task",
            &id,
            "a task of this server that it still remembers",
        )
        .into_response(),
    }
}

/// A task's document, with the time of the next look while it has not ended.
fn described(status: StatusCode, view: &View) -> Response<Body> {
    let mut response = answer(status, view);
    if let Some(poll) = view.poll_after {
        let headers = response.headers_mut();
        let ms = whole_ms(poll).max(1);
        headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
        headers.insert(field_name::RETRY_AFTER_MS, HeaderValue::from(ms));
    }
    response
}

/// The signal of a success.
fn advise(app: &App, asked: &Asked, headers: &mut HeaderMap, deferred: bool) {
    let degraded = app
        .fixtures
        .as_ref()
        .is_some_and(|fixtures| fixtures.is_degraded());
    asked.advise(headers, deferred, degraded, app.admission().snapshot().state);
}

/// `POST /fixtures/{name}`: the members are the body, empty for none.
async fn fixture(State(app): State<App>, Path(name): Path<String>, body: Body) -> Response<Body> {
    let Some(fixtures) = &app.fixtures else {
        return not_found().await;
    };
    let Ok(body) = axum::body::to_bytes(body, MAX_FIXTURE_BYTES).await else {
        let limit = format!("at most {MAX_FIXTURE_BYTES} bytes");
        return Problem::field(StatusCode::PAYLOAD_TOO_LARGE, "body", "larger", limit).into_response();
    };
    let members = if body.is_empty() {
        Ok(serde_json::Value::Null)
    } else {
        serde_json::from_slice(&body)
    };
    let members = match members {
        Ok(members) => members,
        Err(error) => return Problem::new(StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    match fixtures.apply(&name, &members) {
        Ok(()) => answer(StatusCode::OK, &json!({"ok": true})),
        Err(error) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()).into_response(),
    }
}
