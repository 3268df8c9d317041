//! A copy of the memory in a segment of Ginnel's, for readers in other virtual machines.
//!
//! A server that is asked for it (`--segment`) stores everything twice: into its own memory, which
//! nobody else can write, and into the copy, which whoever has the segment can. It loads nothing
//! from the copy. So who writes there misleads readers, and the server suffers nothing.
//!
//! A reader finds the copy by the server's number, under a name in the segment of its machine. It
//! bears whatever stands there, as in any server's memory ([`reader`](crate::reader)).

use crate::hints::{SHARED_BYTES, Shared, Sink};
use crate::memory::{self, Memory, View};
use ginnel::{Keep, Options, Segment};
use std::io;
use std::path::Path;

/// What a server keeps in a segment.
#[derive(Debug)]
pub struct Offer {
    /// The copy's memory, zeroed.
    pub copy: Memory,
    /// By which its readers tell what they read.
    pub rings: Shared,
}

/// Returns the name under which a segment has the copy of a server's memory.
#[must_use]
pub fn name(generation: u64) -> String {
    format!("cache-{generation:016x}")
}

fn rings_name(generation: u64) -> String {
    format!("{}-reads", name(generation))
}

/// Makes room for a copy of `bytes` bytes in the segment named so, or in the one that
/// `ginnel run` would take. Its names go with this process.
///
/// # Errors
/// Why there is none: no such segment, or no room in it.
pub fn offer(segment: Option<&Path>, generation: u64, bytes: usize) -> io::Result<Offer> {
    let options = Options::new();
    let segment = segment.map_or_else(|| options.own(), |segment| options.open(segment));
    let segment = segment.map_err(io::Error::other)?;
    let make = |name: &str, bytes: usize| {
        let made = ginnel::Memory::create_keeping(&segment, name, bytes as u64, Keep::WithCreator);
        memory::in_segment(made.map_err(io::Error::other)?)
    };
    let copy = make(&name(generation), bytes)?;
    let rings = Shared::new(make(&rings_name(generation), SHARED_BYTES)?);
    Ok(Offer { copy, rings })
}

/// Finds the copy that the server with that number keeps in this program's segment.
///
/// # Errors
/// Why it is not to be had.
pub fn enter(generation: u64) -> io::Result<(View, Sink)> {
    let segment: Segment = Options::new().existing(true).own().map_err(io::Error::other)?;
    let open = |name: &str| {
        let found = ginnel::Memory::open(&segment, name).map_err(io::Error::other)?;
        memory::in_segment(found)
    };
    let copy = open(&name(generation))?;
    let rings = open(&rings_name(generation))?;
    if rings.words().len() * memory::WORD != SHARED_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut claim = [0; 8];
    rustix::rand::getrandom(&mut claim, rustix::rand::GetRandomFlags::empty())?;
    Ok((copy.view(), Sink::shared(rings, u64::from_ne_bytes(claim))))
}
