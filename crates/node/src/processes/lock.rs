//! A lock in shared memory whose holder may die: it is taken over from the dead, and from a thread
//! that left what it did under it by `siglongjmp` ([`left`], [`elsewhere`]). It guards work of
//! microseconds and is not held across a sleep (but for the stops of a stream that is held back in
//! ginnel-tcp), so waiting is spinning, then yielding.

use super::Processes;
use super::elsewhere;
use super::left::{self, Frame};
use ginnel_region::sys;
use std::sync::atomic::{AtomicU64, Ordering};
use syscalls::Sysno;

/// The lock word: 0 free, else 1 + the holder's ticket (see [`super::Process::ticket`]) in the
/// lower `TICKET` bits, and above them where on its stack the holder took it.
#[repr(transparent)]
pub struct Lock(AtomicU64);

/// A held lock; released when dropped.
#[must_use]
pub struct Held<'a> {
    lock: &'a Lock,
    /// Taken over from a process that died in the middle: what the lock guards may be half done.
    pub taken_over: bool,
}

/// The thread that asks for a lock has it: it runs a signal handler, which interrupted its work
/// there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

/// Bits of a lock word that say who holds it.
const TICKET: u32 = 33;

/// What `me` puts into a lock that it takes here: in the frame of whoever works under it, as all in
/// between is inlined.
#[inline(always)]
fn word(me: u32) -> u64 {
    (u64::from(me) + 1) | ((left::here() >> left::GRAIN) << TICKET)
}

/// The ticket in a word, plus 1; 0: free.
#[inline]
fn holder(word: u64) -> u64 {
    word & ((1 << TICKET) - 1)
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire of the next holder.
        self.lock.0.store(0, Ordering::Release);
    }
}

impl Lock {
    /// Takes the lock if nobody has it. `me`: this process's ticket.
    #[inline(always)]
    pub fn try_lock(&self, me: u32) -> Option<Held<'_>> {
        self.take(word(me))
    }

    #[inline(always)]
    fn take(&self, word: u64) -> Option<Held<'_>> {
        let free = self.0.compare_exchange(0, word, Ordering::Acquire, Ordering::Relaxed);
        free.ok().map(|_| Held { lock: self, taken_over: false })
    }

    /// Takes the lock, waiting while another thread or process works under it.
    #[inline(always)]
    pub fn lock(&self, processes: &Processes, me: u32) -> Held<'_> {
        loop {
            if let Ok(held) = self.lock_unless_interrupted(processes, me) {
                return held;
            }
        }
    }

    /// [`lock`](Self::lock), for whoever may be called in a signal handler.
    ///
    /// # Errors
    /// The work under the lock is this very thread's, and waits for the handler.
    #[inline(always)]
    pub fn lock_unless_interrupted(
        &self,
        processes: &Processes,
        me: u32,
    ) -> Result<Held<'_>, Interrupted> {
        let word = word(me);
        match self.take(word) {
            Some(held) => Ok(held),
            None => self.lock_contended(processes, word),
        }
    }

    /// Has a thread of the process with this ticket it?
    #[must_use]
    pub fn is_of(&self, me: u32) -> bool {
        holder(self.0.load(Ordering::Acquire)) == u64::from(me) + 1
    }

    /// Is its holder dead? Cheap where it is free.
    #[must_use]
    pub fn is_orphan(&self, processes: &Processes) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        seen != 0 && is_dead(processes, seen)
    }

    /// Did this very thread take it, in a frame that is gone? Cheap where it is free.
    #[must_use]
    pub fn was_left_here(&self, me: u32) -> bool {
        self.frame_here(me) == Frame::Left
    }

    /// Has this very thread it, which runs a signal handler now? Cheap where it is free.
    #[must_use]
    pub fn is_interrupted(&self, me: u32) -> bool {
        self.frame_here(me) == Frame::Interrupted
    }

    /// What became of the frame in which it was taken, as far as this thread can tell.
    fn frame_here(&self, me: u32) -> Frame {
        let seen = self.0.load(Ordering::Relaxed);
        if holder(seen) == u64::from(me) + 1 { left::frame(seen >> TICKET) } else { Frame::Unknown }
    }

    #[cold]
    fn lock_contended(&self, processes: &Processes, word: u64) -> Result<Held<'_>, Interrupted> {
        let mut round = 0u32;
        loop {
            for _ in 0..50 {
                std::hint::spin_loop();
                if self.0.load(Ordering::Relaxed) == 0
                    && let Some(held) = self.take(word)
                {
                    return Ok(held);
                }
            }
            round = round.saturating_add(1);
            if round > LONG && round.is_multiple_of(16) {
                let seen = self.0.load(Ordering::Relaxed);
                let gone = match holder(seen) == holder(word) {
                    true => match left::frame(seen >> TICKET) {
                        Frame::Interrupted => return Err(Interrupted),
                        Frame::Left => true,
                        Frame::Unknown => {
                            round.is_multiple_of(VERY_LONG) && elsewhere::was_left(seen >> TICKET)
                        }
                    },
                    false => is_dead(processes, seen),
                };
                if gone
                    && self
                        .0
                        .compare_exchange(seen, word, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
                {
                    return Ok(Held { lock: self, taken_over: true });
                }
            }
            pause(round);
        }
    }
}

