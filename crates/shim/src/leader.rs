//! The thread that the process began with, where it ends before the process (`pthread_exit` in `main`, or cancelled).
//!
//! glibc ends a process with its last thread, as by `exit(0)`. The service thread would be that, and the process would never end: it blocks all signals, too. So once the first thread is
//! gone it looks whether there is any other than itself, and has another end the process as glibc would: the program's exit handlers get a stack, and signals, as they expect them, and the
//! service thread goes on serving until they are through.

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
/// The process is being ended.
static ENDING: AtomicBool = AtomicBool::new(false);

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
    ENDING.store(false, Ordering::Relaxed);
    // SAFETY: the key is ours; a destructor is called for what is not null, and looks at nothing there.
    let _ = unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) };
}

/// Has it ended?
pub fn is_gone() -> bool {
    GONE.load(Ordering::Acquire)
}

/// By the service thread, now and then: ends the process where there is no other thread.
pub fn end_if_last() {
    if !ENDING.load(Ordering::Relaxed) && is_last() && begin_end() {
        ENDING.store(true, Ordering::Relaxed);
    }
}

fn is_last() -> bool {
    let mut text = [0u8; 1024];
    let Ok(file) = sys::openat(libc::AT_FDCWD, c"/proc/self/stat", libc::O_RDONLY, 0) else { return false };
    let read = sys::read(file, &mut text).unwrap_or(0);
    sys::close(file);
    let text = text.get(..read).unwrap_or_default();
    // The name may hold anything (proc(5)). What follows is the first thread's state, by which it is through with all that a thread does at its end; `num_threads`, in which it is counted until all have
    // ended, is the eighteenth word.
    let after_name = text.iter().rposition(|&byte| byte == b')').and_then(|at| text.get(at + 1..)).unwrap_or_default();
    let mut words = after_name.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    words.next() == Some(b"Z") && words.nth(16) == Some(b"2")
}

/// Starts the thread that is the program's last. False where none can be had now.
fn begin_end() -> bool {
    extern "C" fn body(_: *mut c_void) -> *mut c_void {
        // SAFETY: none of the program's threads is left, which could be in the midst of something.
        unsafe { libc::exit(0) }
    }
    // SAFETY: the masks are ours; the function takes nothing and does not return.
    unsafe {
        let mut none: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        let mut thread = 0;
        // The thread begins with this one's mask; a signal that has waited meanwhile is that thread's, or ends the process here.
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, &raw mut before);
        let made = libc::pthread_create(&raw mut thread, core::ptr::null(), body, core::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        made == 0
    }
}
