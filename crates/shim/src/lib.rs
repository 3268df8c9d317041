//! The LD_PRELOAD library: [`hooks`] are thin C entry points over [`ops`].
//!
//! The way of a byte: a hook builds iovecs and calls `ops`; `ops` finds the endpoint behind the
//! descriptor ([`runtime`], [`fds`]) and moves bytes through `ginnel_tcp`; where nothing can be
//! moved it waits ([`wait`]) or tells the epoll sets ([`sets`]). A thread of the shim's own
//! ([`service`]) does what cannot wait for the program's next call.
//!
//! A file uses those of its own line here, in one direction, and of the lines below it:
//!
//! | files | what |
//! |---|---|
//! | `start`, `go`, `hooks` | how a program comes in: when it is loaded, by Go's system calls, by C's |
//! | `alone`, `ops` | what its calls mean |
//! | `identity`, `wait`, `adopt` | becoming another user; sleeping; a descriptor becomes an endpoint |
//! | `service`, `leader`, `sets` | the library's own thread, and the end of the program's first; epoll |
//! | `report`, `own`, `uncounted` | what was carried; whose memory this is; calls past the counters |
//! | `pool`, `maps`, `runtime` | waiters to sleep by; the process's attachment, and what it maps |
//! | `options`, `fds`, `quiet` | what sockets are asked for; what numbers stand for, and go uncounted |
//! | the others | the C library's functions, the thread's bell, clocks, spinning, small words |
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
mod linger;
#[cfg(target_arch = "x86_64")]
mod loader;
mod maps;
mod mix;
mod moment;
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
