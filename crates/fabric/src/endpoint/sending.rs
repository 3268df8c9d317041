//! What an endpoint's owner asks of others: to take messages, to have their memory written, read
//! and changed.

use super::Endpoint;
use crate::Error;
use crate::frame::{Frame, Kind, WORDS, flag};
use crate::matching::{Buffers, Token};
use crate::operation::{Event, EventKind, Message, Request, Sent};
use smallvec::SmallVec;

impl Endpoint {
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
        let flags = if data.is_some() { flag::DATA } else { 0 }
            | if delivered { flag::ACKNOWLEDGE } else { 0 };
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
        let put =
            self.out[sent.to as usize].put(&self.node, &frame, &len, &Buffers::default(), 0, 0);
        if put == Ok(true) {
            return Ok(());
        }
        self.requests.remove(request);
        Err(if put == Ok(false) { Error::Again } else { Error::Gone })
    }

    /// Writes to another's registered memory. Its end is when that has been done.
    ///
    /// # Errors
    /// As for [`Self::send`].
    ///
    /// # Safety
    /// The buffers stay readable until the event of its end; up to [`Self::eager`] bytes until this
    /// returns.
    pub unsafe fn write(
        &mut self,
        to: u32,
        key: u64,
        address: u64,
        message: Message,
    ) -> Result<(), Error> {
        self.ready(to)?;
        let sent = Sent {
            to,
            token: message.token,
            report: message.report,
            kind: EventKind::Write,
            delivered: true,
        };
        let Message { buffers, data, .. } = message;
        let fits = buffers.len() <= self.eager();
        let number =
            self.requests.insert(Request::Writing { sent, buffers, key, address, data, at: 0 });
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
        self.ask(
            Sent { to, token, report, kind: EventKind::Read, delivered: true },
            buffers,
            frame,
            &len.to_le_bytes(),
        )
    }

    /// Applies an operation to another's registered memory. `operands` is what [`crate::incoming`]
    /// says; with `answer`, what was there before comes into it.
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
            return self.ask(
                Sent { to, token, report, kind: EventKind::Fetch, delivered: true },
                answer,
                frame,
                operands,
            );
        }
        let sent = Sent { to, token, report, kind: EventKind::Change, delivered: true };
        self.ready(to)?;
        self.request(sent, Request::Done(sent), frame, operands)
    }

    fn ask(
        &mut self,
        sent: Sent,
        buffers: Buffers,
        frame: impl Fn(u64) -> Frame,
        payload: &[u8],
    ) -> Result<(), Error> {
        self.ready(sent.to)?;
        if buffers.is_empty() {
            self.tell_owner(Event::new(sent.kind, sent.token, sent.report));
            return Ok(());
        }
        self.request(sent, Request::Reading { sent, buffers, got: 0 }, frame, payload)
    }

    fn request(
        &mut self,
        sent: Sent,
        request: Request,
        frame: impl Fn(u64) -> Frame,
        payload: &[u8],
    ) -> Result<(), Error> {
        let number = self.requests.insert(request);
        let put = self.out[sent.to as usize].put(
            &self.node,
            &frame(number),
            payload,
            &Buffers::default(),
            0,
            0,
        );
        if put == Ok(true) {
            return Ok(());
        }
        self.requests.remove(number);
        Err(if put == Ok(false) { Error::Again } else { Error::Gone })
    }

    /// Puts as many pieces of a request as there is room for. True: that was the last of them.
    pub(super) fn push(&mut self, number: u64) -> bool {
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
                    let (flags, prefix) =
                        if last { of_last(*data, *at) } else { Default::default() };
                    let frame = Frame {
                        kind: Kind::Write,
                        flags,
                        words: [*key, address.wrapping_add(*at as u64), number],
                    };
                    if out.put(node, &frame, &prefix, buffers, *at, len) != Ok(true) {
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
}

/// The flags of a write's last frame, and what stands before its bytes. Its receiver knows one frame
/// at a time, and says at the last one whether all of them were right.
fn of_last(data: Option<u64>, before: usize) -> (u8, SmallVec<[u8; 16]>) {
    let (mut flags, mut prefix) = (flag::LAST, SmallVec::new());
    let before = (before > 0).then_some(before as u64);
    for (flag, word) in [(flag::DATA, data), (flag::BEFORE, before)] {
        if let Some(word) = word {
            flags |= flag;
            prefix.extend_from_slice(&word.to_le_bytes());
        }
    }
    (flags, prefix)
}
