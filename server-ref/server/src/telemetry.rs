//! The Prometheus recorder of one server.
//!
//! A recorder of the process can be installed once, and a library must not do it: two servers in one process (two
//! tests, a quickstart) would panic or mix their figures. So every server has a recorder of its own, and admission is
//! given it.

use std::sync::Arc;

use holdoff_admission_tower::SharedRecorder;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// Upper bounds of seconds: from the timer's grain to the longest hint.
const SECONDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// Upper bounds of a decision: a quarter of a microsecond to where the processor was taken away.
const DECISION: [f64; 10] = [
    250e-9, 500e-9, 1e-6, 2e-6, 5e-6, 10e-6, 25e-6, 100e-6, 1e-3, 10e-3,
];

#[derive(Clone)]
pub(crate) struct Telemetry {
    pub(crate) recorder: SharedRecorder,
    pub(crate) page: PrometheusHandle,
}

impl Telemetry {
    pub(crate) fn new() -> Result<Self, BuildError> {
        let seconds = Matcher::Suffix("_seconds".to_owned());
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(seconds, &SECONDS)?
            .set_buckets_for_metric(Matcher::Full("overload_decision_seconds".to_owned()), &DECISION)?
            .build_recorder();
        let page = recorder.handle();
        Ok(Self {
            recorder: Arc::new(recorder),
            page,
        })
    }
}
