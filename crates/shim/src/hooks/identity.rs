//! Calls that change who the process is: its user, its groups, its rights, its root directory. What
//! it has of ledger and segment may not be its own afterwards: [`crate::identity`].
//!
//! glibc's functions change all threads, and each is called by the program, not by another of them.
use super::bypass_process;
use crate::{identity, next};
use libc::{c_char, c_int, c_void, gid_t, size_t, uid_t};

/// Runs a call that may change who the process is. A child that uses this memory (vfork) changes
/// itself alone, and soon has another program.
pub(super) fn changing<T>(call: impl FnOnce() -> T) -> T {
    if bypass_process() { call() } else { identity::around(call) }
}

/// Functions that are [`changing`].
macro_rules! changing {
    ($(fn $name:ident($($arg:ident : $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the program's own arguments.
            changing(|| unsafe { next::$name($($arg),*) })
        }
    )*};
}

changing! {
    fn setuid(user: uid_t);
    fn seteuid(user: uid_t);
    fn setreuid(real: uid_t, effective: uid_t);
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t);
    fn setgid(group: gid_t);
    fn setegid(group: gid_t);
    fn setregid(real: gid_t, effective: gid_t);
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t);
    fn setgroups(count: size_t, groups: *const gid_t);
    fn initgroups(user: *const c_char, group: gid_t);
    fn capset(header: *mut c_void, data: *const c_void);
    fn chroot(path: *const c_char);
}
