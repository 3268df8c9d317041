//! The hooks through which connections without a ring spend their lives: see [`uncounted::call`].
//!
//! Such a hook is a pair of functions. The one that the program calls says which entry of [`DIRECT`] it is, and the other, named there, takes its arguments as words and does what hooks do.

use super::{io, message, sock};
use crate::next::address;
use crate::uncounted::{self, Bytes, Direct, Word};
use core::ptr::{null_mut, without_provenance_mut};
use libc::c_int;

/// One entry for each function, those first that a web server calls for each request.
#[repr(C, align(64))]
pub(super) struct Directs {
    pub(super) recv: Direct,
    pub(super) writev: Direct,
    pub(super) sendfile: Direct,
    pub(super) setsockopt: Direct,
    pub(super) send: Direct,
    pub(super) read: Direct,
    pub(super) write: Direct,
    pub(super) readv: Direct,
    pub(super) recvmsg: Direct,
    pub(super) sendmsg: Direct,
}

pub(super) static DIRECT: Directs = Directs {
    recv: Direct::new(io::recv_here, Bytes::In),
    writev: Direct::new(io::writev_here, Bytes::Out),
    sendfile: Direct::new(io::sendfile_here, Bytes::Out),
    setsockopt: Direct::new(sock::setsockopt_here, Bytes::None),
    send: Direct::new(io::send_here, Bytes::Out),
    read: Direct::new(io::read_here, Bytes::In),
    write: Direct::new(io::write_here, Bytes::Out),
    readv: Direct::new(io::readv_here, Bytes::In),
    recvmsg: Direct::new(message::recvmsg_here, Bytes::In),
    sendmsg: Direct::new(message::sendmsg_here, Bytes::Out),
};

/// Finds the C library's functions. Until then all calls are made here.
pub(super) fn resolve() {
    DIRECT.recv.found(address::recv());
    DIRECT.writev.found(address::writev());
    DIRECT.sendfile.found(address::sendfile());
    DIRECT.setsockopt.found(address::setsockopt());
    DIRECT.send.found(address::send());
    DIRECT.read.found(address::read());
    DIRECT.write.found(address::write());
    DIRECT.readv.found(address::readv());
    DIRECT.recvmsg.found(address::recvmsg());
    DIRECT.sendmsg.found(address::sendmsg());
}

/// A number as an argument.
#[inline]
pub(super) fn word(number: usize) -> Word {
    without_provenance_mut(number)
}

/// An `int` as an argument: only the low half counts.
#[inline]
pub(super) fn int(number: c_int) -> Word {
    word(number as usize)
}

/// What stands for an argument that the function does not have.
pub(super) const NONE: Word = null_mut();

/// A call of three arguments.
///
/// # Safety
/// As for [`uncounted::call`].
#[inline]
pub(super) unsafe fn three(direct: &Direct, fd: c_int, second: Word, third: Word) -> isize {
    // SAFETY: the caller's promise.
    unsafe { uncounted::call(fd, second, third, NONE, NONE, direct) }
}

/// A call of four.
///
/// # Safety
/// As for [`uncounted::call`].
#[inline]
pub(super) unsafe fn four(direct: &Direct, fd: c_int, second: Word, third: Word, fourth: Word) -> isize {
    // SAFETY: the caller's promise.
    unsafe { uncounted::call(fd, second, third, fourth, NONE, direct) }
}
