//! Every form of send.

use super::file::leave_ring;
use super::{advance, answer, count_operation, waits};
use crate::fds::{self, Entry};
use crate::ops::Outcome;
use crate::wait::{self, Woken};
use crate::{next, options, runtime, sets};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use ginnel_tcp::Endpoint;
use ginnel_tcp::cursor::{Cursor, WINDOW};
use ginnel_tcp::ledger::{Reason, Slot, Stage, flag};
use ginnel_tcp::tx::Put;
use libc::{c_int, c_void, iovec};

/// [`send`] of all of `pieces`, which are `n` bytes together.
///
/// # Safety
/// The iovecs describe readable memory of the calling program.
#[inline]
pub unsafe fn send_all(fd: c_int, pieces: &[iovec], n: usize, flags: c_int) -> Outcome {
    if flags & (libc::MSG_OOB | libc::MSG_ZEROCOPY) == 0
        && let Entry::Endpoint(slot) = fds::get(fd)
        && let Some(endpoint) = runtime::endpoint(fd, slot)
    {
        match endpoint.slot().stage() {
            // SAFETY: the caller's promise.
            Stage::Active if unsafe { endpoint.put_quick(pieces, n) } => {
                return Outcome::Done(n as isize);
            }
            Stage::Published if endpoint.waits_in_vain() => {
                if let Some(outcome) =
                    // SAFETY: the caller's promise.
                    send_counted(endpoint, || unsafe { send_kernel(fd, pieces, flags) })
                {
                    return outcome;
                }
            }
            _ => {}
        }
    }
    // SAFETY: the caller's promise.
    unsafe { send(fd, pieces, flags) }
}

/// A send likewise: `call` has the kernel do it.
#[inline]
fn send_counted(endpoint: Endpoint<'static>, call: impl FnOnce() -> isize) -> Option<Outcome> {
    let slot = endpoint.slot();
    slot.busy_tx.fetch_add(1, SeqCst);
    if slot.stage() >= Stage::Settling && slot.stage() != Stage::Plain {
        slot.busy_tx.fetch_sub(1, SeqCst);
        return None;
    }
    let n = endpoint.says_by_tcp(call);
    slot.busy_tx.fetch_sub(1, SeqCst);
    count_out(slot, n);
    Some(answer(n))
}

/// Every send (`write`, `writev`, `send`, `sendto`, `sendmsg` without control data); `flags` as for
/// `send(2)` (0 for write). Raises SIGPIPE where the kernel would: such calls go to the kernel.
///
/// # Safety
/// The iovecs describe readable memory of the calling program.
#[inline]
unsafe fn send(fd: c_int, iov: &[iovec], flags: c_int) -> Outcome {
    let Some(endpoint) = runtime::find(fd) else { return Outcome::Libc };
    if flags & libc::MSG_ZEROCOPY != 0
        && endpoint.slot().stage() != Stage::Plain
        && options::sends_without_copy(fd)
    {
        // Who sends so waits until the kernel tells of it.
        return leave_ring(endpoint, Reason::Option);
    }
    if endpoint.slot().stage() != Stage::Active {
        if let Some(outcome) =
            // SAFETY: the caller's promise.
            send_before(endpoint, flags, || unsafe { send_kernel(fd, iov, flags) })
        {
            return outcome;
        }
    } else if endpoint.slot().has(flag::SHARED) {
        // As in `recv`.
        crate::service::watch(endpoint);
    }
    // SAFETY: the caller's promise.
    unsafe { send_carried(endpoint, iov, flags) }
}

/// Sends on a connection that has no channel (yet): `call` has the kernel do it. `None`: it has one
/// now.
#[cold]
pub(super) fn send_before(
    endpoint: Endpoint<'static>,
    flags: c_int,
    call: impl FnOnce() -> isize,
) -> Option<Outcome> {
    let slot = endpoint.slot();
    match slot.stage() {
        Stage::Candidate | Stage::Published | Stage::Offered => {
            if flags & libc::MSG_OOB != 0 {
                ginnel_tcp::hand_over::hold(endpoint, Reason::Urgent);
            }
            advance(endpoint, false);
            let sent = send_counted(endpoint, call);
            match sent {
                None => advance(endpoint, true),
                Some(Outcome::Done(1..)) => advance(endpoint, false),
                _ => {}
            }
            sent
        }
        Stage::Settling => {
            advance(endpoint, true);
            None
        }
        Stage::Plain => {
            let n = endpoint.says_by_tcp(call);
            count_out(slot, n);
            Some(answer(n))
        }
        Stage::Active => None,
        Stage::Broken => Some(Outcome::Failed(libc::ECONNRESET)),
        Stage::Closed => Some(Outcome::Libc),
    }
}

