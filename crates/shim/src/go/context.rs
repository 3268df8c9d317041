//! What a thread of a Go program needs to run the library's code: a stack of C's, and in programs
//! whose threads are Go's own the C library's FS register.
//!
//! A goroutine's stack has a few hundred bytes. So each thread has another one here, on which the
//! library works while the goroutine waits for its system call. Where threads are the C library's
//! (cgo), a thread-local variable leads to it, and it is made at the thread's first call. Where
//! they are Go's, GS does, which neither Go nor the C library uses.

use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use ginnel_region::{PAGE, sys};
use syscalls::Sysno;

/// One thread's. The fields are read by [`super::gate`].
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Context {
    /// Its own address.
    pub me: *mut Context,
    /// Not 0: the thread works in the library. A signal handler that interrupted it makes its calls
    /// itself.
    pub inside: usize,
    /// Where the library's frames begin, below; a multiple of 16.
    pub top: usize,
    /// FS of the C library, …
    pub own_fs: usize,
    /// … and of Go.
    pub go_fs: usize,
    /// Where the stack pointer was when the thread came to Go's code.
    pub start: usize,
    /// The map that holds stack and context, if it was made for them.
    pub map: usize,
    /// Filling.
    pub unused: usize,
}

/// Size of a map: the stack, and the context at its end.
pub const SIZE: usize = 256 << 10;
/// Where in a map the context lies.
pub const AT: usize = SIZE - size_of::<Context>();
const _: () = assert!(size_of::<Context>() == 64 && AT.is_multiple_of(16));
const _: () = assert!(offset_of!(Context, me) == 0);

/// The key whose destructor gives a context back, plus one; 0: none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Makes the key. False where there is none.
pub fn watch_threads() -> bool {
    extern "C" fn ended(context: *mut c_void) {
        super::gate::forget_context();
        // SAFETY: the value of the key is this thread's context, which nothing leads to any more.
        // This runs on the thread's own stack.
        unsafe { sys::unmap((context as usize - AT) as *mut u8, SIZE) };
    }
    let mut key = 0;
    // SAFETY: a place for the number, and a function that stays loaded.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0;
    if made {
        KEY.store(key + 1, Ordering::Release);
    }
    made
}

/// By a thread that has just made its context, on the new stack.
pub extern "C" fn made(context: *mut Context) {
    // SAFETY: the lowest page of the map, which nothing uses: whoever overflows the stack ends
    // there.
    let _ = unsafe { sys::raw(Sysno::mprotect, [context.addr() - AT, PAGE as usize, 0, 0, 0, 0]) };
    if let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) {
        // SAFETY: the key is made.
        unsafe { libc::pthread_setspecific(key, context.cast()) };
    }
}

/// The first thread's, where threads are Go's own.
pub fn of_first_thread() -> Option<*mut Context> {
    let map = sys::map_private(SIZE).ok()?;
    // SAFETY: inside of the new map, which is page-aligned.
    let context = unsafe { map.add(AT) }.cast::<Context>();
    let fs = super::registers::fs();
    // SAFETY: as above; nobody else knows it.
    unsafe {
        context.write(Context {
            top: context.addr(),
            own_fs: fs,
            go_fs: fs,
            map: map.addr(),
            ..Context::NONE
        })
    };
    // SAFETY: as above.
    unsafe { (*context).me = context };
    // SAFETY: see `made`.
    let _ = unsafe { sys::raw(Sysno::mprotect, [map.addr(), PAGE as usize, 0, 0, 0, 0]) };
    Some(context)
}

impl Context {
    /// Nothing.
    pub const NONE: Self = Self {
        me: ptr::null_mut(),
        inside: 0,
        top: 0,
        own_fs: 0,
        go_fs: 0,
        start: 0,
        map: 0,
        unused: 0,
    };
}
