//! A program that is about to be executed: what it will have of this library, which its environment
//! names.

use crate::runtime;
use ginnel_preload::{Preload, Unreachable, Way};
use ginnel_region::sys;
use ginnel_tcp::Attachment;
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by [`super::process::confined`]: from here on nothing is looked at.
pub(super) static CONFINED: AtomicBool = AtomicBool::new(false);

/// What a program that is about to be executed will have of this library.
#[derive(Clone, Copy, Default)]
pub struct Program {
    found: Option<Unreachable>,
    preload: Option<Preload>,
    way: Way,
}

impl Program {
    /// The program at `path` (null: the open file `fd`), executed with the environment `envp`.
    ///
    /// # Safety
    /// As for `execve`, or for `fexecve`.
    pub unsafe fn of(path: *const c_char, fd: c_int, envp: *const *const c_char) -> Self {
        if CONFINED.load(Ordering::Relaxed) {
            return Self::default();
        }
        // SAFETY: the caller's promise.
        let Some((_, list)) = (unsafe { preload(envp) }) else { return Self::default() };
        let mut room = [0; 1024];
        let library = file_of_library(list, &mut room);
        // SAFETY: a terminated string by the caller's promise.
        let path = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) });
        let finding = path.map_or_else(
            || ginnel_preload::look_at(fd, library),
            |path| ginnel_preload::look(path, library),
        );
        let found = finding.map(|finding| finding.why);
        #[cfg(target_arch = "x86_64")]
        let loader = found == Some(Unreachable::StaticGo)
            && finding.is_some_and(|finding| finding.interpreter().is_none())
            // The first counts, as for getenv(3).
            // SAFETY: the caller's promise.
            && unsafe { strings(envp) }.find_map(|string| string.strip_prefix(b"GINNEL_GO=")) == Some(b"1")
            && path.is_some_and(|path| crate::loader::for_program(path).is_some());
        #[cfg(not(target_arch = "x86_64"))]
        let loader = false;
        let preload = finding.map(|finding| finding.preload());
        Self { found, preload, way: ginnel_preload::way(found, loader) }
    }

    /// Will the library be there, and see what the program does?
    pub fn keeps_shim(self) -> bool {
        self.way != Way::None
    }

    /// Is the loader to be executed in its place?
    pub fn is_loaded(self) -> bool {
        self.way == Way::Loader
    }

    /// The same where the program is executed itself, though the loader could have been in its
    /// place.
    pub fn itself(self) -> Self {
        Self { way: if self.is_loaded() { Way::None } else { self.way }, ..self }
    }

    /// Says why it does not have it, to whoever asked (`GINNEL_VERBOSE`).
    pub(super) fn explain(self, attachment: &Attachment) {
        if let (true, Some(why)) =
            (attachment.settings.verbose, self.found.filter(|_| !self.keeps_shim()))
        {
            runtime::say(true, &format!("the program that starts next {why}: it stays on TCP"));
        }
    }

    /// How the library is to be named to it.
    pub fn preload(self) -> Preload {
        self.preload.unwrap_or(Preload::Kept)
    }
}

/// The strings of an environment.
///
/// # Safety
/// `envp` is null or a null-terminated array of strings.
unsafe fn strings<'a>(envp: *const *const c_char) -> impl Iterator<Item = &'a [u8]> {
    let none = envp.is_null();
    // SAFETY: the caller's promise; nothing behind the null pointer is read.
    let places =
        (0..).take_while(move |_| !none).map(move |index| unsafe { envp.add(index).read() });
    // SAFETY: the caller's promise.
    places
        .take_while(|place| !place.is_null())
        .map(|place| unsafe { CStr::from_ptr(place) }.to_bytes())
}

/// The preloads in an environment, if this library is among them: which variable it is, and what it
/// says.
///
/// # Safety
/// `envp` is null or a null-terminated array of strings.
pub unsafe fn preload<'a>(envp: *const *const c_char) -> Option<(usize, &'a [u8])> {
    // SAFETY: the caller's promise.
    let strings = unsafe { strings(envp) }.enumerate();
    let lists =
        strings.filter_map(|(index, string)| Some((index, string.strip_prefix(b"LD_PRELOAD=")?)));
    lists.filter(|(_, list)| is_named(list)).last()
}

/// The names in a list of preloads (ld.so(8)).
pub fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| matches!(byte, b' ' | b':')).filter(|name| !name.is_empty())
}

/// The file for glibc that a list of preloads means by this library, if it says so by an absolute
/// path. Of several the first that is there: the dynamic linker passes over the others.
fn file_of_library<'a>(list: &[u8], room: &'a mut [u8; 1024]) -> Option<&'a CStr> {
    let mut found = 0;
    for name in names(list).filter(|name| is_named(name)) {
        let (folder, file) = ginnel_preload::parts(name)?;
        found = 0;
        for part in [folder, b"/", file, b"\0"] {
            room.get_mut(found..found + part.len())?.copy_from_slice(part);
            found += part.len();
        }
        let here = CStr::from_bytes_with_nul(room.get(..found)?).ok()?;
        if sys::openat(libc::AT_FDCWD, here, libc::O_PATH, 0).map(sys::close).is_ok() {
            break;
        }
    }
    CStr::from_bytes_with_nul(room.get(..found)?).ok()
}

/// Does it name this library?
pub fn is_named(list: &[u8]) -> bool {
    list.windows(11).any(|part| part == b"ginnel_shim")
}

/// Does it name this library, or the one for System V objects, which lies beside it?
pub fn is_of_ginnel(name: &[u8]) -> bool {
    is_named(name) || name.windows(11).any(|part| part == b"ginnel_sysv")
}
