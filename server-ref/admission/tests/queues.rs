//! Who goes next, what expires, what borrows: the queues behind the door.

mod common;

use common::{Answer, World, ms, req, window};
use holdoff_admission::Ending;
use holdoff_contract::{Applied, Code, Retry, ServiceState, Tier};

/// The burst test of the admission article (A10, ADM-24), seven steps.
#[test]
fn the_burst_test_holds_from_the_first_long_task_to_the_drain() {
    let mut w = World::new(
        r#"{"workers":2,"queue":200,"tiers":{"critical":{"reserved_workers":0}},
        "classes":{"long":{"mean_ms":2000,"p95_ms":2500,"deadline_ms":60000},
                   "short":{"mean_ms":50,"p95_ms":80,"deadline_ms":20000}},
        "tenants":{"default":{"queued_work_ms":500}}}"#,
    );
    // 1. two long tasks of A take both workers
    for n in 0..2 {
        w.ask(&format!("long {n}"), req("long", 2_000).of("a")).key();
    }
    assert_eq!(w.gauges().busy, 2);
    // 2. a burst of short tasks of A: up to its budget
    let burst: Vec<_> = (0..30).map(|_| w.ask("a", req("short", 50).of("a"))).collect();
    let accepted = burst.iter().filter(|answer| answer.code().is_none()).count();
    assert_eq!(accepted, 10);
    // 3. beyond it a stable reason and guidance
    for answer in &burst[accepted..] {
        assert_eq!(answer.code(), Some(Code::TenantLimit));
        assert_eq!(answer.refusal().overload.retry, Retry::After);
        assert!(answer.window().0 >= 50 && answer.window().1 > answer.window().0);
    }
    // 4. B is not blocked
    for n in 0..5 {
        w.ask(&format!("b{n}"), req("short", 50).of("b")).key();
    }
    // 5. too short a deadline is refused, with the one that would do
    let answer = w.ask("hasty", req("short", 50).of("b").within(500));
    assert_eq!(answer.code(), Some(Code::DeadlineUnattainable));
    assert!(answer.refusal().overload.min_deadline.is_some());
    // 6. drain: everything accepted is done, B's in turns with A's
    w.advance(4_000);
    assert_eq!((w.done.len(), w.refused.len()), (2 + 10 + 5, 0));
    let last_b = w.started.iter().rposition(|name| name.starts_with('b')).unwrap();
    assert!(last_b <= 2 + 11, "{:?}", w.started);
    // 7. admission recovers without a restart
    let g = w.gauges();
    assert_eq!((g.tickets, g.estimated_work, g.oldest_age), (0, ms(0), ms(0)));
    assert!(
        matches!(w.ask("again", req("short", 50).of("a")), Answer::Accepted { wait, .. } if wait.is_zero())
    );
}

#[test]
fn a_light_tenants_task_waits_for_at_most_four_of_a_heavy_tenants() {
    let mut w = World::new(
        r#"{"workers":2,"queue":200,"classes":{"t":{"mean_ms":20,"p95_ms":30,"deadline_ms":60000}}}"#,
    );
    for n in 0..70 {
        w.ask(&format!("a{n}"), req("t", 20).of("a")).key();
    }
    w.advance(50);
    let before = w.started.len();
    let answer = w.ask("b", req("t", 20).of("b"));
    assert!(
        matches!(answer, Answer::Accepted { wait, .. } if wait <= ms(40)),
        "{answer:?}"
    );
    w.advance(200);
    let b = w.started.iter().position(|name| name == "b").unwrap();
    assert!(b - before <= 4, "{} of a's went before", b - before);
}

#[test]
fn a_quiet_tenant_is_not_refused_for_a_wait_it_would_never_have() {
    // FC-ADM-02
    let mut w = World::new(
        r#"{"workers":1,"queue":200,"classes":{"t":{"mean_ms":100,"p95_ms":120,"deadline_ms":20000}}}"#,
    );
    let a = (0..100)
        .filter(|_| w.ask("a", req("t", 100).of("a")).code().is_none())
        .count();
    assert!(a >= 10, "{a}");
    w.advance(50);
    w.ask("b", req("t", 100).of("b").within(2_000)).key();
    w.advance(750);
    assert!(w.done.iter().any(|(name, _)| name == "b"), "{:?}", w.done);
}

