//! From a file into a socket (`sendfile`).

use super::send::{send_before, send_carried, send_kernel};
use super::{PATIENCE, nonblocking, splice};
use crate::ops::Outcome;
use crate::{next, runtime};
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::{Reason, Stage};
use libc::{c_int, iovec, off64_t};

/// How long it waits for the kernel in a call that is not to block, nanoseconds.
const SHORT_PATIENCE: u64 = 10_000_000;

/// So much of a file the kernel is given to send at once while the connection may yet come to be
/// carried, bytes.
pub const PIECE: usize = 256 << 10;
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
pub(super) fn is_active(endpoint: Endpoint<'_>) -> bool {
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
