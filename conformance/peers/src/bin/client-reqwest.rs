//! The client with reqwest's manners, under test.

use clap::Parser;
use holdoff::tower::{CounterSnapshot, Error, Progress};
use holdoff::{CallReport, Client, Compat};
use holdoff_peers::client::{ClientAdapter, Flavour, deadline, read_on, trace};
use holdoff_peers::command::{CallCommand, Configure};
use holdoff_peers::reply::Answered;
use holdoff_peers::{headers, protocol};
use http_body_util::Full;

#[derive(Parser)]
#[command(about = "Holdoff's reqwest client as a program under test (adapter protocol on stdin and stdout)")]
struct Args {}

struct Reqwest;

impl Flavour for Reqwest {
    type Client = Client;
    type Error = Error;
    const NAME: &'static str = "holdoff-reqwest";
    const CAPABILITIES: &'static [&'static str] = &[
        "deadline",
        "budget",
        "hold_off",
        "instances",
        "vocabulary",
        "tracing",
        "tier",
        "compat",
        "stream_body",
        "cancel",
        "redirect",
    ];

    fn configure(&self, configure: &Configure) -> anyhow::Result<Client> {
        let knobs = configure.policy.clone().unwrap_or_default();
        let mut builder = Client::builder().policy(knobs.build()?).before_send(trace);
        if knobs.compat == Some(false) {
            builder = builder.compat(Compat::Off);
        }
        if let Some(tenant) = configure.tenant()? {
            builder = builder.tenant(tenant);
        }
        for origin in &configure.trusted {
            builder = builder.trusted(origin.trim_end_matches('/'));
        }
        if !configure.instances.is_empty() {
            builder = builder.instances(&configure.instances);
        }
        if let Some(vocabulary) = &configure.vocabulary {
            builder = builder.vocabulary(vocabulary.clone());
        }
        Ok(builder.build()?)
    }

    async fn call(
        &self,
        client: Client,
        command: CallCommand,
        progress: &Progress,
    ) -> anyhow::Result<Result<Answered, Error>> {
        let request = &command.request;
        let mut call = client
            .request(request.method.parse()?, request.url.as_str())
            .progress(progress);
        for (name, value) in headers(&request.headers)? {
            call = call.header(name, value);
        }
        if let Some(deadline) = deadline(&command) {
            call = call.deadline(deadline);
        }
        if let Some(tier) = &request.tier {
            call = call.tier(tier.parse()?);
        }
        if let Some(class) = &request.task_class {
            call = call.task_class(class.as_str());
        }
        if let Some(tenant) = &request.tenant {
            call = call.tenant(tenant.as_str());
        }
        if let Some(key) = &request.idempotency_key {
            call = call.idempotency_key(key.as_str());
        }
        if let Some(incoming) = &command.incoming {
            call = call.incoming(incoming.to_policy()?);
        }
        if let Some(body) = request.body.clone() {
            call = if request.stream {
                call.body(reqwest::Body::wrap(Full::<bytes::Bytes>::from(body)))
            } else {
                call.body(body)
            };
        }
        let response = match call.send().await {
            Ok(response) => response,
            Err(error) => return Ok(Err(error)),
        };
        let attempts = response
            .extensions()
            .get::<CallReport>()
            .map_or(0, |report| report.attempts);
        let status = response.status().as_u16();
        read_on(reqwest::Body::from(response)).await;
        Ok(Ok(Answered { status, attempts }))
    }

    fn error(error: &Error) -> Option<&Error> {
        Some(error)
    }

    fn counters(&self, client: &Client) -> CounterSnapshot {
        client.counters().snapshot()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args {} = Args::parse();
    protocol::serve(ClientAdapter::new(Reqwest)).await
}
