//! The environment that a program starts with: the caller's, but where the program's own dynamic
//! linker, or that of what it starts in its turn, would refuse to start it with this library
//! (musl's does), the library is named among the preloads so that each finds its own, or only
//! glibc's does; where it would complain on standard error, not at all.
//!
//! The copy is made in memory of its own: nothing may be taken from an allocator after `vfork`, and
//! a stack may be small.
use super::{aside, vfork};
use crate::ops::program::{self, Program};
use core::cell::Cell;
#[cfg(target_arch = "x86_64")]
use core::ffi::CStr;
use core::ptr;
use ginnel_preload::{LIB, Preload, TOKEN};
use ginnel_region::sys;
use libc::c_char;

/// The program's environment as it stands.
pub(super) fn own() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the C library's variable; reading the pointer is what `execv` does, too.
    unsafe { (&raw const environ).read() }
}

thread_local! {
    /// A copy that a child of `vfork` was given, and left to its parent when it became another
    /// program.
    static COPY: Cell<(*mut u8, usize)> = const { Cell::new((ptr::null_mut(), 0)) };
}

/// Gives `start` the environment that `program` is to have instead of `envp`.
///
/// # Safety
/// `envp` is null or a null-terminated array of strings.
pub(super) unsafe fn for_program<T>(
    program: Program,
    envp: *const *const c_char,
    start: impl FnOnce(*const *const c_char) -> T,
) -> T {
    if program.preload() == Preload::Kept {
        return start(envp);
    }
    // SAFETY: the caller's promise. Where there is no memory, the program has to do with what there
    // is.
    match unsafe { renamed(envp, program.preload(), &[]) } {
        Some(copy) => with_copy(copy, start),
        None => start(envp),
    }
}

/// Gives `start` the environment with which the loader is to load `program` at `path`; not where
/// there is no memory for it.
///
/// # Safety
/// As for [`for_program`].
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn for_loader<T>(
    program: Program,
    path: &CStr,
    envp: *const *const c_char,
    start: impl FnOnce(*const *const c_char) -> T,
) -> Option<T> {
    let word = [ginnel_preload::BY_LOADER.to_bytes(), b"=", path.to_bytes(), b"\0"];
    // SAFETY: the caller's promise.
    unsafe { renamed(envp, program.preload(), &word) }.map(|copy| with_copy(copy, start))
}

fn with_copy<T>(copy: Copied, start: impl FnOnce(*const *const c_char) -> T) -> T {
    let left = aside() && vfork::in_child();
    if left {
        drop_copy();
        COPY.set((copy.at, copy.len));
    }
    let result = start(copy.at.cast::<*const c_char>());
    if left {
        COPY.set((ptr::null_mut(), 0));
    }
    // SAFETY: `renamed` mapped it, and who was given it has returned.
    unsafe { sys::unmap(copy.at, copy.len) };
    result
}

/// A map with an array of strings at its begin.
struct Copied {
    at: *mut u8,
    len: usize,
}

/// Gives back what a child of `vfork` of this thread's has left.
pub(super) fn drop_copy() {
    let (at, len) = COPY.replace((ptr::null_mut(), 0));
    if !at.is_null() {
        // SAFETY: `renamed` mapped it, and nothing points there any more: who was given it has
        // other memory.
        unsafe { sys::unmap(at, len) };
    }
}

/// A copy of the array in which LD_PRELOAD names this library as `preload` says; its other strings
/// are the caller's, but for one more, whose parts are `word`, where that has any.
///
/// # Safety
/// `envp` is null or a null-terminated array of strings.
unsafe fn renamed(envp: *const *const c_char, preload: Preload, word: &[&[u8]]) -> Option<Copied> {
    const NAME: &[u8] = b"LD_PRELOAD=";
    // SAFETY: the caller's promise.
    let (index, list) = unsafe { program::preload(envp) }?;
    let mut count = 0;
    // SAFETY: the array ends with a null pointer.
    while !unsafe { envp.add(count).read() }.is_null() {
        count += 1;
    }
    let pointers = (count + 1 + usize::from(!word.is_empty())) * size_of::<*const c_char>();
    let len = pointers
        + NAME.len()
        + program::names(list).map(|name| TOKEN.len() + LIB.len() + name.len() + 2).sum::<usize>()
        + 1;
    let len = len + word.iter().map(|part| part.len()).sum::<usize>();
    let at = sys::map_private(len).ok()?;
    let array = at.cast::<*const c_char>();
    // SAFETY: the map has room for the pointers, and behind them for the text with its zero byte;
    // it is aligned to a page, and nobody else has it.
    unsafe {
        let text = at.add(pointers);
        ptr::copy_nonoverlapping(envp, array, count + 1);
        let room = core::slice::from_raw_parts_mut(text, len - pointers);
        let mut used = 0;
        let mut put = |bytes: &[u8]| {
            if let Some(place) = room.get_mut(used..used + bytes.len()) {
                place.copy_from_slice(bytes);
                used += bytes.len();
            }
        };
        put(NAME);
        let any = put_names(list, preload, &mut put);
        put(b"\0");
        let end = used;
        for part in word {
            if let Some(place) = room.get_mut(used..used + part.len()) {
                place.copy_from_slice(part);
                used += part.len();
            }
        }
        if any {
            array.add(index).write(text.cast());
        } else {
            ptr::copy(array.add(index + 1), array.add(index), count - index);
            count -= 1;
        }
        if !word.is_empty() {
            array.add(count).write(text.add(end).cast());
            array.add(count + 1).write(ptr::null());
        }
    }
    Some(Copied { at, len })
}

/// Puts the names of a list of preloads, as `preload` says. Is there any?
fn put_names(list: &[u8], preload: Preload, mut put: impl FnMut(&[u8])) -> bool {
    let mut any = false;
    for name in program::names(list) {
        let own = program::is_of_ginnel(name);
        let parts = ginnel_preload::parts(name).filter(|_| own);
        if own && (preload == Preload::Gone || preload == Preload::TokenOnly && parts.is_none()) {
            continue;
        }
        if core::mem::replace(&mut any, true) {
            put(b":");
        }
        let Some((folder, file)) = parts else {
            put(name);
            continue;
        };
        // (The library for System V objects is for glibc alone.)
        let either = preload == Preload::Either && program::is_named(name);
        if !either {
            put(TOKEN.as_bytes());
        }
        put(folder);
        put(b"/");
        if either {
            put(LIB.as_bytes());
            put(b"/");
        }
        put(file);
    }
    any
}
