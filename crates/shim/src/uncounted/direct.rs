//! The call itself: a function of the C library's that programs call often, called as the program
//! called it and noted while it lasts, or replaced by the hook's own work.

use crate::quiet::{Bytes, CALL, NOTEBOOK, Note, Quiet, note, quiet};
use crate::{fds, next, thread};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, compiler_fence};
use ginnel_tcp::Slot;
use ginnel_tcp::uncounted::LOOKS;
use libc::{c_int, c_void};
use syscalls::{Errno, Sysno};

/// The same pointer, of which the compiler knows no parts that it could keep in registers of their
/// own.
#[inline(always)]
fn in_one_register<T>(whole: &T) -> &T {
    let mut pointer = ptr::from_ref(whole);
    // SAFETY: no instruction.
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) pointer, options(pure, readonly, nostack, preserves_flags))
    };
    // SAFETY: it is what it was.
    unsafe { &*pointer }
}

/// An argument: a pointer, or a number in its low part.
pub type Word = *mut c_void;

/// A function that takes a descriptor and up to four more arguments, as these all are.
pub type Function = unsafe extern "C" fn(c_int, Word, Word, Word, Word) -> isize;

/// A function of the C library's that is called often, and what is called in its place where a call
/// is not one that goes uncounted.
pub struct Direct {
    /// That function, once it is found.
    libc: AtomicPtr<c_void>,
    /// What stands in for it.
    pub otherwise: Function,
    /// Not 0 while it does no more than its system call: it is glibc's own (another library's that
    /// stands before glibc's may do anything), and the process has one thread, by glibc's own
    /// account.
    alone: AtomicPtr<AtomicU8>,
    /// The system call that it makes, with the same arguments.
    number: Sysno,
    bytes: Bytes,
}

/// What [`Direct::alone`] is of a function that may always do more.
static NEVER: AtomicU8 = AtomicU8::new(0);

impl Direct {
    /// Not found yet.
    #[must_use]
    pub const fn new(otherwise: Function, number: Sysno, bytes: Bytes) -> Self {
        let libc = AtomicPtr::new(otherwise as *mut c_void);
        Self {
            libc,
            otherwise,
            alone: AtomicPtr::new((&raw const NEVER).cast_mut()),
            number,
            bytes,
        }
    }

    /// The C library's function is there; glibc's functions are within these addresses, and at
    /// `alone` it says that the process has one thread (null: it does not say).
    pub fn found(&self, address: Option<*mut c_void>, glibc: &Range<usize>, alone: *mut AtomicU8) {
        if let Some(address) = address {
            if glibc.contains(&address.addr()) && !alone.is_null() {
                self.alone.store(alone, Relaxed);
            }
            self.libc.store(address, Release);
        }
    }

    /// From here on the C library's function is called: the program cancels threads, for which it
    /// may be a point.
    pub fn heed_cancellation(&self) {
        self.alone.store((&raw const NEVER).cast_mut(), Relaxed);
    }

    #[inline]
    fn is_bare(&self) -> bool {
        // SAFETY: a byte of glibc's or ours, which stays.
        unsafe { (*self.alone.load(Relaxed)).load(Relaxed) != 0 }
    }
}

/// Calls the C library's function as the program made the call, if that need not be counted; else
/// what stands in for it.
///
/// After each system call the processor's caches are full of the kernel's code, and what a hook
/// costs is above all how much of its own has to be fetched anew: so all of these calls come
/// through here, and what is rare is elsewhere. For the same reason a process of one thread makes
/// the system call here, where glibc's function would do no more.
///
/// # Safety
/// The arguments are the program's own, for the function of `direct`.
#[inline(never)]
pub unsafe extern "C" fn call(
    fd: c_int,
    a: Word,
    b: Word,
    c: Word,
    d: Word,
    direct: &Direct,
) -> isize {
    let Some((quiet, slot)) = quiet(fd)
        .map(in_one_register)
        .map(|quiet| (quiet, quiet.slot.load(Acquire)))
        .filter(|(_, slot)| *slot != 0)
    else {
        // SAFETY: the caller's promise.
        return unsafe { (direct.otherwise)(fd, a, b, c, d) };
    };
    // Whichever thread is the only one: who looks at notes looks at this one. (Threads that were
    // made past the C library have no business with its functions.)
    let note = &NOTEBOOK.first;
    if !direct.is_bare() || !is_free(note) || !is_good(quiet, slot) {
        // SAFETY: the caller's promise; it is such a number.
        return unsafe { noted(fd, a, b, c, d, direct) };
    }
    if !begins(note, quiet, slot) {
        // SAFETY: as above.
        return unsafe { (direct.otherwise)(fd, a, b, c, d) };
    }
    // SAFETY: the caller's promise. The kernel looks at no more arguments than the call has; of
    // `recvfrom` and `sendto` the last two are none.
    let (result, returned) =
        unsafe { keeping(direct.number, fd, [a, b, c, d], quiet.returned(direct.bytes)) };
    match Errno::from_ret(result) {
        Ok(moved) => {
            ends(note, returned, moved);
            moved as isize
        }
        Err(errno) => {
            note.slot.store(0, Release);
            failed(errno.into_raw())
        }
    }
}

