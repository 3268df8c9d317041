//! The sender's end of a queue.

use super::lane::Lane;
use super::lanes::{give_lane, take_lane};
use super::layout::{
    Cell, Content, FREE, Geometry, IN_USE, LEFT, LENT, RECEIVER, WANT_DATA, sent, want_space_at,
};
use super::{Loan, WhenFull};
use crate::object::Object;
use crate::sleeper::{Sleeper, take_wish_back};
use crate::wait::{self, Deadline, watched};
use crate::{Error, Kind, Result, Segment};
use ginnel_region::Party;
use ginnel_ring::park;
use std::cell::{Cell as Slot, OnceCell};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

/// An end that sends. One thread at a time uses it; open one for each thread.
///
/// What it sends waits for the receiver also after this end was closed, or its process died. A
/// message is there as a whole or not at all.
pub struct Sender {
    pub(super) object: Object,
    pub(super) lane: Lane,
    number: u32,
    party: Party,
    full: WhenFull,
    /// The next position to be sent.
    next: Slot<u64>,
    /// How many loans are out.
    pub(super) lent: Slot<u32>,
    /// Where to look for a free buffer.
    hint: Slot<u32>,
    pub(super) trusting: bool,
    watch: OnceCell<Sleeper>,
    /// The receiver's word where it was gone and this end knows: it waits for the next one. And the
    /// position from which on it counts whether somebody takes messages.
    gone: Slot<(u64, u64)>,
    /// There is never another receiver: that it is gone is said again and again.
    of_one: bool,
}

shown! {
    Sender as "Sender": |own| { name: own.name(), message_size: own.message_size() };
}

impl Sender {
    /// Becomes a sender of a queue that is there. It waits where the queue is full:
    /// [`Self::when_full`] says otherwise.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::WrongKind`], [`Error::InUse`] where the queue has as many
    /// senders as it may, [`Error::SegmentFull`], [`Error::NoMemory`], [`Error::Corrupt`].
    pub fn open(segment: &Segment, name: &str) -> Result<Self> {
        let object = Object::open(segment.inner, name, Kind::Queue)?;
        let geometry = Geometry::of(&object)?;
        let party = object.presence().party();
        let (number, lane, next) = take_lane(&object, geometry)?;
        object.words.word(IN_USE).fetch_or(1 << number, Release);
        let sender = Self {
            object,
            lane,
            number,
            party,
            full: WhenFull::Wait,
            next: Slot::new(next),
            lent: Slot::new(0),
            hint: Slot::new(0),
            trusting: segment.is_trusting(),
            watch: OnceCell::new(),
            gone: Slot::new((0, next)),
            of_one: false,
        };
        // One that went before this end came is none that it has lost.
        let word = sender.object.words.word(RECEIVER).load(Acquire);
        if sender.look_for_receiver().is_err() {
            sender.gone.set((word, next));
        }
        Ok(sender)
    }

    /// This sender, for a queue that never has another receiver than the one of now: that this is
    /// gone is said again and again, whenever it went.
    #[doc(hidden)]
    #[must_use]
    pub fn of_one_receiver(mut self) -> Self {
        self.of_one = true;
        self
    }

    /// This sender, which does something else where the queue is full.
    #[must_use]
    pub fn when_full(mut self, full: WhenFull) -> Self {
        self.full = full;
        self
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.object.name
    }

    /// Bytes of the largest message.
    #[must_use]
    pub fn message_size(&self) -> u64 {
        self.lane.geometry.message
    }

