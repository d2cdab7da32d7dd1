//! The retry budget: integers, charged before the wait, paid back when the retry succeeds or is never sent.
//!
//! A retry costs the destination as much as a first try, and comes when it can bear it least. Limits per call do not
//! bound the sum, so calls to one destination share a token bucket (CONTRACT section 5, CLI-09). Its numbers are whole
//! tokens: a ratio kept as a fraction gets rounded somewhere, and always in favour of the retry.

/// What a retry costs (CONTRACT section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Price {
    /// Inside a window the server gave: it scheduled this retry. 0 tokens; a budget would throw the deferred service
    /// away, and attempts, floor and width bound it.
    Scheduled,
    /// After a plain hint, or at another instance after retry=elsewhere. 5 tokens: at most 20 % extra requests.
    Hinted,
    /// Without a hint. 14 tokens: at most 7 % extra requests.
    Blind,
}

impl Price {
    /// The cost in tokens: 0, 5 or 14.
    pub const fn tokens(self) -> u32 {
        match self {
            Self::Scheduled => 0,
            Self::Hinted => 5,
            Self::Blind => 14,
        }
    }
}

/// What the budget says to a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Withdrawal {
    /// The tokens are taken; give them back with [`Budget::refund`] if the retry succeeds or is never sent.
    Granted {
        /// How many.
        tokens: u32,
    },
    /// Fewer tokens than the price are left. Nothing is taken.
    Refused,
}

/// Token bucket of one destination. Never below 0 nor above its capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    capacity: u32,
    tokens: u32,
}

impl Budget {
    /// What a first-try success pays in: 1 token.
    pub const DEPOSIT: u32 = 1;

    /// A full bucket. A caller starts with a full one so that the first refusals after its start are retried.
    pub const fn new(capacity: u32) -> Self {
        Self {
            capacity,
            tokens: capacity,
        }
    }

    /// Takes the price of a retry, before its wait: later would be too late, the load has already been promised.
    pub fn withdraw(&mut self, price: Price) -> Withdrawal {
        self.take(price.tokens())
    }

    /// Pays in for a first-try success.
    pub fn deposit(&mut self) {
        self.put(Self::DEPOSIT);
    }

    /// Gives back what [`Self::withdraw`] took.
    pub fn refund(&mut self, tokens: u32) {
        self.put(tokens);
    }

    /// Tokens left.
    pub const fn level(&self) -> u32 {
        self.tokens
    }

    /// Tokens of a full bucket.
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// True when nothing is owed.
    pub const fn is_full(&self) -> bool {
        self.tokens == self.capacity
    }

    fn take(&mut self, tokens: u32) -> Withdrawal {
        match self.tokens.checked_sub(tokens) {
            Some(left) => {
                self.tokens = left;
                Withdrawal::Granted { tokens }
            }
            None => Withdrawal::Refused,
        }
    }

    fn put(&mut self, tokens: u32) {
        self.tokens = self.tokens.saturating_add(tokens).min(self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FC-BUD-01: an empty bucket of 100, a thousand times one deposit and one retry asked for, which then fails.
    fn granted(deposit: u32, cost: u32) -> u32 {
        let mut budget = Budget {
            capacity: 100,
            tokens: 0,
        };
        let mut granted = 0;
        for _ in 0..1000 {
            budget.put(deposit);
            if matches!(budget.take(cost), Withdrawal::Granted { .. }) {
                granted += 1;
            }
            assert!(budget.tokens <= budget.capacity);
        }
        granted
    }

    #[test]
    fn a_thousand_successes_pay_for_exactly_what_the_prices_say() {
        // FC-BUD-01, the three prices.
        assert!((199..=200).contains(&granted(Budget::DEPOSIT, Price::Hinted.tokens())));
        assert!((70..=71).contains(&granted(Budget::DEPOSIT, Price::Blind.tokens())));
        assert_eq!(granted(Budget::DEPOSIT, Price::Scheduled.tokens()), 1000);
    }

    #[test]
    fn no_ratio_is_rounded_in_favour_of_the_retry() {
        // FC-BUD-01, "also test 0.1, 0.2, 0.35, 1.0 and 1.5": deposit over cost. At most one retry a turn is asked for.
        for (deposit, cost, most) in [
            (1, 10, 100),
            (1, 5, 200),
            (7, 20, 350),
            (1, 1, 1000),
            (3, 2, 1000),
        ] {
            let granted = granted(deposit, cost);
            assert!(
                granted <= most && granted >= most - 1,
                "{deposit}/{cost}: {granted} of {most}"
            );
        }
    }

    #[test]
    fn the_order_of_deposits_and_retries_changes_nothing() {
        // FC-BUD-01: "whatever the order". Successes first fill the bucket and what is over its brim is gone.
        let mut budget = Budget {
            capacity: 100,
            tokens: 0,
        };
        (0..1000).for_each(|_| budget.deposit());
        assert_eq!(budget.level(), 100);
        let mut granted = 0;
        while budget.withdraw(Price::Blind) != Withdrawal::Refused {
            granted += 1;
        }
        assert_eq!((granted, budget.level()), (7, 2));
    }

    #[test]
    fn a_refund_never_overfills_and_a_refusal_takes_nothing() {
        let mut budget = Budget::new(4);
        assert_eq!(budget.withdraw(Price::Hinted), Withdrawal::Refused);
        assert_eq!(budget.level(), 4);
        budget.refund(u32::MAX);
        assert!(budget.is_full());
    }
}
