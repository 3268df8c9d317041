//! What programs want of their sockets that a ring cannot give them, and whether a connection may
//! come into one all the same.

use crate::fds::{self, Entry};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::flag;
use ginnel_tcp::{cork, kernel};
use libc::c_int;

/// That sends with MSG_ZEROCOPY are to be told of. By itself it changes nothing.
const SO_ZEROCOPY: c_int = 60;
const SO_TXTIME: c_int = 61;
const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPNS_NEW: c_int = 64;
const SO_TIMESTAMPING_NEW: c_int = 65;
const TCP_ULP: c_int = 31;
const TCP_INQ: c_int = 36;

/// Options that only the kernel can honour.
const UNFIT: [(c_int, c_int); 11] = [
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, SO_TIMESTAMP_NEW),
    (libc::SOL_SOCKET, SO_TIMESTAMPNS_NEW),
    (libc::SOL_SOCKET, SO_TIMESTAMPING_NEW),
    (libc::SOL_SOCKET, libc::SO_PEEK_OFF),
    (libc::SOL_SOCKET, SO_TXTIME),
    (libc::IPPROTO_TCP, TCP_ULP),
    (libc::IPPROTO_TCP, libc::TCP_REPAIR),
    (libc::IPPROTO_TCP, TCP_INQ),
];

/// Whether the program ever set one of them: connections that come after ask for all.
static UNFIT_SET: AtomicBool = AtomicBool::new(false);
/// Whether it ever corked a socket before that was a connection: those that it accepts from it are
/// corked too.
static CORKED_BEFORE: AtomicBool = AtomicBool::new(false);
/// How often flags of a description have changed.
static FLAGS_CHANGED: AtomicU32 = AtomicU32::new(0);

/// The program sets one of those options.
pub fn note_unfit() {
    UNFIT_SET.store(true, Ordering::Relaxed);
}

/// The program corks a socket that is no connection yet.
pub fn note_corked() {
    CORKED_BEFORE.store(true, Ordering::Relaxed);
}

/// The flags of a description have changed: said before anybody looks what they are.
pub fn note_flags() {
    FLAGS_CHANGED.fetch_add(1, Ordering::SeqCst);
}

/// Can only the kernel honour this option?
#[must_use]
pub fn is_unfit_option(level: c_int, name: c_int) -> bool {
    UNFIT.contains(&(level, name))
}

/// Before a connection is shown to the other end for the first time: what its program wants of the
/// socket is asked of the kernel, and whether a ring can do it. (Until then the kernel does
/// everything; and most connections never come so far.)
pub fn is_fit(endpoint: Endpoint<'_>) -> bool {
    let (slot, fd) = (endpoint.slot(), endpoint.fd());
    if slot.nonce.load(Ordering::Relaxed) != 0 {
        // It was shown before, and changes have been noticed since.
        return true;
    }
    let flags = loop {
        let changes = FLAGS_CHANGED.load(Ordering::SeqCst);
        let flags = sys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) as c_int;
        slot.set(flag::NONBLOCKING, flags & libc::O_NONBLOCK != 0);
        if FLAGS_CHANGED.load(Ordering::SeqCst) == changes {
            break flags;
        }
    };
    // Options that another program has set, before it became this one or passed the socket on, are
    // not known of here.
    let spawned = slot.has(flag::SPAWNED);
    if (spawned || CORKED_BEFORE.load(Ordering::Relaxed)) && cork::is_set(fd) {
        endpoint.corked(true);
        if !cork::is_set(fd) {
            // Another thread has just taken it out.
            endpoint.corked(false);
        }
    }
    let may_be_unfit = spawned || UNFIT_SET.load(Ordering::Relaxed);
    flags & libc::O_ASYNC == 0 && !waits_for_more(fd) && !(may_be_unfit && is_unfit(fd))
}

/// What stood for `before` is found to be a listener, which this program did not make: its options,
/// which those that it accepts inherit, may be of another's doing.
#[cold]
pub fn inherited_listener(fd: c_int, before: Entry) {
    fds::replace(fd, before, Entry::Listener);
    if cork::is_set(fd) {
        note_corked();
    }
    if is_unfit(fd) {
        note_unfit();
    }
}

/// What the kernel says of an option that is a number.
pub fn option(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = -1;
    kernel::getsockopt(fd, level, name, &mut value).ok().map(|_| value)
}

/// Has a socket an option, perhaps from before it was connected or from its listener, that only the
/// kernel can honour?
fn is_unfit(fd: c_int) -> bool {
    UNFIT.iter().any(|&(level, name)| {
        // SO_PEEK_OFF is -1 unless set; TCP_ULP is a name, and cannot be set before the socket is
        // connected.
        name != TCP_ULP
            && option(fd, level, name)
                .is_some_and(|value| value >= c_int::from(name != libc::SO_PEEK_OFF))
    })
}

/// Does the kernel send with MSG_ZEROCOPY out of the program's own memory, and tell when it needs
/// it no longer? Without the option it takes no notice of the flag.
#[must_use]
pub fn sends_without_copy(fd: c_int) -> bool {
    option(fd, libc::SOL_SOCKET, SO_ZEROCOPY).is_some_and(|value| value > 0)
}

/// Does the kernel hide a token from who waits for a byte, since he is to wait for more
/// (SO_RCVLOWAT)?
pub fn waits_for_more(fd: c_int) -> bool {
    option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT).is_some_and(|least| least > 1)
}

/// Of [`UNFIT`]: with which a receive means something else. A ring's bytes must not follow.
const CHANGES_THE_STREAM: [(c_int, c_int); 3] = [
    (libc::SOL_SOCKET, libc::SO_PEEK_OFF),
    (libc::IPPROTO_TCP, TCP_ULP),
    (libc::IPPROTO_TCP, libc::TCP_REPAIR),
];

/// Does a receive mean something else with this option?
#[must_use]
pub fn changes_the_stream(level: c_int, name: c_int) -> bool {
    CHANGES_THE_STREAM.contains(&(level, name))
}
