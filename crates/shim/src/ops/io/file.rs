//! From a file into a socket (`sendfile`), and between a socket and a pipe (`splice`).

use super::send::{send_before, send_carried, send_kernel};
use super::{PATIENCE, advance, nonblocking, recv};
use crate::ops::Outcome;
use crate::{next, runtime, sets, wait};
use ginnel_region::sys;
use ginnel_tcp::ledger::{Reason, Stage, flag};
use ginnel_tcp::tx::Put;
use ginnel_tcp::{Endpoint, kernel};
use libc::{c_int, c_uint, iovec, off64_t};

/// How long it waits for the kernel in a call that is not to block, nanoseconds.
const SHORT_PATIENCE: u64 = 10_000_000;

/// So much of a file the kernel is given to send at once while the connection may yet come to be
/// carried, bytes.
pub const PIECE: usize = 256 << 10;
/// What `splice(2)` may be asked for: SPLICE_F_MOVE, _NONBLOCK, _MORE and _GIFT.
const SPLICE_FLAGS: c_uint =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// From so many bytes on it pays to read them into a ring without a copy on the way: `preadv2`
/// costs a tenth of a microsecond more than `pread`.
const WORTH_IT: usize = 8 << 10;

/// Does `fd` stand for a connection whose bytes may be in a ring?
#[inline]
fn is_carried(fd: c_int) -> bool {
    runtime::known(fd).is_some_and(runtime::carried)
}

/// `sendfile(2)` and `sendfile64`: what of the file is in the page cache is read into the ring, the
/// rest into a buffer and sent on.
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

/// Has it a channel that both ends agreed on? Before that every send is a step towards one, and a
/// stream's may have to stop for it.
fn is_active(endpoint: Endpoint<'_>) -> bool {
    endpoint.slot().stage() == Stage::Active
}

