//! The burst test, over the wire and in real time.

use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_burst_test_holds_and_its_figures_are_recorded() {
    let report = holdoff_server::burst::run().await.expect("it runs");
    assert!(report.held(), "{report}");
    assert_eq!(report.steps.len(), 7);
    let of = report.figures;
    assert_eq!((of.accepted, of.refused, of.missed), (28, 16, 0), "{report}");
    assert!(
        of.start_delay.0 > Duration::from_millis(500),
        "they waited for the long tasks: {report}"
    );
    assert!(of.prediction_error.1 < of.start_delay.1, "{report}");
    assert!(
        of.would_have_succeeded > 0,
        "each of A's alone would have been in time: {report}"
    );
    let text = report.to_string();
    assert_eq!(
        text.lines().filter(|line| line.starts_with("held")).count(),
        7,
        "{text}"
    );
}