#[inline]
fn count_out(slot: &Slot, n: isize) {
    if n > 0 {
        count_operation(slot);
        slot.out_tcp.fetch_add(n.unsigned_abs() as u64, Relaxed);
    }
}

/// # Safety
/// The iovecs describe readable memory.
pub(super) unsafe fn send_kernel(fd: c_int, iov: &[iovec], flags: c_int) -> isize {
    if let [piece] = iov {
        // For the kernel the shorter way. SAFETY: as below.
        return unsafe { next::send(fd, piece.iov_base, piece.iov_len, flags) };
    }
    // SAFETY: all zeroes is a valid header without a name or control data.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = iov.as_ptr().cast_mut();
    header.msg_iovlen = iov.len() as _;
    // SAFETY: the caller's promise; a cancellation point, as the program's own call.
    unsafe { next::sendmsg(fd, &raw const header, flags) }
}

/// What is left of a send.
struct Source<'a> {
    at: Cursor<'a>,
    left: usize,
}

impl<'a> Source<'a> {
    fn new(iov: &'a [iovec]) -> Self {
        Self { at: Cursor::new(iov), left: iov.iter().map(|piece| piece.iov_len).sum() }
    }

    fn moved(&mut self, n: usize) {
        self.left -= n.min(self.left);
        self.at.advance(n);
    }
}

/// # Safety
/// The iovecs describe readable memory.
pub(super) unsafe fn send_carried(
    endpoint: Endpoint<'static>,
    iov: &[iovec],
    flags: c_int,
) -> Outcome {
    // Where it is so, the kernel answers.
    let _ = endpoint.reader_died();
    if iov.len() <= WINDOW {
        // The usual case: all at once, with room for it.
        // SAFETY: the caller's promise.
        match unsafe { endpoint.put(iov, flags) } {
            Put::Bytes(n) => {
                let total: usize = iov.iter().map(|piece| piece.iov_len).sum();
                if n == total {
                    if endpoint.slot().stage() == Stage::Settling {
                        advance(endpoint, false);
                    }
                    return Outcome::Done(n as isize);
                }
                let mut source = Source::new(iov);
                source.moved(n);
                // SAFETY: the caller's promise.
                return unsafe { send_rest(endpoint, source, n, flags) };
            }
            // The kernel tells it once: a second try would hear EPIPE, and SIGPIPE.
            Put::Error(errno) => return Outcome::Failed(errno),
            _ => {}
        }
    }
    // SAFETY: the caller's promise.
    unsafe { send_rest(endpoint, Source::new(iov), 0, flags) }
}

/// # Safety
/// The source's pieces describe readable memory.
unsafe fn send_rest(
    endpoint: Endpoint<'static>,
    mut source: Source<'_>,
    mut done: usize,
    flags: c_int,
) -> Outcome {
    let mut limit = wait::Limit::new(endpoint, libc::SO_SNDTIMEO);
    while source.left > 0 {
        let mut pieces = [iovec { iov_base: core::ptr::null_mut::<c_void>(), iov_len: 0 }; WINDOW];
        let window = source.at.window(&mut pieces, u64::MAX);
        // SAFETY: the caller's promise.
        let in_ring = match unsafe { endpoint.put(window, flags) } {
            Put::Bytes(n) => {
                source.moved(n);
                done += n;
                continue;
            }
            Put::RingFull => true,
            Put::KernelFull => {
                // A wake-up that lies unread would make the kernel reset the connection, and forget
                // what it is to send, should this program be killed.
                let _ = endpoint.tidy();
                false
            }
            Put::Error(errno) if done > 0 => {
                if errno != libc::EPIPE {
                    endpoint.keep_error(errno);
                }
                break;
            }
            Put::Kernel | Put::Interrupted if done > 0 => break,
            Put::Interrupted => return Outcome::Failed(libc::EAGAIN),
            Put::Error(errno) => return Outcome::Failed(errno),
            Put::Kernel => return Outcome::Libc,
        };
        if !waits(endpoint, flags) {
            if in_ring {
                sets::filled(endpoint);
            }
            if done > 0 {
                break;
            }
            return Outcome::Failed(libc::EAGAIN);
        }
        limit.partial = done > 0;
        let woken = wait::for_room(endpoint, &mut limit, in_ring);
        if !limit.is_still(endpoint) {
            return limit.ended(endpoint, done);
        }
        match woken {
            Woken::Again => {}
            Woken::TimedOut | Woken::Interrupted if done > 0 => break,
            Woken::TimedOut => return Outcome::Failed(libc::EAGAIN),
            Woken::Interrupted => return Outcome::Failed(libc::EINTR),
        }
    }
    if endpoint.slot().stage() == Stage::Settling {
        advance(endpoint, false);
    }
    Outcome::Done(done as isize)
}
