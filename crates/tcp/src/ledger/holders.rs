//! Which processes have a slot's socket open, and who may end it.

use super::{Slot, flag};
use ginnel_node::processes::Processes;
use ginnel_region::sys;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// In a place of [`Slot::holders`], above the process: one of its threads is about to find out
/// whether the slot is still of the socket that it came for ([`Slot::take_up`]).
const COMING: u32 = 1 << 31;

impl Slot {
    /// Adds a holder; `false` where there is no room.
    pub fn hold(&self, process: u32) -> bool {
        if !self.is_held_by(process) {
            self.put(process + 1);
        }
        self.heed_others();
        self.is_held_by(process)
    }

    /// Puts that into a free place. (Two threads that come at once may leave two places of one
    /// process, which is one holder: see [`Self::held_by`].)
    fn put(&self, holder: u32) -> Option<&AtomicU32> {
        let free = |place: &&AtomicU32| {
            place.compare_exchange(0, holder, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        self.holders.iter().find(free)
    }

    /// After a process came to hold it, or found that it does: a signal handler may have left by
    /// `siglongjmp` in between.
    fn heed_others(&self) {
        // Of two who come at once, one sees the other.
        fence(Ordering::SeqCst);
        if self.holder_count() > 1 {
            self.set(flag::SEVERAL, true);
        }
    }

    /// Is this process among its holders?
    pub fn is_held_by(&self, process: u32) -> bool {
        self.holders.iter().any(|holder| holder.load(Ordering::Relaxed) == process + 1)
    }

    /// The processes that hold it, or are about to find out whether they do: each once.
    pub fn held_by(&self) -> impl Iterator<Item = u32> {
        let places =
            self.holders.each_ref().map(|holder| process_in(holder.load(Ordering::Acquire)));
        let first = move |at: usize, process: &u32| {
            !places.iter().take(at).any(|before| *before == Some(*process))
        };
        places
            .into_iter()
            .enumerate()
            .filter_map(move |(at, process)| process.filter(|process| first(at, process)))
    }

    /// [`Self::hold`] by a process that has come to the socket with this cookie by itself. `None`:
    /// it is another's by now, or its last descriptor is being closed, as far as who closes it
    /// knew; look again.
    pub fn take_up(&self, process: u32, cookie: u64) -> Option<bool> {
        loop {
            let place = if self.is_held_by(process) { None } else { self.come(process) };
            self.heed_others();
            // One of the two sees the other: here, and in `end` and `seize_dead`.
            fence(Ordering::SeqCst);
            if self.has(flag::ENDING) || self.cookie.load(Ordering::Acquire) != cookie {
                place.inspect(|place| go(place, process));
                return None;
            }
            // Where another thread has let go of the slot meanwhile, it is come to once more.
            if place.is_none_or(|place| stay(place, process)) {
                return Some(self.is_held_by(process));
            }
        }
    }

    /// Puts a process there that is about to look whether it holds the slot. The place is its own:
    /// another thread, which may have come for the socket that the slot is of by now, is not to go
    /// by it.
    fn come(&self, process: u32) -> Option<&AtomicU32> {
        self.put(COMING | (process + 1))
    }

    /// Nobody holds it any more: from here on nobody takes it up, and `process`, which ends it,
    /// holds it so that nobody takes it for a dead one's. False where somebody has taken it up, or
    /// ends it too.
    #[must_use]
    pub fn end(&self, processes: &Processes, process: u32, cookie: u64) -> bool {
        for _ in 0..200 {
            if self.flags.fetch_or(flag::ENDING, Ordering::SeqCst) & flag::ENDING == 0 {
                self.dead_since.store(0, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                let ends = self.cookie.load(Ordering::Acquire) == cookie
                    && !self.is_held(processes)
                    && self.forking.load(Ordering::SeqCst) == 0;
                if ends {
                    self.purge(processes);
                    self.hold(process);
                } else {
                    self.set(flag::ENDING, false);
                }
                return ends;
            }
            // Somebody ends it, and holds it in a moment; or sees in a moment that somebody held it
            // just now, and would have been too late.
            if self.is_held(processes) || self.cookie.load(Ordering::Acquire) != cookie {
                break;
            }
            sys::sleep_ms(1);
        }
        false
    }

    /// Takes a slot with this cookie whose holders have been seen dead for burial: nobody takes it
    /// up from here on. False where somebody has, or buries it too. `me`: this process's ticket.
    #[must_use]
    pub fn seize_dead(&self, processes: &Processes, cookie: u64, me: u32) -> bool {
        let ended = self.flags.fetch_or(flag::ENDING, Ordering::SeqCst) & flag::ENDING != 0;
        fence(Ordering::SeqCst);
        let seized = !self.is_held(processes) && self.seize(cookie, me);
        if !seized {
            self.dead_since.store(0, Ordering::Relaxed);
            if !ended {
                self.set(flag::ENDING, false);
            }
        }
        seized
    }

    /// Does any of its holders live?
    pub fn is_held(&self, processes: &Processes) -> bool {
        self.held_by().any(|process| processes.alive(process))
    }

    /// Takes holders off that are dead.
    pub fn purge(&self, processes: &Processes) {
        for holder in &self.holders {
            let seen = holder.load(Ordering::Acquire);
            if process_in(seen).is_some_and(|process| !processes.alive(process)) {
                let _ = holder.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Takes a holder off; returns how many remain.
    pub fn let_go(&self, process: u32) -> usize {
        for holder in &self.holders {
            // (Who was left by `siglongjmp` while it came stays no longer than the others.)
            for seen in [process + 1, COMING | (process + 1)] {
                let _ = holder.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        self.holder_count()
    }

    /// How many processes hold it.
    pub fn holder_count(&self) -> usize {
        self.held_by().count()
    }

    /// Do several processes hold it? Cheap where that never was so.
    #[must_use]
    #[inline]
    pub fn has_several_holders(&self) -> bool {
        self.has(flag::SEVERAL) && self.holder_count() > 1
    }

    /// Has one process it, and no other is about to have it? False where that is not known. A fork
    /// that begins afterwards is another matter.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        // In this order: a child says that it holds the socket, and then that it is forked no more.
        // Asked the other way round it might not be there yet, and not be under way any more.
        self.forking.load(Ordering::SeqCst) == 0
            && self.holder_count() < 2
            && !self.has(flag::SPAWNED)
    }
}

/// Which process a place is of.
fn process_in(place: u32) -> Option<u32> {
    (place & !COMING).checked_sub(1)
}

/// A process that came holds the slot. False: it has been taken off meanwhile.
fn stay(place: &AtomicU32, process: u32) -> bool {
    place
        .compare_exchange(COMING | (process + 1), process + 1, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

/// A process that came does not hold the slot.
fn go(place: &AtomicU32, process: u32) {
    let _ = place.compare_exchange(COMING | (process + 1), 0, Ordering::AcqRel, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    /// A child that is made, says that it holds the socket, and lets go of it: at no time between
    /// the first and the last of these is the parent alone, however long the look takes.
    #[test]
    fn a_child_on_its_way_is_never_overlooked() {
        let (slot, phase, over) = (zeroed(), AtomicU64::new(0), AtomicBool::new(false));
        assert!(slot.hold(0) && slot.is_alone());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..300_000 {
                    slot.forking.fetch_add(1, Ordering::SeqCst);
                    phase.fetch_add(1, Ordering::SeqCst);
                    slot.hold(1);
                    slot.forked();
                    std::hint::spin_loop();
                    phase.fetch_add(1, Ordering::SeqCst);
                    slot.let_go(1);
                }
                over.store(true, Ordering::SeqCst);
            });
            while !over.load(Ordering::SeqCst) {
                let before = phase.load(Ordering::SeqCst);
                let alone = slot.is_alone();
                if before % 2 == 1 && phase.load(Ordering::SeqCst) == before {
                    assert!(!alone, "a child has it");
                }
            }
        });
    }

    /// Two threads that come to a socket at once, for one process: it is one holder.
    #[test]
    fn threads_that_come_at_once_are_one_holder() {
        for round in 0..2_000 {
            let (slot, met) = (zeroed(), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        met.fetch_add(1, Ordering::SeqCst);
                        while met.load(Ordering::SeqCst) < 2 {
                            std::hint::spin_loop();
                        }
                        assert_eq!(slot.take_up(3, 0), Some(true));
                    });
                }
            });
            assert_eq!((slot.holder_count(), slot.is_alone()), (1, true), "round {round}");
            assert_eq!(slot.let_go(3), 0);
        }
    }

    /// One thread comes for a socket whose slot is another's by now, and a second of its process
    /// for that one: the first takes only itself off.
    #[test]
    fn who_comes_too_late_takes_nobody_else_off() {
        let slot = zeroed();
        let late = slot.come(3).expect("a place");
        assert!(!slot.is_held_by(3) && slot.held_by().eq([3]), "it is about to look");
        assert_eq!(slot.take_up(3, 0), Some(true));
        go(late, 3);
        assert!(slot.is_held_by(3) && slot.holder_count() == 1);
        assert_eq!(slot.take_up(3, 7), None, "it is another's");
        assert!(slot.is_held_by(3));
    }

    /// A thread that comes while another of its process lets go of the slot holds it, or knows that
    /// it does not.
    #[test]
    fn who_is_taken_off_while_it_comes_knows() {
        let slot = zeroed();
        let place = slot.come(3).expect("a place");
        assert_eq!(slot.let_go(3), 0);
        assert!(!stay(place, 3));
        assert_eq!(slot.take_up(3, 0), Some(true));
    }

    fn zeroed() -> Slot {
        // SAFETY: all of it are atomics, for which zeroes are valid.
        unsafe { std::mem::zeroed() }
    }
}
