//! The receiver's end of a queue.

use super::Message;
use super::incoming::{Found, Incoming};
use super::lane::Lane;
use super::layout::{
    Geometry, IN_USE, LEFT, RECEIVER, WANT_DATA, pages_at, sender_at, sent, want_space_at,
};
use crate::object::Object;
use crate::sleeper::{SLICE, Sleeper, take_wish_back};
use crate::wait::{self, Deadline, watched};
use crate::{Error, Kind, Result, Segment};
use ginnel_region::Party;
use std::cell::{Cell as Slot, OnceCell, RefCell};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::{Duration, Instant};

/// The end that receives; a queue has one at a time. One thread at a time uses it.
///
/// Messages of one sender come in the order in which it sent them; those of several are taken in
/// turn. Where this process dies, what it held is free again, and what it had not taken waits for
/// the next receiver.
pub struct Receiver {
    pub(super) object: Object,
    geometry: Geometry,
    party: Party,
    pub(super) lanes: RefCell<Vec<Incoming>>,
    /// Which bits of the word [`IN_USE`] were seen.
    known: Slot<u64>,
    /// Lanes that hold nonsense: one bit each. Nothing is taken from them.
    aside: Slot<u64>,
    /// One was set aside, and the program was not told yet.
    untold: Slot<bool>,
    /// When lanes that were set aside are looked at again.
    again: Slot<Option<Instant>>,
    /// The lane to look at first.
    first: Slot<usize>,
    /// Somebody has sent, or could have, since this end was opened or last said that all had left.
    had_sender: Slot<bool>,
    /// A sender died since then.
    saw_death: Slot<bool>,
    lost: Slot<u64>,
    pub(super) trusting: bool,
    watch: OnceCell<Sleeper>,
}

shown! {
    Receiver as "Receiver": |own| { name: own.name(), message_size: own.message_size() };
}

impl Receiver {
    /// What came is none that a sender of this crate sends.
    pub(crate) fn corrupt(&self) -> Error {
        self.object.corrupt()
    }

    /// Becomes the receiver of a queue that is there.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::WrongKind`], [`Error::InUse`] where it has one that lives,
    /// [`Error::Corrupt`].
    pub fn open(segment: &Segment, name: &str) -> Result<Self> {
        let object = Object::open(segment.inner, name, Kind::Queue)?;
        let geometry = Geometry::of(&object)?;
        let presence = object.presence();
        let (party, word) = (presence.party(), object.words.word(RECEIVER));
        let old = word.load(Acquire);
        let living = Party::of(old).filter(|&had| old & LEFT == 0 && presence.lives(had));
        let taken =
            living.is_none() && word.compare_exchange(old, party.bits(), AcqRel, Relaxed).is_ok();
        if !taken {
            let pid = Party::of(word.load(Acquire)).map_or(0, |party| presence.pid_of(party));
            return Err(Error::InUse { name: object.name.clone(), role: "receiver", pid });
        }
        object.words.word(WANT_DATA).store(0, Relaxed);
        let receiver = Self {
            object,
            geometry,
            party,
            lanes: RefCell::default(),
            known: Slot::new(0),
            aside: Slot::new(0),
            untold: Slot::new(false),
            again: Slot::new(None),
            first: Slot::new(0),
            had_sender: Slot::new(false),
            saw_death: Slot::new(false),
            lost: Slot::new(0),
            trusting: segment.is_trusting(),
            watch: OnceCell::new(),
        };
        receiver.learn();
        Ok(receiver)
    }

    /// Looks for lanes that have come into use.
    #[inline]
    fn learn(&self) {
        // Acquire pairs with the Release of `Sender::open`.
        let new = self.object.words.word(IN_USE).load(Acquire) & !self.known.get();
        if new != 0 {
            self.learn_of(new);
        }
    }

    #[cold]
    fn learn_of(&self, new: u64) {
        // Each once, whatever becomes of its bit; those beyond the lanes are nonsense.
        self.known.set(self.known.get() | new);
        for number in (0..self.geometry.lanes).filter(|number| new >> number & 1 == 1) {
            match self.incoming(number) {
                Some(incoming) => self.lanes.borrow_mut().push(incoming),
                None => self.set_aside(number),
            }
        }
    }

