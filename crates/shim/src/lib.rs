//! The LD_PRELOAD library: [`hooks`] are thin C entry points over [`ops`].
//!
//! The way of a byte: a hook builds iovecs and calls `ops`; `ops` finds the endpoint behind the
//! descriptor ([`runtime`], [`fds`]) and moves bytes through `ginnel_tcp`; where nothing can be
//! moved it waits ([`wait`]) or tells the epoll sets ([`sets`]). A thread of the shim's own
//! ([`service`]) does what cannot wait for the program's next call.
mod adopt;
mod alone;
mod bell;
mod deadline;
mod fds;
mod gather;
#[cfg(target_arch = "x86_64")]
mod go;
mod hooks;
mod identity;
mod leader;
mod maps;
mod mix;
mod next;
mod ops;
mod options;
mod outcome;
mod own;
mod pool;
mod quiet;
mod report;
mod runtime;
mod service;
mod sets;
mod spin;
mod start;
mod symbols;
mod thread;
mod uncounted;
mod wait;
