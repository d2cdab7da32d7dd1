//! What happens to the service: load, faults and the kinds of callers, second by second.
//!
//! Overload is not one thing. A step of load, a stalled pool, a vanished half, a stampede, a noisy tenant and a slower
//! class break different rules, so each is a scenario of its own. Loads are multiples of the pool's capacity. Every
//! scenario starts with quiet time at its base load, so that estimates are warm, and ends with quiet time, so that
//! recovery shows.

use holdoff_contract::Tier;

use crate::caller::ClientKind;
use crate::time::{MS, Nanos, SECOND};

/// What goes wrong between `quiet` and `quiet + disturbed`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Disturbance {
    /// Nothing.
    Nothing,
    /// The load is this multiple of the capacity.
    Load(f64),
    /// No worker makes progress.
    Stall,
    /// This share of the workers makes no progress and keeps what it holds.
    Vanish(f64),
    /// So many more callers, evenly over the time.
    Herd(u32),
    /// Tenant 0 sends this multiple of its share, all of it in this tier if one is named.
    Noisy(f64, Option<Tier>),
    /// Tasks of the long class that arrive take this multiple of their time.
    SlowLong(f64),
}

/// Time a message takes, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// None: what is measured is the rules alone.
    Instant,
    /// Uniform between the two.
    Varying(Nanos, Nanos),
}

/// How long callers wait for what. The service's mix of tasks is the same in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// By tier: 1 to 3, 3 to 10, 10 to 60 s, and 3 s more for a long task.
    ByTier,
    /// Short tasks wait for 60 to 500 ms, long ones for 30 to 60 s: under a plain deadline test the long ones book the
    /// whole future, and no short one is served.
    LongHasAll,
    /// Short tasks wait for 30 to 60 s, long ones for 2 to 2.6 s, which is 1 to 1.3 times their p95.
    ShortHasAll,
    /// Half to twice the p95 of its class: every deadline is as near as can be to what can just be done.
    OnTheEdge,
    /// Of the live storm of holdoff-bench: 1 to 3 s for critical calls, 2 to 5 s for others.
    Impatient,
    /// One in three knows this and claims as little as the test lets through, one in three waits a minute, one in three is as
    /// by tier; whatever the class and the tier.
    Mixed,
}

/// What callers want done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// 95 % short tasks and 5 % long ones.
    ShortAndLong,
    /// Of the live storm of holdoff-bench: one class, uniform in 20 to 60 ms.
    OneClass,
}

/// How many client processes there are, and what they share: a process has one client of the SDK, with its retry budget,
/// its waiting room and its hold-offs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fleet {
    /// [`PROCESSES_EACH`] processes for each tenant, which share nothing.
    Apart,
    /// One client for each tenant: what its processes send goes through one proxy, and a hold-off holds all of them.
    ByTenant,
    /// One client for everybody, as in a gateway; it tells the SDK whose call each is.
    Gateway,
}

impl Fleet {
    /// The client that a call goes through, of those numbered from 0.
    pub const fn client(self, tenant: u16, process: u16) -> u16 {
        match self {
            Self::Apart => process,
            Self::ByTenant => tenant,
            Self::Gateway => 0,
        }
    }

    /// Whom the server sees: a client, or, behind a gateway, the tenant that it names.
    pub const fn caller(self, tenant: u16, process: u16) -> u16 {
        match self {
            Self::Apart => process,
            Self::ByTenant | Self::Gateway => tenant,
        }
    }
}

/// One scenario. Names are those of the project's design notes.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Short name, for the command line.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Load outside the disturbance, in multiples of the capacity.
    pub base_load: f64,
    /// Quiet time before.
    pub quiet: Nanos,
    /// Length of the disturbance.
    pub disturbed: Nanos,
    /// Quiet time after, in which recovery is measured.
    pub after: Nanos,
    /// What goes wrong.
    pub disturbance: Disturbance,
    /// Workers of each replica. 1..=4096.
    pub workers: u32,
    /// Replicas behind a balancer that picks one at random for each attempt; each has its own controller.
    pub replicas: u32,
    /// Relays between the callers and the service; they pass overload up and do not retry.
    pub relays: u32,
    /// Network delay.
    pub network: Network,
    /// Callers that behave differently from the rest: their share and their behaviour.
    pub odd_callers: Option<(f64, ClientKind)>,
    /// What callers say about their patience, as a multiple of the truth.
    pub overstated: f64,
    /// What they want done.
    pub tasks: Tasks,
    /// How long callers wait.
    pub patience: Patience,
    /// What callers share.
    pub fleet: Fleet,
    /// Calls that may wait in one client, 0 to 1 000 000; `None` = the SDK's default, 1024.
    pub waiting_room: Option<u32>,
}

