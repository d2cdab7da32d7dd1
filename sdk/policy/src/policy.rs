//! The caller's knobs, each with its range, its default and the reason for it.
//!
//! Most retry trouble in the field is a knob nobody chose. So the default is the contract's (section 5), every knob has
//! a range, and a value outside it is refused by name when the policy is built, not found out in an outage.

use std::time::Duration;

use holdoff_contract::limits::MAX_HINT;

const HOUR: Duration = Duration::from_secs(3600);

/// How a caller behaves when it is refused. Made by [`PolicyBuilder`]; the default is the contract's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(crate) max_attempts: u8,
    pub(crate) max_attempts_scheduled: u8,
    pub(crate) hint_cap: Duration,
    pub(crate) backoff_floor: Duration,
    pub(crate) backoff_base: Duration,
    pub(crate) backoff_cap: Duration,
    pub(crate) transport_base: Duration,
    pub(crate) max_wait_total: Duration,
    pub(crate) max_waiting: u32,
    pub(crate) budget_capacity: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            max_attempts_scheduled: 12,
            hint_cap: Duration::from_secs(120),
            backoff_floor: Duration::from_millis(50),
            backoff_base: Duration::from_secs(1),
            backoff_cap: Duration::from_secs(20),
            transport_base: Duration::from_millis(50),
            max_wait_total: Duration::from_secs(180),
            max_waiting: 1024,
            budget_capacity: 100,
        }
    }
}

impl Policy {
    /// A builder with every knob at its default.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder::default()
    }

    /// See [`PolicyBuilder::max_attempts`].
    pub const fn max_attempts(&self) -> u8 {
        self.max_attempts
    }

    /// See [`PolicyBuilder::max_attempts_scheduled`].
    pub const fn max_attempts_scheduled(&self) -> u8 {
        self.max_attempts_scheduled
    }

    /// See [`PolicyBuilder::hint_cap`].
    pub const fn hint_cap(&self) -> Duration {
        self.hint_cap
    }

    /// See [`PolicyBuilder::backoff_floor`].
    pub const fn backoff_floor(&self) -> Duration {
        self.backoff_floor
    }

    /// See [`PolicyBuilder::backoff_base`].
    pub const fn backoff_base(&self) -> Duration {
        self.backoff_base
    }

    /// See [`PolicyBuilder::backoff_cap`].
    pub const fn backoff_cap(&self) -> Duration {
        self.backoff_cap
    }

    /// See [`PolicyBuilder::transport_base`].
    pub const fn transport_base(&self) -> Duration {
        self.transport_base
    }

    /// See [`PolicyBuilder::max_wait_total`].
    pub const fn max_wait_total(&self) -> Duration {
        self.max_wait_total
    }

    /// See [`PolicyBuilder::max_waiting`].
    pub const fn max_waiting(&self) -> u32 {
        self.max_waiting
    }

    /// See [`PolicyBuilder::budget_capacity`].
    pub const fn budget_capacity(&self) -> u32 {
        self.budget_capacity
    }
}

/// Builds a [`Policy`]; unset values keep their defaults.
///
/// ```
/// use std::time::Duration;
/// use holdoff_policy::Policy;
///
/// let policy = Policy::builder().max_attempts(2).hint_cap(Duration::from_secs(30)).build()?;
/// assert_eq!(policy.max_attempts(), 2);
///
/// let refused = Policy::builder().max_attempts(0).build().unwrap_err();
/// assert_eq!(refused.to_string(), "max_attempts is 0; it must be 1 to 255");
/// # Ok::<(), holdoff_policy::PolicyError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PolicyBuilder {
    max_attempts: Option<u32>,
    max_attempts_scheduled: Option<u32>,
    hint_cap: Option<Duration>,
    backoff_floor: Option<Duration>,
    backoff_base: Option<Duration>,
    backoff_cap: Option<Duration>,
    transport_base: Option<Duration>,
    max_wait_total: Option<Duration>,
    max_waiting: Option<u32>,
    budget_capacity: Option<u32>,
}

impl PolicyBuilder {
    /// The first send and the waits without a server window: 1 to 255, default 3 (CLI-08). Two own tries catch a
    /// passing fault; more only add load where the server has not asked for it. 1 means that only a server's window
    /// is followed. [`Self::max_attempts_scheduled`] binds as well.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// All sends of a call, whatever the hints say: 1 to 255, default 12 (CLI-08). A server that schedules returns may
    /// do so more often than the caller would by itself, but not for ever. 1 turns retries off.
    #[must_use]
    pub fn max_attempts_scheduled(mut self, attempts: u32) -> Self {
        self.max_attempts_scheduled = Some(attempts);
        self
    }

    /// Longest D that is waited for: 0 to 24 h, default 120 s (CLI-04). A longer one stops the call and goes to its
    /// caller uncut; it is never clamped, since that would retry early. Zero stops after every hint above zero. The
    /// cap judges D only and does not cut the window, which would line callers up on it.
    #[must_use]
    pub fn hint_cap(mut self, cap: Duration) -> Self {
        self.hint_cap = Some(cap);
        self
    }

    /// Least wait after a refusal: 1 ms to 60 s, default 50 ms (CLI-10, HNT-05). Binds whatever the hint says, so that
    /// a hint of zero or one millisecond does not become a hot loop.
    #[must_use]
    pub fn backoff_floor(mut self, floor: Duration) -> Self {
        self.backoff_floor = Some(floor);
        self
    }

