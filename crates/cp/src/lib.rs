//! `ginnel cp`: files copied between processes, containers and virtual machines of one host,
//! through a segment of shared memory. It stands on named objects alone (the crate `ginnel`).
//!
//! # How it works
//!
//! A server (`ginnel cp serve`) offers one directory. It receives from a queue `cp.NAME`, its door.
//! A client makes two queues of its own, one each way, whose names end with the client, and puts
//! their number into the door. The server answers there, in a thread for each client. So clients
//! share nothing but the door: what one does to its queues, it does to itself.
//!
//! ```text
//! client                                server
//!   ── Hello {number} ─────────────────▶  door, one for all
//!   ◀───────────────────────── Welcome ──
//!   ── Get, Source …, Go  or  Put ─────▶
//! sender                                receiver      (either may be the client)
//!   ── Start ──────────────────────────▶
//!   ◀───── Base: which directory it is ──
//!   ── List 0, List 1 … ───────────────▶  looks at what it has
//!   ◀───── Wants 0: all, rest, nothing ──
//!   ── Data: pieces of files of 0 … ───▶  writes
//!   ◀───────────────────────── Done 0 ──
//!   ── Finish ─────────────────────────▶
//!   ◀───────────────────────── Finish ──
//! ```
//!
//! - The sender lists in *batches* of some hundred entries. Some batches are listed ahead, so that
//!   neither waits for the other's answer; data comes batch by batch, file by file, in order.
//! - The kernel reads a file's bytes straight into a loaned buffer of the queue, and writes them
//!   straight from there: two copies, each by one end, with several buffers on their way. A buffer
//!   holds a piece of a large file or many small ones, then the [`wire::Message`] that says what is
//!   where. That is copied out, once, and checked.
//! - What the receiver has of a file already is told by length and BLAKE3: with `--checksum` of all
//!   of it, with `--partial` of what an interrupted copy left.
//! - Whoever waits looks five times a second whether the other end lives: a queue says that its
//!   other end died. One that lives and is silent is given two minutes.
//!
//! # What is trusted
//!
//! Nobody who is at the other end. [`tree`] keeps a server inside of what it offers, and a client
//! inside of its destination; [`recv`] takes only what was asked for; [`wire`] and [`link`] bound
//! every length. What anybody in the segment can do all the same is written in docs/cp.md.

#![deny(unsafe_code)]

mod client;
mod failure;
mod filter;
mod hash;
mod limit;
mod link;
mod names;
mod raw;
mod recv;
mod report;
mod send;
mod server;
mod tree;
mod walk;
#[doc(hidden)]
pub mod wire;

pub use client::{Job, Way, place, run};
pub use failure::{Code, Failure};
pub use names::{clean, shown};
pub use report::Report;
pub use server::{Serve, default_name};
pub use wire::{Action, Order};
