//! An endpoint: what its owner asks of it, and progress.

use crate::Error;
use crate::frame::{Frame, Kind, WORDS, flag};
use crate::idle::{Idle, Rest};
use crate::incoming::Incoming;
use crate::matching::{Buffers, Early, Matching, Place, Posted, Token};
use crate::memory::Memory;
use crate::node::{EndpointId, Node};
use crate::pair::{Writer, release_writer};
use crate::requests::Requests;
use ginnel_region::sys::Fd;
use ginnel_region::{Config, Corrupt, Segment};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::path::Path;

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
        Self { kind, token, len: 0, at: 0, data: None, tag: 0, from, failure: None, last: false, report }
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

/// Where frames to another endpoint go.
pub(crate) struct Outgoing {
    pub id: EndpointId,
    writer: Option<Writer>,
    /// Frames that had no room.
    pub outbox: VecDeque<(Frame, SmallVec<[u8; 32]>)>,
    pub wake: Option<Fd>,
    pub gone: bool,
    /// The owner has named it: it is no stranger.
    pub known: bool,
}

impl Outgoing {
    fn new(id: EndpointId) -> Self {
        Self { id, writer: None, outbox: VecDeque::new(), wake: None, gone: false, known: false }
    }

    /// Puts a frame whose payload is these buffers' `len` bytes from `from` on. Refused where this end is not connected.
    #[inline]
    fn put(
        &mut self,
        node: &Node,
        frame: &Frame,
        prefix: &[u8],
        buffers: &Buffers,
        from: usize,
        len: usize,
    ) -> Result<bool, Corrupt> {
        let writer = self.writer.as_mut().ok_or(Corrupt)?;
        let prefix_part = (!prefix.is_empty()).then_some((prefix.as_ptr(), prefix.len()));
        let parts = prefix_part.into_iter().chain(buffers.range(from, len).map(|(at, len)| (at.cast_const(), len)));
        // SAFETY: who asked for the operation promised that the buffers are readable until it ends, and the
        // callers here that they have `len` bytes from `from` on, within `most`.
        let done = unsafe { writer.put(node.segment(), frame, prefix.len() + len, parts) };
        match done {
            Ok(true) => node.wake(self.id, &mut self.wake),
            Ok(false) => {}
            Err(Corrupt) => self.gone = true,
        }
        done
    }
}

/// Sizes that matter for speed.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Bytes of a ring, a power of two of whole pages.
    pub ring: u64,
    /// Messages up to this many bytes are sent at once, longer ones once they are taken.
    pub eager: usize,
    /// Bytes of a piece of a longer one.
    pub piece: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { ring: 64 << 10, eager: 8 << 10, piece: 8 << 10 }
    }
}

/// One process's presence.
pub struct Endpoint {
    pub(crate) node: Node,
    tuning: Tuning,
    pub(crate) out: Vec<Outgoing>,
    out_of: HashMap<EndpointId, u32>,
    pub(crate) incoming: Vec<Incoming>,
    entered: u64,
    pub(crate) matching: Matching,
    pub(crate) requests: Requests<Request>,
    /// Requests of which pieces go out.
    pub(crate) pushing: VecDeque<u64>,
    /// Outboxes that are not empty.
    untold: usize,
    events: VecDeque<Event>,
    idle: Idle,
}

impl Endpoint {
    /// Joins the segment at `path`, which is made where there is none.
    ///
    /// # Errors
    /// What stood against it.
    pub fn open(path: &Path, config: &Config, tuning: Tuning) -> Result<Self, Error> {
        let node = Node::join(path, config)?;
        let mut idle = Idle::default();
        idle.count(node.count());
        Ok(Self {
            node,
            tuning,
            out: Vec::new(),
            out_of: HashMap::new(),
            incoming: Vec::new(),
            entered: 0,
            matching: Matching::default(),
            requests: Requests::default(),
            pushing: VecDeque::new(),
            untold: 0,
            events: VecDeque::new(),
            idle,
        })
    }

