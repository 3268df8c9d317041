//! Shared memory: the segment file, its map in this process, the pages in it and who owns them.
//!
//! All raw access to memory that another party can write is in this crate. Its rules:
//!
//! - Never a reference (`&T`, `&[u8]`) into the segment, except to an atomic word: another party
//!   may write at any time.
//! - A value that a peer wrote is copied once ([`Untrusted`]), checked, and only the copy is used.
//! - Places are offsets from the segment's start. Every access checks its offset against the length
//!   that was mapped.
//!
//! ```no_run
//! use ginnel_region::{Segment, Config};
//! let segment = Segment::open_or_create("/dev/shm/example".as_ref(), &Config::default())?;
//! let head = segment.claim_head(ginnel_region::Owner::new(0, ginnel_region::Use::Channel))?;
//! segment.word(u64::from(head.page()) * ginnel_region::PAGE).store(7, std::sync::atomic::Ordering::Release);
//! segment.release_head(head);
//! # Ok::<(), ginnel_region::Error>(())
//! ```

pub mod cut;
pub mod device;
mod error;
mod extent;
mod header;
mod layout;
pub mod names;
mod numbered;
mod onlooker;
pub mod open;
mod owner;
mod peers;
mod segment;
mod size;
pub mod sys;
mod transfer;
mod untrusted;

pub use device::Source;
pub use error::Error;
pub use header::{Config, MAGIC, VERSION};
pub use layout::{LATELY_ENTRIES, PAGE, TABLE};
pub use names::{Entry, Names, Party};
pub use onlooker::Onlooker;
pub use owner::{Extent, Head, Owner, Use};
pub use peers::{Geometry, MAX_PEER, PeerTable, Presence};
pub use segment::{Segment, may_make};
pub use size::parse_size;
pub use untrusted::{Corrupt, Untrusted};
