//! Real tonic servers and channels over loopback: what a server says, and what a relay makes of it.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod support;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use holdoff_contract::write::Audience;
use holdoff_contract::{Applied, Code, Overload, Retry, Scope, ServiceState};
use holdoff_policy::StopReason;
use holdoff_tonic::{CallOptions, ClientLayer, Inbound, ServerLayer, StatusExt, status};
use http::{Request, Response};
use support::{Text, ms, windowed};
use tonic::Status;
use tonic::body::Body;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Server};
use tower::{Layer, Service};

type Reply = Pin<Box<dyn Future<Output = Result<String, Status>> + Send>>;
type Handler = Arc<dyn Fn(tonic::Request<Text>) -> Reply + Send + Sync>;

#[derive(Clone)]
struct Echo(Handler);

impl NamedService for Echo {
    const NAME: &'static str = "holdoff.test.Echo";
}

impl Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        struct Say(Handler);
        impl UnaryService<Text> for Say {
            type Response = Text;
            type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Text>, Status>> + Send>>;
            fn call(&mut self, request: tonic::Request<Text>) -> Self::Future {
                let reply = (self.0)(request);
                Box::pin(async move { Ok(tonic::Response::new(Text { value: reply.await? })) })
            }
        }
        let say = Say(Arc::clone(&self.0));
        Box::pin(async move {
            let codec = tonic_prost::ProstCodec::<Text, Text>::default();
            Ok(tonic::server::Grpc::new(codec).unary(say, request).await)
        })
    }
}

/// Serves until the test ends.
async fn serve<F, R>(layer: ServerLayer, handler: F) -> String
where
    F: Fn(tonic::Request<Text>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<String, Status>> + Send + 'static,
{
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let handler: Handler = Arc::new(move |request| Box::pin(handler(request)));
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = Server::builder().layer(layer).add_service(Echo(handler));
    tokio::spawn(server.serve_with_incoming(incoming));
    url
}

fn channel(url: &str) -> Channel {
    Channel::from_shared(url.to_owned()).unwrap().connect_lazy()
}

async fn say(channel: Channel, options: CallOptions) -> Result<String, Status> {
    let mut request = tonic::Request::new(Text {
        value: "hello".to_owned(),
    });
    request.extensions_mut().insert(options);
    support::send(ClientLayer::new().layer(channel), request).await
}

/// Without the layer: what really stands on the wire.
async fn raw(channel: Channel, lines: &[(&'static str, &str)]) -> Result<String, Status> {
    let mut request = tonic::Request::new(Text::default());
    for (name, value) in lines {
        request.metadata_mut().insert(*name, value.parse().unwrap());
    }
    support::send(channel, request).await
}

#[tokio::test]
async fn a_refused_caller_comes_back_in_its_window_and_is_served() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let url = serve(ServerLayer::new(), move |request| {
        let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            if first {
                return Err(status(&windowed(Code::QueueFull, 200, 300), Audience::Stranger));
            }
            Ok(request.into_inner().value)
        }
    })
    .await;
    let started = tokio::time::Instant::now();
    let said = say(channel(&url), CallOptions::new().deadline(ms(5000)))
        .await
        .unwrap();
    assert_eq!(said, "hello");
    assert!(started.elapsed() >= ms(200), "{:?}", started.elapsed());
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_handler_finds_what_its_caller_said_and_a_stranger_names_no_tenant() {
    let handler = |request: tonic::Request<Text>| async move {
        let inbound = request.extensions().get::<Inbound>().unwrap();
        assert!(Inbound::current().is_some());
        let fields = inbound.fields();
        let left = inbound.time_left().unwrap();
        assert!(left <= ms(700), "{left:?}");
        Ok(format!(
            "{:?} {:?} {:?}",
            fields.tier, fields.attempt, fields.tenant
        ))
    };
    let lines = [
        ("grpc-timeout", "700m"),
        ("overload-deadline-ms", "900"),
        ("overload-tier", "critical"),
        ("overload-attempt", "3"),
        ("overload-tenant", "\"acme\""),
    ];
    let url = serve(ServerLayer::new(), handler).await;
    let said = raw(channel(&url), &lines).await.unwrap();
    assert_eq!(said, "Some(Critical) Some(Attempt(3)) None");
    let url = serve(ServerLayer::trusted(), handler).await;
    let said = raw(channel(&url), &lines).await.unwrap();
    assert_eq!(said, "Some(Critical) Some(Attempt(3)) Some(Tenant(\"acme\"))");
}

#[tokio::test]
async fn a_call_whose_time_is_over_is_refused_and_not_run() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let url = serve(ServerLayer::new(), move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(String::new()) }
    })
    .await;
    let status = raw(channel(&url), &[("overload-deadline-ms", "0")])
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
    let overload = status.overload().unwrap();
    assert_eq!(
        (overload.code, overload.retry),
        (Some(Code::DeadlineExpired), Retry::No)
    );
    assert_eq!(ran.load(Ordering::Relaxed), 0);
}

