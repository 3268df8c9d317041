//! Which connections meet their other end in the memory of a pair ([`crate::pairs`]), and how they
//! come there and back.

use crate::endpoint::Endpoint;
use crate::ledger::{Reason, Stage, flag};
use crate::lifetime::release_left;
use crate::pairs::Pair;
use crate::rendezvous::{Entry, state};
use crate::tuple::Tuple;
use ginnel_node::joined::Joined;
use ginnel_node::processes::ProcessFlags;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

impl<'a> Endpoint<'a> {
    /// What this process has of the segment in which the connection is, or may come to be.
    #[inline]
    pub fn joined(self) -> &'a Joined {
        // (A connection of a pair that is foreign is no endpoint here: see the shim's `try_adopt`.)
        self.attachment.joined_of(self.slot()).unwrap_or_else(|| self.attachment.node.joined())
    }

    /// Is the connection in the memory of a pair, or to be there?
    #[must_use]
    #[inline]
    pub fn is_in_pair(self) -> bool {
        self.slot().has(flag::PAIR)
    }

    /// Must whoever waits for bytes be woken by a token? Others may read it whom no bell reaches,
    /// or nobody is rung in its memory.
    #[must_use]
    pub fn wakes_by_token(self) -> bool {
        self.slot().has(flag::SHARED)
            || self.slot().has_several_holders()
            || self.is_in_pair() && !self.joined().rings()
    }

    /// Under which addresses the two ends find each other: `own` in the own segment; in a pair's
    /// the number that the broker drew, in the shape of addresses.
    pub(crate) fn meets_at(self, own: &Tuple) -> Tuple {
        let known = if self.is_in_pair() {
            self.attachment.pairs.of(self.index(), self.slot())
        } else {
            None
        };
        let Some((_, number)) = known else { return *own };
        let [mine, other] = if number & 1 == 0 { [0, 1] } else { [1, 0] };
        Tuple {
            label: number & !1,
            local: [mine; 16],
            local_port: mine.into(),
            remote: [other; 16],
            remote_port: other.into(),
        }
    }

    /// May the broker be asked for the other end? It is published, and nobody has come; and no
    /// other process has the socket, nor had it: that one would have no way into a pair's memory.
    #[must_use]
    pub fn may_meet_by_broker(self) -> bool {
        let slot = self.slot();
        slot.stage() == Stage::Published
            && slot.is_alone()
            && !slot.has(flag::HOLD | flag::LEAVING | flag::PAIR | flag::SEVERAL)
    }

    /// Is it in the memory of a pair, also after a step into one that another thread is taking just
    /// now? What the caller has said of the slot before (that a program which is started has it,
    /// too) is seen by whoever takes such a step later.
    #[must_use]
    pub fn comes_to_pair(self) -> bool {
        if !self.is_in_pair() && self.slot().stage() == Stage::Published {
            // That step is taken under this lock, and is none that this very thread is taking.
            drop(
                self.slot()
                    .tx
                    .lock
                    .lock_unless_interrupted(&self.attachment.node.processes, self.ticket()),
            );
        }
        self.is_in_pair()
    }

    /// Has the connection meet its other end in the memory of `pair`, under `number`, as this
    /// `side`. `false`: not now, or not any more.
    ///
    /// A fork may be under way in another thread: its child has a copy of what stands here, and no
    /// other way to learn where the connection is. So that stands here before it is asked whether
    /// this process is alone: a fork that is not seen then copies it.
    #[must_use]
    pub fn meet_in(self, pair: &'static Pair, number: u64, side: u8) -> bool {
        let (slot, pairs) = (self.slot(), &self.attachment.pairs);
        let Some(_held) = slot.tx.lock.try_lock(self.ticket()) else { return false };
        // Also where calls are not counted: they are to be counted first.
        if !self.may_meet_by_broker() || slot.uncounted.load(Relaxed) != 0 || pair.is_given_up() {
            return false;
        }
        let Some(meeting) = pairs.meeting(self.index()) else { return false };
        meeting.pair.store(std::ptr::from_ref(pair).cast_mut(), Release);
        meeting.number.store(number & !1 | u64::from(side), Release);
        meeting.generation.store(slot.generation.load(Relaxed), Release);
        fence(SeqCst);
        let entry = Entry::at(&self.joined().segment, slot.entry.load(Relaxed).wrapping_sub(1));
        // Otherwise somebody has come there at this moment.
        let leaves = || entry.step(state::PUBLISHED, state::FREE) || entry.state() == state::FREE;
        if !self.may_meet_by_broker() || self.begins_anew() || !leaves() {
            meeting.generation.store(0, Release);
            return false;
        }
        self.start_over_in(true);
        slot.set_reason(Reason::NoPeer);
        true
    }

    /// Has it look for its other end in a pair's memory, or in the own segment again.
    fn start_over_in(self, pair: bool) {
        let slot = self.slot();
        // What was left where it has been is given back while it is known to be there.
        release_left(self.attachment, slot);
        slot.segment.store(0, Relaxed);
        slot.set(flag::PAIR, pair);
        slot.attempts.store(0, Relaxed);
        self.start_over();
    }

    /// Has a connection come back to its own segment that waits in a pair's memory for an end that
    /// did not come: its process may have ended just before it was told. `false`: not now, or not
    /// any more. Whoever comes there at this moment finds nobody, and comes back as well.
    #[must_use]
    pub fn come_back(self) -> bool {
        let slot = self.slot();
        let Some(_held) = slot.tx.lock.try_lock(self.ticket()) else { return false };
        let waits = slot.stage() == Stage::Published && slot.has(flag::PAIR) && slot.is_alone();
        if !waits
            || slot.has(flag::SEVERAL | flag::HOLD | flag::LEAVING)
            || slot.uncounted.load(Relaxed) != 0
        {
            return false;
        }
        let entry = Entry::at(&self.joined().segment, slot.entry.load(Relaxed).wrapping_sub(1));
        if !entry.step(state::PUBLISHED, state::FREE) && entry.state() != state::FREE {
            return false;
        }
        self.start_over_in(false);
        true
    }

    /// Is this process about to become another program, which will have nothing of any pair?
    fn begins_anew(self) -> bool {
        self.attachment.node.processes.process(self.me()).has(ProcessFlags::Executing)
    }
}