/// Time a reject takes of a worker: reading the head, deciding, writing the answer.
pub const REJECT_COST: Nanos = MS / 10;
/// Tenants, named `tenant-0` to `tenant-9`; equally busy unless one is noisy.
pub const TENANTS: u16 = 10;
/// Client processes of each tenant; each has its own retry budget, hold-offs and waiting room, as a fleet of callers has.
pub const PROCESSES_EACH: u16 = 20;

impl Scenario {
    const fn new(name: &'static str, about: &'static str, disturbance: Disturbance, seconds: u64) -> Self {
        Self {
            name,
            about,
            base_load: 0.7,
            quiet: 15 * SECOND,
            disturbed: seconds * SECOND,
            // Longer than anybody's patience: when arrivals end, nobody of the disturbance is left who could profit.
            after: 75 * SECOND,
            disturbance,
            workers: 32,
            replicas: 1,
            relays: 0,
            network: Network::Instant,
            odd_callers: None,
            overstated: 1.0,
            tasks: Tasks::ShortAndLong,
            patience: Patience::ByTier,
            fleet: Fleet::Apart,
            waiting_room: None,
        }
    }

    /// When arrivals end.
    pub const fn horizon(&self) -> Nanos {
        self.quiet + self.disturbed + self.after
    }

    /// When the disturbance is over.
    pub const fn calm(&self) -> Nanos {
        self.quiet + self.disturbed
    }

    /// Is this within the disturbance?
    pub const fn is_disturbed(&self, t: Nanos) -> bool {
        t >= self.quiet && t < self.calm()
    }

    /// Workers of all replicas.
    pub const fn capacity(&self) -> u32 {
        self.workers * self.replicas
    }

    /// The scenario of this name.
    pub fn named(name: &str) -> Option<Self> {
        all().into_iter().find(|scenario| scenario.name == name)
    }
}

/// The ten scenarios that have gates, in the order of the table.
pub const GATED: [&str; 10] = ["a2", "a5", "a10", "b", "b10", "c", "d", "e", "f", "f5"];

/// Every scenario: those with gates, then the others.
pub fn all() -> Vec<Scenario> {
    gated().into_iter().chain(beyond()).collect()
}

fn a5(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, Disturbance::Load(5.0), 30)
}

fn herd(name: &'static str, about: &'static str) -> Scenario {
    Scenario {
        base_load: 0.5,
        ..Scenario::new(name, about, Disturbance::Herd(50_000), 1)
    }
}

fn gated() -> [Scenario; 10] {
    use Disturbance::{Load, Noisy, SlowLong, Stall, Vanish};
    let stall = |name, about, seconds| Scenario {
        base_load: 0.8,
        ..Scenario::new(name, about, Stall, seconds)
    };
    [
        Scenario::new("a2", "load steps to 2x for 30 s", Load(2.0), 30),
        a5("a5", "load steps to 5x for 30 s"),
        Scenario::new("a10", "load steps to 10x for 30 s", Load(10.0), 30),
        stall("b", "all workers stall for 2 s at 0.8x", 2),
        stall("b10", "all workers stall for 10 s at 0.8x", 10),
        Scenario::new("c", "half the workers vanish for 60 s", Vanish(0.5), 60),
        herd("d", "50 000 callers in 1 s on 0.5x"),
        Scenario::new("e", "one tenant of ten sends 10x for 60 s", Noisy(10.0, None), 60),
        Scenario::new("f", "the long class takes 2x for 60 s", SlowLong(2.0), 60),
        Scenario::new("f5", "the long class takes 5x for 30 s", SlowLong(5.0), 30),
    ]
}

