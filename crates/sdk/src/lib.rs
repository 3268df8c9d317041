//! Named objects in memory that processes, containers and virtual machines of one host share.
//!
//! A program opens a [`Segment`] and makes or opens objects in it by name. Whoever else has the
//! segment finds them by that name: another process, a container, a virtual machine with Ginnel's
//! device. The program does not know which.
//!
//! | object | for |
//! |---|---|
//! | [`Memory`] | bytes that several look at |
//! | [`Sender`], [`Receiver`]: a *queue* | messages from one or many to one, written and read in place |
//! | [`Listener`], [`Stream`] | bytes both ways between two, as over a socket |
//! | [`Mutex`] | one at a time; the next holder is told where the last one died |
//! | [`RwLock`] | many read or one writes; all are told where a writer died |
//! | [`Semaphore`] | so many at a time, or as many as there are; permits of the dead come back |
//! | [`Event`] | something has happened, for all who wait or for one |
//! | [`Barrier`] | all go on when all have come; they are told where one died |
//!
//! **Whom it trusts: nobody.** Any process of a segment can write any byte of it. What is read
//! from there is copied once and checked; nonsense gives [`Error::Corrupt`], and nothing else
//! suffers. Only functions that say *in place* give references into it, and only where the segment
//! was opened as [trusting](Options::trusting).
//!
//! **Who dies** (kill -9 at any point) leaves nothing: what it held is told from what others hold
//! by who stands in each word, and freed by whoever meets it.
//!
//! **fork**: a child cannot use its parent's handles ([`Error::Forked`]); it opens the segment
//! again. An exec ends all of them, as the process's end does.
//!
//! ```
//! # let directory = ginnel::testing::directory();
//! use ginnel::{Memory, Segment};
//! let segment = Segment::own()?;
//! let memory = Memory::open_or_create(&segment, "state", 4096)?;
//! memory.write(0, b"shared")?;
//! # drop(directory);
//! # Ok::<(), ginnel::Error>(())
//! ```

#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

#[macro_use]
mod debug;

#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "for crates of this project")]
pub mod adapter;
mod barrier;
#[doc(hidden)]
pub mod descriptors;
mod error;
mod event;
mod held;
mod joined;
mod kind;
mod layout;
mod listing;
mod lock;
mod memory;
mod mutex;
mod neighbour;
mod object;
mod presence;
mod queue;
mod raw;
mod rwlock;
mod segment;
mod semaphore;
mod sleeper;
mod stream;
#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "for crates of this project")]
pub mod sysv;
#[doc(hidden)]
pub mod testing;
mod wait;
mod waiting;
mod waitlist;
mod watch;

pub use barrier::Barrier;
pub use error::{Error, Result};
pub use event::{Event, Reset};
pub use kind::{Keep, Kind};
pub use listing::{ObjectInfo, User};
pub use lock::{LockError, LockResult};
pub use memory::Memory;
pub use mutex::{Guard, Mutex};
pub use queue::{Loan, Message, Queue, Receiver, Sender, WhenFull};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use segment::{Options, Segment};
pub use semaphore::{Permit, Semaphore};
pub use stream::{Listener, ReadHalf, Stream, WriteHalf};

/// The examples of the guide run as tests, too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sdk.md")]
pub struct Guide;
