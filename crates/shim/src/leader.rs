//! The thread that the process began with, where it ends before the process (`pthread_exit` in
//! `main`, or cancelled).
//!
//! glibc ends a process with its last thread, as by `exit(0)`. The service thread would be that,
//! and the process would never end: it blocks all signals, too. So once the first thread is gone it
//! looks whether there is any other than itself, and has another end the process as glibc would:
//! the program's exit handlers get a stack, and signals, as they expect them, and the service
//! thread goes on serving until they are through.

use crate::bell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use ginnel_region::sys;
use libc::c_void;
use syscalls::Sysno;

/// How often it is looked whether anybody is left, ms.
pub const TICK: u64 = 50;

/// Of the value that only the first thread has, and whose destructor says that it ends; [`NONE`]:
/// not made.
static KEY: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = u32::MAX;
static GONE: AtomicBool = AtomicBool::new(false);
/// The process is being ended.
static ENDING: AtomicBool = AtomicBool::new(false);

/// By the thread that the process began with: at the start, and in a fork child.
pub fn begin() {
    extern "C" fn ended(_: *mut c_void) {
        GONE.store(true, Ordering::Release);
        bell::look_around();
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
    // SAFETY: the key is ours; a destructor is called for what is not null, and looks at nothing
    // there.
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

/// No descriptor is opened for it: the program may count on the numbers that it gets.
fn is_last() -> bool {
    // Of a thread that is through with all that it does at its end the kernel knows no program any
    // more; /proc/self is the first one's.
    !has_program(c"/proc/self/exe") && has_program(c"/proc/thread-self/exe") && threads() == Some(2)
}

fn has_program(link: &CStr) -> bool {
    let mut name = [0u8; 1];
    let arguments = [
        libc::AT_FDCWD as usize,
        link.as_ptr() as usize,
        name.as_mut_ptr() as usize,
        name.len(),
        0,
        0,
    ];
    // SAFETY: a terminated path, and a buffer that is writable for its length.
    unsafe { sys::raw(Sysno::readlinkat, arguments) }.is_ok()
}

/// How many threads the process has: as many links has its folder of them, beside a folder's two.
/// The first is counted until all have ended. (`statx`: Linux 4.11.)
pub fn threads() -> Option<u32> {
    // SAFETY: plain data.
    let mut folder: libc::statx = unsafe { core::mem::zeroed() };
    let (path, mask) = (c"/proc/self/task".as_ptr() as usize, libc::STATX_NLINK as usize);
    // SAFETY: a terminated path, and a place for the answer.
    let done = unsafe {
        sys::raw(
            Sysno::statx,
            [libc::AT_FDCWD as usize, path, 0, mask, &raw mut folder as usize, 0],
        )
    };
    done.ok().and_then(|_| folder.stx_nlink.checked_sub(2))
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
        // A number, or a pointer, by the C library.
        let mut thread: libc::pthread_t = core::mem::zeroed();
        // The thread begins with this one's mask; a signal that has waited meanwhile is that
        // thread's, or ends the process here.
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, &raw mut before);
        let made =
            libc::pthread_create(&raw mut thread, core::ptr::null(), body, core::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        made == 0
    }
}
