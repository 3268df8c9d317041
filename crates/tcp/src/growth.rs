//! A larger ring, where the present one is full too often or much goes through it: the writer's
//! part. (The reader moves into it once it has read the one before: `rx/ring.rs`.)
//!
//! What the writer knows of its ring is three words, and the reader is told in three more. A
//! process that is killed between two of them leaves others that share the socket, so the whole
//! step is first written down in one word: whoever takes the lock over from the dead does it again
//! from there.

use crate::endpoint::Endpoint;
use crate::layout::Direction;
use crate::ledger::{Send, Slot};
use ginnel_node::budget::Purpose;
use ginnel_region::{Extent, Owner, PAGE, Use};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;

/// How often a ring may be found full before it grows.
const FULL_BEFORE_GROWTH: u64 = 2;
/// Rings up to this size are anybody's. What goes round a larger one has left the writer's second
/// cache for the third by the time that it is read, and comes from there up to three times as fast
/// where the cores share it; many of them would only push each other out of it.
const ORDINARY: u64 = 1 << 20;
/// As large as a ring gets because much goes through it: one that the third cache does not hold
/// either is slower again. Only where it is found full it gets larger.
const LARGE: u64 = 4 << 20;
/// Bytes that go through a ring before one beyond [`ORDINARY`] is thought of, and between two such
/// thoughts: they lose about as much time in the smaller ring as the pages of the larger take.
const LARGE_AFTER: u64 = 32 << 20;
/// So many bytes more are written before the next thought where there can be no larger one.
const IN_VAIN: u64 = 256 << 20;
/// Shorter writes gain little by it, bytes: they wait for the news of each rather than for what is
/// in it.
const LONG: u64 = 1 << 10;
/// A ring beyond [`ORDINARY`] is at most such a part of its segment …
const PART: u64 = 16;
/// … and all those of one ledger's programs together are at most such a part: the rest is for
/// connections to come.
const PART_OF_ALL: u64 = 8;

/// One growth, as [`Send::growing`] has it: offset of the new ring, which is a page's, and in the
/// bits below the binary logarithms of both sizes in pages, and the new ring's number modulo 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Growth {
    /// Bytes from the segment's start to the new ring's.
    offset: u64,
    /// Its bytes, a power of two of at least a page and less than 2^28.
    size: u64,
    /// Those of the ring before.
    before: u64,
    /// How many rings there have been before it, modulo 16.
    number: u64,
}

impl Growth {
    /// Never 0: the new ring is larger than a page.
    fn word(self) -> u64 {
        // Of a ring that cannot be (whoever writes the ledger says so) the least.
        let pages = |size: u64| u64::from((size / PAGE).checked_ilog2().unwrap_or(0)) & 15;
        self.offset | pages(self.size) << 8 | pages(self.before) << 4 | self.number & 15
    }

    fn of(word: u64) -> Option<Self> {
        let size = |at: u32| PAGE << (word >> at & 15);
        (word != 0).then(|| Self {
            offset: word & !(PAGE - 1),
            size: size(8),
            before: size(4),
            number: word & 15,
        })
    }
}

/// Ends a growth that was begun, if there is one. Under the send lock; each step may have been
/// taken before.
pub(crate) fn finish(tx: &Send, direction: Direction<'_>) {
    let Some(growth) = Growth::of(tx.growing.load(Acquire)) else { return };
    // Nothing of the following comes before it was written down.
    compiler_fence(SeqCst);
    let (tail, known) = (tx.tail.load(Relaxed), tx.grown.load(Relaxed));
    let grown = if known & 15 == growth.number { known } else { known.wrapping_add(1) };
    tx.old_size.store(growth.before, Relaxed);
    tx.ring_start.store(tail, Relaxed);
    tx.ring_offset.store(growth.offset, Relaxed);
    tx.ring_size.store(growth.size, Relaxed);
    tx.grown.store(grown, Relaxed);
    tx.full.store(0, Relaxed);
    direction.set_ring(grown, tail, growth.offset, growth.size);
    direction.grown().store(grown, Release);
    // Sequentially consistent: nothing of the above comes later.
    tx.growing.store(0, SeqCst);
}

/// Has so much gone through the ring, to which `n` bytes are to be added, that a larger one is to
/// be thought of, be it full or not?
#[inline]
pub(crate) fn is_busy(tx: &Send, n: u64) -> bool {
    n >= LONG && is_due(tx)
}

