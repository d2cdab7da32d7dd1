//! A run that is stopped half way. What it has judged by then is worth keeping, and what it has started must not outlive it:
//! a program under test may ignore a polite signal and the end of its input, and only we know that it is there.

use std::future::Future;
use std::process::ExitCode;

use tokio::sync::watch;

use crate::report::Signal;

/// Whether somebody wants the run to end, and how they said so.
#[derive(Debug, Clone)]
pub(super) struct Interrupt(watch::Receiver<Option<Signal>>);

impl Interrupt {
    /// Listens from now on. The first signal is handed to whoever asks; the second ends the program where it is.
    pub(super) fn listen() -> Self {
        let (said, heard) = watch::channel(None);
        let mut signals = Signals::new();
        tokio::spawn(async move {
            let first = signals.next().await;
            said.send_replace(Some(first));
            std::process::exit(signals.next().await.exit_code().into());
        });
        Self(heard)
    }

    /// What a future comes to, unless a signal comes before; the future is dropped then.
    pub(super) async fn unless<F: Future>(&self, work: F) -> Result<F::Output, Signal> {
        let mut heard = self.0.clone();
        let signalled = async {
            match heard.wait_for(Option::is_some).await.map(|signal| *signal) {
                Ok(Some(signal)) => signal,
                // Nobody listens any more: then no signal comes.
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            signal = signalled => Err(signal),
            done = work => Ok(done),
        }
    }
}

impl From<Signal> for ExitCode {
    fn from(signal: Signal) -> Self {
        ExitCode::from(signal.exit_code())
    }
}

/// What is listened for. A signal that cannot be listened for ends the program at once, as it would any other.
#[cfg(unix)]
struct Signals {
    interrupt: Option<tokio::signal::unix::Signal>,
    terminate: Option<tokio::signal::unix::Signal>,
    hang_up: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let of = |kind| signal(kind).ok();
        Self {
            interrupt: of(SignalKind::interrupt()),
            terminate: of(SignalKind::terminate()),
            // Whoever started us with `nohup` does not want a hang-up to be heard.
            hang_up: hang_up_counts().then(|| of(SignalKind::hangup())).flatten(),
        }
    }

    async fn next(&mut self) -> Signal {
        async fn of(signal: &mut Option<tokio::signal::unix::Signal>) {
            let heard = match signal {
                Some(signal) => signal.recv().await,
                None => None,
            };
            if heard.is_none() {
                std::future::pending::<()>().await;
            }
        }
        tokio::select! {
            () = of(&mut self.interrupt) => Signal::Interrupt,
            () = of(&mut self.terminate) => Signal::Terminate,
            () = of(&mut self.hang_up) => Signal::HangUp,
        }
    }
}

/// What is listened for.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> Self {
        Self
    }

    async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            // Without a handler Ctrl-C ends the program at once.
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}

/// False where a hang-up was ignored when we were started, and where that cannot be told.
#[cfg(unix)]
fn hang_up_counts() -> bool {
    const HANG_UP: u64 = 1; // bit 0 of the mask is signal 1
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        })
        .is_some_and(|mask| mask & HANG_UP == 0)
}
