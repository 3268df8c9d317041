//! The thread that the process began with, where it ends before the process (`pthread_exit` in `main`, or cancelled).
//!
//! glibc ends a process with its last thread, as by `exit(0)`. The service thread would be that, and the process would never end: it blocks all signals, too. So once the first thread is
//! gone it looks whether there is any other than itself, and ends the process as glibc would.

use crate::service;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use ginnel_region::sys;
use libc::c_void;

/// How often it is looked whether anybody is left, ms.
pub const TICK: u64 = 50;

/// Of the value that only the first thread has, and whose destructor says that it ends; [`NONE`]: not made.
static KEY: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = u32::MAX;
static GONE: AtomicBool = AtomicBool::new(false);

/// By the thread that the process began with: at the start, and in a fork child.
pub fn begin() {
    extern "C" fn ended(_: *mut c_void) {
        GONE.store(true, Ordering::Release);
        service::look_around();
    }
    let mut key = KEY.load(Ordering::Relaxed);
    if key == NONE {
        let mut made = 0;
        // SAFETY: a place for the key's number, and a function that stays loaded.
        if unsafe { libc::pthread_key_create(&raw mut made, Some(ended)) } != 0 {
            return;
        }
        key = made;
        KEY.store(key, Ordering::Relaxed);
    }
    GONE.store(false, Ordering::Relaxed);
    // SAFETY: the key is ours; a destructor is called for what is not null, and looks at nothing there.
    let _ = unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) };
}

/// Has it ended?
pub fn is_gone() -> bool {
    GONE.load(Ordering::Acquire)
}

/// By the service thread, once the first is gone: ends the process where there is no other.
pub fn end_if_last() {
    let text = sys::read_file(c"/proc/self/stat");
    // The name may hold anything (proc(5)). What follows is the first thread's state, by which it is through with all that a thread does at its end; `num_threads`, in which it is counted until all have
    // ended, is the eighteenth word.
    let after_name = text.iter().rposition(|&byte| byte == b')').and_then(|at| text.get(at + 1..)).unwrap_or_default();
    let mut words = after_name.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    if words.next() == Some(b"Z") && words.nth(16) == Some(b"2") {
        // SAFETY: nobody is left who could be in the midst of something.
        unsafe { libc::exit(0) };
    }
}
