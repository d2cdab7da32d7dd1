//! Broken gRPC clients and servers.

use clap::ValueEnum;
use holdoff_contract::grpc::{self, Encoded, PUSHBACK_MS, STATUS, STATUS_DETAILS, TIMEOUT};
use holdoff_contract::write::Audience;
use holdoff_contract::{GrpcCode, Overload, Retry, ServiceState, field_name};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::StreamBody;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetail, ErrorInfo, RetryInfo, StatusExt as _};

use crate::grpc::server::Voice;

/// A rule for clients to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GrpcClientMutant {
    /// Does not hear the pushback (GRP-07).
    DeafToPushback,
    /// Does not hear the status details (GRP-07).
    DeafToDetails,
    /// Does not hear the signal (GRP-07).
    DeafToSignal,
    /// Takes a pushback that says no for none (GRP-07).
    NoIsNothing,
    /// Takes RESOURCE_EXHAUSTED for an invitation (GRP-08).
    RetriesExhausted,
    /// Says its deadline in its own field only (GRP-09).
    NoTimeout,
    /// Says its deadline in nanoseconds, with as many digits as it takes (GRP-09).
    LongTimeout,
    /// Does not hear what a proxy says (GRP-10).
    DeafToProxies,
    /// Takes the answer of a proxy for a final one (GRP-10).
    ProxiesAreFinal,
}

impl GrpcClientMutant {
    /// The requirement it breaks: a case of this one must fail.
    pub fn breaks(self) -> &'static str {
        match self {
            Self::DeafToPushback | Self::DeafToDetails | Self::DeafToSignal | Self::NoIsNothing => "GRP-07",
            Self::RetriesExhausted => "GRP-08",
            Self::NoTimeout | Self::LongTimeout => "GRP-09",
            Self::DeafToProxies | Self::ProxiesAreFinal => "GRP-10",
        }
    }

    /// What goes out, changed.
    pub fn request(self, headers: &mut HeaderMap) {
        match self {
            Self::NoTimeout => drop(headers.remove(TIMEOUT)),
            Self::LongTimeout => {
                let text = headers.get(TIMEOUT).and_then(|value| value.to_str().ok());
                let long = text
                    .and_then(|text| grpc::read_timeout(text).ok())
                    .and_then(|left| HeaderValue::try_from(format!("{}n", left.as_nanos())).ok());
                if let Some(long) = long {
                    headers.insert(TIMEOUT, long);
                }
            }
            _ => {}
        }
    }

    /// What comes in, changed.
    pub fn response(self, headers: &mut HeaderMap) {
        let by_proxy = !headers.contains_key(STATUS);
        match self {
            Self::DeafToPushback => drop(headers.remove(PUSHBACK_MS)),
            Self::DeafToDetails => drop(headers.remove(STATUS_DETAILS)),
            Self::DeafToSignal if !by_proxy => drop(headers.remove(field_name::OVERLOAD_SIGNAL)),
            Self::NoIsNothing if headers.get(PUSHBACK_MS).is_some_and(|value| !is_number(value)) => {
                headers.remove(PUSHBACK_MS);
            }
            Self::RetriesExhausted if headers.get(STATUS).is_some_and(|value| value == "8") => {
                let signal = HeaderValue::from_static("v=1, retry=after, applied=no, after=50");
                headers.insert(field_name::OVERLOAD_SIGNAL, signal);
            }
            Self::DeafToProxies if by_proxy => {
                headers.remove(field_name::OVERLOAD_SIGNAL);
                headers.remove(header::RETRY_AFTER);
            }
            Self::ProxiesAreFinal if by_proxy && !is_grpc(headers) => {
                headers.insert(STATUS, HeaderValue::from_static("2"));
            }
            _ => {}
        }
    }
}

fn is_number(value: &HeaderValue) -> bool {
    value.to_str().is_ok_and(|text| text.parse::<u64>().is_ok())
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    value.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// A rule for servers to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GrpcServerMutant {
    /// UNAVAILABLE whatever the code is (GRP-01).
    AlwaysUnavailable,
    /// INTERNAL whatever the code is (GRP-01).
    AlwaysInternal,
    /// A head first, and the refusal in trailers (GRP-02).
    HeadFirst,
    /// Reasons in lower case (GRP-03).
    LowerCase,
    /// Tells strangers the state (GRP-03).
    LeaksState,
    /// Tells nobody the state (GRP-03).
    HidesState,
    /// Two ErrorInfos (GRP-03).
    TwoInfos,
    /// A domain for each code (GRP-03).
    ManyDomains,
    /// RetryInfo whatever is permitted (GRP-04).
    RetryInfoAlways,
    /// RetryInfo in whole seconds (GRP-04).
    RetryInfoInSeconds,
    /// Pushes back by half of after (GRP-05).
    PushesTooLittle,
    /// Says no by saying nothing (GRP-05).
    NoWithoutPushback,
    /// Pushes back those that should go elsewhere (GRP-05).
    PushesElsewhere,
    /// One pushback for all (GRP-06).
    OnePushback,
}