#[test]
fn a_tenant_at_its_active_limit_waits_and_nobody_waits_for_it() {
    // FC-FAI-03
    let mut w = World::new(
        r#"{"workers":2,"classes":{"slow":{"mean_ms":1000,"p95_ms":1100,"deadline_ms":30000},
            "t":{"mean_ms":5,"p95_ms":10,"deadline_ms":1000}},"tenants":{"a":{"active":1}},
            "tiers":{"critical":{"reserved_workers":0}}}"#,
    );
    let refused: Vec<_> = (0..10)
        .filter_map(|n| w.ask(&format!("a{n}"), req("slow", 1_000).of("a")).code())
        .collect();
    // A worker is idle all the time, so what is refused of a is refused for its own limit alone.
    assert!((1..=7).contains(&refused.len()), "{refused:?}");
    assert!(
        refused.iter().all(|code| *code == Code::TenantLimit),
        "{refused:?}"
    );
    w.advance(10);
    for n in 0..10 {
        w.ask(&format!("b{n}"), req("t", 5).of("b")).key();
    }
    assert_eq!(w.started.iter().filter(|name| name.starts_with('a')).count(), 1);
    w.advance(100);
    assert_eq!(
        w.done.iter().filter(|(name, _)| name.starts_with('b')).count(),
        10
    );
    w.advance(3_000);
    assert_eq!(w.done.iter().filter(|(name, _)| name.starts_with('a')).count(), 3);
}

#[test]
fn expired_work_is_answered_at_its_deadline_with_every_worker_held() {
    let mut w = World::new(
        r#"{"workers":1,"classes":{"long":{"mean_ms":300,"p95_ms":350,"deadline_ms":5000},
            "short":{"mean_ms":50,"p95_ms":60,"deadline_ms":1000}},"tiers":{"critical":{"reserved_workers":0}}}"#,
    );
    w.ask("long", req("long", 1_000)).key();
    w.advance(10);
    w.ask("short", req("short", 50).within(500)).key();
    w.ask("kept", req("short", 50).within(800).tier(Tier::NonSheddable))
        .key();
    w.advance(2_000);
    let (name, at, rejection) = &w.refused[0];
    assert_eq!((name.as_str(), *at, w.refused.len()), ("short", 510, 1));
    let overload = &rejection.overload;
    assert_eq!(overload.code, Some(Code::DeadlineExpired));
    assert_eq!((overload.retry, overload.applied), (Retry::No, Applied::No));
    assert!(window(rejection).0 >= 50);
    // Non-sheddable work runs late rather than never.
    assert_eq!(w.started, ["long", "kept"]);
    assert_eq!(w.gauges().tickets, 0);
}

#[test]
fn at_dequeue_what_no_longer_fits_is_refused_and_not_started() {
    let mut w =
        World::new(r#"{"workers":1,"classes":{"t":{"mean_ms":100,"p95_ms":120,"deadline_ms":5000}}}"#);
    w.ask("longer than it said", req("t", 250)).key();
    w.ask("tight", req("t", 100).within(300)).key();
    w.advance(400);
    let codes: Vec<_> = w
        .refused
        .iter()
        .map(|(_, at, r)| (*at, r.overload.code.clone()))
        .collect();
    assert_eq!(codes, [(250, Some(Code::DeadlineUnattainable))]);
    assert!(w.refused[0].2.overload.min_deadline.is_some());
}

#[test]
fn a_reserved_worker_is_lent_only_to_work_that_fits_criticals_slack() {
    // FC-FAI-04
    let profile = |deadline| {
        format!(
            r#"{{"workers":10,"tiers":{{"critical":{{"reserved_workers":2}}}},"classes":{{
            "t":{{"mean_ms":500,"p95_ms":550,"deadline_ms":5000}},
            "crit":{{"mean_ms":20,"p95_ms":30,"deadline_ms":{deadline}}}}}}}"#
        )
    };
    for (deadline, running) in [(300, 8), (5_000, 10)] {
        let mut w = World::new(&profile(deadline));
        for n in 0..10 {
            w.ask(&n.to_string(), req("t", 500)).key();
        }
        assert_eq!(w.gauges().busy, running, "critical's deadline {deadline}");
        w.advance(1_200);
        assert_eq!(w.done.len(), 10);
    }
}

