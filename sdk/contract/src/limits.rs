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
