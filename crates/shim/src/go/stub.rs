//! What takes the place of the functions that [`super::find`] finds: each is entered as Go's own
//! would be, and gives its answer as Go's own does. All go through one of the two gates
//! ([`super::gate`]).

use super::calls;
use super::context::Context;
use super::gate::{by_fs, by_gs};
use super::signals::HANDLERS;
use super::threads;
use core::arch::naked_asm;
use core::mem::offset_of;

/// The functions that both kinds of program have, by the gate that they go through. Arguments of
/// all but the first stand on the stack, behind the return address.
macro_rules! functions {
    ($module:ident, $gate:ident, [$($find:literal,)*]) => {
        /// Replacements, by their gate.
        pub mod $module {
            use super::*;

            /// `Syscall6`: number and arguments in RAX, RBX, RCX, RDI, RSI, R8, R9; results in RAX,
            /// RBX, and the error in RCX.
            #[unsafe(naked)]
            pub unsafe extern "C" fn syscall() {
                naked_asm!(
                    "mov r10, rsi",
                    "mov rdx, rdi",
                    "mov rsi, rcx",
                    "mov rdi, rbx",
                    "cmp rax, {kernels}",
                    "jae 4f",
                    "lea rbx, [rip + 2f]",
                    "jmp {gate}",
                    "4:",
                    "syscall",
                    "2:",
                    "cmp rax, -4095",
                    "jae 3f",
                    "mov rbx, rdx",
                    "xor ecx, ecx",
                    "ret",
                    "3:",
                    "neg rax",
                    "mov rcx, rax",
                    "mov rax, -1",
                    "xor ebx, ebx",
                    "ret",
                    kernels = const calls::KERNELS,
                    gate = sym $gate,
                )
            }

            #[unsafe(naked)]
            pub unsafe extern "C" fn exit() {
                naked_asm!(
                    "mov edi, dword ptr [rsp + 8]",
                    "mov eax, {number}",
                    "lea rbx, [rip + 2f]",
                    "jmp {gate}",
                    "2:",
                    "ret",
                    number = const libc::SYS_exit_group,
                    gate = sym $gate,
                )
            }

            #[unsafe(naked)]
            pub unsafe extern "C" fn epoll_control() {
                naked_asm!(
                    "mov edi, dword ptr [rsp + 8]",
                    "mov esi, dword ptr [rsp + 12]",
                    "mov edx, dword ptr [rsp + 16]",
                    "mov r10, qword ptr [rsp + 24]",
                    "mov eax, {number}",
                    "lea rbx, [rip + 2f]",
                    "jmp {gate}",
                    "2:",
                    "mov dword ptr [rsp + 0x20], eax",
                    "ret",
                    number = const libc::SYS_epoll_ctl,
                    gate = sym $gate,
                )
            }

            #[unsafe(naked)]
            pub unsafe extern "C" fn epoll_wait() {
                naked_asm!(
                    "mov edi, dword ptr [rsp + 8]",
                    "mov rsi, qword ptr [rsp + 16]",
                    "mov edx, dword ptr [rsp + 24]",
                    "mov r10d, dword ptr [rsp + 28]",
                    "xor r8d, r8d",
                    "mov eax, {number}",
                    "lea rbx, [rip + 2f]",
                    "jmp {gate}",
                    "2:",
                    "mov dword ptr [rsp + 0x20], eax",
                    "ret",
                    number = const libc::SYS_epoll_pwait,
                    gate = sym $gate,
                )
            }

            vfork!(vfork_of_3, $gate, [$($find,)*], 0x28, ["mov rsi, qword ptr [rsp + 24]", "mov rdx, qword ptr [rsp + 32]",]);
            vfork!(vfork_of_2, $gate, [$($find,)*], 0x20, ["mov rsi, qword ptr [rsp + 24]", "xor edx, edx",]);
            vfork!(vfork_of_1, $gate, [$($find,)*], 0x18, ["xor esi, esi", "xor edx, edx",]);
        }
    };
}

