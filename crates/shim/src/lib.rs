//! The LD_PRELOAD library: [`hooks`] are thin C entry points over [`ops`].
//!
//! The way of a byte: a hook builds iovecs and calls `ops`; `ops` finds the endpoint behind the descriptor ([`runtime`], [`fds`]) and moves bytes through
//! `ginnel_channel`; where nothing can be moved it waits ([`wait`]) or tells the epoll sets ([`sets`]). A thread of the shim's own ([`service`]) does what cannot wait
//! for the program's next call.
pub mod fds;
mod gather;
pub mod hooks;
pub mod membership;
pub mod next;
pub mod ops;
mod own;
pub mod pool;
pub mod report;
pub mod runtime;
pub mod service;
pub mod sets;
mod symbols;
pub mod wait;
