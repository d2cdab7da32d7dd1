//! Who asks, and what may they ask for?
//!
//! A caller that could name its own tenant or tier would charge its work to somebody else or call everything
//! critical. So both come from an authenticated identity (SRQ-06, SRQ-08); what the request says only counts inside
//! the rights that the identity has.

use holdoff_contract::{Tenant, Tier};
use http::{Extensions, HeaderMap, Method, Request, Uri};

/// A set of tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiers([bool; 3]);

impl Tiers {
    /// All three.
    pub const ALL: Self = Self([true; 3]);
    /// Non-sheddable and deferrable: what an unknown caller may use by default. Critical is a right that is given.
    pub const UNPRIVILEGED: Self = Self([false, true, true]);

    /// These tiers. The empty set is read as deferrable only: somebody who may ask may ask for the lowest.
    pub fn of(tiers: &[Tier]) -> Self {
        let mut set = [false; 3];
        for tier in tiers {
            set[tier.index()] = true;
        }
        if set == [false; 3] {
            set[Tier::Deferrable.index()] = true;
        }
        Self(set)
    }

    /// True when `tier` is in the set.
    pub fn contains(self, tier: Tier) -> bool {
        self.0[tier.index()]
    }

    /// The tier to use for one that was asked for: itself, else the nearest lower one that is allowed, else the
    /// lowest that is allowed. Never a higher one, unless only higher ones are allowed.
    pub fn clamp(self, asked: Tier) -> Tier {
        let lower = Tier::ALL
            .iter()
            .copied()
            .find(|tier| *tier >= asked && self.contains(*tier));
        lower
            .or_else(|| Tier::ALL.iter().rev().copied().find(|tier| self.contains(*tier)))
            .unwrap_or(Tier::Deferrable)
    }
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Whose work it is; `None` = anonymous.
    pub tenant: Option<Tenant>,
    /// What it may claim.
    pub tiers: Tiers,
    /// Inside the trust domain: it is told state and predicted wait, and, where `tenant` is `None`, its
    /// `Overload-Tenant` counts.
    pub trusted: bool,
}

impl Identity {
    /// Nobody in particular: no tenant, [`Tiers::UNPRIVILEGED`], not trusted.
    pub const ANONYMOUS: Self = Self {
        tenant: None,
        tiers: Tiers::UNPRIVILEGED,
        trusted: false,
    };

    /// The tenant to charge: the identity's own, or, from a trusted hop without one, the one that it names.
    pub fn tenant_for(&self, named: Option<&Tenant>) -> Option<Tenant> {
        self.tenant
            .clone()
            .or_else(|| named.filter(|_| self.trusted).cloned())
    }
}

/// The head of a request, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// Method.
    pub method: &'a Method,
    /// Target.
    pub uri: &'a Uri,
    /// Fields.
    pub headers: &'a HeaderMap,
    /// What layers further out left here, for instance an authenticated user.
    pub extensions: &'a Extensions,
}

impl<'a, B> From<&'a Request<B>> for RequestHead<'a> {
    fn from(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl<'a> From<&'a http::request::Parts> for RequestHead<'a> {
    fn from(parts: &'a http::request::Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }
}

/// Turns a request's credentials into an identity. Called before anything expensive, so it must be cheap: a table, a
/// verified token, an extension that an authentication layer left.
pub trait Identify: Send + Sync + 'static {
    /// Who is asking.
    fn identify(&self, head: RequestHead<'_>) -> Identity;
}

/// Everybody is the same.
impl Identify for Identity {
    fn identify(&self, _head: RequestHead<'_>) -> Identity {
        self.clone()
    }
}

impl<F> Identify for F
where
    F: Fn(RequestHead<'_>) -> Identity + Send + Sync + 'static,
{
    fn identify(&self, head: RequestHead<'_>) -> Identity {
        self(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_tier_is_lowered_to_the_next_one_that_is_allowed() {
        assert_eq!(Tiers::ALL.clamp(Tier::Critical), Tier::Critical);
        assert_eq!(Tiers::UNPRIVILEGED.clamp(Tier::Critical), Tier::NonSheddable);
        assert_eq!(
            Tiers::of(&[Tier::Deferrable]).clamp(Tier::Critical),
            Tier::Deferrable
        );
        assert_eq!(Tiers::of(&[]).clamp(Tier::Critical), Tier::Deferrable);
        assert_eq!(
            Tiers::of(&[Tier::Critical]).clamp(Tier::Deferrable),
            Tier::Critical
        );
    }

    #[test]
    fn a_named_tenant_counts_only_from_a_trusted_hop_without_one_of_its_own() {
        let named = Tenant::new("victim").unwrap();
        let own = Tenant::new("own").unwrap();
        let stranger = Identity::ANONYMOUS;
        assert_eq!(stranger.tenant_for(Some(&named)), None);
        let hop = Identity {
            trusted: true,
            ..Identity::ANONYMOUS
        };
        assert_eq!(hop.tenant_for(Some(&named)), Some(named.clone()));
        let somebody = Identity {
            tenant: Some(own.clone()),
            trusted: true,
            ..Identity::ANONYMOUS
        };
        assert_eq!(somebody.tenant_for(Some(&named)), Some(own));
    }
}
