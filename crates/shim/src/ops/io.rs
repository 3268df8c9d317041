//! Moving bytes: every form of receive and send.

use super::Outcome;
use crate::fds::{self, Entry};
use crate::wait::{self, Woken};
use crate::{gather, next, runtime, sets};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use ginnel_channel::kernel;
use ginnel_channel::ledger::{Reason, Slot, Stage, flag};
use ginnel_channel::rx::{Sink, Take};
use ginnel_channel::settle::Endpoint;
use ginnel_channel::tx::Put;
use ginnel_region::sys;
use libc::{c_int, c_uint, c_void, iovec, off64_t};

/// How long a hand-over waits for the other end, nanoseconds.
const PATIENCE: u64 = 30_000_000_000;
/// How long where the socket is only inherited, nanoseconds.
const PATIENCE_WITH_HEIRS: u64 = 2_000_000_000;
/// How long it waits for the kernel in a call that is not to block, nanoseconds.
const SHORT_PATIENCE: u64 = 10_000_000;

/// Every receive (`read`, `readv`, `recv`, `recvfrom`, `recvmsg`): fill `iov` from `fd`; `flags` as for `recv(2)` (0 for read).
/// `Done(n)`: the hook zeroes the source address length and the control length itself (TCP has neither).
///
/// # Safety
/// The iovecs describe writable memory of the calling program.
#[inline]
pub unsafe fn recv(fd: c_int, iov: &[iovec], flags: c_int) -> Outcome {
    let Some(endpoint) = runtime::find(fd) else { return Outcome::Libc };
    if endpoint.slot().stage() != Stage::Active {
        // SAFETY: the caller's promise.
        if let Some(outcome) = unsafe { recv_before(endpoint, iov, flags) } {
            return outcome;
        }
    } else if endpoint.slot().has(flag::SHARED) {
        // Another process may have made the channel: this one has a part in it now, and is to answer for it.
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
                if is_quickly_empty(endpoint, flags) {
                    return Outcome::Failed(libc::EAGAIN);
                }
            }
            Stage::Published if endpoint.waits_in_vain() => {
                // SAFETY: the caller's promise.
                if let Some(outcome) = unsafe { recv_counted(endpoint, &pieces, flags) } {
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

/// Does a receive that does not wait find nothing, in the usual case? What [`recv_carried`] would come to, found sooner.
#[inline]
fn is_quickly_empty(endpoint: Endpoint<'static>, flags: c_int) -> bool {
    nonblocking(endpoint, flags)
        && !endpoint.slot().has(flag::HOLD | flag::SHARED | flag::SPAWNED)
        && endpoint.is_surely_empty()
        && !sets::emptied(endpoint)
}

/// [`send`] of all of `pieces`, which are `n` bytes together.
///
/// # Safety
/// The iovecs describe readable memory of the calling program.
#[inline]
pub unsafe fn send_all(fd: c_int, pieces: &[iovec], n: usize, flags: c_int) -> Outcome {
    if flags & libc::MSG_OOB == 0
        && let Entry::Endpoint(slot) = fds::get(fd)
        && let Some(endpoint) = runtime::endpoint(fd, slot)
    {
        match endpoint.slot().stage() {
            // SAFETY: the caller's promise.
            Stage::Active if unsafe { endpoint.put_quick(pieces, n) } => return Outcome::Done(n as isize),
            Stage::Published if endpoint.waits_in_vain() => {
                // SAFETY: the caller's promise.
                if let Some(outcome) = send_counted(endpoint, || unsafe { send_kernel(fd, pieces, flags) }) {
                    return outcome;
                }
            }
            _ => {}
        }
    }
    // SAFETY: the caller's promise.
    unsafe { send(fd, pieces, flags) }
}

/// What the kernel answers, as an outcome. `errno` is the C library's.
fn answer(n: isize) -> Outcome {
    if n < 0 { Outcome::Failed(next::errno()) } else { Outcome::Done(n) }
}

/// Receives on a connection that has no channel (yet). `None`: it has one now.
#[cold]
unsafe fn recv_before(endpoint: Endpoint<'static>, iov: &[iovec], flags: c_int) -> Option<Outcome> {
    let slot = endpoint.slot();
    match slot.stage() {
        Stage::Candidate | Stage::Published | Stage::Offered => {
            advance(endpoint, false);
            // SAFETY: the caller's promise.
            let received = unsafe { recv_counted(endpoint, iov, flags) };
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
            // SAFETY: the caller's promise.
            let n = unsafe { recv_kernel(endpoint.fd(), iov, flags) };
            count_in(slot, n, flags);
            Some(answer(n))
        }
        Stage::Active => None,
        Stage::Broken => Some(Outcome::Failed(libc::ECONNRESET)),
        Stage::Closed => Some(Outcome::Libc),
    }
}

/// A receive by the kernel which no channel is settled beside. `None`: one is, or was.
///
/// # Safety
/// The iovecs describe writable memory.
#[inline]
unsafe fn recv_counted(endpoint: Endpoint<'static>, iov: &[iovec], flags: c_int) -> Option<Outcome> {
    let slot = endpoint.slot();
    slot.busy_rx.fetch_add(1, SeqCst);
    if slot.stage() >= Stage::Settling && slot.stage() != Stage::Plain {
        slot.busy_rx.fetch_sub(1, SeqCst);
        return None;
    }
    // SAFETY: the caller's promise.
    let n = unsafe { recv_kernel(endpoint.fd(), iov, flags) };
    slot.busy_rx.fetch_sub(1, SeqCst);
    count_in(slot, n, flags);
    Some(answer(n))
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
    let n = call();
    slot.busy_tx.fetch_sub(1, SeqCst);
    count_out(slot, n);
    Some(answer(n))
}

/// One more read or write, while that matters.
#[inline]
fn count_operation(slot: &Slot) {
    if slot.stage() == Stage::Candidate {
        slot.operations.fetch_add(1, Relaxed);
    }
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

/// The next step towards a channel, once there were enough exchanges.
#[inline]
fn advance(endpoint: Endpoint<'static>, patient: bool) {
    let slot = endpoint.slot();
    if endpoint.waits_in_vain() {
        return;
    }
    if slot.stage() != Stage::Candidate || slot.operations.load(Relaxed) >= endpoint.attachment.settings.after {
        if slot.stage() == Stage::Candidate {
            if crate::service::is_missing(endpoint.attachment) {
                return ginnel_channel::finish::hold(endpoint, Reason::NoThread);
            }
            super::process::look_for_io_uring();
            if !endpoint.attachment.is_away() && !super::sock::is_fit(endpoint) {
                return ginnel_channel::finish::hold(endpoint, Reason::Option);
            }
        }
        if !crate::uncounted::end(endpoint) {
            // Asked again after a few calls.
            slot.attempts.fetch_add(1, Relaxed);
            return;
        }
        endpoint.progress(patient);
        if slot.stage() == Stage::Published {
            crate::uncounted::begin(endpoint);
        }
        if endpoint.attachment.is_away() {
            crate::service::attend_absence(endpoint.attachment);
        }
        if matches!(slot.stage(), Stage::Settling | Stage::Active) {
            crate::service::attend(endpoint);
        }
    }
}

#[inline]
fn nonblocking(endpoint: Endpoint<'_>, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT != 0 || endpoint.slot().has(flag::NONBLOCKING)
}

/// Does this call wait, after all? Asked before it answers EAGAIN or sleeps: a program that the shim does not see may have changed O_NONBLOCK of a socket
/// that it shares.
fn waits(endpoint: Endpoint<'_>, flags: c_int) -> bool {
    let slot = endpoint.slot();
    if slot.has(flag::HOLD | flag::SHARED | flag::SPAWNED)
        && let Ok(now) = sys::fcntl(endpoint.fd(), libc::F_GETFL, 0)
    {
        slot.set(flag::NONBLOCKING, now & libc::O_NONBLOCK as usize != 0);
    }
    !nonblocking(endpoint, flags)
}

/// # Safety
/// The iovecs describe writable memory.
unsafe fn recv_carried(endpoint: Endpoint<'static>, iov: &[iovec], flags: c_int) -> Outcome {
    let slot = endpoint.slot();
    if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
        return Outcome::Libc;
    }
    let peek = flags & libc::MSG_PEEK != 0;
    let discard = flags & libc::MSG_TRUNC != 0;
    let mut sink = Sink::new(iov, discard);
    if sink.room() == 0 {
        // TCP waits until something could be received, and takes nothing.
        let mut byte = 0u8;
        let piece = [iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 }];
        // SAFETY: one writable byte.
        let looked = unsafe { recv_carried(endpoint, &piece, flags & !(libc::MSG_WAITALL | libc::MSG_TRUNC) | libc::MSG_PEEK) };
        return if let Outcome::Done(_) = looked { Outcome::Done(0) } else { looked };
    }
    let mut least = 1;
    if flags & libc::MSG_WAITALL != 0 && waits(endpoint, flags) {
        least = sink.room();
    }
    let mut limit = wait::Limit::new(endpoint, libc::SO_RCVTIMEO);
    let mut switch = wait::Moment::default();
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
        // SAFETY: the caller's promise.
        let taken = if endpoint.is_surely_empty() { Take::Nothing } else { unsafe { endpoint.take(&mut sink, peek) } };
        match taken {
            Take::Bytes(_) if sink.filled() >= least => break,
            Take::End | Take::Mark => break,
            Take::Error(errno) => {
                if sink.filled() > 0 {
                    endpoint.keep_error(errno);
                    break;
                }
                return Outcome::Failed(errno);
            }
            // It waits for this handler, and goes on with what there is.
            Take::Interrupted if sink.filled() > 0 => break,
            Take::Interrupted => return Outcome::Failed(libc::EAGAIN),
            Take::Bytes(_) => quick = false,
            Take::Nothing => {}
        }
        if peek && least > 1 && endpoint.stays_on_tcp() {
            // A mark may be what ends it, and only the kernel knows where that is.
            return Outcome::Libc;
        }
        if !waits(endpoint, flags) {
            if sink.filled() > 0 {
                break;
            }
            if sets::emptied(endpoint) || endpoint.is_switching() && switch.passes(endpoint) {
                continue;
            }
            return Outcome::Failed(libc::EAGAIN);
        }
        if slot.stage() == Stage::Settling {
            advance(endpoint, false);
        }
        limit.partial = sink.filled() > 0;
        let woken = if peek && limit.partial {
            if ended {
                break;
            }
            // The end before the bytes: what came before it is seen in the next turn.
            ended = kernel::poll(endpoint.fd(), libc::POLLRDHUP, 0) != 0;
            wait::for_more(endpoint, &mut limit)
        } else {
            wait::for_data(endpoint, &mut limit)
        };
        // Another thread may have closed the descriptor, and opened another, while this one slept.
        if !limit.is_still(endpoint) {
            return Outcome::Failed(libc::EBADF);
        }
        match woken {
            Woken::Again => {}
            Woken::TimedOut if sink.filled() > 0 => break,
            Woken::TimedOut => return Outcome::Failed(libc::EAGAIN),
            Woken::Interrupted if sink.filled() > 0 => break,
            Woken::Interrupted => return Outcome::Failed(libc::EINTR),
        }
    }
    if sink.room() > 0 {
        // A short read arms as EAGAIN does.
        sets::emptied(endpoint);
    }
    Outcome::Done(sink.filled() as isize)
}

/// Every send (`write`, `writev`, `send`, `sendto`, `sendmsg` without control data); `flags` as for `send(2)` (0 for write).
/// Raises SIGPIPE where the kernel would: such calls go to the kernel.
///
/// # Safety
/// The iovecs describe readable memory of the calling program.
#[inline]
pub unsafe fn send(fd: c_int, iov: &[iovec], flags: c_int) -> Outcome {
    let Some(endpoint) = runtime::find(fd) else { return Outcome::Libc };
    if endpoint.slot().stage() != Stage::Active {
        // SAFETY: the caller's promise.
        if let Some(outcome) = send_before(endpoint, flags, || unsafe { send_kernel(fd, iov, flags) }) {
            return outcome;
        }
    } else if endpoint.slot().has(flag::SHARED) {
        // As in `recv`.
        crate::service::watch(endpoint);
    }
    // SAFETY: the caller's promise.
    unsafe { send_carried(endpoint, iov, flags) }
}

/// Sends on a connection that has no channel (yet): `call` has the kernel do it. `None`: it has one now.
#[cold]
fn send_before(endpoint: Endpoint<'static>, flags: c_int, call: impl FnOnce() -> isize) -> Option<Outcome> {
    let slot = endpoint.slot();
    match slot.stage() {
        Stage::Candidate | Stage::Published | Stage::Offered => {
            if flags & libc::MSG_OOB != 0 {
                ginnel_channel::finish::hold(endpoint, Reason::Urgent);
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
            let n = call();
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
unsafe fn send_kernel(fd: c_int, iov: &[iovec], flags: c_int) -> isize {
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

/// What is left of a send: a window of at most 16 pieces at a time.
struct Source<'a> {
    iov: &'a [iovec],
    index: usize,
    offset: usize,
    left: usize,
}

impl<'a> Source<'a> {
    fn new(iov: &'a [iovec]) -> Self {
        Self { iov, index: 0, offset: 0, left: iov.iter().map(|piece| piece.iov_len).sum() }
    }

    fn window<'b>(&self, pieces: &'b mut [iovec; 16]) -> &'b [iovec] {
        let mut count = 0;
        for (place, piece) in pieces.iter_mut().zip(self.iov.iter().skip(self.index)) {
            let skip = if count == 0 { self.offset } else { 0 };
            // SAFETY: `offset` lies inside the piece.
            *place = iovec { iov_base: unsafe { piece.iov_base.cast::<u8>().add(skip) }.cast(), iov_len: piece.iov_len - skip };
            count += 1;
        }
        pieces.get(..count).unwrap_or(&[])
    }

    fn moved(&mut self, mut n: usize) {
        self.left -= n.min(self.left);
        while let Some(piece) = self.iov.get(self.index) {
            let here = piece.iov_len - self.offset;
            if n < here {
                self.offset += n;
                return;
            }
            n -= here;
            self.index += 1;
            self.offset = 0;
        }
    }
}

/// # Safety
/// The iovecs describe readable memory.
unsafe fn send_carried(endpoint: Endpoint<'static>, iov: &[iovec], flags: c_int) -> Outcome {
    // Where it is so, the kernel answers.
    let _ = endpoint.reader_died();
    if iov.len() <= 16 {
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
unsafe fn send_rest(endpoint: Endpoint<'static>, mut source: Source<'_>, mut done: usize, flags: c_int) -> Outcome {
    let mut limit = wait::Limit::new(endpoint, libc::SO_SNDTIMEO);
    while source.left > 0 {
        let mut pieces = [iovec { iov_base: core::ptr::null_mut::<c_void>(), iov_len: 0 }; 16];
        let window = source.window(&mut pieces);
        // SAFETY: the caller's promise.
        let in_ring = match unsafe { endpoint.put(window, flags) } {
            Put::Bytes(n) => {
                source.moved(n);
                done += n;
                continue;
            }
            Put::RingFull => true,
            Put::KernelFull => {
                // A wake-up that lies unread would make the kernel reset the connection, and forget what it is to send, should this program be killed.
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
            if in_ring && sets::filled(endpoint) {
                continue;
            }
            if done > 0 {
                break;
            }
            return Outcome::Failed(libc::EAGAIN);
        }
        limit.partial = done > 0;
        let woken = wait::for_room(endpoint, &mut limit, in_ring);
        if !limit.is_still(endpoint) {
            return if done > 0 { Outcome::Done(done as isize) } else { Outcome::Failed(libc::EBADF) };
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

/// So much of a file the kernel is given to send at once while the connection may yet come to be carried, bytes.
pub const PIECE: usize = 256 << 10;

/// From so many bytes on it pays to read them into a ring without a copy on the way: `preadv2` costs a tenth of a microsecond more than `pread`.
const WORTH_IT: usize = 8 << 10;

/// Does `fd` stand for a connection whose bytes may be in a ring?
#[inline]
pub fn is_carried(fd: c_int) -> bool {
    runtime::known(fd).is_some_and(runtime::carried)
}

/// `sendfile(2)` and `sendfile64`: what of the file is in the page cache is read into the ring, the rest into a buffer and sent on.
///
/// # Safety
/// `offset` is null or points to the program's offset.
pub unsafe fn sendfile(out: c_int, from: c_int, offset: *mut off64_t, count: usize) -> Outcome {
    if is_carried(from) {
        // The kernel takes it into a pipe only (since 5.12).
        return if offset.is_null() { splice(from, out, count, 0) } else { Outcome::Libc };
    }
    let mut done = 0;
    loop {
        let piece = (count - done).min(PIECE);
        // SAFETY: the caller's promise; a cancellation point, as the program's own call.
        let call = || unsafe { next::sendfile(out, from, offset, piece) };
        let Some(endpoint) = runtime::find(out) else {
            return if done == 0 { Outcome::Libc } else { Outcome::Done(done as isize) };
        };
        let sent = match if is_active(endpoint) { None } else { send_before(endpoint, 0, call) } {
            Some(outcome) => outcome,
            // SAFETY: the caller's promise.
            None => unsafe { sendfile_carried(endpoint, from, offset, count - done) },
        };
        match sent {
            Outcome::Done(n @ 0..) => {
                done += n.unsigned_abs();
                if n.unsigned_abs() < piece || done >= count {
                    return Outcome::Done(done as isize);
                }
            }
            other if done == 0 => return other,
            _ => return Outcome::Done(done as isize),
        }
    }
}

/// Has it a channel that both ends agreed on? Before that every send is a step towards one, and a stream's may have to stop for it.
fn is_active(endpoint: Endpoint<'_>) -> bool {
    endpoint.slot().stage() == Stage::Active
}

/// # Safety
/// As for [`sendfile`].
unsafe fn sendfile_carried(endpoint: Endpoint<'static>, from: c_int, offset: *mut off64_t, count: usize) -> Outcome {
    // SAFETY: null or the program's offset.
    let explicit = unsafe { offset.as_ref().copied() };
    let mut position = match explicit {
        Some(position) => position,
        // SAFETY: asks for the descriptor's own position.
        None => unsafe { libc::lseek64(from, 0, libc::SEEK_CUR) },
    };
    if position < 0 {
        return by_the_kernel(endpoint, next::errno());
    }
    // Not on the stack: a thread's may be small, and what lies about there is not to be mistaken for frames (`ginnel_channel::ledger::left`).
    let mut buffer = None;
    let mut done = 0usize;
    while done < count {
        let quick = is_active(endpoint) && count - done >= WORTH_IT;
        let put = if quick { endpoint.put_file_quick(from, position, count - done) } else { 0 };
        if put != 0 {
            done += put;
            position += put as i64;
            continue;
        }
        let buffer = buffer.get_or_insert_with(|| Box::<[u8]>::new_uninit_slice(count.min(32 << 10)));
        let want = buffer.len().min(count - done);
        // SAFETY: the buffer is writable.
        let got = unsafe { libc::pread64(from, buffer.as_mut_ptr().cast(), want, position) };
        if got < 0 && done == 0 {
            return by_the_kernel(endpoint, next::errno());
        }
        if got <= 0 {
            break;
        }
        let piece = [iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: got.unsigned_abs() }];
        // SAFETY: the piece was just filled.
        let sent = unsafe {
            match if is_active(endpoint) { None } else { send_before(endpoint, 0, || send_kernel(endpoint.fd(), &piece, 0)) } {
                Some(outcome) => outcome,
                None if is_active(endpoint) && endpoint.put_quick(&piece, piece[0].iov_len) => Outcome::Done(got),
                None => send_carried(endpoint, &piece, 0),
            }
        };
        match sent {
            Outcome::Done(n) if n > 0 => {
                done += n.unsigned_abs();
                position += n as i64;
                if n < got {
                    break;
                }
            }
            Outcome::Failed(errno) if done == 0 => return Outcome::Failed(errno),
            Outcome::Libc if done == 0 => return Outcome::Libc,
            _ => break,
        }
    }
    if explicit.is_some() {
        // SAFETY: not null, the program's.
        unsafe { *offset = position };
    } else {
        // SAFETY: moves the descriptor's position past what was sent.
        unsafe { libc::lseek64(from, position, libc::SEEK_SET) };
    }
    Outcome::Done(done as isize)
}

/// What cannot be read at a position, or not into any memory (O_DIRECT), the kernel may send all the same: once that direction is back on TCP, for what it sends beside a ring is taken for wake-ups.
#[cold]
fn by_the_kernel(endpoint: Endpoint<'static>, errno: c_int) -> Outcome {
    match errno {
        libc::EINVAL | libc::ESPIPE => leave_ring(endpoint),
        // The kernel refuses directories in its own way.
        libc::EISDIR => Outcome::Libc,
        errno => Outcome::Failed(errno),
    }
}

/// Brings the outgoing direction back to TCP for a call that the kernel is to make. `Libc`: it is there.
fn leave_ring(endpoint: Endpoint<'static>) -> Outcome {
    // Before what a switch still owes, these bytes would be taken for wake-ups.
    let patience = if nonblocking(endpoint, 0) { SHORT_PATIENCE } else { PATIENCE };
    while !endpoint.detach_outgoing(Reason::HandedOver, patience) {
        if nonblocking(endpoint, 0) {
            return Outcome::Failed(libc::EAGAIN);
        }
    }
    Outcome::Libc
}

/// `splice(2)` without offsets. Out of a socket the bytes are copied, for the kernel does not see those in a ring. Into a socket the kernel moves them, once that
/// direction is back on TCP.
pub fn splice(from: c_int, to: c_int, count: usize, flags: c_uint) -> Outcome {
    if let Some(endpoint) = runtime::find(to)
        && let failed @ Outcome::Failed(_) = leave_ring(endpoint)
    {
        return failed;
    }
    let Some(endpoint) = runtime::find(from) else { return Outcome::Libc };
    let is_pipe = sys::fcntl(to, libc::F_GETPIPE_SZ, 0).is_ok();
    if count == 0 || !is_pipe || matches!(endpoint.slot().stage(), Stage::Plain | Stage::Closed) {
        return Outcome::Libc;
    }
    splice_out(endpoint, to, count, flags)
}

/// From a socket into a pipe: looks at bytes, writes them into the pipe, and then takes as many.
fn splice_out(endpoint: Endpoint<'static>, pipe: c_int, count: usize, flags: c_uint) -> Outcome {
    let settings = sys::fcntl(pipe, libc::F_GETFL, 0).unwrap_or(0);
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0 && settings & libc::O_NONBLOCK as usize == 0;
    let mut buffer = [0u8; libc::PIPE_BUF];
    let mut done = 0;
    while done < count {
        let mut room = libc::pollfd { fd: pipe, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one pollfd. A cancellation point, as the program's own call.
        let found = unsafe { next::poll(&raw mut room, 1, if waits && done == 0 { -1 } else { 0 }) };
        let full = if found < 0 { next::errno() } else { libc::EAGAIN };
        if room.revents & libc::POLLERR != 0 && done == 0 {
            // Nobody reads the pipe.
            // SAFETY: to this thread, as the kernel does.
            unsafe { libc::raise(libc::SIGPIPE) };
            return Outcome::Failed(libc::EPIPE);
        }
        if room.revents != libc::POLLOUT {
            return if done > 0 { Outcome::Done(done as isize) } else { Outcome::Failed(full) };
        }
        let mut piece = [iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len().min(count - done) }];
        let wait = if done == 0 { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: the piece lies in the buffer.
        let seen = match unsafe { recv(endpoint.fd(), &piece, libc::MSG_PEEK | wait) } {
            Outcome::Done(seen @ 1..) => seen.unsigned_abs(),
            other if done == 0 => return other,
            _ => break,
        };
        // A pipe that can be written to takes PIPE_BUF bytes at once.
        // SAFETY: so many bytes of the buffer were just filled.
        let put = unsafe { next::write(pipe, buffer.as_ptr().cast(), seen) };
        if put <= 0 {
            return if done > 0 { Outcome::Done(done as isize) } else { Outcome::Failed(next::errno()) };
        }
        let mut left = put.unsigned_abs();
        done += left;
        while left > 0 {
            piece[0].iov_len = left;
            // SAFETY: with MSG_TRUNC nothing is stored, and the piece lies in the buffer.
            match unsafe { recv(endpoint.fd(), &piece, libc::MSG_TRUNC | libc::MSG_DONTWAIT) } {
                Outcome::Done(taken @ 1..) => left -= taken.unsigned_abs().min(left),
                _ => break,
            }
        }
    }
    Outcome::Done(done as isize)
}

/// `fd` is about to be used in a way that the hooks cannot follow (fdopen, dprintf, SCM_TXTIME …): bring both directions back to
/// TCP and keep them there. Returns when the kernel's socket holds the whole truth. Where that cannot be had (the other end is gone or does not answer, with
/// bytes unread in its ring), the connection is reset: bytes must not be lost in silence.
pub fn hand_over(fd: c_int) {
    hand_over_for(fd, Reason::HandedOver);
}

/// [`hand_over`], for a given reason.
pub fn hand_over_for(fd: c_int, reason: Reason) {
    let Some(endpoint) = runtime::find(fd) else { return };
    if !endpoint.detach(reason, PATIENCE) {
        runtime::say(endpoint.attachment.settings.verbose, "a connection was reset: the other end did not answer a hand-over");
        endpoint.break_off(reason);
    }
}

/// [`hand_over`] of a socket that may be used past the hooks and most likely will not (a program without the shim inherits it, it became a standard stream): where it
/// cannot be handed over, it is left as it is, and the hooks go on.
pub fn offer(fd: c_int) {
    let Some(endpoint) = runtime::find(fd) else { return };
    if !endpoint.detach(Reason::HandedOver, PATIENCE_WITH_HEIRS) {
        runtime::say(
            endpoint.attachment.settings.verbose,
            "a connection could not be handed over: code past the shim would not see bytes that lie in its ring",
        );
    }
}
