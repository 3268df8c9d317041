//! Who writes to a large ring: few ends at a time, as many would only push each other's bytes out of the processor's cache (`growth.rs`). Permits are words in the ledger's header: two ends
//! that want the last one at the same time do not both get it, and nobody goes through the slots to count.

use super::{Ledger, Slot, Stage, flag};
use ginnel_region::sys;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many ends have one at a time.
pub(super) const PERMITS: usize = 2;
/// Whoever has written less than this since somebody who wants its permit looked before, MiB, loses it …
const LITTLE: u32 = 4;
/// … where that look is as long ago, milliseconds. Its ring stays as large as it is.
const A_WHILE: u32 = 100;

/// One permit.
#[repr(C)]
pub(super) struct Permit {
    /// Whose it is: the slot's number in the ledger, and above it the slot's generation, by which one that was freed and taken again is another. 0: nobody's.
    holder: AtomicU64,
    /// When the holder was last looked at, milliseconds, and below it how far it had written, MiB; both modulo 2^32. A hint: between a new holder and its first look it may be the one's before.
    seen: AtomicU64,
}

/// A slot's number takes so many bits.
const SLOT_BITS: u32 = 16;

impl Permit {
    /// Notes how far its holder has written by now, and when that is.
    fn look(&self, holder: &Slot) {
        let (now, written) = look_at(holder);
        self.seen.store(u64::from(now) << 32 | u64::from(written), Ordering::Relaxed);
    }

    /// Has its holder written little since a while ago? Looks at it, where that was so long ago.
    fn is_idle(&self, holder: &Slot) -> bool {
        let ((now, written), seen) = (look_at(holder), self.seen.load(Ordering::Relaxed));
        if now.wrapping_sub((seen >> 32) as u32) < A_WHILE {
            return false;
        }
        self.look(holder);
        written.wrapping_sub(seen as u32) < LITTLE
    }
}

/// Milliseconds, and MiB that `slot` has written to its rings.
fn look_at(slot: &Slot) -> (u32, u32) {
    ((sys::coarse_monotonic_ns() / 1_000_000) as u32, (slot.tx.tail.load(Ordering::Relaxed) >> 20) as u32)
}

impl Ledger {
    /// Takes a permit for the end of `slot`, whose send lock the caller has. True if it has one.
    pub(crate) fn permit_large(&self, slot: &Slot) -> bool {
        let (permits, mine) = (&self.header().large, self.holder_word(slot));
        if permits.iter().any(|permit| permit.holder.load(Ordering::SeqCst) == mine) {
            return true;
        }
        permits.iter().any(|permit| {
            let holder = permit.holder.load(Ordering::SeqCst);
            let free = !self.is_using(permit, holder);
            let taken = free && permit.holder.compare_exchange(holder, mine, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            if taken {
                permit.look(slot);
            }
            taken
        })
    }

    /// Gives the permit of `slot` back, where it has one.
    pub(crate) fn give_large_back(&self, slot: &Slot) {
        let mine = self.holder_word(slot);
        for permit in &self.header().large {
            let _ = permit.holder.compare_exchange(mine, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    fn holder_word(&self, slot: &Slot) -> u64 {
        slot.generation.load(Ordering::Relaxed) << SLOT_BITS | u64::from(self.index(slot) + 1)
    }

    /// Does the holder still write, or may do so?
    fn is_using(&self, permit: &Permit, holder: u64) -> bool {
        let Some(index) = ((holder & ((1 << SLOT_BITS) - 1)) as u32).checked_sub(1) else { return false };
        let slot = self.slot(index);
        slot.generation.load(Ordering::Relaxed) << SLOT_BITS == holder & !((1 << SLOT_BITS) - 1)
            && slot.stage() == Stage::Active
            && !slot.has(flag::TX_SHUT | flag::HOLD)
            && !permit.is_idle(slot)
            // The dead are freed some seconds later.
            && slot.is_held(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn ledger() -> (Ledger, PathBuf) {
        let path = std::env::temp_dir().join(format!("ginnel-large-{:x}", sys::random_u64()));
        (Ledger::open_or_create(&path).expect("made"), path)
    }

    /// As many active ends of a process that lives.
    fn ends(ledger: &Ledger, count: u64) -> Vec<&Slot> {
        let me = ledger.enter().expect("room");
        let end = |cookie| {
            let slot = ledger.find_or_claim(cookie, 0, |_| {}).expect("room").0;
            slot.set_stage(Stage::Active);
            assert!(slot.hold(me));
            slot
        };
        (1..=count).map(end).collect()
    }

    #[test]
    fn who_ends_hands_over_or_shuts_down_makes_room() {
        let (ledger, path) = ledger();
        let ends = ends(&ledger, 6);
        assert!(ledger.permit_large(ends[0]) && ledger.permit_large(ends[1]) && !ledger.permit_large(ends[2]));
        assert!(ledger.permit_large(ends[0]), "it has one");
        ledger.give_large_back(ends[2]);
        assert!(!ledger.permit_large(ends[2]), "it had none");
        ledger.give_large_back(ends[0]);
        assert!(ledger.permit_large(ends[2]) && !ledger.permit_large(ends[0]));
        ends[2].set(flag::TX_SHUT, true);
        assert!(ledger.permit_large(ends[3]) && !ledger.permit_large(ends[0]));
        ends[3].set_stage(Stage::Plain);
        assert!(ledger.permit_large(ends[4]) && !ledger.permit_large(ends[0]));
        ledger.free(ends[4]);
        assert!(ledger.permit_large(ends[5]) && !ledger.permit_large(ends[0]));
        ends[5].let_go(ends[5].holders[0].load(Ordering::Relaxed) - 1);
        assert!(ledger.permit_large(ends[0]), "nobody holds the other");
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn who_writes_little_makes_room_after_a_while() {
        let (ledger, path) = ledger();
        let ends = ends(&ledger, 3);
        assert!(ledger.permit_large(ends[0]) && ledger.permit_large(ends[1]));
        let a_while = || std::thread::sleep(std::time::Duration::from_millis(2 * u64::from(A_WHILE)));
        let write = |end: &Slot, mebibytes: u32| end.tx.tail.fetch_add(u64::from(mebibytes) << 20, Ordering::Relaxed);
        write(ends[0], LITTLE);
        write(ends[1], LITTLE);
        a_while();
        assert!(!ledger.permit_large(ends[2]));
        write(ends[0], LITTLE);
        assert!(!ledger.permit_large(ends[2]), "looked at just now");
        write(ends[1], LITTLE - 1);
        a_while();
        assert!(ledger.permit_large(ends[2]) && !ledger.permit_large(ends[1]) && ledger.permit_large(ends[0]));
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn no_more_than_there_are_get_one_at_the_same_time() {
        let (ledger, path) = ledger();
        let ends = ends(&ledger, 8);
        for _ in 0..200 {
            let barrier = std::sync::Barrier::new(ends.len());
            let got = std::thread::scope(|scope| {
                let ask = |end| {
                    barrier.wait();
                    ledger.permit_large(end)
                };
                let asked: Vec<_> = ends.iter().map(|end| scope.spawn(move || ask(end))).collect();
                asked.into_iter().map(|thread| thread.join().expect("it ends")).filter(|got| *got).count()
            });
            assert_eq!(got, PERMITS);
            ends.iter().for_each(|end| ledger.give_large_back(end));
        }
        std::fs::remove_file(path).expect("remove");
    }
}
