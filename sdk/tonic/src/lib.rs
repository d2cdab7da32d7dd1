//! Overload over gRPC: a layer for tonic clients that obeys it, and the `Status` that says it.
//!
//! gRPC's own retries know four words (a status code, a pushback, a maximum, a throttle), and a service that is too
//! busy answers UNAVAILABLE, which also means that a cable was pulled. With [`ClientLayer`] around its channel a
//! generated client hears everything that was said (status details, pushback, `overload-signal`, trailers, and the
//! 503 of a proxy that speaks no gRPC), waits inside the window it was given, and otherwise ends with a
//! `tonic::Status` that knows the refusal ([`StatusExt`]). With [`ServerLayer`] and [`status()`] a tonic server says it.
//!
//! ```no_run
//! use std::time::Duration;
//! use holdoff_contract::Tier;
//! use holdoff_tonic::{CallOptions, ClientLayer, StatusExt};
//! use tower::Layer;
//!
//! # #[derive(Clone, PartialEq, prost::Message)] struct Work {}
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let channel = tonic::transport::Channel::from_static("http://127.0.0.1:50051").connect_lazy();
//! let channel = ClientLayer::new().layer(channel);   // the one line that is new
//! // let mut client = WorkerClient::new(channel);    // the generated client takes it as it took the channel
//! # let mut client = tonic::client::Grpc::new(channel);
//!
//! let mut request = tonic::Request::new(Work {});
//! request.extensions_mut().insert(CallOptions::new().deadline(Duration::from_secs(5)).tier(Tier::Deferrable));
//! # client.ready().await?;
//! # let path = http::uri::PathAndQuery::from_static("/worker.Worker/Run");
//! # let codec = tonic_prost::ProstCodec::<Work, Work>::default();
//! # let answer = client.unary(request, path, codec).await;
//! // let answer = client.run(request).await;
//! match answer {
//!     Ok(_) => {}
//!     Err(status) if status.is_overloaded() => println!("{:?}", status.call_error()),
//!     Err(status) => return Err(status.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `request.set_timeout(..)` is heard as the deadline of the whole call as well. The deadline bounds all attempts up to
//! the head of the answer; a stream of answers is the caller's own after that, and its trailers are not looked into:
//! ask the status with [`StatusExt`].
//!
//! The loop that waits and sends is `holdoff-tower`'s, the bytes are `holdoff-contract`'s ([`holdoff_contract::grpc`]).

mod body;
mod client;
mod clock;
mod details;
mod dialect;
mod server;
mod status;

pub use body::AnswerBody;
pub use client::{ClientLayer, ClientService, DEFAULT_REPLAY_LIMIT};
pub use holdoff_tower::{
    CallOptions, CallReport, Counters, Error, Inbound, Origin, OverloadLayer, OverloadLayerBuilder, PassUp,
    Progress,
};
pub use server::{ServerLayer, ServerService};
pub use status::{StatusExt, status, status_with};
