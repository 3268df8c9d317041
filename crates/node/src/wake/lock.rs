//! A lock that is held for one system call, and is never waited for for long: who held it may have
//! left its work by `siglongjmp`, or be interrupted by this very thread's signal handler.

use ginnel_region::sys;
use std::sync::atomic::{AtomicU32, Ordering};

/// Rounds after which who holds it is let run.
const LONG: u32 = 200;

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
        let own = self.take(10_000)?;
        let done = work();
        self.give_back(own);
        Some(done)
    }

    /// [`Self::with`] for who knows another way: `None` where it is not to be had within about ten
    /// microseconds, in which a system call on another processor ends. Its holder may have lost the
    /// processor, and whoever gives way for it keeps others waiting.
    pub(crate) fn soon<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let own = self.take(LONG - 1)?;
        let done = work();
        self.give_back(own);
        Some(done)
    }

    fn take(&self, rounds: u32) -> Option<u32> {
        let own = self.holders.fetch_add(1, Ordering::Relaxed).max(1);
        for round in 0..rounds {
            if self.holder.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(own);
            }
            if round % LONG == LONG - 1 { sys::yield_now() } else { std::hint::spin_loop() }
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
