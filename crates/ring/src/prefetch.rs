//! Asking for a cache line before it is needed. Only hints: any address will do, and nothing that
//! a program could see changes.

/// The line at `place` will be read.
#[inline(always)]
pub fn to_read(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// The line at `place` will be written: taken from whichever processor has it.
#[inline(always)]
pub fn to_write(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above. (`prefetchw`: processors that do not know it take it for nothing. The
    // intrinsic becomes a read's where the compiler may not count on it.)
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
