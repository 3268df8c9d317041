//! Calls that change who the process is: its user, its groups, its rights, its root directory. What
//! it has of ledger and segment may not be its own afterwards: [`crate::identity`].
//!
//! glibc's functions change all threads but where the kernel knows only the calling one's rights
//! (`capset`, `prctl`), and each is called by the program, not by another of them.
use super::{bypass_process, keeping_errno};
use crate::alone::alone;
use crate::identity::{self, Reach};
use crate::{next, runtime, service};
use ginnel_region::sys;
use libc::{c_char, c_int, c_ulong, c_void, gid_t, size_t, uid_t};
use syscalls::Sysno;

/// Runs a call that may change who the process is. A child that uses this memory (vfork) changes
/// itself alone, and soon has another program.
pub(super) fn changing<T>(reach: Reach, call: impl FnOnce() -> T) -> T {
    if bypass_process() { call() } else { identity::around(reach, call) }
}

/// The same for a call that takes no time: no signal handler comes between it and what follows from
/// it, to leave both by `siglongjmp`.
fn changing_at_once<T>(call: impl FnOnce() -> T) -> T {
    let _blocked = runtime::attachment().map(|_| sys::block_signals());
    changing(Reach::Process, call)
}

/// The same for one that changes the calling thread alone: the shim's own thread has no more than
/// that.
pub(super) fn changing_thread<T>(reach: Reach, call: impl FnOnce() -> T) -> T {
    of_thread(|| changing(reach, call))
}

/// Runs a call that changes the calling thread alone, or needs a process of one thread.
pub(super) fn of_thread<T>(call: impl FnOnce() -> T) -> T {
    if bypass_process() || runtime::attachment().is_none() {
        return call();
    }
    let _blocked = sys::block_signals();
    alone(call)
}

/// Before the calling thread gets a table of descriptors of its own. Where the program has other
/// threads, a number means two files from then on: all goes back to TCP, and stays there. True: it
/// has none, and nothing changes.
pub(super) fn parting_tables() -> bool {
    let mut alone = true;
    keeping_errno(|| {
        alone = runtime::attachment().is_none() || of_thread(identity::is_single_threaded);
        if !alone {
            crate::ops::process::confined();
        }
    });
    alone
}

/// Does `prctl(option, second, …)` change rights that the calling thread has by itself?
pub(super) fn changes_rights(option: c_int, second: c_ulong) -> bool {
    let ask = |question: c_int, of: c_ulong| {
        // SAFETY: these questions take numbers only.
        unsafe { sys::raw(Sysno::prctl, [question as usize, of as usize, 0, 0, 0, 0]) }
    };
    match option {
        libc::PR_CAPBSET_DROP => ask(libc::PR_CAPBSET_READ, second) == Ok(1),
        libc::PR_SET_NO_NEW_PRIVS => {
            ask(libc::PR_GET_NO_NEW_PRIVS, 0) == Ok(0) && !service::gains_no_privileges()
        }
        libc::PR_SET_SECUREBITS => ask(libc::PR_GET_SECUREBITS, 0) != Ok(second as usize),
        libc::PR_CAP_AMBIENT => second != libc::PR_CAP_AMBIENT_IS_SET as c_ulong,
        _ => false,
    }
}

/// Functions that are calls of these kinds.
macro_rules! changing {
    ($($how:expr => fn $name:ident($($arg:ident : $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the program's own arguments.
            $how(|| unsafe { next::$name($($arg),*) })
        }
    )*};
}

/// They may look something up, for as long as that takes.
fn all<T>(call: impl FnOnce() -> T) -> T {
    changing(Reach::Process, call)
}

fn thread<T>(call: impl FnOnce() -> T) -> T {
    changing_thread(Reach::Process, call)
}

changing! {
    changing_at_once => fn setuid(user: uid_t);
    changing_at_once => fn seteuid(user: uid_t);
    changing_at_once => fn setreuid(real: uid_t, effective: uid_t);
    changing_at_once => fn setresuid(real: uid_t, effective: uid_t, saved: uid_t);
    changing_at_once => fn setgid(group: gid_t);
    changing_at_once => fn setegid(group: gid_t);
    changing_at_once => fn setregid(real: gid_t, effective: gid_t);
    changing_at_once => fn setresgid(real: gid_t, effective: gid_t, saved: gid_t);
    changing_at_once => fn setgroups(count: size_t, groups: *const gid_t);
    all => fn initgroups(user: *const c_char, group: gid_t);
    all => fn chroot(path: *const c_char);
    thread => fn capset(header: *mut c_void, data: *const c_void);
}
