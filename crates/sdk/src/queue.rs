//! Queues: messages from one or many senders to one receiver, in buffers that are lent.
//!
//! Each sender has a *lane* of its own: a ring of cells, and buffers that the cells name by number.
//! One party writes a lane's messages, one reads them, so neither can be held up by a third; what a
//! hostile sender does, it does to its own lane.
//!
//! | offset | what stands in a queue's first page |
//! |---|---|
//! | 0x28 | cells of a lane, a power of two up to 1024 (bits 0–31); buffers beyond that (32–63) |
//! | 0x30 | bytes of the largest message |
//! | 0x38 | lanes, 1 to 64 |
//! | 0x40 | the party that receives; bit 63: it has left |
//! | 0x80 | the receiver's wish to be woken |
//! | 0xc0 | one bit for each lane that ever was in use |
//! | 0x400 … | the lanes, 32 bytes each: the party that sends, its pages ([`pages`]), its wish to be woken |
//!
//! A lane's pages hold its cells, one word for the state of each buffer, then the buffers; each
//! cell and each state lies in a cache line of its own. A position counts the messages of a lane;
//! the cell of position *p* is number *p* modulo the cells, in *turn* *p* divided by them.
//!
//! | cell | the rest of the word | who goes on |
//! |---|---|---|
//! | empty in turn *t* | | the sender, at the position of this turn |
//! | full in turn *t* | buffer, bytes | the receiver, which makes it empty in turn *t* + 1; or the sender, to drop it |
//! | dropped in turn *t* + 1 | buffer | as empty: the buffer is the sender's again |
//!
//! | buffer's state | whose it is |
//! |---|---|
//! | free | the sender's, to lend |
//! | lent | the sender's: it is being written |
//! | sent at position *p* | in its cell; where that has moved on, the receiver's, which reads it |
//!
//! Each change is one store or exchange of one word by the one party whose turn it is, so that
//! whoever takes a dead one's place finds from the words alone what it had: a new sender frees what
//! was lent or dropped, a new receiver what was taken. `tests/queue_model.rs` walks every run of
//! it, with a death at each step.

mod incoming;
mod lane;
mod lanes;
mod layout;
mod loan;
mod message;
mod pages;
mod recv;
mod send;

pub use loan::Loan;
pub use message::Message;
pub(crate) use message::MessageParts;
pub use recv::Receiver;
pub use send::Sender;

use crate::object::{self, Object, Shape};
use crate::raw::Area;
use crate::{Error, Keep, Kind, Result, Segment};
use layout::{Geometry, MOST_CELLS, MOST_LANES, MOST_LEN, MOST_LOANS, WANT_DATA, want_space_at};
use std::sync::atomic::AtomicU64;

/// The words of a queue's first page in which its receiver and its senders ask to be woken.
pub(crate) fn wishes(page: Area) -> impl Iterator<Item = &'static AtomicU64> {
    let lanes = (0..MOST_LANES).map(want_space_at);
    std::iter::once(WANT_DATA).chain(lanes).map(move |at| page.word(at))
}

/// What a sender does where its lane is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenFull {
    /// Waits for room.
    #[default]
    Wait,
    /// Says [`Error::WouldBlock`].
    Refuse,
    /// Throws away the oldest message of its own that was not taken yet.
    DropOldest,
}

/// What a queue is made with.
///
/// ```
/// # let directory = ginnel::testing::directory();
/// use ginnel::{Queue, Receiver, Segment, Sender};
/// let segment = Segment::open("example")?;
/// Queue::new().capacity(4).message_size(64).create(&segment, "orders")?;
/// let receiver = Receiver::open(&segment, "orders")?;
/// let sender = Sender::open(&segment, "orders")?;
/// sender.send(b"one")?;
/// assert_eq!(receiver.recv()?.to_vec(), b"one");
/// # drop(directory);
/// # Ok::<(), ginnel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Queue {
    cells: u32,
    message: u64,
    senders: u32,
    loans: u32,
    keep: Keep,
}

