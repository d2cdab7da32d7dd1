//! The routes. Work and tasks share their way in ([`crate::entry`]); they differ in who waits.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use futures_util::FutureExt;
use holdoff_admission_tower::{Asked, Permit, Place, Run};
use holdoff_contract::{Applied, Code};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use serde_json::json;

use crate::app::App;
use crate::clock;
use crate::entry::{Arrived, PAUSE, Route, draining, enter, refuse};
use crate::once::{Answer, Claim, Waited};
use crate::problem::{Problem, json as answer};
use crate::submit::{dead_letters, look_up, submit};
use crate::tasks::{Known, whole_ms};

/// Most bytes of a fixture's members.
const MAX_FIXTURE_BYTES: usize = 16 * 1024;

/// The main listener's routes.
pub(crate) fn main(app: &App, with_metrics: bool) -> Router {
    let mut router = Router::new()
        .route("/v1/work", post(work).get(work))
        .route("/v1/tasks", post(submit))
        .route("/v1/tasks/{id}", get(look_up))
        .route("/v1/dead-letters", get(dead_letters))
        .route("/healthz", get(health))
        .route(
            "/openapi.json",
            get(async || answer(StatusCode::OK, &crate::api::document())),
        );
    if with_metrics {
        router = router.route("/metrics", get(metrics));
    }
    if app.admin {
        router = router.route(crate::admin::PATH, get(crate::admin::admission));
    }
    if app.fixtures.is_some() {
        router = router.route("/fixtures/{name}", post(fixture));
    }
    answered(router).with_state(App::clone(app))
}

/// Whatever else is asked gets an answer in the same form. Last, since it holds for the routes that are there by then.
fn answered(router: Router<App>) -> Router<App> {
    router
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
}

/// The metrics listener's routes.
pub(crate) fn metrics_only(app: &App) -> Router {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route(crate::admin::PATH, get(crate::admin::admission))
        .route("/healthz", get(health));
    answered(router).with_state(App::clone(app))
}

async fn not_found(uri: Uri) -> Response<Body> {
    nothing_at(uri.path())
}

fn nothing_at(path: &str) -> Response<Body> {
    let limit = "a path that this server has; GET /openapi.json lists them";
    Problem::field(StatusCode::NOT_FOUND, "path", path, limit).into_response()
}

async fn not_allowed(method: Method) -> Response<Body> {
    let limit = "a method that this route has; see Allow";
    Problem::field(StatusCode::METHOD_NOT_ALLOWED, "method", method.as_str(), limit).into_response()
}

