//! The program's own memory, as its calls name it: where there is none, a call gives EFAULT, as the
//! kernel's does.
//!
//! The kernel is asked to copy (`process_vm_readv(2)` of this process), but for what is called
//! most: of operations in a page that was there of late, the kernel is not asked again. Where it
//! refuses (a filter of system calls), the pointer is taken for good.

use crate::kernel::{Result, errno};
use ginnel::sysv::Op;
use libc::{c_int, c_ulong, c_void};
use std::cell::Cell;
use std::mem::{MaybeUninit, size_of};

const PAGE: usize = 4096;

/// The kernel's copy between `own` and `theirs`; `None` where it makes none.
fn copied(own: *mut c_void, theirs: usize, len: usize, out: bool) -> Option<Result<()>> {
    let local = libc::iovec { iov_base: own, iov_len: len };
    let remote = libc::iovec { iov_base: theirs as *mut c_void, iov_len: len };
    let number = if out { libc::SYS_process_vm_readv } else { libc::SYS_process_vm_writev };
    let (one, none): (c_ulong, c_ulong) = (1, 0);
    // SAFETY: `own` is the caller's, as long as it says; of the other the kernel looks whether it
    // is.
    let done = unsafe {
        let pid = libc::getpid();
        libc::syscall(number, pid, &raw const local, one, &raw const remote, one, none)
    };
    match (usize::try_from(done), errno()) {
        (Ok(n), _) if n == len => Some(Ok(())),
        (Ok(_), _) | (_, libc::EFAULT) => Some(Err(libc::EFAULT)),
        _ => None,
    }
}

/// Reads as many values as `to` has.
///
/// # Safety
/// `T` is plain numbers; `at` is an argument of the program's.
pub(crate) unsafe fn read_all<T: Copy>(at: usize, to: &mut [MaybeUninit<T>]) -> Result<()> {
    let len = size_of_val(to);
    copied(to.as_mut_ptr().cast(), at, len, true).unwrap_or_else(|| {
        if at == 0 {
            return Err(libc::EFAULT);
        }
        // SAFETY: as the program says it, and nobody else knows better.
        unsafe { std::ptr::copy_nonoverlapping(at as *const u8, to.as_mut_ptr().cast(), len) };
        Ok(())
    })
}

/// Reads a value.
///
/// # Safety
/// As [`read_all`].
pub(crate) unsafe fn read<T: Copy>(at: usize) -> Result<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the caller's promise; then it is written, and any bytes are numbers.
    unsafe { read_all(at, std::slice::from_mut(&mut value)).map(|()| value.assume_init()) }
}

/// Writes values.
///
/// # Safety
/// `at` is an argument of the program's, that is to have room for them.
pub(crate) unsafe fn write_all<T: Copy>(at: usize, values: &[T]) -> Result<()> {
    let (from, len) = (values.as_ptr(), size_of_val(values));
    copied(from.cast_mut().cast(), at, len, false).unwrap_or_else(|| {
        if at == 0 {
            return Err(libc::EFAULT);
        }
        // SAFETY: as the program says it, and nobody else knows better.
        unsafe { std::ptr::copy_nonoverlapping(from.cast(), at as *mut u8, len) };
        Ok(())
    })
}

thread_local! {
    /// Pages in which this thread's operations were of late; at first none that there are.
    static KNOWN: [Cell<usize>; 4] = const { [const { Cell::new(usize::MAX) }; 4] };
}

fn is_known_page(page: usize) -> bool {
    KNOWN.with(|known| known[page % known.len()].get() == page)
}

fn unpacked(op: libc::sembuf) -> Op {
    Op { number: op.sem_num, add: op.sem_op, flags: op.sem_flg }
}

/// Is all of it in the page that was there at the last call?
fn is_known(ops: *const libc::sembuf, count: usize) -> bool {
    let (at, len) = (ops as usize, count * size_of::<libc::sembuf>());
    is_known_page(at / PAGE) && at.saturating_add(len - 1) / PAGE == at / PAGE
}

/// The one operation of a call, without a system call; `None` where it is not known to be there.
///
/// # Safety
/// `ops` is an argument of the program's.
pub(crate) unsafe fn known_operation(ops: *const libc::sembuf) -> Option<Op> {
    // SAFETY: it was there a moment ago.
    is_known(ops, 1).then(|| unpacked(unsafe { ops.read_unaligned() }))
}

/// The operations of a call, at least one.
///
/// # Safety
/// `ops` is an argument of the program's.
pub(crate) unsafe fn operations(ops: *const libc::sembuf, count: usize) -> Result<Vec<Op>> {
    if is_known(ops, count) {
        // SAFETY: all of it was there a moment ago.
        let op = |index| unpacked(unsafe { ops.add(index).read_unaligned() });
        return Ok((0..count).map(op).collect());
    }
    let mut found = Vec::<libc::sembuf>::with_capacity(count);
    let room = &mut found.spare_capacity_mut()[..count];
    // SAFETY: the caller's promise; then so many are there.
    unsafe {
        read_all(ops as usize, room)?;
        found.set_len(count);
    }
    let page = ops as usize / PAGE;
    KNOWN.with(|known| known[page % known.len()].set(page));
    Ok(found.into_iter().map(unpacked).collect())
}

/// `time` of `semtimedop`, as the program has it; null is none.
///
/// # Safety
/// It is an argument of the program's.
pub(crate) unsafe fn time(time: *const libc::timespec) -> Result<Option<libc::timespec>> {
    if time.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { read(time as usize) }.map(Some)
}

/// Ids of a user and a group, of which −1 is none (`IPC_SET`).
pub(crate) fn check_ids(uid: u32, gid: u32) -> std::result::Result<(), c_int> {
    if uid == u32::MAX || gid == u32::MAX { Err(libc::EINVAL) } else { Ok(()) }
}