    /// A lane as it is now; `None`: nonsense.
    fn incoming(&self, number: u32) -> Option<Incoming> {
        let pages = self.object.words.word(pages_at(number)).load(Acquire);
        let lane = Lane::new(&self.object, self.geometry, pages)?;
        Some(Incoming { number, lane, next: lane.inherit_as_receiver()?, held: 0 })
    }

    /// Takes nothing more from a lane: its sender harms itself alone.
    #[cold]
    fn set_aside(&self, number: u32) {
        self.aside.set(self.aside.get() | 1 << number);
        self.untold.set(true);
        self.again.set(Instant::now().checked_add(SLICE));
    }

    fn is_aside(&self, number: u32) -> bool {
        self.aside.get() >> number & 1 == 1
    }

    /// Looks now and then whether lanes that were set aside are in order again: perhaps another
    /// sender has them.
    #[cold]
    fn mend(&self) {
        if self.again.get().is_some_and(|again| Instant::now() < again) {
            return;
        }
        self.again.set(Instant::now().checked_add(SLICE));
        let mut lanes = self.lanes.borrow_mut();
        for number in (0..self.geometry.lanes).filter(|&number| self.is_aside(number)) {
            let known = lanes.iter_mut().find(|incoming| incoming.number == number);
            // What the program holds stays the lane's that it came by.
            if known.as_ref().is_some_and(|incoming| incoming.held > 0) {
                continue;
            }
            let Some(new) = self.incoming(number) else { continue };
            match known {
                Some(known) => *known = new,
                None => lanes.push(new),
            }
            self.aside.set(self.aside.get() & !(1 << number));
        }
    }

