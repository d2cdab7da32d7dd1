//! `/v1/tasks`: accepted work behind a `Location`.
//!
//! Order of a promise: a place in the queue, then the record on the disk (non-sheddable work), then the 202, then the work.
//! A crash at any point leaves either no promise or a record of it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use holdoff_admission_tower::{Place, RequestHead};
use holdoff_contract::{Applied, Code, Tier, field_name};
use http::header::{HeaderValue, LOCATION, RETRY_AFTER};
use http::{Request, Response, StatusCode, Uri};
use serde_json::json;
use tokio::sync::watch;
use uuid::Uuid;

use crate::app::App;
use crate::clock;
use crate::durable::Record;
use crate::entry::{self, Arrived, Route, draining, enter, refuse};
use crate::problem::{Problem, json as answer};
use crate::routes::{Ended, advise, run};
use crate::tasks::{End, Known, NewTask, Standing, State as TaskState, View, whole_ms};

/// A task with a place, on its way to its end.
pub(crate) struct Job {
    pub(crate) id: Uuid,
    pub(crate) class: String,
    pub(crate) duration: Duration,
    pub(crate) place: Place,
    /// What is on the disk, for work that must survive.
    pub(crate) record: Option<Record>,
}

/// `POST /v1/tasks`.
pub(crate) async fn submit(State(app): State<App>, request: Request<Body>) -> Response<Body> {
    match accept(&app, request).await {
        Ok(response) | Err(response) => response,
    }
}

async fn accept(app: &App, request: Request<Body>) -> Result<Response<Body>, Response<Body>> {
    let (arrived, place) = enter(app, request, Route::Tasks).await?;
    let place = match (place, &arrived.key) {
        (Some(place), _) => place,
        (None, Some((key, print))) => match app.tasks.known(key, *print, clock::now()) {
            Some(known) => return Err(repeated(app, &arrived, known).await),
            None => arrived.admit(app).map_err(refuse)?,
        },
        (None, None) => arrived.admit(app).map_err(refuse)?,
    };
    let deferred = place.poll_after().is_some();
    // In a task of its own: once there is a promise it does not matter whether its caller stays to hear it.
    let (owned, arrived) = (App::clone(app), Arc::new(arrived));
    let promised = Arc::clone(&arrived);
    let promise = app
        .background
        .spawn(async move { promise(&owned, &promised, place).await });
    let promised = tokio::select! {
        biased;
        promised = promise => promised,
        () = app.cut_off.cancelled() => Ok(None),
    };
    let view = match promised {
        Ok(Some(done)) => done?,
        // The server stops; whether the task was kept, or has begun, nobody knows by now.
        Ok(None) | Err(_) => return Err(draining(app, &arrived.asked, Applied::Maybe)),
    };
    let mut response = accepted(&view);
    advise(app, &arrived.asked, response.headers_mut(), deferred);
    Ok(response)
}

/// Enters the task, makes it durable where it must be, and sets it going.
async fn promise(app: &App, arrived: &Arrived, place: Place) -> Result<View, Response<Body>> {
    let id = clock::task_id();
    let now = clock::now();
    let ask = &arrived.asked.ask;
    let durable = ask.tier == Tier::NonSheddable;
    let (stand, standing) = watch::channel(Standing::Pending);
    let new = NewTask {
        class: arrived.class.clone(),
        tier: ask.tier,
        tenant: ask.tenant.clone(),
        key: arrived.key.clone(),
        expected_in: place
            .poll_after()
            .unwrap_or(place.predicted_wait().saturating_add(arrived.duration)),
        record: durable.then_some(standing),
    };
    let mut view = match app.tasks.accept(id, new, now) {
        Ok(view) => view,
        // The same key came in while this one was on its way; the place is given back.
        Err(known) => {
            drop(place);
            return Err(repeated(app, arrived, known).await);
        }
    };
    let mut record = None;
    if let Some(ledger) = app.ledger.as_ref().filter(|_| durable) {
        let kept = Record::new(ask, &arrived.class, arrived.key.as_ref(), arrived.duration)
            .at(now, place.deadline());
        if let Err(failed) = ledger.insert(id, &kept).await {
            app.tasks.withdraw(id);
            return Err(arrived.not_durable(&failed));
        }
        stand.send_replace(Standing::Durable);
        // It may have been long on the disk's doorstep: the polling hint counts from here.
        view = app.tasks.view(id, clock::now()).unwrap_or(view);
        record = Some(kept);
    }
    spawn(
        app,
        Job {
            id,
            class: arrived.class.clone(),
            duration: arrived.duration,
            place,
            record,
        },
    );
    Ok(view)
}

