//! What a call costs in instructions of the caller's own process. A clock sees every neighbour on the machine; a count
//! sees none of them, and is the same again tomorrow. So this is the figure to optimise by. It leaves out the kernel and
//! how well the processor gets along with the code.
//!
//! Counted by valgrind's cachegrind, where it is installed: the same calls twice as often, and the difference is what
//! they cost without what it took to begin.

use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde::Serialize;

use crate::calls::{CONTESTANTS, Contestant, Shape};
use crate::child::Server;

/// The argument that makes this program a caller under count; followed by client, shape, count and URL.
pub const CALL: &str = "--make-calls";

/// One client's count.
#[derive(Clone, Debug, Serialize)]
pub struct Count {
    /// Which.
    pub name: &'static str,
    /// Instructions a call, in user space.
    pub instructions: f64,
}

/// All clients with one kind of request.
#[derive(Clone, Debug, Serialize)]
pub struct Counts {
    /// What was sent.
    pub shape: Shape,
    /// Calls that the difference is made of.
    pub calls: u32,
    /// Per client, plain reqwest first.
    pub clients: Vec<Count>,
}

/// Is there anything to count with?
pub fn is_possible() -> bool {
    Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Counts one kind of request.
///
/// # Errors
/// When valgrind or a call fails.
pub fn measure(calls: u32, shape: Shape) -> anyhow::Result<Counts> {
    let server = Server::start()?;
    let mut clients = Vec::new();
    for client in CONTESTANTS {
        let once = count(client, shape, calls, server.url())?;
        let twice = count(client, shape, calls.saturating_mul(2), server.url())?;
        clients.push(Count {
            name: client.name(),
            instructions: (twice - once) / f64::from(calls),
        });
    }
    Ok(Counts {
        shape,
        calls,
        clients,
    })
}

/// Instructions of a whole process that makes so many calls.
fn count(client: Contestant, shape: Shape, calls: u32, url: &str) -> anyhow::Result<f64> {
    let output = Command::new("valgrind")
        .args([
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
        ])
        .arg(std::env::current_exe()?)
        .args([CALL, client.word(), shape.word(), calls.to_string().as_str(), url])
        .stdin(Stdio::null())
        .output()
        .context("cannot start valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "under valgrind: {said}");
    let Some(count) = counted(&said) else {
        bail!("valgrind does not say how many instructions it saw: {said}");
    };
    Ok(count)
}

/// The number in `==1== I refs:        1,234,567` (`I   refs:` in older versions).
fn counted(said: &str) -> Option<f64> {
    said.lines().find_map(|line| {
        let (what, number) = line.split_once("refs:")?;
        what.trim_end().ends_with('I').then_some(())?;
        number.trim().replace(',', "").parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_what_valgrind_says() {
        let said = "==7== Cachegrind\n==7== \n==7== I refs:        1,234,567\n";
        assert_eq!(counted(said), Some(1_234_567.0));
        assert_eq!(counted("==7== I   refs:      42"), Some(42.0));
        assert_eq!(counted("==7== D   refs:      42"), None);
        assert_eq!(counted("nothing"), None);
    }
}
