//! A lock that is held for one system call, and is never waited for for long: who held it may have
//! left its work by `siglongjmp`, or be interrupted by this very thread's signal handler.

use ginnel_region::sys;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module.
#[derive(Default)]
pub(crate) struct Lock(AtomicBool);

impl Lock {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Runs `work` under the lock. `None`: it is not to be had.
    pub(crate) fn with<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        if !self.take() {
            return None;
        }
        let done = work();
        self.0.store(false, Ordering::Release);
        Some(done)
    }

    fn take(&self) -> bool {
        for round in 0..10_000u32 {
            if !self.0.swap(true, Ordering::Acquire) {
                return true;
            }
            if round % 64 == 63 { sys::yield_now() } else { std::hint::spin_loop() }
        }
        false
    }

    /// In a fork child: another thread of the parent may have held it.
    pub(crate) fn forget(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Does no thread hold it at the moment?
    pub(crate) fn is_free(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}