/// # Safety
/// As for [`sendfile`].
unsafe fn sendfile_carried(
    endpoint: Endpoint<'static>,
    from: c_int,
    offset: *mut off64_t,
    count: usize,
) -> Outcome {
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
    // Not on the stack: a thread's may be small, and what lies about there is not to be mistaken
    // for frames (`ginnel_tcp::ledger::left`).
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
        let buffer =
            buffer.get_or_insert_with(|| Box::<[u8]>::new_uninit_slice(count.min(32 << 10)));
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
        match unsafe { send_piece(endpoint, &piece) } {
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

/// Sends a piece of a file that was read.
///
/// # Safety
/// The piece is readable memory.
unsafe fn send_piece(endpoint: Endpoint<'static>, piece: &[iovec; 1]) -> Outcome {
    // SAFETY: the caller's promise.
    unsafe {
        if !is_active(endpoint)
            && let Some(sent) = send_before(endpoint, 0, || send_kernel(endpoint.fd(), piece, 0))
        {
            return sent;
        }
        let len = piece[0].iov_len;
        if is_active(endpoint) && endpoint.put_quick(piece, len) {
            return Outcome::Done(len.cast_signed());
        }
        send_carried(endpoint, piece, 0)
    }
}

/// What cannot be read at a position, or not into any memory (O_DIRECT), the kernel may send all
/// the same: once that direction is back on TCP, for what it sends beside a ring is taken for
/// wake-ups.
#[cold]
fn by_the_kernel(endpoint: Endpoint<'static>, errno: c_int) -> Outcome {
    match errno {
        libc::EINVAL | libc::ESPIPE => leave_ring(endpoint, Reason::HandedOver),
        // The kernel refuses directories in its own way.
        libc::EISDIR => Outcome::Libc,
        errno => Outcome::Failed(errno),
    }
}

/// Brings the outgoing direction back to TCP for a call that the kernel is to make. `Libc`: it is
/// there.
pub(super) fn leave_ring(endpoint: Endpoint<'static>, reason: Reason) -> Outcome {
    // Before what a switch still owes, these bytes would be taken for wake-ups.
    let patience = if nonblocking(endpoint, 0) { SHORT_PATIENCE } else { PATIENCE };
    while !endpoint.detach_outgoing(reason, patience) {
        if nonblocking(endpoint, 0) {
            return Outcome::Failed(libc::EAGAIN);
        }
    }
    Outcome::Libc
}

/// `splice(2)` without offsets. Out of a socket the bytes are copied, for the kernel does not see
/// those in a ring. Into a socket that does not block they are read into the ring; into one that
/// does the kernel moves them, once that direction is back on TCP.
pub fn splice(from: c_int, to: c_int, count: usize, flags: c_uint) -> Outcome {
    if flags & !SPLICE_FLAGS != 0 {
        // The kernel refuses it.
        return Outcome::Libc;
    }
    if let Some(endpoint) = runtime::find(to) {
        // (Of an empty pipe the kernel asks nothing of the socket.)
        if endpoint.keeps_error()
            && kernel::readable(from) > 0
            && let Some(errno) = endpoint.take_refusal()
        {
            return Outcome::Failed(errno);
        }
        return if may_be_spliced_into(endpoint) && is_pipe(from) {
            splice_in(endpoint, from, count, flags)
        } else {
            leave_ring(endpoint, Reason::HandedOver)
        };
    }
    let Some(endpoint) = runtime::find(from) else { return Outcome::Libc };
    if count == 0 || !is_pipe(to) || matches!(endpoint.slot().stage(), Stage::Plain | Stage::Closed)
    {
        return Outcome::Libc;
    }
    splice_out(endpoint, to, count, flags)
}

fn is_pipe(fd: c_int) -> bool {
    sys::fcntl(fd, libc::F_GETPIPE_SZ, 0).is_ok()
}

/// Can what lies in a pipe be read into the ring as it would be spliced? Whether the socket blocks
/// is asked each time, for whoever shares it may have changed that.
fn may_be_spliced_into(endpoint: Endpoint<'_>) -> bool {
    let slot = endpoint.slot();
    // (Whether it blocks is not kept for one that is no candidate yet.)
    sys::fcntl(endpoint.fd(), libc::F_GETFL, 0)
        .is_ok_and(|set| set & libc::O_NONBLOCK as usize != 0)
        && !slot.has(flag::HOLD | flag::TX_SHUT)
        && !matches!(slot.stage(), Stage::Plain | Stage::Closed | Stage::Broken)
}

/// From a pipe into a socket that does not block.
fn splice_in(endpoint: Endpoint<'static>, pipe: c_int, count: usize, flags: c_uint) -> Outcome {
    if is_active(endpoint) && endpoint.slot().has(flag::SHARED) {
        // As in a send.
        crate::service::watch(endpoint);
    }
    let mut done = 0;
    while done < count {
        let left = (count - done).min(PIECE);
        let none = core::ptr::null_mut;
        // SAFETY: no offsets; a cancellation point, as the program's own call.
        let call = || unsafe { next::splice(pipe, none(), endpoint.fd(), none(), left, flags) };
        let sent = if is_active(endpoint) { None } else { send_before(endpoint, 0, call) };
        match (sent, done) {
            (Some(outcome), 0) => return outcome,
            (Some(Outcome::Done(n @ 1..)), _) => {
                done += n.unsigned_abs();
                break;
            }
            (Some(_), _) => break,
            (None, _) => {}
        }
        match endpoint.put_pipe(pipe, left) {
            Put::Bytes(0) if done > 0 => break,
            Put::Bytes(0) => match wait_for_pipe(pipe, flags) {
                None => {}
                Some(outcome) => return outcome,
            },
            Put::Bytes(n) => done += n,
            Put::Error(libc::EOPNOTSUPP) if done == 0 => {
                return leave_ring(endpoint, Reason::HandedOver);
            }
            Put::RingFull => {
                sets::filled(endpoint);
                return ended(endpoint, Put::RingFull, done);
            }
            put => return ended(endpoint, put, done),
        }
    }
    if endpoint.slot().stage() == Stage::Settling {
        advance(endpoint, false);
    }
    Outcome::Done(done as isize)
}

/// How a splice into a socket ends that could not go on.
#[cold]
fn ended(endpoint: Endpoint<'static>, put: Put, done: usize) -> Outcome {
    if put == Put::KernelFull {
        // As in a send.
        let _ = endpoint.tidy();
    }
    match put {
        Put::Error(errno) if done > 0 && errno != libc::EPIPE => endpoint.keep_error(errno),
        Put::Error(errno) if done == 0 => return Outcome::Failed(errno),
        Put::Kernel if done == 0 => return Outcome::Libc,
        _ if done == 0 => return Outcome::Failed(libc::EAGAIN),
        _ => {}
    }
    Outcome::Done(done as isize)
}

/// Nothing lies in the pipe: `None` once something does, if the call may wait for that.
#[cold]
fn wait_for_pipe(pipe: c_int, flags: c_uint) -> Option<Outcome> {
    let settings = sys::fcntl(pipe, libc::F_GETFL, 0).unwrap_or(0);
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0 && settings & libc::O_NONBLOCK as usize == 0;
    let mut asked = libc::pollfd { fd: pipe, events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd. A cancellation point, as the program's own call.
    while unsafe { next::poll(&raw mut asked, 1, if waits { -1 } else { 0 }) } < 0 {
        if !wait::goes_on_after_signal() {
            return Some(Outcome::Failed(next::errno()));
        }
    }
    if asked.revents & libc::POLLIN != 0 {
        None
    } else if asked.revents & libc::POLLHUP != 0 {
        // Nobody writes into it any more.
        Some(Outcome::Done(0))
    } else {
        Some(Outcome::Failed(libc::EAGAIN))
    }
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
        let found =
            unsafe { next::poll(&raw mut room, 1, if waits && done == 0 { -1 } else { 0 }) };
        if found < 0 && done == 0 && wait::goes_on_after_signal() {
            continue;
        }
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
        let mut piece = [iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len().min(count - done),
        }];
        let more = if done == 0 { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: the piece lies in the buffer.
        let seen = match unsafe { recv(endpoint.fd(), &piece, libc::MSG_PEEK | more) } {
            Outcome::Done(seen @ 1..) => seen.unsigned_abs(),
            other if done == 0 => return other,
            _ => break,
        };
        // A pipe that can be written to takes PIPE_BUF bytes at once.
        // SAFETY: so many bytes of the buffer were just filled.
        let put = unsafe { next::write(pipe, buffer.as_ptr().cast(), seen) };
        if put <= 0 {
            return if done > 0 {
                Outcome::Done(done as isize)
            } else {
                Outcome::Failed(next::errno())
            };
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
