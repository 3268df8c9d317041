//! Variadic functions whose arguments must reach the C library's function untouched: `execl` and
//! its kin, `dprintf`, `prctl`.
//!
//! Stable Rust cannot define a variadic function. These only need a look at the arguments before
//! the C library's function runs, so each is a few instructions that save every register that may
//! hold an argument, call a Rust function with what was saved, restore them, and jump to the
//! address that it gave.
use super::{bypass, exec, identity, keeping_errno, set_errno};
use crate::next::{self, address};
use crate::ops;
use core::arch::naked_asm;
use libc::{c_char, c_int, c_ulong, c_void};

/// The arguments of a variadic call, all of them words or pointers, as the calling convention
/// leaves them.
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
        // SAFETY: the trampoline saved the registers in order, and the caller left the others on
        // the stack, a word each.
        unsafe {
            if index < IN_REGISTERS {
                self.registers.add(index).read()
            } else {
                self.stack.add(index - IN_REGISTERS).read()
            }
        }
    }
}

/// Defines the exported function: looks at the arguments with `$before`, then becomes `next`'s
/// function of the same name.
macro_rules! forwarded {
    ($(fn $name:ident = $before:ident;)*) => {$(
        #[allow(clippy::too_many_lines, reason = "instructions, of either processor")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            extern "C" fn before(registers: *const *mut c_void, stack: *const *mut c_void) -> *mut c_void {
                // SAFETY: called only from the instructions below, on a call of the function of
                // this name.
                match unsafe { $before(&Arguments { registers, stack }) } {
                    Next::Library => address::$name().unwrap_or(absent as *mut c_void),
                    Next::Done => done as *mut c_void,
                    Next::Failed => failed as *mut c_void,
                }
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

/// What follows a look at the arguments.
enum Next {
    /// The C library's function.
    Library,
    /// Nothing: the call was made, and returned 0.
    Done,
    /// Nothing: the call has failed, and `errno` says why.
    Failed,
}

extern "C" fn done() -> c_int {
    0
}

extern "C" fn failed() -> c_int {
    -1
}

/// Longer lists of arguments than this go to the C library as they are: a stack may be small.
const LIST_MAX: usize = 64;

/// Puts the arguments from the second on into `list`, with the null pointer at their end. False
/// where there is not room for all.
///
/// # Safety
/// The arguments from the second on end with a null pointer.
unsafe fn take(arguments: &Arguments, list: &mut [*const c_char; LIST_MAX]) -> bool {
    for (i, place) in list.iter_mut().enumerate() {
        // SAFETY: not beyond the null pointer.
        *place = unsafe { arguments.at(i + 1) }.cast::<c_char>().cast_const();
        if place.is_null() {
            return true;
        }
    }
    false
}

/// The number of the argument behind the list's end.
///
/// # Safety
/// As for [`take`].
unsafe fn behind(arguments: &Arguments) -> usize {
    let mut index = 1;
    // SAFETY: not beyond the null pointer.
    while !unsafe { arguments.at(index) }.is_null() {
        index += 1;
    }
    index + 1
}

/// # Safety
/// `arguments` are those of an `execl`.
unsafe fn program(arguments: &Arguments) -> Next {
    let mut list = [core::ptr::null(); LIST_MAX];
    // SAFETY: the first is the path, then the list.
    unsafe {
        let path = arguments.at(0).cast::<c_char>();
        if !take(arguments, &mut list) {
            exec::begins(path, super::environment::own());
            return Next::Library;
        }
        exec::execv(path, list.as_ptr());
    }
    Next::Failed
}

/// # Safety
/// `arguments` are those of an `execlp`.
unsafe fn program_file(arguments: &Arguments) -> Next {
    let mut list = [core::ptr::null(); LIST_MAX];
    // SAFETY: the first is the file's name, then the list.
    unsafe {
        let file = arguments.at(0).cast::<c_char>();
        if !take(arguments, &mut list) {
            exec::begins_in_path(file, super::environment::own());
            return Next::Library;
        }
        exec::execvp(file, list.as_ptr());
    }
    Next::Failed
}

/// # Safety
/// `arguments` are those of an `execle`.
unsafe fn program_with_environment(arguments: &Arguments) -> Next {
    let mut list = [core::ptr::null(); LIST_MAX];
    // SAFETY: the first is the path, then the list, and the environment follows.
    unsafe {
        let (path, envp) = (
            arguments.at(0).cast::<c_char>(),
            arguments.at(behind(arguments)).cast::<*const c_char>(),
        );
        if !take(arguments, &mut list) {
            exec::begins(path, envp);
            return Next::Library;
        }
        exec::execve(path, list.as_ptr(), envp);
    }
    Next::Failed
}

/// # Safety
/// `arguments` are those of a `dprintf`.
unsafe fn printing(arguments: &Arguments) -> Next {
    if !bypass() {
        // SAFETY: the first is the descriptor, an int in the low half of its register.
        let fd = unsafe { arguments.at(0) }.addr() as c_int;
        keeping_errno(|| ops::io::hand_over(fd));
    }
    Next::Library
}

/// Does `prctl(2)` with these arguments confine anybody, as [`super::raw`] asks of `seccomp(2)`?
pub(super) fn confines(option: c_int, mode: c_ulong, filter: c_ulong) -> bool {
    let asks = mode == c_ulong::from(libc::SECCOMP_MODE_FILTER) && filter == 0;
    option == libc::PR_SET_SECCOMP && !asks
}

/// # Safety
/// `arguments` are those of a `prctl`.
unsafe fn controlling(arguments: &Arguments) -> Next {
    // SAFETY: it has at most five arguments; those that were not passed are whatever the registers
    // hold, which the kernel does not look at.
    let [option, a, b, c, d] =
        [0, 1, 2, 3, 4].map(|index| unsafe { arguments.at(index) }.addr() as c_ulong);
    // What it is to do is an int in the low half of its register.
    let option = option as c_int;
    if bypass() {
        return Next::Library;
    }
    if confines(option, a, b) {
        keeping_errno(ops::process::confined);
    }
    if !identity::changes_rights(option, a) {
        return Next::Library;
    }
    // SAFETY: the program's own arguments.
    let result = identity::of_thread(|| unsafe { next::prctl(option, a, b, c, d) });
    if result == 0 { Next::Done } else { Next::Failed }
}
