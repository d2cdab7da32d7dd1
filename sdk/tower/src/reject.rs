//! Reading what came back, without letting a refusal hold anything.
//!
//! A refused caller has to read the refusal's body, because a hint may stand in it, and has to get rid of the rest,
//! because the connection is wanted again. A server in trouble may drip that body, or never end it. So reading ends
//! at 64 KiB and at min(1 s, time left) (SEC-08), getting rid of the rest at 64 KiB and [`DRAIN_TIME`]; what is not
//! done by then is dropped with its connection (CLI-25). The wait of the hint runs from receipt of the head, and so
//! is not made longer by any of it.

use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use holdoff_contract::Scope;
use holdoff_contract::limits::{MAX_BODY_READ, MAX_BODY_TIME};
use holdoff_contract::read::{Compat, Head, ReadOptions, Reading};
use holdoff_policy::Outcome;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;

use crate::body::{ResponseBody, Seen};
use crate::clock;
use crate::telemetry::Counters;

/// Longest time spent on getting rid of a body that nobody wants; the same a server spends on a request that it
/// refuses (CONTRACT section 2). A body that fits into it is there with its head, or nearly so.
pub(crate) const DRAIN_TIME: Duration = Duration::from_millis(100);

/// Set by a transport in the extensions of a response that another origin answered, after a redirect: what that
/// origin says holds for this request only, and not for the origin that the request was made to (SEC-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirected;

/// When a response came, and what bounds reading it.
pub(crate) struct Receipt {
    /// When its head was there.
    pub(crate) received: Instant,
    /// Where the time limit of the attempt ends.
    pub(crate) limit: Option<Instant>,
    pub(crate) compat: Compat,
}

/// What a response means whose status says it all; `Err` where it has to be looked into.
pub(crate) fn at_a_glance<B: Body>(
    response: Response<B>,
) -> Result<(Response<ResponseBody<B>>, Outcome), Response<B>> {
    let outcome = match response.status() {
        status if status.is_success() => Outcome::Success,
        StatusCode::BAD_GATEWAY => Outcome::BadGateway,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            return Err(response);
        }
        _ => Outcome::Answered,
    };
    Ok((response.map(ResponseBody::from), outcome))
}

/// Tells what a response means that [`at_a_glance`] could not judge: a 429, 503 or 504. No hint is taken from anything
/// else (HNT-15), least of all from a redirect (SEC-06), and a success stays one (CLI-19).
pub(crate) async fn judge<B>(
    response: Response<B>,
    receipt: &Receipt,
    counters: &Counters,
) -> (Response<ResponseBody<B>>, Outcome)
where
    B: Body<Data = Bytes> + Unpin,
{
    let (parts, mut body) = response.into_parts();
    let mut seen = Seen::default();
    let options = ReadOptions {
        now: clock::wall(),
        compat: receipt.compat,
    };
    let head = Head::read(parts.status, &parts.headers, &options);
    let whole = head.wants_body() && read_whole(&mut body, &mut seen, receipt).await;
    let outcome = match head.finish(whole.then_some(&*seen.bytes)) {
        Reading::Overload(mut overload, malformed) => {
            if parts.extensions.get::<Redirected>().is_some() {
                overload.scope = Scope::Request;
            }
            counters.refused(&overload, malformed.sources);
            Outcome::Overload(overload)
        }
        Reading::NotOverload if parts.status == StatusCode::GATEWAY_TIMEOUT => Outcome::BadGateway,
        Reading::NotOverload => Outcome::Answered,
    };
    (
        Response::from_parts(parts, ResponseBody::new(seen, body)),
        outcome,
    )
}

/// Reads a body into `seen`, and tells whether that is all of it: not where it is longer than 64 KiB, fails, or is
/// not there in time.
async fn read_whole<B>(body: &mut B, seen: &mut Seen<B::Error>, receipt: &Receipt) -> bool
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > MAX_BODY_READ as u64 {
        return false;
    }
    let mut until = clock::after(receipt.received, MAX_BODY_TIME);
    if let Some(limit) = receipt.limit {
        until = Some(until.map_or(limit, |until| until.min(limit)));
    }
    let mut bytes = BytesMut::new();
    let whole = loop {
        match clock::within(until, body.frame()).await {
            Err(clock::RanOut) => break false,
            Ok(None) => break true,
            Ok(Some(Err(error))) => {
                seen.error = Some(error);
                break false;
            }
            // Trailers come last and say nothing about overload over HTTP.
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    bytes.extend_from_slice(&data);
                }
                if bytes.len() > MAX_BODY_READ {
                    break false;
                }
            }
        }
    };
    seen.bytes = bytes.freeze();
    whole
}

/// Gets rid of a body that nobody wants, so that its connection can be used again; drops it, connection and all,
/// where it is longer than 64 KiB or not over by `until` or within [`DRAIN_TIME`].
pub(crate) async fn drain<B>(body: B, until: Option<Instant>)
where
    B: Body<Data = Bytes>,
{
    if body.is_end_stream() || body.size_hint().lower() > MAX_BODY_READ as u64 {
        return;
    }
    let mut end = clock::after(clock::now(), DRAIN_TIME);
    if let Some(until) = until {
        end = Some(end.map_or(until, |end| end.min(until)));
    }
    let mut body = pin!(body);
    let rid = async {
        let mut seen = 0_usize;
        while let Some(Ok(frame)) = body.frame().await {
            seen = seen.saturating_add(frame.data_ref().map_or(0, Bytes::len));
            if seen > MAX_BODY_READ {
                break;
            }
        }
    };
    // Dropping it is the answer to one that takes too long.
    let _ = clock::within(end, rid).await;
}
