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
pub mod program;
pub mod ready;
pub mod sock;
pub mod uring;

pub use crate::outcome::Outcome;
