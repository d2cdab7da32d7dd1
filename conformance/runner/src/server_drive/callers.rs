//! Whom the runner plays when all it has is a URL.
//!
//! A server may throttle a caller for what that caller did before (`retry_throttled`, `tenant_limit`, `rate_limited`), and it
//! tells strangers apart by where their connections come from. Were all cases one caller, a case that drives the server
//! until it refuses would leave its successors with a bad name, and the verdicts would depend on their order. So each case is
//! a caller of its own, and a crowd (a send whose identity holds `{i}`) is one caller a request. On loopback, where all of
//! 127.0.0.0/8 is this machine, that is an address each; elsewhere all come from one address, and what the server says about
//! that caller is waited out (see `patience`).

use std::net::{Ipv4Addr, SocketAddrV4};

use rand::RngExt as _;
use tokio::net::{TcpSocket, TcpStream};

use crate::clock;

/// Addresses that a case may take: 127.1.0.0 and up, so that 127.0.0.1 stays with everybody else.
const FIRST: u32 = 0x7F01_0000;
const ADDRESSES: u32 = 0x00FE_0000;

/// Where the requests of a case come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// From wherever the system sends them.
    One,
    /// From addresses of loopback, counted from here.
    Loopback(u32),
}

impl Callers {
    /// The callers of a play of a case at `authority` (`host:port`); another run, case or play gets others.
    pub(super) fn of(authority: &str, seed: u64, play: &str) -> Self {
        let local = authority
            .parse::<SocketAddrV4>()
            .is_ok_and(|server| server.ip().is_loopback());
        if !local {
            return Self::One;
        }
        let word = play.bytes().fold(seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        Self::Loopback(clock::rng(word).random_range(0..ADDRESSES))
    }

    /// The address of the case itself, or of member `i` of its crowd.
    pub(super) fn address(self, member: Option<u32>) -> Option<Ipv4Addr> {
        let Self::Loopback(first) = self else { return None };
        let at = member.map_or(0, |i| i.wrapping_add(1));
        let place = (u64::from(first) + u64::from(at)) % u64::from(ADDRESSES);
        let place = u32::try_from(place).unwrap_or_default();
        Some(Ipv4Addr::from(FIRST + place))
    }
}

/// Connects from an address. Where the system does not have it (only Linux has all of 127.0.0.0/8), from any.
///
/// # Errors
/// As [`TcpStream::connect`].
pub(super) async fn connect(authority: &str, from: Option<Ipv4Addr>) -> std::io::Result<TcpStream> {
    if let (Some(from), Ok(server)) = (from, authority.parse::<SocketAddrV4>()) {
        let socket = TcpSocket::new_v4()?;
        if socket.bind(SocketAddrV4::new(from, 0).into()).is_ok() {
            return socket.connect(server.into()).await;
        }
    }
    TcpStream::connect(authority).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_and_each_of_a_crowd_has_an_address_of_its_own_on_loopback_only() {
        let one = Callers::of("127.0.0.1:4100", 7, "one");
        assert_eq!(one, Callers::of("127.0.0.1:4100", 7, "one"));
        assert_ne!(one, Callers::of("127.0.0.1:4100", 7, "two"));
        assert_ne!(one, Callers::of("127.0.0.1:4100", 8, "one"));
        let crowd: std::collections::BTreeSet<_> = (0..3000).map(|i| one.address(Some(i))).collect();
        assert_eq!(crowd.len(), 3000);
        assert!(!crowd.contains(&one.address(None)));
        assert!(crowd.iter().flatten().all(Ipv4Addr::is_loopback));
        assert_eq!(Callers::of("10.0.0.7:4100", 7, "one").address(Some(1)), None);
        let last = Callers::Loopback(ADDRESSES - 1);
        assert_eq!(last.address(Some(0)), Some(Ipv4Addr::from(FIRST)));
    }
}
