//! Another profile, while work waits and runs.
//!
//! A restart to change a limit costs the queue, the measured service times and the callers' patience. So a new profile is
//! taken in place: what was admitted keeps its place and its charge, what was measured stays, and the new bounds hold from
//! the next decision on. Fewer workers than tasks that run means that none starts until enough have ended.

use std::time::Instant;

use crate::bounds::Bounds;
use crate::estimator::Class;
use crate::profile::MAX_CLASSES;
use crate::{Controller, Profile, ProfileError};

/// Classes kept, those included that no profile declares any more but that still have work here.
const MAX_KEPT: usize = 2 * MAX_CLASSES + 2;

impl Controller {
    /// Takes another profile. Class ids from before stay usable; look names up again.
    ///
    /// # Errors
    /// When the profile is outside its ranges (the error names key, value and limit), or so many classes were dropped
    /// with work in them that there is no room for new ones. The old profile then stands.
    pub fn reload(&mut self, now: Instant, profile: Profile) -> Result<(), ProfileError> {
        profile.validate()?;
        self.reload_classes(&profile)?;
        let now = self.nanos(now);
        self.bounds = Bounds::new(&profile);
        self.queues.reweigh(self.bounds.weights, profile.workers);
        self.ghosts.idle(now, &self.pool);
        self.pool.reload(&profile);
        self.machine.reload(&profile);
        for (tenant, at_limit) in self.tenants.reload(&profile, now) {
            if at_limit {
                self.queues.park(&self.tenants, tenant);
            } else {
                self.queues.unpark(&mut self.tenants, tenant);
            }
        }
        self.profile = profile;
        self.derive_bounds();
        Ok(())
    }

    fn reload_classes(&mut self, profile: &Profile) -> Result<(), ProfileError> {
        let other =
            (!profile.classes.contains_key("other")).then(|| ("other".to_owned(), profile.other_class()));
        let declared: Vec<_> = profile.classes.clone().into_iter().chain(other).collect();
        let is_declared = |name: &str| declared.iter().any(|(known, _)| known == name);
        let new = |name: &str| !self.class_ids.contains_key(name);
        let wanted = declared.iter().filter(|(name, _)| new(name)).count();
        let is_free = |class: &Class| class.held == 0 && !is_declared(&class.name);
        let free: Vec<usize> = (0..self.classes.len())
            .filter(|at| is_free(&self.classes[*at]))
            .collect();
        let kept = self.classes.len() + wanted.saturating_sub(free.len());
        if kept > MAX_KEPT {
            return Err(ProfileError {
                key: "classes".to_owned(),
                value: format!("{kept} with those dropped before that still have work"),
                limit: format!("at most {MAX_KEPT}"),
            });
        }
        let mut free = free.into_iter();
        let mut ids = std::collections::HashMap::new();
        for (name, class) in declared {
            let known = self.class_ids.get(name.as_str()).map(|id| usize::from(*id));
            let at = known.or_else(|| free.next()).unwrap_or(self.classes.len());
            match self.classes.get_mut(at) {
                Some(old) if known.is_some() => old.redeclare(&class, profile),
                Some(old) => *old = Class::new(&name, &class, profile),
                None => self.classes.push(Class::new(&name, &class, profile)),
            }
            // At most MAX_KEPT, so it fits.
            ids.insert(name.into_boxed_str(), at as u16);
        }
        self.class_ids = ids;
        Ok(())
    }
}
