//! Rules of admission that people use today, over one first-in-first-out queue.

use std::collections::VecDeque;
use std::time::Duration;

use holdoff_admission::Ending;
use holdoff_contract::{Code, Granularity, Hint, Overload, Retry, ServiceState};

use super::product::index;
use super::{Ask, Door, HintKind, Hinter, Look, Turn, Verdict};
use crate::scenario::Tasks;
use crate::time::{MS, Nanos, SECOND, whole};
use crate::workload::Class;

/// Which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Refuses when the queue is full.
    Bounded,
    /// Bounded, and nothing older than the target starts once the queue was never empty for an interval.
    Codel,
    /// No queue.
    Limit,
    /// Refuses what cannot be done in time by one mean for all.
    PredictedMean,
    /// Refuses what cannot be done in time by a mean and a p95 for each class; never probes.
    PredictedClass,
}

/// Places in the queue for each worker: two seconds of the mean task.
const PLACES: usize = 29;
/// CoDel: age beyond which nothing starts while the queue stands, and the interval in which it must have been empty.
const TARGET: Nanos = 100 * MS;
const INTERVAL: Nanos = 500 * MS;
/// Samples a p95 is made of, and how many new ones make a new p95.
const WINDOW: usize = 256;
const FRESH: usize = 16;
/// Weight of a sample in a mean.
const ALPHA: f64 = 0.02;

#[derive(Clone, Copy, Debug)]
struct Seat {
    generation: u32,
    live: bool,
    class: Class,
    since: Nanos,
    deadline: Nanos,
    charge: Nanos,
}

/// A rule with its queue.
#[derive(Debug)]
pub struct Baseline {
    rule: Rule,
    workers: u32,
    busy: u32,
    hinter: Hinter,
    seats: Vec<Seat>,
    free: Vec<u32>,
    queue: VecDeque<u32>,
    waiting: usize,
    work: Nanos,
    empty_at: Nanos,
    /// Learned mean of a short task, a long one, any.
    means: [f64; 3],
    /// The last samples of each class, where the next goes, and their p95.
    windows: [Vec<Nanos>; 2],
    next: [usize; 2],
    p95: [Nanos; 2],
}

impl Baseline {
    /// A door with an empty queue.
    pub fn new(rule: Rule, hint: HintKind, workers: u32) -> Self {
        let kind = if hint == HintKind::Own {
            HintKind::Fixed
        } else {
            hint
        };
        let (short, long) = (Class::Short.mean() as f64, Class::Long.mean() as f64);
        Self {
            rule,
            workers,
            busy: 0,
            hinter: Hinter::new(kind),
            seats: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            waiting: 0,
            work: 0,
            empty_at: 0,
            means: [
                short,
                long,
                crate::workload::mean_need(Tasks::ShortAndLong) * SECOND as f64,
            ],
            windows: [Vec::with_capacity(WINDOW), Vec::with_capacity(WINDOW)],
            next: [0; 2],
            p95: [2 * Class::Short.mean(), 2 * Class::Long.mean()],
        }
    }

    fn charge(&self, class: Class) -> Nanos {
        let mean = if self.rule == Rule::PredictedClass {
            self.means[class as usize]
        } else {
            self.means[2]
        };
        mean as Nanos
    }

    fn wait(&self) -> Nanos {
        if self.busy < self.workers && self.waiting == 0 {
            0
        } else {
            self.work / u64::from(self.workers)
        }
    }

    fn refuses(&self, ask: Ask) -> Option<Code> {
        let full = self.waiting >= PLACES * self.workers as usize;
        let left = ask.time_left.map_or(5 * SECOND, whole);
        let service = match self.rule {
            Rule::Bounded | Rule::Codel => return full.then_some(Code::QueueFull),
            Rule::Limit => return (self.busy >= self.workers).then_some(Code::ConcurrencyLimit),
            Rule::PredictedMean => self.charge(ask.class),
            Rule::PredictedClass => self.p95[ask.class as usize],
        };
        (full || self.wait() + service >= left).then_some(Code::QueueAgeExceeded)
    }

    fn refusal(&mut self, now: Nanos, code: Code) -> Box<Overload> {
        let backlog = self.work / u64::from(self.workers);
        let mut overload = Overload::new(code);
        overload.retry = Retry::After;
        overload.hint = self.hinter.hint(now, backlog).unwrap_or(Hint::After {
            delay: Duration::from_secs(1),
            granularity: Granularity::Seconds,
        });
        Box::new(overload)
    }

