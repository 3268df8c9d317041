//! Reading and writing bytes, without addresses or control data.

mod between;
mod pieces;

use super::direct::{self, DIRECT, NONE, int, word};
use super::{Outcome, bypass, cancel};
use crate::uncounted::Word;
use crate::{next, ops};
pub(super) use between::{sendfile, sendfile_here, splice};
use libc::{c_int, c_void, iovec, off_t};
use pieces::{MOST_BYTES, piece};
pub(super) use pieces::{MOST_PIECES, is_nowhere, with_pieces};

/// A receive into one buffer.
///
/// # Safety
/// As for `recv(2)`.
#[inline]
pub(super) unsafe fn receive(fd: c_int, buf: *mut c_void, n: usize, flags: c_int) -> Outcome {
    cancel::point();
    if flags & libc::MSG_TRUNC != 0 {
        // TCP stores nothing (tcp(7)): the buffer may be null.
        let pieces = [iovec { iov_base: buf, iov_len: n.min(MOST_BYTES) }];
        // SAFETY: the caller promises that nothing is stored.
        return if bypass() { Outcome::Libc } else { unsafe { ops::io::recv(fd, &pieces, flags) } };
    }
    match piece(buf, n) {
        // SAFETY: the caller promises `buf` writable for `n` bytes; the piece says no more than
        // that.
        Some([piece]) if !bypass() => unsafe {
            ops::io::recv_one(fd, piece.iov_base.cast(), piece.iov_len, flags)
        },
        _ => Outcome::Libc,
    }
}

/// A send from one buffer.
///
/// # Safety
/// As for `send(2)`.
#[inline]
pub(super) unsafe fn transmit(fd: c_int, buf: *const c_void, n: usize, flags: c_int) -> Outcome {
    cancel::point();
    match piece(buf, n) {
        // SAFETY: the caller promises `buf` readable for `n` bytes; the piece says no more than
        // that.
        Some(pieces) if n != 0 && !bypass() => unsafe {
            ops::io::send_all(fd, &pieces, pieces[0].iov_len, flags)
        },
        // Nothing to send, or it is not ours to send.
        _ => Outcome::Libc,
    }
}

/// `readv` and its kin.
///
/// # Safety
/// As for `readv(2)`.
unsafe fn receive_pieces(fd: c_int, iov: *const iovec, count: c_int, flags: c_int) -> Outcome {
    cancel::point();
    match usize::try_from(count) {
        // SAFETY: the caller promises `count` pieces of writable memory, and `with_pieces` hands on
        // no others.
        Ok(count @ 1..) if !bypass() => unsafe {
            with_pieces(iov, count, |pieces, total| {
                if total == 0 { Outcome::Libc } else { ops::io::recv(fd, pieces, flags) }
            })
        },
        _ => Outcome::Libc,
    }
}

/// `writev` and its kin.
///
/// # Safety
/// As for `writev(2)`.
unsafe fn transmit_pieces(fd: c_int, iov: *const iovec, count: c_int, flags: c_int) -> Outcome {
    cancel::point();
    match usize::try_from(count) {
        // SAFETY: the caller promises `count` pieces of readable memory, and `with_pieces` hands on
        // no others.
        Ok(count @ 1..) if !bypass() => unsafe {
            with_pieces(iov, count, |pieces, total| {
                if total == 0 { Outcome::Libc } else { ops::io::send_all(fd, pieces, total, flags) }
            })
        },
        _ => Outcome::Libc,
    }
}

/// The flags of `recv` that those of `preadv2` amount to on a socket; `None` where the kernel must
/// judge them.
fn message_flags(flags: c_int) -> Option<c_int> {
    const KNOWN: c_int =
        libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_NOWAIT | libc::RWF_APPEND;
    let wait = if flags & libc::RWF_NOWAIT != 0 { libc::MSG_DONTWAIT } else { 0 };
    (flags & !KNOWN == 0).then_some(wait)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, n: usize) -> isize {
    // SAFETY: the program's own arguments.
    unsafe { direct::call(&DIRECT.read, true, fd, [buf, word(n), NONE, NONE]) }
}

