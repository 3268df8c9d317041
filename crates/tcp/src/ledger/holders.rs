//! Which processes have a slot's socket open, and who may end it.

use super::{Slot, flag};
use ginnel_node::processes::Processes;
use ginnel_region::sys;
use std::sync::atomic::{AtomicU32, Ordering, fence};

impl Slot {
    /// Adds a holder; `false` where there is no room.
    pub fn hold(&self, process: u32) -> bool {
        if !self.is_held_by(process) {
            self.add(process);
        }
        self.heed_others();
        self.is_held_by(process)
    }

    /// Puts it there. The place, unless another of its threads did so at the same time.
    fn add(&self, process: u32) -> Option<&AtomicU32> {
        let free = |holder: &&AtomicU32| holder.compare_exchange(0, process + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let added = self.holders.iter().find(free)?;
        // Of two threads one sees the other, and whoever has the later place gives it up: a process
        // with two would be taken for two processes.
        fence(Ordering::SeqCst);
        let first = self.holders.iter().find(|holder| holder.load(Ordering::Acquire) == process + 1);
        let is_first = first.is_some_and(|first| core::ptr::eq(first, added));
        if !is_first {
            let _ = added.compare_exchange(process + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        is_first.then_some(added)
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

    /// [`Self::hold`] by a process that has come to the socket with this cookie by itself. `None`:
    /// it is another's by now, or its last descriptor is being closed, as far as who closes it
    /// knew; look again.
    pub fn take_up(&self, process: u32, cookie: u64) -> Option<bool> {
        let added = if self.is_held_by(process) { None } else { self.add(process) };
        self.heed_others();
        // One of the two sees the other: here, and in `end` and `seize_dead`.
        fence(Ordering::SeqCst);
        if self.has(flag::ENDING) || self.cookie.load(Ordering::Acquire) != cookie {
            // Only what was put there now: another thread may have taken it up for the socket that
            // it is by now.
            if let Some(place) = added {
                let _ = place.compare_exchange(process + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
            return None;
        }
        Some(self.is_held_by(process))
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
        let held = |holder: &AtomicU32| {
            let seen = holder.load(Ordering::Acquire);
            seen != 0 && processes.alive(seen - 1)
        };
        self.holders.iter().any(held)
    }

    /// Takes holders off that are dead.
    pub fn purge(&self, processes: &Processes) {
        for holder in &self.holders {
            let seen = holder.load(Ordering::Acquire);
            if seen != 0 && !processes.alive(seen - 1) {
                let _ = holder.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Takes a holder off; returns how many remain.
    pub fn let_go(&self, process: u32) -> usize {
        for holder in &self.holders {
            let _ = holder.compare_exchange(process + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        self.holder_count()
    }

    /// How many processes hold it. (For a moment, one may have two places: see [`Self::add`].)
    pub fn holder_count(&self) -> usize {
        let places = self.holders.each_ref().map(|holder| holder.load(Ordering::Acquire));
        let first = |(at, holder): (usize, &u32)| *holder != 0 && !places.iter().take(at).any(|before| before == holder);
        places.iter().enumerate().filter(|&place| first(place)).count()
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
        self.forking.load(Ordering::SeqCst) == 0 && self.holder_count() < 2 && !self.has(flag::SPAWNED)
    }
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

    fn zeroed() -> Slot {
        // SAFETY: all of it are atomics, for which zeroes are valid.
        unsafe { std::mem::zeroed() }
    }
}
