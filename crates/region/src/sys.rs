//! System calls made directly, past any C library: the shim replaces the library's functions and
//! must not call itself.
//!
//! Errors are `errno` values.

mod files;
mod memory;
mod process;

pub use files::*;
pub use memory::*;
pub use process::*;

use syscalls::{Errno, Sysno, syscall};

/// Result of a system call: a value or an `errno`.
pub type Result<T> = std::result::Result<T, i32>;

fn errno(e: Errno) -> i32 {
    e.into_raw()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the kernel returns descriptors and flags in 32 bits"
)]
#[expect(clippy::cast_possible_wrap, reason = "likewise")]
fn int(value: usize) -> i32 {
    value as i32
}

/// A system call with up to six word arguments.
///
/// # Safety
/// As for the call: pointers among the arguments must be valid for what the kernel does with them.
#[inline]
pub unsafe fn raw(number: Sysno, args: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller's promise.
    unsafe { syscall!(number, args[0], args[1], args[2], args[3], args[4], args[5]) }.map_err(errno)
}
