//! The way from a goroutine to the library, and back: two gates, `by_fs` where threads are the C
//! library's and `by_gs` where they are Go's own.
//!
//! A gate is entered by a jump, with a system call's number and arguments where the kernel takes
//! them and the place to go on in RBX. Nothing is written to the goroutine's stack, which may be
//! full. The gate switches to the thread's own stack, in `by_gs` also to the C library's FS, and
//! calls [`super::calls::carry`]. Calls by numbers that are none of the library's, and those of a
//! thread that is inside already (in a signal handler), it leaves to the kernel.
//!
//! Go's convention (cmd/compile/abi-internal.md, "amd64 architecture"): RBP and R14 are kept, XMM15
//! is zero, all else may be changed by the function called. C functions keep RBX, RBP and R12 to
//! R15.

use super::calls::{self, OURS, carry};
use super::context::{AT, Context, SIZE, made};
use core::arch::{global_asm, naked_asm};
use core::mem::offset_of;

// A thread's context, where the threads are the C library's: one word in each thread's static
// block.
global_asm!(
    ".pushsection .tbss.ginnel_go_context,\"awT\",@nobits",
    ".globl ginnel_go_context",
    ".hidden ginnel_go_context",
    ".type ginnel_go_context,@object",
    ".size ginnel_go_context,8",
    ".p2align 3",
    "ginnel_go_context:",
    ".zero 8",
    ".popsection",
);

/// What both gates have in common. `$find`: leads to the context in R13. `$enter`, `$leave`: switch
/// FS.
macro_rules! gate {
    ($name:ident, [$($find:literal,)*], [$($enter:literal,)*], [$($leave:literal,)*]) => {
        #[unsafe(naked)]
        #[allow(clippy::too_many_lines, reason = "one run of instructions")]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "cmp rax, {numbers}",
                "jae 8f",
                "lea r11, [rip + {ours}]",
                "cmp byte ptr [r11 + rax], 1",
                "jne 6f",
                "2:",
                $($find,)*
                "cmp qword ptr [r13 + {inside}], 0",
                "jne 8f",
                "3:",
                "mov qword ptr [r13 + {inside}], 1",
                "mov r12, rsp",
                "mov rsp, qword ptr [r13 + {top}]",
                $($enter,)*
                "push rdx",
                "push r9",
                "mov r9, r8",
                "mov r8, r10",
                "mov rcx, rdx",
                "mov rdx, rsi",
                "mov rsi, rdi",
                "mov rdi, rax",
                "call {carry}",
                "pop r9",
                "pop rdx",
                "mov rsp, r12",
                $($leave,)*
                "mov qword ptr [r13 + {inside}], 0",
                "xorps xmm15, xmm15",
                "jmp rbx",
                // A new process with memory of its own is the library's business; one that shares
                // this memory returns on this very stack.
                "6:",
                "cmp byte ptr [r11 + rax], 0",
                "je 8f",
                "mov r11, rdi",
                "cmp eax, {clone}",
                "je 7f",
                "test rdi, rdi",
                "jz 8f",
                "mov r11, qword ptr [rdi]",
                "7:",
                "test r11d, {vm}",
                "jz 2b",
                "8:",
                "syscall",
                "jmp rbx",
                // The thread's first call: its stack and context.
                "9:",
                "movq xmm0, rax",
                "movq xmm1, rdi",
                "movq xmm2, rsi",
                "movq xmm3, rdx",
                "movq xmm4, r10",
                "movq xmm5, r8",
                "movq xmm6, r9",
                "mov eax, {mmap}",
                "xor edi, edi",
                "mov esi, {size}",
                "mov edx, {access}",
                "mov r10d, {kind}",
                "mov r8, -1",
                "xor r9d, r9d",
                "syscall",
                "cmp rax, -4095",
                "jae 12f",
                "lea r13, [rax + {at}]",
                "mov qword ptr [r13 + {inside}], 1",
                "mov qword ptr [r13 + {top}], r13",
                "mov qword ptr [r13], r13",
                "mov r11, qword ptr [rip + ginnel_go_context@GOTTPOFF]",
                "mov qword ptr fs:[r11], r13",
                "mov r12, rsp",
                "lea rsp, [r13 - 64]",
                "movq qword ptr [rsp], xmm0",
                "movq qword ptr [rsp + 8], xmm1",
                "movq qword ptr [rsp + 16], xmm2",
                "movq qword ptr [rsp + 24], xmm3",
                "movq qword ptr [rsp + 32], xmm4",
                "movq qword ptr [rsp + 40], xmm5",
                "movq qword ptr [rsp + 48], xmm6",
                "mov rdi, r13",
                "call {made}",
                "mov rax, qword ptr [rsp]",
                "mov rdi, qword ptr [rsp + 8]",
                "mov rsi, qword ptr [rsp + 16]",
                "mov rdx, qword ptr [rsp + 24]",
                "mov r10, qword ptr [rsp + 32]",
                "mov r8, qword ptr [rsp + 40]",
                "mov r9, qword ptr [rsp + 48]",
                "mov rsp, r12",
                "jmp 3b",
                // No memory.
                "12:",
                "movq rax, xmm0",
                "movq rdi, xmm1",
                "movq rsi, xmm2",
                "movq rdx, xmm3",
                "movq r10, xmm4",
                "movq r8, xmm5",
                "movq r9, xmm6",
                "jmp 8b",
                numbers = const calls::NUMBERS,
                ours = sym OURS,
                inside = const offset_of!(Context, inside),
                top = const offset_of!(Context, top),
                carry = sym carry,
                clone = const libc::SYS_clone,
                vm = const libc::CLONE_VM,
                mmap = const libc::SYS_mmap,
                size = const SIZE,
                access = const libc::PROT_READ | libc::PROT_WRITE,
                kind = const libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
                at = const AT,
                made = sym made,
            )
        }
    };
}

gate!(
    by_fs,
    [
        "mov r11, qword ptr [rip + ginnel_go_context@GOTTPOFF]",
        "mov r13, qword ptr fs:[r11]",
        "test r13, r13",
        "jz 9f",
    ],
    [],
    []
);
// Offsets: see `Context`.
gate!(
    by_gs,
    ["mov r13, qword ptr gs:[0]",],
    ["mov r11, qword ptr [r13 + 24]", "wrfsbase r11",],
    ["mov r11, qword ptr [r13 + 32]", "wrfsbase r11",]
);
const _: () = assert!(offset_of!(Context, own_fs) == 24 && offset_of!(Context, go_fs) == 32);
const _: () = assert!(offset_of!(Context, me) == 0);

/// This thread has no context any more. (Threads of the C library.)
pub fn forget_context() {
    // SAFETY: writes this thread's own word.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + ginnel_go_context@GOTTPOFF]",
            "mov qword ptr fs:[{at}], 0",
            at = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}
