//! What is done with each kind of frame. Whatever stands in one was written by another: numbers of
//! requests are looked up, and belong to the one they were given to; lengths and offsets are
//! checked against the request or the registered memory.
//!
//! The payload of [`Kind::Apply`]: 8 bytes (operation, element, two bytes 0, 32 bits the number of
//! elements), the operands, and for an operation that compares what to compare with.

mod remote;

use super::Endpoint;
use crate::frame::{Frame, Kind, flag};
use crate::matching::{Buffers, Early, Place};
use crate::memory::Memory;
use crate::operation::{Event, Failure, Receiving, Request};
use crate::pair::{Got, Reader};
use ginnel_region::Corrupt;

/// How many frames of one peer are taken before the next peer's.
const TURN: usize = 32;
/// What an endpoint keeps of one that its owner has not named: bytes of messages that nobody waits
/// for …
const STRANGER_BYTES: usize = 1 << 20;
/// … and answers that it leaves unread.
const STRANGER_ANSWERS: usize = 64;

/// Where frames from another endpoint come from.
pub(super) struct Incoming {
    pub reader: Reader,
    /// The way back.
    pub back: u32,
    /// It wrote what makes no sense: nothing more is taken from it.
    broken: bool,
}

impl Incoming {
    pub fn new(reader: Reader, back: u32) -> Self {
        Self { reader, back, broken: false }
    }
}

impl Endpoint {
    /// Takes frames of every peer. True: there were some.
    #[inline]
    pub(super) fn take_frames(&mut self, memory: &Memory) -> bool {
        let (mut news, mut at) = (false, 0);
        // There may be fewer each time: whoever is given up takes with it what the dead have left.
        while at < self.incoming.len() {
            for _ in 0..TURN {
                let incoming = &self.incoming[at];
                if incoming.broken {
                    break;
                }
                let taken = match incoming.reader.look() {
                    Ok(Some(got)) if !self.is_burdened(at) => {
                        news = true;
                        self.take_frame(at, &got, memory).map(|()| got)
                    }
                    Ok(_) => break,
                    Err(Corrupt) => Err(Corrupt),
                };
                let Ok(got) = taken else {
                    self.give_up(at);
                    break;
                };
                self.advance(at, &got);
            }
            at += 1;
        }
        news
    }

    #[inline]
    fn advance(&mut self, at: usize, got: &Got) {
        let segment = self.node.segment();
        let incoming = &mut self.incoming[at];
        if incoming.reader.advance(segment, got) {
            // The writer may sleep until there is room.
            let out = &mut self.out[incoming.back as usize];
            self.node.wake(out.id);
        }
    }

    /// Does a stranger ask for more than it is given?
    #[inline]
    fn is_burdened(&self, at: usize) -> bool {
        let out = &self.out[self.incoming[at].back as usize];
        !out.known && (out.kept > STRANGER_BYTES || out.outbox.len() > STRANGER_ANSWERS)
    }

    /// A peer wrote what makes no sense: nothing more is taken from it, and what waits for it
    /// fails.
    #[cold]
    fn give_up(&mut self, at: usize) {
        self.incoming[at].broken = true;
        self.out[self.incoming[at].back as usize].gone = true;
        self.look_for_the_dead();
    }

    fn take_frame(&mut self, at: usize, got: &Got, memory: &Memory) -> Result<(), Corrupt> {
        match got.frame.kind {
            Kind::Message | Kind::Tagged => self.on_message(at, got),
            Kind::Offer | Kind::TaggedOffer => return self.on_offer(at, got),
            Kind::Take => return self.on_take(at, got),
            Kind::Piece => return self.on_piece(at, got),
            Kind::Done => return self.on_done(at, got),
            Kind::Write => return self.on_write(at, got, memory),
            Kind::Read => return self.on_read(at, got, memory),
            Kind::Apply => return self.on_apply(at, got, memory),
            // Of an endpoint of another kind.
            Kind::Active => return Err(Corrupt),
        }
        Ok(())
    }

