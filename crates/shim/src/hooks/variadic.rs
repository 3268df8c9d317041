//! Variadic functions whose arguments must reach the C library's function untouched: `execl` and its kin, `dprintf`, `prctl`.
//!
//! Stable Rust cannot define a variadic function. These only need a look at the arguments before the C library's function runs, so each
//! is a few instructions that save every register that may hold an argument, call a Rust function with what was saved, restore
//! them, and jump to the address that it gave.
use super::process::{executing, executing_file};
use super::{bypass, keeping_errno, set_errno};
use crate::next::address;
use crate::ops;
use core::arch::naked_asm;
use libc::{c_char, c_int, c_void};

/// The arguments of a variadic call, all of them words or pointers, as the calling convention leaves them.
struct Arguments {
    registers: *const *mut c_void,
    stack: *const *mut c_void,
}

/// How many of the first arguments are in registers.
const IN_REGISTERS: usize = if cfg!(target_arch = "x86_64") { 6 } else { 8 };

impl Arguments {
    /// # Safety
    /// The call has more than `index` arguments.
    unsafe fn at(&self, index: usize) -> *mut c_void {
        // SAFETY: the trampoline saved the registers in order, and the caller left the others on the stack, a word each.
        unsafe { if index < IN_REGISTERS { self.registers.add(index).read() } else { self.stack.add(index - IN_REGISTERS).read() } }
    }
}

/// Defines the exported function: looks at the arguments with `$before`, then becomes `next`'s function of the same name.
macro_rules! forwarded {
    ($(fn $name:ident = $before:ident;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            extern "C" fn before(registers: *const *mut c_void, stack: *const *mut c_void) -> *mut c_void {
                if !bypass() {
                    // SAFETY: called only from the instructions below, on a call of the function of this name.
                    keeping_errno(|| unsafe { $before(&Arguments { registers, stack }) });
                }
                address::$name().unwrap_or(absent as *mut c_void)
            }
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 192",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                // How many vector registers hold arguments.
                "mov [rsp + 48], rax",
                "movaps [rsp + 64], xmm0",
                "movaps [rsp + 80], xmm1",
                "movaps [rsp + 96], xmm2",
                "movaps [rsp + 112], xmm3",
                "movaps [rsp + 128], xmm4",
                "movaps [rsp + 144], xmm5",
                "movaps [rsp + 160], xmm6",
                "movaps [rsp + 176], xmm7",
                "mov rdi, rsp",
                "lea rsi, [rbp + 16]",
                "call {before}",
                "mov r11, rax",
                "movaps xmm7, [rsp + 176]",
                "movaps xmm6, [rsp + 160]",
                "movaps xmm5, [rsp + 144]",
                "movaps xmm4, [rsp + 128]",
                "movaps xmm3, [rsp + 112]",
                "movaps xmm2, [rsp + 96]",
                "movaps xmm1, [rsp + 80]",
                "movaps xmm0, [rsp + 64]",
                "mov rax, [rsp + 48]",
                "mov r9, [rsp + 40]",
                "mov r8, [rsp + 32]",
                "mov rcx, [rsp + 24]",
                "mov rdx, [rsp + 16]",
                "mov rsi, [rsp + 8]",
                "mov rdi, [rsp]",
                "leave",
                "jmp r11",
                before = sym before,
            );
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                "stp x29, x30, [sp, #-208]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "stp q0, q1, [sp, #80]",
                "stp q2, q3, [sp, #112]",
                "stp q4, q5, [sp, #144]",
                "stp q6, q7, [sp, #176]",
                "add x0, sp, #16",
                "add x1, sp, #208",
                "bl {before}",
                "mov x16, x0",
                "ldp q6, q7, [sp, #176]",
                "ldp q4, q5, [sp, #144]",
                "ldp q2, q3, [sp, #112]",
                "ldp q0, q1, [sp, #80]",
                "ldp x6, x7, [sp, #64]",
                "ldp x4, x5, [sp, #48]",
                "ldp x2, x3, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #208",
                "br x16",
                before = sym before,
            );
        }
    )*};
}

forwarded! {
    fn execl = program;
    fn execlp = program_file;
    fn execle = program_with_environment;
    fn dprintf = printing;
    fn __dprintf_chk = printing;
    fn prctl = controlling;
}

/// What the trampolines jump to if the C library lacks the function.
extern "C" fn absent() -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

/// # Safety
/// `arguments` are those of an `execl`.
unsafe fn program(arguments: &Arguments) {
    // SAFETY: the first is the path.
    unsafe { executing(arguments.at(0).cast::<c_char>(), -1, super::process::environment()) }
}

/// # Safety
/// `arguments` are those of an `execlp`.
unsafe fn program_file(arguments: &Arguments) {
    // SAFETY: the first is the file's name.
    unsafe { executing_file(arguments.at(0).cast::<c_char>(), super::process::environment()) }
}

/// # Safety
/// `arguments` are those of an `execle`.
unsafe fn program_with_environment(arguments: &Arguments) {
    let mut index = 1;
    // SAFETY: the program's arguments end with a null pointer, and the environment follows it.
    unsafe {
        while !arguments.at(index).is_null() {
            index += 1;
        }
        executing(arguments.at(0).cast::<c_char>(), -1, arguments.at(index + 1).cast::<*const c_char>());
    }
}

/// # Safety
/// `arguments` are those of a `dprintf`.
unsafe fn printing(arguments: &Arguments) {
    // SAFETY: the first is the descriptor, an int in the low half of its register.
    ops::io::hand_over(unsafe { arguments.at(0) }.addr() as c_int);
}

/// # Safety
/// `arguments` are those of a `prctl`.
unsafe fn controlling(arguments: &Arguments) {
    // SAFETY: the first is what it is to do, an int in the low half of its register.
    if unsafe { arguments.at(0) }.addr() as c_int == libc::PR_SET_SECCOMP {
        ops::process::confined();
    }
}