#[inline]
fn is_due(tx: &Send) -> bool {
    // The thought may be ahead.
    tx.tail.load(Relaxed).wrapping_sub(tx.thought.load(Relaxed)) as i64 >= LARGE_AFTER as i64
}

impl Endpoint<'_> {
    /// The ring was found full: makes a larger one where that is so too often. True if it did.
    #[cold]
    pub(crate) fn grow_as_full(self, direction: Direction<'_>) -> bool {
        let tx = &self.slot().tx;
        Slot::count(&tx.full, 1);
        if tx.full.load(Relaxed) < FULL_BEFORE_GROWTH {
            return false;
        }
        let (size, most) = (tx.ring_size.load(Relaxed), self.attachment.settings.ring_max);
        let larger = size.saturating_mul(4).min(most);
        if size < most.min(ORDINARY) {
            self.has_moved(direction) && self.grow(direction, larger.min(ORDINARY))
        } else {
            is_due(tx) && self.grow_beyond(direction, larger)
        }
    }

    /// The ring [`is_busy`]: makes a large one, where few are. True if it did.
    #[cold]
    pub(crate) fn grow_as_busy(self, direction: Direction<'_>) -> bool {
        self.grow_beyond(direction, self.attachment.settings.ring_max.min(LARGE))
    }

    /// Makes a ring beyond [`ORDINARY`], where that may be. True if it did.
    fn grow_beyond(self, direction: Direction<'_>, larger: u64) -> bool {
        let (slot, ledger, processes) =
            (self.slot(), &self.attachment.ledger, &self.attachment.node.processes);
        let tx = &slot.tx;
        let tail = tx.tail.load(Relaxed);
        tx.thought.store(tail, Relaxed);
        if !self.has_moved(direction) {
            return false;
        }
        let (size, segment) = (tx.ring_size.load(Relaxed), self.joined().segment.len());
        let permitted = larger > size.max(ORDINARY)
            && larger.saturating_mul(PART) <= segment
            && ledger.permit_large(processes, slot);
        let grew = permitted
            && ledger.large_bytes(processes, ORDINARY) + larger <= segment / PART_OF_ALL
            && self.grow(direction, larger);
        if !grew {
            tx.thought.store(tail.wrapping_add(IN_VAIN), Relaxed);
            if permitted {
                ledger.give_large_back(slot);
            }
        }
        grew
    }

    /// Has the reader moved into the present ring?
    fn has_moved(self, direction: Direction<'_>) -> bool {
        direction.grown_ack().load(Acquire) == self.slot().tx.grown.load(Relaxed)
    }

    /// Makes a ring of `larger` bytes, as the reader has moved into the present one. True if there
    /// was room.
    fn grow(self, direction: Direction<'_>, larger: u64) -> bool {
        let (slot, segment) = (self.slot(), &self.joined().segment);
        let tx = &slot.tx;
        let (size, grown) = (tx.ring_size.load(Relaxed), tx.grown.load(Relaxed));
        if self.attachment.node.budget.refuses_growth(larger) {
            tx.full.store(0, Relaxed);
            return false;
        }
        self.free_old_ring();
        let pages = u32::try_from(larger / PAGE).unwrap_or(1);
        let owner = Owner {
            member: self.joined().member,
            kind: Use::Ring,
            tag: Some(slot.channel.load(Relaxed)),
        };
        let permitted = |bytes| self.attachment.node.may_take(bytes, Purpose::Growth);
        let Ok(extent) = segment.claim_if(pages, owner, permitted) else {
            tx.full.store(0, Relaxed);
            return false;
        };
        // Nothing by themselves while there is no old ring.
        tx.old_start.store(tx.ring_start.load(Relaxed), Relaxed);
        tx.old_offset.store(tx.ring_offset.load(Relaxed), Relaxed);
        let growth = Growth {
            offset: extent.offset(),
            size: larger,
            before: size,
            number: grown.wrapping_add(1) & 15,
        };
        // Sequentially consistent: from here on it is done, whoever does the rest.
        tx.growing.store(growth.word(), SeqCst);
        finish(tx, direction);
        true
    }

    /// Gives the ring before the last growth back, once the reader has left it.
    fn free_old_ring(self) {
        let tx = &self.slot().tx;
        let old = tx.old_size.swap(0, Relaxed);
        if old != 0 {
            let first = u32::try_from(tx.old_offset.load(Relaxed) / PAGE).unwrap_or(u32::MAX);
            // The first two rings were claimed as one; pages of the other direction are not
            // touched.
            let extent = Extent { page: first, pages: u32::try_from(old / PAGE).unwrap_or(0) };
            self.joined().segment.release_if_tagged(
                extent.page,
                extent.pages,
                self.slot().channel.load(Relaxed),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::attached;
    use crate::layout::{COPIED, Channel};
    use crate::ledger::flag;
    use crate::settle::tests::active_end;
    use std::sync::atomic::AtomicU64;

    const GROWTH: Growth =
        Growth { offset: 0x12_3456_7000, size: 1 << 20, before: PAGE, number: 3 };
    /// What [`state`] is once it has ended, where position 777 was written next.
    const ENDED: [u64; 8] = [PAGE, 777, GROWTH.offset, GROWTH.size, 3, 0, GROWTH.offset, 3];

    #[test]
    fn a_growth_is_one_word() {
        for (size, before) in [(PAGE * 2, PAGE), (1 << 26, 1 << 20), (1 << 27, 1 << 26)] {
            for number in [0, 15] {
                let growth = Growth { size, before, number, ..GROWTH };
                assert_eq!(Growth::of(growth.word()), Some(growth));
            }
        }
        assert_eq!(Growth::of(0), None);
    }

    /// The writer's words, what the reader is told, and whether that is all.
    fn state(slot: &Slot, channel: Channel<'_>) -> [u64; 8] {
        let (tx, direction) = (&slot.tx, channel.direction(0));
        let ours =
            [&tx.old_size, &tx.ring_start, &tx.ring_offset, &tx.ring_size, &tx.grown, &tx.growing];
        let [old, start, offset, size, grown, growing] = ours.map(|word| word.load(Relaxed));
        let (_, told, _) = direction.ring(grown);
        let told = told.checked(|_| true).expect("any");
        assert_eq!(told, offset, "the reader is told of the writer's ring");
        [old, start, offset, size, grown, growing, told, direction.grown().load(Relaxed)]
    }

    /// Writes down that it is to be done.
    fn begin(tx: &Send) {
        tx.tail.store(777, Relaxed);
        tx.grown.store(2, Relaxed);
        tx.ring_size.store(PAGE, Relaxed);
        tx.growing.store(GROWTH.word(), Relaxed);
    }

    #[test]
    fn a_growth_is_ended_from_wherever_it_stopped() {
        // So many of the words were stored before the writer died.
        for steps in 0..=6 {
            // SAFETY: a slot is made of atomics, and zeroes are valid.
            let slot: Box<Slot> = unsafe { Box::new(std::mem::zeroed()) };
            let words = [const { AtomicU64::new(0) }; COPIED];
            let channel = Channel::in_copy(&words);
            let tx = &slot.tx;
            begin(tx);
            let stores = [
                (&tx.old_size, PAGE),
                (&tx.ring_start, 777),
                (&tx.ring_offset, GROWTH.offset),
                (&tx.ring_size, GROWTH.size),
                (&tx.grown, 3),
                (channel.direction(0).grown(), 3),
            ];
            stores.iter().take(steps).for_each(|(word, value)| word.store(*value, Relaxed));
            finish(tx, channel.direction(0));
            assert_eq!(state(&slot, channel), ENDED, "after {steps} steps");
            tx.tail.store(888, Relaxed);
            finish(tx, channel.direction(0));
            assert_eq!(state(&slot, channel), ENDED, "there is nothing more to end");
        }
    }

    #[test]
    fn who_takes_the_lock_over_from_the_dead_ends_their_growth() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let end = active_end(&attachment);
        let (slot, tx) = (end.slot(), &end.slot().tx);
        slot.set(flag::COUNTED, true);
        tx.epoch.store(1, Relaxed);
        // Of the same entry, one program before: that has ended.
        std::mem::forget(tx.lock.try_lock(end.ticket().wrapping_sub(1 << 16)).expect("free"));
        begin(tx);
        assert!(end.send_lock().taken_over);
        assert_eq!(state(slot, end.channel()), ENDED);
    }
}
