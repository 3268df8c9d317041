//! Where active messages come from: the rings that others write to this endpoint.
//!
//! A message is copied out of the ring before its seal is checked, and the copy is handed on. One
//! without a seal, of a job that trusts whoever has the segment, is handed on where it lies if it is
//! long: then its place in the ring is given back with the next look. A ring whose message makes no
//! sense, or has a wrong seal, is not read any more, and its writer is told so: a rank whose first
//! message was garbled would wait for ever otherwise.
//!
//! A seal says whose message it is and at which position. So whoever may write the segment could
//! show what a rank sent once more, in a ring that it calls that rank's, too. A rank has one ring
//! to this endpoint for its life: the ring with its first good message is that one, and every other
//! is refused, also when that one is gone.

use super::{HANDLERS, LONGEST};
use crate::frame::Kind;
use crate::layout::EndpointId;
use crate::node::Node;
use crate::pair::{Got, Reader};
use crate::seal::{Key, Seal};
use ginnel_region::Corrupt;
use std::collections::HashSet;

/// Messages longer than this are not copied for nothing.
const LONG: usize = 1024;
/// How many messages of one peer are taken before the next peer's.
const TURN: u32 = 16;

/// Where messages come from.
struct Source {
    reader: Reader,
    seal: Seal,
    /// It wrote what makes no sense.
    broken: bool,
    /// It wrote a message with a right seal.
    proven: bool,
}

/// A message that was taken. It stays where it lies until the next one is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Its handler's number.
    pub handler: u8,
    /// Where it lies.
    pub at: *mut u8,
    /// Its bytes.
    pub len: usize,
}

/// Messages of one end that another one does not take any more, since one made no sense or had a
/// wrong seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// This end takes no more of that one, which sent good messages before.
    Peer(EndpointId),
    /// This end takes no more of a ring that says it is that one's. There was nothing good in it:
    /// it may be anybody's.
    Stranger(EndpointId),
    /// That one takes no more of this end.
    Own(EndpointId),
}

/// All rings that this endpoint reads.
pub struct Sources {
    key: Option<Key>,
    all: Vec<Source>,
    entered: u64,
    /// Whoever wrote a message with a right seal, in a ring that is read or was.
    heard: HashSet<EndpointId>,
    /// The source that is looked at next, and how many messages of it were taken in a row.
    next: usize,
    turn: u32,
    taken: Lines,
    /// What was handed on where it lies: its source, and the frame.
    lent: Option<(usize, Got)>,
}

/// Memory for one message, which begins on a cache line.
pub struct Lines(Box<[[u64; 8]]>);

impl Lines {
    pub fn new() -> Self {
        Self(vec![[0; 8]; LONGEST / 64].into_boxed_slice())
    }

    pub fn at(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    pub fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: words are bytes, and there are at least so many.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), len.min(LONGEST)) }
    }
}

impl Sources {
    pub fn new(key: Option<Key>) -> Self {
        Self {
            key,
            all: Vec::new(),
            entered: 0,
            heard: HashSet::new(),
            next: 0,
            turn: 0,
            taken: Lines::new(),
            lent: None,
        }
    }

    /// Takes the next message that has come.
    ///
    /// # Errors
    /// A writer that is not heard any more. There may be messages of others.
    #[inline]
    pub fn take(&mut self, node: &Node) -> Result<Option<Taken>, Refused> {
        self.give_back(node);
        if node.entered() != self.entered {
            self.take_entries(node);
        }
        for _ in 0..=self.all.len() {
            if self.turn >= TURN || self.next >= self.all.len() {
                self.next = if self.next + 1 < self.all.len() { self.next + 1 } else { 0 };
                self.turn = 0;
            }
            if let Some(taken) = self.take_from(self.next, node)? {
                self.turn += 1;
                return Ok(Some(taken));
            }
            self.turn = TURN;
        }
        Ok(None)
    }

    #[inline]
    fn take_from(&mut self, at: usize, node: &Node) -> Result<Option<Taken>, Refused> {
        let Some(source) = self.all.get_mut(at).filter(|source| !source.broken) else {
            return Ok(None);
        };
        let mut found = copy_out(source, &mut self.taken);
        if !source.proven && matches!(found, Ok(Some(_))) {
            // The one ring of its writer, or a copy of it?
            source.proven = !source.seal.is_set() || self.heard.insert(source.reader.writer());
            if !source.proven {
                found = Err(Corrupt);
            }
        }
        let Ok(found) = found else {
            source.broken = true;
            source.reader.refuse(node);
            let writer = source.reader.writer();
            return Err(if source.proven {
                Refused::Peer(writer)
            } else {
                Refused::Stranger(writer)
            });
        };
        let Some((taken, got)) = found else { return Ok(None) };
        if taken.at == self.taken.at() {
            pass(source, node, &got);
        } else {
            self.lent = Some((at, got));
        }
        Ok(Some(taken))
    }

    /// Nobody looks at the message any more that was taken last.
    #[inline]
    fn give_back(&mut self, node: &Node) {
        if let Some((at, got)) = self.lent.take()
            && let Some(source) = self.all.get_mut(at)
        {
            pass(source, node, &got);
        }
    }

    #[cold]
    fn take_entries(&mut self, node: &Node) {
        self.entered = node.entered();
        let is_known = |page| self.all.iter().any(|source| source.reader.page() == page);
        for reader in Reader::entered(node, is_known) {
            let seal = Seal::new(self.key.as_ref(), reader.writer(), node.id());
            self.all.push(Source { reader, seal, broken: false, proven: false });
        }
    }

    /// Has something come?
    pub fn have_news(&self, node: &Node) -> bool {
        let unread = |source: &Source| !source.broken && source.reader.has_news();
        node.entered() != self.entered || self.all.iter().any(unread)
    }

    /// Gives back rings whose writers have let go, or died, once they are empty.
    #[cold]
    pub fn forget_the_dead(&mut self, node: &Node) {
        self.give_back(node);
        let mut at = 0;
        while at < self.all.len() {
            let source = &self.all[at];
            let empty = source.broken || !source.reader.has_news();
            if empty
                && source.reader.is_left(node)
                && let Some(guard) = node.guard_now()
            {
                let gone = self.all.swap_remove(at);
                gone.reader.release(&guard, node);
            } else {
                at += 1;
            }
        }
    }
}

/// Done with a message.
#[inline]
fn pass(source: &mut Source, node: &Node, got: &Got) {
    if source.reader.advance(node.segment(), got) {
        // The writer may sleep until there is room.
        node.wake(source.reader.writer());
    }
}

/// Copies a source's next message out, if there is one, and checks it.
#[inline]
fn copy_out(source: &Source, to: &mut Lines) -> Result<Option<(Taken, Got)>, Corrupt> {
    let Some(got) = source.reader.look()? else { return Ok(None) };
    if got.frame.kind != Kind::Active || got.frame.flags >= HANDLERS || got.len > LONGEST {
        return Err(Corrupt);
    }
    let taken = |at| Taken { handler: got.frame.flags, at, len: got.len };
    if got.len > LONG
        && !source.seal.is_set()
        && let Some(at) = source.reader.place(&got)
    {
        return Ok(Some((taken(at), got)));
    }
    // SAFETY: the memory has as many bytes.
    unsafe { source.reader.copy_out(&got, 0, to.at(), got.len) };
    let position = source.reader.position();
    let (head, bytes) = (got.frame.head(got.len, position), to.bytes(got.len));
    if !source.seal.is_right(got.frame.words, position, head, bytes) {
        return Err(Corrupt);
    }
    Ok(Some((taken(to.at()), got)))
}
