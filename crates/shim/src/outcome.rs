//! What becomes of a call: the library has done it, or the C library is to.

use libc::c_int;

/// How an operation ended.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<T = isize> {
    /// Done; return this value. `errno` is left alone.
    Done(T),
    /// Failed: set `errno` to this and return -1.
    Failed(c_int),
    /// Not ours: call the C library's function with the program's own arguments.
    Libc,
}
