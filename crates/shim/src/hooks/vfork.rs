//! `vfork`: knowing, without a system call in every hook, that a call comes from a vfork child.
//!
//! Such a child runs in its parent's memory on its parent's thread, which sleeps until the child
//! has another program or is gone; but its table of descriptors is a copy. So what it does to
//! descriptors must not be written into that memory. A thread-local count, raised before the system
//! call and lowered when the parent goes on, says so exactly.
//!
//! The function must be written in assembly: the child returns from it first, and what it then does
//! on the stack overwrites the return address that the parent needs. As in the C library's own,
//! that address stays in a register during the system call.
use super::set_errno;
use crate::fds::strangers;
use core::arch::naked_asm;
use core::cell::Cell;
use core::sync::atomic::Ordering;
use libc::{c_int, c_long, pid_t};

thread_local! {
    /// How many vforks deep this thread is, and the process that made the first.
    static DEPTH: Cell<(u32, pid_t)> = const { Cell::new((0, 0)) };
}

/// Is this call made by a vfork child? Only asked when [`strangers`] says that there may be one.
#[cold]
pub(super) fn in_child() -> bool {
    let (depth, parent) = DEPTH.get();
    // The parent itself, in a signal handler just before or after, is not its child.
    // SAFETY: takes and touches nothing.
    depth != 0 && unsafe { libc::getpid() } != parent
}

/// In a fork child, which is alone: vforks that other threads were in are not its own.
pub(super) fn forget_others() {
    if DEPTH.get().0 == 0 {
        strangers().store(0, Ordering::Relaxed);
    }
}

/// Before the system call.
pub(crate) extern "C" fn before() {
    let (depth, parent) = DEPTH.get();
    // SAFETY: takes and touches nothing.
    let parent = if depth == 0 { unsafe { libc::getpid() } } else { parent };
    if depth == 0 {
        crate::ops::process::vforking();
    }
    DEPTH.set((depth + 1, parent));
    strangers().fetch_add(1, Ordering::Relaxed);
}

/// After it, in the parent: `result` as the kernel gave it.
pub(crate) extern "C" fn after(result: c_long) -> c_int {
    let (depth, parent) = DEPTH.get();
    strangers().fetch_sub(1, Ordering::Relaxed);
    DEPTH.set((depth.saturating_sub(1), parent));
    super::environment::drop_copy();
    if result < 0 {
        // An errno, so it fits.
        set_errno(-result as c_int);
        return -1;
    }
    // A process number fits.
    result as c_int
}

#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn vfork() -> pid_t {
    naked_asm!(
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        // The return address rides out the call in rdi, which the kernel leaves alone.
        "pop rdi",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "test rax, rax",
        "jz 2f",
        "mov rdi, rax",
        "sub rsp, 8",
        "call {after}",
        "add rsp, 8",
        "2:",
        "ret",
        before = sym before,
        after = sym after,
        number = const libc::SYS_vfork,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn vfork() -> pid_t {
    naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "bl {before}",
        // The return address rides out the call in x30, which the kernel leaves alone.
        "ldp x29, x30, [sp], #16",
        "mov x0, #{flags}",
        "mov x1, sp",
        "mov x8, #{number}",
        "svc #0",
        "cbz x0, 2f",
        "stp x29, x30, [sp, #-16]!",
        "bl {after}",
        "ldp x29, x30, [sp], #16",
        "2:",
        "ret",
        before = sym before,
        after = sym after,
        flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
        number = const libc::SYS_clone,
    )
}

#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn __vfork() -> pid_t {
    naked_asm!("jmp {vfork}", vfork = sym vfork)
}

#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn __vfork() -> pid_t {
    naked_asm!("b {vfork}", vfork = sym vfork)
}
