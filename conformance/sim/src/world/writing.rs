//! The decisions of a run as lines of a trace.

use holdoff_contract::Overload;

use super::World;
use crate::door::{Ask, Verdict};
use crate::time::Nanos;
use crate::trace::{Decided, Line};

/// The trace; nothing of it where it was not asked for.
impl World {
    fn ms(t: Nanos) -> f64 {
        (t / 1_000) as f64 / 1_000.0
    }

    pub(super) fn write_decision(&mut self, call: u32, ask: &Ask, verdict: &Verdict) {
        if !self.setup.trace {
            return;
        }
        let (decision, code, predicted) = match verdict {
            Verdict::Accepted { predicted, .. } => (Decided::Accept, None, Some(*predicted)),
            Verdict::Refused(overload) => (
                Decided::Reject,
                Some(overload.code_label().to_owned()),
                overload.predicted_wait.map(crate::time::whole),
            ),
        };
        let left = ask.time_left.map_or(Nanos::MAX, crate::time::whole);
        let arrival = self.calls[call as usize].record.arrival;
        self.calls[call as usize].line = self.trace.len() as u32;
        self.trace.push(Line {
            t_ms: Self::ms(self.now),
            tenant: Some(self.tenants[usize::from(ask.tenant)].clone()),
            class: ask.class.name().to_owned(),
            tier: ask.tier.into(),
            deadline_ms: Self::ms(left.min(arrival.deadline.saturating_sub(self.now))),
            decision,
            code,
            predicted_wait_ms: predicted.map(Self::ms),
            started_ms: None,
            finished_ms: None,
            call: Some(u64::from(call)),
        });
    }

    fn line(&mut self, call: u32) -> Option<&mut Line> {
        let line = self.calls[call as usize].line as usize;
        self.trace.get_mut(line)
    }

    pub(super) fn write_start(&mut self, call: u32, started: Nanos, finished: Nanos) {
        if let Some(line) = self.line(call) {
            line.started_ms = Some(Self::ms(started));
            line.finished_ms = Some(Self::ms(finished));
        }
    }

    pub(super) fn write_refusal(&mut self, call: u32, overload: &Overload) {
        let code = overload.code_label();
        if let Some(line) = self.line(call).filter(|line| line.code.is_none()) {
            line.code = Some(code.to_owned());
        }
    }
}
