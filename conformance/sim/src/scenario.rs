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

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    use Disturbance::{Herd, Load, Noisy, Nothing, SlowLong, Stall, Vanish};
    let stall = |name, about, seconds| Scenario {
        base_load: 0.8,
        ..Scenario::new(name, about, Stall, seconds)
    };
    let a5 = |name, about| Scenario::new(name, about, Load(5.0), 30);
    let hammer = Some((0.3, ClientKind::Hammer));
    vec![
        Scenario::new("a2", "load steps to 2x for 30 s", Load(2.0), 30),
        a5("a5", "load steps to 5x for 30 s"),
        Scenario::new("a10", "load steps to 10x for 30 s", Load(10.0), 30),
        stall("b", "all workers stall for 2 s at 0.8x", 2),
        stall("b10", "all workers stall for 10 s at 0.8x", 10),
        Scenario::new("c", "half the workers vanish for 60 s", Vanish(0.5), 60),
        Scenario {
            base_load: 0.5,
            ..Scenario::new("d", "50 000 callers in 1 s on 0.5x", Herd(50_000), 1)
        },
        Scenario::new("e", "one tenant of ten sends 10x for 60 s", Noisy(10.0, None), 60),
        Scenario::new("f", "the long class takes 2x for 60 s", SlowLong(2.0), 60),
        Scenario::new("f5", "the long class takes 5x for 30 s", SlowLong(5.0), 30),
        Scenario {
            base_load: 0.75,
            ..Scenario::new("base", "nothing goes wrong at 0.75x", Nothing, 30)
        },
        Scenario::new(
            "e-critical",
            "the noisy tenant calls everything critical",
            Noisy(10.0, Some(Tier::Critical)),
            60,
        ),
        Scenario {
            relays: 2,
            ..Scenario::new(
                "chain",
                "2x at the end of a chain of three services",
                Load(2.0),
                30,
            )
        },
        Scenario {
            odd_callers: hammer,
            ..Scenario::new(
                "hammer",
                "2x, and 30 % of the callers ignore every hint",
                Load(2.0),
                30,
            )
        },
        Scenario {
            overstated: 3.0,
            ..a5("overstate", "5x, and callers claim three times their patience")
        },
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