/// Has whoever put `word` into a lock ended, or begun another program?
fn is_dead(processes: &Processes, word: u64) -> bool {
    // A word that names nobody was put there by none who works under the lock.
    word != 0
        && (holder(word) == 0
            || !processes.is_still(u32::try_from(holder(word) - 1).unwrap_or(u32::MAX)))
}

/// Rounds after which it is asked whether the holder is gone: some microseconds. (What interrupted
/// a holder that left may come again, and interrupt this.)
const LONG: u32 = 20;

/// Rounds after which it is asked whether it is another thread's that left: half a second. Such a
/// thread mostly takes the lock over itself, when it works on the connection again.
const VERY_LONG: u32 = 4096;

/// Gives the processor away; for longer, the longer it has taken.
fn pause(round: u32) {
    if round < 64 {
        sys::yield_now();
    } else {
        let time = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
        // SAFETY: `time` is readable.
        let _ = unsafe { sys::raw(Sysno::nanosleep, [&raw const time as usize, 0, 0, 0, 0, 0]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::Library;
    use std::sync::Barrier;

    #[inline(never)]
    fn take_and_leave(lock: &Lock, processes: &Processes, me: u32, depth: u32) {
        let room = [0u8; 600];
        std::hint::black_box(&room);
        if depth == 0 {
            // As a handler that leaves by siglongjmp would.
            std::mem::forget(lock.lock(processes, me));
        } else {
            take_and_leave(lock, processes, me, depth - 1);
        }
        std::hint::black_box(&room);
    }

    /// A word that is not that of anybody's work. (One that names a process that lives is believed:
    /// a machine that was paused, or a frozen container, goes on in the middle of its work.)
    #[test]
    fn a_lock_that_names_nobody_is_taken() {
        let place = tempfile::tempdir().expect("a directory");
        let processes = Processes::open_or_create(place.path()).expect("a table");
        let index = processes.enter(Library::of_process("test"), &()).expect("room");
        let me = processes.process(index).ticket(index);
        let lock = Lock(AtomicU64::new(1 << TICKET));
        assert!(lock.lock(&processes, me).taken_over);
    }

    /// facts.md: a thread leaves by siglongjmp and waits for another, which needs what it held.
    #[test]
    fn what_another_thread_left_is_taken_over_while_that_sleeps() {
        let place = tempfile::tempdir().expect("a directory");
        let processes = Processes::open_or_create(place.path()).expect("a table");
        let index = processes.enter(Library::of_process("test"), &()).expect("room");
        let me = processes.process(index).ticket(index);
        let lock = Lock(AtomicU64::new(0));
        let over = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                take_and_leave(&lock, &processes, me, 5);
                over.wait();
            });
            while lock.0.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            assert!(lock.lock(&processes, me).taken_over);
            over.wait();
        });
    }
}
