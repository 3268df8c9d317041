//! A handle that serves one thread at a time: a call by another meanwhile is refused.

use crate::error::Fail;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// The value of such a handle.
pub struct Single<T> {
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: who has the value in hand has set `busy`, and nobody else has it meanwhile.
unsafe impl<T: Send> Sync for Single<T> {}

/// A thread's turn.
pub struct Turn<'a, T>(&'a Single<T>);

impl<T> Single<T> {
    pub fn new(value: T) -> Self {
        Self { busy: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Has it in hand, until the turn is dropped.
    pub fn turn(&self) -> Result<Turn<'_, T>, Fail> {
        // Acquire pairs with the Release of the turn before.
        if self.busy.swap(true, Ordering::Acquire) {
            let text = "another thread is in a call with this handle, which serves one at a time";
            return Err(Fail::in_use(text));
        }
        Ok(Turn(self))
    }
}

impl<T> Turn<'_, T> {
    pub fn get(&mut self) -> &mut T {
        // SAFETY: this turn's alone.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}
