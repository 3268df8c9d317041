//! What an endpoint's owner asks of messages to it.

use super::Endpoint;
use crate::Error;
use crate::frame::{Frame, Kind};
use crate::layout::EndpointId;
use crate::matching::{After, Buffers, Early, Place, Posted, Token};
use crate::operation::{Event, EventKind, Failure};

impl Endpoint {
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
                let place = Place {
                    buffers: posted.buffers,
                    token: posted.token,
                    report: posted.report,
                    several: None,
                };
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

    /// A message that came early is not kept any longer: the way to its sender.
    fn take_out(&mut self, early: &Early) -> u32 {
        let back = self.peer_of(early.from);
        let kept = &mut self.out[back as usize].kept;
        *kept = kept.saturating_sub(early.burden());
        back
    }

    /// A message that came early has its place now.
    fn put_early(&mut self, tagged: bool, place: Place, early: Early) {
        let back = self.take_out(&early);
        let Some(body) = &early.body else {
            return self.take_offer(tagged, place, &early);
        };
        let mut at = 0;
        for (to, len) in place.buffers.range(0, body.len()) {
            // SAFETY: whoever posted the receive promised that its buffers are writable; `range`
            // gives no more than the body has.
            unsafe { std::ptr::copy_nonoverlapping(body.as_ptr().add(at), to, len) };
            at += len;
        }
        let acknowledge = early.acknowledge.then_some(early.request);
        self.received(
            tagged,
            &place,
            (early.from, early.tag, early.data),
            early.len,
            acknowledge.map(|request| (back, request)),
        );
    }

    /// A message has been received whole: says so to the owner, and to the sender if it wants to
    /// hear.
    #[inline]
    pub(super) fn received(
        &mut self,
        tagged: bool,
        place: &Place,
        (from, tag, data): (EndpointId, u64, Option<u64>),
        len: usize,
        acknowledge: Option<(u32, u64)>,
    ) {
        let room = place.buffers.len();
        let failure = (len > room).then(|| Failure::Truncated(len - room));
        let at = place.buffers.start() as usize;
        let event = Event::new(EventKind::Receive(tagged), place.token, place.report);
        let event = Event { len: len.min(room), at, data, tag, from, failure, ..event };
        match place.several {
            None => self.tell_owner(event),
            Some(number) => self.received_one_of_several(number, event),
        }
        if let Some((back, request)) = acknowledge {
            self.tell(back, Frame::new(Kind::Done, [request, 0, 0]), &[]);
        }
    }

    /// A message of a receive of several has ended so.
    #[cold]
    pub(super) fn received_one_of_several(&mut self, number: u64, event: Event) {
        match self.matching.ended(number) {
            After::More => self.tell_owner(event),
            After::Last => self.tell_owner(Event { last: true, ..event }),
            After::Cancelled(posted) => {
                let kind = event.kind;
                self.tell_owner(event);
                self.cancelled(kind, &posted);
            }
        }
    }

    /// A receive has ended by being taken back.
    fn cancelled(&mut self, kind: EventKind, posted: &Posted) {
        let event = Event::new(kind, posted.token, true);
        let (failure, last) = (Some(Failure::Cancelled), posted.several.is_some());
        self.tell_owner(Event { failure, last, tag: posted.tag, ..event });
    }

    /// Looks for a message that has come, without taking it. Its end tells of it, or that there is
    /// none. `claim`: no other receive takes it from now on, but the one that
    /// [claims](Self::receive_claimed) it with the same token. `discard`: it is thrown away.
    pub fn peek(&mut self, tagged: bool, posted: &Posted, claim: bool, discard: bool) {
        let event = Event::new(EventKind::Receive(tagged), posted.token, true);
        let event = match self.matching.find(tagged, posted) {
            None => Event { failure: Some(Failure::NoMessage), tag: posted.tag, ..event },
            Some(early) => {
                if claim {
                    early.claimed = Some(posted.token);
                }
                Event {
                    len: early.len,
                    data: early.data,
                    tag: early.tag,
                    from: early.from,
                    ..event
                }
            }
        };
        let found = event.failure.is_none();
        self.tell_owner(event);
        if found && discard {
            let taken = if claim {
                self.matching.take_claimed(tagged, posted.token)
            } else {
                self.matching.take(tagged, posted)
            };
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
    pub unsafe fn receive_claimed(
        &mut self,
        tagged: bool,
        posted: Posted,
        discard: bool,
    ) -> Result<(), Error> {
        let early = self.matching.take_claimed(tagged, posted.token).ok_or(Error::NoMessage)?;
        if discard {
            self.discard(&early);
            let event = Event::new(EventKind::Receive(tagged), posted.token, posted.report);
            self.tell_owner(Event { tag: early.tag, from: early.from, data: early.data, ..event });
        } else {
            let place = Place {
                buffers: posted.buffers,
                token: posted.token,
                report: posted.report,
                several: None,
            };
            self.put_early(tagged, place, early);
        }
        Ok(())
    }

    fn discard(&mut self, early: &Early) {
        let back = self.take_out(early);
        if early.body.is_none() {
            self.tell(back, Frame::new(Kind::Take, [early.request, 0, 0]), &[]);
        }
        if early.acknowledge {
            self.tell(back, Frame::new(Kind::Done, [early.request, 0, 0]), &[]);
        }
    }

    /// Takes a posted receive back. False: it is not there any more. It ends at once, or with the
    /// messages that are arriving in its memory.
    pub fn cancel(&mut self, token: Token) -> bool {
        let Some((tagged, posted)) = self.matching.cancel(token) else { return false };
        if let Some(posted) = posted {
            self.cancelled(EventKind::Receive(tagged), &posted);
        }
        true
    }
}
