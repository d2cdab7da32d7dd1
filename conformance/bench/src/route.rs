//! What does the layer add to one request, without a socket? A socket costs ten times what is looked for here, and the
//! kernel's part of it differs from second to second. So the same request goes through a router by itself, through one
//! with tower's limits and through one with our layer, batch by batch in turn; what is reported is what each adds.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::body::Body;
use futures_util::FutureExt;
use http::Request;
use serde::Serialize;
use tower::Service;

use crate::clock;
use crate::host::one_thread;
use crate::serve;
use crate::stats::Spread;

/// Requests in a batch.
const BATCH: usize = 256;

/// One router's figures.
#[derive(Clone, Debug, Serialize)]
pub struct RouteCost {
    /// Which.
    pub name: &'static str,
    /// Nanoseconds a request.
    pub ns: Spread,
    /// Nanoseconds over those of the first in the same round.
    pub added_ns: Spread,
}

/// All routers.
#[derive(Clone, Debug, Serialize)]
pub struct Routes {
    /// Batches of each.
    pub batches: usize,
    /// Requests in a batch.
    pub batch: usize,
    /// Per router, the bare one first.
    pub costs: Vec<RouteCost>,
}

/// With the fields that our client sends.
fn request() -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let headers = request.headers_mut();
    for (name, value) in serve::FIELDS {
        headers.insert(name, http::HeaderValue::from_static(value));
    }
    request
}

fn batch(router: &mut Router) -> anyhow::Result<Duration> {
    let begun = clock::now();
    let mut good = 0;
    for _ in 0..BATCH {
        // Outside of tokio's cooperative budget: a real request has one of its own.
        let answer = async {
            let response = router.call(black_box(request())).await?;
            let status = response.status();
            let body = axum::body::to_bytes(response.into_body(), 64).await;
            Ok::<_, std::convert::Infallible>(status.is_success() && body.is_ok())
        };
        let answer = tokio::task::coop::unconstrained(answer).now_or_never();
        good += usize::from(matches!(answer, Some(Ok(true))));
    }
    let took = clock::now() - begun;
    ensure!(good == BATCH, "{good} of {BATCH} requests were served");
    Ok(took)
}

/// Measures every router, a batch each in turn.
///
/// # Errors
/// When a request is not served at once.
pub fn measure(batches: usize) -> anyhow::Result<Routes> {
    one_thread()?.block_on(async {
        let mut routers = serve::routers(BATCH)?;
        let mut ns = vec![Vec::with_capacity(batches); routers.len()];
        for (name, router) in &mut routers {
            batch(router).with_context(|| *name)?;
        }
        for _ in 0..batches {
            for ((name, router), ns) in routers.iter_mut().zip(&mut ns) {
                let took = batch(router).with_context(|| *name)?;
                ns.push(took.as_secs_f64() * 1e9 / BATCH as f64);
            }
            // Lets admission keep its time.
            tokio::task::yield_now().await;
        }
        let cost = |((name, _), of): (&(&'static str, Router), &Vec<f64>)| {
            let added: Vec<f64> = of.iter().zip(&ns[0]).map(|(of, bare)| of - bare).collect();
            Ok(RouteCost {
                name,
                ns: Spread::of(of).context("no batches")?,
                added_ns: Spread::of(&added).context("no batches")?,
            })
        };
        Ok(Routes {
            batches,
            batch: BATCH,
            costs: routers.iter().zip(&ns).map(cost).collect::<anyhow::Result<_>>()?,
        })
    })
}
