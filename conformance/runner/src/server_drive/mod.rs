//! Plays a caller and judges a server.
//!
//! A server's own tests cannot show that its refusals are honest: they share its reading of the contract. Here the
//! server is seen from outside only. A case (see [`spec`]) says what the server declares, what is done to it and what
//! must be seen; [`play`] does it over real sockets ([`probe`]); [`check`] judges what was seen, with our own reading of
//! a reject ([`reject`], [`rules`]) and the metrics page as the second witness ([`page`]).
//!
//! With an adapter each case gets a process of its own: a server that a case has broken cannot colour the next one. A
//! bare URL is driven with ordinary traffic only; what needs a fixture or a declared profile is then not applicable. Each case
//! is then a caller of its own ([`callers`]), and what the server says about that caller is obeyed (`patience`).

use std::time::{Duration, Instant};

use url::Url;

use crate::adapter::{Adapter, AdapterPool, COMMAND_LIMIT};
use crate::case::Case;
use crate::run::{self, RunContext};
use crate::verdict::{Findings, NotRun, Outcome};
use crate::{clock, slack};

mod ask;
pub mod callers;
pub mod check;
mod compare;
mod left_out;
pub mod look;
pub mod message;
pub mod page;
mod patience;
pub mod play;
pub mod probe;
pub(crate) mod record;
#[cfg(test)]
mod recorded;
pub mod reject;
pub mod rules;
pub(crate) mod silence;
pub mod spec;
mod witness;

use callers::Callers;
use left_out::Page;
use message::{Exchange, NoAnswer};
use play::{Evidence, Stage};
use probe::Address;
pub use spec::ServerCase;
use spec::Step;

/// Exchanges listed in the timeline of a case at most.
const MAX_TIMELINE: usize = 40;

/// What is judged: a program behind an adapter, or a bare URL.
#[derive(Debug)]
pub enum ServerTarget {
    /// Started anew with `start` for each case.
    Adapter(AdapterPool),
    /// A running server that is only driven with ordinary traffic (profile server-core).
    Url {
        /// Its base URL.
        url: Url,
        /// Where its metrics are, when they are to be looked at.
        metrics_url: Option<Url>,
    },
}

/// Runs one case against the target. The time limit of the case is put around this call by the runner.
///
/// # Errors
/// [`NotRun`] says why there are no findings.
pub async fn run_case(
    case: &Case,
    body: &ServerCase,
    target: &ServerTarget,
    context: &RunContext,
) -> Outcome {
    match target {
        ServerTarget::Adapter(pool) => {
            context.silence.given_up()?;
            let until = run::give_up(case);
            let adapter = pool.start_own().await?;
            let needed = body
                .fixtures()
                .into_iter()
                .chain(case.needs.iter().map(String::as_str));
            let missing: Vec<&str> = needed.filter(|name| !adapter.can(name)).collect();
            if !missing.is_empty() {
                adapter.stop().await;
                let words = format!("the adapter does not declare {}", missing.join(", "));
                return Err(NotRun::NotApplicable(words));
            }
            let drive = async {
                let (server, metrics) = start(&adapter, body).await?;
                if let Err(why) = context.silence.look(&server).await {
                    return Err(adapter.broke(&why).await);
                }
                let stage = Stage {
                    server,
                    metrics,
                    adapter: Some(&adapter),
                    callers: Callers::One,
                };
                on(&stage, case, body, context).await
            };
            // On the heap: what a case keeps of its steps is more than a stack should carry from caller to caller.
            let outcome = in_time(case, until, &adapter, Box::pin(drive)).await;
            adapter.stop().await;
            outcome
        }
        ServerTarget::Url { url, metrics_url } => {
            if !body.plain {
                let why = "needs an adapter: a bare URL takes no profile and no fixture";
                return Err(NotRun::NotApplicable(why.to_owned()));
            }
            let address =
                |url: &Url| Address::parse(url.as_str()).map_err(|error| NotRun::Harness(error.to_string()));
            let metrics = metrics_url.as_ref().map(address).transpose()?;
            let server = address(url)?;
            context.silence.look_once(&server).await?;
            let play = format!("{}/{}", context.run_id, case.id);
            let stage = Stage {
                callers: Callers::of(server.authority(), context.seed, &play),
                server,
                metrics,
                adapter: None,
            };
            on(&stage, case, body, context).await
        }
    }
}

/// Starts the server of a case: its address, and that of its metrics page where it has one.
async fn start(adapter: &Adapter, body: &ServerCase) -> Result<(Address, Option<Address>), NotRun> {
    let mut command = serde_json::json!({"cmd": "start"});
    command["profile"] = body.profile.clone().unwrap_or_else(|| serde_json::json!({}));
    let reply = adapter.request(command, COMMAND_LIMIT).await?;
    let server = adapter.listens("start", &reply).await?;
    Ok((server, adapter.place("start", &reply, "metrics_url").await?))
}

/// Plays a case on a process of its own until [`run::give_up`]: one that overruns its limit is ended here, where its stderr can still
/// be told.
pub(crate) async fn in_time(
    case: &Case,
    until: Instant,
    adapter: &Adapter,
    play: impl Future<Output = Outcome>,
) -> Outcome {
    match tokio::time::timeout_at(until.into(), play).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let stderr = adapter.stderr_tail();
            adapter.kill().await;
            Err(NotRun::PeerBroke(format!(
                "the case did not end within its limit of {} ms{stderr}",
                case.limit_ms
            )))
        }
    }
}