/// The answer to a key that is known: the first answer, or what is wrong with asking again.
async fn repeated(app: &App, arrived: &Arrived, known: Known) -> Response<Body> {
    match known {
        Known::Task(view) => accepted(&view),
        Known::Pending(id, mut standing) => {
            let durable = standing
                .wait_for(|standing| *standing == Standing::Durable)
                .await
                .is_ok();
            match app.tasks.view(id, clock::now()).filter(|_| durable) {
                Some(view) => accepted(&view),
                // The first one could not be kept, so neither can this one.
                None => arrived.refuse(entry::not_durable_code(), entry::PAUSE.0, entry::PAUSE.1),
            }
        }
        other => arrived.refuse_known(&other),
    }
}

/// Runs the task to its end; stops with the server.
pub(crate) fn spawn(app: &App, job: Job) {
    let owned = App::clone(app);
    // Nobody waits for the handle: the end is in the table.
    drop(app.background.spawn(async move { finish(&owned, job).await }));
}

async fn finish(app: &App, job: Job) {
    let Job {
        id,
        class,
        duration,
        place,
        record,
    } = job;
    let end = run_task(app, id, place, (&class, duration), record.is_some()).await;
    let now = clock::now();
    let show = || app.tasks.ended(id, now, &end);
    match (&app.ledger, record) {
        (Some(ledger), Some(record)) => {
            // Seen as ended once that is durable, so that nobody is told `done` of what a crash would undo.
            if let Some(view) = app.tasks.preview(id, now, &end) {
                ledger.end(id, &record.ended(&view), show).await;
            }
        }
        _ => show(),
    }
    if let Some(ledger) = &app.ledger {
        let forgotten = app.tasks.take_forgotten();
        if !forgotten.is_empty() {
            ledger.forget(forgotten).await;
        }
    }
}

/// Waits for the task's turn and runs it; the result is its end.
async fn run_task(app: &App, id: Uuid, place: Place, work: (&str, Duration), durable: bool) -> End {
    let end = |state, code| End { state, code };
    let deadline = place.deadline();
    match place.turn().await {
        Ok(permit) => {
            let late = clock::now().saturating_duration_since(deadline);
            let limit = app.limits.late_ms.map(Duration::from_millis);
            if durable && limit.is_some_and(|limit| late > limit) {
                // Nobody can use it any more: its owner finds it among the dead letters.
                return end(TaskState::Expired, Some(Code::DeadlineExpired));
            }
            app.tasks.started(id, clock::now());
            match run(app, permit, work.0, work.1).await {
                Ended::Done(_) => end(TaskState::Done, None),
                Ended::Failed => end(TaskState::Failed, None),
                Ended::Overdue => end(TaskState::Expired, Some(Code::DeadlineExpired)),
            }
        }
        Err(rejection) => match rejection.overload.code {
            code @ Some(Code::DeadlineExpired | Code::DeadlineUnattainable) => end(TaskState::Expired, code),
            code => end(TaskState::Evicted, code),
        },
    }
}

/// 202 with the task's place.
fn accepted(view: &View) -> Response<Body> {
    let mut response = described(StatusCode::ACCEPTED, view);
    if let Ok(location) = HeaderValue::try_from(format!("/v1/tasks/{}", view.id)) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// `GET /v1/tasks/{id}`. An id that is not even text is one that there is not.
pub(crate) async fn look_up(
    State(app): State<App>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Response<Body> {
    let written = uri.path().rsplit('/').next().unwrap_or_default();
    let id = id.map_or_else(|_| written.to_owned(), |Path(id)| id);
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

/// `GET /v1/dead-letters`: the caller's own non-sheddable tasks that did not end well, the newest first.
pub(crate) async fn dead_letters(State(app): State<App>, request: Request<Body>) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let owner = app.gate.read(RequestHead::from(&parts)).ask.tenant;
    let (shown, count) = app.tasks.dead_letters(owner.as_ref(), clock::now());
    answer(StatusCode::OK, &json!({"count": count, "tasks": shown}))
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