impl GrpcServerMutant {
    /// The requirement it breaks: a case of this one must fail.
    pub fn breaks(self) -> &'static str {
        match self {
            Self::AlwaysUnavailable | Self::AlwaysInternal => "GRP-01",
            Self::HeadFirst => "GRP-02",
            Self::LowerCase | Self::LeaksState | Self::HidesState | Self::TwoInfos | Self::ManyDomains => {
                "GRP-03"
            }
            Self::RetryInfoAlways | Self::RetryInfoInSeconds => "GRP-04",
            Self::PushesTooLittle | Self::NoWithoutPushback | Self::PushesElsewhere => "GRP-05",
            Self::OnePushback => "GRP-06",
        }
    }

    /// What is said, changed.
    fn change(self, out: &mut Encoded, overload: &Overload) {
        let state = overload
            .state
            .map(ServiceState::as_str)
            .unwrap_or_default()
            .to_owned();
        let after = overload.hint.delay_or_zero();
        let push = |out: &mut Encoded, ms: u128| {
            let ms = u64::try_from(ms).unwrap_or(u64::MAX);
            drop(out.metadata.insert(PUSHBACK_MS, HeaderValue::from(ms)));
        };
        match self {
            Self::LowerCase => out.info.reason = out.info.reason.to_ascii_lowercase(),
            Self::LeaksState => drop(out.info.metadata.insert("state".to_owned(), state)),
            Self::HidesState => drop(out.info.metadata.remove("state")),
            Self::ManyDomains => out.info.domain = out.info.reason.clone(),
            Self::RetryInfoAlways => out.retry_delay = Some(after),
            Self::RetryInfoInSeconds => {
                let seconds = std::time::Duration::from_secs(after.as_secs() + 1);
                out.retry_delay = out.retry_delay.map(|_| seconds);
            }
            Self::PushesTooLittle if overload.retry == Retry::After => push(out, after.as_millis() / 2),
            Self::PushesElsewhere if overload.retry == Retry::Elsewhere => push(out, after.as_millis()),
            Self::OnePushback if overload.retry == Retry::After => push(out, after.as_millis()),
            Self::NoWithoutPushback if overload.retry == Retry::No => drop(out.metadata.remove(PUSHBACK_MS)),
            _ => {}
        }
    }

    fn code(self, code: GrpcCode) -> Code {
        match (self, code) {
            (Self::AlwaysInternal, _) => Code::Internal,
            (Self::AlwaysUnavailable, _) | (_, GrpcCode::Unavailable) => Code::Unavailable,
            (_, GrpcCode::ResourceExhausted) => Code::ResourceExhausted,
            (_, GrpcCode::DeadlineExceeded) => Code::DeadlineExceeded,
        }
    }
}

impl Voice for GrpcServerMutant {
    #[expect(
        clippy::disallowed_methods,
        reason = "a mutant draws its pushback as the SDK does"
    )]
    fn status(&self, overload: &Overload, audience: Audience) -> Status {
        let mut out = grpc::write(overload, audience, &mut rand::rng());
        self.change(&mut out, overload);
        let metadata: std::collections::HashMap<_, _> = out.info.metadata.into_iter().collect();
        let info = || {
            ErrorDetail::from(ErrorInfo::new(
                &out.info.reason,
                &out.info.domain,
                metadata.clone(),
            ))
        };
        let mut details = vec![info()];
        if *self == Self::TwoInfos {
            details.push(info());
        }
        if out.retry_delay.is_some() {
            details.push(RetryInfo::new(out.retry_delay).into());
        }
        let metadata = MetadataMap::from_headers(out.metadata);
        Status::with_error_details_vec_and_metadata(self.code(out.code), out.message, details, metadata)
    }

    fn response(&self, response: Response<Body>) -> Response<Body> {
        if *self != Self::HeadFirst || !response.headers().contains_key(STATUS) {
            return response;
        }
        let trailers = Frame::trailers(response.headers().clone());
        let frames = futures_util::stream::iter([Ok::<_, Status>(trailers)]);
        let mut late = Response::new(Body::new(StreamBody::new(frames)));
        late.headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        late
    }
}
