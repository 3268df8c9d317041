//! `ginnel-go-loader`: executed in the place of a program in Go that has no dynamic linker, with
//! that program's arguments. Its own dynamic linker preloads the library, which then loads the
//! program (`crates/shim/src/go/load.rs`). Where it cannot, or is not there, the program is
//! executed as it is.
//!
//! Whoever executes it (`ginnel run`, the library's hooks of `exec`) names the program in
//! `GINNEL_GO_PROGRAM`.
#![no_main]

use std::ffi::{CStr, c_char, c_int};

/// By which variable it is told which program.
const PROGRAM: &CStr = c"GINNEL_GO_PROGRAM";

/// As env(1): the program cannot be executed, or was not found.
const CANNOT: c_int = 126;
const MISSING: c_int = 127;

/// The library's: loads the program at the path, with the stack that begins there; returns if it
/// cannot.
type Load = unsafe extern "C" fn(*const c_char, *mut usize) -> c_int;
/// The library's: executes a program as it is; returns the errno.
type Execute =
    unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;

#[unsafe(no_mangle)]
extern "C" fn main(_argc: c_int, argv: *const *const c_char, _envp: *const *const c_char) -> c_int {
    // SAFETY: a terminated name; there is one thread.
    let program = unsafe { libc::getenv(PROGRAM.as_ptr()) };
    if program.is_null() {
        // Nobody's hand.
        let text = b"ginnel-go-loader: executed by ginnel run, and by programs under it, to load programs in Go\n";
        // SAFETY: the text is readable for its length.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        return CANNOT;
    }
    // SAFETY: terminated names.
    let (load, execute) = unsafe {
        let found = |name: &CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        (found(c"ginnel_go_load"), found(c"ginnel_go_execute"))
    };
    if !load.is_null() {
        // SAFETY: the library's function of this name and type.
        let load: Load = unsafe { std::mem::transmute(load) };
        // The kernel puts the number of arguments before them.
        // SAFETY: the arguments are where the kernel put them, and there is no thread but this one.
        unsafe { load(program, argv.sub(1).cast::<usize>().cast_mut()) };
    }
    // SAFETY: a terminated name. The string that `program` points to stays where it is.
    unsafe { libc::unsetenv(PROGRAM.as_ptr()) };
    // SAFETY: the C library's variable.
    let environment = unsafe { (&raw const environ).read() };
    let errno = if execute.is_null() {
        // SAFETY: arrays of strings that end with null.
        unsafe { libc::execve(program, argv, environment) };
        std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
    } else {
        // SAFETY: the library's function of this name and type.
        let execute: Execute = unsafe { std::mem::transmute(execute) };
        // SAFETY: as above.
        unsafe { execute(program, argv, environment) }
    };
    if errno == libc::ENOENT { MISSING } else { CANNOT }
}

unsafe extern "C" {
    static environ: *const *const c_char;
}
