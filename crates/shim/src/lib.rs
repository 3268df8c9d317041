//! The LD_PRELOAD library: [`hooks`] are thin C entry points over [`ops`].
pub mod hooks;
pub mod next;
pub mod ops;
