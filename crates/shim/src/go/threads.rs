//! Threads in programs whose threads are Go's own: where Go would make one by `clone`, the C
//! library makes it, so that the library's code finds there what it needs (its thread-local
//! variables, `errno`), and gives it Go's registers.

use super::context::Context;
use super::{registers, stub};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{c_int, c_long};

/// A thread: what `clone` was called with, and its context.
#[repr(C)]
#[derive(Debug)]
pub struct Thread {
    /// First: GS leads here.
    pub context: Context,
    /// Where Go's stack ends.
    pub stack: usize,
    /// Go's thread, …
    pub m: usize,
    /// … its first goroutine, …
    pub g: usize,
    /// … and what it runs.
    pub function: usize,
}

/// What `clone` finds on the stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Arguments {
    flags: c_int,
    stack: usize,
    m: usize,
    g: usize,
    function: usize,
}

/// From an `m` to its thread-local words, …
static TLS: AtomicUsize = AtomicUsize::new(0);
/// … and where `clone` has its child go on.
pub static CHILD: AtomicUsize = AtomicUsize::new(0);

/// The context of all threads that the kernel makes and the C library does not know: they are
/// always inside, so that they make their calls themselves.
pub static BARE: Bare =
    Bare(Context { me: (&raw const BARE).cast_mut().cast(), inside: 1, ..Context::NONE });

/// A context that nobody changes.
#[repr(transparent)]
#[derive(Debug)]
pub struct Bare(Context);

// SAFETY: a thread that is inside changes nothing of its context.
unsafe impl Sync for Bare {}

/// So much stack has a thread here, beside Go's.
const STACK: usize = 256 << 10;

/// Before the program starts. A child of `clone` goes on at `child`.
pub fn prepare(child: usize, tls: usize) {
    TLS.store(tls, Ordering::Relaxed);
    CHILD.store(child, Ordering::Relaxed);
}

/// The first `pthread_create` of a process sets a handler for the signal by which the C library has
/// all threads change their user. Go uses that signal, too, for the same, and sets its handler
/// afterwards.
pub fn settle_signals() {
    extern "C" fn body(_: *mut c_void) -> *mut c_void {
        ptr::null_mut()
    }
    // SAFETY: the thread does nothing, and is waited for.
    unsafe {
        let mut thread: libc::pthread_t = core::mem::zeroed();
        if libc::pthread_create(&raw mut thread, ptr::null(), body, ptr::null_mut()) == 0 {
            libc::pthread_join(thread, ptr::null_mut());
        }
    }
}

/// Makes a thread. Answers as `clone` does in the parent, but for the thread's number, at which Go
/// does not look.
///
/// # Safety
/// `arguments` are those that Go passes for a thread of its own, with an `m` and a `g`.
pub unsafe fn start(arguments: *const Arguments) -> c_long {
    // SAFETY: the caller's promise.
    let Arguments { stack, m, g, function, .. } = unsafe { *arguments };
    // The kernel's FS is 8 bytes above the first of the thread's words.
    let go_fs = m.wrapping_add(TLS.load(Ordering::Relaxed)).wrapping_add(8);
    let thread = Box::into_raw(Box::new(Thread {
        context: Context { go_fs, ..Context::NONE },
        stack,
        m,
        g,
        function,
    }));
    // SAFETY: attributes and number are ours; the thread takes the box.
    let failed = unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        let mut number: libc::pthread_t = core::mem::zeroed();
        let failed =
            libc::pthread_create(&raw mut number, &raw const attributes, body, thread.cast());
        libc::pthread_attr_destroy(&raw mut attributes);
        failed
    };
    if failed != 0 {
        // SAFETY: nobody has taken it.
        drop(unsafe { Box::from_raw(thread) });
        return -c_long::from(failed);
    }
    1
}

/// What the C library runs in the thread. All signals are blocked, as in Go's own new threads.
extern "C" fn body(thread: *mut c_void) -> *mut c_void {
    // SAFETY: from `start`, for this thread alone.
    let mut thread = unsafe { Box::from_raw(thread.cast::<Thread>()) };
    thread.context.own_fs = registers::fs();
    thread.context.me = &raw mut thread.context;
    // SAFETY: FSGSBASE is on, or nothing would have been replaced; Go's code and the C library's
    // use no GS.
    unsafe { registers::set_gs(thread.context.me.addr()) };
    // SAFETY: the registers are what the child of `clone` begins with; the box outlives the call.
    unsafe { stub::run_thread(&raw mut *thread, CHILD.load(Ordering::Relaxed)) };
    // Go has blocked all signals: no handler looks for the context any more.
    drop(thread);
    ptr::null_mut()
}
