//! The lock of a set: its holders do little, and a signal handler may come back to what it
//! interrupted, or leave it for good.

use crate::thread::me;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence};
use ginnel_node::processes::left;
use ginnel_region::sys;

/// What a lock guards, which may be left in the middle of a change.
pub(super) trait Heal {
    /// Makes it whole, as far as what was under way had not come to its end.
    fn heal(&mut self);
}

/// A spin lock over private data: its holders do little. It knows its holder, since a signal
/// handler may come back to what the thread that it interrupted holds; and where on its stack that
/// was, since the handler may leave it by `siglongjmp`, as time limits do.
pub(super) struct Spin<T> {
    /// 0, or [`me`] of who holds it.
    held: AtomicUsize,
    /// The [place](left::place) of the holder's frame; 0: its work has not begun, or has ended;
    /// [`FORKS`]: it has no frame that could be left.
    frame: AtomicU64,
    pub(super) value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through `with`, under the lock.
unsafe impl<T: Send> Sync for Spin<T> {}

/// Rounds after which it is asked whether the holder has left, and so many whether another thread
/// has: that takes milliseconds.
const LONG: u32 = 64;
const VERY_LONG: u32 = 1 << 16;

/// In [`Spin::frame`]: it is held round a fork.
const FORKS: u64 = u64::MAX;

impl<T> Spin<T> {
    /// Not held.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicUsize::new(0), frame: AtomicU64::new(0), value: UnsafeCell::new(value) }
    }

    #[inline]
    fn take(&self) -> bool {
        self.held.compare_exchange(0, me(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Before a fork.
    pub(super) fn try_acquire(&self) -> bool {
        let had = self.take();
        if had {
            self.frame.store(FORKS, Ordering::Relaxed);
        }
        had
    }

    pub(super) fn release(&self) {
        compiler_fence(Ordering::SeqCst);
        self.frame.store(0, Ordering::Relaxed);
        self.held.store(0, Ordering::Release);
    }

    /// Does this thread hold it? Then it runs a signal handler that interrupted its work, unless a
    /// handler has left that.
    #[inline]
    pub(super) fn is_mine(&self) -> bool {
        self.held.load(Ordering::Relaxed) == me()
    }

    /// Takes it over from this very thread, whose work under it was left, or from another one that
    /// sleeps elsewhere. `round`: so often it was in vain.
    #[cold]
    fn take_over(&self, round: u32) -> bool {
        let (held, frame) = (self.held.load(Ordering::Relaxed), self.frame.load(Ordering::Relaxed));
        let left = match (held == me(), frame) {
            (_, FORKS) => false,
            (true, 0) => left::is_outside_handlers(),
            (true, _) => left::was_left(frame),
            (false, _) => {
                frame != 0 && round.is_multiple_of(VERY_LONG) && left::was_left_elsewhere(frame)
            }
        };
        let is_same = || self.frame.load(Ordering::Relaxed) == frame;
        left && is_same()
            && self.held.compare_exchange(held, me(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl<T: Heal> Spin<T> {
    /// [`with`](Self::with), but `None` where the lock cannot be had soon: this very thread may
    /// hold it, whose signal handler would wait for ever, or another one that waits for what this
    /// one holds.
    pub fn soon<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        const ROUNDS: u32 = 256;
        let mut had = self.take();
        let mut taken_over = false;
        for round in 1..ROUNDS {
            if had {
                break;
            }
            if self.is_mine() {
                (had, taken_over) = (self.take_over(round), true);
                break;
            }
            if round.is_multiple_of(LONG) {
                sys::yield_now();
            }
            core::hint::spin_loop();
            had = self.take();
        }
        had.then(|| self.work(taken_over, work))
    }

    /// Works on the value under the lock.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let (mut round, mut taken_over) = (0u32, false);
        while !self.take() {
            round = round.wrapping_add(1);
            if round.is_multiple_of(LONG) {
                if self.take_over(round) {
                    taken_over = true;
                    break;
                }
                sys::yield_now();
            }
            core::hint::spin_loop();
        }
        self.work(taken_over, work)
    }

    /// Works on the value, which this thread has locked.
    #[inline(always)]
    fn work<R>(&self, taken_over: bool, work: impl FnOnce(&mut T) -> R) -> R {
        self.frame.store(left::place(), Ordering::Relaxed);
        // For a handler in this thread: the work begins behind this.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: under the lock.
        let value = unsafe { &mut *self.value.get() };
        if taken_over {
            value.heal();
        }
        let result = work(value);
        self.release();
        result
    }
}