    /// Ceiling of the first own backoff, doubled for each attempt: 0 to 1 h, default 1 s (CLI-10). Where it is below
    /// the floor, the floor holds.
    #[must_use]
    pub fn backoff_base(mut self, base: Duration) -> Self {
        self.backoff_base = Some(base);
        self
    }

    /// Where the own backoff stops growing: 0 to 1 h, default 20 s (CLI-10): an outage that is over should be noticed
    /// within that time. Where it is below the floor, the floor holds.
    #[must_use]
    pub fn backoff_cap(mut self, cap: Duration) -> Self {
        self.backoff_cap = Some(cap);
        self
    }

    /// Ceiling of the first wait after a transport failure, doubled for each attempt: 1 ms to 1 h, default 50 ms
    /// (CONTRACT section 5). Short, since a broken connection says nothing about load; random from zero, since it
    /// breaks for everybody at once.
    #[must_use]
    pub fn transport_base(mut self, base: Duration) -> Self {
        self.transport_base = Some(base);
        self
    }

    /// Waiting of one call in all: 0 to 24 h, default 180 s (CLI-05). Bounds what a broken or hostile server can hold,
    /// also for calls without a deadline.
    #[must_use]
    pub fn max_wait_total(mut self, total: Duration) -> Self {
        self.max_wait_total = Some(total);
        self
    }

    /// Calls of one destination that may wait at the same time: 0 to 1 000 000, default 1024 (CLI-24). The waiting room
    /// of a caller is a queue too; calls over the bound fail at once with the overload.
    #[must_use]
    pub fn max_waiting(mut self, calls: u32) -> Self {
        self.max_waiting = Some(calls);
        self
    }

    /// Tokens of a destination's full retry budget: 0 to 1 000 000, default 100 (CLI-09): 7 blind retries or 20 after
    /// plain hints before successes have to pay for more. Zero leaves only retries in a server's window. Calls of one
    /// destination share the budget of the table they use: see [`crate::Destinations::new`].
    #[must_use]
    pub fn budget_capacity(mut self, tokens: u32) -> Self {
        self.budget_capacity = Some(tokens);
        self
    }

    /// Checks every value.
    ///
    /// # Errors
    /// Names the first knob whose value is outside its range, the value and the range.
    pub fn build(self) -> Result<Policy, PolicyError> {
        let default = Policy::default();
        let zero = Duration::ZERO;
        let ms = Duration::from_millis(1);
        Ok(Policy {
            max_attempts: attempts("max_attempts", self.max_attempts, default.max_attempts)?,
            max_attempts_scheduled: attempts(
                "max_attempts_scheduled",
                self.max_attempts_scheduled,
                default.max_attempts_scheduled,
            )?,
            hint_cap: time(
                "hint_cap",
                self.hint_cap,
                default.hint_cap,
                zero,
                MAX_HINT,
                "0 to 24 h",
            )?,
            backoff_floor: time(
                "backoff_floor",
                self.backoff_floor,
                default.backoff_floor,
                ms,
                Duration::from_secs(60),
                "1 ms to 60 s",
            )?,
            backoff_base: time(
                "backoff_base",
                self.backoff_base,
                default.backoff_base,
                zero,
                HOUR,
                "0 to 1 h",
            )?,
            backoff_cap: time(
                "backoff_cap",
                self.backoff_cap,
                default.backoff_cap,
                zero,
                HOUR,
                "0 to 1 h",
            )?,
            transport_base: time(
                "transport_base",
                self.transport_base,
                default.transport_base,
                ms,
                HOUR,
                "1 ms to 1 h",
            )?,
            max_wait_total: time(
                "max_wait_total",
                self.max_wait_total,
                default.max_wait_total,
                zero,
                MAX_HINT,
                "0 to 24 h",
            )?,
            max_waiting: count("max_waiting", self.max_waiting, default.max_waiting)?,
            budget_capacity: count("budget_capacity", self.budget_capacity, default.budget_capacity)?,
        })
    }
}

fn attempts(field: &'static str, value: Option<u32>, default: u8) -> Result<u8, PolicyError> {
    match value.map(u8::try_from) {
        None => Ok(default),
        Some(Ok(attempts)) if attempts >= 1 => Ok(attempts),
        _ => Err(PolicyError {
            field,
            value: value.unwrap_or_default().to_string(),
            limit: "1 to 255",
        }),
    }
}

fn count(field: &'static str, value: Option<u32>, default: u32) -> Result<u32, PolicyError> {
    match value {
        None => Ok(default),
        Some(count) if count <= 1_000_000 => Ok(count),
        Some(count) => Err(PolicyError {
            field,
            value: count.to_string(),
            limit: "0 to 1000000",
        }),
    }
}

fn time(
    field: &'static str,
    value: Option<Duration>,
    default: Duration,
    least: Duration,
    most: Duration,
    limit: &'static str,
) -> Result<Duration, PolicyError> {
    match value {
        None => Ok(default),
        Some(time) if (least..=most).contains(&time) => Ok(time),
        Some(time) => Err(PolicyError {
            field,
            value: format!("{time:?}"),
            limit,
        }),
    }
}

/// A value outside its range, refused when the policy is built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; it must be {limit}")]
pub struct PolicyError {
    /// The knob.
    pub field: &'static str,
    /// What was given.
    pub value: String,
    /// What is allowed.
    pub limit: &'static str,
}
