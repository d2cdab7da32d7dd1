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
use holdoff_contract::limits::{MAX_BODY_READ, MAX_BODY_TIME};
use holdoff_contract::read::{Compat, ReadOptions, Reading};
use holdoff_contract::vocabulary::Vocabulary;
use holdoff_contract::{OverloadStatus, Scope};
use holdoff_policy::{Outcome, Replay};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;

use crate::body::{ResponseBody, Seen};
use crate::clock;
use crate::dialect::{Dialect, FIRST_FRAME_TIME, Verdict};
use crate::telemetry::Counters;

/// Longest time spent on getting rid of a body that nobody wants; the same a server spends on a request that it
/// refuses (CONTRACT section 2). A body that fits into it is there with its head, or nearly so.
pub(crate) const DRAIN_TIME: Duration = Duration::from_millis(100);

/// Set by a transport in the extensions of a response that another origin answered, after a redirect: what that
/// origin says holds for this request only, and not for the origin that the request was made to (SEC-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirected;

/// When a response came, and what bounds reading it.
pub(crate) struct Receipt<'a> {
    /// When its head was there.
    pub(crate) received: Instant,
    /// Where the time limit of the attempt ends.
    pub(crate) limit: Option<Instant>,
    pub(crate) compat: Compat,
    /// How it is read; plain HTTP where there is none.
    pub(crate) dialect: Option<&'a dyn Dialect>,
    /// Whether the request could be sent again. Nothing is held up where it could not.
    pub(crate) replay: Replay,
    /// What words of its own the destination has.
    pub(crate) vocabulary: &'a Vocabulary,
}

/// What an answer over plain HTTP means whose status says it all; `None` where it has to be looked into by [`judge`].
pub(crate) fn at_a_glance(status: StatusCode, vocabulary: &Vocabulary) -> Option<Outcome> {
    Some(match status {
        status if status.is_success() => Outcome::Success,
        status if may_refuse(status) || vocabulary.has_status(status) => return None,
        StatusCode::BAD_GATEWAY => Outcome::BadGateway,
        _ => Outcome::Answered,
    })
}

/// Tells what a response means. Only 429, 503, 504 and the statuses of a declared vocabulary are looked into: no hint is
/// taken from anything else (HNT-15), least of all from a redirect (SEC-06), and a success stays one (CLI-19).
pub(crate) async fn judge<B>(
    response: Response<B>,
    receipt: &Receipt<'_>,
    counters: &Counters,
) -> (Response<ResponseBody<B>>, Outcome)
where
    B: Body<Data = Bytes> + Unpin,
{
    let (parts, mut body) = response.into_parts();
    let mut seen = Seen::default();
    if let Some(dialect) = receipt.dialect {
        let outcome = speak(dialect, &parts, &mut body, &mut seen, receipt, counters).await;
        let body = ResponseBody::new(seen, body);
        return (Response::from_parts(parts, body), outcome);
    }
    let redirected = parts.extensions.get::<Redirected>().is_some();
    let none = Vocabulary::NONE;
    let vocabulary = if redirected { &none } else { receipt.vocabulary };
    let outcome = match parts.status {
        status if status.is_success() => Outcome::Success,
        status if may_refuse(status) || vocabulary.has_status(status) => {
            read(&parts, &mut body, &mut seen, receipt, vocabulary, counters).await
        }
        StatusCode::BAD_GATEWAY => Outcome::BadGateway,
        _ => Outcome::Answered,
    };
    (
        Response::from_parts(parts, ResponseBody::new(seen, body)),
        outcome,
    )
}

fn may_refuse(status: StatusCode) -> bool {
    OverloadStatus::from_u16(status.as_u16()).is_some()
}

/// Reads an answer of another protocol: its head, and the first frame where the head does not say.
async fn speak<B>(
    dialect: &dyn Dialect,
    parts: &Parts,
    body: &mut B,
    seen: &mut Seen<B::Error>,
    receipt: &Receipt<'_>,
    counters: &Counters,
) -> Outcome
where
    B: Body<Data = Bytes> + Unpin,
{
    let options = ReadOptions {
        now: clock::wall(),
        compat: receipt.compat,
    };
    let mut verdict = dialect.head(parts.status, &parts.headers, &options);
    if verdict == Verdict::Undecided && receipt.replay == Replay::Bytes {
        first_frame(body, seen, receipt).await;
        verdict = match &seen.trailers {
            _ if seen.error.is_some() => Verdict::plain(Outcome::Answered),
            Some(trailers) => dialect.trailers(&parts.headers, trailers, &options),
            None => Verdict::Undecided,
        };
    }
    match verdict {
        Verdict::Undecided => Outcome::Success,
        Verdict::Known(outcome, malformed) => {
            if let Outcome::Overload(overload) = &outcome {
                counters.refused(overload, malformed.sources);
            }
            outcome
        }
    }
}

/// Reads an answer that may be a refusal.
async fn read<B>(
    parts: &Parts,
    body: &mut B,
    seen: &mut Seen<B::Error>,
    receipt: &Receipt<'_>,
    vocabulary: &Vocabulary,
    counters: &Counters,
) -> Outcome
where
    B: Body<Data = Bytes> + Unpin,
{
    let options = ReadOptions {
        now: clock::wall(),
        compat: receipt.compat,
    };
    let head = vocabulary.head(parts.status, &parts.headers, &options);
    let whole = head.wants_body() && read_whole(body, seen, receipt).await;
    match head.finish(whole.then_some(&*seen.bytes)) {
        Reading::Overload(mut overload, malformed) => {
            if parts.extensions.get::<Redirected>().is_some() {
                overload.scope = Scope::Request;
            }
            counters.refused(&overload, malformed.sources);
            Outcome::Overload(overload)
        }
        Reading::NotOverload if parts.status == StatusCode::GATEWAY_TIMEOUT => Outcome::BadGateway,
        Reading::NotOverload if parts.status == StatusCode::BAD_GATEWAY => Outcome::BadGateway,
        Reading::NotOverload => Outcome::Answered,
    }
}

/// Reads a body into `seen`, and tells whether that is all of it: not where it is longer than 64 KiB, fails, or is
/// not there in time.
async fn read_whole<B>(body: &mut B, seen: &mut Seen<B::Error>, receipt: &Receipt<'_>) -> bool
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

/// Reads the first frame of a body into `seen`, if it is there within [`FIRST_FRAME_TIME`] and the time left.
async fn first_frame<B>(body: &mut B, seen: &mut Seen<B::Error>, receipt: &Receipt<'_>)
where
    B: Body<Data = Bytes> + Unpin,
{
    let until = clock::after(receipt.received, FIRST_FRAME_TIME);
    let until = match (until, receipt.limit) {
        (Some(until), Some(limit)) => Some(until.min(limit)),
        (until, limit) => until.or(limit),
    };
    match clock::within(until, body.frame()).await {
        Err(clock::RanOut) | Ok(None) => {}
        Ok(Some(Err(error))) => seen.error = Some(error),
        Ok(Some(Ok(frame))) => match frame.into_data() {
            Ok(data) => seen.bytes = data,
            Err(frame) => seen.trailers = frame.into_trailers().ok().map(Box::new),
        },
    }
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