/// `rawVforkSyscall`, with the arguments that a release gives it and its result at `$result`. The
/// child comes back on this stack first, and with this thread's context: so both are as they were
/// before, the return address in a register, and whatever the child left of its last call is
/// undone.
macro_rules! vfork {
    ($name:ident, $gate:ident, [$($find:literal,)*], $result:literal, [$($arguments:literal,)*]) => {
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "mov eax, {before}",
                "lea rbx, [rip + 2f]",
                "jmp {gate}",
                "2:",
                "mov qword ptr [rsp + {result}], rax",
                "mov rdi, qword ptr [rsp + 16]",
                $($arguments,)*
                "xor r10d, r10d",
                "xor r8d, r8d",
                "xor r9d, r9d",
                "mov rbx, qword ptr [rsp + {result}]",
                "mov rax, qword ptr [rsp + 8]",
                "pop r12",
                "syscall",
                "push r12",
                "test rax, rax",
                "jz 4f",
                // The library was not told of it.
                "test rbx, rbx",
                "jnz 4f",
                $($find,)*
                "mov qword ptr [r13 + {inside}], 0",
                "mov qword ptr [rsp + {result}], rax",
                "mov rdi, rax",
                "mov eax, {after}",
                "lea rbx, [rip + 3f]",
                "jmp {gate}",
                "3:",
                "mov rax, qword ptr [rsp + {result}]",
                "4:",
                "cmp rax, -4095",
                "jae 5f",
                "mov qword ptr [rsp + {result}], rax",
                "mov qword ptr [rsp + {result} + 8], 0",
                "ret",
                "5:",
                "mov qword ptr [rsp + {result}], -1",
                "neg rax",
                "mov qword ptr [rsp + {result} + 8], rax",
                "ret",
                before = const calls::BEFORE_VFORK,
                after = const calls::AFTER_VFORK,
                inside = const offset_of!(Context, inside),
                gate = sym $gate,
                result = const $result,
            )
        }
    };
}

functions!(
    of_c_threads,
    by_fs,
    ["mov r11, qword ptr [rip + ginnel_go_context@GOTTPOFF]", "mov r13, qword ptr fs:[r11]",]
);
functions!(of_own_threads, by_gs, ["mov r13, qword ptr gs:[0]",]);

/// `clone`, for a thread: what it was called with stands on the stack. Without an `m` or a `g`
/// (`newosproc0`) the kernel makes a bare thread, as Go's own code has it made. Such a thread gets
/// the context of [`threads::BARE`], and the parent has that until it knows the kernel's answer: so
/// no signal's handler finds the parent's in the child.
#[unsafe(naked)]
pub unsafe extern "C" fn clone() {
    naked_asm!(
        "mov r13, qword ptr [rsp + 24]",
        "mov r9, qword ptr [rsp + 32]",
        "test r13, r13",
        "jz 3f",
        "test r9, r9",
        "jz 3f",
        "lea rdi, [rsp + 8]",
        "mov eax, {number}",
        "lea rbx, [rip + 2f]",
        "jmp {gate}",
        "2:",
        "mov dword ptr [rsp + 0x30], eax",
        "ret",
        "3:",
        "mov edi, dword ptr [rsp + 8]",
        "mov rsi, qword ptr [rsp + 16]",
        "xor edx, edx",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "mov r12, qword ptr [rsp + 40]",
        "mov rbx, qword ptr gs:[0]",
        "lea r11, [rip + {bare}]",
        "wrgsbase r11",
        "mov eax, {clone}",
        "syscall",
        "test eax, eax",
        "jz 4f",
        "wrgsbase rbx",
        "jmp 2b",
        "4:",
        "jmp qword ptr [rip + {child}]",
        number = const calls::NEW_THREAD,
        gate = sym by_gs,
        clone = const libc::SYS_clone,
        bare = sym threads::BARE,
        child = sym threads::CHILD,
    )
}

