//! Messages: sends and receives with an address or control data, and several at once.
//!
//! TCP has no source address and no control data of its own: what a message of an accelerated
//! socket says of them is what the kernel says for TCP (`net/socket.c`: length 0, and only where
//! the program asked). Control data is how descriptors travel (`SCM_RIGHTS`).
#![allow(
    clippy::unnecessary_cast,
    reason = "lengths that are `usize` with glibc are `int` or `socklen_t` with musl"
)]
mod several;

use super::direct::{self, DIRECT, NONE, int};
use super::io::{self, receive, transmit, with_pieces};
use super::{Outcome, bypass, cancel, errno, keeping_errno};
use crate::uncounted::Word;
use crate::{next, ops};
use libc::{c_int, c_void, cmsghdr, msghdr, sockaddr, socklen_t};
pub(super) use several::{recvmmsg, sendmmsg};

/// The kernel passes no more descriptors than this in one message (`SCM_MAX_FD`).
const MOST_DESCRIPTORS: usize = 253;

/// Calls `each` with the descriptors in every `SCM_RIGHTS` of a message's control data.
///
/// # Safety
/// `message` has its control data where it says.
unsafe fn each_rights(message: *const msghdr, mut each: impl FnMut(&[c_int])) {
    const HEADER: usize = size_of::<cmsghdr>();
    // SAFETY: the caller promises a message.
    let (control, len) =
        unsafe { ((*message).msg_control.cast::<u8>(), (*message).msg_controllen as usize) };
    if control.is_null() {
        return;
    }
    let mut at = 0_usize;
    while len.saturating_sub(at) >= HEADER {
        // SAFETY: a header fits between `at` and the end; the program's buffer need not be aligned.
        let header = unsafe { control.add(at).cast::<cmsghdr>().read_unaligned() };
        let (room, whole) = (len - at, header.cmsg_len as usize);
        if whole < HEADER || whole > room {
            return;
        }
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            let count = ((whole - HEADER) / size_of::<c_int>()).min(MOST_DESCRIPTORS);
            let mut fds = [-1; MOST_DESCRIPTORS];
            // SAFETY: `count` whole descriptors lie between this header and its end, and fit the
            // array.
            unsafe {
                control
                    .add(at + HEADER)
                    .copy_to_nonoverlapping(fds.as_mut_ptr().cast(), count * size_of::<c_int>())
            };
            each(fds.get(..count).unwrap_or_default());
        }
        at = at.saturating_add(whole.next_multiple_of(align_of::<cmsghdr>()));
    }
}

/// Before a message with control data goes to the kernel: descriptors in it are announced, and the
/// socket's bytes go by TCP from here.
///
/// # Safety
/// As for [`each_rights`].
unsafe fn control_follows(fd: c_int, message: *const msghdr) {
    // SAFETY: the caller's promise.
    unsafe { each_rights(message, ops::process::sending_fds) };
    ops::io::hand_over(fd);
}

/// After the kernel received a message: descriptors may have come with it.
///
/// # Safety
/// As for [`each_rights`].
unsafe fn descriptors_came(message: *const msghdr) {
    // SAFETY: the caller's promise; the kernel wrote the control data and its length.
    keeping_errno(|| unsafe { each_rights(message, ops::process::received_fds) });
}

/// One message's send, and its size.
///
/// # Safety
/// As for `sendmsg(2)`.
unsafe fn send_one(fd: c_int, message: *const msghdr, flags: c_int) -> (Outcome, usize) {
    if bypass() || io::is_nowhere(message) {
        return (Outcome::Libc, 0);
    }
    // SAFETY: not null, so a message by the caller's promise.
    let header = unsafe { &*message };
    if header.msg_controllen != 0 {
        // SAFETY: as above.
        unsafe { control_follows(fd, message) };
        return (Outcome::Libc, 0);
    }
    let mut size = 0;
    // SAFETY: the message's pieces describe readable memory of the program.
    let outcome = unsafe {
        with_pieces(header.msg_iov, header.msg_iovlen as usize, |pieces, total| {
            size = total;
            if total == 0 || flags & libc::MSG_FASTOPEN != 0 {
                Outcome::Libc
            } else {
                ops::io::send_all(fd, pieces, total, flags)
            }
        })
    };
    (outcome, size)
}

/// One message's receive.
///
/// # Safety
/// As for `recvmsg(2)`.
unsafe fn receive_one(fd: c_int, message: *mut msghdr, flags: c_int) -> Outcome {
    if bypass()
        || io::is_nowhere(message)
        // SAFETY: not null, so a message by the caller's promise.
        || unsafe { (*message).msg_controllen } != 0 && ops::sock::has_control(fd)
    {
        return Outcome::Libc;
    }
    // SAFETY: as above, and its pieces describe writable memory of the program.
    let outcome = unsafe {
        with_pieces((*message).msg_iov, (*message).msg_iovlen as usize, |pieces, _| {
            ops::io::recv(fd, pieces, flags)
        })
    };
    if matches!(outcome, Outcome::Done(_)) {
        // SAFETY: as above; the kernel writes the same fields.
        unsafe {
            if !(*message).msg_name.is_null() {
                (*message).msg_namelen = 0;
            }
            (*message).msg_controllen = 0;
            (*message).msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
        }
    }
    outcome
}

