//! A lock that is held for one system call, and is never waited for for long: who held it may have
//! left its work by `siglongjmp`, or be interrupted by this very thread's signal handler.

use ginnel_region::sys;
use std::sync::atomic::{AtomicU32, Ordering};

/// See the module.
#[derive(Default)]
pub(crate) struct Lock {
    /// 0, or as what its holder counts.
    holder: AtomicU32,
    /// Counts holders.
    holders: AtomicU32,
}

impl Lock {
    pub(crate) const fn new() -> Self {
        Self { holder: AtomicU32::new(0), holders: AtomicU32::new(0) }
    }

    /// Runs `work` under the lock. `None`: it is not to be had.
    pub(crate) fn with<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let own = self.take()?;
        let done = work();
        self.give_back(own);
        Some(done)
    }

    fn take(&self) -> Option<u32> {
        let own = self.holders.fetch_add(1, Ordering::Relaxed).max(1);
        for round in 0..10_000u32 {
            if self.holder.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(own);
            }
            if round % 64 == 63 { sys::yield_now() } else { std::hint::spin_loop() }
        }
        None
    }

    /// `holder` has done its work, or left it. Nothing where another holds it by now.
    pub(crate) fn give_back(&self, holder: u32) {
        let _ = self.holder.compare_exchange(holder, 0, Ordering::Release, Ordering::Relaxed);
    }

    /// In a fork child: another thread of the parent may have held it.
    pub(crate) fn forget(&self) {
        self.holder.store(0, Ordering::Release);
    }

    /// Who holds it, as a number that no other holder has for long; 0: nobody.
    pub(crate) fn holder(&self) -> u32 {
        self.holder.load(Ordering::Relaxed)
    }

    /// Does no thread hold it at the moment?
    pub(crate) fn is_free(&self) -> bool {
        self.holder() == 0
    }
}
