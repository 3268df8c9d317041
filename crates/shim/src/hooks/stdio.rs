//! Where the C library itself moves a descriptor's bytes, out of the hooks' sight: standard I/O and
//! asynchronous I/O. Such a descriptor is handed over to TCP first.
use super::{bypass, bypass_process, keeping_errno};
use crate::{next, ops};
use libc::{FILE, aiocb, c_char, c_int, c_void, sigevent};

/// `fd`'s bytes will move unseen.
fn unseen(fd: c_int) {
    if !bypass() {
        keeping_errno(|| ops::io::hand_over(fd));
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    unseen(fd);
    // SAFETY: the program's own arguments.
    unsafe { next::fdopen(fd, mode) }
}

/// The stream's descriptor will be closed unseen.
///
/// # Safety
/// `file` is null or an open stream.
unsafe fn closing(file: *mut FILE) {
    if !file.is_null() && !bypass_process() {
        keeping_errno(|| {
            // SAFETY: an open stream by the caller's promise.
            let fd = unsafe { libc::fileno(file) };
            if fd >= 0 {
                ops::fd::replacing(fd);
            }
        });
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fclose(file: *mut FILE) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        closing(file);
        next::fclose(file)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
) -> *mut FILE {
    // SAFETY: the program's own arguments.
    unsafe {
        closing(file);
        next::freopen(path, mode, file)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
) -> *mut FILE {
    // SAFETY: the program's own arguments.
    unsafe {
        closing(file);
        next::freopen64(path, mode, file)
    }
}

/// The list of arguments is an array of one (x86-64) or a large structure (aarch64): a pointer in
/// both, and goes on as it came.
#[unsafe(no_mangle)]
unsafe extern "C" fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    unseen(fd);
    // SAFETY: the program's own arguments.
    unsafe { next::vdprintf(fd, format, arguments) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    unseen(fd);
    // SAFETY: the program's own arguments.
    unsafe { next::__vdprintf_chk(fd, flag, format, arguments) }
}

/// # Safety
/// `request` is null or a request.
unsafe fn asynchronous(request: *const aiocb) {
    // SAFETY: the caller's promise.
    if let Some(request) = unsafe { request.as_ref() } {
        unseen(request.aio_fildes);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_read(request: *mut aiocb) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        asynchronous(request);
        next::aio_read(request)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_write(request: *mut aiocb) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        asynchronous(request);
        next::aio_write(request)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lio_listio(
    mode: c_int,
    list: *const *mut aiocb,
    count: c_int,
    event: *mut sigevent,
) -> c_int {
    if !list.is_null() {
        for index in 0..count.max(0).unsigned_abs() as usize {
            // SAFETY: the program's list has `count` entries, each null or a request.
            unsafe { asynchronous(list.add(index).read()) };
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { next::lio_listio(mode, list, count, event) }
}

/// The 64-bit names differ only where `off_t` has 32 bits.
#[unsafe(no_mangle)]
unsafe extern "C" fn aio_read64(request: *mut aiocb) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { aio_read(request) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_write64(request: *mut aiocb) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { aio_write(request) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lio_listio64(
    mode: c_int,
    list: *const *mut aiocb,
    count: c_int,
    event: *mut sigevent,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { lio_listio(mode, list, count, event) }
}
