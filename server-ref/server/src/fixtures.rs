//! Test fixtures: the states that a test needs and traffic does not give at will (conformance/contract/ADAPTER.md).
//!
//! Off unless the configuration switches them on: anybody who reaches them can stop the server.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdoff_admission::profile::TierName;
use holdoff_admission_tower::{Admission, Identity, Tiers};
use holdoff_contract::{Code, Granularity, Hint, Overload, PolicyQuota, ServiceState, Tenant, Tier};
use serde::Deserialize;
use serde_json::Value;

use crate::app::{Identities, TableFull};
use crate::worker::Worker;

/// A handle on the fixtures of one server.
#[derive(Clone)]
pub struct Fixtures(Arc<Inner>);

struct Inner {
    admission: Admission,
    worker: Arc<Worker>,
    identities: Arc<Identities>,
    forced: Mutex<Option<ForcedReject>>,
    degraded: AtomicBool,
}

/// A refusal that the next requests get, whatever the load.
#[derive(Clone, Debug, PartialEq)]
pub struct ForcedReject {
    /// What is said.
    pub overload: Overload,
    /// To how many requests.
    pub count: u32,
}

/// A fixture that cannot be set so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FixtureError {
    /// There is none of this name.
    #[error(
        "fixture {0:?} is unknown; there are hold_workers, freeze_controller, force_state, drain, force_reject, \
         degraded, trust, panic_work"
    )]
    Unknown(String),
    /// A member cannot be used.
    #[error("fixture {fixture}: {fault}")]
    Invalid {
        /// Which fixture.
        fixture: String,
        /// What is wrong, with member and value.
        fault: String,
    },
}

/// The members of all fixtures; unknown ones are ignored, as the adapter protocol wants.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Members {
    on: Option<bool>,
    state: Option<String>,
    code: Option<String>,
    after_ms: Option<u64>,
    max_ms: Option<u64>,
    min_deadline_ms: Option<u64>,
    count: Option<u32>,
    identity: Option<String>,
    tiers: Option<Vec<TierName>>,
    tenant: Option<String>,
    trusted: Option<bool>,
}

impl fmt::Debug for Fixtures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixtures").finish_non_exhaustive()
    }
}

impl ForcedReject {
    /// This code with its defaults, and the window `[after, max]` where one is given.
    pub fn new(code: Code, after: Option<Duration>, max: Option<Duration>, count: u32) -> Self {
        let mut overload = Overload::new(code);
        overload.hint = match (after, max) {
            (None, _) => Hint::Absent,
            (Some(delay), Some(max)) => Hint::Window { delay, max },
            (Some(delay), None) => Hint::After {
                delay,
                granularity: Granularity::Milliseconds,
            },
        };
        if overload.code == Some(Code::DeadlineUnattainable) {
            overload.min_deadline = Some(Duration::from_secs(1));
        }
        if overload.code == Some(Code::RateLimited) {
            let reset_seconds = after.map_or(1, |after| after.as_millis().div_ceil(1000) as u64);
            let (name, quota, window_seconds) = ("requests".to_owned(), 100, 60);
            overload.quotas = vec![PolicyQuota {
                name,
                quota,
                window_seconds,
                remaining: 0,
                reset_seconds,
            }];
        }
        Self { overload, count }
    }
}

impl Fixtures {
    pub(crate) fn new(admission: Admission, worker: Arc<Worker>, identities: Arc<Identities>) -> Self {
        let (forced, degraded) = (Mutex::new(None), AtomicBool::new(false));
        Self(Arc::new(Inner {
            admission,
            worker,
            identities,
            forced,
            degraded,
        }))
    }

    /// Accepted work does not finish until it is released.
    pub fn hold_workers(&self, on: bool) {
        self.0.worker.hold(on);
    }

    /// The controller's data grows old.
    pub fn freeze_controller(&self, on: bool) {
        self.0.admission.freeze(on);
    }

    /// Pins the state; `None` lets it go.
    pub fn force_state(&self, state: Option<ServiceState>) {
        self.0.admission.force_state(state);
    }

    /// The instance goes away: everything new is refused with `draining`.
    pub fn drain(&self) {
        self.0.admission.drain();
    }

    /// The next requests get this refusal; `None` takes it back.
    pub fn force_reject(&self, reject: Option<ForcedReject>) {
        *self.0.forced.lock().unwrap_or_else(PoisonError::into_inner) = reject;
    }

    /// Successes are marked as cut down.
    pub fn degraded(&self, on: bool) {
        self.0.degraded.store(on, Ordering::Relaxed);
    }

    /// Callers with this bearer token (`None`: without one) are this identity.
    ///
    /// # Errors
    /// When there are [`crate::config::MAX_IDENTITIES`] already.
    pub fn trust(&self, token: Option<&str>, identity: Identity) -> Result<(), FixtureError> {
        let full = |full: TableFull| FixtureError::Invalid {
            fixture: "trust".to_owned(),
            fault: full.to_string(),
        };
        self.0.identities.set(token, identity).map_err(full)
    }