/// A send with MSG_FASTOPEN is also a connect.
fn fast_open(fd: c_int, flags: c_int, sent: isize) {
    if flags & libc::MSG_FASTOPEN != 0 && !bypass() && (sent >= 0 || errno() == libc::EINPROGRESS) {
        keeping_errno(|| ops::sock::connected(fd));
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    flags: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> isize {
    if from.is_null() {
        // SAFETY: the program's own arguments: without an address it is the same.
        return unsafe { io::received(fd, buf, n, flags) };
    }
    // SAFETY: the program's own arguments.
    let outcome = match unsafe { receive(fd, buf, n, flags) } {
        // The kernel looks at the length only once it has the bytes.
        Outcome::Done(_) if !from.is_null() && len.is_null() => Outcome::Failed(libc::EFAULT),
        Outcome::Done(n) if !from.is_null() => {
            // SAFETY: not null, so the program's length of its address.
            unsafe { *len = 0 };
            Outcome::Done(n)
        }
        other => other,
    };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::recvfrom(fd, buf, n, flags, from, len) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    room: usize,
    flags: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> isize {
    if n <= room {
        // SAFETY: the program's own arguments.
        unsafe { recvfrom(fd, buf, n, flags, from, len) }
    } else {
        // SAFETY: the program's own arguments; the C library's function ends the program.
        unsafe { next::__recvfrom_chk(fd, buf, n, room, flags, from, len) }
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: the program's own arguments.
    unsafe {
        direct::call(
            &DIRECT.recvmsg,
            flags & libc::MSG_PEEK == 0,
            fd,
            [message.cast(), int(flags), NONE, NONE],
        )
    }
}

/// # Safety
/// As for `recvmsg(2)`.
#[inline(never)]
pub(super) unsafe extern "C" fn recvmsg_here(
    fd: c_int,
    message: Word,
    flags: Word,
    _: Word,
    _: Word,
) -> isize {
    cancel::point();
    let (message, flags) = (message.cast::<msghdr>(), flags.addr() as c_int);
    // SAFETY: the program's own arguments.
    let outcome = unsafe { receive_one(fd, message, flags) };
    outcome.or(|| {
        // SAFETY: the program's own arguments.
        let received = unsafe { next::recvmsg(fd, message, flags) };
        if received >= 0 && !bypass() {
            // SAFETY: the kernel took the message, so it is one.
            unsafe { descriptors_came(message) };
        }
        received
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendto(
    fd: c_int,
    buf: *const c_void,
    n: usize,
    flags: c_int,
    to: *const sockaddr,
    len: socklen_t,
) -> isize {
    if flags & libc::MSG_FASTOPEN == 0 && to.is_null() {
        // SAFETY: the program's own arguments: without an address it is the same.
        return unsafe { io::sent(fd, buf, n, flags) };
    }
    // TCP ignores an address, except to open a connection with the first bytes.
    let outcome = if flags & libc::MSG_FASTOPEN != 0 {
        Outcome::Libc
    } else {
        // SAFETY: the program's own arguments.
        unsafe { transmit(fd, buf, n, flags) }
    };
    outcome.or(|| {
        // SAFETY: the program's own arguments.
        let sent = unsafe { next::sendto(fd, buf, n, flags, to, len) };
        fast_open(fd, flags, sent);
        sent
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    let may_go = flags & (libc::MSG_OOB | libc::MSG_FASTOPEN) == 0
        && !bypass()
        && !io::is_nowhere(message)
        // SAFETY: not null, so a message of the program's.
        && unsafe { (*message).msg_controllen } == 0;
    // SAFETY: the program's own arguments.
    unsafe {
        direct::call(
            &DIRECT.sendmsg,
            may_go,
            fd,
            [message.cast_mut().cast(), int(flags), NONE, NONE],
        )
    }
}

/// # Safety
/// As for `sendmsg(2)`.
#[inline(never)]
pub(super) unsafe extern "C" fn sendmsg_here(
    fd: c_int,
    message: Word,
    flags: Word,
    _: Word,
    _: Word,
) -> isize {
    cancel::point();
    let (message, flags) = (message.cast_const().cast::<msghdr>(), flags.addr() as c_int);
    // SAFETY: the program's own arguments.
    let (outcome, _) = unsafe { send_one(fd, message, flags) };
    outcome.or(|| {
        // SAFETY: the program's own arguments.
        let sent = unsafe { next::sendmsg(fd, message, flags) };
        fast_open(fd, flags, sent);
        sent
    })
}
