//! A gRPC caller that sees frames: what stood in the head, whether the head was all, what stood in trailers.

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Method, Request};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::proto::frame;

/// How long an answer is waited for.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 1 << 20;

/// One answer, frame by frame.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// The HTTP status.
    pub(super) http: u16,
    /// The head.
    pub(super) head: HeaderMap,
    /// The head ended the stream.
    pub(super) head_is_all: bool,
    /// Bytes of data.
    pub(super) data: usize,
    /// The trailers.
    pub(super) trailers: Option<HeaderMap>,
}

impl Seen {
    /// Where the status stands.
    pub(super) fn end(&self) -> &HeaderMap {
        match &self.trailers {
            Some(trailers) if !self.head.contains_key("grpc-status") => trailers,
            _ => &self.head,
        }
    }
}

/// A connection to the server under test. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Probe {
    base: String,
    sender: SendRequest<Bytes>,
    _connection: JoinSet<()>,
}

impl Probe {
    /// Connects to `http://host:port`.
    pub(super) async fn connect(base: &str) -> Result<Self, String> {
        let base = base.trim_end_matches('/').to_owned();
        let host = base
            .strip_prefix("http://")
            .ok_or_else(|| format!("{base:?} is not http://host:port"))?;
        let open = async {
            let stream = TcpStream::connect(host)
                .await
                .map_err(|error| error.to_string())?;
            let _ = stream.set_nodelay(true); // a socket that refuses this is slower, not wrong
            h2::client::handshake(stream)
                .await
                .map_err(|error| error.to_string())
        };
        let (sender, connection) = within(open).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // How it ends shows in the calls.
            let _ = connection.await;
        });
        Ok(Self {
            base,
            sender,
            _connection: tasks,
        })
    }

    /// Makes one unary call.
    pub(super) async fn call(&self, path: &str, fields: &[(&str, String)]) -> Result<Seen, String> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.base))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in fields {
            request = request.header(*name, value);
        }
        let request = request.body(()).map_err(|error| error.to_string())?;
        let sender = self.sender.clone();
        within(async move {
            let mut sender = sender.ready().await.map_err(|error| error.to_string())?;
            let (answer, mut body) = sender
                .send_request(request, false)
                .map_err(|error| error.to_string())?;
            // A server that refuses may reset the rest of the request: its answer counts.
            let _ = body.send_data(frame("probe"), true);
            let (head, mut body) = answer.await.map_err(|error| error.to_string())?.into_parts();
            let head_is_all = body.is_end_stream();
            let mut data = 0;
            while let Some(chunk) = body.data().await {
                let chunk = chunk.map_err(|error| error.to_string())?;
                let _ = body.flow_control().release_capacity(chunk.len());
                data += chunk.len();
                if data > MAX_ANSWER {
                    return Err(format!("an answer of more than {MAX_ANSWER} bytes"));
                }
            }
            let trailers = body.trailers().await.map_err(|error| error.to_string())?;
            Ok(Seen {
                http: head.status.as_u16(),
                head: head.headers,
                head_is_all,
                data,
                trailers,
            })
        })
        .await
    }
}

async fn within<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(ANSWER_LIMIT, work)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} ms", ANSWER_LIMIT.as_millis())))
}
