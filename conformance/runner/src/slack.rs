//! How much later than its bound a request may come before the lateness is the program's and not the machine's.
//!
//! Early bounds are exact. Late bounds need slack, because between a timer that fires and a request that is read
//! lie two schedulers. The slack is measured on the machine at the start of a run, not guessed.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::clock;
use crate::still::{MAX_KEPT, PROMPT, Stills};

/// The least slack that a late bound is given.
pub const LEAST: Duration = Duration::from_millis(250);
/// The most; a machine that needs more cannot judge timing.
pub const MOST: Duration = Duration::from_secs(2);

const SAMPLES: u32 = 100;
/// Samples beside one case at most: a minute of them.
const MOST_SAMPLES: u32 = 30_000;
const PAUSE: Duration = Duration::from_millis(2);

/// Measures p99 of (timer + loopback round trip - pause) and takes four times that, within [`LEAST`, `MOST`].
///
/// # Errors
/// Loopback cannot be used.
pub async fn calibrate() -> std::io::Result<Duration> {
    let mut late = Vec::new();
    measure(Loopback::open().await?, SAMPLES, &mut late).await?;
    Ok(from_samples(late))
}

/// What a machine was like while something was done on it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace {
    /// What a late bound is given on top, measured as by [`calibrate`].
    pub(crate) slack: Duration,
    /// When it stood still, as the runner saw it.
    pub(crate) stills: Stills,
}

/// The same while something else is done, and when the machine stood still. A machine that is idle at the start of a run is not
/// while a case of it holds hundreds of connections open.
pub(crate) async fn during<T>(work: impl Future<Output = T>) -> (T, Pace) {
    let mut late = Vec::new();
    // Loopback that cannot be used was found out by `calibrate`; then there is nothing more to learn here.
    let loopback = Loopback::open().await;
    let done = {
        let look = async {
            if let Ok(loopback) = loopback {
                let _ = measure(loopback, MOST_SAMPLES, &mut late).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased; // The first sample is on its way before the work begins, so that no standstill in it goes unseen.
            () = look => std::future::pending().await,
            done = work => done,
        }
    };
    // What was done may have ended in the middle of a standstill.
    if let Some(sample) = late.last_mut() {
        sample.done.get_or_insert(clock::now());
    }
    let stills = stills(&late);
    let slack = from_samples(late);
    (done, Pace { slack, stills })
}

/// A connection with both of its ends.
struct Loopback {
    near: TcpStream,
    far: TcpStream,
}

impl Loopback {
    async fn open() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let near = TcpStream::connect(listener.local_addr()?).await?;
        let (far, _) = listener.accept().await?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        Ok(Self { near, far })
    }
}

async fn measure(loopback: Loopback, samples: u32, late: &mut Vec<Late>) -> std::io::Result<()> {
    let Loopback { mut near, mut far } = loopback;
    let echo = async move {
        let mut byte = [0_u8];
        while far.read_exact(&mut byte).await.is_ok() && far.write_all(&byte).await.is_ok() {}
    };
    let measure = async move {
        for _ in 0..samples {
            let due = clock::now() + PAUSE;
            late.push(Late { due, done: None });
            tokio::time::sleep_until(due.into()).await;
            near.write_all(b"x").await?;
            near.read_exact(&mut [0_u8]).await?;
            if let Some(sample) = late.last_mut() {
                sample.done = Some(clock::now());
            }
        }
        Ok::<_, std::io::Error>(())
    };
    tokio::select! {
        done = measure => done,
        () = echo => Err(std::io::Error::other("the loopback connection closed")),
    }
}

/// When a sample should have been done, and when it was; `None` while it is under way.
#[derive(Debug, Clone, Copy)]
struct Late {
    due: Instant,
    done: Option<Instant>,
}

impl Late {
    fn by(&self) -> Duration {
        self.done
            .map_or(Duration::ZERO, |done| done.saturating_duration_since(self.due))
    }
}

/// The samples that were not prompt.
fn stills(late: &[Late]) -> Stills {
    let long = late.iter().filter(|sample| sample.by() > PROMPT);
    Stills(
        long.filter_map(|sample| Some((sample.due, sample.done?)))
            .take(MAX_KEPT)
            .collect(),
    )
}

fn from_samples(late: Vec<Late>) -> Duration {
    let mut late: Vec<Duration> = late.iter().map(Late::by).collect();
    // The p99 of fewer is the worst of them, and one standstill is no slack: it would let a slow program pass.
    if late.len() < SAMPLES as usize {
        return LEAST;
    }
    late.sort_unstable();
    let rank = (late.len() * 99).div_ceil(100).saturating_sub(1);
    let p99 = late.get(rank).copied().unwrap_or_default();
    (p99 * 4).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late_by(lengths: &[u64]) -> Vec<Late> {
        let due = clock::now();
        let of = |ms: &u64| Late {
            due,
            done: Some(due + Duration::from_millis(*ms)),
        };
        lengths.iter().map(of).collect()
    }

    #[test]
    fn slack_is_four_times_the_p99_and_never_less_than_a_quarter_second() {
        assert_eq!(from_samples(late_by(&[1; 100])), LEAST);
        assert_eq!(from_samples(late_by(&[100; 100])), Duration::from_millis(400));
        assert_eq!(from_samples(late_by(&[60_000; 100])), MOST);
        for few in [&[][..], &[60_000; 3], &[60_000; 99]] {
            assert_eq!(from_samples(late_by(few)), LEAST);
        }
        let mut one = [1; 100];
        one[50] = 60_000;
        assert_eq!(from_samples(late_by(&one)), LEAST);
    }

    #[tokio::test]
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread that is stopped is what is to be seen"
    )]
    async fn real_time_a_thread_that_is_stopped_is_seen_to_stand_still() {
        let begun = clock::now();
        // In the middle of the work, and before anything of it was awaited.
        for pause in [20, 0] {
            let ((), pace) = during(async {
                if pause > 0 {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                std::thread::sleep(Duration::from_millis(300));
            })
            .await;
            let longest = pace.stills.longest();
            assert!(longest >= Duration::from_millis(280), "{longest:?}");
            assert!(pace.stills.within(begun, clock::now()) >= longest);
        }
    }

    #[test]
    fn a_sample_that_is_not_prompt_is_a_standstill_of_its_length() {
        let stills = stills(&late_by(&[1, 10, 300, 2]));
        assert_eq!(stills.0.len(), 1);
        assert_eq!(stills.longest(), Duration::from_millis(300));
    }
}
