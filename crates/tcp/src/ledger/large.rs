//! Who writes to a large ring: few ends at a time, as many would only push each other's bytes out
//! of the processor's cache (`growth.rs`). Permits are words in the ledger's header: two ends that
//! want the last one at the same time do not both get it, and nobody goes through the slots to find
//! that there is none.
//!
//! An end that hardly writes any more loses its permit to one that does, and keeps its ring. So
//! there may be more large rings than permits; [`Ledger::large_bytes`] bounds them.

use super::{Ledger, Slot, Stage, flag};
use ginnel_node::processes::Processes;
use ginnel_region::sys;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// How many ends have one at a time.
pub(super) const PERMITS: usize = 2;
/// For so long at least nobody loses its permit, milliseconds: no less than a thread may wait for a
/// processor that others want, too.
const A_WHILE: u32 = 1000;
/// Who has written less in each such time may lose it, MiB.
const LITTLE: u32 = 32;

/// One permit.
#[repr(C)]
pub(super) struct Permit {
    /// Whose it is: the slot's number in the ledger and one, and above it the slot's generation, by
    /// which one that was freed and taken again is another. 0: nobody's.
    holder: AtomicU64,
    /// When somebody who wanted it last looked at the holder, and what was seen: as [`Look::word`].
    seen: AtomicU64,
}

const NUMBER_BITS: u32 = 16;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// How far an end had written at some time.
#[derive(Clone, Copy)]
struct Look {
    /// Milliseconds, modulo 2^32.
    at: u32,
    /// Which end: its generation modulo 2^12.
    of: u32,
    /// MiB, modulo 2^20.
    written: u32,
}

const WRITTEN_BITS: u32 = 20;
const WRITTEN: u32 = (1 << WRITTEN_BITS) - 1;

impl Look {
    fn at(slot: &Slot, now: u32) -> Self {
        Self {
            at: now,
            of: slot.generation.load(Relaxed) as u32 & 0xfff,
            written: (slot.tx.tail.load(Relaxed) >> 20) as u32 & WRITTEN,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.at) << 32 | u64::from(self.of << WRITTEN_BITS | self.written)
    }

    fn of_word(word: u64) -> Self {
        Self {
            at: (word >> 32) as u32,
            of: word as u32 >> WRITTEN_BITS,
            written: word as u32 & WRITTEN,
        }
    }
}

impl Permit {
    /// Has its holder written little since it was looked at, and is that a while ago?
    fn is_idle(&self, holder: &Slot, now: u32) -> bool {
        let (look, before) = (Look::at(holder, now), Look::of_word(self.seen.load(Relaxed)));
        let whiles = now.wrapping_sub(before.at) / A_WHILE;
        if look.of == before.of && whiles == 0 {
            return false;
        }
        self.seen.store(look.word(), Relaxed);
        look.of == before.of
            && look.written.wrapping_sub(before.written) & WRITTEN < LITTLE.saturating_mul(whiles)
    }
}

impl Ledger {
    /// Takes a permit for the end of `slot`, whose send lock the caller has. True if it has one.
    pub(crate) fn permit_large(&self, processes: &Processes, slot: &Slot) -> bool {
        self.permit_large_at(processes, slot, (sys::coarse_monotonic_ns() / 1_000_000) as u32)
    }

    fn permit_large_at(&self, processes: &Processes, slot: &Slot, now: u32) -> bool {
        let (permits, mine) = (&self.header().large, self.holder_word(slot));
        let look = |permit: &Permit| permit.seen.store(Look::at(slot, now).word(), Relaxed);
        if let Some(permit) = permits.iter().find(|permit| permit.holder.load(SeqCst) == mine) {
            look(permit);
            return true;
        }
        let taken = permits.iter().find(|permit| {
            let holder = permit.holder.load(SeqCst);
            !self.is_using(processes, permit, holder, now)
                && permit.holder.compare_exchange(holder, mine, SeqCst, SeqCst).is_ok()
        });
        taken.map(look).is_some()
    }

    /// Gives the permit of `slot` back, where it has one.
    pub(crate) fn give_large_back(&self, slot: &Slot) {
        let mine = self.holder_word(slot);
        for permit in &self.header().large {
            let _ = permit.holder.compare_exchange(mine, 0, SeqCst, SeqCst);
        }
    }

    /// Bytes of the rings of more than `ordinary` bytes that living processes write to.
    pub(crate) fn large_bytes(&self, processes: &Processes, ordinary: u64) -> u64 {
        let size = |slot: &Slot| slot.tx.ring_size.load(Relaxed);
        self.slots()
            .filter(|slot| slot.is_in_channel() && size(slot) > ordinary && slot.is_held(processes))
            .map(size)
            .sum()
    }

    fn holder_word(&self, slot: &Slot) -> u64 {
        slot.generation.load(Relaxed) << NUMBER_BITS | u64::from(self.index(slot) + 1)
    }

