//! Signals while the library is loaded. Constructors of libraries that it stands on (libinfinipath,
//! libpsm2) take SIGBUS, SIGTERM and others for a backtrace at the end. The switch has use for
//! them:
//! a guest that cuts its memory short must not end it.

use std::ffi::c_int;

/// What happens at each signal (signal(7): 1 to 31; those for real time have no use here).
pub(super) struct Handlers(Vec<(c_int, libc::sigaction)>);

impl Handlers {
    /// As it is now. The switch's own handlers are there already: nobody changes any meanwhile.
    pub(super) fn now() -> Self {
        crate::ring::expect_cuts();
        let read = |signal| {
            // SAFETY: all zeroes is a valid action; it is written to, and nothing changes.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            let done = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
            (done == 0).then_some((signal, action))
        };
        Self((1..32).filter_map(read).collect())
    }

    /// Has it be so again.
    pub(super) fn restore(&self) {
        for (signal, action) in &self.0 {
            // What cannot be changed (SIGKILL, SIGSTOP) is as it was.
            // SAFETY: an action that was in force before.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
    }
}
