//! Which thread this is, without memory of its own: a thread-local variable of this library's might
//! take some when it is first asked for, in a signal handler perhaps.

/// The address of this thread's control block: not 0, and what no other thread of the process has
/// while this one lives.
#[must_use]
#[inline]
pub fn me() -> usize {
    let at: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the word that the ABI puts there: the block's own address (System V ABI, TLS,
    // variant II).
    unsafe {
        core::arch::asm!("mov {}, fs:0", out(reg) at, options(pure, nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register that programs may read.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) at, options(pure, nostack, preserves_flags, nomem));
    }
    at
}
