//! Is this process the one that the shim's private memory belongs to? Asked, without a system call,
//! by every hook that changes what the memory says of descriptors.
//!
//! A child of `fork` has a copy, in which one page reads zero (`MADV_WIPEONFORK`, Linux 4.14):
//! however it was made, it finds out. A child of `clone(CLONE_VM)` has the memory itself, but a
//! table of descriptors of its own: once one was made, everybody asks for its number. (A vfork
//! child is told apart by its thread: the hook of `vfork`.)

use crate::fds::{LENT, strangers};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use ginnel_region::{PAGE, sys};

/// The process that the memory belongs to; 0: none yet.
static PID: AtomicU32 = AtomicU32::new(0);
/// Points to a word that is 1 in that process and 0 in a copy of its memory. Null where the kernel
/// cannot wipe.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// The memory is this process's: at the start, and in a fork child that has entered the ledger.
pub fn begin() {
    PID.store(sys::pid(), Ordering::Relaxed);
    if MARK.load(Ordering::Relaxed).is_null()
        && let Ok(page) = sys::map_private(PAGE as usize)
        && sys::wipe_on_fork(page, PAGE as usize).is_ok()
    {
        MARK.store(page.cast(), Ordering::Relaxed);
    }
    // SAFETY: a page of this process's own, aligned and never unmapped.
    if let Some(mark) = unsafe { MARK.load(Ordering::Relaxed).as_ref() } {
        mark.store(1, Ordering::Relaxed);
    }
    strangers().fetch_and(!LENT, Ordering::Relaxed);
}

/// A child that shares this memory is about to be made.
pub fn lend() {
    crate::uncounted::stop();
    strangers().fetch_or(LENT, Ordering::Relaxed);
}

/// May another process use this very memory?
fn may_be_lent() -> bool {
    strangers().load(Ordering::Relaxed) & LENT != 0
}

/// Is this process a child that shares the memory of the one it belongs to? (Not one of vfork: see
/// there.)
#[must_use]
pub fn is_lent() -> bool {
    may_be_lent() && !is_ours_by_number()
}

/// Is this process the one that the memory belongs to?
#[inline]
#[must_use]
pub fn is_ours() -> bool {
    // SAFETY: as in `begin`.
    let marked = unsafe { MARK.load(Ordering::Relaxed).as_ref() }
        .is_some_and(|mark| mark.load(Ordering::Relaxed) == 1);
    marked && !may_be_lent() || is_ours_by_number()
}

/// [`is_ours`] by the process's number: also right in a vfork child.
#[cold]
pub fn is_ours_by_number() -> bool {
    let known = PID.load(Ordering::Relaxed);
    known == 0 || known == sys::pid()
}
