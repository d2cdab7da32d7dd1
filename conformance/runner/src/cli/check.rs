//! What can be known to be wrong before a run is found out before it: a run takes a minute, and whoever started it may have
//! gone for coffee.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::net::TcpStream;
use url::Url;

use crate::adapter::AdapterCommand;
use crate::server_drive::probe::Address;

/// How long a server at a URL may take until it listens, where nothing else was said: it may have been started beside this run.
pub(super) const LISTEN_LIMIT: Duration = Duration::from_secs(5);
/// Between two attempts to connect.
const BETWEEN: Duration = Duration::from_millis(100);

/// Reads the value of `--adapter`.
pub(super) fn adapter(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("it is empty; it must name a program".to_owned());
    }
    match AdapterCommand::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads the value of `--url` or `--metrics-url`.
pub(super) fn url(text: &str) -> Result<Url, String> {
    if text.trim().is_empty() {
        return Err("it is empty; it must be http://host:port".to_owned());
    }
    Address::parse(text).map_err(|error| error.why)?;
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let extra = [
        ("a query", url.query().is_some()),
        ("a fragment", url.fragment().is_some()),
        (
            "credentials",
            !url.username().is_empty() || url.password().is_some(),
        ),
    ];
    match extra.into_iter().find(|(_, there)| *there) {
        Some((what, _)) => Err(format!(
            "it has {what}, which is not supported; it must be http://host:port[/path]"
        )),
        None => Ok(url),
    }
}

/// Reads a whole number; one that is none, or out of range, is answered with the range.
pub(crate) fn whole<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!(
            "it must be a whole number in {}..={}",
            range.start(),
            range.end()
        )),
    }
}

/// Reads a text that picks something by a part of its name. The empty one is a part of every name, and whoever gave it (a
/// variable that was not set) did not mean all.
pub(crate) fn part(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("it is empty, and would match everything; leave the option out for that".to_owned());
    }
    Ok(text.to_owned())
}

/// Waits until somebody listens there.
///
/// # Errors
/// Nobody does within `limit`.
pub(super) async fn listens(option: &str, url: &Url, limit: Duration) -> anyhow::Result<()> {
    let address = Address::parse(url.as_str())?;
    let place = address.authority();
    let mut why = "no answer".to_owned();
    let listening = async {
        while let Err(error) = TcpStream::connect(place).await {
            why = error.to_string();
            tokio::time::sleep(BETWEEN).await;
        }
    };
    let there = tokio::time::timeout(limit, listening).await;
    there.map_err(|_| {
        let seconds = limit.as_secs();
        anyhow!("{option} {url}: cannot connect to {place}: {why} (tried for {seconds} s; --start-limit sets how long)")
    })
}

/// Whether a file can be written at the end. What is there stays as it is until then.
///
/// # Errors
/// It cannot; names the option, the path and the reason.
pub(super) fn writable(option: &str, path: &Path) -> anyhow::Result<()> {
    let existed = path.exists();
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("{option} {}: cannot be written", path.display()))?;
    if !existed {
        std::fs::remove_file(path).with_context(|| format!("{option} {}", path.display()))?;
    }
    Ok(())
}
