//! Negative controls: rules that are known to be wrong, each of which the gates must catch. A gate that everybody passes
//! measures nothing.

use crate::Setup;
use crate::caller::ClientKind;
use crate::door::{Admission, HintKind};

/// A wrong rule, and where it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// What is wrong with it.
    pub name: &'static str,
    /// The server's rule.
    pub admission: Admission,
    /// What its refusals say.
    pub hint: HintKind,
    /// What callers do.
    pub clients: ClientKind,
    /// A figure whose gate it must fail...
    pub figure: &'static str,
    /// ...in this scenario.
    pub scenario: &'static str,
}

impl Control {
    /// The setup of this control in a scenario.
    pub fn setup(&self, of: Setup) -> Setup {
        Setup {
            admission: self.admission,
            hint: self.hint,
            clients: self.clients,
            ..of
        }
    }
}

use Admission::{Holdoff, PredictedClass, PredictedMean};
use ClientKind::{Below, Exact, Generic500};
use HintKind::{Drain, Fixed, Own};

const fn control(
    name: &'static str,
    (admission, hint, clients): (Admission, HintKind, ClientKind),
    (figure, scenario): (&'static str, &'static str),
) -> Control {
    Control {
        name,
        admission,
        hint,
        clients,
        figure,
        scenario,
    }
}

/// Those of the project's design notes.
pub const CONTROLS: [Control; 6] = [
    control(
        "global mean",
        (PredictedMean, Own, ClientKind::Holdoff),
        ("critical", "e"),
    ),
    control(
        "no probes",
        (PredictedClass, Own, ClientKind::Holdoff),
        ("critical", "e"),
    ),
    control("fixed 1 s hint", (Holdoff, Fixed, Exact), ("spike", "d")),
    control("drain-time hint", (Holdoff, Drain, Exact), ("spike", "d")),
    control(
        "jitter below the hint",
        (Holdoff, Own, Below),
        ("avoidable_loss", "d"),
    ),
    control("generic 500", (Holdoff, Own, Generic500), ("spike", "d")),
];
