//! Objects that another library lays out and trusts: iceoryx2's concepts, for `ginnel-iceoryx2`.
//! Not part of this crate's interface.
//!
//! Names, owners, uses and what becomes of the dead are those of every named object
//! ([`crate::object`], [`crate::presence`]). What lies in the pages is the other library's, which
//! uses it in place: it trusts everybody in the segment.
//!
//! Names of that library are paths, longer than the table has room for. An object is found by a
//! short form of its path ([`short`]), and says the whole path itself.
//!
//! | offset | what stands in an object's first page, behind [`crate::object`]'s words |
//! |---|---|
//! | 0x40 | its stage (bits 60–63) and the party that put it there (0–42) |
//! | 0x48 | bytes of its path |
//! | 0x50 | first page of what it was given to carry ([`Part::load`]) |
//! | 0x58 | bytes of that |
//! | 0x80 … | its path |
//!
//! A stage names its party, so that what a process left half made when it died is told from what
//! another is making: whoever meets it takes its name away.

mod bell;
mod fork;
mod look;

pub use bell::{Bell, hangs, ring};
pub use look::{list, look, remove};

use crate::layout::{LOAD, LOAD_LEN};
use crate::object::{Object, Shape};
use crate::presence::Presence;
use crate::raw::Area;
use crate::{Error, Keep, Kind, Result, Segment};
use ginnel_region::sys::ReadOnly;
use ginnel_region::{Extent, PAGE, Party, Untrusted};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const STATE: usize = 0x40;
const PATH_LEN: usize = 0x48;
const PATH: usize = 0x80;
/// Bytes that a path has at most.
pub const MOST_PATH: usize = PAGE as usize - PATH;
const STAGE_AT: u32 = 60;
/// How often a name is tried anew that comes and goes.
const TRIES: u32 = 100;

/// How far an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its maker is writing it.
    Making,
    /// It is made, whoever lives.
    Made,
    /// A living process holds it: it lasts as long as that does.
    Held,
    /// Who held it left it without taking its name away.
    Left,
    /// A process clears up after the one that held it.
    Clearing,
    /// It is made, and goes with the process that made it, until that says otherwise: what belongs
    /// to it may not be there yet, or not any more.
    Owned,
}

impl Stage {
    fn of(word: u64) -> Option<Self> {
        match word >> STAGE_AT {
            1 => Some(Self::Making),
            2 => Some(Self::Made),
            3 => Some(Self::Held),
            4 => Some(Self::Left),
            5 => Some(Self::Clearing),
            6 => Some(Self::Owned),
            _ => None,
        }
    }

    fn word(self, party: Party) -> u64 {
        (self as u64 + 1) << STAGE_AT | party.bits()
    }
}

/// A stage as it was seen, and whether the party that put it there lives.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    word: u64,
    /// The stage; `None` is nonsense, which somebody wrote there.
    pub stage: Option<Stage>,
    /// The party that put it there lives.
    pub lives: bool,
}

impl Seen {
    fn of(presence: &Presence, word: u64) -> Self {
        let lives = Party::of(word).is_some_and(|party| presence.lives(party));
        Self { word, stage: Stage::of(word), lives }
    }

    /// Did its maker die before it was made, or its owner?
    #[must_use]
    pub fn is_ruin(&self) -> bool {
        matches!(self.stage, Some(Stage::Making | Stage::Owned)) && !self.lives
    }
}

/// An object of the other library, in use by this process.
pub struct Part {
    object: Object,
    /// None where it was made with none.
    body: Option<Area>,
    view: Option<ReadOnly>,
    _used: Option<fork::Used>,
}

/// Another library's way to make one.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Bytes of its body, which is zeroed and begins at a page; 0: it has none.
    pub size: u64,
    /// What must be the same for whoever opens it: version, size and alignment, say.
    pub numbers: [u64; 3],
    /// The stage in which others find it.
    pub stage: Stage,
}

/// The name in the table of what has this path: the file's own, behind what tells its directory,
/// and without its middle where that is too long.
#[must_use]
pub fn short(path: &[u8]) -> String {
    let at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let (directory, file) = path.split_at(at);
    let directory = hash(directory, 0) as u32;
    let file = String::from_utf8_lossy(file);
    let name = format!("{directory:08x}/{file}");
    if name.len() <= ginnel_region::names::NAME_LEN {
        return name;
    }
    let cut = |at: usize| (0..=at).rev().find(|&at| file.is_char_boundary(at)).unwrap_or(0);
    let end = (file.len() - 24..file.len()).find(|&at| file.is_char_boundary(at));
    let (begins, ends) = (&file[..cut(24)], &file[end.unwrap_or(file.len())..]);
    format!("{directory:08x}/{begins}~{:016x}{:016x}~{ends}", hash(path, 1), hash(path, 2))
}