    /// Does the holder still write, or may do so?
    fn is_using(&self, processes: &Processes, permit: &Permit, holder: u64, now: u32) -> bool {
        let Some(index) = ((holder & NUMBER) as u32).checked_sub(1) else { return false };
        let slot = self.slot(index);
        self.holder_word(slot) == holder
            && slot.stage() == Stage::Active
            && !slot.has(flag::TX_SHUT | flag::HOLD)
            && !permit.is_idle(slot, now)
            // The dead are freed some seconds later.
            && slot.is_held(processes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::LEDGER;
    use super::*;
    use ginnel_node::processes::Library;

    /// A ledger, and as many active ends of a process that lives.
    fn with_ends(count: u64, test: impl FnOnce(&Ledger, &Processes, &[&Slot])) {
        let directory = tempfile::tempdir().expect("a directory");
        let ledger = Ledger::open_or_create(directory.path()).expect("made");
        let processes = Processes::open_or_create(directory.path()).expect("made");
        let me = processes.enter(Library::of_process(LEDGER), &ledger).expect("room");
        let end = |cookie| {
            let slot = ledger.find_or_claim(&processes, cookie, 0, |_| {}).expect("room").0;
            slot.set_stage(Stage::Active);
            assert!(slot.hold(me));
            slot
        };
        test(&ledger, &processes, &(1..=count).map(end).collect::<Vec<_>>());
    }

    fn write(end: &Slot, mebibytes: u32) {
        end.tx.tail.fetch_add(u64::from(mebibytes) << 20, Relaxed);
    }

    #[test]
    fn who_ends_hands_over_or_shuts_down_makes_room() {
        with_ends(6, |ledger, processes, ends| {
            let asks = |end: usize| ledger.permit_large_at(processes, ends[end], 5);
            assert!(asks(0) && asks(1) && !asks(2));
            assert!(asks(0), "it has one");
            ledger.give_large_back(ends[2]);
            assert!(!asks(2), "it had none");
            ledger.give_large_back(ends[0]);
            assert!(asks(2) && !asks(0));
            ends[2].set(flag::TX_SHUT, true);
            assert!(asks(3) && !asks(0));
            ends[3].set_stage(Stage::Plain);
            assert!(asks(4) && !asks(0));
            ledger.free(ends[4]);
            assert!(asks(5) && !asks(0));
            ends[5].let_go(ends[5].holders[0].load(Relaxed) - 1);
            assert!(asks(0), "nobody holds the other");
        });
    }

    #[test]
    fn who_hardly_writes_makes_room_after_a_while() {
        with_ends(4, |ledger, processes, ends| {
            // The clock goes round.
            let asks = |end: usize, at: u32| {
                ledger.permit_large_at(processes, ends[end], at.wrapping_sub(1500))
            };
            assert!(asks(0, 0) && asks(1, 0) && !asks(2, 999), "it is not long ago");
            write(ends[0], LITTLE);
            write(ends[1], LITTLE);
            assert!(!asks(2, 1000), "enough");
            write(ends[0], 3 * LITTLE);
            write(ends[1], 3 * LITTLE - 1);
            assert!(
                asks(2, 4000) && !asks(1, 4000) && asks(0, 4000),
                "less than enough in three whiles"
            );
            assert!(!asks(3, 4999), "looked at by themselves");
            write(ends[2], LITTLE);
            assert!(asks(1, 5000) && !asks(0, 5000), "nothing since");
        });
    }

    /// What was seen of the holder before says nothing about this one.
    #[test]
    fn a_new_holder_is_looked_at_first() {
        with_ends(3, |ledger, processes, ends| {
            assert!(
                ledger.permit_large_at(processes, ends[0], 0)
                    && ledger.permit_large_at(processes, ends[1], 0)
            );
            for permit in &ledger.header().large {
                let mut look = Look::of_word(permit.seen.load(Relaxed));
                look.of ^= 8;
                permit.seen.store(look.word(), Relaxed);
            }
            assert!(
                !ledger.permit_large_at(processes, ends[2], 9 * A_WHILE)
                    && ledger.permit_large_at(processes, ends[2], 10 * A_WHILE)
            );
        });
    }

    #[test]
    fn no_more_than_there_are_get_one_at_the_same_time() {
        with_ends(8, |ledger, processes, ends| {
            for _ in 0..200 {
                let barrier = std::sync::Barrier::new(ends.len());
                let ask = |end: &Slot| {
                    barrier.wait();
                    ledger.permit_large_at(processes, end, 5)
                };
                let got = std::thread::scope(|scope| {
                    let asked: Vec<_> = ends.iter().map(|end| scope.spawn(|| ask(end))).collect();
                    asked
                        .into_iter()
                        .map(|thread| thread.join().expect("it ends"))
                        .filter(|got| *got)
                        .count()
                });
                assert_eq!(got, PERMITS);
                ends.iter().for_each(|end| ledger.give_large_back(end));
            }
        });
    }

    #[test]
    fn large_rings_of_the_living_are_told() {
        with_ends(4, |ledger, processes, ends| {
            let sizes = [4096, 4097, 8192, 1 << 20];
            ends.iter().zip(sizes).for_each(|(end, size)| end.tx.ring_size.store(size, Relaxed));
            ends[3].let_go(ends[3].holders[0].load(Relaxed) - 1);
            assert_eq!(ledger.large_bytes(processes, 4096), 4097 + 8192);
        });
    }
}
