//! Active messages: each names the handler that the receiver calls with it. Nothing is matched,
//! nothing waits here: a message goes whole into a ring, or is refused until there is room.
//!
//! The engine under `libuct_ginnel.so`. Trust is as for [`crate::Endpoint`], and one thing more: a
//! job's [key](crate::active::Key), where it has one, seals what messages begin with.
//!
//! This file has the ways by which messages leave; [`source`] where they come from.

mod source;

use crate::Error;
use crate::frame::{Frame, Kind, LINE, WORDS};
use crate::idle::{Idle, Rest};
use crate::layout::{EndpointId, meeting};
use crate::node::Node;
use crate::pair::{Writer, release_writer};
use crate::seal::Seal;
pub use crate::seal::{Key, job_of, parse_key};
use ginnel_region::{Config, Corrupt};
use source::{Lines, Sources};
pub use source::{Refused, Taken};
use std::collections::HashMap;
use std::path::Path;

/// Bytes of a ring.
const RING: u64 = 256 << 10;
/// The longest message, bytes.
pub const LONGEST: usize = 16 << 10;
/// Numbers of handlers are below this.
pub const HANDLERS: u8 = 32;
/// A way to another endpoint.
struct Way {
    id: EndpointId,
    writer: Option<Writer>,
    seal: Seal,
    gone: bool,
}

/// One end.
pub struct Active {
    node: Node,
    key: Option<Key>,
    ways: Vec<Way>,
    way_of: HashMap<EndpointId, u32>,
    sources: Sources,
    /// What is not taken any more, until the owner has been told.
    refused: Vec<Refused>,
    packed: Lines,
}

impl Active {
    /// Joins the segment at `path`, which is made where there is none.
    ///
    /// # Errors
    /// What stood against it.
    pub fn open(path: &Path, config: &Config, key: Option<Key>) -> Result<Self, Error> {
        let node = Node::join(path, config)?;
        node.set_job(job_of(key.as_ref()));
        let (ways, way_of, sources) = (Vec::new(), HashMap::new(), Sources::new(key));
        Ok(Self { node, key, ways, way_of, sources, refused: Vec::new(), packed: Lines::new() })
    }

