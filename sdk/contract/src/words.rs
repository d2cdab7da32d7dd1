//! The closed vocabularies of the contract: small enums, parsed once, never compared as strings again.

use std::fmt;
use std::str::FromStr;

/// A word that is none of the ones this key or member allows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value:?}; it must be one of {allowed}")]
pub struct UnknownWord {
    /// The key, member or field the word stood in.
    pub field: &'static str,
    /// What was given, cut to 64 characters.
    pub value: String,
    /// The words that are allowed, comma separated.
    pub allowed: &'static str,
}

macro_rules! words {
    ($(#[$meta:meta])* $name:ident ($field:literal, $allowed:literal) {
        $($(#[$vmeta:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vmeta])* $variant,)+
        }

        impl $name {
            /// Every value, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(s: &str) -> Result<Self, UnknownWord> {
                match s {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord {
                        field: $field,
                        value: s.chars().take(64).collect(),
                        allowed: $allowed,
                    }),
                }
            }
        }
    };
}

words! {
    /// May the caller come back? Ordered by strictness, so the smallest permission of several sources is `max`
    /// (section 4 rule 3, HNT-12).
    Retry("retry", "after, elsewhere, no") {
        /// Yes, inside the window.
        After = "after",
        /// Yes, at another instance: this one is going away.
        Elsewhere = "elsewhere",
        /// No.
        No = "no",
    }
}

words! {
    /// Can the refused request have had a side effect? Ordered, so the more cautious of several sources is `max`
    /// (section 4 rule 4, HNT-12).
    Applied("applied", "no, maybe") {
        /// No side effect of this request can have happened.
        No = "no",
        /// It may have.
        Maybe = "maybe",
    }
}

words! {
    /// What else the hint speaks for, for the same tier and below (section 2).
    Scope("scope", "request, tenant, service") {
        /// This request only: the default.
        Request = "request",
        /// Every call of this tenant or credential.
        Tenant = "tenant",
        /// Every call to this service.
        Service = "service",
    }
}

words! {
    /// The state the service's admission control is in (section 2).
    ServiceState("state", "normal, congested, shedding, recovering") {
        /// Taking everything its budgets allow.
        Normal = "normal",
        /// Deferring deferrable work where it can.
        Congested = "congested",
        /// Rejecting deferrable work.
        Shedding = "shedding",
        /// Letting deferrable work back in over a ramp.
        Recovering = "recovering",
    }
}

words! {
    /// How much the work matters when not all of it can be done. Ordered from most to least important, so the
    /// lower of two tiers is `max` (section 3, INT-13).
    Tier("tier", "critical, non-sheddable, deferrable") {
        /// Reserved capacity; refused only when its own budget is used.
        Critical = "critical",
        /// Never discarded once acknowledged; bounded at the door.
        NonSheddable = "non-sheddable",
        /// First to be rejected. The default for requests that say nothing.
        Deferrable = "deferrable",
    }
}

impl Tier {
    /// Position in [`Tier::ALL`], for tables with one entry a tier.
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_word_is_the_larger() {
        assert!(Retry::After < Retry::Elsewhere && Retry::Elsewhere < Retry::No);
        assert!(Applied::No < Applied::Maybe);
        assert!(Tier::Critical < Tier::NonSheddable && Tier::NonSheddable < Tier::Deferrable);
    }

    #[test]
    fn every_word_reads_back_and_anything_else_names_the_field() {
        for tier in Tier::ALL {
            assert_eq!(tier.as_str().parse::<Tier>(), Ok(*tier));
        }
        let err = "CRITICAL".parse::<Tier>().unwrap_err();
        assert_eq!(
            err.to_string(),
            "tier is \"CRITICAL\"; it must be one of critical, non-sheddable, deferrable"
        );
    }
}
