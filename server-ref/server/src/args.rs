//! What the command line may say, refused in words that name the value and what is allowed.

use std::net::SocketAddr;

use tracing_subscriber::EnvFilter;

/// Levels of `--log`.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Longest filter.
const MAX_FILTER: usize = 1_024;

/// An address to listen on.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit_once(':').map(|(_, port)| port);
        match port.filter(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())) {
            Some(port) if port.parse::<u16>().is_err() => {
                format!("the port is {port}; it must be in 0..=65535 (0 takes a free one)")
            }
            _ => "it must be IP:PORT, port in 0..=65535, such as 127.0.0.1:4100 or [::1]:4100".to_owned(),
        }
    })
}

/// A seed.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    let limit = format!("it must be a whole number in 0..={}", u64::MAX);
    text.parse().map_err(|_| limit)
}

/// A filter of the log. A word alone is a level and nothing else: the filter's own grammar would take `loud` for the name of a
/// module, and log nothing.
pub(crate) fn filter(text: &str) -> Result<String, String> {
    let limit = "it must be off, error, warn, info, debug or trace, or a list of target=level with commas between \
                 (info,holdoff_server=debug), 1024 characters at most";
    let known = |part: &str| {
        let part = part.trim();
        match part.rsplit_once('=') {
            None => is_level(part),
            Some((target, level)) => !target.is_empty() && is_level(level),
        }
    };
    if text.len() > MAX_FILTER || !text.split(',').all(known) {
        return Err(limit.to_owned());
    }
    EnvFilter::try_new(text).map_err(|error| format!("{error}; {limit}"))?;
    Ok(text.to_owned())
}

fn is_level(text: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_levels_and_targets_with_levels() {
        for good in [
            "info",
            "WARN",
            "off",
            "info,holdoff_server=debug",
            "hyper=off, warn",
        ] {
            assert_eq!(filter(good).as_deref(), Ok(good));
        }
        for bad in [
            "loud",
            "",
            "info,",
            "a=b=c",
            "holdoff_server",
            "holdoff_server=loud",
            "=info",
            "5",
        ] {
            assert!(
                filter(bad)
                    .unwrap_err()
                    .contains("off, error, warn, info, debug or trace"),
                "{bad}"
            );
        }
        assert!(filter(&"a=info,".repeat(1_000)).is_err());
    }

    #[test]
    fn an_address_is_an_ip_and_a_port() {
        assert!(address("127.0.0.1:0").is_ok() && address("[::1]:4100").is_ok());
        assert_eq!(
            address("127.0.0.1:65536").unwrap_err(),
            "the port is 65536; it must be in 0..=65535 (0 takes a free one)"
        );
        for bad in [
            "localhost:80",
            "127.0.0.1",
            ":80",
            "4100",
            "",
            "127.0.0.1:-1",
            "1.2.3.4.5:1",
        ] {
            assert!(address(bad).unwrap_err().contains("IP:PORT"), "{bad}");
        }
    }
}
