//! Calls on connections whose other end seems to have no shim: straight to the kernel, and not
//! counted in the ledger (see [`ginnel_tcp::uncounted`]).
//!
//! Which numbers have such calls, and which of them are under way, stands in [`crate::quiet`].

use crate::fds::{self, Entry};
use crate::quiet::{
    Bytes, CALL, NOTEBOOK, Note, Notes, Quiet, SLOTS, changed, goes, none_in, note, quiet,
    take_note,
};
use crate::{next, runtime, thread};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, compiler_fence, fence};
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::Slot;
use ginnel_tcp::uncounted::LOOKS;
use libc::{c_int, c_void};
use syscalls::{Errno, Sysno};

/// Can all threads be made to pass a barrier?
static AVAILABLE: AtomicBool = AtomicBool::new(false);

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the call that announces it (`linux/membarrier.h`, Linux
/// 4.14).
const PRIVATE_EXPEDITED: usize = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;

fn membarrier(command: usize) -> bool {
    // SAFETY: no memory is passed.
    unsafe { sys::raw(Sysno::membarrier, [command, 0, 0, 0, 0, 0]) }.is_ok()
}

/// At the start, and in a fork child, while there is one thread: with more the kernel takes its
/// time.
pub fn start() {
    let at = ptr::from_ref(&NOTEBOOK).cast_mut().cast();
    let available =
        sys::wipe_on_fork(at, size_of::<Notes>()).is_ok() && membarrier(REGISTER_PRIVATE_EXPEDITED);
    NOTEBOOK.first.thread.store(thread::me(), Relaxed);
    AVAILABLE.store(available, SeqCst);
}

/// Another process is about to use this very memory, perhaps with this thread's control block: all
/// calls are counted from here on.
pub fn stop() {
    AVAILABLE.store(false, SeqCst);
    numbers().for_each(|(fd, _)| changed(fd));
}

/// All numbers that ever stood for anything.
fn numbers() -> impl Iterator<Item = (c_int, &'static Quiet)> {
    (0..).zip(NOTEBOOK.quiet.iter().take(fds::highest() as usize + 1))
}

/// The numbers of this slot whose calls may go uncounted.
fn numbers_of(slot: u32) -> impl Iterator<Item = c_int> {
    let only = fds::of_slot(slot)
        .filter(|&fd| fds::count(slot) < 2 && fds::get(fd) == Entry::Endpoint(slot));
    let goes = move |fd: &c_int| goes(*fd, slot);
    let all = numbers().map(|(fd, _)| fd).take_while(move |_| only.is_none());
    only.into_iter().chain(all).filter(goes)
}

/// Adds up what was returned so far, for whoever asks how many bytes went where.
pub fn report() {
    numbers().for_each(|(_, quiet)| quiet.report());
}

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

/// After a look at which nobody had come: the next calls need not be counted, if that has been so
/// for long.
pub fn begin(endpoint: Endpoint<'static>) {
    let Some(quiet) = quiet(endpoint.fd()).filter(|_| AVAILABLE.load(Relaxed)) else { return };
    SLOTS.store(ptr::from_ref(endpoint.attachment.ledger.slot(0)).cast_mut(), Release);
    // Also where they are not counted already: by another number of the socket's perhaps.
    if (endpoint.is_uncounted() || endpoint.begin_uncounted()) && take_note() {
        endpoint.while_uncounted(|| {
            let (fd, index) = (endpoint.fd(), endpoint.index());
            // Not stopped, nor closed or taken back by another thread, nor another process's after
            // a fork in a handler.
            let stands = || {
                fds::get(fd) == Entry::Endpoint(index)
                    && AVAILABLE.load(SeqCst)
                    && endpoint.is_uncounted()
            };
            if !stands() {
                return;
            }
            // What is there is this slot's, or of what the number stood for before.
            if quiet.slot.load(Relaxed) == index + 1 {
                quiet.report();
            } else {
                quiet.returned.iter().for_each(|returned| returned.store(0, Relaxed));
            }
            // Not usable yet.
            quiet.left.store(0, Relaxed);
            quiet.slot.store(index + 1, SeqCst);
            fence(SeqCst);
            // If it comes to that only after this look, it is found here.
            if stands() {
                quiet.left.store((LOOKS - 1) * CALL + index + 1, Relaxed);
            } else {
                changed(fd);
            }
        });
    }
}

/// Before the next step towards a channel: the process counts its calls again, if it did not and
/// something has changed. False while it may still be in one that was not.
pub fn end(endpoint: Endpoint<'static>) -> bool {
    if !endpoint.is_to_count() {
        return true;
    }
    endpoint.count_again();
    numbers_of(endpoint.index()).for_each(changed);
    // What can be seen without a barrier needs none.
    none_in(endpoint.index()) && is_over(endpoint)
}

/// The same, although nobody has come to where the connection is shown. False: not yet.
pub fn end_now(endpoint: Endpoint<'static>) -> bool {
    if !endpoint.does_not_count() {
        return true;
    }
    endpoint.count_again();
    numbers_of(endpoint.index()).for_each(changed);
    none_in(endpoint.index()) && is_over(endpoint)
}

/// Is the last of its uncounted calls over? Asked after `count_again`.
fn is_over(endpoint: Endpoint<'static>) -> bool {
    let slot = endpoint.index();
    endpoint.end_uncounted(|| {
        // Here, where no thread can begin it anew: another may have begun and ended it meanwhile.
        numbers_of(slot).for_each(changed);
        membarrier(PRIVATE_EXPEDITED) && none_in(slot)
    })
}

/// Before a fork: all calls are counted from here on, so that the child, which this process may
/// leave its connections to, can move them.
pub fn end_all() {
    let uncounted = || {
        fds::slots(0)
            .filter_map(|slot| runtime::endpoint(fds::of_slot(slot)?, slot))
            .filter(|endpoint| endpoint.does_not_count())
    };
    uncounted().for_each(Endpoint::count_again);
    for endpoint in uncounted() {
        let _ = is_over(endpoint);
    }
}