impl Default for Queue {
    fn default() -> Self {
        Self { cells: 64, message: 4096, senders: 16, loans: 4, keep: Keep::UntilRemoved }
    }
}

impl Queue {
    /// For 64 messages of a sender at once, each of at most 4096 bytes, from up to 16 senders.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// So many messages of each sender wait at most: 1 to 1024, rounded up to a power of two.
    #[must_use]
    pub fn capacity(mut self, messages: u32) -> Self {
        self.cells = messages;
        self
    }

    /// Bytes of the largest message: at most 1 GiB. Each sender takes memory for as many of these
    /// as wait at most, and for the loans.
    #[must_use]
    pub fn message_size(mut self, bytes: u64) -> Self {
        self.message = bytes;
        self
    }

    /// So many senders at most at a time: 1 to 64. With 1, it is a queue from one to one.
    #[must_use]
    pub fn senders(mut self, most: u32) -> Self {
        self.senders = most;
        self
    }

    /// So many messages of one sender may the receiver hold at a time: 1 to 1024.
    #[must_use]
    pub fn loans(mut self, most: u32) -> Self {
        self.loans = most;
        self
    }

    /// How long the queue keeps its name.
    #[must_use]
    pub fn keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// Makes the queue.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::Invalid`] for measures that no queue can have, and others.
    pub fn create(&self, segment: &Segment, name: &str) -> Result<()> {
        let geometry = self.geometry()?;
        let shape = Shape {
            kind: Kind::Queue,
            size: geometry.bytes(),
            pages: 0,
            numbers: geometry.numbers(),
            keep: self.keep,
        };
        Object::create(segment.inner, name, &shape, |_, _| {}).map(drop)
    }

    /// Makes the queue, where it is not there.
    ///
    /// # Errors
    /// [`Error::WrongShape`] where it was made with other measures, else as [`Self::create`].
    pub fn open_or_create(&self, segment: &Segment, name: &str) -> Result<()> {
        let open = || self.same_as(&Object::open(segment.inner, name, Kind::Queue)?);
        object::open_or_create(name, || self.create(segment, name), open)
    }

    pub(crate) fn same_as(&self, object: &Object) -> Result<()> {
        let (ours, theirs) = (self.geometry()?, Geometry::of(object)?);
        // Where it is another one, what was asked for is said, and not what that is rounded to.
        let same = ours.cells == theirs.cells;
        let cells = if same { ours.cells } else { self.cells }.into();
        let pairs = [
            ("capacity", theirs.cells.into(), cells),
            ("message size", theirs.message, ours.message),
            ("senders", theirs.lanes.into(), ours.lanes.into()),
            ("loans", theirs.loans.into(), ours.loans.into()),
        ];
        let name = || object.name.clone();
        let wrong = pairs.into_iter().find(|(_, is, wanted)| is != wanted);
        wrong.map_or(Ok(()), |(what, is, wanted)| {
            Err(Error::WrongShape { name: name(), what, is, wanted })
        })
    }

    fn geometry(&self) -> Result<Geometry> {
        let cells = self.cells.checked_next_power_of_two().unwrap_or(u32::MAX);
        let Self { message, senders: lanes, loans, .. } = *self;
        let within = |what: &str, is: u64, most: u64| {
            let what = format!("a queue's {what} is 1 to {most}, not {is}");
            if (1..=most).contains(&is) { Ok(()) } else { Err(Error::Invalid { what }) }
        };
        within("capacity", self.cells.into(), MOST_CELLS.into())?;
        within("message size", message, MOST_LEN)?;
        within("number of senders", lanes.into(), MOST_LANES.into())?;
        within("number of loans", loans.into(), MOST_LOANS.into())?;
        Ok(Geometry { cells, message, lanes, loans })
    }
}
