//! Section 6: what a relay tells its own caller.

use holdoff_contract::write::{self, Audience};
use holdoff_contract::{
    Applied, CalledAs, Code, Granularity, Hint, Overload, OverloadStatus, Relay, Retry, Scope,
};

use crate::wire::{ms, refused, text};

const RELAY: Relay = Relay {
    elapsed: std::time::Duration::from_millis(400),
    called_as: CalledAs::OwnService,
    retried: false,
    idempotent: true,
    side_effect: false,
};

fn after(delay: u64) -> Hint {
    Hint::After {
        delay: ms(delay),
        granularity: Granularity::Milliseconds,
    }
}

fn with_hint(code: Code, hint: Hint) -> Overload {
    Overload {
        hint,
        ..Overload::new(code)
    }
}

#[test]
fn the_table_of_section_6_decides_status_and_code() {
    use OverloadStatus::{GatewayTimeout, ServiceUnavailable, TooManyRequests};
    let tenant = Relay {
        called_as: CalledAs::CallersTenant,
        ..RELAY
    };
    let answer = |received: &Overload, relay: &Relay| {
        let sent = received.for_caller(relay);
        (sent.status, sent.code.unwrap(), sent.hop)
    };
    let overloaded = (ServiceUnavailable, Code::DependencyOverloaded, 1);
    assert_eq!(answer(&Overload::new(Code::QueueFull), &tenant), overloaded);
    assert_eq!(answer(&Overload::new(Code::TenantLimit), &RELAY), overloaded);
    assert_eq!(
        answer(&Overload::new(Code::TenantLimit), &tenant),
        (TooManyRequests, Code::TenantLimit, 1)
    );
    let bare = refused(429, &[], None).0;
    assert_eq!(answer(&bare, &tenant), (TooManyRequests, Code::RateLimited, 1));
    let contradiction = Overload {
        status: TooManyRequests,
        ..Overload::new(Code::QueueFull)
    };
    assert_eq!(
        answer(&contradiction, &tenant),
        (TooManyRequests, Code::RateLimited, 1)
    );
    let timeout = Overload {
        retry: Retry::After,
        applied: Applied::No,
        ..Overload::dependency_timeout()
    };
    assert_eq!(
        answer(&timeout, &RELAY),
        (GatewayTimeout, Code::DependencyTimeout, 2)
    );
    assert_eq!(timeout.for_caller(&RELAY).retry, Retry::No);
    assert_eq!(timeout.for_caller(&RELAY).applied, Applied::Maybe);
}

#[test]
fn a_hint_ages_by_the_time_it_was_held_and_never_runs_out() {
    let sent = |hint| with_hint(Code::QueueFull, hint).for_caller(&RELAY).hint;
    assert_eq!(sent(after(1500)), after(1100));
    assert_eq!(sent(after(300)), after(1));
    assert_eq!(sent(Hint::Absent), after(1000));
    assert_eq!(sent(after(0)), after(1000));
    let window = |delay, max| Hint::Window {
        delay: ms(delay),
        max: ms(max),
    };
    assert_eq!(sent(window(1500, 4000)), window(1100, 3600));
    assert_eq!(sent(window(300, 350)), window(1, 1));
}

#[test]
fn each_reason_of_section_6_5_forbids_the_retry_and_leaves_the_hint() {
    let bare = refused(503, &[("retry-after", "2")], None).0;
    assert_eq!(bare.for_caller(&RELAY).retry, Retry::After);
    let unsafe_again = Relay {
        idempotent: false,
        ..RELAY
    };
    assert_eq!(bare.for_caller(&unsafe_again).retry, Retry::No);
    let done = Overload {
        applied: Applied::No,
        ..bare.clone()
    };
    assert_eq!(done.for_caller(&unsafe_again).retry, Retry::After);
    assert_eq!(
        done.for_caller(&Relay {
            side_effect: true,
            ..unsafe_again
        })
        .retry,
        Retry::No
    );
    assert_eq!(
        done.for_caller(&Relay {
            retried: true,
            ..RELAY
        })
        .retry,
        Retry::No
    );
    let deep = Overload {
        hop: 15,
        ..done.clone()
    };
    assert_eq!(
        (deep.for_caller(&RELAY).retry, deep.for_caller(&RELAY).hop),
        (Retry::No, 16)
    );
    let elsewhere = Overload {
        retry: Retry::Elsewhere,
        ..done
    };
    assert_eq!(elsewhere.for_caller(&RELAY).retry, Retry::Elsewhere);
    assert_eq!(bare.for_caller(&unsafe_again).hint.delay_or_zero(), ms(1600));
}