    /// Its name in the segment.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        self.node.id()
    }

    /// The segment's number, for builds of one format: who says another cannot be reached.
    #[must_use]
    pub fn segment_id(&self) -> u64 {
        meeting(self.node.segment())
    }

    /// The presence behind it, for sleeping.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Leaves the segment. What was sent stays readable for those who live.
    pub fn close(self) {
        self.node.leave();
    }

    /// Ends as one that is killed.
    #[cfg(test)]
    pub(crate) fn die(self) {
        self.node.die();
    }

    /// The number of the way to another endpoint.
    pub fn way(&mut self, id: EndpointId) -> u32 {
        let seal = Seal::new(self.key.as_ref(), self.node.id(), id);
        *self.way_of.entry(id).or_insert_with(|| {
            self.ways.push(Way { id, writer: None, seal, gone: false });
            self.ways.len() as u32 - 1
        })
    }

    /// The writing end of a way, made where it is first needed.
    #[inline]
    fn ready(&mut self, way: u32) -> Result<(), Error> {
        let way = self.ways.get_mut(way as usize).ok_or(Error::Invalid)?;
        if way.gone {
            return Err(Error::Gone);
        }
        if way.writer.is_some() { Ok(()) } else { connect(&self.node, way) }
    }

    /// Is there room for the longest message?
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::NoMemory`].
    pub fn has_room(&mut self, way: u32) -> Result<bool, Error> {
        self.ready(way)?;
        let way = &mut self.ways[way as usize];
        let room = way
            .writer
            .as_mut()
            .map_or(Ok(false), |writer| writer.has_room(self.node.segment(), LONGEST));
        room.map_err(|Corrupt| lost(way))
    }

    /// Sends a message whose parts are these.
    ///
    /// # Errors
    /// [`Error::Again`] where there is no room, [`Error::TooLong`], [`Error::Gone`],
    /// [`Error::NoMemory`].
    ///
    /// # Safety
    /// Each part is readable for its length.
    #[inline]
    pub unsafe fn send(
        &mut self,
        way: u32,
        handler: u8,
        parts: &[(*const u8, usize)],
    ) -> Result<(), Error> {
        let len = parts.iter().try_fold(0usize, |sum, (_, len)| sum.checked_add(*len));
        let len = len.filter(|len| *len <= LONGEST && handler < HANDLERS).ok_or(Error::TooLong)?;
        self.ready(way)?;
        let (node, way) = (&self.node, &mut self.ways[way as usize]);
        let Some(writer) = way.writer.as_mut() else { return Err(Error::Gone) };
        let mut frame = Frame { kind: Kind::Active, flags: handler, words: [0; 3] };
        let put = if way.seal.is_set() {
            // Sealed where nobody else can write.
            let mut at = 0;
            for &(from, len) in parts {
                // SAFETY: the caller's promise; all parts together are no longer than the memory.
                unsafe { std::ptr::copy_nonoverlapping(from, self.packed.at().add(at), len) };
                at += len;
            }
            frame.words = way.seal.words(
                writer.position(),
                frame.head(len, writer.position()),
                self.packed.bytes(len),
            );
            let packed = std::iter::once((self.packed.at().cast_const(), len));
            // SAFETY: the memory has as many bytes.
            unsafe { writer.put(node.segment(), &frame, len, packed) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { writer.put(node.segment(), &frame, len, parts.iter().copied()) }
        };
        sent(node, way, put)
    }

    /// Sends a message that `pack` writes: to where it is told, as many bytes as it says, at most
    /// [`LONGEST`]. It is not called where there is no room. Gives the message's length.
    ///
    /// # Errors
    /// As for [`Self::send`].
    ///
    /// # Safety
    /// `pack` writes no more than that.
    pub unsafe fn send_packed(
        &mut self,
        way: u32,
        handler: u8,
        pack: impl FnOnce(*mut u8) -> usize,
    ) -> Result<usize, Error> {
        if !self.has_room(way)? {
            return Err(Error::Again);
        }
        let (node, way) = (&self.node, &mut self.ways[way as usize]);
        let Some(writer) = way.writer.as_mut() else { return Err(Error::Gone) };
        let mut frame = Frame { kind: Kind::Active, flags: handler, words: [0; 3] };
        if !way.seal.is_set()
            && let Some(place) = writer.place(LONGEST)
        {
            let len = pack(place).min(LONGEST);
            writer.publish(&frame, len);
            node.wake(way.id);
            return Ok(len);
        }
        let len = pack(self.packed.at()).min(LONGEST);
        frame.words = way.seal.words(
            writer.position(),
            frame.head(len, writer.position()),
            self.packed.bytes(len),
        );
        let packed = std::iter::once((self.packed.at().cast_const(), len));
        // SAFETY: the memory has as many bytes.
        let put = unsafe { writer.put(node.segment(), &frame, len, packed) };
        sent(node, way, put).map(|()| len)
    }

    /// Takes the next message that has come.
    #[inline]
    pub fn take(&mut self) -> Option<Taken> {
        loop {
            match self.sources.take(&self.node) {
                Ok(taken) => return taken,
                Err(refused) => self.give_up(refused),
            }
        }
    }

    /// A ring is not read any more. What its writer sent before was its own: then that one is given
    /// up, too.
    #[cold]
    fn give_up(&mut self, refused: Refused) {
        if let Refused::Peer(writer) = refused
            && let Some(way) = self.way_of.get(&writer)
        {
            self.ways[*way as usize].gone = true;
        }
        self.refused.push(refused);
    }

    /// What is not taken any more; told once. To a [peer](Refused::Peer) of whom nothing is taken,
    /// and to one that [takes nothing](Refused::Own), nothing is sent any more either.
    #[inline]
    pub fn refused(&mut self) -> Option<Refused> {
        self.refused.pop()
    }

    /// Has something come?
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.sources.have_news(&self.node)
    }

    /// Is the endpoint at the end of this way gone?
    #[must_use]
    pub fn is_gone(&self, way: u32) -> bool {
        self.ways.get(way as usize).is_none_or(|way| way.gone)
    }

    /// Gives back what the dead shared with this endpoint.
    #[cold]
    pub fn look_for_the_dead(&mut self) {
        for way in &mut self.ways {
            if !way.gone && way.writer.as_ref().is_some_and(|writer| writer.is_refused(&self.node))
            {
                way.gone = true;
                self.refused.push(Refused::Own(way.id));
            }
            way.gone |= way.writer.is_some() && !self.node.lives(way.id);
            // Where the lock is not to be had the ring is kept, for the next look.
            if way.gone
                && way.writer.is_some()
                && let Some(guard) = self.node.guard_now()
                && let Some(writer) = way.writer.take()
            {
                release_writer(&guard, &self.node, &writer);
            }
        }
        self.sources.forget_the_dead(&self.node);
    }

    /// Nothing came: what the caller does now. `idle` may be shared by several ends of one thread.
    #[inline]
    pub fn rest(&mut self, idle: &mut Idle) -> Rest {
        if idle.is_time() {
            self.look_for_the_dead();
            idle.set_crowded(self.node.is_crowded());
        }
        idle.rest()
    }
}

#[cold]
fn connect(node: &Node, way: &mut Way) -> Result<(), Error> {
    let guard = node.guard()?;
    let writer = Writer::connect(&guard, node, way.id, RING);
    way.gone = writer.as_ref().err() == Some(&Error::Gone);
    let writer = writer?;
    debug_assert!(writer.most() >= LONGEST && RING >= 4 * (LONGEST + WORDS) as u64 + LINE);
    way.writer = Some(writer);
    Ok(())
}

#[cold]
fn lost(way: &mut Way) -> Error {
    way.gone = true;
    Error::Gone
}

#[inline]
fn sent(node: &Node, way: &mut Way, put: Result<bool, Corrupt>) -> Result<(), Error> {
    match put {
        Ok(true) => {
            node.wake(way.id);
            Ok(())
        }
        Ok(false) => Err(Error::Again),
        Err(Corrupt) => Err(lost(way)),
    }
}

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod tests;
