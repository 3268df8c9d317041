//! Limits on resources, as a program sets and reads its own, and locking its memory, which is such
//! a resource.
use super::{bypass_process, keeping_errno};
use crate::{next, ops};
use core::ptr;
use libc::{c_int, pid_t, rlimit64};

/// Is a limit on this resource of this process's own not simply the kernel's to set and to tell?
fn concerns(resource: c_int) -> bool {
    !bypass_process() && ops::limits::concerns(resource)
}

/// A limit of this process's own is about to be set.
///
/// # Safety
/// `limit` is null or points to a limit.
unsafe fn expecting(resource: c_int, limit: *const rlimit64) {
    if !limit.is_null() && !bypass_process() {
        // SAFETY: not null, so a limit.
        let limit = unsafe { limit.read_unaligned() };
        keeping_errno(|| ops::limits::before(resource, limit));
    }
}

/// Sets, by `set`, a limit of this process's own.
///
/// # Safety
/// `limit` is null or points to a limit.
unsafe fn setting(
    resource: c_int,
    limit: *const rlimit64,
    set: impl FnOnce(*const rlimit64) -> c_int,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { expecting(resource, limit) };
    let mut present = rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `present` is writable; a limit by the caller's promise.
    let raised = unsafe {
        if limit.is_null()
            || !concerns(resource)
            || next::prlimit64(0, resource, ptr::null(), &raw mut present) < 0
        {
            None
        } else {
            ops::limits::raise(resource, limit.read_unaligned(), present.rlim_max)
        }
    };
    let Some(raised) = raised else { return set(limit) };
    let result = set(&raw const raised);
    if result >= 0 {
        ops::limits::keep(resource, raised.rlim_cur != libc::RLIM64_INFINITY);
    }
    result
}

/// A limit of this process's own was read into `limit`.
///
/// # Safety
/// `limit` is null or writable.
unsafe fn read(resource: c_int, limit: *mut rlimit64, result: c_int) -> c_int {
    if result >= 0 && !limit.is_null() && concerns(resource) {
        keeping_errno(|| {
            // SAFETY: not null, and the kernel just filled it.
            unsafe {
                let mut told = limit.read_unaligned();
                ops::limits::told(resource, &mut told);
                limit.write_unaligned(told);
            }
        });
    }
    result
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setrlimit(resource: c_int, limit: *const rlimit64) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { setting(resource, limit, |limit| next::setrlimit(resource, limit)) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getrlimit(resource: c_int, limit: *mut rlimit64) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { read(resource, limit, next::getrlimit(resource, limit)) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn prlimit64(
    process: pid_t,
    resource: c_int,
    new: *const rlimit64,
    old: *mut rlimit64,
) -> c_int {
    // SAFETY: the program's own arguments. What was is told as it was before a new limit was noted.
    unsafe {
        if process != 0 && process != libc::getpid() {
            return next::prlimit64(process, resource, new, old);
        }
        if !concerns(resource) {
            expecting(resource, new);
            return next::prlimit64(process, resource, new, old);
        }
        let mut before = rlimit64 { rlim_cur: 0, rlim_max: 0 };
        let read = read(
            resource,
            &raw mut before,
            next::prlimit64(0, resource, ptr::null(), &raw mut before),
        );
        let result = if read < 0 || new.is_null() { read } else { setrlimit(resource, new) };
        if result >= 0 && !old.is_null() {
            old.write_unaligned(before);
        }
        result
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    let outcome = if bypass_process() { super::Outcome::Libc } else { ops::locks::lock_all(flags) };
    // SAFETY: the program's own argument.
    outcome.or(|| unsafe { next::mlockall(flags) })
}