/// A service that calls another one and hands its failure on with `?`.
async fn relay(leaf: &str, layer: ServerLayer) -> String {
    let leaf = channel(leaf);
    serve(layer, move |_| {
        let leaf = leaf.clone();
        async move { say(leaf, CallOptions::new()).await }
    })
    .await
}

#[tokio::test]
async fn a_dependencys_refusal_goes_up_aged_one_hop_further_and_is_not_retried_on_the_way() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let leaf = serve(ServerLayer::new(), move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async {
            let overload = Overload {
                state: Some(ServiceState::Shedding),
                scope: Scope::Service,
                ..windowed(Code::TierShed, 800, 900)
            };
            Err(status(&overload, Audience::Trusted))
        }
    })
    .await;
    let relay = relay(&leaf, ServerLayer::new()).await;
    let status = raw(channel(&relay), &[("overload-deadline-ms", "5000")])
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    let overload = status.overload().unwrap();
    assert_eq!(overload.code, Some(Code::DependencyOverloaded));
    assert_eq!(
        (overload.hop, overload.applied, overload.retry),
        (1, Applied::No, Retry::After)
    );
    assert_eq!((overload.scope, overload.state), (Scope::Request, None));
    let delay = overload.hint.delay_or_zero();
    // The pushback is drawn up to max, and the largest source counts; ageing rounds up to whole milliseconds.
    assert!(delay > ms(500) && delay <= ms(900), "{delay:?}");
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_quota_of_the_service_itself_is_not_its_callers_and_a_timeout_may_have_been_applied() {
    let leaf = serve(ServerLayer::new(), |_| async {
        Err(status(&windowed(Code::RateLimited, 300, 400), Audience::Stranger))
    })
    .await;
    let up = relay(&leaf, ServerLayer::new()).await;
    let status = raw(channel(&up), &[]).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(status.overload().unwrap().code, Some(Code::DependencyOverloaded));
    let up = relay(
        &leaf,
        ServerLayer::new().called_as(holdoff_contract::CalledAs::CallersTenant),
    )
    .await;
    let status = raw(channel(&up), &[]).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert_eq!(status.overload().unwrap().code, Some(Code::RateLimited));

    let leaf = serve(ServerLayer::new(), |_| async {
        tokio::time::sleep(ms(30_000)).await;
        Ok(String::new())
    })
    .await;
    let up = relay(&leaf, ServerLayer::new().reserve(ms(150))).await;
    let status = raw(channel(&up), &[("grpc-timeout", "400m")]).await.unwrap_err();
    let overload = status.overload().unwrap();
    assert_eq!(overload.code, Some(Code::DependencyTimeout));
    assert_eq!(
        (overload.hop, overload.applied, overload.retry),
        (1, Applied::Maybe, Retry::No)
    );
}

#[tokio::test]
async fn a_service_without_time_left_answers_for_itself_and_one_that_is_not_there_is_no_overload() {
    let leaf = serve(ServerLayer::new(), |_| async { Ok(String::new()) }).await;
    let up = relay(&leaf, ServerLayer::new().reserve(ms(500))).await;
    let status = raw(channel(&up), &[("overload-deadline-ms", "400")])
        .await
        .unwrap_err();
    assert_eq!(status.overload().unwrap().code, Some(Code::DeadlineExpired));

    let free = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let nobody = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let status = say(channel(&nobody), CallOptions::new().deadline(ms(300)))
        .await
        .unwrap_err();
    assert!(!status.is_overloaded());
    let error = status.call_error().unwrap();
    assert!(error.transport_error().is_some(), "{error:?}");
    let stops = [
        StopReason::Transport,
        StopReason::DeadlineBeforeHint,
        StopReason::AttemptsExhausted,
        StopReason::DeadlineExceeded,
    ];
    assert!(stops.contains(&error.why().unwrap()), "{:?}", error.why());

    let up = relay(&nobody, ServerLayer::new()).await;
    let status = raw(channel(&up), &[]).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(status.metadata().get("overload-signal").is_none());
}
