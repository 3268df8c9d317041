//! Ports for programs that are told theirs beforehand.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those that the kernel gives to clients by itself (32768 and up, ip(7)): such a client
/// could have it when the program comes to take it.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A port that nobody has at the moment, and no other caller in this process was given.
///
/// # Panics
/// When all are taken.
#[must_use]
pub fn free() -> String {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Tests of two processes begin at different places.
    let start = u16::try_from(std::process::id() * 101 % u32::from(COUNT)).unwrap_or(0);
    (0..COUNT)
        .map(|_| FIRST + (start + GIVEN.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT)
        .find(|&port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok())
        .expect("a free port")
        .to_string()
}
