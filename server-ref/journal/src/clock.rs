//! The only place of this crate that reads a clock.

use std::time::Instant;

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this crate reads its clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
