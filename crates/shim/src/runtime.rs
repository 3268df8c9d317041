//! This process's attachment, and the way from a descriptor to its endpoint.

use crate::fds::{self, Entry};
use crate::spin;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::Stage;
use ginnel_tcp::settings::Settings;
use ginnel_tcp::{Attachment, kernel, reclaim};
use libc::c_int;
use std::sync::OnceLock;

static ATTACHMENT: AtomicPtr<Attachment> = AtomicPtr::new(core::ptr::null_mut());
static IO_URING: AtomicU32 = AtomicU32::new(0);

/// Looks at a descriptor that is not known yet, and makes an endpoint of it where it is one.
pub type Look = fn(c_int) -> Option<Endpoint<'static>>;

/// [`crate::adopt::look`], from the start on. A pointer, as it stands above this file: it tells the
/// epoll sets what became of a descriptor, and these come upon such descriptors themselves.
static LOOK: OnceLock<Look> = OnceLock::new();

/// At the start, before there is an attachment: what looks at descriptors that are not known yet.
pub fn look_by(look: Look) {
    LOOK.get_or_init(|| look);
}

#[cold]
#[inline(never)]
fn look(fd: c_int) -> Option<Endpoint<'static>> {
    LOOK.get().and_then(|look| look(fd))
}

/// Joins as `settings` say: at the start, and again as another user.
pub fn attach(settings: Settings) {
    let verbose = settings.verbose;
    match Attachment::new(settings, |fd, own| {
        fds::set(fd, if own { Entry::Own } else { Entry::Unknown })
    }) {
        Ok(attachment) => {
            spin::set_kernel(&attachment);
            reclaim::reclaim_now_and_then(&attachment);
            ATTACHMENT.store(Box::into_raw(Box::new(attachment)), Ordering::Release);
        }
        Err(unattached) => {
            say(verbose, &format!("{}; connections stay on TCP", unattached.message))
        }
    }
}

/// One line on standard error, where the user asked for them.
pub fn say(verbose: bool, message: &str) {
    if verbose {
        let _ = sys::write(2, format!("ginnel[{}]: {message}\n", sys::pid()).as_bytes());
    }
}

/// The attachment; `None` where this process carries nothing.
#[inline]
#[must_use]
pub fn attachment() -> Option<&'static Attachment> {
    // SAFETY: set once from a leaked box.
    unsafe { ATTACHMENT.load(Ordering::Acquire).as_ref() }
}

/// Carries nothing from here on (a fork child that could not enter the ledger).
pub fn stop() {
    ATTACHMENT.store(core::ptr::null_mut(), Ordering::Release);
}

/// The program set up an io_uring.
pub fn note_io_uring() {
    IO_URING.store(1, Ordering::Relaxed);
}

/// Did it?
#[must_use]
pub fn uses_io_uring() -> bool {
    IO_URING.load(Ordering::Relaxed) != 0
}

/// An endpoint of slot `index` through descriptor `fd`.
#[inline]
#[must_use]
pub fn endpoint(fd: c_int, index: u32) -> Option<Endpoint<'static>> {
    let attachment = attachment()?;
    Some(Endpoint::new(attachment, index, fd))
}

/// The endpoint behind `fd`, if it is one: looks at it where it is not known yet.
#[inline]
#[must_use]
pub fn find(fd: c_int) -> Option<Endpoint<'static>> {
    match fds::get(fd) {
        Entry::Endpoint(slot) => endpoint(fd, slot),
        Entry::Plain | Entry::Epoll(_) | Entry::Own | Entry::Uring | Entry::Listener => None,
        Entry::Unknown | Entry::Tcp | Entry::Shared | Entry::Young(_) | Entry::Inherited(_) => {
            look(fd)
        }
    }
}

/// The endpoint behind `fd`, if it is known to be one and its channel is active.
#[inline]
#[must_use]
pub fn known_carried(fd: c_int) -> Option<Endpoint<'static>> {
    match fds::get(fd) {
        Entry::Endpoint(slot) => {
            endpoint(fd, slot).filter(|endpoint| endpoint.slot().stage() == Stage::Active)
        }
        _ => None,
    }
}

/// The endpoint behind `fd`, if it is known to be one.
#[inline]
#[must_use]
pub fn known(fd: c_int) -> Option<Endpoint<'static>> {
    match fds::get(fd) {
        Entry::Endpoint(slot) | Entry::Inherited(slot) => endpoint(fd, slot),
        _ => None,
    }
}

/// Is it a TCP socket? Remembers the answer.
pub fn classify(fd: c_int) -> Entry {
    let known = fds::get(fd);
    if known == Entry::Unknown && attachment().is_some() {
        // Nobody has seen it made here.
        let entry = if is_tcp(fd) { Entry::Shared } else { Entry::Plain };
        fds::replace(fd, Entry::Unknown, entry);
        return fds::get(fd);
    }
    known
}

/// A socket of multipath TCP was seen.
static MULTIPATH: AtomicBool = AtomicBool::new(false);

/// May `listener` be one of multipath TCP, as Go's are since 1.24? Where the client knows nothing
/// of that, a socket that it accepts is one of TCP, and no other (`mptcp_accept`,
/// net/mptcp/protocol.c).
pub fn is_multipath(listener: c_int) -> bool {
    let mut protocol = 0i32;
    MULTIPATH.load(Ordering::Relaxed)
        && kernel::getsockopt(listener, libc::SOL_SOCKET, libc::SO_PROTOCOL, &mut protocol).is_ok()
        && protocol == libc::IPPROTO_MPTCP
}

/// Is it a TCP socket? Asks the kernel.
pub fn is_tcp(fd: c_int) -> bool {
    let (mut protocol, mut kind) = (0i32, 0i32);
    let known = kernel::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL, &mut protocol).is_ok();
    if protocol == libc::IPPROTO_MPTCP {
        MULTIPATH.store(true, Ordering::Relaxed);
    }
    known
        && protocol == libc::IPPROTO_TCP
        && kernel::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, &mut kind).is_ok()
        && kind == libc::SOCK_STREAM
}

/// Does another process that holds the socket live?
pub fn others_live(endpoint: Endpoint<'_>) -> bool {
    let (processes, me) = (&endpoint.attachment.node.processes, endpoint.me());
    endpoint.slot().held_by().any(|process| process != me && processes.alive(process))
}

/// Is this connection's state such that its calls must go through the channel?
#[inline]
#[must_use]
pub fn carried(endpoint: Endpoint<'_>) -> bool {
    matches!(endpoint.slot().stage(), Stage::Settling | Stage::Active | Stage::Broken)
}
