//! A service of one method, and transports in memory that play answers.
#![allow(dead_code, reason = "each test uses what it needs")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use holdoff_contract::{Code, Hint, Overload};
use holdoff_tonic::{CallOptions, ClientLayer, ClientService};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use prost::Message;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tower::util::BoxCloneSyncService;
use tower::{Layer, service_fn};

pub(crate) const PATH: &str = "/holdoff.test.Echo/Say";

/// The one message.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Text {
    #[prost(string, tag = "1")]
    pub(crate) value: String,
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A request as it reached the transport.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) uri: http::Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(crate) type Answer = Response<Body>;
pub(crate) type Transport = BoxCloneSyncService<Request<Body>, Answer, std::io::Error>;

/// Plays the answers in order, and keeps the requests. Request bodies are read only where `read` says so: a stream
/// that never ends must not stop the answer.
pub(crate) fn play(answers: Vec<Answer>, read: bool) -> (Transport, Arc<Mutex<Vec<Seen>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let transport = service_fn(move |request: Request<Body>| {
        let (log, answers) = (Arc::clone(&log), Arc::clone(&answers));
        async move {
            let (parts, body) = request.into_parts();
            let at = Instant::now();
            let body = if read {
                http_body_util::BodyExt::collect(body).await.unwrap().to_bytes()
            } else {
                // Kept open until the call is over.
                tokio::spawn(async move {
                    tokio::time::sleep(ms(60_000)).await;
                    drop(body);
                });
                Bytes::new()
            };
            log.lock().unwrap().push(Seen {
                at,
                uri: parts.uri,
                headers: parts.headers,
                body,
            });
            answers
                .lock()
                .unwrap()
                .pop_front()
                .ok_or_else(|| std::io::Error::other("one request too many"))
        }
    });
    (BoxCloneSyncService::new(transport), seen)
}

pub(crate) fn client(transport: Transport) -> ClientService<Transport> {
    let builder = holdoff_tonic::OverloadLayer::builder().rng_seed(1);
    ClientLayer::with(builder).layer(transport)
}

pub(crate) async fn say(service: ClientService<Transport>, options: CallOptions) -> Result<String, Status> {
    let mut request = tonic::Request::new(Text {
        value: "hello".to_owned(),
    });
    request.extensions_mut().insert(options);
    send(service, request).await
}

pub(crate) async fn send<S>(service: S, request: tonic::Request<Text>) -> Result<String, Status>
where
    S: tonic::client::GrpcService<Body>,
    S::ResponseBody: Send + 'static,
    <S::ResponseBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Error: std::fmt::Debug,
{
    let mut grpc = tonic::client::Grpc::new(service);
    assert!(grpc.ready().await.is_ok(), "the transport is ready");
    let codec = tonic_prost::ProstCodec::<Text, Text>::default();
    let answer = grpc
        .unary(request, PathAndQuery::from_static(PATH), codec)
        .await?;
    Ok(answer.into_inner().value)
}

pub(crate) fn windowed(code: Code, delay: u64, max: u64) -> Overload {
    Overload {
        hint: Hint::Window {
            delay: ms(delay),
            max: ms(max),
        },
        ..Overload::new(code)
    }
}

/// A message and `grpc-status: 0` behind it.
pub(crate) fn served(value: &str) -> Answer {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    framed(vec![Frame::data(message(value)), Frame::trailers(trailers)])
}

/// A head that decides nothing, and these frames.
pub(crate) fn framed(frames: Vec<Frame<Bytes>>) -> Answer {
    let body = StreamBody::new(stream::iter(frames.into_iter().map(Ok::<_, Status>)));
    head(200, &[("content-type", "application/grpc")], Body::new(body))
}

pub(crate) fn head(status: u16, lines: &[(&str, &str)], body: Body) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    for (name, value) in lines {
        response.headers_mut().append(
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    response
}

pub(crate) fn message(value: &str) -> Bytes {
    let encoded = Text {
        value: value.to_owned(),
    }
    .encode_to_vec();
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(u32::try_from(encoded.len()).unwrap());
    out.put_slice(&encoded);
    out.freeze()
}
