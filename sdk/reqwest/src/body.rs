//! A request body that can be sent again where it is in memory.
//!
//! reqwest keeps to itself whether a body can be cloned, so the two kinds are told apart once, when a call begins.

use bytes::Bytes;
use holdoff_tower::ReplayBody;

/// What is sent.
#[derive(Debug)]
pub enum Body {
    /// In memory: each copy shares the bytes.
    Bytes(Bytes),
    /// A stream: sent once (CLI-13).
    Stream(reqwest::Body),
}

impl From<reqwest::Body> for Body {
    fn from(body: reqwest::Body) -> Self {
        match body.as_bytes() {
            // One copy a call: reqwest shows its bytes, but does not share them.
            Some(bytes) => Self::Bytes(Bytes::copy_from_slice(bytes)),
            None => Self::Stream(body),
        }
    }
}

impl From<Body> for reqwest::Body {
    fn from(body: Body) -> Self {
        match body {
            Body::Bytes(bytes) => Self::from(bytes),
            Body::Stream(stream) => stream,
        }
    }
}

impl ReplayBody for Body {
    fn replay(&self) -> Option<Self> {
        match self {
            Self::Bytes(bytes) => Some(Self::Bytes(bytes.clone())),
            Self::Stream(_) => None,
        }
    }
}
