//! What a program that watches its calls gets to see.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use holdoff_contract::Overload;
use holdoff_policy::{Event, StopReason};
use holdoff_tower::{CallOptions, Observer, OverloadLayer, describe_metrics};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use support::{Server, Step, call, get, ms, refuse, window};
use tracing::Level;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Runs this in paused time under a recorder of its own, and returns what was recorded, by name and labels.
fn recorded(run: impl Future<Output = ()>) -> BTreeMap<String, DebugValue> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run);
    });
    let all = snapshotter.snapshot().into_vec().into_iter();
    all.map(|(key, _, _, value)| {
        let labels: Vec<String> = key
            .key()
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        (format!("{}{{{}}}", key.key().name(), labels.join(",")), value)
    })
    .collect()
}

fn samples(values: &BTreeMap<String, DebugValue>, name: &str) -> Vec<f64> {
    match &values[&format!("{name}{{}}")] {
        DebugValue::Histogram(samples) => samples.iter().map(|sample| sample.into_inner()).collect(),
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn the_figures_reach_the_metrics_recorder_with_labels_from_closed_sets() {
    let values = recorded(async {
        let no = "v=1, code=x_ours, retry=no, applied=no, after=zz";
        let script = [Step::Answer(window(100, 200)), Step::Answer(refuse(no))];
        let error = call(
            &OverloadLayer::new(),
            &Server::new(script),
            get(CallOptions::new()),
        )
        .await;
        assert_eq!(error.unwrap_err().why(), Some(StopReason::RetryForbidden));
    });
    let count = |name: &str| match values.get(name) {
        Some(DebugValue::Counter(count)) => *count,
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(count("holdoff_attempts_total{}"), 2);
    assert_eq!(count("holdoff_retries_total{}"), 1);
    assert!(
        !values.contains_key("holdoff_early_retries_total{}"),
        "{values:?}"
    );
    assert_eq!(count("holdoff_gave_up_total{reason=retry_forbidden}"), 1);
    assert_eq!(count("holdoff_hints_malformed_total{}"), 1);
    assert_eq!(count("holdoff_refusals_total{status=503,code=queue_full}"), 1);
    // What a peer made up is no label.
    assert_eq!(count("holdoff_refusals_total{status=503,code=other}"), 1);

    assert_eq!(samples(&values, "holdoff_hint_seconds"), [0.1]);
    let delays = samples(&values, "holdoff_retry_delay_seconds");
    assert!(
        delays.len() == 1 && (0.1..=0.2).contains(&delays[0]),
        "{delays:?}"
    );
    let kept = samples(&values, "holdoff_hint_compliance_ratio");
    assert!(kept.len() == 1 && (1.0..=2.02).contains(&kept[0]), "{kept:?}");
    // A window costs nothing.
    assert_eq!(samples(&values, "holdoff_budget_tokens"), [100.0, 100.0]);
    assert_eq!(values["holdoff_waiting_calls{}"], DebugValue::Gauge(0.0.into()));
}

#[test]
fn the_budget_is_seen_to_go_down_and_up() {
    let values = recorded(async {
        let blind = support::answer(503, &[], support::empty());
        let script = [Step::Answer(blind)];
        let answer = call(
            &OverloadLayer::new(),
            &Server::new(script),
            get(CallOptions::new()),
        )
        .await;
        assert!(answer.is_ok());
    });
    assert_eq!(samples(&values, "holdoff_budget_tokens"), [86.0, 86.0, 100.0]);
    // No hint, no figure about hints.
    assert!(!values.contains_key("holdoff_hint_seconds{}"));
    assert!(!values.contains_key("holdoff_hint_compliance_ratio{}"));
}

#[test]
fn a_thousand_calls_that_are_cancelled_while_they_wait_leave_the_gauge_at_zero() {
    let waiting = |values: &BTreeMap<String, DebugValue>| match values["holdoff_waiting_calls{}"] {
        DebugValue::Gauge(level) => level.into_inner(),
        ref other => panic!("{other:?}"),
    };
    let storm = |cancelled: bool| async move {
        let layer = OverloadLayer::new();
        let server = Server::with_end([], || Step::Answer(window(10_000, 12_000)));
        let mut calls: Vec<_> = (0..1000)
            .map(|_| Box::pin(call(&layer, &server, get(CallOptions::new()))))
            .collect();
        let all = futures_util::future::join_all(calls.iter_mut());
        tokio::time::timeout(ms(5000), all).await.unwrap_err();
        if cancelled {
            drop(calls);
            assert_eq!(
                layer.counters().snapshot().gave_up,
                [(StopReason::Cancelled, 1000)]
            );
        } else {
            // Outlives the recorder.
            std::mem::forget(calls);
        }
    };
    let mut before = 0.0;
    for cancelled in [false, true] {
        let level = waiting(&recorded(storm(cancelled)));
        if cancelled {
            assert_eq!((before, level), (1000.0, 0.0));
        }
        before = level;
    }
}

/// Keeps the names of what is described.
#[derive(Default)]
struct Described(Mutex<BTreeSet<String>>);

impl Recorder for Described {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.0.lock().unwrap().insert(name.as_str().to_owned());
    }
    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.0.lock().unwrap().insert(name.as_str().to_owned());
    }
    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.0.lock().unwrap().insert(name.as_str().to_owned());
    }
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn every_figure_is_described_to_the_recorder_and_listed_in_the_docs_and_no_other() {
    let recorder = Described::default();
    metrics::with_local_recorder(&recorder, describe_metrics);
    let described = recorder.0.into_inner().unwrap();
    let page = include_str!("../../../docs/OPERATIONS.md");
    let listed: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `holdoff_")?.split_once("` |"))
        .filter(|(_, rest)| {
            rest.starts_with(" counter") || rest.starts_with(" histogram") || rest.starts_with(" gauge")
        })
        .map(|(name, _)| format!("holdoff_{name}"))
        .collect();
    assert_eq!(described, listed);
    // What a storm of every kind records is described.
    let values = recorded(async {
        let script = [
            Step::Answer(window(100, 200)),
            Step::Answer(refuse("v=1, code=queue_full, retry=no, applied=no, after=zz")),
        ];
        assert!(
            call(
                &OverloadLayer::new(),
                &Server::new(script),
                get(CallOptions::new())
            )
            .await
            .is_err()
        );
    });
    for name in values.keys() {
        let name = name.split('{').next().unwrap();
        assert!(described.contains(name), "{name} is not described");
    }
    for reason in [
        "deadline_before_hint",
        "budget_exhausted",
        "cancelled",
        "transport",
    ] {
        assert!(page.contains(&format!("`{reason}`")), "{reason}");
    }
}

/// Writes down what it is told.
#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Observer for Diary {
    fn attempt(&self, number: u32) {
        self.0.lock().unwrap().push(format!("attempt {number}"));
    }
    fn refused(&self, overload: &Overload) {
        self.0.lock().unwrap().push(overload.to_string());
    }
    fn event(&self, event: &Event) {
        let line = match event {
            Event::RetryScheduled { .. } => "scheduled".to_owned(),
            Event::RetrySent { early, .. } => format!("sent, early: {early}"),
            Event::GaveUp(why) => why.as_str().to_owned(),
            _ => return,
        };
        self.0.lock().unwrap().push(line);
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_is_told_everything_in_order() {
    let diary = Arc::new(Diary::default());
    let observer: Arc<dyn Observer> = Arc::<Diary>::clone(&diary);
    let layer = OverloadLayer::builder().observer(observer).build();
    let script = [
        Step::Answer(window(100, 200)),
        Step::Answer(refuse("v=1, code=queue_full, retry=no, applied=no")),
    ];
    assert!(
        call(&layer, &Server::new(script), get(CallOptions::new()))
            .await
            .is_err()
    );
    assert_eq!(
        *diary.0.lock().unwrap(),
        [
            "attempt 1",
            "503 queue_full retry=after applied=no after=100ms max=200ms",
            "scheduled",
            "sent, early: false",
            "attempt 2",
            "503 queue_full retry=no applied=no",
            "retry_forbidden",
        ]
    );
    // Counted all the same.
    assert_eq!(layer.counters().snapshot().attempts_total, 2);
}

/// Keeps the fields of each span, by its id, and the level of each event.
#[derive(Clone, Default)]
struct Traces {
    spans: Arc<Mutex<BTreeMap<u64, Span>>>,
    events: Arc<Mutex<Vec<(Level, String)>>>,
}

#[derive(Clone, Debug, Default)]
struct Span {
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
}

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Traces {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &tracing::Id, context: Context<'_, S>) {
        let mut span = Span {
            name: attributes.metadata().name(),
            parent: context
                .span(id)
                .unwrap()
                .parent()
                .map(|parent| parent.id().into_u64()),
            fields: BTreeMap::new(),
        };
        attributes.record(&mut Fields(&mut span.fields));
        self.spans.lock().unwrap().insert(id.into_u64(), span);
    }

    fn on_record(&self, id: &tracing::Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut spans = self.spans.lock().unwrap();
        values.record(&mut Fields(&mut spans.get_mut(&id.into_u64()).unwrap().fields));
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        let line = (*event.metadata().level(), format!("{fields:?}"));
        self.events.lock().unwrap().push(line);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_and_each_attempt_have_a_span_without_path_or_query() {
    let traces = Traces::default();
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(traces.clone()));
    let server = Server::new([Step::Answer(window(100, 200)), Step::Answer(window(100, 200))]);
    let mut request = get(CallOptions::new());
    *request.uri_mut() = "http://user:pw@a.example/secret?token=1".parse().unwrap();
    assert!(call(&OverloadLayer::new(), &server, request).await.is_ok());
    drop(guard);
    let spans = traces.spans.lock().unwrap().clone();
    let (calls, attempts): (Vec<_>, Vec<_>) = spans.iter().partition(|(_, span)| span.name == "holdoff.call");
    assert_eq!(calls.len(), 1);
    let (call, span) = calls[0];
    assert_eq!(span.fields["holdoff.attempts"], "3");
    assert!(!span.fields.contains_key("holdoff.gave_up"));
    let seen: Vec<(&str, &str)> = attempts
        .iter()
        .map(|(_, span)| {
            assert_eq!((span.name, span.parent), ("holdoff.attempt", Some(*call)));
            let field = |name: &str| span.fields[name].as_str();
            (
                field("http.request.resend_count"),
                field("http.response.status_code"),
            )
        })
        .collect();
    assert_eq!(seen, [("0", "503"), ("1", "503"), ("2", "200")]);
    for span in spans.values() {
        assert_eq!(span.fields["server.address"], "\"a.example\"");
        assert!(
            span.fields
                .values()
                .all(|value| !value.contains("secret") && !value.contains("pw")),
            "{span:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_logged_above_debug_by_a_call_that_keeps_to_its_hints() {
    let traces = Traces::default();
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(traces.clone()));
    let layer = OverloadLayer::new();
    // Answered at once: nothing at all.
    assert!(
        call(&layer, &Server::new([]), get(CallOptions::new()))
            .await
            .is_ok()
    );
    assert_eq!(*traces.events.lock().unwrap(), []);
    // Refused, retried, refused for good.
    let script = [
        Step::Answer(window(100, 200)),
        Step::Answer(refuse("v=1, code=queue_full, retry=no, applied=no")),
    ];
    assert!(
        call(&layer, &Server::new(script), get(CallOptions::new()))
            .await
            .is_err()
    );
    drop(guard);
    let events = traces.events.lock().unwrap().clone();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(
        events.iter().all(|(level, _)| *level == Level::DEBUG),
        "{events:?}"
    );
    let spans = traces.spans.lock().unwrap();
    let stopped = spans
        .values()
        .filter(|span| span.fields.contains_key("holdoff.gave_up"));
    assert_eq!(stopped.count(), 1);
}
