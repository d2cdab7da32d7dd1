//! What a program that watches its calls gets to see.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use holdoff_tower::{CallOptions, OverloadLayer};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use support::{Server, Step, call, get, refuse, window};
use tracing::field::{Field, Visit};
use tracing::span::Attributes;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

#[test]
fn the_counters_reach_the_metrics_recorder_with_labels_from_closed_sets() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let no = "v=1, code=x_\u{21}, retry=no, applied=no, after=zz";
            let script = [Step::Answer(window(100, 200)), Step::Answer(refuse(no))];
            call(
                &OverloadLayer::new(),
                &Server::new(script),
                get(CallOptions::new()),
            )
            .await
            .unwrap_err();
        });
    });
    let counts: BTreeMap<String, u64> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .filter_map(|(key, _, _, value)| {
            let labels: Vec<String> = key
                .key()
                .labels()
                .map(|label| format!("{}={}", label.key(), label.value()))
                .collect();
            let DebugValue::Counter(count) = value else {
                return None;
            };
            Some((format!("{}{{{}}}", key.key().name(), labels.join(",")), count))
        })
        .collect();
    assert_eq!(counts["holdoff_attempts_total{}"], 2);
    assert_eq!(counts["holdoff_retries_total{}"], 1);
    assert!(
        !counts.contains_key("holdoff_early_retries_total{}"),
        "{counts:?}"
    );
    assert_eq!(counts["holdoff_gave_up_total{reason=retry_forbidden}"], 1);
    assert!(counts["holdoff_hints_malformed_total{}"] >= 1, "{counts:?}");
}

/// Keeps the fields of each span.
struct Spans(Arc<Mutex<Vec<BTreeMap<&'static str, String>>>>);

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: tracing::Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, span: &Attributes<'_>, _: &tracing::Id, _: Context<'_, S>) {
        let mut fields = BTreeMap::new();
        span.record(&mut Fields(&mut fields));
        if let Ok(mut spans) = self.0.lock() {
            spans.push(fields);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_a_span_with_its_resend_count_and_without_path_or_query() {
    let spans = Arc::default();
    let subscriber = tracing_subscriber::registry().with(Spans(Arc::clone(&spans)));
    let guard = tracing::subscriber::set_default(subscriber);
    let server = Server::new([Step::Answer(window(100, 200)), Step::Answer(window(100, 200))]);
    let mut request = get(CallOptions::new());
    *request.uri_mut() = "http://user:pw@a.example/secret?token=1".parse().unwrap();
    assert!(call(&OverloadLayer::new(), &server, request).await.is_ok());
    drop(guard);
    let spans = spans.lock().unwrap();
    let counts: Vec<&str> = spans
        .iter()
        .map(|fields| fields["http.request.resend_count"].as_str())
        .collect();
    assert_eq!(counts, ["0", "1", "2"]);
    for fields in &*spans {
        assert_eq!(fields["server.address"], "\"a.example\"");
        assert!(
            fields
                .values()
                .all(|value| !value.contains("secret") && !value.contains("pw")),
            "{fields:?}"
        );
    }
}
