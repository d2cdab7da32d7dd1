//! A server that takes connections and answers nothing would cost every case its whole patience, and a run of them minutes,
//! to say one thing many times. So it is asked one plain question first, and when it has been silent often enough it is not
//! asked again: every case that is left fails at once and says why.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::message::{Ask, NoAnswer};
use super::play::Evidence;
use super::probe::{Address, exchange};
use crate::verdict::NotRun;

/// How long a server may take to answer the first, plain question: as long as a request of a case may take by default.
pub(crate) const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// After so many silences in a row the server is not asked again.
const MOST: u32 = 2;

/// What one run knows about a server that does not answer.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// What came of the one look at a server that runs already.
    looked: OnceCell<Result<(), String>>,
    in_a_row: AtomicU32,
}

impl Silence {
    /// One plain request. Whatever is answered, any status or none that is HTTP, is for the cases to judge.
    ///
    /// # Errors
    /// Nobody listens, or nothing came within [`LOOK_LIMIT`]; in a sentence.
    pub(crate) async fn look(&self, server: &Address) -> Result<(), String> {
        let looked = look(server, LOOK_LIMIT).await;
        match looked {
            Ok(()) => self.in_a_row.store(0, Ordering::Relaxed),
            Err(_) => {
                self.in_a_row.fetch_add(1, Ordering::Relaxed);
            }
        }
        looked
    }

    /// The same for a server that runs for the whole run: it is looked at once, and each case is told what came of it.
    ///
    /// # Errors
    /// As [`Silence::look`], or no case before this one got any answer.
    pub(crate) async fn look_once(&self, server: &Address) -> Result<(), NotRun> {
        let looked = self.looked.get_or_init(|| look(server, LOOK_LIMIT)).await;
        looked.clone().map_err(NotRun::PeerBroke)?;
        self.given_up()
    }

    /// Says so where the server has been silent too often to be asked again.
    ///
    /// # Errors
    /// It has.
    pub(crate) fn given_up(&self) -> Result<(), NotRun> {
        if self.in_a_row.load(Ordering::Relaxed) < MOST {
            return Ok(());
        }
        Err(NotRun::PeerBroke(format!(
            "not asked again: the server answered nothing in {MOST} cases before this one"
        )))
    }

    /// Takes note of a case in which nothing was answered at all.
    pub(crate) fn heard(&self, evidence: &Evidence) {
        let silent =
            |answer: &Result<_, NoAnswer>| matches!(answer, Err(NoAnswer::TimedOut(_) | NoAnswer::Left));
        let exchanges = &evidence.exchanges;
        if exchanges.is_empty() {
            return;
        }
        if exchanges.iter().all(|exchange| silent(&exchange.answer)) {
            self.in_a_row.fetch_add(1, Ordering::Relaxed);
        } else {
            self.in_a_row.store(0, Ordering::Relaxed);
        }
    }
}

async fn look(server: &Address, limit: Duration) -> Result<(), String> {
    let ask = Ask {
        method: "GET".to_owned(),
        limit,
        ..Ask::default()
    };
    let (_, answer) = exchange(server, &ask).await;
    let place = server.url();
    match answer {
        Err(NoAnswer::TimedOut(_)) => Err(format!(
            "the server at {place} accepts connections and does not answer: nothing came to a plain GET within {} s",
            limit.as_secs()
        )),
        Err(NoAnswer::Unreachable(why)) => Err(format!("nobody listens at {place}: cannot connect: {why}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{Exchange, Seen};
    use super::*;

    fn evidence(answers: Vec<Result<Seen, NoAnswer>>) -> Evidence {
        let exchanges = answers.into_iter().map(|answer| Exchange {
            label: "a".to_owned(),
            ask: Ask::default(),
            sent_at: Duration::ZERO,
            head_after: Duration::ZERO,
            done_after: Duration::ZERO,
            answer,
            forced: None,
        });
        Evidence {
            exchanges: exchanges.collect(),
            ..Evidence::default()
        }
    }

    #[test]
    fn a_server_is_given_up_after_two_silent_cases_in_a_row_and_one_answer_counts_anew() {
        let silence = Silence::default();
        let silent = evidence(vec![Err(NoAnswer::Left), Err(NoAnswer::TimedOut(LOOK_LIMIT))]);
        let heard = evidence(vec![Err(NoAnswer::Left), Ok(Seen::default())]);
        silence.heard(&silent);
        silence.heard(&heard);
        silence.heard(&silent);
        silence.heard(&evidence(Vec::new()));
        assert!(silence.given_up().is_ok());
        silence.heard(&silent);
        let why = silence.given_up().expect_err("twice in a row").to_string();
        assert!(why.contains("answered nothing in 2 cases"), "{why}");
    }

    #[tokio::test]
    async fn a_server_that_only_accepts_is_known_after_the_limit_and_one_that_is_not_there_at_once() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let address = Address::parse(&url).expect("a URL");
        let why = look(&address, Duration::from_millis(50))
            .await
            .expect_err("silent");
        assert!(why.contains("accepts connections and does not answer"), "{why}");
        drop(listener);
        let why = look(&address, LOOK_LIMIT).await.expect_err("gone");
        assert!(
            why.contains("nobody listens") && why.contains("cannot connect"),
            "{why}"
        );
    }
}