#[test]
fn unknown_keys_and_members_of_version_1_travel_on_in_one_replaced_signal() {
    let lines = [
        (
            "overload-signal",
            "v=1, code=queue_full, retry=after, applied=no, after=900, scope=service, zz=tok;p=1",
        ),
        ("content-type", "application/problem+json"),
    ];
    let body =
        r#"{"contract_version":1,"code":"queue_full","retry_after_ms":900,"detail":"db-7 is down","zz":[1]}"#;
    let received = refused(503, &lines, Some(body)).0;
    let sent = received.for_caller(&RELAY);
    assert_eq!((sent.scope, &sent.detail), (Scope::Request, &None));
    let encoded = write::overload(&sent, Audience::Trusted);
    assert_eq!(
        text(&encoded.headers, "overload-signal").as_deref(),
        Some("v=1, code=dependency_overloaded, retry=after, applied=no, after=500, hop=1, zz=tok;p=1")
    );
    let body: serde_json::Value = serde_json::from_slice(&encoded.body).unwrap();
    assert_eq!((&body["zz"], body.get("detail")), (&serde_json::json!([1]), None));
}

#[test]
fn of_several_the_largest_delay_and_the_smallest_permission_go_up() {
    let window = |delay, max| Hint::Window {
        delay: ms(delay),
        max: ms(max),
    };
    let first = Overload {
        hop: 1,
        ..with_hint(Code::DependencyOverloaded, window(100, 900))
    };
    let second = Overload {
        retry: Retry::No,
        hop: 3,
        ..with_hint(Code::QueueFull, after(500))
    };
    let third = Overload {
        applied: Applied::Maybe,
        ..with_hint(Code::QueueFull, window(50, 400))
    };
    let both = Overload::combine([first.clone(), second, third.clone()]).unwrap();
    assert_eq!(both.code, Some(Code::DependencyOverloaded));
    assert_eq!(
        (both.retry, both.applied, both.hop),
        (Retry::No, Applied::Maybe, 3)
    );
    assert_eq!(both.hint, window(500, 900));
    let late = with_hint(Code::QueueFull, after(1000));
    assert_eq!(Overload::combine([first, late, third]).unwrap().hint, after(1000));
    assert_eq!(Overload::combine([]), None);
}

#[test]
fn an_own_hint_counts_where_it_is_the_larger() {
    assert_eq!(after(100).combine(after(300)), after(300));
    assert_eq!(after(300).combine(Hint::Absent), after(300));
    assert_eq!(Hint::Absent.combine(after(300)), after(300));
    let seconds = Hint::After {
        delay: ms(2000),
        granularity: Granularity::Seconds,
    };
    assert_eq!(after(300).combine(seconds), seconds);
}

#[test]
fn a_relay_out_of_time_says_what_may_have_been_done() {
    let at_the_door = Overload::deadline_expired(Applied::No);
    assert_eq!(
        (at_the_door.status.as_u16(), at_the_door.retry, at_the_door.hop),
        (503, Retry::No, 0)
    );
    assert_eq!(Overload::deadline_expired(Applied::Maybe).applied, Applied::Maybe);
    let timeout = Overload::dependency_timeout();
    assert_eq!(
        (timeout.status.as_u16(), timeout.retry, timeout.applied),
        (504, Retry::No, Applied::Maybe)
    );
}
