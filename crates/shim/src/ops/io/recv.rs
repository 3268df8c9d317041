//! Every form of receive.

use super::{advance, answer, count_operation, nonblocking, waits};
use crate::fds::{self, Entry};
use crate::moment::Moment;
use crate::ops::Outcome;
use crate::wait::{self, Woken};
use crate::{gather, linger, next, runtime, sets};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use ginnel_region::sys;
use ginnel_tcp::ledger::{Slot, Stage, flag};
use ginnel_tcp::rx::{Sink, Take};
use ginnel_tcp::{Endpoint, kernel};
use libc::{c_int, iovec};

/// Every receive (`read`, `readv`, `recv`, `recvfrom`, `recvmsg`): fill `iov` from `fd`; `flags` as
/// for `recv(2)` (0 for read). `Done(n)`: the hook zeroes the source address length and the control
/// length itself (TCP has neither).
///
/// # Safety
/// The iovecs describe writable memory of the calling program.
#[inline]
pub unsafe fn recv(fd: c_int, iov: &[iovec], flags: c_int) -> Outcome {
    let Some(endpoint) = runtime::find(fd) else { return Outcome::Libc };
    if endpoint.slot().stage() != Stage::Active {
        let wants = iov.iter().any(|piece| piece.iov_len != 0);
        // SAFETY: the caller's promise.
        let call = || unsafe { recv_kernel(fd, iov, flags) };
        if let Some(outcome) = recv_before(endpoint, flags, wants, call) {
            return outcome;
        }
    } else if endpoint.slot().has(flag::SHARED) {
        // Another process may have made the channel: this one has a part in it now, and is to
        // answer for it.
        crate::service::watch(endpoint);
    }
    // SAFETY: the caller's promise.
    unsafe { recv_carried(endpoint, iov, flags) }
}

/// [`recv`] into one buffer.
///
/// # Safety
/// `to` is writable for `n` bytes.
#[inline]
pub unsafe fn recv_one(fd: c_int, to: *mut u8, n: usize, flags: c_int) -> Outcome {
    let pieces = [iovec { iov_base: to.cast(), iov_len: n }];
    if let Entry::Endpoint(slot) = fds::get(fd)
        && let Some(endpoint) = runtime::endpoint(fd, slot)
    {
        match endpoint.slot().stage() {
            Stage::Active if is_quick(flags) => {
                // SAFETY: the caller's promise.
                let got = unsafe { take_quick(endpoint, to, n) };
                if got != 0 {
                    return Outcome::Done(got as isize);
                }
                if nonblocking(endpoint, flags) && linger::for_data(endpoint) {
                    // SAFETY: the caller's promise.
                    let got = unsafe { take_quick(endpoint, to, n) };
                    if got != 0 {
                        return Outcome::Done(got as isize);
                    }
                }
                if is_quickly_empty(endpoint, flags) {
                    return Outcome::Failed(libc::EAGAIN);
                }
            }
            Stage::Published if endpoint.waits_in_vain() => {
                // SAFETY: the caller's promise.
                let call = || unsafe { recv_kernel(fd, &pieces, flags) };
                if let Some(outcome) = recv_counted(endpoint, flags, n != 0, call) {
                    return outcome;
                }
            }
            _ => {}
        }
    }
    // SAFETY: the caller's promise.
    unsafe { recv(fd, &pieces, flags) }
}

/// Do `flags` ask for nothing but bytes?
#[inline]
fn is_quick(flags: c_int) -> bool {
    flags & !(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) == 0
}

/// # Safety
/// `to` is writable for `n` bytes.
#[inline]
unsafe fn take_quick(endpoint: Endpoint<'static>, to: *mut u8, n: usize) -> usize {
    let habit = gather::before(endpoint);
    // SAFETY: the caller's promise.
    let got = unsafe { endpoint.take_quick(to, n) };
    if got != 0 && got < n {
        habit.took_little();
        // A short read arms as EAGAIN does.
        sets::emptied(endpoint);
    }
    got
}

/// Does a receive that does not wait find nothing, in the usual case? What [`recv_carried`] would
/// come to, found sooner.
#[inline]
fn is_quickly_empty(endpoint: Endpoint<'static>, flags: c_int) -> bool {
    nonblocking(endpoint, flags)
        && !endpoint.slot().has(flag::HOLD | flag::SHARED | flag::SPAWNED)
        && endpoint.is_surely_empty()
        && !sets::emptied(endpoint)
}

