//! A lock that is held for as long as it takes to copy a message, and never over a sleep.
//!
//! One atomic exchange, and none to give it back, where nobody else wants it: a message of a few
//! bytes takes no longer than that itself. Where the caller promises that no two of its threads are
//! in a domain at once (`FI_THREAD_DOMAIN`, as Open MPI does without `MPI_THREAD_MULTIPLE`), there
//! is no exchange either: the store by which the lock is taken is a plain one.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that one thread at a time has.
pub struct Lock<T> {
    taken: AtomicBool,
    /// The caller's threads take turns by themselves.
    alone: bool,
    value: UnsafeCell<T>,
}

// SAFETY: who has the lock has the value alone.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value, until this is dropped.
pub struct Held<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    /// `alone`: the caller's threads take turns by themselves.
    pub const fn new(value: T, alone: bool) -> Self {
        Self { taken: AtomicBool::new(false), alone, value: UnsafeCell::new(value) }
    }

    #[inline]
    pub fn lock(&self) -> Held<'_, T> {
        if self.alone && !self.taken.load(Ordering::Acquire) {
            self.taken.store(true, Ordering::Relaxed);
        } else if self.taken.swap(true, Ordering::Acquire) {
            self.wait();
        }
        Held(self)
    }

    #[cold]
    fn wait(&self) {
        let mut round = 0u32;
        while self.taken.load(Ordering::Relaxed) || self.taken.swap(true, Ordering::Acquire) {
            round = round.wrapping_add(1);
            if round.is_multiple_of(64) {
                ginnel_region::sys::yield_now()
            } else {
                std::hint::spin_loop()
            }
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}
