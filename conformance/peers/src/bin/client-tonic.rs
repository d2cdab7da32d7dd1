//! A tonic client with Holdoff's layer, under test: unary methods of the runner's test service.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use clap::Parser;
use holdoff::tonic::{ClientLayer, ClientService, StatusExt};
use holdoff::tower::{CallOptions, CallReport, CounterSnapshot, Error, OverloadLayer, Progress};
use holdoff_contract::read::Compat;
use holdoff_contract::{IdempotencyKey, TaskClass, Tenant, Tier};
use holdoff_peers::client::{ClientAdapter, Flavour, deadline, origins};
use holdoff_peers::command::{CallCommand, Configure};
use holdoff_peers::grpc::wire::Wire;
use holdoff_peers::grpc::{Codec, Text};
use holdoff_peers::reply::Answered;
use holdoff_peers::{headers, protocol};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

#[derive(Parser)]
#[command(about = "Holdoff's tonic client as a program under test (adapter protocol on stdin and stdout)")]
struct Args {
    /// Break one rule.
    #[cfg(feature = "mutants")]
    #[arg(long, value_enum)]
    mutant: Option<holdoff_peers::mutant::grpc::GrpcClientMutant>,
}

struct Tonic {
    args: Args,
}

/// Origins that one client has channels to at most.
const MAX_CHANNELS: usize = 64;

/// A configured client: one layer, and a channel for each origin.
#[derive(Clone)]
struct Client {
    layer: ClientLayer,
    channels: Arc<Mutex<HashMap<String, ClientService<Wire>>>>,
}

impl Tonic {
    fn channel(&self, client: &Client, base: &str) -> anyhow::Result<ClientService<Wire>> {
        let mut channels = client.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = channels.get(base) {
            return Ok(known.clone());
        }
        anyhow::ensure!(channels.len() < MAX_CHANNELS, "more than {MAX_CHANNELS} origins");
        let wire = Wire::new(base)?;
        #[cfg(feature = "mutants")]
        let wire = wire.mutated(self.args.mutant);
        let _ = &self.args;
        let service = client.layer.layer_to(&base.parse()?, wire);
        channels.insert(base.to_owned(), service.clone());
        Ok(service)
    }
}

/// A status that a call through the layer ended with.
struct Ended(Status);

impl Flavour for Tonic {
    type Client = Client;
    type Error = Ended;
    const NAME: &'static str = "holdoff-tonic";
    const CAPABILITIES: &'static [&'static str] = &[
        "grpc",
        "deadline",
        "budget",
        "tier",
        "compat",
        "stream_body",
        "cancel",
    ];

    fn configure(&self, configure: &Configure) -> anyhow::Result<Client> {
        let knobs = configure.policy.clone().unwrap_or_default();
        let mut layer = OverloadLayer::builder().policy(knobs.build()?);
        if knobs.compat == Some(false) {
            layer = layer.compat(Compat::Off);
        }
        if let Some(tenant) = configure.tenant()? {
            layer = layer.tenant(tenant);
        }
        for origin in origins(&configure.trusted)? {
            layer = layer.trusted(origin);
        }
        Ok(Client {
            layer: ClientLayer::with(layer),
            channels: Arc::default(),
        })
    }

    async fn call(
        &self,
        client: Client,
        command: CallCommand,
        progress: &Progress,
    ) -> anyhow::Result<Result<Answered, Ended>> {
        let request = &command.request;
        let url = url::Url::parse(&request.url)?;
        let base = url.origin().ascii_serialization();
        let path = url.path().parse().context("path")?;
        let mut message = tonic::Request::new(Text {
            value: request.body.clone().unwrap_or_default(),
        });
        *message.metadata_mut() = MetadataMap::from_headers(headers(&request.headers)?.into_iter().collect());
        message.extensions_mut().insert(options(&command, progress)?);
        let mut grpc = tonic::client::Grpc::new(self.channel(&client, &base)?);
        if let Err(status) = grpc.ready().await {
            return Ok(Err(Ended(status)));
        }
        let codec = Codec::default();
        let answer = if request.stream {
            // Not there at once, as the messages of a stream are not.
            let late = message.map(|text| {
                futures_util::stream::once(async {
                    tokio::task::yield_now().await;
                    text
                })
            });
            grpc.client_streaming(late, path, codec).await
        } else {
            grpc.unary(message, path, codec).await
        };
        Ok(match answer {
            Ok(response) => {
                let report = response.extensions().get::<CallReport>();
                let attempts = report.map_or(0, |report| report.attempts);
                Ok(Answered {
                    status: 200,
                    attempts,
                })
            }
            Err(status) if status.call_error().is_some() => Err(Ended(status)),
            Err(status) => Ok(Answered {
                status: http_status(status.code()),
                attempts: progress.attempts(),
            }),
        })
    }

    fn error(ended: &Ended) -> Option<&Error> {
        ended.0.call_error()
    }

    fn counters(&self, client: &Client) -> CounterSnapshot {
        client.layer.counters().snapshot()
    }
}

fn options(command: &CallCommand, progress: &Progress) -> anyhow::Result<CallOptions> {
    let request = &command.request;
    let mut options = CallOptions::new().progress(progress);
    if let Some(deadline) = deadline(command) {
        options = options.deadline(deadline);
    }
    if let Some(tier) = &request.tier {
        options = options.tier(tier.parse::<Tier>()?);
    }
    if let Some(class) = &request.task_class {
        options = options.task_class(TaskClass::new(class)?);
    }
    if let Some(tenant) = &request.tenant {
        options = options.tenant(Tenant::new(tenant)?);
    }
    if let Some(key) = &request.idempotency_key {
        options = options.idempotency_key(IdempotencyKey::new(key)?);
    }
    if let Some(incoming) = &command.incoming {
        options = options.incoming(incoming.to_policy()?);
    }
    Ok(options)
}

/// The protocol speaks of HTTP: what `google.rpc.Code` says a status is in HTTP.
fn http_status(code: Code) -> u16 {
    match code {
        Code::Ok => 200,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::ResourceExhausted => 429,
        Code::Cancelled => 499,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        Code::Unknown | Code::Internal | Code::DataLoss => 500,
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    protocol::serve(ClientAdapter::new(Tonic { args: Args::parse() })).await
}