/// Has a new thread begin where `clone` would have it begin: registers as that leaves them. Returns
/// when the thread ends, by [`exit_thread`].
#[unsafe(naked)]
pub unsafe extern "C" fn run_thread(_thread: *mut threads::Thread, _child: usize) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "mov qword ptr [rdi + {start}], rsp",
        "mov qword ptr [rdi + {top}], rsp",
        "mov rcx, rsi",
        "mov rsi, qword ptr [rdi + {stack}]",
        "mov r13, qword ptr [rdi + {m}]",
        "mov r9, qword ptr [rdi + {g}]",
        "mov r12, qword ptr [rdi + {function}]",
        "mov r8, qword ptr [rdi + {go_fs}]",
        "wrfsbase r8",
        "xor edx, edx",
        "xor r10d, r10d",
        "xor edi, edi",
        "xor eax, eax",
        "jmp rcx",
        start = const offset_of!(threads::Thread, context) + offset_of!(Context, start),
        top = const offset_of!(threads::Thread, context) + offset_of!(Context, top),
        go_fs = const offset_of!(threads::Thread, context) + offset_of!(Context, go_fs),
        stack = const offset_of!(threads::Thread, stack),
        m = const offset_of!(threads::Thread, m),
        g = const offset_of!(threads::Thread, g),
        function = const offset_of!(threads::Thread, function),
    )
}

/// `exitThread`: says that Go's stack is free, and goes back to who called [`run_thread`].
#[unsafe(naked)]
pub unsafe extern "C" fn exit_thread() {
    naked_asm!(
        "mov rax, qword ptr [rsp + 8]",
        "mov r13, qword ptr gs:[0]",
        "mov rsp, qword ptr [r13 + {start}]",
        "mov r11, qword ptr [r13 + {own_fs}]",
        "wrfsbase r11",
        "mov dword ptr [rax], 0",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
        start = const offset_of!(Context, start),
        own_fs = const offset_of!(Context, own_fs),
    )
}

/// `rt_sigaction`.
#[unsafe(naked)]
pub unsafe extern "C" fn signal_action() {
    naked_asm!(
        "mov rdi, qword ptr [rsp + 8]",
        "mov rsi, qword ptr [rsp + 16]",
        "mov rdx, qword ptr [rsp + 24]",
        "mov r10, qword ptr [rsp + 32]",
        "mov eax, {number}",
        "lea rbx, [rip + 2f]",
        "jmp {gate}",
        "2:",
        "mov dword ptr [rsp + 0x28], eax",
        "ret",
        number = const libc::SYS_rt_sigaction,
        gate = sym by_gs,
    )
}

/// `settls`, of the first thread: its words begin 8 bytes below what is in RDI then.
#[unsafe(naked)]
pub unsafe extern "C" fn thread_locals() {
    naked_asm!(
        "add rdi, 8",
        "mov rax, qword ptr gs:[0]",
        "mov qword ptr [rax + {go_fs}], rdi",
        "wrfsbase rdi",
        "ret",
        go_fs = const offset_of!(Context, go_fs),
    )
}

/// The handler of every signal that Go handles: Go's own finds its thread by FS, which is the C
/// library's where the signal came while the thread was inside the library.
#[unsafe(naked)]
pub unsafe extern "C" fn on_signal() {
    naked_asm!(
        "lea rcx, [rip + {handlers}]",
        "mov eax, edi",
        "mov rcx, qword ptr [rcx + rax * 8]",
        "mov r8, qword ptr gs:[0]",
        "rdfsbase rax",
        "cmp rax, qword ptr [r8 + {own_fs}]",
        "je 2f",
        "jmp rcx",
        "2:",
        "push rbx",
        "mov rbx, rax",
        "mov r8, qword ptr [r8 + {go_fs}]",
        "wrfsbase r8",
        "call rcx",
        "wrfsbase rbx",
        "pop rbx",
        "ret",
        handlers = sym HANDLERS,
        own_fs = const offset_of!(Context, own_fs),
        go_fs = const offset_of!(Context, go_fs),
    )
}
