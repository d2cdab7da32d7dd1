use super::*;
use crate::clock;
use holdoff_contract::IdempotencyKey;

fn tasks(ended: usize) -> Tasks {
    Tasks::new(&Limits {
        ended_tasks: ended,
        dead_letters: 2,
        ..Limits::default()
    })
}

fn new(tier: Tier) -> NewTask {
    NewTask {
        class: "x".to_owned(),
        tier,
        tenant: None,
        key: None,
        expected_in: Duration::ZERO,
        record: (tier == Tier::NonSheddable).then(|| watch::channel(Standing::Durable).1),
    }
}

const fn end(state: State) -> End {
    End { state, code: None }
}

#[test]
fn ended_tasks_are_forgotten_oldest_first_and_live_ones_never() {
    let tasks = tasks(2);
    let now = clock::now();
    let ids: Vec<Uuid> = (0..4).map(|_| clock::task_id()).collect();
    for id in &ids {
        assert!(tasks.accept(*id, new(Tier::Deferrable), now).is_ok());
    }
    for id in &ids[..3] {
        tasks.ended(*id, now, &end(State::Done));
        tasks.ended(*id, now, &end(State::Failed)); // the first ending stands
    }
    assert!(tasks.view(ids[0], now).is_none());
    assert_eq!(tasks.view(ids[1], now).map(|task| task.state), Some(State::Done));
    assert_eq!(
        tasks.view(ids[3], now).map(|task| task.state),
        Some(State::Queued)
    );
    assert_eq!(tasks.live(), 1);
    assert!(tasks.take_forgotten().is_empty(), "they had no record");
}

#[test]
fn a_key_stands_for_one_task_until_its_time_is_over_or_nothing_was_done() {
    let tasks = tasks(8);
    let now = clock::now();
    let key = Arc::new(Key {
        tenant: None,
        key: IdempotencyKey::new("k").unwrap(),
    });
    let enter = |print: u128, now: Instant| {
        let id = clock::task_id();
        let key = Some((Arc::clone(&key), Print(print)));
        let new = NewTask {
            key,
            ..new(Tier::Deferrable)
        };
        tasks.accept(id, new, now).map(|view| view.id)
    };
    let first = enter(1, now).unwrap();
    assert!(matches!(enter(1, now), Err(Known::Task(view)) if view.id == first));
    assert!(matches!(enter(2, now), Err(Known::Other)));
    tasks.ended(first, now, &end(State::Evicted));
    let second = enter(2, now).expect("nothing was done under the key");
    tasks.started(second, now);
    tasks.ended(second, now, &end(State::Done));
    for _ in 0..20 {
        let id = clock::task_id();
        assert!(tasks.accept(id, new(Tier::Deferrable), now).is_ok());
        tasks.ended(id, now, &end(State::Done));
    }
    assert!(
        matches!(enter(2, now), Err(Known::Task(view)) if view.id == second),
        "not washed away"
    );
    let later = now + Duration::from_millis(Limits::default().key_ms + 1);
    let third = enter(1, later).expect("its time is over");
    for _ in 0..8 {
        let id = clock::task_id();
        assert!(tasks.accept(id, new(Tier::Deferrable), later).is_ok());
        tasks.ended(id, later, &end(State::Done));
    }
    assert!(tasks.view(second, later).is_none(), "forgotten like any other");
    assert!(matches!(enter(1, later), Err(Known::Task(view)) if view.id == third));
}

#[test]
fn non_sheddable_work_that_did_not_end_well_is_a_dead_letter_of_its_owner_up_to_a_limit() {
    let tasks = tasks(1);
    let now = clock::now();
    let owner = Tenant::new("a").ok();
    let mut ids = Vec::new();
    for state in [
        State::Failed,
        State::Expired,
        State::Failed,
        State::Done,
        State::Done,
    ] {
        let id = clock::task_id();
        let tenant = owner.clone();
        let new = NewTask {
            tenant,
            ..new(Tier::NonSheddable)
        };
        assert!(tasks.accept(id, new, now).is_ok());
        tasks.started(id, now);
        tasks.ended(id, now, &end(state));
        ids.push(id);
    }
    let (shown, count) = tasks.dead_letters(owner.as_ref(), now);
    let shown: Vec<Uuid> = shown.iter().map(|view| view.id).collect();
    assert_eq!((shown, count), (vec![ids[2], ids[1]], 2), "the newest first");
    assert_eq!(tasks.dead_letters(None, now).1, 0, "nobody else's");
    assert_eq!(tasks.take_forgotten(), [ids[0], ids[3]], "their records go too");
    assert!(tasks.take_forgotten().is_empty());
}

#[test]
fn a_task_that_is_not_durable_yet_is_told_to_nobody_and_leaves_no_trace_when_it_cannot_be() {
    let tasks = tasks(8);
    let now = clock::now();
    let key = Arc::new(Key {
        tenant: None,
        key: IdempotencyKey::new("k").unwrap(),
    });
    let (stand, standing) = watch::channel(Standing::Pending);
    let pending = NewTask {
        key: Some((Arc::clone(&key), Print(1))),
        record: Some(standing),
        ..new(Tier::NonSheddable)
    };
    let id = clock::task_id();
    assert!(tasks.accept(id, pending, now).is_ok());
    assert!(matches!(tasks.known(&key, Print(1), now), Some(Known::Pending(first, _)) if first == id));
    stand.send_replace(Standing::Durable);
    assert!(matches!(tasks.known(&key, Print(1), now), Some(Known::Task(_))));
    tasks.withdraw(id);
    assert!(tasks.known(&key, Print(1), now).is_none());
    assert_eq!(tasks.live(), 0);
}
