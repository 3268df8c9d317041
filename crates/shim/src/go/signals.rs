//! Signal handlers in programs whose threads are Go's own: Go's handler finds its thread by FS. So
//! the kernel is given [`super::stub::on_signal`], which sets that, and calls the handler that is
//! kept here.

use super::stub;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::c_long;
use std::sync::OnceLock;

/// The handler of each signal that has one of Go's. One that the program has given up since then is
/// left here: a child that shares this memory may have given it up for itself.
pub static HANDLERS: [AtomicUsize; 65] = [const { AtomicUsize::new(0) }; 65];

/// Where Go's code is. Handlers elsewhere are the C library's own, which Go hands back as it found
/// them.
static CODE: OnceLock<Range<usize>> = OnceLock::new();

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Before the program starts.
pub fn start(code: Range<usize>) {
    let _ = CODE.set(code);
}

/// `rt_sigaction(2)`.
///
/// # Safety
/// As for that.
pub unsafe fn set(signal: c_long, new: c_long, old: c_long, size: c_long) -> c_long {
    let wrapper = (stub::on_signal as *const ()).addr();
    let kept = usize::try_from(signal).ok().and_then(|signal| HANDLERS.get(signal));
    let before = kept.map_or(0, |kept| kept.load(Ordering::Relaxed));
    // SAFETY: null, or the program's own action.
    let mut action =
        unsafe { core::ptr::with_exposed_provenance::<Action>(new as usize).as_ref() }.copied();
    if let (Some(action), Some(kept)) = (&mut action, kept)
        && CODE.get().is_some_and(|code| code.contains(&action.handler))
    {
        kept.store(action.handler, Ordering::Release);
        action.handler = wrapper;
    }
    let new = action
        .as_ref()
        .map_or(0, |action| core::ptr::from_ref(action).expose_provenance() as c_long);
    // SAFETY: the program's own arguments, but for the handler, which calls the program's.
    let answer = unsafe { kernel(signal, new, old, size) };
    if let Some(old) =
        // SAFETY: null, or where the kernel has just written the action before.
        unsafe { core::ptr::with_exposed_provenance_mut::<Action>(old as usize).as_mut() }
        && answer == 0
        && old.handler == wrapper
    {
        old.handler = before;
    }
    answer
}

/// # Safety
/// As for `rt_sigaction(2)`.
unsafe fn kernel(signal: c_long, new: c_long, old: c_long, size: c_long) -> c_long {
    let arguments = [signal as usize, new as usize, old as usize, size as usize, 0, 0];
    // SAFETY: the caller's promise.
    match unsafe { ginnel_region::sys::raw(syscalls::Sysno::rt_sigaction, arguments) } {
        Ok(answer) => answer as c_long,
        Err(error) => -c_long::from(error),
    }
}