/// What the ten do not ask.
pub fn beyond() -> Vec<Scenario> {
    let mut all = vec![
        Scenario {
            base_load: 0.75,
            ..Scenario::new("base", "nothing goes wrong at 0.75x", Disturbance::Nothing, 30)
        },
        Scenario::new(
            "e-critical",
            "the noisy tenant calls everything critical",
            Disturbance::Noisy(10.0, Some(Tier::Critical)),
            60,
        ),
    ];
    all.extend(callers());
    all.extend(deadlines());
    all.extend(services());
    all.extend(storms());
    all
}

/// The live storms of holdoff-bench in virtual time, where no neighbour disturbs them.
fn storms() -> [Scenario; 2] {
    let storm = |name, about, disturbance, seconds| Scenario {
        quiet: 4 * SECOND,
        after: 10 * SECOND,
        workers: 8,
        tasks: Tasks::OneClass,
        patience: Patience::Impatient,
        fleet: Fleet::Gateway,
        ..Scenario::new(name, about, disturbance, seconds)
    };
    [
        storm(
            "storm",
            "the live storm: 5x for 12 s, impatient callers, one client",
            Disturbance::Load(5.0),
            12,
        ),
        Scenario {
            base_load: 0.8,
            ..storm(
                "storm-stall",
                "the live stall: 2 s at 0.8x, impatient callers, one client",
                Disturbance::Stall,
                2,
            )
        },
    ]
}

/// Other callers.
fn callers() -> [Scenario; 7] {
    let doubled = |name, about| Scenario::new(name, about, Disturbance::Load(2.0), 30);
    [
        Scenario {
            relays: 2,
            ..doubled("chain", "2x at the end of a chain of three services")
        },
        Scenario {
            odd_callers: Some((0.3, ClientKind::Hammer)),
            ..doubled("hammer", "2x, and 30 % of the callers ignore every hint")
        },
        Scenario {
            overstated: 3.0,
            ..a5("overstate", "5x, and callers claim three times their patience")
        },
        Scenario {
            fleet: Fleet::ByTenant,
            ..a5("fleet", "5x, and the processes of a tenant share one client")
        },
        Scenario {
            fleet: Fleet::Gateway,
            ..a5("gateway", "5x, and all callers share one client")
        },
        Scenario {
            fleet: Fleet::Gateway,
            waiting_room: Some(100_000),
            ..a5(
                "gateway-room",
                "5x, and all callers share one client with room for 100 000",
            )
        },
        Scenario {
            fleet: Fleet::Gateway,
            waiting_room: Some(100_000),
            ..herd(
                "gateway-d",
                "50 000 callers in 1 s through one client with room for 100 000",
            )
        },
    ]
}

/// Deadlines that an adversary would choose.
fn deadlines() -> [Scenario; 4] {
    let of = |name, about, patience| Scenario {
        patience,
        ..a5(name, about)
    };
    [
        of(
            "long-waits",
            "5x; short tasks wait half a second at most, long ones a minute",
            Patience::LongHasAll,
        ),
        of(
            "short-waits",
            "5x; short tasks wait a minute, long ones hardly longer than they take",
            Patience::ShortHasAll,
        ),
        of(
            "edge",
            "5x; everybody waits half to twice the p95 of the task",
            Patience::OnTheEdge,
        ),
        of(
            "mixed",
            "5x; a third waits as little as is let in, a third a minute",
            Patience::Mixed,
        ),
    ]
}

/// Other services.
fn services() -> [Scenario; 4] {
    [
        Scenario {
            workers: 8,
            replicas: 4,
            ..a5(
                "replicas",
                "5x on four replicas of 8 workers, each with its own line",
            )
        },
        Scenario {
            workers: 4,
            ..a5("c4", "5x on 4 workers")
        },
        Scenario {
            workers: 128,
            ..a5("c128", "5x on 128 workers")
        },
        Scenario {
            network: Network::Varying(0, 100 * MS),
            ..a5("network", "5x, and each message takes 0 to 100 ms")
        },
    ]
}
