//! From `reqwest-retry` and from `backoff` to Holdoff: the same calls before and after, against the same server.
//!
//! `cargo run -p holdoff-examples --bin migrate`, and with `--features backoff` the second half as well (`backoff` is
//! unmaintained, so it is compiled only where it is asked for).
//!
//! The server refuses each call once, with a window of 600 to 900 ms to come back in, and then serves it. What to look
//! at: who comes back before 600 ms. Everything is on loopback and ends within seconds.

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use comfy_table::{Table, presets};
use holdoff::contract::Code;
use holdoff_examples::args::whole;
use holdoff_testkit::{Record, Script, overloaded, served};
use reqwest_middleware::ClientWithMiddleware;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer};

/// The window of each refusal.
const AFTER: Duration = Duration::from_millis(600);
const MAX: Duration = Duration::from_millis(900);
/// No call takes longer, whoever makes it.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Parser)]
#[command(
    name = "migrate",
    about = "The same calls with reqwest-retry, with backoff, and with Holdoff"
)]
struct Args {
    /// Calls at a time, 1 to 200.
    #[arg(long, default_value_t = 20, allow_negative_numbers = true, value_parser = whole(1..=200_u32))]
    callers: u32,
}

/// Before: a stack of middlewares with `reqwest-retry`.
fn before_reqwest_retry() -> ClientWithMiddleware {
    use reqwest_retry::RetryTransientMiddleware;
    use reqwest_retry::policies::ExponentialBackoff;

    let policy = ExponentialBackoff::builder().build_with_max_retries(3);
    reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
        .with(RetryTransientMiddleware::new_with_policy(policy))
        .build()
}

/// After, where the stack stays: one middleware takes the place of the other, and reqwest's own retries are off.
fn after_in_the_stack() -> anyhow::Result<ClientWithMiddleware> {
    use holdoff_reqwest_middleware::OverloadMiddleware;

    let http = reqwest::Client::builder()
        .retry(reqwest::retry::never())
        .build()?;
    Ok(reqwest_middleware::ClientBuilder::new(http)
        .with(OverloadMiddleware::new())
        .build())
}

async fn fetch_in_stack(client: ClientWithMiddleware, url: String) -> anyhow::Result<String> {
    Ok(client.get(url).send().await?.error_for_status()?.text().await?)
}

/// After, where there is no stack to keep: a client with reqwest's manners, which also sends deadline and tier.
async fn after_without_a_stack(client: holdoff::Client, url: String) -> anyhow::Result<String> {
    let request = client.get(url).tier(holdoff::Tier::Deferrable).deadline(PATIENCE);
    Ok(request.send().await?.error_for_status()?.text().await?)
}

#[cfg(feature = "backoff")]
mod loops {
    //! A service that loops with `backoff`.

    use holdoff_backoff::backoff::{self, Error, ExponentialBackoff};
    use holdoff_backoff::{CallSpec, Outcome, Pacer, Replay, Safety, outcome_of};

    /// Before. The server's window is not looked at.
    pub(crate) async fn before(client: reqwest::Client, url: String) -> anyhow::Result<String> {
        let fetch = || async {
            let response = client.get(&url).send().await.map_err(Error::transient)?;
            let response = response.error_for_status().map_err(Error::transient)?;
            response.text().await.map_err(Error::permanent)
        };
        Ok(backoff::future::retry(ExponentialBackoff::default(), fetch).await?)
    }