    /// Its name in the segment.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        self.node.id()
    }

    /// The segment's own number: names of another segment mean nothing here.
    #[must_use]
    pub fn segment_id(&self) -> u64 {
        self.node.segment().id()
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

    /// The number by which this endpoint calls another one from here on.
    pub fn peer(&mut self, id: EndpointId) -> u32 {
        let peer = self.peer_of(id);
        self.out[peer as usize].known = true;
        peer
    }

    pub(crate) fn peer_of(&mut self, id: EndpointId) -> u32 {
        *self.out_of.entry(id).or_insert_with(|| {
            self.out.push(Outgoing::new(id));
            self.out.len() as u32 - 1
        })
    }

    /// The ended operation that comes next.
    #[inline]
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    #[inline]
    pub(crate) fn tell_owner(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Makes the way to a peer where there is none yet, and looks whether it may be used now.
    #[inline]
    fn ready(&mut self, to: u32) -> Result<(), Error> {
        let out = self.out.get(to as usize).ok_or(Error::Invalid)?;
        if out.gone {
            return Err(Error::Gone);
        }
        if out.writer.is_none() {
            return self.connect(to);
        }
        if out.outbox.is_empty() { Ok(()) } else { Err(Error::Again) }
    }

    #[cold]
    fn connect(&mut self, to: u32) -> Result<(), Error> {
        let guard = self.node.guard()?;
        let out = &mut self.out[to as usize];
        let writer = Writer::connect(&guard, &self.node, out.id, self.tuning.ring);
        out.gone = writer.as_ref().err() == Some(&Error::Gone);
        let mut writer = writer?;
        writer_is_sound(&mut writer, self.tuning);
        out.writer = Some(writer);
        self.idle.count(self.node.count());
        Ok(())
    }

    /// The longest message, write or operand that goes at once.
    #[must_use]
    pub fn eager(&self) -> usize {
        self.tuning.eager.min(self.tuning.ring as usize / 2 - 2 * WORDS)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::Again`], [`Error::Gone`], [`Error::NoMemory`].
    ///
    /// # Safety
    /// The buffers stay readable until the event of its end; without one (`report` false and not
    /// `delivered`, at most [`Self::eager`] bytes) until this returns.
    #[inline]
    pub unsafe fn send(&mut self, to: u32, message: Message) -> Result<(), Error> {
        self.ready(to)?;
        let len = message.buffers.len();
        let Message { tag, data, token, report, delivered, .. } = message;
        let kind = EventKind::Send(tag.is_some());
        let sent = Sent { to, token, report, kind, delivered };
        let flags = if data.is_some() { flag::DATA } else { 0 } | if delivered { flag::ACKNOWLEDGE } else { 0 };
        let words = |request| [tag.unwrap_or(0), data.unwrap_or(0), request];
        if len > self.eager() {
            return self.offer(sent, flags, words, tag.is_some(), message.buffers);
        }
        let request = if delivered { self.requests.insert(Request::Done(sent)) } else { 0 };
        let kind = if tag.is_some() { Kind::Tagged } else { Kind::Message };
        let frame = Frame { kind, flags, words: words(request) };
        let put = self.out[to as usize].put(&self.node, &frame, &[], &message.buffers, 0, len);
        if put != Ok(true) {
            self.requests.remove(request);
            return Err(if put == Ok(false) { Error::Again } else { Error::Gone });
        }
        if !delivered {
            self.tell_owner(Event::new(sent.kind, token, report));
        }
        Ok(())
    }

    fn offer(
        &mut self,
        sent: Sent,
        flags: u8,
        words: impl Fn(u64) -> [u64; 3],
        tagged: bool,
        buffers: Buffers,
    ) -> Result<(), Error> {
        let len = (buffers.len() as u64).to_le_bytes();
        let request = self.requests.insert(Request::Offered(sent, buffers));
        let kind = if tagged { Kind::TaggedOffer } else { Kind::Offer };
        let frame = Frame { kind, flags, words: words(request) };
        let put = self.out[sent.to as usize].put(&self.node, &frame, &len, &Buffers::default(), 0, 0);
        if put == Ok(true) {
            return Ok(());
        }
        self.requests.remove(request);
        Err(if put == Ok(false) { Error::Again } else { Error::Gone })
    }

    /// Posts a receive, or takes the message that came before it.
    ///
    /// # Safety
    /// The buffers stay writable until the event of its end.
    #[inline]
    pub unsafe fn receive(&mut self, tagged: bool, posted: Posted) {
        if posted.several.is_some() {
            return self.receive_several(tagged, posted);
        }
        match self.matching.take(tagged, &posted) {
            None => self.matching.post(tagged, posted),
            Some(early) => {
                let place = Place { buffers: posted.buffers, token: posted.token, report: posted.report, several: None };
                self.put_early(tagged, place, early);
            }
        }
    }

    fn receive_several(&mut self, tagged: bool, posted: Posted) {
        let wanted = Posted { several: None, buffers: Buffers::default(), ..posted.clone() };
        self.matching.post(tagged, posted);
        while let Some(early) = self.matching.find(tagged, &wanted) {
            let (from, tag, len) = (early.from, early.tag, early.len);
            // Of the receives that are posted this is the only one that takes it.
            let Some(place) = self.matching.place(tagged, from, tag, len) else { break };
            let Some(early) = self.matching.take(tagged, &wanted) else { break };
            self.put_early(tagged, place, early);
        }
    }

    /// A message that came early has its place now.
    fn put_early(&mut self, tagged: bool, place: Place, early: Early) {
        let Some(body) = &early.body else {
            return self.take_offer(tagged, place, &early);
        };
        let mut at = 0;
        for (to, len) in place.buffers.range(0, body.len()) {
            // SAFETY: whoever posted the receive promised that its buffers are writable; `range` gives no more than the body has.
            unsafe { std::ptr::copy_nonoverlapping(body.as_ptr().add(at), to, len) };
            at += len;
        }
        let acknowledge = early.acknowledge.then_some(early.request);
        let back = self.peer_of(early.from);
        self.received(tagged, &place, (early.from, early.tag, early.data), early.len, acknowledge.map(|request| (back, request)));
    }

    /// A message has been received whole: says so to the owner, and to the sender if it wants to hear.
    pub(crate) fn received(
        &mut self,
        tagged: bool,
        place: &Place,
        (from, tag, data): (EndpointId, u64, Option<u64>),
        len: usize,
        acknowledge: Option<(u32, u64)>,
    ) {
        let room = place.buffers.len();
        let failure = (len > room).then(|| Failure::Truncated(len - room));
        let last = place.several.is_some_and(|number| self.matching.ended(number));
        let at = place.buffers.start() as usize;
        let event = Event::new(EventKind::Receive(tagged), place.token, place.report);
        self.tell_owner(Event { len: len.min(room), at, data, tag, from, failure, last, ..event });
        if let Some((back, request)) = acknowledge {
            self.tell(back, Frame::new(Kind::Done, [request, 0, 0]), &[]);
        }
    }

    /// Looks for a message that has come, without taking it. Its end tells of it, or that there is none.
    /// `claim`: no other receive takes it from now on, but the one that [claims](Self::receive_claimed) it
    /// with the same token. `discard`: it is thrown away.
    pub fn peek(&mut self, tagged: bool, posted: &Posted, claim: bool, discard: bool) {
        let event = Event::new(EventKind::Receive(tagged), posted.token, true);
        let event = match self.matching.find(tagged, posted) {
            None => Event { failure: Some(Failure::NoMessage), tag: posted.tag, ..event },
            Some(early) => {
                if claim {
                    early.claimed = Some(posted.token);
                }
                Event { len: early.len, data: early.data, tag: early.tag, from: early.from, ..event }
            }
        };
        let found = event.failure.is_none();
        self.tell_owner(event);
        if found && discard {
            let taken = if claim { self.matching.take_claimed(tagged, posted.token) } else { self.matching.take(tagged, posted) };
            if let Some(early) = taken {
                self.discard(&early);
            }
        }
    }

    /// Receives a message that was claimed, or with `discard` throws it away.
    ///
    /// # Errors
    /// [`Error::NoMessage`] where none was claimed with this token.
    ///
    /// # Safety
    /// As for [`Self::receive`].
    pub unsafe fn receive_claimed(&mut self, tagged: bool, posted: Posted, discard: bool) -> Result<(), Error> {
        let early = self.matching.take_claimed(tagged, posted.token).ok_or(Error::NoMessage)?;
        if discard {
            self.discard(&early);
            let event = Event::new(EventKind::Receive(tagged), posted.token, posted.report);
            self.tell_owner(Event { tag: early.tag, from: early.from, data: early.data, ..event });
        } else {
            let place = Place { buffers: posted.buffers, token: posted.token, report: posted.report, several: None };
            self.put_early(tagged, place, early);
        }
        Ok(())
    }

    fn discard(&mut self, early: &Early) {
        let back = self.peer_of(early.from);
        if early.body.is_none() {
            self.tell(back, Frame::new(Kind::Take, [early.request, 0, 0]), &[]);
        }
        if early.acknowledge {
            self.tell(back, Frame::new(Kind::Done, [early.request, 0, 0]), &[]);
        }
    }

    /// Takes a posted receive back. False: it is not there any more.
    pub fn cancel(&mut self, token: Token) -> bool {
        let Some((tagged, posted)) = self.matching.cancel(token) else { return false };
        let event = Event::new(EventKind::Receive(tagged), token, true);
        self.tell_owner(Event { failure: Some(Failure::Cancelled), tag: posted.tag, ..event });
        true
    }

    /// Writes to another's registered memory. Its end is when that has been done.
    ///
    /// # Errors
    /// As for [`Self::send`].
    ///
    /// # Safety
    /// The buffers stay readable until the event of its end; up to [`Self::eager`] bytes until this returns.
    pub unsafe fn write(&mut self, to: u32, key: u64, address: u64, message: Message) -> Result<(), Error> {
        self.ready(to)?;
        let sent = Sent { to, token: message.token, report: message.report, kind: EventKind::Write, delivered: true };
        let Message { buffers, data, .. } = message;
        let fits = buffers.len() <= self.eager();
        let number = self.requests.insert(Request::Writing { sent, buffers, key, address, data, at: 0 });
        if self.push(number) {
            return Ok(());
        }
        let begun = !matches!(self.requests.get_mut(number), Some(Request::Writing { at: 0, .. }));
        if begun && !fits {
            self.pushing.push_back(number);
            return Ok(());
        }
        self.requests.remove(number);
        Err(if self.out[to as usize].gone { Error::Gone } else { Error::Again })
    }

    /// Reads another's registered memory.
    ///
    /// # Errors
    /// As for [`Self::send`].
    ///
    /// # Safety
    /// The buffers stay writable until the event of its end.
    pub unsafe fn read(
        &mut self,
        to: u32,
        key: u64,
        address: u64,
        buffers: Buffers,
        token: Token,
        report: bool,
    ) -> Result<(), Error> {
        let len = buffers.len() as u64;
        let frame = |number| Frame::new(Kind::Read, [key, address, number]);
        self.ask(Sent { to, token, report, kind: EventKind::Read, delivered: true }, buffers, frame, &len.to_le_bytes())
    }

    /// Applies an operation to another's registered memory. `operands` is what [`crate::incoming`] says;
    /// with `answer`, what was there before comes into it.
    ///
    /// # Errors
    /// As for [`Self::send`].
    ///
    /// # Safety
    /// The answer's buffers stay writable until the event of its end.
    pub unsafe fn apply(
        &mut self,
        to: u32,
        (key, address): (u64, u64),
        operands: &[u8],
        answer: Option<Buffers>,
        (token, report): (Token, bool),
    ) -> Result<(), Error> {
        if operands.len() > self.eager() {
            return Err(Error::TooLong);
        }
        let flags = if answer.is_some() { flag::FETCH } else { 0 };
        let frame = |number| Frame { kind: Kind::Apply, flags, words: [key, address, number] };
        if let Some(answer) = answer {
            return self.ask(Sent { to, token, report, kind: EventKind::Fetch, delivered: true }, answer, frame, operands);
        }
        let sent = Sent { to, token, report, kind: EventKind::Change, delivered: true };
        self.ready(to)?;
        self.request(sent, Request::Done(sent), frame, operands)
    }

    fn ask(&mut self, sent: Sent, buffers: Buffers, frame: impl Fn(u64) -> Frame, payload: &[u8]) -> Result<(), Error> {
        self.ready(sent.to)?;
        if buffers.is_empty() {
            self.tell_owner(Event::new(sent.kind, sent.token, sent.report));
            return Ok(());
        }
        self.request(sent, Request::Reading { sent, buffers, got: 0 }, frame, payload)
    }

    fn request(&mut self, sent: Sent, request: Request, frame: impl Fn(u64) -> Frame, payload: &[u8]) -> Result<(), Error> {
        let number = self.requests.insert(request);
        let put = self.out[sent.to as usize].put(&self.node, &frame(number), payload, &Buffers::default(), 0, 0);
        if put == Ok(true) {
            return Ok(());
        }
        self.requests.remove(number);
        Err(if put == Ok(false) { Error::Again } else { Error::Gone })
    }

    /// Puts a short frame to a peer, now or as soon as there is room.
    pub(crate) fn tell(&mut self, to: u32, frame: Frame, payload: &[u8]) {
        let ready = self.ready(to);
        let Some(out) = self.out.get_mut(to as usize) else { return };
        if ready.is_ok() && out.put(&self.node, &frame, payload, &Buffers::default(), 0, 0) == Ok(true) || out.gone {
            return;
        }
        self.untold += usize::from(out.outbox.is_empty());
        out.outbox.push_back((frame, SmallVec::from_slice(payload)));
    }

    /// Puts what had no room before.
    fn tell_again(&mut self) {
        for to in 0..self.out.len() as u32 {
            if self.out[to as usize].outbox.is_empty() {
                continue;
            }
            if self.out[to as usize].writer.is_none() && self.connect(to) == Err(Error::Gone) {
                self.out[to as usize].gone = true;
            }
            let (node, out) = (&self.node, &mut self.out[to as usize]);
            while let Some((frame, payload)) = out.outbox.pop_front() {
                if !out.gone && out.put(node, &frame, &payload, &Buffers::default(), 0, 0) == Ok(false) {
                    out.outbox.push_front((frame, payload));
                    break;
                }
            }
            self.untold -= usize::from(self.out[to as usize].outbox.is_empty());
        }
    }

    /// Puts as many pieces of a request as there is room for. True: that was the last of them.
    pub(crate) fn push(&mut self, number: u64) -> bool {
        let (node, tuning, eager) = (&self.node, self.tuning, self.eager());
        let Some(request) = self.requests.get_mut(number) else { return true };
        let (sent, done) = match request {
            Request::Pieces { sent, buffers, theirs, at, end } => {
                let out = &mut self.out[sent.to as usize];
                while *at < *end {
                    let len = (*end - *at).min(tuning.piece).min(eager);
                    let frame = Frame::new(Kind::Piece, [*theirs, *at as u64, 0]);
                    if out.put(node, &frame, &[], buffers, *at, len) != Ok(true) {
                        return false;
                    }
                    *at += len;
                }
                (*sent, true)
            }
            Request::Writing { sent, buffers, key, address, data, at } => {
                let (out, end) = (&mut self.out[sent.to as usize], buffers.len());
                loop {
                    let len = (end - *at).min(eager);
                    let last = *at + len == end;
                    let prefix = data.filter(|_| last).map(u64::to_le_bytes);
                    let flags = if last { flag::LAST } else { 0 } | prefix.map_or(0, |_| flag::DATA);
                    let frame = Frame { kind: Kind::Write, flags, words: [*key, address.wrapping_add(*at as u64), number] };
                    let prefix = prefix.as_ref().map_or(&[][..], |bytes| &bytes[..]);
                    if out.put(node, &frame, prefix, buffers, *at, len) != Ok(true) {
                        return false;
                    }
                    *at += len;
                    if last {
                        break;
                    }
                }
                (*sent, false)
            }
            _ => return true,
        };
        if !done || sent.delivered {
            // Its end is the other's word.
            *request = Request::Done(sent);
        } else {
            self.requests.remove(number);
            self.tell_owner(Event::new(sent.kind, sent.token, sent.report));
        }
        true
    }

    /// Takes what has come, and sends what can be sent by now. True: there was something.
    #[inline]
    pub fn progress(&mut self, memory: &Memory) -> bool {
        if self.node.entered() != self.entered {
            self.take_entries();
        }
        if self.untold > 0 {
            self.tell_again();
        }
        for _ in 0..self.pushing.len() {
            if let Some(number) = self.pushing.pop_front()
                && !self.push_or_give(number, memory)
            {
                self.pushing.push_back(number);
            }
        }
        let news = self.take_frames(memory);
        if news {
            self.idle.reset();
        }
        news || !self.events.is_empty()
    }

    #[cold]
    fn take_entries(&mut self) {
        self.entered = self.node.entered();
        let entries: Vec<(u64, u32)> = self.node.entries().collect();
        for (entry, page) in entries {
            if self.incoming.iter().any(|incoming| incoming.reader.page() == page) {
                continue;
            }
            match crate::pair::Reader::open(&self.node, entry, page) {
                Some(reader) => {
                    let back = self.peer_of(reader.writer());
                    self.incoming.push(Incoming::new(reader, back));
                }
                // Somebody entered what is none.
                None => self.node.forget_entry(entry, page),
            }
        }
        self.idle.count(self.node.count());
    }

    /// Nothing came: what the caller does now, once it has let go of its locks.
    #[inline]
    pub fn rest(&mut self) -> Rest {
        if self.idle.is_time() {
            self.look_for_the_dead();
            self.idle.count(self.node.count());
        }
        self.idle.rest()
    }

    /// Ends what waits for the dead, and gives back what they shared with this endpoint.
    #[cold]
    pub fn look_for_the_dead(&mut self) {
        for to in 0..self.out.len() {
            if !self.out[to].gone && self.out[to].writer.is_some() && !self.node.lives(self.out[to].id) {
                self.out[to].gone = true;
            }
            if self.out[to].gone
                && let (Some(writer), Ok(guard)) = (self.out[to].writer.take(), self.node.guard())
            {
                release_writer(&guard, &self.node, &writer);
            }
        }
        let out = &self.out;
        let to_the_dead = |request: &Request| match request {
            Request::Done(sent) | Request::Offered(sent, _) | Request::Pieces { sent, .. } => out[sent.to as usize].gone,
            Request::Writing { sent, .. } | Request::Reading { sent, .. } => out[sent.to as usize].gone,
            Request::Receiving(receiving) => out[receiving.back as usize].gone,
            Request::Giving { to, .. } => out[*to as usize].gone,
        };
        let ended: Vec<u64> = self.requests.iter().filter(|(_, request)| to_the_dead(request)).map(|(number, _)| number).collect();
        ended.into_iter().for_each(|number| self.fail(number, Failure::Gone));
        self.release_left();
    }

    /// Ends a request that cannot be done.
    pub(crate) fn fail(&mut self, number: u64, failure: Failure) {
        match self.requests.remove(number) {
            Some(
                Request::Done(sent)
                | Request::Offered(sent, _)
                | Request::Pieces { sent, .. }
                | Request::Writing { sent, .. }
                | Request::Reading { sent, .. },
            ) => {
                let event = Event::new(sent.kind, sent.token, true);
                self.tell_owner(Event { failure: Some(failure), ..event });
            }
            Some(Request::Receiving(receiving)) => {
                let last = receiving.place.several.is_some_and(|number| self.matching.ended(number));
                let event = Event::new(EventKind::Receive(receiving.tagged), receiving.place.token, true);
                let (tag, from, len) = (receiving.tag, receiving.from, receiving.got);
                self.tell_owner(Event { failure: Some(failure), tag, from, len, last, ..event });
            }
            Some(Request::Giving { .. }) | None => {}
        }
    }

    /// Does nothing wait for another endpoint?
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.requests.is_empty() && self.untold == 0
    }

    /// Puts a piece of registered memory.
    pub(crate) fn put_piece(&mut self, to: u32, frame: &Frame, buffers: &Buffers, len: usize) -> Result<bool, Corrupt> {
        match self.ready(to) {
            Ok(()) => self.out[to as usize].put(&self.node, frame, &[], buffers, 0, len),
            Err(Error::Gone) => Err(Corrupt),
            Err(_) => Ok(false),
        }
    }

    pub(crate) fn segment(&self) -> &Segment {
        self.node.segment()
    }
}

fn writer_is_sound(writer: &mut Writer, tuning: Tuning) {
    debug_assert!(writer.most() >= tuning.eager.min(tuning.ring as usize / 2 - 2 * WORDS));
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
