//! All atomics of this crate: the standard library's, or loom's under `--cfg loom`.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A full fence directly behind an exchange of this thread's.
///
/// On x86 the exchange is one already: no load or store passes a locked instruction (Intel's
/// manual, volume 3A, section 9.2.2). So only the compiler is held back there.
#[inline(always)]
pub fn fence_after_exchange() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(Ordering::SeqCst);
}
