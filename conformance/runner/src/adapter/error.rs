//! The ways in which a program under test can fail to be one.

use super::MAX_RESTARTS;
use crate::verdict::NotRun;

/// What can go wrong with a program under test.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AdapterError {
    /// The command line has no program.
    #[error("the adapter command {0:?} cannot be split into words")]
    Command(String),
    /// The program could not be started, or does not say a proper `hello`.
    #[error("the adapter cannot be started: {0}")]
    Start(String),
    /// No answer within the limit.
    #[error("the adapter did not answer `{command}` within {limit_ms} ms{stderr}")]
    Hung {
        /// The command that was not answered.
        command: String,
        /// The limit.
        limit_ms: u128,
        /// The end of its stderr.
        stderr: Tail,
    },
    /// No answer before its case ran out of time.
    #[error(
        "the adapter did not answer `{command}` before the time of the case ran out (its limit is {limit_ms} ms){stderr}"
    )]
    OutOfTime {
        /// The command that was not answered.
        command: String,
        /// The limit of the case.
        limit_ms: u128,
        /// The end of its stderr.
        stderr: Tail,
    },
    /// The process ended by itself.
    #[error("the adapter {how} while `{command}` was under way{stderr}")]
    Died {
        /// The command under way.
        command: String,
        /// How it ended: exit status or signal.
        how: String,
        /// The end of its stderr.
        stderr: Tail,
    },
    /// It broke the protocol.
    #[error("the adapter broke the protocol: {what}{stderr}")]
    Broke {
        /// Which rule was broken, with the offending line.
        what: String,
        /// The end of its stderr.
        stderr: Tail,
    },
    /// It broke so often that it is not started again.
    #[error("the adapter broke {MAX_RESTARTS} times in this run and is not started again")]
    GivenUp,
    /// It answered with an error of its own.
    #[error("the adapter refused `{command}`: {error}{stderr}")]
    Refused {
        /// The command.
        command: String,
        /// Its words.
        error: String,
        /// The end of its stderr.
        stderr: Tail,
    },
}

/// The end of a program's stderr; shows itself only when there is something.
#[derive(Debug, Clone, Default)]
pub struct Tail(pub String);

impl std::fmt::Display for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.trim().is_empty() {
            return write!(f, " (its stderr is empty)");
        }
        write!(f, "; the end of its stderr:")?;
        self.0
            .lines()
            .try_for_each(|line| write!(f, "\n    | {}", line.escape_debug()))
    }
}

impl From<AdapterError> for NotRun {
    fn from(error: AdapterError) -> Self {
        match error {
            AdapterError::Command(_) | AdapterError::Start(_) => NotRun::Harness(error.to_string()),
            AdapterError::Refused { .. } => NotRun::Setup(error.to_string()),
            _ => NotRun::PeerBroke(error.to_string()),
        }
    }
}
