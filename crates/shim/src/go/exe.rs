//! `/proc/self/exe` of a program that [`super::load`] has started: the kernel's answer would be the
//! loader. The program is told its own file where it asks by that name.

use crate::next::errno;
use core::ffi::{CStr, c_char};
use libc::{c_int, c_long};
use std::ffi::CString;
use std::sync::OnceLock;

/// The program's file.
static FILE: OnceLock<CString> = OnceLock::new();

/// Before the program starts.
pub fn set(file: CString) {
    let _ = FILE.set(file);
}

/// Is it another file than the kernel says?
pub fn is_other() -> bool {
    FILE.get().is_some()
}

/// Does this call take a path that may be that name? (`execve` does too.)
pub fn is_asked_by(number: c_long) -> bool {
    place(number).is_some_and(|_| number != libc::SYS_execve)
}

/// Which argument is the path.
fn place(number: c_long) -> Option<usize> {
    match number {
        libc::SYS_readlink
        | libc::SYS_open
        | libc::SYS_stat
        | libc::SYS_access
        | libc::SYS_execve => Some(0),
        libc::SYS_readlinkat
        | libc::SYS_openat
        | libc::SYS_newfstatat
        | libc::SYS_faccessat
        | libc::SYS_faccessat2 => Some(1),
        _ => None,
    }
}

/// Does it mean this process's program?
fn is_own(path: &CStr) -> bool {
    let Some(rest) =
        path.to_bytes().strip_prefix(b"/proc/").and_then(|rest| rest.strip_suffix(b"/exe"))
    else {
        return false;
    };
    let number = || core::str::from_utf8(rest).ok().and_then(|rest| rest.parse::<u32>().ok());
    rest == b"self" || rest == b"thread-self" || number() == Some(ginnel_region::sys::pid())
}

/// The answer to a call that asks by that name; `None`: it does not.
///
/// # Safety
/// As for the system call of this number.
pub unsafe fn answer(number: c_long, mut arguments: [c_long; 5]) -> Option<c_long> {
    let file = FILE.get()?;
    let argument = arguments.get_mut(place(number)?)?;
    let path = core::ptr::with_exposed_provenance::<c_char>(*argument as usize);
    // SAFETY: null, or the program's string.
    if path.is_null() || !is_own(unsafe { CStr::from_ptr(path) }) {
        return None;
    }
    let no_follow =
        number == libc::SYS_newfstatat && arguments[3] as c_int & libc::AT_SYMLINK_NOFOLLOW != 0;
    if no_follow {
        return None;
    }
    let [a, b, c, d, e] = arguments;
    let link = match number {
        libc::SYS_readlink => Some((b, c)),
        libc::SYS_readlinkat => Some((c, d)),
        _ => None,
    };
    if let Some((buffer, size)) = link {
        let name = file.to_bytes();
        let Some(len) =
            usize::try_from(size).ok().filter(|size| *size != 0).map(|size| size.min(name.len()))
        else {
            return Some(-c_long::from(libc::EINVAL));
        };
        // SAFETY: the program's buffer has room for as many bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(
                name.as_ptr(),
                core::ptr::with_exposed_provenance_mut(buffer as usize),
                len,
            )
        };
        return Some(len as c_long);
    }
    let named = file.as_ptr().expose_provenance() as c_long;
    let [a, b] = if place(number) == Some(0) { [named, b] } else { [a, named] };
    // SAFETY: the program's own arguments, but for the path, which names the same file.
    let answer = unsafe { crate::hooks::by_number(number, a, b, c, d, e, 0) };
    Some(if answer == -1 { -c_long::from(errno()) } else { answer })
}
