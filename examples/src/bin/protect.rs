//! How a service protects itself: one layer in front of an axum app. Fifty callers come at once to a service that can
//! do four things at a time and lets eight wait; the others are told at once, each with a time of its own to come back.

use std::time::Duration;

use axum::{Router, routing::get};
use holdoff_admission_tower::{Admission, AdmissionLayer, Gate, Profile};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // What the service declares about itself. Everything else has a default; a YAML file does as well.
    let profile = Profile {
        workers: 4,
        queue: 8,
        ..Profile::default()
    };
    let admission = Admission::start(profile, None)?;
    let app = Router::new()
        .route("/report", get(report))
        .route_layer(AdmissionLayer::new(Gate::new(admission.clone())))
        .route("/healthz", get(|| async { "ok" })); // outside: health is never refused for load

    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}/report", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });

    let client = reqwest::Client::new();
    let mut callers = JoinSet::new();
    for _ in 0..50 {
        callers.spawn(client.get(&url).send());
    }
    let mut served = 0;
    while let Some(answer) = callers.join_next().await {
        let answer = answer??;
        match answer.headers().get("overload-signal") {
            None => served += 1,
            Some(signal) => say(&format!("{} {}", answer.status().as_u16(), signal.to_str()?)),
        }
    }
    let left = admission.snapshot().tickets;
    say(&format!(
        "{served} of 50 served, {} refused; places still taken: {left}",
        50 - served
    ));
    Ok(())
}

async fn report() -> &'static str {
    tokio::time::sleep(Duration::from_millis(50)).await; // the work
    "42"
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn say(text: &str) {
    println!("{text}");
}