/// FNV-1a of 64 bits with a mixing step, begun at a number of choice. Two paths with one short form
/// are told apart by the whole path: one of them is then refused.
fn hash(bytes: &[u8], begin: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ begin.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = |hash: u64| (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = bytes
        .iter()
        .fold(start, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    mixed(mixed(hash))
}

impl Part {
    /// Makes an object under a path that nobody has, or only a maker that died had.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::SegmentFull`], [`Error::NamesFull`], [`Error::TooManyObjects`]
    /// and others.
    pub fn create(segment: &Segment, path: &[u8], plan: &Plan) -> Result<Self> {
        if path.len() > MOST_PATH {
            return Err(Error::Name { len: path.len() });
        }
        let name = short(path);
        let (size, numbers, keep) = (plan.size, plan.numbers, Keep::UntilRemoved);
        let shape = Shape { kind: Kind::Iceoryx2, size, pages: size.div_ceil(PAGE), numbers, keep };
        let presence = &segment.inner.presence;
        let fill = |words: Area, _: Option<Area>| {
            words.word(PATH_LEN).store(path.len() as u64, Relaxed);
            words.copy_in(PATH, path);
            words.word(STATE).store(plan.stage.word(presence.party()), Release);
        };
        for _ in 0..TRIES {
            match Object::create(segment.inner, &name, &shape, fill) {
                Err(Error::Taken { .. }) if clear_ruin(segment, &name) => {}
                made => return Self::of(made?),
            }
        }
        Err(Error::Busy { name })
    }

    /// Opens what is there under a path.
    ///
    /// # Errors
    /// [`Error::NotFound`], also where its maker died; [`Error::WrongKind`], [`Error::Corrupt`],
    /// [`Error::TooManyObjects`] and others.
    pub fn open(segment: &Segment, path: &[u8]) -> Result<Self> {
        let name = short(path);
        let part = Self::of(Object::open(segment.inner, &name, Kind::Iceoryx2)?)?;
        if part.seen().is_ruin() {
            part.remove();
            return Err(Error::NotFound { name });
        }
        if part.path().as_deref() == Some(path) { Ok(part) } else { Err(Error::NotFound { name }) }
    }

    fn of(object: Object) -> Result<Self> {
        let body = object.body();
        if body.map_or(0, |body| body.len() as u64) < object.size {
            return Err(object.corrupt());
        }
        let extent = Extent { page: object.head.page() + 1, pages: object.pages - 1 };
        let used = body.map(|_| fork::Used::new(object.inner, extent));
        Ok(Self { object, body, view: None, _used: used })
    }

    fn path(&self) -> Option<Vec<u8>> {
        path_of(self.object.words)
    }

    fn presence(&self) -> &Presence {
        self.object.presence()
    }

    /// What it was made with.
    #[must_use]
    pub fn numbers(&self) -> [u64; 3] {
        self.object.numbers
    }

    /// Bytes of its body that were asked for.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.object.size
    }

    /// Where its body lies in this process, for as long as this value lives: pages that every
    /// process of the segment can write, at an address that is another one in each. Null where it
    /// has none.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        let body = self.body.map_or(std::ptr::null_mut(), Area::as_ptr);
        self.view.as_ref().map_or(body, ReadOnly::as_ptr)
    }

    /// Gives an object without a body bytes to carry, once. Who opens it sees them as soon as its
    /// stage says so.
    ///
    /// # Errors
    /// [`Error::SegmentFull`], [`Error::NoMemory`], [`Error::Lost`].
    pub fn load(&self, bytes: &[u8]) -> Result<()> {
        self.presence().check()?;
        let words = self.object.words;
        if !bytes.is_empty() {
            let pages = (bytes.len() as u64).div_ceil(PAGE);
            let full = Error::SegmentFull { bytes: bytes.len() as u64 };
            let extent = self.object.claim(u32::try_from(pages).map_err(|_| full)?)?;
            let area = Area::new(self.presence().segment(), extent.offset(), pages * PAGE);
            area.ok_or(Error::Lost)?.copy_in(0, bytes);
            // Where it dies here, the pages go with this process; and behind it, with the object.
            self.object.hand_over(extent)?;
            words.word(LOAD).store(u64::from(extent.page), Relaxed);
        }
        words.word(LOAD_LEN).store(bytes.len() as u64, Release);
        Ok(())
    }

    /// Bytes that it was given to carry.
    #[must_use]
    pub fn load_len(&self) -> u64 {
        self.object.words.word(LOAD_LEN).load(Acquire)
    }

    /// Copies out what it was given to carry.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Lost`], [`Error::Gone`].
    pub fn carried(&self) -> Result<Vec<u8>> {
        let segment = self.presence().segment();
        let len = Untrusted::new(self.load_len()).at_most(segment.len());
        let len = len.map_err(|_| self.object.corrupt())?;
        let page = u32::try_from(self.object.words.word(LOAD).load(Relaxed)).unwrap_or(0);
        if len == 0 {
            return Ok(Vec::new());
        }
        let extent = Extent { page, pages: u32::try_from(len.div_ceil(PAGE)).unwrap_or(u32::MAX) };
        let own = segment.is_of_group(extent, self.object.head.page());
        let area = Area::new(segment, extent.offset(), len).filter(|_| own);
        let mut bytes = Vec::new();
        area.ok_or_else(|| self.object.corrupt())?.append_to(&mut bytes);
        Ok(bytes)
    }

    /// Has [`Self::as_ptr`] lie in pages that this process cannot write, where the segment is a
    /// file of this kernel. False where it is not.
    pub fn look_only(&mut self) -> bool {
        let pages = self.object.pages - 1;
        let body = Extent { page: self.object.head.page() + 1, pages };
        self.view = self.presence().segment().map_read_only(body);
        self.view.is_some()
    }

    /// Its stage.
    #[must_use]
    pub fn seen(&self) -> Seen {
        // Acquire pairs with the Release of `put` and `change`.
        Seen::of(self.presence(), self.object.words.word(STATE).load(Acquire))
    }

    /// Puts it into a stage, in this process's name. What was written before is seen by whoever
    /// sees that. A child of fork leaves its parent's as it is.
    pub fn put(&self, stage: Stage) {
        if self.presence().check().is_err() {
            return;
        }
        self.object.words.word(STATE).store(stage.word(self.presence().party()), Release);
    }

    /// The same, unless it is no longer as it was seen. True where it was.
    #[must_use]
    pub fn change(&self, seen: Seen, stage: Stage) -> bool {
        let word = stage.word(self.presence().party());
        self.presence().check().is_ok()
            && self
                .object
                .words
                .word(STATE)
                .compare_exchange(seen.word, word, AcqRel, Relaxed)
                .is_ok()
    }

    /// It no longer goes with whoever owns it. One that is still being made stays so.
    pub fn keep(&self) {
        let seen = self.seen();
        if seen.stage == Some(Stage::Owned) {
            let _ = self.change(seen, Stage::Made);
        }
    }

    /// Takes its name away: it is freed when nobody uses it. False where somebody else did before.
    pub fn remove(&self) -> bool {
        self.presence().check().is_ok() && self.object.remove()
    }

    /// Is this process still who it was when it opened the object, and the segment there?
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::Lost`], [`Error::Gone`].
    pub fn check(&self) -> Result<()> {
        self.presence().check_all()
    }
}

/// Takes the name from what a dead process left half made. True where the name may be free now.
fn clear_ruin(segment: &Segment, name: &str) -> bool {
    match Object::open(segment.inner, name, Kind::Iceoryx2).and_then(Part::of) {
        Ok(part) => part.seen().is_ruin() && (part.remove() || !part.object.is_named()),
        // It went meanwhile.
        Err(Error::NotFound { .. }) => true,
        Err(_) => false,
    }
}

fn path_of(words: Area) -> Option<Vec<u8>> {
    let len = Untrusted::new(words.word(PATH_LEN).load(Acquire)).at_most(MOST_PATH as u64).ok()?;
    let mut path = vec![0; len as usize];
    words.copy_out(PATH, &mut path);
    Some(path)
}

/// Have other kernels this segment, too?
#[must_use]
pub fn is_between_machines(segment: &Segment) -> bool {
    segment.inner.presence.segment().source() != ginnel_region::Source::File
}

/// Frees what the dead left in the segment.
pub fn sweep(segment: &Segment) {
    if segment.inner.presence.check().is_ok() {
        segment.inner.presence.sweep();
    }
}