    /// Takes the next message, waiting for it.
    ///
    /// # Errors
    /// [`Error::Ended`] where nothing is left and every sender has left or died; who calls again
    /// waits for a new one. [`Error::Corrupt`] where a sender's part of the queue holds nonsense:
    /// told once, when the others have nothing to be taken; they go on. [`Error::TooManyMessages`],
    /// [`Error::Forked`], [`Error::Lost`], [`Error::Gone`].
    #[inline]
    pub fn recv(&self) -> Result<Message<'_>> {
        self.recv_until(Deadline::NEVER)
    }

    /// As [`Self::recv`], waiting for `time` at most.
    ///
    /// # Errors
    /// As [`Self::recv`], and [`Error::TimedOut`].
    pub fn recv_timeout(&self, time: Duration) -> Result<Message<'_>> {
        self.recv_until(Deadline::after(time))
    }

    #[inline]
    fn recv_until(&self, deadline: Deadline) -> Result<Message<'_>> {
        // A receiver that was taken for dead takes nothing from its successor.
        self.object.presence().check_all()?;
        match self.take()? {
            Some(message) => Ok(message),
            None => self.recv_later(deadline),
        }
    }

    #[inline(never)]
    fn recv_later(&self, deadline: Deadline) -> Result<Message<'_>> {
        let inner = self.object.inner;
        let want = self.object.words.word(WANT_DATA);
        let attempt = || self.take();
        let look = || self.look_for_senders().map(|()| None);
        wait::until(inner, want, deadline, attempt, look)
    }

    /// Takes the next message, if there is one at the moment.
    ///
    /// # Errors
    /// As [`Self::recv`]; [`Error::WouldBlock`] where there is none: the descriptor then tells when
    /// there is.
    pub fn try_recv(&self) -> Result<Message<'_>> {
        let presence = self.object.presence();
        presence.check_all()?;
        if let Some(message) = self.take()? {
            return Ok(message);
        }
        if let Some(watch) = self.watch.get() {
            let want = self.object.words.word(WANT_DATA);
            watch.arm(presence, &want);
            if let Some(message) = self.take()? {
                watch.again(presence, &want);
                return Ok(message);
            }
            presence.check_all()?;
        }
        self.look_for_senders()?;
        Err(Error::WouldBlock)
    }

    /// Has the descriptor become readable at once: not everything that is there was taken.
    pub(crate) fn look_again(&self) {
        if let Some(watch) = self.watch.get() {
            watch.again(self.object.presence(), &self.object.words.word(WANT_DATA));
        }
    }

    /// The descriptor of [`AsFd`], or why there is none.
    #[doc(hidden)]
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        watched(&self.watch, self.object.presence(), self.object.words.word(WANT_DATA))
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.object.name
    }

    /// Bytes of the largest message.
    #[must_use]
    pub fn message_size(&self) -> u64 {
        self.geometry.message
    }

    /// How many messages senders threw away because they came faster than they were taken, as far
    /// as this end has seen.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// How many messages are held. In a child of fork none: they are its parent's.
    #[must_use]
    pub fn held(&self) -> u32 {
        if self.object.presence().check().is_err() {
            return 0;
        }
        self.lanes.borrow().iter().map(|incoming| incoming.held).sum()
    }

    /// In one piece, as [`Sender::loan_at_once`](super::Sender) is.
    #[inline(always)]
    fn take(&self) -> Result<Option<Message<'_>>> {
        self.learn();
        let mut lanes = self.lanes.borrow_mut();
        let count = lanes.len();
        let mut too_many = false;
        for step in 0..count {
            let at = self.first.get() + step;
            let at = if at < count { at } else { at - count };
            let Some(incoming) = lanes.get_mut(at) else { break };
            if self.is_aside(incoming.number) {
                continue;
            }
            if incoming.held >= self.geometry.loans {
                too_many |= incoming.has_more();
                continue;
            }
            match incoming.take(&self.lost) {
                Found::Nothing => {}
                Found::Nonsense => self.set_aside(incoming.number),
                Found::Message { buffer, area, position } => {
                    incoming.held += 1;
                    self.first.set(at + 1);
                    self.had_sender.set(true);
                    let space = self.object.words.word(want_space_at(incoming.number));
                    // The exchange emptied the cell.
                    wait::wake_after_exchange(self.object.presence(), space);
                    let state = sent(self.geometry, position);
                    return Ok(Some(Message { receiver: self, lane: at, buffer, state, area }));
                }
            }
        }
        let most = self.geometry.loans;
        if too_many {
            return Err(Error::TooManyMessages { most });
        }
        if self.untold.replace(false) { Err(self.object.corrupt()) } else { Ok(None) }
    }

    /// Is there a sender, or was there none yet?
    fn look_for_senders(&self) -> Result<()> {
        let presence = self.object.presence();
        if self.aside.get() != 0 {
            self.mend();
        }
        let in_use = self.object.words.word(IN_USE).load(Acquire);
        let (mut lives, mut had) = (false, false);
        for number in 0..self.geometry.lanes {
            let word = self.object.words.word(sender_at(number));
            let seen = word.load(Acquire);
            let Some(party) = Party::of(seen) else { continue };
            if presence.lives(party) {
                lives = true;
                // One that finds no memory for its lane gives it up again: it was no sender.
                had |= in_use >> number & 1 == 1;
            } else if word.compare_exchange(seen, 0, AcqRel, Relaxed).is_ok() {
                self.saw_death.set(true);
            }
        }
        // The last message of one that left is taken before that is told.
        let has_more = |incoming: &Incoming| !self.is_aside(incoming.number) && incoming.has_more();
        let more = self.lanes.borrow().iter().any(has_more);
        if lives || more {
            self.had_sender.set(self.had_sender.get() || had || more);
            return Ok(());
        }
        let had = self.had_sender.replace(false) | self.saw_death.get();
        if !had {
            return Ok(());
        }
        Err(Error::Ended { died: self.saw_death.replace(false) })
    }
}

/// The descriptor becomes readable when a call that said [`Error::WouldBlock`] is worth another
/// try, and now and then without. It is this end's for as long as it lives: not to be read or
/// closed. Where none can be made, poll says of it that it is not open.
impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor().unwrap_or_else(|_| wait::no_descriptor())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let presence = self.object.presence();
        // A child of fork touches nothing of its parent's.
        if presence.check().is_err() {
            return;
        }
        let want = self.object.words.word(WANT_DATA);
        if let Some(watch) = self.watch.take() {
            take_wish_back(want, watch.wish());
            watch.retire(presence);
        }
        if presence.check_all().is_err() {
            return;
        }
        let (word, mine) = (self.object.words.word(RECEIVER), self.party.bits());
        if word.compare_exchange(mine, mine | LEFT, AcqRel, Relaxed).is_ok() {
            for incoming in self.lanes.borrow().iter() {
                let space = self.object.words.word(want_space_at(incoming.number));
                wait::wake(presence, space);
            }
        }
    }
}
