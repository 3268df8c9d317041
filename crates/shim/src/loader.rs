//! `ginnel-go-loader`, which is executed in the place of a program that has no dynamic linker, and
//! loads it ([`crate::go`]): where it is, and for which programs it is the way.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// The program that was to be loaded is to be executed as it is.
static NOT_LOADED: AtomicBool = AtomicBool::new(false);

/// The loader's path: beside this library.
static LOADER: OnceLock<Option<CString>> = OnceLock::new();

/// The loader, where it can be executed in the place of the program at `path`, here and now: the
/// root directory may be another since the start. Takes no memory: asked in children of `vfork`
/// too.
pub fn for_program(path: &CStr) -> Option<&'static CStr> {
    let loader = LOADER.get()?.as_deref()?;
    (!NOT_LOADED.load(Ordering::Relaxed) && ginnel_preload::can_load(loader, path))
        .then_some(loader)
}

/// At the start, first of all: finds the loader. In the loader the process is called by its
/// program's name from here on.
pub fn begin() {
    LOADER.get_or_init(|| {
        // SAFETY: all zeroes is a valid value.
        let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
        // SAFETY: an address of this library's, and a place for the answer.
        if unsafe { libc::dladdr((begin as *const ()).cast(), &raw mut info) } == 0
            || info.dli_fname.is_null()
        {
            return None;
        }
        // SAFETY: the loader's own string.
        let file = Path::new(std::ffi::OsStr::from_bytes(
            unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes(),
        ));
        // It may have been found by a link, or be the one for musl.
        let file = file
            .is_absolute()
            .then(|| std::fs::canonicalize(file).unwrap_or_else(|_| file.into()))?;
        let (folder, _) = ginnel_preload::parts(file.as_os_str().as_bytes())?;
        CString::new([folder, b"/", ginnel_preload::LOADER.as_bytes()].concat()).ok()
    });
    if let Some(path) = ginnel_preload::loaded()
        && let Some(name) =
            Path::new(&path).file_name().and_then(|name| CString::new(name.as_bytes()).ok())
    {
        // SAFETY: a terminated string, of which the kernel takes 15 bytes.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// The program that this process was to load is to be executed as it is: as are those that it
/// executes.
pub fn note_not_loaded() {
    NOT_LOADED.store(true, Ordering::Relaxed);
}