/// Receives on a connection that has no channel (yet): `call` has the kernel do it. `None`: it has
/// one now. `wants`: it is to get a byte at least.
#[cold]
pub(super) fn recv_before(
    endpoint: Endpoint<'static>,
    flags: c_int,
    wants: bool,
    call: impl FnOnce() -> isize,
) -> Option<Outcome> {
    let slot = endpoint.slot();
    match slot.stage() {
        Stage::Candidate | Stage::Published | Stage::Offered => {
            advance(endpoint, false);
            let received = recv_counted(endpoint, flags, wants, call);
            if received.is_none() {
                advance(endpoint, false);
            }
            received
        }
        Stage::Settling => {
            advance(endpoint, false);
            None
        }
        Stage::Plain => {
            let n = call();
            count_in(slot, n, flags);
            Some(with_kept(endpoint, wants, answer(n)))
        }
        Stage::Active => None,
        Stage::Broken => Some(Outcome::Failed(libc::ECONNRESET)),
        Stage::Closed => Some(Outcome::Libc),
    }
}

/// A receive by the kernel which no channel is settled beside. `None`: one is, or was.
#[inline]
fn recv_counted(
    endpoint: Endpoint<'static>,
    flags: c_int,
    wants: bool,
    call: impl FnOnce() -> isize,
) -> Option<Outcome> {
    let slot = endpoint.slot();
    slot.busy_rx.fetch_add(1, SeqCst);
    if slot.stage() >= Stage::Settling && slot.stage() != Stage::Plain {
        slot.busy_rx.fetch_sub(1, SeqCst);
        return None;
    }
    let n = call();
    slot.busy_rx.fetch_sub(1, SeqCst);
    count_in(slot, n, flags);
    Some(with_kept(endpoint, wants, answer(n)))
}

/// What a receive by the kernel comes to, where a look of this library's own may have taken the
/// error that the kernel tells once.
#[inline]
fn with_kept(endpoint: Endpoint<'_>, wants: bool, answer: Outcome) -> Outcome {
    let nothing = matches!(answer, Outcome::Done(0) | Outcome::Failed(libc::EAGAIN));
    if nothing && wants && endpoint.keeps_error() {
        return endpoint.take_error().map_or(answer, Outcome::Failed);
    }
    answer
}

#[inline]
fn count_in(slot: &Slot, n: isize, flags: c_int) {
    if n > 0 && flags & libc::MSG_PEEK == 0 {
        count_operation(slot);
        slot.in_tcp.fetch_add(n.unsigned_abs() as u64, Relaxed);
    }
}

/// # Safety
/// The iovecs describe writable memory.
unsafe fn recv_kernel(fd: c_int, iov: &[iovec], flags: c_int) -> isize {
    if let [piece] = iov {
        // For the kernel the shorter way. SAFETY: as below.
        return unsafe { next::recv(fd, piece.iov_base, piece.iov_len, flags) };
    }
    // SAFETY: all zeroes is a valid header without a name or control data.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = iov.as_ptr().cast_mut();
    header.msg_iovlen = iov.len() as _;
    // SAFETY: the caller's promise; a cancellation point, as the program's own call.
    unsafe { next::recvmsg(fd, &raw mut header, flags) }
}

/// # Safety
/// The iovecs describe writable memory.
unsafe fn recv_carried(endpoint: Endpoint<'static>, iov: &[iovec], flags: c_int) -> Outcome {
    if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
        return Outcome::Libc;
    }
    let peek = flags & libc::MSG_PEEK != 0;
    let discard = flags & libc::MSG_TRUNC != 0;
    let mut sink = Sink::new(iov, discard);
    if sink.room() == 0 {
        return into_nothing(endpoint, flags);
    }
    let mut least = 1;
    if flags & libc::MSG_WAITALL != 0 && waits(endpoint, flags) {
        least = sink.room();
    }
    let mut limit = wait::Limit::new(endpoint, libc::SO_RCVTIMEO);
    let mut switch = Moment::default();
    let mut quick = is_quick(flags);
    let mut ended = false;
    loop {
        if peek {
            sink = Sink::new(iov, discard);
        }
        if quick && let [piece] = iov {
            // SAFETY: the caller's promise.
            let got = unsafe { take_quick(endpoint, piece.iov_base.cast(), piece.iov_len) };
            if got != 0 {
                return Outcome::Done(got as isize);
            }
        }
        // A program that asks again and again is answered without a lock.
        let taken = if endpoint.is_surely_empty() {
            Take::Nothing
        } else {
            // SAFETY: the caller's promise.
            unsafe { endpoint.take(&mut sink, peek) }
        };
        quick &= !matches!(taken, Take::Bytes(_));
        match heed(endpoint, taken, sink.filled(), least) {
            Then::Again => {}
            Then::Enough => break,
            Then::Over(outcome) => return outcome,
        }
        if peek && least > 1 && endpoint.stays_on_tcp() {
            // A mark may be what ends it, and only the kernel knows where that is.
            return Outcome::Libc;
        }
        if !waits(endpoint, flags) {
            match without_waiting(endpoint, sink.filled(), &mut switch) {
                Then::Again => continue,
                Then::Enough => break,
                Then::Over(outcome) => return outcome,
            }
        }
        match wait_for_more(endpoint, &mut limit, sink.filled(), peek, &mut ended) {
            Then::Again => {}
            Then::Enough => break,
            Then::Over(outcome) => return outcome,
        }
    }
    if sink.room() > 0 {
        // A short read arms as EAGAIN does.
        sets::emptied(endpoint);
    }
    Outcome::Done(sink.filled() as isize)
}