    fn seat(&mut self, seat: Seat) -> u32 {
        if let Some(at) = self.free.pop() {
            let generation = self.seats[at as usize].generation.wrapping_add(1);
            self.seats[at as usize] = Seat { generation, ..seat };
            return at;
        }
        self.seats.push(seat);
        self.seats.len() as u32 - 1
    }

    fn key(&self, at: u32) -> u64 {
        (u64::from(self.seats[at as usize].generation) << 32) | u64::from(at)
    }

    /// Takes a live seat out of the queue's accounts.
    fn leave(&mut self, at: u32) {
        self.waiting -= 1;
        self.work -= self.seats[at as usize].charge;
    }

    fn learn(&mut self, class: Class, service: Duration) {
        let sample = whole(service) as f64;
        for at in [class as usize, 2] {
            self.means[at] += ALPHA * (sample - self.means[at]);
        }
        let class = class as usize;
        let (window, next) = (&mut self.windows[class], &mut self.next[class]);
        if window.len() < WINDOW {
            window.push(whole(service));
        } else {
            window[*next] = whole(service);
        }
        *next = (*next + 1) % WINDOW;
        if next.is_multiple_of(FRESH) {
            let mut sorted = window.clone();
            sorted.sort_unstable();
            self.p95[class] = sorted[sorted.len() * 95 / 100];
        }
    }
}

impl Door for Baseline {
    fn admit(&mut self, now: Nanos, ask: Ask) -> Verdict {
        if let Some(code) = self.refuses(ask) {
            return Verdict::Refused(self.refusal(now, code));
        }
        let predicted = self.wait();
        let charge = self.charge(ask.class);
        let at = self.seat(Seat {
            generation: 0,
            live: true,
            class: ask.class,
            since: now,
            deadline: now + ask.time_left.map_or(5 * SECOND, whole),
            charge,
        });
        self.queue.push_back(at);
        self.waiting += 1;
        self.work += charge;
        Verdict::Accepted {
            key: self.key(at),
            predicted,
        }
    }

    fn next(&mut self, now: Nanos) -> Option<Turn> {
        loop {
            if self.waiting == 0 {
                self.empty_at = now;
            }
            if self.busy >= self.workers {
                return None;
            }
            let at = self.queue.pop_front()?;
            let seat = self.seats[at as usize];
            if !seat.live {
                self.free.push(at);
                continue;
            }
            self.leave(at);
            let standing = self.rule == Rule::Codel && now - self.empty_at > INTERVAL;
            if standing && now - seat.since > TARGET {
                let key = self.key(at);
                self.free.push(at);
                self.seats[at as usize].live = false;
                return Some(Turn::Refuse(key, self.refusal(now, Code::QueueAgeExceeded)));
            }
            // A deadline that is known to be over is not started, whatever the rule.
            if seat.deadline <= now {
                let key = self.key(at);
                self.free.push(at);
                self.seats[at as usize].live = false;
                return Some(Turn::Refuse(key, Box::new(Overload::new(Code::DeadlineExpired))));
            }
            self.busy += 1;
            return Some(Turn::Start(self.key(at)));
        }
    }

    fn finish(&mut self, _now: Nanos, key: u64, ending: Ending) {
        let at = index(key);
        let seat = self.seats[at];
        if !seat.live || u64::from(seat.generation) != key >> 32 {
            return;
        }
        self.seats[at].live = false;
        if ending == Ending::Cancelled {
            // Still in the queue: skipped when its turn comes.
            self.leave(at as u32);
            return;
        }
        self.busy -= 1;
        self.free.push(at as u32);
        if let Ending::Completed { service } = ending {
            self.learn(seat.class, service);
        }
    }

    fn tick(&mut self, now: Nanos) {
        if self.waiting == 0 {
            self.empty_at = now;
        }
    }

    fn next_expiry(&self) -> Option<Nanos> {
        None
    }

    fn look(&self, now: Nanos) -> Look {
        let oldest = self
            .queue
            .iter()
            .map(|at| &self.seats[*at as usize])
            .find(|seat| seat.live);
        Look {
            queued: self.waiting as u32,
            oldest: oldest.map_or(0, |seat| now - seat.since),
            state: ServiceState::Normal,
        }
    }
}
