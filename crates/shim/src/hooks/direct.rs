//! The hooks through which connections without a ring spend their lives: see [`uncounted::call`].
//!
//! Such a hook is a pair of functions. The one that the program calls says which entry of
//! [`DIRECT`] it is, and the other, named there, takes its arguments as words and does what hooks
//! do.

use super::{io, message, sock};
use crate::next::address;
use crate::quiet::Bytes;
use crate::uncounted::{self, Direct, Word};
use crate::{fds, symbols};
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::Ordering;
use libc::c_int;
use syscalls::Sysno;

macro_rules! directs {
    ($($name:ident = $module:ident::$here:ident, $call:ident, $bytes:ident;)*) => {
        /// One entry for each function.
        #[repr(C, align(64))]
        pub(super) struct Directs {
            $(pub(super) $name: Direct,)*
        }

        pub(super) static DIRECT: Directs = Directs { $($name: Direct::new($module::$here, Sysno::$call, Bytes::$bytes),)* };

        /// Finds the C library's functions. Until then all calls are made here.
        pub(crate) fn resolve() {
            let glibc = symbols::glibc();
            // `sys/single_threaded.h`, glibc 2.32.
            let alone = symbols::variable(c"__libc_single_threaded").cast();
            $(DIRECT.$name.found(address::$name(), &glibc, alone);)*
            // Another library's constructor may have cancelled a thread.
            if fds::cancels().load(Ordering::SeqCst) {
                heed_cancellation();
            }
        }

        /// Before the program cancels a thread (itself, perhaps).
        pub(super) fn heed_cancellation() {
            $(DIRECT.$name.heed_cancellation();)*
        }
    };
}

// Those first that a web server calls for each request.
directs! {
    recv = io::recv_here, recvfrom, In;
    writev = io::writev_here, writev, Out;
    sendfile = io::sendfile_here, sendfile, Out;
    setsockopt = sock::setsockopt_here, setsockopt, None;
    send = io::send_here, sendto, Out;
    read = io::read_here, read, In;
    write = io::write_here, write, Out;
    readv = io::readv_here, readv, In;
    recvmsg = message::recvmsg_here, recvmsg, In;
    sendmsg = message::sendmsg_here, sendmsg, Out;
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

/// Makes a call, uncounted where it may go so.
///
/// # Safety
/// As for [`uncounted::call`].
#[inline]
pub(super) unsafe fn call(
    direct: &Direct,
    may_go: bool,
    fd: c_int,
    [a, b, c, d]: [Word; 4],
) -> isize {
    if may_go {
        // SAFETY: the caller's promise.
        unsafe { uncounted::call(fd, a, b, c, d, direct) }
    } else {
        // SAFETY: as above.
        unsafe { (direct.otherwise)(fd, a, b, c, d) }
    }
}
