//! A connection's initial sequence numbers, computed by somebody who shares its kernel and nothing
//! else: what [`ginnel_channel::proof`] counts on nobody's knowing.
//!
//! Linux (`net/core/secure_seq.c`) adds to a hash of the addresses, keyed with a secret of the
//! *kernel*, the time in units of 64 ns. A network namespace of one's own, which any user may make
//! where user namespaces are allowed, has the same secret: a connection between the same addresses
//! there, whose numbers its owner may read, gives away the hash. What is left is the time of the
//! connection, and the hash that a member shows tells whether it was guessed right.

use ginnel_channel::proof::{Claim, Numbers, repair};
use std::io::Error;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds of a tick of the kernel's clock, as a power of two.
const TICK: u32 = 6;
/// So long before it was seen a connection may have been made, ticks (8 ms).
const BEFORE: u64 = (8_000_000) >> TICK;
/// By so much may the time between the two numbers be longer than was learned, ticks (64 µs) …
const LONGER: u32 = 64_000 >> TICK;
/// … or shorter (8 µs).
const SHORTER: u32 = 8_000 >> TICK;
/// Connections by which the hashes are learned.
const LESSONS: usize = 40;

/// The time, in ticks.
#[must_use]
pub fn ticks() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    (now >> TICK) as u64
}

/// The hashes of a connection from 127.0.0.1:`client` to 127.0.0.1:`server`, of the client's number
/// and the server's, each too large by what passed between a look at the clock and its making. By
/// this program (`argv[0] learn …`) in a namespace of its own.
#[must_use]
pub fn learn(client: u16, server: u16) -> Option<[u32; 2]> {
    let own = std::env::current_exe().ok()?;
    let learned = Command::new(own).args(["learn", &client.to_string(), &server.to_string()]).output().ok()?;
    let text = String::from_utf8(learned.stdout).ok()?;
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?])
}

/// [`learn`], in the process that it starts.
///
/// # Errors
/// Where it may have no namespace.
pub fn lesson(client: u16, server: u16) -> Result<[u32; 2], Error> {
    own_network()?;
    // Of each connection: the number, less the time after which it was drawn at the earliest.
    let mut most = [None::<u32>; 2];
    for _ in 0..LESSONS {
        let (numbers, after) = connection(client, server)?;
        for (most, number) in most.iter_mut().zip([numbers.sent, numbers.received]) {
            let hash = number.wrapping_sub(1).wrapping_sub(after as u32);
            // The smallest: the others were drawn longer after the look at the clock.
            *most = Some(most.map_or(hash, |before| if (hash.wrapping_sub(before) as i32) < 0 { hash } else { before }));
        }
    }
    Ok(most.map(Option::unwrap_or_default))
}

fn check(result: i32) -> Result<i32, Error> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// A user namespace and a network namespace of this process's own, with a loopback that works.
fn own_network() -> Result<(), Error> {
    // SAFETY: no arguments; unshare changes this process alone, which has one thread.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: as above.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) })?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    if up.success() { Ok(()) } else { Err(Error::other("lo stays down")) }
}

/// Makes such a connection, and ends it by a reset: the client's numbers, and the time before.
fn connection(client: u16, server: u16) -> Result<(Numbers, u64), Error> {
    let listener = bound(server)?;
    // SAFETY: a socket of this function's own.
    check(unsafe { libc::listen(listener.as_raw_fd(), 1) })?;
    let connecting = bound(client)?;
    let to = address(server);
    let after = ticks();
    // SAFETY: the address is one, of that size.
    check(unsafe { libc::connect(connecting.as_raw_fd(), (&raw const to).cast(), size_of_val(&to) as u32) })?;
    let numbers = repair::numbers(connecting.as_raw_fd(), true).map_err(|_| Error::other("unread"))?;
    let reset = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the value is readable, of that size.
    check(unsafe {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
        libc::setsockopt(connecting.as_raw_fd(), level, name, (&raw const reset).cast(), size_of_val(&reset) as u32)
    })?;
    Ok((numbers, after))
}

fn address(port: u16) -> libc::sockaddr_in {
    let address = u32::from(Ipv4Addr::LOCALHOST).to_be();
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: address },
        sin_zero: [0; 8],
    }
}

fn bound(port: u16) -> Result<std::os::fd::OwnedFd, Error> {
    use std::os::fd::FromRawFd;
    let name = address(port);
    // SAFETY: no memory is passed; the descriptor is new, and nobody else's; the address is one.
    unsafe {
        let fd = check(libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0))?;
        let socket = std::os::fd::OwnedFd::from_raw_fd(fd);
        let one = 1i32;
        check(libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, (&raw const one).cast(), 4))?;
        check(libc::bind(fd, (&raw const name).cast(), size_of_val(&name) as u32))?;
        Ok(socket)
    }
}

/// What the other end would show, of a connection that was there at `seen` (ticks), whose client
/// showed `shown` for `claim`: the time is tried until the client's hash comes out.
#[must_use]
pub fn other_proof(claim: &Claim, shown: u64, [client, server]: [u32; 2], seen: u64) -> Option<u64> {
    for back in 0..BEFORE {
        let sent = client.wrapping_add((seen - back) as u32).wrapping_add(1);
        let first = server.wrapping_add((seen - back) as u32).wrapping_add(1);
        for later in 0..SHORTER + LONGER {
            let received = first.wrapping_add(later).wrapping_sub(SHORTER);
            let proofs = claim.proofs(Numbers { sent, received });
            if proofs.own == shown {
                return Some(proofs.other);
            }
        }
    }
    None
}
