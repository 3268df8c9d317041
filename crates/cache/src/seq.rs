//! A bucket's version, by which a reader knows that nothing changed while it copied (a seqlock).
//!
//! Ordering: the writer stores an odd version, fences, changes slots, then stores the next even
//! version. It writes over an item's bytes only after that section has taken the item out. A reader
//! loads an even version, loads slots and bytes, fences, and loads the version again. If any load
//! in between saw a store that the writer made after its fence, the fences pair, and the second
//! load sees the odd version or a later one. (Boehm, "Can seqlocks get along with programming
//! language memory models?", 2012.) A version of 64 bits does not come round again.

use crate::sync::{AtomicU64, Ordering, fence};

/// Returns the version to begin a read by, or nothing while the writer is at work.
#[must_use]
#[inline]
pub fn begin(version: &AtomicU64) -> Option<u64> {
    // Pairs with the release store in `write`: what it published is seen.
    let seen = version.load(Ordering::Acquire);
    (seen & 1 == 0).then_some(seen)
}

/// Returns whether all that was loaded since [`begin`] returned `seen` belongs together.
#[must_use]
#[inline]
pub fn unchanged(version: &AtomicU64, seen: u64) -> bool {
    // Pairs with the fence in `write`.
    fence(Ordering::Acquire);
    version.load(Ordering::Relaxed) == seen
}

/// Changes what `version` guards. The caller is the only writer.
#[inline]
pub fn write<R>(version: &AtomicU64, change: impl FnOnce() -> R) -> R {
    write_after(version, version.load(Ordering::Relaxed), change)
}

/// The same for a writer that knows the version, `before`, from where nobody else can write.
#[inline]
pub fn write_after<R>(version: &AtomicU64, before: u64, change: impl FnOnce() -> R) -> R {
    version.store(before.wrapping_add(1), Ordering::Relaxed);
    // Whoever sees a store after this fence sees the odd version, too.
    fence(Ordering::Release);
    let result = change();
    version.store(before.wrapping_add(2), Ordering::Release);
    result
}