/// # Safety
/// As for `read(2)`.
#[inline(never)]
pub(super) unsafe extern "C" fn read_here(
    fd: c_int,
    buf: Word,
    n: Word,
    _: Word,
    _: Word,
) -> isize {
    let n = n.addr();
    // A read of nothing is 0 on a socket, whatever waits there (a recv of nothing is not).
    // SAFETY: the program's own arguments.
    let outcome = if n == 0 { Outcome::Libc } else { unsafe { receive(fd, buf, n, 0) } };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::read(fd, buf, n) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __read_chk(
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    room: usize,
) -> isize {
    if n <= room {
        // SAFETY: the program's own arguments; `room` is the buffer's size, and with more asked
        // for, the C library's function ends the program.
        unsafe { read(fd, buf, n) }
    } else {
        // SAFETY: as above.
        unsafe { next::__read_chk(fd, buf, n, room) }
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn readv(fd: c_int, iov: *const iovec, count: c_int) -> isize {
    // SAFETY: the program's own arguments.
    unsafe {
        direct::call(&DIRECT.readv, true, fd, [iov.cast_mut().cast(), int(count), NONE, NONE])
    }
}

/// # Safety
/// As for `readv(2)`.
#[inline(never)]
pub(super) unsafe extern "C" fn readv_here(
    fd: c_int,
    iov: Word,
    count: Word,
    _: Word,
    _: Word,
) -> isize {
    let (iov, count) = (iov.cast_const().cast::<iovec>(), count.addr() as c_int);
    // SAFETY: the program's own arguments.
    let outcome = unsafe { receive_pieces(fd, iov, count, 0) };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::readv(fd, iov, count) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn preadv2(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> isize {
    let outcome = match message_flags(flags) {
        // SAFETY: the program's own arguments. With an offset of -1 this is `readv`.
        Some(flags) if offset == -1 => unsafe { receive_pieces(fd, iov, count, flags) },
        _ => Outcome::Libc,
    };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::preadv2(fd, iov, count, offset, flags) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn write(fd: c_int, buf: *const c_void, n: usize) -> isize {
    // SAFETY: the program's own arguments.
    unsafe { direct::call(&DIRECT.write, true, fd, [buf.cast_mut(), word(n), NONE, NONE]) }
}

/// # Safety
/// As for `write(2)`.
#[inline(never)]
pub(super) unsafe extern "C" fn write_here(
    fd: c_int,
    buf: Word,
    n: Word,
    _: Word,
    _: Word,
) -> isize {
    let n = n.addr();
    // SAFETY: the program's own arguments.
    let outcome = unsafe { transmit(fd, buf, n, 0) };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::write(fd, buf, n) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn writev(fd: c_int, iov: *const iovec, count: c_int) -> isize {
    // SAFETY: the program's own arguments.
    unsafe {
        direct::call(&DIRECT.writev, true, fd, [iov.cast_mut().cast(), int(count), NONE, NONE])
    }
}

/// # Safety
/// As for `writev(2)`.
#[inline(never)]
pub(super) unsafe extern "C" fn writev_here(
    fd: c_int,
    iov: Word,
    count: Word,
    _: Word,
    _: Word,
) -> isize {
    let (iov, count) = (iov.cast_const().cast::<iovec>(), count.addr() as c_int);
    // SAFETY: the program's own arguments.
    let outcome = unsafe { transmit_pieces(fd, iov, count, 0) };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::writev(fd, iov, count) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pwritev2(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> isize {
    let outcome = match message_flags(flags) {
        // SAFETY: the program's own arguments. With an offset of -1 this is `writev`.
        Some(flags) if offset == -1 => unsafe { transmit_pieces(fd, iov, count, flags) },
        _ => Outcome::Libc,
    };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::pwritev2(fd, iov, count, offset, flags) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn recv(fd: c_int, buf: *mut c_void, n: usize, flags: c_int) -> isize {
    // SAFETY: the program's own arguments.
    unsafe { received(fd, buf, n, flags) }
}

/// What [`recv`] does, and what a call with an address comes to that names none. (Not by that hook:
/// where another library stands before it, the other's may come here.)
///
/// # Safety
/// As for `recv(2)`.
#[inline]
pub(super) unsafe fn received(fd: c_int, buf: *mut c_void, n: usize, flags: c_int) -> isize {
    // SAFETY: the program's own arguments.
    unsafe {
        direct::call(
            &DIRECT.recv,
            flags & libc::MSG_PEEK == 0,
            fd,
            [buf, word(n), int(flags), NONE],
        )
    }
}

/// # Safety
/// As for `recv(2)`.
#[inline(never)]
pub(super) unsafe extern "C" fn recv_here(
    fd: c_int,
    buf: Word,
    n: Word,
    flags: Word,
    _: Word,
) -> isize {
    let (n, flags) = (n.addr(), flags.addr() as c_int);
    // SAFETY: the program's own arguments.
    let outcome = unsafe { receive(fd, buf, n, flags) };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::recv(fd, buf, n, flags) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    room: usize,
    flags: c_int,
) -> isize {
    if n <= room {
        // SAFETY: the program's own arguments; `room` is the buffer's size, and with more asked
        // for, the C library's function ends the program.
        unsafe { recv(fd, buf, n, flags) }
    } else {
        // SAFETY: as above.
        unsafe { next::__recv_chk(fd, buf, n, room, flags) }
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn send(
    fd: c_int,
    buf: *const c_void,
    n: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the program's own arguments.
    unsafe { sent(fd, buf, n, flags) }
}

/// What [`send`] does, and what a call with an address comes to that names none. (Not by that hook:
/// where another library stands before it, the other's may come here.)
///
/// # Safety
/// As for `send(2)`.
#[inline]
pub(super) unsafe fn sent(fd: c_int, buf: *const c_void, n: usize, flags: c_int) -> isize {
    // SAFETY: the program's own arguments.
    unsafe {
        direct::call(
            &DIRECT.send,
            flags & libc::MSG_OOB == 0,
            fd,
            [buf.cast_mut(), word(n), int(flags), NONE],
        )
    }
}

/// # Safety
/// As for `send(2)`.
#[inline(never)]
pub(super) unsafe extern "C" fn send_here(
    fd: c_int,
    buf: Word,
    n: Word,
    flags: Word,
    _: Word,
) -> isize {
    let (n, flags) = (n.addr(), flags.addr() as c_int);
    // SAFETY: the program's own arguments.
    let outcome = unsafe { transmit(fd, buf, n, flags) };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::send(fd, buf, n, flags) })
}