/// Plays and judges on a running server.
async fn on(stage: &Stage<'_>, case: &Case, body: &ServerCase, context: &RunContext) -> Outcome {
    let (requirements, fixtures) = (&case.requirements, stage.adapter.is_some());
    let by = match (&stage.metrics, stage.adapter) {
        (Some(_), _) => Page::There,
        (None, Some(_)) => Page::MissingFromStart,
        (None, None) => Page::MissingFromUrl,
    };
    let checks = left_out::checks(by, case, body)?;
    let begun = clock::now();
    let (evidence, pace) = slack::during(play::play(stage, begun, &body.steps, context.seed)).await;
    let (mut evidence, slack) = (evidence?, pace.slack.max(context.slack));
    let since = |at: Instant| at.saturating_duration_since(begun);
    let stood = pace.stills.0.iter().map(|(from, to)| (since(*from), since(*to)));
    evidence.stood = stood.collect();
    if !fixtures {
        context.silence.heard(&evidence);
    }
    if !fixtures {
        could_be_provoked(body, &evidence)?;
        patience::saw_a_crowd(body, &evidence)?;
    }
    let mut findings = Findings {
        stood: pace.stills.longest(),
        ..Findings::default()
    };
    let lost = answered(&evidence, &mut findings);
    patience::whole(&evidence, &mut findings);
    for check in &checks {
        check::judge(check, &evidence, slack, &mut findings);
    }
    let unseen = check::unseen(&checks, &evidence);
    if requirements.iter().all(|id| unseen.contains(id.as_str())) {
        let why = format!(
            "no answer is one that {} speaks of: {}",
            requirements.join(", "),
            look::tally(evidence.exchanges.iter())
        );
        if !fixtures {
            return Err(patience::inconclusive(&why));
        }
        findings.check(
            "something to look at",
            false,
            "an answer that the rule speaks of",
            why,
        );
    }
    findings.unseen = unseen.into_iter().map(str::to_owned).collect();
    if lost {
        // Whatever is missing after that may be missing for want of this answer.
        findings.excuse_all();
    }
    if checks.len() < body.checks.len() {
        findings.saw("one witness only: no metrics page was given, so that its checks were left out");
    }
    tell(&evidence, &mut findings);
    record::measure(&evidence, &mut findings);
    if context.records() {
        findings.record = record::lines(&evidence, context);
    }
    Ok(findings)
}

/// A bare URL that took everything it was sent was not overloaded: nothing was shown, for or against it.
fn could_be_provoked(body: &ServerCase, evidence: &Evidence) -> Result<(), NotRun> {
    for step in &body.steps {
        let Step::Flood(flood) = step else { continue };
        let of_flood = || look::of(evidence, &flood.send.label);
        let left = |exchange: &&Exchange| exchange.answer == Err(NoAnswer::Left);
        let served = |exchange: &Exchange| {
            exchange
                .answer
                .as_ref()
                .is_ok_and(|seen| (200..300).contains(&seen.status))
        };
        let taken = of_flood().any(served) && of_flood().filter(|exchange| !left(exchange)).all(served);
        if taken {
            return Err(NotRun::Untestable(format!(
                "no reject in {} requests: ordinary traffic does not overload this server",
                of_flood().count()
            )));
        }
    }
    Ok(())
}

/// Every request was answered: a server that hangs, resets or talks garbage fails whatever else it does. True where answers or pages
/// are missing, and only such that a standstill took half of their time from.
fn answered(evidence: &Evidence, findings: &mut Findings) -> bool {
    let missing: Vec<(&Exchange, &NoAnswer)> = evidence
        .exchanges
        .iter()
        .filter_map(|exchange| Some((exchange, ask::unanswered(exchange)?)))
        .collect();
    let answers = evidence
        .exchanges
        .iter()
        .filter(|exchange| exchange.answer.is_ok())
        .count();
    let n = missing.len();
    let seen = match missing.first() {
        None => format!("{answers} answers"),
        Some((exchange, error)) => format!(
            "{n} of {} were not; the first: {} {} ({}): {error}",
            evidence.exchanges.len(),
            exchange.ask.method,
            exchange.ask.path,
            exchange.label
        ),
    };
    let stood = |from: Duration, limit: Duration| evidence.stood_in(from, limit) * 2 >= limit;
    let lost = |(exchange, error): &(&Exchange, &NoAnswer)| match error {
        NoAnswer::TimedOut(limit) => stood(exchange.sent_at, *limit),
        _ => false,
    };
    let pages = &evidence.blank_pages;
    let lost = (n > 0 || !pages.is_empty())
        && missing.iter().all(lost)
        && pages.iter().all(|(from, limit)| stood(*from, *limit));
    findings.check_unless(
        lost,
        "answers",
        n == 0 && answers > 0,
        "every request gets a complete HTTP answer",
        seen,
    );
    lost
}

fn tell(evidence: &Evidence, findings: &mut Findings) {
    let mut by_time: Vec<_> = evidence.exchanges.iter().chain(&evidence.aside).collect();
    by_time.sort_by_key(|exchange| exchange.sent_at);
    for exchange in by_time.iter().take(MAX_TIMELINE) {
        findings.saw(format!(
            "{:>6} ms  {} {} ({})  ->  {} in {} ms",
            exchange.sent_at.as_millis(),
            exchange.ask.method,
            exchange.ask.path,
            exchange.label,
            look::brief(exchange),
            exchange.done_after.as_millis()
        ));
    }
    if let Some(longest) = evidence.stood.iter().map(|(from, to)| *to - *from).max() {
        findings.saw(format!(
            "        the machine stood still {} times, for up to {} ms",
            evidence.stood.len(),
            longest.as_millis()
        ));
    }
    if by_time.len() > MAX_TIMELINE {
        findings.saw(format!("        and {} more", by_time.len() - MAX_TIMELINE));
    }
}
