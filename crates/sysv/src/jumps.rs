//! Handlers of signals that leave `semop` by siglongjmp(3): the C library's functions for that,
//! before which the calls in which the thread sleeps are over, as they are for the kernel before
//! any handler runs.

use crate::next::Next;
use ginnel::sysv;
use ginnel_region::sys::block_signals;
use libc::{c_int, c_void};

type Jump = unsafe extern "C" fn(*mut c_void, c_int) -> !;

fn jump(next: &Next, to: *mut c_void, value: c_int) -> ! {
    if sysv::is_asleep() {
        let _signals = block_signals();
        sysv::interrupted();
    }
    let found = next.find();
    if found.is_null() {
        std::process::abort();
    }
    // SAFETY: the function of that name has this type; the arguments are the program's own.
    unsafe { std::mem::transmute::<*mut c_void, Jump>(found)(to, value) }
}

static LONGJMP: Next = Next::new(c"longjmp");
static SHORT: Next = Next::new(c"_longjmp");
static SIGLONGJMP: Next = Next::new(c"siglongjmp");
/// What programs call that are compiled with `_FORTIFY_SOURCE`.
static CHECKED: Next = Next::new(c"__longjmp_chk");

/// Looks for all of them: not for the first time in a handler.
pub(crate) fn find() {
    for next in [&LONGJMP, &SHORT, &SIGLONGJMP, &CHECKED] {
        next.find();
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn longjmp(to: *mut c_void, value: c_int) -> ! {
    jump(&LONGJMP, to, value)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _longjmp(to: *mut c_void, value: c_int) -> ! {
    jump(&SHORT, to, value)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn siglongjmp(to: *mut c_void, value: c_int) -> ! {
    jump(&SIGLONGJMP, to, value)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __longjmp_chk(to: *mut c_void, value: c_int) -> ! {
    jump(&CHECKED, to, value)
}
