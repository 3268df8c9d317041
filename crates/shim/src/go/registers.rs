//! The registers FS and GS, which a program may set itself where the kernel says so (FSGSBASE,
//! Documentation/arch/x86/x86_64/fsgs.rst).

use core::arch::asm;

/// May it?
pub fn may_be_set() -> bool {
    /// Bit 1 of AT_HWCAP2.
    const FSGSBASE: u64 = 1 << 1;
    // SAFETY: takes a number only.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & FSGSBASE != 0 }
}

/// What FS is.
pub fn fs() -> usize {
    let fs: usize;
    // SAFETY: called only where `may_be_set`; reads a register.
    unsafe { asm!("rdfsbase {}", out(reg) fs, options(nomem, nostack, preserves_flags)) };
    fs
}

/// Sets GS.
///
/// # Safety
/// `may_be_set`, and nobody uses this thread's GS for anything else.
pub unsafe fn set_gs(gs: usize) {
    // SAFETY: the caller's promise.
    unsafe { asm!("wrgsbase {}", in(reg) gs, options(nomem, nostack, preserves_flags)) };
}
