//! Paths of programs: where the C library finds one by its name, and how one is written that is
//! relative to an open folder.
use core::ffi::CStr;
use libc::{c_char, c_int};

/// Calls `run` with the path that `execvp` would find for `file`; not at all where there is none,
/// for then nothing will run.
///
/// # Safety
/// `file` is null or a C string.
pub(super) unsafe fn with_program(file: *const c_char, run: impl FnOnce(*const c_char)) {
    if file.is_null() {
        return;
    }
    // SAFETY: a C string by the caller's promise.
    let name = unsafe { CStr::from_ptr(file) }.to_bytes_with_nul();
    if name.contains(&b'/') {
        return run(file);
    }
    // SAFETY: the name is a C string. The program promises not to change its environment while it
    // looks for a program in it.
    let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
    // SAFETY: not null, so a C string; the default is the C library's (`confstr(_CS_PATH)`).
    let path = if path.is_null() { c"/bin:/usr/bin" } else { unsafe { CStr::from_ptr(path) } };
    let mut room = [0_u8; libc::PATH_MAX as usize];
    for folder in path.to_bytes().split(|byte| *byte == b':') {
        let joint: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        if let Some(path) = join(&mut room, &[folder, joint, name])
            && is_program(path)
        {
            return run(path);
        }
    }
}

/// The parts, one after the other; the last ends with NUL. `None` where they do not fit.
pub(super) fn join(room: &mut [u8], parts: &[&[u8]]) -> Option<*const c_char> {
    let mut at = 0;
    for part in parts {
        room.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    Some(room.as_ptr().cast())
}

/// Is there a file at `path` that may be executed?
fn is_program(path: *const c_char) -> bool {
    let mut status = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `path` was made NUL-terminated by `join`, and `status` has room for the answer, which
    // is read only if there is one.
    unsafe {
        libc::access(path, libc::X_OK) == 0
            && libc::stat(path, status.as_mut_ptr()) == 0
            && status.assume_init().st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// The digits of a descriptor's number.
pub(super) fn decimal(fd: c_int, room: &mut [u8; 10]) -> &[u8] {
    let mut rest = fd.max(0);
    let mut used = 0;
    for place in room.iter_mut().rev() {
        // A digit, so it fits.
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
        used += 1;
        if rest == 0 {
            break;
        }
    }
    room.get(10 - used..).unwrap_or_default()
}
