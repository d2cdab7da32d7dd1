//! Every bound of the contract in one place, each with the section that sets it.

use std::time::Duration;

/// Largest delay a hint can say: 24 h. Larger values saturate here (section 4, HNT-02).
pub const MAX_HINT: Duration = Duration::from_millis(86_400_000);
/// Greatest width of a window, `max - after`: 60 s (section 2, SRV-25).
pub const MAX_WINDOW: Duration = Duration::from_millis(60_000);
/// Bytes of an `Overload-Signal` field that we write (section 2, SRV-14).
pub const MAX_SIGNAL_BYTES: usize = 512;
/// Bytes of a problem body that we write (section 2, SRV-14).
pub const MAX_BODY_WRITTEN: usize = 4096;
/// Bytes of a problem body that we read (section 4, HNT-10, SEC-08).
pub const MAX_BODY_READ: usize = 65_536;
/// Longest time spent on reading a reject's body; the time left if that is less (section 4, SEC-08).
pub const MAX_BODY_TIME: Duration = Duration::from_secs(1);
/// `hop` saturates here, where retry becomes `no` (section 6, INT-02).
pub const MAX_HOP: u8 = 16;
/// Largest `Overload-Deadline-Ms` and `Overload-Cost-Ms` (section 3).
pub const MAX_DEADLINE: Duration = Duration::from_millis(86_400_000);
/// Largest `Overload-Attempt` (section 3).
pub const MAX_ATTEMPT: u8 = 255;
/// Longest task class (section 3).
pub const MAX_CLASS_BYTES: usize = 64;
/// Longest tenant (section 3).
pub const MAX_TENANT_BYTES: usize = 128;
/// Longest Idempotency-Key (section 3).
pub const MAX_KEY_BYTES: usize = 255;
/// Longest code: a letter and up to 62 more (section 1).
pub const MAX_CODE_BYTES: usize = 63;
/// Lines of one response field that we look at; further lines count as one malformed source. No honest server
/// sends more than a few, and the work on a hostile head must stay small.
pub const MAX_FIELD_LINES: usize = 32;
/// Bytes of one response field, over all its lines, that we look at: as much as of a body. Further lines count as
/// one malformed source; an `Overload-Signal` above it is ignored whole.
pub const MAX_FIELD_BYTES: usize = 65_536;
/// Unknown v=1 signal keys, and as many unknown body members, that we keep for relays (INT-17).
pub const MAX_EXTENSIONS: usize = 16;
/// Bytes of an `origin` or of an unknown key's or member's text that we keep or write.
pub const MAX_NAME_BYTES: usize = 64;
/// Bytes of `detail` that we keep, and of its JSON text that we write: it leaves room in
/// [`MAX_BODY_WRITTEN`] for everything else.
pub const MAX_DETAIL_BYTES: usize = 1024;
/// Quotas in one `RateLimit` field that we write.
pub const MAX_QUOTAS: usize = 8;