    #[inline]
    fn on_message(&mut self, at: usize, got: &Got) {
        let incoming = &self.incoming[at];
        let (from, back) = (incoming.reader.writer(), incoming.back);
        let [tag, data, request] = got.frame.words;
        let tagged = got.frame.kind.is_tagged();
        let data = (got.frame.flags & flag::DATA != 0).then_some(data);
        let acknowledge = got.frame.flags & flag::ACKNOWLEDGE != 0;
        if let Some(place) = self.matching.place(tagged, from, tag, got.len) {
            copy_to(&incoming.reader, got, 0, &place.buffers, 0, got.len);
            self.received(
                tagged,
                &place,
                (from, tag, data),
                got.len,
                acknowledge.then_some((back, request)),
            );
            return;
        }
        let mut body = vec![0u8; got.len].into_boxed_slice();
        // SAFETY: the box has as many bytes.
        unsafe { incoming.reader.copy_out(got, 0, body.as_mut_ptr(), got.len) };
        let early = Early {
            from,
            tag,
            data,
            len: got.len,
            body: Some(body),
            request,
            acknowledge,
            claimed: None,
        };
        self.keep(tagged, back, early);
    }

    /// A message came that nobody waits for.
    fn keep(&mut self, tagged: bool, back: u32, early: Early) {
        self.out[back as usize].kept += early.burden();
        self.matching.keep(tagged, early);
    }

    fn on_offer(&mut self, at: usize, got: &Got) -> Result<(), Corrupt> {
        let incoming = &self.incoming[at];
        let (from, back) = (incoming.reader.writer(), incoming.back);
        let len = incoming
            .reader
            .number(got, 0)
            .and_then(|len| usize::try_from(len).ok())
            .ok_or(Corrupt)?;
        let [tag, data, request] = got.frame.words;
        let tagged = got.frame.kind.is_tagged();
        let data = (got.frame.flags & flag::DATA != 0).then_some(data);
        let acknowledge = got.frame.flags & flag::ACKNOWLEDGE != 0;
        let early = Early { from, tag, data, len, body: None, request, acknowledge, claimed: None };
        match self.matching.place(tagged, from, tag, len) {
            Some(place) => self.take_offer(tagged, place, &early),
            None => self.keep(tagged, back, early),
        }
        Ok(())
    }

    /// A message that was offered has its place: asks for it.
    pub(super) fn take_offer(&mut self, tagged: bool, place: Place, early: &Early) {
        let back = self.peer_of(early.from);
        let wanted = early.len.min(place.buffers.len());
        let (from, tag, data, len) = (early.from, early.tag, early.data, early.len);
        let acknowledge = early.acknowledge.then_some(early.request);
        if wanted == 0 {
            self.tell(back, Frame::new(Kind::Take, [early.request, 0, 0]), &[]);
            return self.received(
                tagged,
                &place,
                (from, tag, data),
                len,
                acknowledge.map(|request| (back, request)),
            );
        }
        let receiving =
            Receiving { from, place, tagged, tag, data, len, wanted, got: 0, acknowledge, back };
        let number = self.requests.insert(Request::Receiving(Box::new(receiving)));
        self.tell(back, Frame::new(Kind::Take, [early.request, number, wanted as u64]), &[]);
    }

    /// Our offer is taken, if it was made to the one that says so.
    fn on_take(&mut self, at: usize, got: &Got) -> Result<(), Corrupt> {
        let back = self.incoming[at].back;
        let [number, theirs, wanted] = got.frame.words;
        let Some(Request::Offered(sent, buffers)) = self.requests.get_mut(number) else {
            return Err(Corrupt);
        };
        let end =
            usize::try_from(wanted).ok().filter(|end| *end <= buffers.len()).ok_or(Corrupt)?;
        if sent.to != back {
            return Err(Corrupt);
        }
        let (sent, buffers) = (*sent, std::mem::take(buffers));
        if let Some(request) = self.requests.get_mut(number) {
            *request = Request::Pieces { sent, buffers, theirs, at: 0, end };
        }
        if !self.push(number) {
            self.pushing.push_back(number);
        }
        Ok(())
    }

