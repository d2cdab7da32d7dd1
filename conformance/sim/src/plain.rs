//! What callers do today, one small rule each.

use std::time::Duration;

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

use crate::caller::{Answer, ClientKind, Next, asked};
use crate::time::{MS, Nanos, SECOND};
use crate::workload::Class;

/// What the calls of a process share.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Of 500, as the AWS SDKs have it.
    aws: u32,
    /// Retries that may still be sent, in tenths: 2 for each request, 10 for each retry.
    tenths: u32,
}

impl Default for Bucket {
    fn default() -> Self {
        Self {
            aws: AWS_CAPACITY,
            tenths: BUDGET_CAPACITY,
        }
    }
}

const AWS_CAPACITY: u32 = 500;
const AWS_RETRY: u32 = 5;
const AWS_TIMEOUT: u32 = 10;
/// Ten retries at the start, for a process that has sent nothing yet.
const BUDGET_CAPACITY: u32 = 100;

/// A call of a baseline.
#[derive(Clone, Debug)]
pub struct Plain {
    kind: ClientKind,
    class: Class,
    deadline: Nanos,
    attempts: u32,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Ready,
    InFlight,
    Waiting(Nanos),
    Done,
}

/// Most sends of those that obey hints; the same as the product's.
const MOST_HINTED: u32 = 12;
/// Most sends of those that back off on their own.
const MOST_BLIND: u32 = 4;
/// Most sends of those that go on while somebody waits.
const MOST_EAGER: u32 = 51;
const AWS_MOST: u32 = 3;
/// Three sends of a relay for each of three of the caller.
const GENERIC_MOST: u32 = 9;
/// Pace of a caller that ignores every hint, and how often it does.
const HAMMER_PACE: Nanos = 50 * MS;
const HAMMER_MOST: u32 = 200;
/// Time of one attempt of a legacy caller, for a short task and for a long one: fifty times the mean, and four times.
const LEGACY_LIMIT: [Nanos; 2] = [SECOND, 4 * SECOND];

impl Plain {
    /// A call that has sent nothing.
    pub const fn new(kind: ClientKind, class: Class, deadline: Nanos) -> Self {
        Self {
            kind,
            class,
            deadline,
            attempts: 0,
            state: State::Ready,
        }
    }

    /// What it does now.
    pub fn next(&mut self, now: Nanos, bucket: &mut Bucket) -> Next {
        match self.state {
            State::Waiting(until) if now < until => return Next::Wait(until),
            State::Done | State::InFlight => return Next::Done,
            State::Ready | State::Waiting(_) => {}
        }
        if now >= self.deadline {
            self.state = State::Done;
            return Next::Done;
        }
        if self.attempts == 0 {
            bucket.tenths = (bucket.tenths + 2).min(BUDGET_CAPACITY);
        }
        self.attempts += 1;
        self.state = State::InFlight;
        let left = self.deadline - now;
        let (limit, told) = match self.kind {
            ClientKind::Legacy => (left.min(LEGACY_LIMIT[self.class as usize]), None),
            _ => (left, Some(left)),
        };
        Next::Send {
            limit: Duration::from_nanos(limit),
            told: told.map(Duration::from_nanos),
        }
    }

    /// What its attempt brought.
    pub fn tell(&mut self, now: Nanos, answer: &Answer, bucket: &mut Bucket, rng: &mut Pcg64Mcg) {
        let wait = match answer {
            Answer::Served => {
                bucket.aws = (bucket.aws + if self.attempts > 1 { AWS_RETRY } else { 1 }).min(AWS_CAPACITY);
                None
            }
            Answer::Refused(overload) => self.wait(asked(overload), AWS_RETRY, bucket, rng),
            Answer::TimedOut => self.wait(Some(0), AWS_TIMEOUT, bucket, rng),
        };
        self.state = match wait {
            Some(wait) if now.saturating_add(wait) < self.deadline => State::Waiting(now + wait),
            _ => State::Done,
        };
    }

    /// How long it waits after a failure with this hint; `None` = it stops. Callers that know no hints ignore a `no`.
    fn wait(
        &self,
        hint: Option<Nanos>,
        price: u32,
        bucket: &mut Bucket,
        rng: &mut Pcg64Mcg,
    ) -> Option<Nanos> {
        let mut jitter = |base: Nanos, cap: Nanos| {
            let most = base.saturating_mul(1 << (self.attempts - 1).min(16)).min(cap);
            rng.random_range(0..=most)
        };
        let most = |limit: u32| self.attempts < limit;
        match self.kind {
            ClientKind::Holdoff | ClientKind::NoHoldOff | ClientKind::None => None,
            ClientKind::FullJitter => most(MOST_BLIND).then(|| jitter(100 * MS, 20 * SECOND)),
            ClientKind::ReqwestRetry => most(MOST_BLIND).then(|| jitter(SECOND, 1_800 * SECOND)),
            ClientKind::Eager => most(MOST_EAGER).then(|| jitter(100 * MS, SECOND)),
            ClientKind::Exact => hint.filter(|_| most(MOST_HINTED)),
            ClientKind::Below => hint
                .filter(|_| most(MOST_HINTED))
                .map(|d| rng.random_range(0..=d)),
            ClientKind::Legacy => {
                let backoff = jitter(100 * MS, 20 * SECOND);
                hint.filter(|_| most(MOST_HINTED)).map(|d| d + backoff)
            }
            ClientKind::Aws => {
                let paid = most(AWS_MOST) && bucket.aws >= price;
                bucket.aws -= if paid { price } else { 0 };
                paid.then(|| jitter(SECOND, 20 * SECOND))
            }
            ClientKind::Budget20 => {
                let paid = most(MOST_HINTED) && bucket.tenths >= 10;
                bucket.tenths -= if paid { 10 } else { 0 };
                paid.then(|| jitter(100 * MS, 20 * SECOND))
            }
            ClientKind::Generic500 => most(GENERIC_MOST).then(|| jitter(50 * MS, SECOND)),
            ClientKind::Hammer => most(HAMMER_MOST).then_some(HAMMER_PACE),
        }
    }
}
