//! The lock of a set: its holders do little, and a signal handler may come back to what it
//! interrupted.

use crate::thread::me;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};
use ginnel_region::sys;

/// A spin lock over private data: its holders do little. It knows its holder, since a signal
/// handler may come back to what the thread that it interrupted holds.
pub(super) struct Spin<T> {
    /// 0, or [`me`] of who holds it.
    held: AtomicUsize,
    pub(super) value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through `with`, under the lock.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T> Spin<T> {
    /// Not held.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    fn acquire(&self) {
        let mut round = 0u32;
        while !self.try_acquire() {
            round += 1;
            if round.is_multiple_of(64) {
                sys::yield_now();
            }
            core::hint::spin_loop();
        }
    }

    pub(super) fn try_acquire(&self) -> bool {
        self.held.compare_exchange(0, me(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(super) fn release(&self) {
        self.held.store(0, Ordering::Release);
    }

    /// Does this thread hold it? Then it runs a signal handler that interrupted its work.
    #[inline]
    pub(super) fn is_mine(&self) -> bool {
        self.held.load(Ordering::Relaxed) == me()
    }

    /// [`with`](Self::with), but `None` where the lock cannot be had soon: this very thread may
    /// hold it, whose signal handler would wait for ever, or another one that waits for what this
    /// one holds.
    pub fn soon<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        const ROUNDS: u32 = 256;
        let had = !self.is_mine()
            && (0..ROUNDS).any(|round| {
                let had = self.try_acquire();
                if !had {
                    if round % 64 == 63 {
                        sys::yield_now();
                    }
                    core::hint::spin_loop();
                }
                had
            });
        had.then(|| {
            // SAFETY: under the lock.
            let result = work(unsafe { &mut *self.value.get() });
            self.release();
            result
        })
    }

    /// Works on the value under the lock.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        self.acquire();
        // SAFETY: under the lock.
        let result = work(unsafe { &mut *self.value.get() });
        self.release();
        result
    }
}
