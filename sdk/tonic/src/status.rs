//! Between an overload and a `tonic::Status`, both ways.

use std::sync::Arc;

use holdoff_contract::grpc::{self, Answer, Encoded};
use holdoff_contract::read::{Compat, ReadOptions};
use holdoff_contract::write::Audience;
use holdoff_contract::{Code, GrpcCode, Overload, OverloadStatus};
use holdoff_policy::StopReason;
use holdoff_tower::Error;
use rand::Rng;
use tonic::metadata::MetadataMap;
use tonic::{Code as TonicCode, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::clock;
use crate::details::Details;

/// The status that refuses a call (CONTRACT section 7): return it from a handler before any message, and tonic sends
/// it Trailers-Only (GRP-02). Its pushback is drawn anew each time (GRP-06), so make one for each caller.
pub fn status(overload: &Overload, audience: Audience) -> Status {
    clock::with_rng(|rng| status_with(overload, audience, rng))
}

/// The same with a generator that was handed in: a seeded one in tests.
pub fn status_with<R: Rng + ?Sized>(overload: &Overload, audience: Audience, rng: &mut R) -> Status {
    let Encoded {
        code,
        message,
        info,
        retry_delay,
        metadata,
    } = grpc::write(overload, audience, rng);
    let metadata = MetadataMap::from_headers(metadata);
    let mut details = ErrorDetails::with_error_info(
        info.reason,
        info.domain,
        info.metadata
            .into_iter()
            .collect::<std::collections::HashMap<_, _>>(),
    );
    if retry_delay.is_some() {
        details.set_retry_info(retry_delay);
    }
    Status::with_error_details_and_metadata(tonic_code(code), message, details, metadata)
}

/// What a `tonic::Status` says about overload, whether a call through [`crate::ClientLayer`] ended with it or a
/// server sent it.
pub trait StatusExt {
    /// The call's own error, where it went through [`crate::ClientLayer`] and was not answered: why it stopped,
    /// attempts, time waited.
    fn call_error(&self) -> Option<&Error>;

    /// The refusal, where it is one: of the call's error, or read from the status itself.
    fn overload(&self) -> Option<Overload>;

    /// Is this a refusal?
    fn is_overloaded(&self) -> bool {
        self.overload().is_some()
    }
}

impl StatusExt for Status {
    fn call_error(&self) -> Option<&Error> {
        std::error::Error::source(self)?.downcast_ref()
    }

    fn overload(&self) -> Option<Overload> {
        if let Some(error) = self.call_error() {
            return error.overload().cloned();
        }
        let Details { info, retry_delay } = Details::of_bytes(self.details());
        let answer = Answer {
            code: u32::try_from(i32::from(self.code())).unwrap_or_default(),
            metadata: self.metadata().as_ref(),
            info: info.as_ref(),
            retry_delay,
        };
        let options = ReadOptions {
            now: clock::wall(),
            compat: Compat::On,
        };
        grpc::read(&answer, &options).into_overload()
    }
}

/// The status that a call ends with that was not answered. It carries no fields of the contract: its caller has
/// obeyed them already, and [`crate::ServerLayer`] writes those for the next caller up.
pub(crate) fn of_error(error: Error) -> Status {
    let code = match (error.why(), error.overload()) {
        (Some(StopReason::DeadlineExceeded), _) => TonicCode::DeadlineExceeded,
        (Some(StopReason::Cancelled), _) => TonicCode::Cancelled,
        (_, Some(overload)) => code_of(overload),
        (Some(_), None) => TonicCode::Unavailable,
        (None, None) => TonicCode::Internal,
    };
    let mut status = Status::new(code, error.to_string());
    status.set_source(Arc::new(error));
    status
}

/// What the refusal was sent with, or would have been.
fn code_of(overload: &Overload) -> TonicCode {
    match (&overload.code, overload.status) {
        (Some(code), _) if code.is_registered() => tonic_code(Code::grpc(code)),
        (_, OverloadStatus::TooManyRequests) => TonicCode::ResourceExhausted,
        (_, OverloadStatus::ServiceUnavailable | OverloadStatus::GatewayTimeout) => TonicCode::Unavailable,
    }
}

fn tonic_code(code: GrpcCode) -> TonicCode {
    match code {
        GrpcCode::Unavailable => TonicCode::Unavailable,
        GrpcCode::ResourceExhausted => TonicCode::ResourceExhausted,
        GrpcCode::DeadlineExceeded => TonicCode::DeadlineExceeded,
    }
}