async fn health(State(app): State<App>) -> Response<Body> {
    let snapshot = app.admission().snapshot();
    let status = if snapshot.draining { "draining" } else { "ok" };
    let journal = match &app.ledger {
        None => "none",
        Some(ledger) if ledger.is_down() => "failing",
        Some(_) => "ok",
    };
    answer(
        StatusCode::OK,
        &json!({"status": status, "state": snapshot.state.as_str(), "journal": journal}),
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
pub(crate) enum Ended {
    Done(Duration),
    Failed,
    Overdue,
}

/// Runs the work under its permit. A panic is a failure of this work only.
pub(crate) async fn run(app: &App, permit: Permit, class: &str, duration: Duration) -> Ended {
    let started = clock::now();
    let work = AssertUnwindSafe(app.worker.work(class, duration)).catch_unwind();
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

/// `POST /v1/work`: the caller waits. Under a key the work is done once.
async fn work(State(app): State<App>, request: Request<Body>) -> Response<Body> {
    match enter(&app, request, Route::Work).await {
        Ok((arrived, place)) => keyed(&app, &arrived, place)
            .await
            .unwrap_or_else(std::convert::identity),
        Err(response) => response,
    }
}

/// Does the work, or answers what the first request under its key was answered.
async fn keyed(
    app: &App,
    arrived: &Arrived,
    mut place: Option<Place>,
) -> Result<Response<Body>, Response<Body>> {
    let mut claim = None;
    if let Some((key, print)) = &arrived.key {
        let until = arrived.patience(app);
        // Each turn either takes the key or waits for somebody else's work, until the caller's time is over.
        while claim.is_none() {
            let (own, waiting) = Claim::new(app, key);
            let first = match app.tasks.claim(key, *print, clock::now(), waiting) {
                Ok(()) => {
                    claim = Some(own);
                    break;
                }
                Err(known) => {
                    own.forgo();
                    match known {
                        Known::Work(first) => first,
                        other => return Err(arrived.refuse_known(&other)),
                    }
                }
            };
            place = None;
            let left = until.saturating_duration_since(clock::now());
            match app.waiters.wait(first, left).await {
                Waited::Answer(answer) => return Ok(answer.to_response()),
                Waited::Free => {}
                Waited::TooLong => return Err(refuse(arrived.asked.overdue())),
                Waited::TooMany => return Err(arrived.refuse(Code::ConcurrencyLimit, PAUSE.0, PAUSE.1)),
            }
        }
    }
    let place = match place {
        Some(place) => place,
        None => arrived.admit(app).map_err(refuse)?,
    };
    let response = do_work(app, arrived, place).await?;
    let Some(claim) = claim else { return Ok(response) };
    let (answer, response) = Answer::keep(response).await;
    if let Some(answer) = answer {
        claim.answer(answer);
    }
    Ok(response)
}

/// The answer of work that was done is `Ok`; everything else leaves the key free.
async fn do_work(app: &App, arrived: &Arrived, place: Place) -> Result<Response<Body>, Response<Body>> {
    let Arrived { asked, class, .. } = arrived;
    let predicted = place.predicted_wait();
    let turn = tokio::select! {
        // First, since what was cut off frees its worker, and nothing may begin there any more.
        biased;
        () = app.cut_off.cancelled() => return Err(draining(app, asked, Applied::No)),
        turn = place.turn() => turn,
    };
    let permit = match turn {
        Ok(permit) => permit,
        Err(rejection) => return Err(refuse(asked.refusal(rejection))),
    };
    let waited = clock::now().saturating_duration_since(arrived.at);
    let ended = tokio::select! {
        biased;
        ended = run(app, permit, class, arrived.duration) => ended,
        () = app.cut_off.cancelled() => return Err(draining(app, asked, Applied::Maybe)),
    };
    match ended {
        Ended::Done(service) => {
            let mut response = answer(
                StatusCode::OK,
                &json!({
                    "class": class, "tier": asked.ask.tier.as_str(), "waited_ms": whole_ms(waited),
                    "predicted_wait_ms": whole_ms(predicted), "service_ms": whole_ms(service),
                }),
            );
            advise(app, asked, response.headers_mut(), false);
            Ok(response)
        }
        Ended::Failed => {
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the work failed").into_response())
        }
        Ended::Overdue => Err(refuse(asked.overdue())),
    }
}

/// The signal of a success.
pub(crate) fn advise(app: &App, asked: &Asked, headers: &mut HeaderMap, deferred: bool) {
    let degraded = app
        .fixtures
        .as_ref()
        .is_some_and(|fixtures| fixtures.is_degraded());
    asked.advise(headers, deferred, degraded, app.admission().snapshot().state);
}

/// `POST /fixtures/{name}`: the members are the body, empty for none.
async fn fixture(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
    body: Body,
) -> Response<Body> {
    let (Some(fixtures), Ok(Path(name))) = (&app.fixtures, name) else {
        return nothing_at(uri.path());
    };
    let Ok(body) = axum::body::to_bytes(body, MAX_FIXTURE_BYTES).await else {
        let limit = format!("complete, and at most {MAX_FIXTURE_BYTES} bytes");
        let value = "larger, or broken off";
        return Problem::field(StatusCode::PAYLOAD_TOO_LARGE, "body", value, limit).into_response();
    };
    let members = if body.is_empty() {
        Ok(serde_json::Value::Null)
    } else {
        serde_json::from_slice(&body)
    };
    let members = match members {
        Ok(members) => members,
        Err(error) => {
            let value = format!("not JSON ({error})");
            let limit = "one JSON object, or empty";
            return Problem::field(StatusCode::BAD_REQUEST, "body", &value, limit).into_response();
        }
    };
    match fixtures.apply(&name, &members) {
        Ok(()) => answer(StatusCode::OK, &json!({"ok": true})),
        Err(error) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()).into_response(),
    }
}
