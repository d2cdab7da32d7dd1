//! Plays a gRPC caller and judges a server: it is told to refuse, and each refusal is looked at frame by frame.

use serde_json::{Value, json};

use super::SERVICE;
use super::check::{self, Refusal};
use super::probe::Probe;
use super::spec::GrpcServerCase;
use crate::adapter::{Adapter, COMMAND_LIMIT};
use crate::case::Case;
use crate::run::{self, RunContext};
use crate::server_drive::{ServerTarget, in_time};
use crate::verdict::{Findings, NotRun, Outcome};

/// Runs one case against a server of its own.
pub(crate) async fn run_case(
    case: &Case,
    body: &GrpcServerCase,
    target: &ServerTarget,
    context: &RunContext,
) -> Outcome {
    let ServerTarget::Adapter(pool) = target else {
        let why = "needs an adapter: a bare URL takes no fixture";
        return Err(NotRun::NotApplicable(why.to_owned()));
    };
    let until = run::give_up(case);
    let adapter = pool.start_own().await?;
    let needed = [
        Some("force_reject"),
        body.identity.as_ref().map(|_| "trust"),
        body.state.as_ref().map(|_| "force_state"),
    ];
    let outcome = match needed.into_iter().flatten().find(|name| !adapter.can(name)) {
        Some(missing) => Err(NotRun::NotApplicable(format!(
            "the adapter does not declare {missing}"
        ))),
        None => {
            let play = play(case, body, &adapter, context);
            in_time(case, until, &adapter, Box::pin(play)).await
        }
    };
    adapter.stop().await;
    outcome
}

async fn play(case: &Case, body: &GrpcServerCase, adapter: &Adapter, context: &RunContext) -> Outcome {
    let reply = adapter
        .request(
            json!({"cmd": "start", "grpc": true, "profile": {}}),
            COMMAND_LIMIT,
        )
        .await?;
    let url = adapter.listens("start", &reply).await?.url();
    let fixture = |mut members: Value| {
        members["cmd"] = json!("fixture");
        adapter.request(members, COMMAND_LIMIT)
    };
    if let Some(identity) = &body.identity {
        fixture(json!({"name": "trust", "identity": identity})).await?;
    }
    if let Some(state) = &body.state {
        fixture(json!({"name": "force_state", "state": state})).await?;
    }
    let probe = Probe::connect(&url).await.map_err(NotRun::PeerBroke)?;
    let path = format!("/{SERVICE}/{}.{}", context.run_id, case.id);
    let fields: Vec<(&str, String)> = body
        .identity
        .iter()
        .map(|identity| ("authorization", format!("Bearer {identity}")))
        .collect();
    let mut refusals = Vec::new();
    for code in &body.codes {
        for &after in &body.after_ms {
            let max = after + body.width_ms;
            let members = json!({"name": "force_reject", "code": code, "after_ms": after, "max_ms": max, "count": body.count});
            fixture(members).await?;
            for _ in 0..body.count {
                let seen = probe.call(&path, &fields).await.map_err(NotRun::PeerBroke)?;
                refusals.push(Refusal::new(code, after, max, seen));
            }
        }
    }
    let mut findings = Findings::default();
    // The second witness: without the fixture the same call is served, so what was seen were refusals.
    let served = probe.call(&path, &fields).await.map_err(NotRun::PeerBroke)?;
    let ok = served
        .end()
        .get("grpc-status")
        .is_some_and(|status| status == "0");
    findings.check(
        "served when not told to refuse",
        ok && served.data > 0,
        "grpc-status 0 and a message",
        format!(
            "grpc-status {}, {} bytes",
            check::text(served.end(), "grpc-status"),
            served.data
        ),
    );
    for rule in &body.rules {
        check::judge(&mut findings, *rule, &refusals, body);
    }
    for refusal in refusals.iter().take(MAX_SHOWN) {
        findings.saw(refusal.show());
    }
    Ok(findings)
}

/// Refusals that a failing case shows.
const MAX_SHOWN: usize = 20;
