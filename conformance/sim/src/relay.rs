//! Relays between the caller and the service: the product's own policy and propagation, hop by hop.

use std::sync::Arc;
use std::time::Duration;

use holdoff_contract::{Attempt, CalledAs, Overload, Relay, Tier};
use holdoff_policy::{
    Action, Call, CallSpec, Destination, Finish, Incoming, Instances, Outcome, Policy, Replay, Safety,
};
use rand_pcg::Pcg64Mcg;

use crate::time::{MS, Nanos, Origin};

/// Time a relay keeps for itself of the deadline it passes on.
pub(crate) const RESERVE: Nanos = 10 * MS;

/// Passes a refusal up through relays that do not retry, as each of them does on the product.
pub(crate) fn pass_up(
    relays: u32,
    mut overload: Box<Overload>,
    origin: Origin,
    now: Nanos,
    tier: Tier,
    rng: &mut Pcg64Mcg,
) -> Box<Overload> {
    let policy = Arc::new(Policy::default());
    for _ in 0..relays {
        let mut destination = Destination::new(&policy);
        let spec = CallSpec {
            safety: Safety::Idempotent,
            replay: Replay::Bytes,
            deadline: Some(Duration::from_secs(60)),
            tier: Some(tier),
            caller: None,
            instances: Instances::default(),
            incoming: Some(Incoming {
                attempt: Attempt::saturating(1),
                retries: false,
                tier: Some(tier),
                deadline: None,
            }),
        };
        let at = origin.at(now);
        let mut call = Call::new(Arc::clone(&policy), spec, at);
        let sent = call.next_action(at, &mut destination, rng, &mut ());
        call.on_outcome(
            at,
            at,
            Outcome::Overload(overload.clone()),
            &mut destination,
            rng,
            &mut (),
        );
        if let (Action::Send(_), Action::Finish(Finish::GiveUp(end))) =
            (sent, call.next_action(at, &mut destination, rng, &mut ()))
        {
            let relay = Relay {
                elapsed: Duration::ZERO,
                called_as: CalledAs::OwnService,
                retried: end.attempts > 1,
                idempotent: true,
                side_effect: false,
            };
            overload = Box::new(overload.for_caller(&relay));
        }
    }
    overload
}
