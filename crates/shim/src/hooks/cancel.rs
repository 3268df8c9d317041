//! Cancellation of threads (pthreads(7)). A call that is a cancellation point is one also where it
//! need not wait, and the C library's own functions, which see to it, are not called for what a
//! ring carries. And `sendfile`, which is none in glibc, is none here, though what it comes to is
//! made of calls that are.

use super::direct;
use crate::{fds, next};
use core::sync::atomic::Ordering;
use libc::{c_int, pthread_t};

/// What a hook of a cancellation point begins with. Costs nothing to speak of in programs that
/// cancel no threads.
#[inline]
pub(super) fn point() {
    // Relaxed: who is cancelled later than this may go on to the next point.
    if fds::cancels().load(Ordering::Relaxed) {
        test();
    }
}

#[cold]
fn test() {
    // SAFETY: as the C library's own function of the hook's name would do at its beginning. No lock
    // of ours is held.
    unsafe { next::pthread_testcancel() }
}

/// Runs a call that is no cancellation point.
pub(super) fn none<T>(call: impl FnOnce() -> T) -> T {
    /// `PTHREAD_CANCEL_DISABLE` of glibc.
    const DISABLE: c_int = 1;
    let mut before = 0;
    // SAFETY: the state before goes into a variable, and is set again.
    unsafe { next::pthread_setcancelstate(DISABLE, &raw mut before) };
    let result = call();
    // SAFETY: as above.
    unsafe { next::pthread_setcancelstate(before, core::ptr::null_mut()) };
    result
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    // Before the thread is told: the point that it comes to is to know.
    fds::cancels().store(true, Ordering::Release);
    direct::heed_cancellation();
    // SAFETY: the program's own argument.
    unsafe { next::pthread_cancel(thread) }
}