    /// After, where the loop stays: the call is told what came back, and gives the loop its waits. (Where it need not
    /// stay, `holdoff::Client` takes the place of client and loop.)
    pub(crate) async fn after(client: reqwest::Client, pacer: Pacer, url: String) -> anyhow::Result<String> {
        let call = pacer.call(CallSpec {
            deadline: Some(super::PATIENCE),
            ..CallSpec::new(Safety::Idempotent, Replay::Bytes)
        });
        let fetch = || async {
            let attempt = call
                .begin()
                .map_err(|give_up| Error::transient(anyhow::anyhow!("{}", give_up.why.as_str())))?;
            let mut request = client.get(&url);
            if let Some(left) = attempt.time_left {
                request = request.timeout(left);
            }
            let response = match request.send().await {
                Ok(response) => response,
                Err(error) => {
                    call.tell(if error.is_connect() {
                        Outcome::NotConnected
                    } else {
                        Outcome::Broken
                    });
                    return Err(Error::transient(error.into()));
                }
            };
            call.tell(outcome_of(response.status(), response.headers(), None));
            let response = response
                .error_for_status()
                .map_err(|error| Error::transient(error.into()))?;
            response
                .text()
                .await
                .map_err(|error| Error::permanent(error.into()))
        };
        backoff::future::retry(call.clone(), fetch).await
    }
}

/// What the server saw of one way to call.
struct Seen {
    name: &'static str,
    answered: usize,
    record: Record,
}

impl Seen {
    fn row(&self) -> [String; 4] {
        let returns = self.record.returns().len();
        [
            self.name.to_owned(),
            self.answered.to_string(),
            self.record.attempts().to_string(),
            format!("{} of {returns}", self.record.early()),
        ]
    }
}

/// Makes all calls at once against a server of their own.
async fn drive<F>(name: &'static str, callers: u32, fetch: impl Fn(String) -> F) -> anyhow::Result<Seen>
where
    F: Future<Output = anyhow::Result<String>> + Send + 'static,
{
    let refusal = overloaded(Code::QueueFull).after(AFTER).max(MAX);
    let script = Script::new([refusal]).then(served()).each_call();
    let record = script.record();
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(script).mount(&server).await;

    let calls: Vec<_> = (0..callers)
        .map(|caller| {
            let call = fetch(format!("{}/{caller}", server.uri()));
            tokio::spawn(tokio::time::timeout(PATIENCE, call))
        })
        .collect();
    let mut answered = 0;
    for call in calls {
        let result = call.await.context("a call panicked")?;
        answered += usize::from(matches!(result, Ok(Ok(_))));
    }
    Ok(Seen {
        name,
        answered,
        record,
    })
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program that reports")]
async fn main() -> anyhow::Result<()> {
    let callers = Args::parse().callers;
    let mut seen = Vec::new();

    let client = before_reqwest_retry();
    seen.push(
        drive("before: reqwest-retry", callers, |url| {
            fetch_in_stack(client.clone(), url)
        })
        .await?,
    );
    let client = after_in_the_stack()?;
    seen.push(
        drive("after: holdoff-reqwest-middleware", callers, |url| {
            fetch_in_stack(client.clone(), url)
        })
        .await?,
    );
    let client = holdoff::Client::new();
    seen.push(
        drive("after: holdoff::Client", callers, |url| {
            after_without_a_stack(client.clone(), url)
        })
        .await?,
    );

    #[cfg(feature = "backoff")]
    {
        let client = reqwest::Client::builder()
            .retry(reqwest::retry::never())
            .build()?;
        seen.push(
            drive("before: backoff", callers, |url| {
                loops::before(client.clone(), url)
            })
            .await?,
        );
        let pacer = holdoff_backoff::Pacer::new();
        let after = |url| loops::after(client.clone(), pacer.clone(), url);
        seen.push(drive("after: holdoff-backoff, same loop", callers, after).await?);
    }

    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["client", "answered", "requests", "returns before the hint"]);
    for seen in &seen {
        table.add_row(seen.row());
    }
    println!(
        "{callers} calls at once; each is refused once with a window of {} to {} ms, and then served\n{table}",
        AFTER.as_millis(),
        MAX.as_millis()
    );
    if !cfg!(feature = "backoff") {
        println!("the half about backoff: cargo run -p holdoff-examples --features backoff --bin migrate");
    }
    for seen in seen.iter().filter(|seen| seen.name.starts_with("after")) {
        seen.record.check_never_early()?;
        ensure!(
            seen.answered == callers as usize,
            "{}: {} answered",
            seen.name,
            seen.answered
        );
    }
    Ok(())
}