    /// Bytes of a message that was taken, or of memory that was asked for.
    fn on_piece(&mut self, at: usize, got: &Got) -> Result<(), Corrupt> {
        let incoming = &self.incoming[at];
        let [number, offset, _] = got.frame.words;
        let fits = |there: usize, wanted: usize| {
            offset == there as u64 && got.len > 0 && got.len <= wanted - there
        };
        match self.requests.get_mut(number) {
            Some(Request::Receiving(receiving)) => {
                if receiving.from != incoming.reader.writer()
                    || !fits(receiving.got, receiving.wanted)
                {
                    return Err(Corrupt);
                }
                copy_to(&incoming.reader, got, 0, &receiving.place.buffers, receiving.got, got.len);
                receiving.got += got.len;
                if receiving.got == receiving.wanted
                    && let Some(Request::Receiving(done)) = self.requests.remove(number)
                {
                    let acknowledge = done.acknowledge.map(|request| (done.back, request));
                    self.received(
                        done.tagged,
                        &done.place,
                        (done.from, done.tag, done.data),
                        done.len,
                        acknowledge,
                    );
                }
            }
            Some(Request::Reading { sent, buffers, got: there }) => {
                let wanted = buffers.len();
                if sent.to != incoming.back || !fits(*there, wanted) {
                    return Err(Corrupt);
                }
                copy_to(&incoming.reader, got, 0, buffers, *there, got.len);
                *there += got.len;
                if *there == wanted {
                    let event = Event::new(sent.kind, sent.token, sent.report);
                    self.requests.remove(number);
                    self.tell_owner(event);
                }
            }
            _ => return Err(Corrupt),
        }
        Ok(())
    }

    fn on_done(&mut self, at: usize, got: &Got) -> Result<(), Corrupt> {
        let back = self.incoming[at].back;
        let [number, failed, _] = got.frame.words;
        let sent = match self.requests.get_mut(number) {
            Some(Request::Done(sent)) => *sent,
            // Failed before all of it was there.
            Some(Request::Reading { sent, .. } | Request::Writing { sent, .. }) if failed != 0 => {
                *sent
            }
            _ => return Err(Corrupt),
        };
        if sent.to != back {
            return Err(Corrupt);
        }
        if failed != 0 {
            self.fail(number, Failure::Refused);
        } else {
            self.requests.remove(number);
            self.tell_owner(Event::new(sent.kind, sent.token, sent.report));
        }
        Ok(())
    }

    /// Lets go of pairs whose writers are gone and of which nothing is unread.
    pub(super) fn release_left(&mut self) {
        let mut at = 0;
        while at < self.incoming.len() {
            let incoming = &self.incoming[at];
            let empty = incoming.broken || matches!(incoming.reader.look(), Ok(None));
            if empty
                && incoming.reader.is_left(&self.node)
                && let Some(guard) = self.node.guard_now()
            {
                let gone = self.incoming.swap_remove(at);
                gone.reader.release(&guard, &self.node);
            } else {
                at += 1;
            }
        }
    }
}

/// Copies `len` bytes of a frame's payload from its byte `from` on into buffers, from their byte
/// `to` on, as far as they reach.
#[inline]
fn copy_to(reader: &Reader, got: &Got, from: usize, buffers: &Buffers, to: usize, len: usize) {
    if let Some((to, len)) = buffers.piece(to, len) {
        // SAFETY: as below.
        return unsafe { reader.copy_out(got, from, to, len) };
    }
    let mut at = from;
    for (to, len) in buffers.range(to, len) {
        // SAFETY: whoever gave the buffers promised that they are writable for as long as their
        // operation lasts.
        unsafe { reader.copy_out(got, at, to, len) };
        at += len;
    }
}
