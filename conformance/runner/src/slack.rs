//! How much later than its bound a request may come before the lateness is the program's and not the machine's.
//!
//! Early bounds are exact. Late bounds need slack, because between a timer that fires and a request that is read
//! lie two schedulers. The slack is measured on the machine at the start of a run, not guessed.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::clock;

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
    measure(SAMPLES, &mut late).await?;
    Ok(from_samples(late))
}

/// The same while something else is done. A machine that is idle at the start of a run is not while a case of it holds
/// hundreds of connections open.
pub async fn during<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let mut late = Vec::new();
    let done = {
        let look = async {
            // Loopback that cannot be used was found out by `calibrate`; then there is nothing more to learn here.
            let _ = measure(MOST_SAMPLES, &mut late).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            done = work => done,
            () = look => std::future::pending().await,
        }
    };
    (done, from_samples(late))
}

async fn measure(samples: u32, late: &mut Vec<Duration>) -> std::io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let mut near = TcpStream::connect(listener.local_addr()?).await?;
    let (mut far, _) = listener.accept().await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let echo = async move {
        let mut byte = [0_u8];
        while far.read_exact(&mut byte).await.is_ok() && far.write_all(&byte).await.is_ok() {}
    };
    let measure = async move {
        for _ in 0..samples {
            let start = clock::now();
            tokio::time::sleep(PAUSE).await;
            near.write_all(b"x").await?;
            near.read_exact(&mut [0_u8]).await?;
            late.push(
                clock::now()
                    .saturating_duration_since(start)
                    .saturating_sub(PAUSE),
            );
        }
        Ok::<_, std::io::Error>(())
    };
    tokio::select! {
        done = measure => done,
        () = echo => Err(std::io::Error::other("the loopback connection closed")),
    }
}

fn from_samples(mut late: Vec<Duration>) -> Duration {
    late.sort_unstable();
    let rank = (late.len() * 99).div_ceil(100).saturating_sub(1);
    let p99 = late.get(rank).copied().unwrap_or_default();
    (p99 * 4).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_is_four_times_the_p99_and_never_less_than_a_quarter_second() {
        assert_eq!(from_samples(vec![Duration::from_millis(1); 100]), LEAST);
        assert_eq!(
            from_samples(vec![Duration::from_millis(100); 100]),
            Duration::from_millis(400)
        );
        assert_eq!(from_samples(vec![Duration::from_secs(60); 3]), MOST);
        assert_eq!(from_samples(Vec::new()), LEAST);
    }
}
