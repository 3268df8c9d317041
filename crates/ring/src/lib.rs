//! The byte ring: one writer, one reader, a power-of-two buffer, and the handshake by which a
//! sleeper is never forgotten.
//!
//! A ring position is an absolute offset: it counts every byte ever put into the direction and only
//! grows (and wraps, after 2^64 bytes). [`span`] does the arithmetic, [`mod@copy`] the copies,
//! [`prefetch`] what is asked for before,
//! [`park`] the publish/arm handshake, [`sync`] is where loom's atomics are swapped in.
//!
//! Where the index words and the buffer lie is the channel's business (`ginnel_tcp::layout`).

pub mod copy;
pub mod park;
pub mod prefetch;
pub mod span;
pub mod sync;
