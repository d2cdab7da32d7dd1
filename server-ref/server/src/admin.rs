//! `GET /admin/admission`: what an operator looks at when something is wrong. Off by default on the main listener, since it
//! tells about callers, if only by salted hashes (ADM-23).

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use holdoff_admission::{Compliance, HintOutcome};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::app::App;
use crate::clock;
use crate::problem::json as answer;

/// The route.
pub(crate) const PATH: &str = "/admin/admission";

/// Callers that are shown: those that keep to their hints least.
const CALLERS: usize = 20;

pub(crate) async fn admission(State(app): State<App>) -> Response<Body> {
    let admission = app.admission();
    let (now, snapshot) = (clock::now(), admission.snapshot());
    let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let tiers: Vec<Value> = snapshot
        .tiers
        .iter()
        .zip(snapshot.wait_bounds)
        .map(|(tier, bound)| {
            json!({
                "tier": tier.tier.as_str(), "queued": tier.queued, "queue_limit": tier.queue_limit,
                "running": tier.running, "queued_work_ms": ms(tier.queued_work),
                "oldest_age_ms": ms(tier.oldest_age), "wait_bound_ms": ms(bound),
            })
        })
        .collect();
    let classes: Vec<Value> = snapshot
        .classes
        .iter()
        .map(|class| {
            json!({
                "class": class.name, "mean_ms": ms(class.mean), "p50_ms": ms(class.p50), "p95_ms": ms(class.p95),
                "samples": class.samples, "wait_error_ms": ms(class.wait_error),
                "service_error_ms": ms(class.service_error),
            })
        })
        .collect();
    let transitions: Vec<Value> = admission
        .transitions()
        .iter()
        .map(|change| {
            let ago = now.saturating_duration_since(change.at);
            json!({"ago_ms": ms(ago), "from": change.from.as_str(), "to": change.to.as_str()})
        })
        .collect();
    let callers: Vec<Value> = admission.worst_callers(CALLERS).iter().map(caller).collect();
    let document = json!({
        "state": snapshot.state.as_str(), "state_age_ms": ms(snapshot.state_age), "draining": snapshot.draining,
        "workers": snapshot.workers, "workers_busy": snapshot.busy, "workers_effective": snapshot.effective_workers,
        "tickets": snapshot.tickets, "backlog": snapshot.backlog, "queued_bytes": snapshot.queued_bytes,
        "estimated_work_ms": ms(snapshot.estimated_work), "oldest_age_ms": ms(snapshot.oldest_age),
        "staleness_ms": ms(snapshot.staleness),
        "tiers": tiers, "classes": classes, "transitions": transitions, "callers_by_hint_compliance": callers,
    });
    answer(StatusCode::OK, &document)
}

fn caller(caller: &Compliance) -> Value {
    let mut document = json!({
        "caller": format!("{:016x}", caller.caller), "tier": caller.tier.as_str(),
        "refused": caller.refused, "throttled": caller.throttled,
    });
    for outcome in HintOutcome::ALL {
        document[outcome.as_str()] = json!(caller.outcomes[outcome as usize]);
    }
    document
}
