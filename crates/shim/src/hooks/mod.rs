//! The C entry points: the functions that the loader gives to the program instead of the C
//! library's.
//!
//! Each is a few lines: it puts the call into the form that [`ops`](crate::ops) takes, and does
//! what the [`Outcome`] says. What a call means is decided there; here live only the shapes of the
//! C calls. `docs/shim-coverage.md` lists every function of the C library that takes or makes a
//! descriptor, and what is done about it; `tests/coverage.rs` compares that page with both
//! libraries.
//!
//! ```ignore
//! #[unsafe(no_mangle)]
//! pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
//!     let outcome = if bypass() { Libc } else { ops::sock::shutdown(fd, how) };
//!     // SAFETY: the program's own arguments.
//!     outcome.or(|| unsafe { next::shutdown(fd, how) })
//! }
//! ```
//!
//! Rules: no hook allocates, logs or panics; each keeps `errno` as the C library's own function
//! would leave it; each takes pointers as that function does, and passes a call that it would
//! refuse (a null buffer, a bad count) on to it for the right refusal.
//!
//! Where a SAFETY line says "the program's own arguments": the program calls us believing that we
//! are the function of that name, so its arguments satisfy that function's contract, and they go
//! there as they came.
#![allow(
    clippy::missing_safety_doc,
    reason = "the contract of each is the manual page of the C function it stands for"
)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a panic would end the program"
)]

#[cfg(not(all(
    target_os = "linux",
    any(target_env = "gnu", target_env = "musl"),
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "the shim knows the calling conventions of x86-64 and aarch64 Linux, and glibc and musl, only"
);

mod alias;
mod cancel;
mod clock;
mod direct;
mod environment;
mod exec;
mod fd;
mod identity;
mod io;
mod limits;
mod make;
mod message;
mod path;
mod process;
mod raw;
mod ready;
mod sock;
mod stdio;
mod uring;
mod variadic;
mod vfork;

pub(crate) use direct::resolve;
#[cfg(target_arch = "x86_64")]
pub(crate) use exec::execve as execute;
pub(crate) use process::watch_forks;
#[cfg(target_arch = "x86_64")]
pub(crate) use raw::syscall as by_number;
#[cfg(target_arch = "x86_64")]
pub(crate) use vfork::{after as after_vfork, before as before_vfork};

use crate::fds::{self, LENT, NOT_STARTED, strangers};
use crate::next::{errno, set_errno};
use crate::ops::Outcome;
use crate::own;
use core::sync::atomic::Ordering;

/// May there be a child of `vfork` that uses this memory?
fn aside() -> bool {
    strangers().load(Ordering::Relaxed) & !(NOT_STARTED | LENT) != 0
}

/// Is this call none of ours: made before the library was set up, or by a vfork child, whose
/// descriptors are not those that this memory speaks of?
#[inline]
fn bypass() -> bool {
    // Relaxed: the thread that must see a change made it itself (a vfork child runs on its parent's
    // thread); others take either path.
    let strangers = strangers().load(Ordering::Relaxed);
    strangers & !LENT != 0 && (strangers & NOT_STARTED != 0 || vfork::in_child())
}

/// [`bypass`] for calls that change the table of descriptors or the process: asks also for children
/// made by `clone(CLONE_VM)`.
fn bypass_process() -> bool {
    bypass() || !own::is_ours()
}

/// Is this process none of the library's business?
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_elsewhere() -> bool {
    bypass_process()
}

/// Is this call made by a child that uses this memory with a table of descriptors of its own?
#[cold]
fn in_lent_memory() -> bool {
    strangers().load(Ordering::Relaxed) & NOT_STARTED == 0
        && (aside() && vfork::in_child() || own::is_lent())
}

/// Runs `after`, which must not disturb the program's `errno`.
#[inline]
fn keeping_errno(after: impl FnOnce()) {
    let saved = errno();
    after();
    set_errno(saved);
}

/// A C type in which -1 says "see `errno`".
pub trait Status: Copy {
    /// That -1.
    const FAILED: Self;
}
impl Status for libc::c_int {
    const FAILED: Self = -1;
}
impl Status for isize {
    const FAILED: Self = -1;
}

impl<T: Status> Outcome<T> {
    /// Turns the outcome into what the C function returns, with `libc` to make the call where it is
    /// not ours.
    #[inline]
    fn or(self, libc: impl FnOnce() -> T) -> T {
        match self {
            Outcome::Done(value) => value,
            Outcome::Failed(error) => {
                set_errno(error);
                T::FAILED
            }
            Outcome::Libc => libc(),
        }
    }
}

/// For the library that is preloaded for System V objects: has a descriptor of its spared, as those
/// of this one are, where the program closes whatever it finds; or no longer.
#[unsafe(no_mangle)]
extern "C" fn ginnel_shim_spare(fd: libc::c_int, spared: libc::c_int) {
    if !bypass_process() {
        if spared == 0 { fds::set(fd, fds::Entry::Unknown) } else { fds::spare(fd) }
    }
}