/// A receive of no bytes: TCP waits until something could be received, and takes nothing.
fn into_nothing(endpoint: Endpoint<'static>, flags: c_int) -> Outcome {
    let mut byte = 0u8;
    let piece = [iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 }];
    let flags = flags & !(libc::MSG_WAITALL | libc::MSG_TRUNC) | libc::MSG_PEEK;
    // SAFETY: one writable byte.
    let looked = unsafe { recv_carried(endpoint, &piece, flags) };
    if let Outcome::Done(_) = looked { Outcome::Done(0) } else { looked }
}

/// How a receive goes on that has too little.
enum Then {
    /// It looks again.
    Again,
    /// What it has is all.
    Enough,
    Over(Outcome),
}

/// What was taken, to a receive that has got `filled` bytes and wants `least`.
fn heed(endpoint: Endpoint<'static>, taken: Take, filled: usize, least: usize) -> Then {
    match taken {
        Take::Bytes(_) if filled >= least => Then::Enough,
        Take::End | Take::Mark => Then::Enough,
        Take::Error(errno) if filled > 0 => {
            endpoint.keep_error(errno);
            Then::Enough
        }
        Take::Error(errno) => Then::Over(Outcome::Failed(errno)),
        // It waits for this handler, and goes on with what there is.
        Take::Interrupted if filled > 0 => Then::Enough,
        Take::Interrupted => Then::Over(Outcome::Failed(libc::EAGAIN)),
        Take::Bytes(_) | Take::Nothing => Then::Again,
    }
}

/// A receive that does not wait has got `filled` bytes, and there are no more.
fn without_waiting(endpoint: Endpoint<'static>, filled: usize, switch: &mut Moment) -> Then {
    if filled > 0 {
        return Then::Enough;
    }
    if sets::emptied(endpoint) {
        return Then::Again;
    }
    if endpoint.is_switching() {
        if switch.passes(endpoint) {
            return Then::Again;
        }
        // They were told of, perhaps: they are once more when they have come.
        sets::edge(endpoint);
    }
    Then::Over(Outcome::Failed(libc::EAGAIN))
}

/// Waits for more than the `filled` bytes that a receive has got. `ended`: whether one that only
/// looks has seen the end.
fn wait_for_more(
    endpoint: Endpoint<'static>,
    limit: &mut wait::Limit,
    filled: usize,
    peek: bool,
    ended: &mut bool,
) -> Then {
    if endpoint.slot().stage() == Stage::Settling {
        advance(endpoint, false);
    }
    limit.partial = filled > 0;
    let woken = if peek && limit.partial {
        if *ended {
            return Then::Enough;
        }
        // The end before the bytes: what came before it is seen in the next turn.
        *ended = sys::poll(endpoint.fd(), libc::POLLRDHUP, 0) != 0;
        wait::for_more(endpoint, limit)
    } else {
        wait::for_data(endpoint, limit)
    };
    // Another thread may have closed the descriptor, and opened another, while this one slept.
    if !limit.is_still(endpoint) {
        return Then::Over(limit.ended(endpoint, filled));
    }
    match woken {
        Woken::Again => Then::Again,
        Woken::TimedOut | Woken::Interrupted if filled > 0 => Then::Enough,
        // Fewer bytes than the kernel wakes for (SO_RCVLOWAT), which it gives out when the time is
        // over.
        Woken::TimedOut if has_few(endpoint) && !core::mem::replace(&mut limit.over, true) => {
            Then::Again
        }
        Woken::TimedOut => Then::Over(Outcome::Failed(libc::EAGAIN)),
        Woken::Interrupted => Then::Over(Outcome::Failed(libc::EINTR)),
    }
}

/// Does TCP carry, and the kernel have bytes?
fn has_few(endpoint: Endpoint<'_>) -> bool {
    !endpoint.rx_in_ring() && kernel::readable(endpoint.fd()) > 0
}
