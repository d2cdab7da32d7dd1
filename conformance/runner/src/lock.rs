//! One way to lock: what a task that panicked left behind is still what was seen, and a report shows it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whether or not somebody panicked meanwhile.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
