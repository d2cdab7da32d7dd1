//! The retry budget: integers, charged before the wait, paid back when the retry succeeds or is never sent.

/// What a retry costs (CONTRACT section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Price {
    /// Inside a window the server gave: it scheduled this retry.
    Scheduled,
    /// After a plain hint.
    Hinted,
    /// Without a hint.
    Blind,
}

/// Token bucket of one destination.
#[derive(Clone, Debug)]
pub struct Budget {
    _todo: (),
}
