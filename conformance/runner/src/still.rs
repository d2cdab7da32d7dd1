//! When the program under test stood still, or the machine under it, and what follows for a case.
//!
//! A machine that stops for a second makes everything late, and on the wire that looks like a fault of the program. So whoever
//! plays a case also keeps the time of somebody who only has to wake up: a program that is asked the cheapest of questions
//! ([`crate::client_drive`]), or a timer and a byte over loopback ([`crate::slack::during`]). While that is late, nobody can tell a slow
//! program from one that was not let run. What a standstill explains is no failure, and never a pass: the case is played again,
//! [`PLAYS`] times at most, and after that it is untestable, which counts as a failure and names what is missing. So a wrong program
//! can be called untestable on a bad machine; it cannot be called right.
//!
//! Early is never explained by this: whoever stands still does not send.

use std::time::{Duration, Instant};

use crate::verdict::{Findings, NotRun, Outcome};

/// Who is to wake up and is no later than this is prompt: two schedulers and two sockets or pipes lie between.
pub(crate) const PROMPT: Duration = Duration::from_millis(10);
/// How often a case is played at most, where a standstill explains what was seen.
pub(crate) const PLAYS: u32 = 5;
/// Standstills kept of one play at most.
pub(crate) const MAX_KEPT: usize = 10_000;
/// What piled up in a standstill leaves within this after its end.
const DRAIN: Duration = Duration::from_millis(25);

/// From when to when, in order; no two overlap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stills(pub(crate) Vec<(Instant, Instant)>);

impl Stills {
    /// When the standstill began that may have held up what happened at `at`.
    pub(crate) fn before(&self, at: Instant) -> Option<Instant> {
        let holds = |(from, to): &&(Instant, Instant)| *from <= at && at <= *to + DRAIN;
        self.0.iter().find(holds).map(|(from, _)| *from)
    }

    /// How much of the time between two instants was stood still.
    pub(crate) fn within(&self, from: Instant, to: Instant) -> Duration {
        let shares = self
            .0
            .iter()
            .map(|(began, ended)| (*ended).min(to).saturating_duration_since((*began).max(from)));
        shares.sum()
    }

    /// The longest.
    pub(crate) fn longest(&self) -> Duration {
        let lengths = self
            .0
            .iter()
            .map(|(from, to)| to.saturating_duration_since(*from));
        lengths.max().unwrap_or_default()
    }
}

/// Plays a case until no standstill explains what failed in it; `play` is told which play it is, from 1.
///
/// # Errors
/// [`NotRun`] says why there are no findings; [`NotRun::Untestable`] where a standstill explained every play.
pub(crate) async fn steadily<F: Future<Output = Outcome>>(play: impl Fn(u32) -> F) -> Outcome {
    let mut longest = Duration::ZERO;
    let mut last = Findings::default();
    for number in 1..=PLAYS {
        let findings = play(number).await?;
        if !findings.is_excused() {
            return Ok(findings);
        }
        longest = longest.max(findings.stood);
        last = findings;
    }
    let of_last = last
        .failed()
        .next()
        .map(|check| format!("{}: {}, but {}", check.name, check.expected, check.seen));
    Err(NotRun::Untestable(format!(
        "missing: a machine that keeps time. The program or the machine stood still in each of {PLAYS} plays, for up to {} ms at once, \
         and that explains what was seen; of the last one: {}",
        longest.as_millis(),
        of_last.unwrap_or_default()
    )))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::case::Level;
    use crate::clock;
    use crate::verdict::Verdict;

    fn late(excused: bool) -> Findings {
        let mut findings = Findings::default();
        findings.check_unless(excused, "time", false, "0 to 250 ms", "900 ms");
        findings.stood = Duration::from_millis(700);
        findings
    }

    fn right() -> Findings {
        let mut findings = Findings::default();
        findings.check("time", true, "0 to 250 ms", "9 ms");
        findings
    }

    /// Plays what each play is to find, and says how many plays there were.
    async fn played(each: impl Fn(u32) -> Findings) -> (Outcome, u32) {
        let plays = Cell::new(0);
        let outcome = steadily(|number| {
            plays.set(number);
            std::future::ready(Ok(each(number)))
        })
        .await;
        (outcome, plays.get())
    }

    #[tokio::test]
    async fn what_a_standstill_explains_is_played_again_and_what_it_does_not_explain_stands() {
        let (outcome, plays) = played(|number| if number < 3 { late(true) } else { right() }).await;
        assert!(outcome.is_ok_and(|it| it.verdict(Level::Must) == Verdict::Pass) && plays == 3);
        let (outcome, plays) = played(|_| late(false)).await;
        assert!(outcome.is_ok_and(|it| it.verdict(Level::Must) == Verdict::Fail) && plays == 1);
        // A program that is wrong in a play that nothing explains is wrong, whatever was before.
        let (outcome, plays) = played(|number| late(number < 2)).await;
        assert!(outcome.is_ok_and(|it| it.verdict(Level::Must) == Verdict::Fail) && plays == 2);
    }

    #[tokio::test]
    async fn a_standstill_in_every_play_is_a_failure_that_names_what_is_missing() {
        let (outcome, plays) = played(|_| late(true)).await;
        let why = outcome.expect_err("it never held");
        assert_eq!((why.verdict(), plays), (Verdict::Untestable, PLAYS));
        assert!(why.verdict().fails());
        let words = why.to_string();
        for part in ["a machine that keeps time", "up to 700 ms", "250 ms, but 900 ms"] {
            assert!(words.contains(part), "{part}: {words}");
        }
    }

    #[test]
    fn only_the_part_of_a_standstill_that_lies_in_a_span_counts_for_it() {
        let start = clock::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let stills = Stills(vec![(at(10), at(30)), (at(50), at(150))]);
        for (from, to, wanted) in [
            (0, 200, 120),
            (20, 60, 20),
            (30, 50, 0),
            (60, 70, 10),
            (150, 400, 0),
        ] {
            assert_eq!(
                stills.within(at(from), at(to)),
                Duration::from_millis(wanted),
                "{from} to {to}"
            );
        }
        assert_eq!(stills.longest(), Duration::from_millis(100));
    }
}
