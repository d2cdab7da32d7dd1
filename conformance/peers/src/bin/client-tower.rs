//! The tower layer over a plain hyper client, under test.

use anyhow::Context;
use clap::Parser;
use holdoff::tower::{
    CallOptions, CallReport, CounterSnapshot, Error, InstanceList, OverloadLayer, OverloadService, Progress,
};
use holdoff_contract::read::Compat;
use holdoff_contract::{IdempotencyKey, TaskClass, Tenant, Tier};
use holdoff_peers::client::{ClientAdapter, Flavour, deadline, origins, read_on, trace};
use holdoff_peers::command::{CallCommand, Configure};
#[cfg(feature = "mutants")]
use holdoff_peers::mutant::client::ClientMutant;
use holdoff_peers::reply::Answered;
use holdoff_peers::transport::{Payload, Transport};
use holdoff_peers::{headers, protocol};
use http::Request;
use tower::{Layer, ServiceExt};

#[derive(Parser)]
#[command(about = "Holdoff's tower client as a program under test (adapter protocol on stdin and stdout)")]
struct Args {
    /// Break one rule.
    #[cfg(feature = "mutants")]
    #[arg(long, value_enum)]
    mutant: Option<ClientMutant>,
}

struct Tower {
    args: Args,
}

impl Flavour for Tower {
    type Client = OverloadService<Transport>;
    type Error = Error;
    const NAME: &'static str = "holdoff-tower";
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
    ];

    fn configure(&self, configure: &Configure) -> anyhow::Result<Self::Client> {
        let knobs = configure.policy.clone().unwrap_or_default();
        #[cfg(feature = "mutants")]
        let knobs = self
            .args
            .mutant
            .map_or(knobs.clone(), |mutant| mutant.knobs(knobs));
        let policy = knobs.build()?;
        let hint_cap = policy.hint_cap();
        let mut layer = OverloadLayer::builder().policy(policy).before_send(trace);
        if knobs.compat == Some(false) {
            layer = layer.compat(Compat::Off);
        }
        if let Some(tenant) = configure.tenant()? {
            layer = layer.tenant(tenant);
        }
        for origin in origins(&configure.trusted)? {
            layer = layer.trusted(origin);
        }
        if !configure.instances.is_empty() {
            layer = layer.instances(InstanceList::new(origins(&configure.instances)?)?);
        }
        #[cfg(feature = "mutants")]
        if let Some(mutant) = self.args.mutant {
            layer = mutant.entropy(layer);
        }
        let vocabulary = configure.vocabulary.clone();
        #[cfg(feature = "mutants")]
        let vocabulary = vocabulary.filter(|_| self.args.mutant != Some(ClientMutant::IgnoresVocabulary));
        if let Some(vocabulary) = vocabulary {
            layer = layer.vocabulary(vocabulary);
        }
        let transport = Transport::new();
        #[cfg(feature = "mutants")]
        let transport = match self.args.mutant {
            Some(mutant) => transport.mutated(mutant, hint_cap),
            None => transport,
        };
        let _ = (hint_cap, &self.args);
        Ok(layer.build().layer(transport))
    }

    async fn call(
        &self,
        client: Self::Client,
        command: CallCommand,
        progress: &Progress,
    ) -> anyhow::Result<Result<Answered, Error>> {
        let request = &command.request;
        let mut options = CallOptions::new().progress(progress);
        let left = deadline(&command);
        #[cfg(feature = "mutants")]
        let left = left.filter(|_| self.args.mutant != Some(ClientMutant::Timeless));
        if let Some(deadline) = left {
            options = options.deadline(deadline);
        }
        if let Some(tier) = &request.tier {
            let tier = tier.parse::<Tier>()?;
            #[cfg(feature = "mutants")]
            let tier = self.args.mutant.map_or(tier, |mutant| mutant.tier(tier));
            options = options.tier(tier);
        }
        if let Some(class) = &request.task_class {
            #[cfg(feature = "mutants")]
            let class = self
                .args
                .mutant
                .map_or(class.as_str(), |mutant| mutant.class(class));
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
        let mut sent = Request::builder()
            .method(request.method.as_str())
            .uri(request.url.as_str());
        for (name, value) in headers(&request.headers)? {
            sent = sent.header(name, value);
        }
        let stream = request.stream;
        #[cfg(feature = "mutants")]
        let stream = stream && self.args.mutant != Some(ClientMutant::CopiesStreams);
        let body = Payload::new(request.body.clone().unwrap_or_default(), stream);
        let mut sent = sent.body(body).context("request")?;
        sent.extensions_mut().insert(options);
        #[cfg(feature = "mutants")]
        if let Some(mutant) = self.args.mutant {
            mutant.aim(&mut sent)?;
        }
        let response = match client.oneshot(sent).await {
            Ok(response) => response,
            Err(error) => return Ok(Err(error)),
        };
        let attempts = response
            .extensions()
            .get::<CallReport>()
            .map_or(0, |report| report.attempts);
        let status = response.status().as_u16();
        read_on(response.into_body()).await;
        Ok(Ok(Answered { status, attempts }))
    }

    fn error(error: &Error) -> Option<&Error> {
        Some(error)
    }

    fn counters(&self, client: &Self::Client) -> CounterSnapshot {
        client.counters().snapshot()
    }

    #[cfg(feature = "mutants")]
    fn cancels(&self) -> bool {
        self.args.mutant != Some(ClientMutant::Uncancellable)
    }

    #[cfg(feature = "mutants")]
    fn finish(&self, result: &mut serde_json::Value) {
        if let Some(mutant) = self.args.mutant {
            mutant.result(result);
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    protocol::serve(ClientAdapter::new(Tower { args: Args::parse() })).await
}