    /// Borrows a buffer for a message of `len` bytes, which holds whatever was in it before.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::TooManyLoans`] where as many loans are out as the queue holds
    /// messages; where the queue is full and nobody is to wait, [`Error::WouldBlock`];
    /// [`Error::Ended`] where it is full and the receiver has left or died since this end was
    /// opened, once: who calls again waits for the next one; [`Error::Corrupt`],
    /// [`Error::Forked`], [`Error::Lost`], [`Error::Gone`].
    #[inline]
    pub fn loan(&self, len: usize) -> Result<Loan<'_>> {
        self.loan_until(len, Deadline::NEVER)
    }

    /// As [`Self::loan`], waiting for `time` at most, whatever is said for a full queue.
    ///
    /// # Errors
    /// As [`Self::loan`], and [`Error::TimedOut`].
    pub fn loan_timeout(&self, len: usize, time: Duration) -> Result<Loan<'_>> {
        self.loan_until(len, Deadline::after(time))
    }

    #[inline]
    fn loan_until(&self, len: usize, deadline: Deadline) -> Result<Loan<'_>> {
        match self.loan_at_once(len)? {
            Some(loan) => Ok(loan),
            None => self.loan_later(len, deadline),
        }
    }

    /// What each message takes, in one piece: parts of it that hand each other a loan, or an error,
    /// through memory would take as long as all the rest.
    #[inline(always)]
    fn loan_at_once(&self, len: usize) -> Result<Option<Loan<'_>>> {
        self.object.presence().check()?;
        if len as u64 > self.lane.geometry.message {
            return Err(Error::TooLarge { len, max: self.lane.geometry.message });
        }
        self.take_buffer(len)
    }

    #[inline(never)]
    fn loan_later(&self, len: usize, deadline: Deadline) -> Result<Loan<'_>> {
        match self.loan_when_told(len) {
            Err(Error::WouldBlock) if self.full != WhenFull::Refuse => {}
            other => return other,
        }
        let inner = self.object.inner;
        let attempt = || self.take_buffer(len);
        let look = || self.look_for_next_receiver().map(|()| None);
        wait::until(inner, self.want(), deadline, attempt, look)
    }

    /// Borrows a buffer, if there is one at the moment.
    ///
    /// # Errors
    /// As [`Self::loan`]; [`Error::WouldBlock`] where the queue is full, whoever is to wait: the
    /// descriptor then tells when it is not.
    pub fn try_loan(&self, len: usize) -> Result<Loan<'_>> {
        match self.loan_at_once(len)? {
            Some(loan) => Ok(loan),
            None => self.loan_when_told(len),
        }
    }

    /// There was none: the descriptor is to tell.
    #[cold]
    fn loan_when_told(&self, len: usize) -> Result<Loan<'_>> {
        if let Some(watch) = self.watch.get() {
            watch.arm(self.object.presence(), &self.want());
            if let Some(loan) = self.take_buffer(len)? {
                watch.again(self.object.presence(), &self.want());
                return Ok(loan);
            }
        }
        self.object.presence().check_all()?;
        self.look_for_next_receiver()?;
        Err(Error::WouldBlock)
    }

    /// Sends a copy of `bytes`.
    ///
    /// # Errors
    /// As [`Self::loan`].
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        self.loan(bytes.len())?.send_copy(bytes)
    }

    /// As [`Self::send`], waiting for room for `time` at most.
    ///
    /// # Errors
    /// As [`Self::loan_timeout`].
    pub fn send_timeout(&self, bytes: &[u8], time: Duration) -> Result<()> {
        self.loan_timeout(bytes.len(), time)?.send_copy(bytes)
    }

    /// Sends a copy, if there is room at the moment.
    ///
    /// # Errors
    /// As [`Self::try_loan`].
    pub fn try_send(&self, bytes: &[u8]) -> Result<()> {
        self.try_loan(bytes.len())?.send_copy(bytes)
    }

    /// How many buffers are lent. In a child of fork none: they are its parent's.
    #[must_use]
    pub fn lent(&self) -> u32 {
        if self.object.presence().check().is_ok() { self.lent.get() } else { 0 }
    }

    fn want(&self) -> &'static AtomicU64 {
        self.object.words.word(want_space_at(self.number))
    }

    /// A buffer, where there is one, and a cell for it behind those of the loans that are out.
    #[inline]
    fn take_buffer(&self, len: usize) -> Result<Option<Loan<'_>>> {
        let (lane, geometry) = (self.lane, self.lane.geometry);
        if self.lent.get() >= geometry.cells {
            // Nobody else makes room for another one.
            return Err(Error::TooManyLoans { most: geometry.cells });
        }
        let position = self.next.get().wrapping_add(self.lent.get().into());
        let turn = geometry.turn_of(position);
        // Acquire pairs with the receiver's exchange that emptied it.
        let word = lane.cell(position).load(Acquire);
        let cell = Cell::of(word);
        match cell.content {
            Content::Empty | Content::Dropped { .. } if cell.turn == turn => {}
            Content::Full { buffer, .. } if cell.turn == geometry.turn_before(turn) => {
                if self.full != WhenFull::DropOldest {
                    return Ok(None);
                }
                self.drop_oldest(position, word, buffer)?;
            }
            _ => return Err(self.object.corrupt()),
        }
        let buffers = geometry.buffers();
        let hint = self.hint.get();
        let free = (hint..buffers).chain(0..hint).find(|&buffer| {
            // Acquire pairs with the receiver's exchange: it has read what was in it.
            lane.state(buffer).load(Acquire) == FREE
        });
        let Some(buffer) = free else { return Ok(None) };
        let area = lane.buffer(buffer, len).ok_or_else(|| self.object.corrupt())?;
        // Who was taken for dead has no lane any more.
        self.object.presence().check_all()?;
        lane.state(buffer).store(LENT, Relaxed);
        self.hint.set(if buffer + 1 == buffers { 0 } else { buffer + 1 });
        self.lent.set(self.lent.get() + 1);
        Ok(Some(Loan { sender: self, buffer, area, len }))
    }

    /// Takes back the message that is in the cell where `position` is to be.
    #[cold]
    fn drop_oldest(&self, position: u64, word: u64, buffer: u32) -> Result<()> {
        let (lane, geometry) = (self.lane, self.lane.geometry);
        let turn = geometry.turn_of(position);
        let before = position.wrapping_sub(geometry.cells.into());
        if buffer >= geometry.buffers() {
            return Err(self.object.corrupt());
        }
        let dropped = Cell { turn, content: Content::Dropped { buffer } }.word();
        // Where this fails, the receiver has just taken it: then there is room, too.
        if lane.cell(position).compare_exchange(word, dropped, AcqRel, Relaxed).is_err() {
            return Ok(());
        }
        // Only now is it nobody else's. A receiver that has taken a dead one's place may have freed
        // it, as one whose cell has moved on.
        let state = lane.state(buffer).swap(FREE, Relaxed);
        if state == FREE || state == sent(geometry, before) {
            Ok(())
        } else {
            Err(self.object.corrupt())
        }
    }

    /// Was the queue made with these measures?
    pub(crate) fn is_of(&self, queue: &super::Queue) -> bool {
        queue.same_as(&self.object).is_ok()
    }

    /// Fails where the receiver is gone, once for each receiver: afterwards this end waits for the
    /// next one.
    fn look_for_next_receiver(&self) -> Result<()> {
        let word = self.object.words.word(RECEIVER).load(Acquire);
        let (known, since) = self.gone.get();
        let (next, most) = (self.next.get(), u64::from(self.lane.geometry.cells));
        // Where more was sent since than the queue holds, somebody took messages: the same process
        // has come and gone once more.
        if word == known && next.wrapping_sub(since) <= most && !self.of_one {
            return Ok(());
        }
        self.look_for_receiver().inspect_err(|_| self.gone.set((word, next.wrapping_sub(most))))
    }

    /// Is there somebody to wait for? Where there never was a receiver, one may come.
    pub(crate) fn look_for_receiver(&self) -> Result<()> {
        let word = self.object.words.word(RECEIVER).load(Acquire);
        if word & LEFT != 0 {
            return Err(Error::Ended { died: false });
        }
        let dead = Party::of(word).is_some_and(|party| !self.object.presence().lives(party));
        if dead { Err(Error::Ended { died: true }) } else { Ok(()) }
    }

    /// Has the receiver closed its end, and nobody taken its place? Not: does it live.
    pub(crate) fn receiver_has_left(&self) -> bool {
        self.object.words.word(RECEIVER).load(Acquire) & LEFT != 0
    }

    /// Sends a loan. Where this process is not, or no longer, the lane's party, nothing is sent.
    #[inline]
    pub(super) fn publish(&self, buffer: u32, len: usize) -> Result<()> {
        let (lane, position) = (self.lane, self.next.get());
        self.object.presence().check()?;
        self.lent.set(self.lent.get() - 1);
        self.object.presence().check_all()?;
        let turn = lane.geometry.turn_of(position);
        // Before the cell: whoever takes a dead one's place tells by it what is in a cell.
        lane.state(buffer).store(sent(lane.geometry, position), Release);
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let word = Cell { turn, content: Content::Full { buffer, len } }.word();
        let want = self.object.words.word(WANT_DATA);
        if park::publish_and_look(lane.cell(position), word, want) {
            wait::wake(self.object.presence(), want);
        }
        let next = position.wrapping_add(1);
        lane.will_write(next, self.hint.get());
        self.next.set(next);
        Ok(())
    }

    /// The descriptor of [`AsFd`], or why there is none.
    #[doc(hidden)]
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        watched(&self.watch, self.object.presence(), self.want())
    }
}

/// The descriptor becomes readable when a call that said [`Error::WouldBlock`] is worth another
/// try, and now and then without. It is this end's for as long as it lives: not to be read or
/// closed. Where none can be made, poll says of it that it is not open.
impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor().unwrap_or_else(|_| wait::no_descriptor())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let presence = self.object.presence();
        // A child of fork touches nothing of its parent's.
        if presence.check().is_err() {
            return;
        }
        if let Some(watch) = self.watch.take() {
            take_wish_back(self.want(), watch.wish());
            watch.retire(presence);
        }
        if presence.check_all().is_ok() {
            give_lane(&self.object, self.number, self.party);
            wait::wake(presence, self.object.words.word(WANT_DATA));
        }
    }
}