#[test]
fn critical_work_starts_within_its_slack_beside_a_flood() {
    // FC-FAI-02
    let mut w = World::new(
        r#"{"workers":4,"tiers":{"critical":{"reserved_workers":1}},"classes":{
            "bulk":{"mean_ms":20,"p95_ms":30,"deadline_ms":1000},"crit":{"mean_ms":20,"p95_ms":30,"deadline_ms":300}}}"#,
    );
    let mut asked = 0;
    for t in 0..1_500 {
        let _ = w.ask("bulk", req("bulk", 20).of("x"));
        if t >= 500 && t % 50 == 0 {
            w.ask("crit", req("crit", 20).of("y").tier(Tier::Critical)).key();
            asked += 1;
        }
        w.advance(2);
    }
    w.advance(100);
    assert_eq!(w.done.iter().filter(|(name, _)| name == "crit").count(), asked);
    let late = w.events.iter().filter(|event| {
        matches!(event, holdoff_admission::Event::Started { tier: Tier::Critical, start_delay, .. } if *start_delay > ms(250))
    });
    assert_eq!(late.count(), 0);
}

#[test]
fn tiers_share_the_dispatch_by_weight_while_all_wait() {
    let mut w = World::new(
        r#"{"workers":1,"queue":400,"classes":{"t":{"mean_ms":10,"p95_ms":15,"deadline_ms":60000}}}"#,
    );
    (0..10).for_each(|_| {
        let _ = w.ask("warm", req("t", 10));
        w.advance(10);
    });
    let before = w.started.len();
    for n in 0..90 {
        for (name, tier) in [
            ("c", Tier::Critical),
            ("n", Tier::NonSheddable),
            ("d", Tier::Deferrable),
        ] {
            w.ask(&format!("{name}{n}"), req("t", 10).tier(tier)).key();
        }
    }
    w.advance(1_500);
    // Critical work first uses up the turns that it kept while the others were warmed up: 25 tasks of its own.
    let share = |c: char| {
        w.started[before + 40..before + 140]
            .iter()
            .filter(|name| name.starts_with(c))
            .count()
    };
    // A turn is a whole task, so a window of a hundred may begin or end inside one.
    for (tier, want) in [('c', 50), ('n', 30), ('d', 20_usize)] {
        assert!(share(tier).abs_diff(want) <= 1, "{tier}: {}", share(tier));
    }
}

#[test]
fn critical_work_catches_up_on_two_seconds_of_turns_that_it_did_not_use_and_on_no_more() {
    let mut w = World::new(
        r#"{"workers":1,"queue":600,"classes":{"t":{"mean_ms":10,"p95_ms":15,"deadline_ms":60000}}}"#,
    );
    for n in 0..400 {
        let _ = w.ask(&format!("d{n}"), req("t", 10));
    }
    w.advance(2_500);
    let before = w.started.len();
    for n in 0..140 {
        w.ask(&format!("c{n}"), req("t", 10).tier(Tier::Critical)).key();
    }
    w.advance(1_900);
    let critical = |from: usize, to: usize| {
        let started = &w.started[before + from..before + to];
        started.iter().filter(|name| name.starts_with('c')).count()
    };
    // Two seconds of the pool at its weight of a half are a hundred tasks; then 0.5 beside 0.2.
    assert!(critical(0, 100) >= 98, "{}", critical(0, 100));
    assert!((22..=28).contains(&critical(105, 140)), "{}", critical(105, 140));
}

#[test]
fn deferred_work_waits_in_a_bounded_backlog_and_runs_when_the_state_is_normal_again() {
    let mut w = World::new(
        r#"{"workers":2,"backlog":3,"hold_ms":500,"ramp_ms":500,
            "classes":{"t":{"mean_ms":20,"p95_ms":30,"deadline_ms":1000}}}"#,
    );
    w.c.force_state(w.now, Some(ServiceState::Congested), &mut w.events);
    let on_202 = req("t", 20).deferrable_on_202();
    for n in 0..3 {
        assert!(matches!(w.ask(&n.to_string(), on_202), Answer::Deferred { .. }));
    }
    assert_eq!(w.ask("one too many", on_202).code(), Some(Code::TierShed));
    assert_eq!(w.ask("waits", req("t", 20)).code(), Some(Code::TierShed));
    w.advance(5_000);
    assert_eq!((w.started.len(), w.gauges().backlog), (0, 3));
    w.c.force_state(w.now, None, &mut w.events);
    w.advance(1_500);
    assert_eq!(
        (w.done.len(), w.gauges().state, w.gauges().tickets),
        (3, ServiceState::Normal, 0)
    );
}