/// A system call of up to five arguments, after which a pointer is needed that is not to be saved
/// on the stack before: other calls come through [`call`], too, which have no need of it.
///
/// # Safety
/// As for the call.
#[inline(always)]
unsafe fn keeping<T>(number: Sysno, fd: c_int, [a, b, c, d]: [Word; 4], kept: &T) -> (usize, &T) {
    let (result, after): (usize, *const T);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise. The kernel leaves all registers but two as they were, and of
    // those that need not be kept for who called this, only vector registers take no argument.
    unsafe {
        core::arch::asm!(
            // As all 64 bits may be looked at by filters. The compiler would keep them from where
            // it needs them first.
            "mov edi, edi",
            "movq xmm15, r9",
            "xor r9d, r9d",
            "syscall",
            "movq r9, xmm15",
            inlateout("rax") number.id() as usize => result,
            inlateout("rdi") fd => _,
            in("rsi") a,
            in("rdx") b,
            in("r10") c,
            in("r8") d,
            inlateout("r9") ptr::from_ref(kept) => after,
            lateout("rcx") _,
            lateout("r11") _,
            out("xmm15") _,
            options(nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller's promise. The kernel leaves all registers but this as they were.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number.id() as usize,
            inlateout("x0") fd as usize => result,
            in("x1") a,
            in("x2") b,
            in("x3") c,
            in("x4") d,
            in("x5") 0,
            inlateout("x9") ptr::from_ref(kept) => after,
            options(nostack, preserves_flags)
        );
    }
    // SAFETY: it is what `kept` was.
    (result, unsafe { &*after })
}

/// As glibc's functions fail.
#[inline(never)]
extern "C" fn failed(errno: i32) -> isize {
    next::set_errno(errno);
    // Opaque, or callers would put the -1 there themselves after this call, which is their last.
    core::hint::black_box(-1)
}

/// May a call on this slot's number go uncounted, by what is left of such calls?
#[inline]
fn is_good(quiet: &Quiet, slot: u32) -> bool {
    // Without `slot` in the lower half, and with the halves exchanged, it is their number. (Two
    // threads may both have taken the last one: then it is none, and more than there ever are.)
    (quiet.left.load(Relaxed) ^ slot).rotate_left(16).wrapping_sub(1) < LOOKS - 1
}

/// May this thread make an uncounted call? Not in a handler that interrupted such a call, and not a
/// child's that has this memory and other descriptors.
#[inline]
fn is_free(note: &Note) -> bool {
    note.slot.load(Relaxed) == 0 && fds::strangers().load(Relaxed) == 0
}

/// An uncounted call begins, unless the number's are counted by now.
#[inline]
fn begins(note: &Note, quiet: &Quiet, slot: u32) -> bool {
    note.slot.store(slot, Relaxed);
    // For the processor `end` does it.
    compiler_fence(SeqCst);
    let begins = quiet.slot.load(Acquire) == slot;
    if begins {
        // Not exact where several threads do it.
        quiet.left.store(quiet.left.load(Relaxed).wrapping_sub(CALL), Relaxed);
    } else {
        note.slot.store(0, Relaxed);
    }
    begins
}

/// The call is over.
#[inline]
fn ends(note: &Note, returned: &AtomicU64, moved: usize) {
    // Need not be exact where several threads do it.
    Slot::count(returned, moved as u64);
    note.slot.store(0, Release);
}

/// [`call`] where it may be one that goes uncounted, in a process of several threads. Not inlined:
/// other calls do without the registers that this one saves.
///
/// # Safety
/// As for [`call`]; `fd` is below [`crate::quiet::NUMBERS`].
#[inline(never)]
unsafe extern "C" fn noted(
    fd: c_int,
    a: Word,
    b: Word,
    c: Word,
    d: Word,
    direct: &Direct,
) -> isize {
    // SAFETY: the caller's promise.
    let quiet = unsafe { NOTEBOOK.quiet.get_unchecked(fd as usize) };
    let (me, slot) = (thread::me(), quiet.slot.load(Acquire));
    let note = note(me);
    let may = slot != 0 && note.thread.load(Relaxed) == me && is_free(note) && is_good(quiet, slot);
    if may && begins(note, quiet, slot) {
        // SAFETY: a function of the C library's with no more arguments than these, each a word at
        // most. On both machines they are in registers, in which a function looks for no more than
        // it takes.
        let libc =
            unsafe { core::mem::transmute::<*mut c_void, Function>(direct.libc.load(Relaxed)) };
        // SAFETY: the caller's promise.
        let result = unsafe { libc(fd, a, b, c, d) };
        ends(note, quiet.returned(direct.bytes), result.max(0).unsigned_abs());
        return result;
    }
    // SAFETY: the caller's promise.
    unsafe { (direct.otherwise)(fd, a, b, c, d) }
}
