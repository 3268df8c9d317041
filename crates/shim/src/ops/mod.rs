//! What the hooks mean: the safe logic behind each C entry point.
//!
//! Every operation answers with an [`Outcome`]: it did the call itself, it failed with an `errno`,
//! or the call is none of Ginnel's business and goes to the C library as the program made it.

pub mod fd;
pub mod io;
pub mod lent;
pub mod limits;
pub mod locks;
pub mod process;
pub mod ready;
pub mod sock;
pub mod uring;

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