#[test]
fn deferred_work_that_waits_too_long_ends_as_evicted() {
    let mut w = World::new(r#"{"workers":2,"backlog_age_ms":1000}"#);
    w.c.force_state(w.now, Some(ServiceState::Congested), &mut w.events);
    assert!(matches!(
        w.ask("x", req("other", 20).deferrable_on_202()),
        Answer::Deferred { .. }
    ));
    w.advance(1_500);
    assert_eq!(
        (w.refused[0].1, w.refused[0].2.overload.code.clone()),
        (1_000, Some(Code::Evicted))
    );
    assert_eq!(w.gauges().tickets, 0);
}

#[test]
fn an_overload_without_any_traffic_after_it_ends_in_normal() {
    // FC-REC-03
    let mut w = World::new(
        r#"{"workers":2,"queue":4,"hold_ms":500,"ramp_ms":500,
            "classes":{"t":{"mean_ms":20,"p95_ms":30,"deadline_ms":1000}}}"#,
    );
    for _ in 0..100 {
        let _ = w.ask("x", req("t", 200));
    }
    w.advance(200);
    assert_ne!(w.gauges().state, ServiceState::Normal);
    w.advance(2_300);
    assert_eq!(w.gauges().state, ServiceState::Normal);
    w.advance(2_500);
    assert_eq!(w.ask("later", req("t", 20)).code(), None);
}

#[test]
fn recovering_moves_on_whatever_way_its_requests_end() {
    // FC-REC-02
    let mut w = World::new(
        r#"{"workers":2,"hold_ms":500,"ramp_ms":500,"classes":{"t":{"mean_ms":20,"p95_ms":30,"deadline_ms":1000}}}"#,
    );
    w.c.force_state(w.now, Some(ServiceState::Recovering), &mut w.events);
    let service = ms(5);
    for ending in [
        Ending::Cancelled,
        Ending::TimedOut { service },
        Ending::Failed { service },
    ] {
        let key = w.ask("ends badly", req("t", 20)).key();
        w.end(key, ending);
        w.advance(10);
    }
    assert_eq!(
        w.ask("expired", req("t", 20).within(0)).code(),
        Some(Code::DeadlineExpired)
    );
    for _ in 0..5 {
        w.ask("ok", req("t", 20)).key();
        w.advance(30);
    }
    w.advance(1_000);
    let g = w.gauges();
    assert_eq!(
        (g.state, g.tickets, g.estimated_work),
        (ServiceState::Normal, 0, ms(0))
    );
}

#[test]
fn the_state_is_not_normal_while_everything_is_refused() {
    // FC-MET-03
    let mut w = World::new(
        r#"{"workers":2,"queue":0,"classes":{"t":{"mean_ms":60000,"p95_ms":61000,"deadline_ms":120000}}}"#,
    );
    for _ in 0..502 {
        let _ = w.ask("x", req("t", 60_000));
    }
    w.advance(30_000);
    assert_eq!(w.gauges().busy, 2);
    assert_ne!(w.gauges().state, ServiceState::Normal);
}

#[test]
fn a_class_without_samples_holds_little_whatever_its_prior_and_its_callers_say() {
    // FC-ADM-04
    let mut w = World::new(
        r#"{"workers":2,"classes":{"lint":{"mean_ms":50,"p95_ms":80,"deadline_ms":1000},
            "batch":{"mean_ms":2000,"p95_ms":3000,"deadline_ms":30000}},"tiers":{"critical":{"reserved_workers":0}}}"#,
    );
    let flood = common::Req {
        cost: Some(1),
        ..req("never-seen", 2_000)
    }
    .within(5_000);
    let codes: Vec<_> = (0..50).filter_map(|_| w.ask("x", flood).code()).collect();
    let admitted = 50 - codes.len() as u32;
    assert!(admitted <= 6, "{admitted}");
    assert!(w.gauges().estimated_work >= ms(1_000) * admitted);
    assert!(
        codes
            .iter()
            .all(|code| matches!(code, Code::DeadlineUnattainable | Code::QueueAgeExceeded)),
        "{codes:?}"
    );
}