    /// The next `count` pieces of work panic.
    pub fn panic_work(&self, count: u32) {
        self.0.worker.panic_next(count);
    }

    /// Sets a fixture by its name in the adapter protocol; `members` is the command's object.
    ///
    /// # Errors
    /// An unknown name, or a member that cannot be used.
    pub fn apply(&self, name: &str, members: &Value) -> Result<(), FixtureError> {
        let invalid = |fault: String| FixtureError::Invalid {
            fixture: name.to_owned(),
            fault,
        };
        let members: Members = match members {
            Value::Null => Members::default(),
            members => Members::deserialize(members).map_err(|_| invalid(wrong_member(members)))?,
        };
        let on = members.on.unwrap_or(true);
        match name {
            "hold_workers" => self.hold_workers(on),
            "freeze_controller" => self.freeze_controller(on),
            "degraded" => self.degraded(on),
            "drain" => self.drain(),
            "panic_work" => self.panic_work(members.count.unwrap_or(1)),
            "force_state" => {
                let state = members
                    .state
                    .filter(|_| on)
                    .map(|state| state.parse())
                    .transpose();
                self.force_state(
                    state.map_err(|error: holdoff_contract::UnknownWord| invalid(error.to_string()))?,
                );
            }
            "force_reject" => self.force_reject(if on {
                Some(members.reject().map_err(invalid)?)
            } else {
                None
            }),
            "trust" => {
                let token = members.identity.as_deref().filter(|name| *name != "anonymous");
                let identity = members.rights(&self.0.identities.get(token)).map_err(invalid)?;
                self.trust(token, identity)?;
            }
            _ => return Err(FixtureError::Unknown(name.chars().take(64).collect())),
        }
        Ok(())
    }

    /// Takes one forced refusal, if there is one left.
    pub(crate) fn take_forced(&self) -> Option<Overload> {
        let mut forced = self.0.forced.lock().unwrap_or_else(PoisonError::into_inner);
        let reject = forced.as_mut()?;
        let overload = reject.count.checked_sub(1).map(|left| {
            reject.count = left;
            reject.overload.clone()
        });
        if reject.count == 0 {
            *forced = None;
        }
        overload
    }

    pub(crate) fn is_degraded(&self) -> bool {
        self.0.degraded.load(Ordering::Relaxed)
    }
}

/// Members and what each must be.
const MEMBERS: [(&str, &str); 11] = [
    ("on", "true or false"),
    ("trusted", "true or false"),
    ("state", "a string"),
    ("code", "a string"),
    ("identity", "a string"),
    ("tenant", "a string"),
    ("after_ms", "a whole number of milliseconds, from 0"),
    ("max_ms", "a whole number of milliseconds, from 0"),
    ("min_deadline_ms", "a whole number of milliseconds, from 0"),
    ("count", "a whole number in 0..=4294967295"),
    ("tiers", "a list of critical, non-sheddable, deferrable"),
];

/// Says which member cannot be used, and why.
fn wrong_member(members: &Value) -> String {
    let wrong = MEMBERS.iter().find_map(|(name, limit)| {
        let value = members.get(*name)?;
        let alone = serde_json::json!({ *name: value });
        Members::deserialize(&alone).is_err().then(|| {
            let value: String = value.to_string().chars().take(64).collect();
            format!("{name} is {value}; it must be {limit}")
        })
    });
    wrong.unwrap_or_else(|| "the body must be a JSON object".to_owned())
}

impl Members {
    fn reject(&self) -> Result<ForcedReject, String> {
        let code = self.code.as_deref().ok_or("code is missing")?;
        let code = code.parse::<Code>().map_err(|error| error.to_string())?;
        let ms = |value: Option<u64>| value.map(Duration::from_millis);
        let mut reject = ForcedReject::new(code, ms(self.after_ms), ms(self.max_ms), self.count.unwrap_or(1));
        if let Some(least) = ms(self.min_deadline_ms) {
            reject.overload.min_deadline = Some(least);
        }
        Ok(reject)
    }

    /// What is not said stays as it is; a hop without a tenant of its own is trusted to name one.
    fn rights(&self, old: &Identity) -> Result<Identity, String> {
        let tenant = self
            .tenant
            .as_ref()
            .map(Tenant::new)
            .transpose()
            .map_err(|error| error.to_string())?;
        let tiers = self.tiers.as_ref().map_or(old.tiers, |names| {
            let tiers: Vec<Tier> = names.iter().copied().map(Tier::from).collect();
            Tiers::of(&tiers)
        });
        let trusted = self.trusted.unwrap_or(tenant.is_none());
        Ok(Identity {
            tenant,
            tiers,
            trusted,
        })
    }
}
