//! Calls that need a process of one thread, or that change the calling thread alone: the service
//! thread ends before, and begins anew behind them.
//!
//! Some namespaces can be entered only by a process of one thread. And some rights the kernel keeps
//! for each thread by itself: capabilities and their bounds, `no_new_privs`, and all ids where the
//! system call is made without the C library. A program of one thread that gives such a right up
//! would keep it in a thread that it does not know of. A thread begins with the rights of the one
//! that starts it: so the service thread has what the caller has.

use crate::ops::process::hand_over_all;
use crate::{identity, next, runtime, service};
use core::sync::atomic::{AtomicU32, Ordering};
use ginnel_tcp::ledger::Reason;

/// After so many calls the process leaves its segment: it gives rights up and takes them again, at
/// each request perhaps, and each time costs it more than a ring gains.
const MOST: u32 = 256;

/// How many calls there were for which the thread ended.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// Runs `call` without the shim's own thread. `errno` is as the call left it. The caller has
/// blocked signals: a handler that left this by `siglongjmp` would leave the thread ended.
pub fn alone<T>(call: impl FnOnce() -> T) -> T {
    if runtime::attachment().is_none() {
        return call();
    }
    let ended = service::pause();
    let result = call();
    let saved = next::errno();
    if ended && CALLS.fetch_add(1, Ordering::Relaxed) >= MOST {
        identity::leave_after_all();
    }
    if !service::resume(runtime::attachment()) {
        // After unshare(CLONE_NEWPID) the kernel starts no thread for the process: nobody would see
        // to its connections while it does something else.
        hand_over_all(Reason::NoThread);
    }
    next::set_errno(saved);
    result
}