#[test]
fn one_slow_odd_job_does_not_make_another_class_look_late() {
    // FC-ADM-03
    let mut w = World::new(
        r#"{"workers":1,"classes":{"lint":{"mean_ms":50,"p95_ms":80,"deadline_ms":1000},
            "compact":{"mean_ms":3000,"p95_ms":4000,"deadline_ms":30000}},"tiers":{"critical":{"reserved_workers":0}}}"#,
    );
    for _ in 0..100 {
        w.ask("lint", req("lint", 50)).key();
        w.advance(50);
    }
    w.ask("compact", req("compact", 3_000)).key();
    w.advance(3_100);
    for _ in 0..3 {
        w.ask("lint", req("lint", 50).within(1_000)).key();
    }
}

#[test]
fn a_stall_that_spoilt_the_estimate_does_not_lock_the_class_out() {
    let mut w = World::new(r#"{"workers":4,"classes":{"t":{"mean_ms":20,"p95_ms":30,"deadline_ms":1000}}}"#);
    // Everything takes ten seconds for a while: the estimate goes far over the deadline.
    for _ in 0..300 {
        let _ = w.ask("stalled", req("t", 10_000).within(60_000));
        w.advance(500);
    }
    w.advance(20_000);
    let mut ok = 0;
    for _ in 0..6_000 {
        ok += u32::from(w.ask("x", req("t", 20)).code().is_none());
        w.advance(10);
    }
    let done = w.done.iter().filter(|(name, _)| name == "x").count();
    assert!(
        ok > 5_500 && done > 5_500,
        "{ok} accepted, {done} done of 6000 in 60 s"
    );
}

#[test]
fn five_hundred_short_tasks_at_once_fit_where_there_is_room_for_a_thousand() {
    // FC-CON-03
    let mut w = World::new(
        r#"{"workers":4,"queue":1000,"classes":{"t":{"mean_ms":1,"p95_ms":2,"deadline_ms":5000}}}"#,
    );
    let refused = (0..500)
        .filter(|_| w.ask("x", req("t", 1)).code().is_some())
        .count();
    assert_eq!(refused, 0);
}

#[test]
fn a_hundred_abandoned_requests_leave_both_slots_free() {
    // FC-CON-01
    let mut w = World::new(
        r#"{"workers":2,"queue":0,"classes":{"t":{"mean_ms":500,"p95_ms":550,"deadline_ms":5000}}}"#,
    );
    for _ in 0..100 {
        let key = w.ask("x", req("t", 500)).key();
        w.advance(20);
        w.end(key, Ending::Cancelled);
        w.advance(600);
    }
    assert_eq!((w.gauges().tickets, w.gauges().estimated_work), (0, ms(0)));
    w.ask("one", req("t", 500)).key();
    w.ask("two", req("t", 500)).key();
}

#[test]
fn acknowledged_work_comes_back_over_its_budget_after_a_restart_and_new_work_is_refused() {
    // FC-DUR-03
    let json = r#"{"workers":5,"tiers":{"critical":{"reserved_workers":0},"non-sheddable":{"queue":5}},
        "classes":{"t":{"mean_ms":60000,"p95_ms":61000,"deadline_ms":600000}}}"#;
    let task = req("t", 60_000).tier(Tier::NonSheddable);
    let mut w = World::new(json);
    let accepted = (0..12).filter(|_| w.ask("x", task).code().is_none()).count();
    assert_eq!(accepted, 10);
    let mut again = World::new(json);
    let tickets: Vec<_> = (0..accepted)
        .map(|_| {
            let work = again.work(task);
            again.c.restore(again.now, work)
        })
        .collect();
    let mut started = 0;
    while again.c.next_step(again.now, &mut again.events).is_some() {
        started += 1;
    }
    assert_eq!(
        (tickets.len(), started, again.gauges().tiers[1].queued),
        (10, 5, 5)
    );
    assert_eq!(again.ask("new", task).code(), Some(Code::TierBudgetExhausted));
}
