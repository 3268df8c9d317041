//! Operations: what is asked for, what waits for its other end, and what the owner is told.

use crate::layout::EndpointId;
use crate::matching::{Buffers, Place, Token};

/// What an event tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A message was sent; with a tag?
    Send(bool),
    /// A message was received; with a tag?
    Receive(bool),
    /// Another's memory was written.
    Write,
    /// Another's memory was read.
    Read,
    /// An operation was applied to another's memory.
    Change,
    /// The same, and what was there before has come.
    Fetch,
    /// Another wrote to this endpoint's memory, and left data.
    Written,
}

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The message was longer than its place, by so many bytes.
    Truncated(usize),
    /// It was taken back.
    Cancelled,
    /// No message was there.
    NoMessage,
    /// The other end is gone, or wrote what makes no sense.
    Gone,
    /// The other end has no such memory, or not for this.
    Refused,
}

/// An operation has ended.
#[derive(Debug, Clone)]
pub struct Event {
    /// Which.
    pub kind: EventKind,
    /// What the caller calls it by.
    pub token: Token,
    /// Bytes that were received.
    pub len: usize,
    /// Where they lie.
    pub at: usize,
    /// What the sender left for the completion.
    pub data: Option<u64>,
    /// The message's tag.
    pub tag: u64,
    /// Whose it was.
    pub from: EndpointId,
    /// It failed.
    pub failure: Option<Failure>,
    /// The receive of several messages takes no more: its memory is the caller's again.
    pub last: bool,
    /// The caller wants to hear of it also where it went well.
    pub report: bool,
}

impl Event {
    pub(crate) fn new(kind: EventKind, token: Token, report: bool) -> Self {
        let from = EndpointId(0);
        Self {
            kind,
            token,
            len: 0,
            at: 0,
            data: None,
            tag: 0,
            from,
            failure: None,
            last: false,
            report,
        }
    }

    /// To be told in any case.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.report || self.failure.is_some() || self.last
    }
}

/// What is to be sent.
#[derive(Debug, Clone)]
pub struct Message {
    /// `None`: without a tag.
    pub tag: Option<u64>,
    /// Left for the receiver's completion.
    pub data: Option<u64>,
    /// Where it lies.
    pub buffers: Buffers,
    /// What the caller calls it by.
    pub token: Token,
    /// The caller wants to hear of its end.
    pub report: bool,
    /// The end is when it has been received.
    pub delivered: bool,
}

/// What waits for its other end.
pub(crate) enum Request {
    /// Only for that one's word that it is done.
    Done(Sent),
    /// A message that was offered.
    Offered(Sent, Buffers),
    /// A message of which pieces go out.
    Pieces { sent: Sent, buffers: Buffers, theirs: u64, at: usize, end: usize },
    /// A message that was taken, of which pieces come in.
    Receiving(Box<Receiving>),
    /// A write of which pieces go out.
    Writing { sent: Sent, buffers: Buffers, key: u64, address: u64, data: Option<u64>, at: usize },
    /// Bytes that were asked for.
    Reading { sent: Sent, buffers: Buffers, got: usize },
    /// Bytes that another asked for, out of registered memory.
    Giving { to: u32, theirs: u64, key: u64, address: u64, at: usize, end: usize },
}

/// Whose operation a request is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub to: u32,
    pub token: Token,
    pub report: bool,
    pub kind: EventKind,
    pub delivered: bool,
}

pub(crate) struct Receiving {
    pub from: EndpointId,
    pub place: Place,
    pub tagged: bool,
    pub tag: u64,
    pub data: Option<u64>,
    /// Bytes of the message, of it that are wanted, that are there.
    pub len: usize,
    pub wanted: usize,
    pub got: usize,
    /// The sender's request, if it wants to hear.
    pub acknowledge: Option<u64>,
    pub back: u32,
}
