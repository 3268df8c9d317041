//! All unsafe code of this crate. Its rules:
//!
//! - Never a reference (`&T`, `&[u8]`) into a segment by a safe function: another party may write
//!   at any time. [`Area::bytes`] and [`Area::bytes_mut`] are unsafe, and whoever calls them has
//!   opened the segment as trusting.
//! - An [`Area`] is checked once, against the map; each access is checked against the area.
//! - The map lives as long as the process (see [`ginnel_region::Segment`]), so an area does not
//!   keep it.

#![allow(unsafe_code)]

use ginnel_region::{Segment, sys};
use ginnel_ring::copy::copy;
use ginnel_ring::prefetch;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

/// A word is going to be written: brings its cache line here.
#[inline]
pub fn will_write(word: &AtomicU64) {
    prefetch::to_write(word.as_ptr().cast());
}

/// Bytes of a segment that others may write at any time.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    base: *mut u8,
    len: usize,
}

// SAFETY: a place in shared memory, which is only accessed through atomics and copies.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// `len` bytes at `offset`; `None` unless they lie in the pages that can be claimed, and
    /// `offset` is a multiple of 8.
    pub fn new(segment: &Segment, offset: u64, len: u64) -> Option<Self> {
        if !segment.holds(offset, len) || !offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: just found to lie inside the map.
        let base = unsafe { segment.base().add(offset as usize) };
        Some(Self { base, len: len as usize })
    }

    /// Bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// A part of it; `None` where that does not lie in it.
    pub fn part(self, at: usize, len: usize) -> Option<Self> {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        // SAFETY: just found to lie inside.
        inside.then(|| Self { base: unsafe { self.base.add(at) }, len })
    }

    /// Its first cache line is going to be written: brings it here.
    #[inline]
    pub fn will_write(self) {
        prefetch::to_write(self.base);
    }

    /// Its first two, where it has two, are going to be read.
    #[inline]
    pub fn will_read(self) {
        prefetch::to_read(self.base);
        if self.len > 64 {
            prefetch::to_read(self.base.wrapping_add(64));
        }
    }

    /// The atomic word at `at`, a multiple of 8 inside the area. Any other place gives the first
    /// word: wrong, but inside. An area has at least one.
    #[inline]
    pub fn word(self, at: usize) -> &'static AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.len, "word at {at:#x}");
        let at = if self.len >= 8 && at <= self.len - 8 { at & !7 } else { 0 };
        // SAFETY: inside the map, which lives as long as the process, and aligned, since areas of
        // words begin at a multiple of 8; atomics may be shared with anybody.
        unsafe { &*self.base.add(at).cast::<AtomicU64>() }
    }

    /// Copies bytes in; as many as there is room for from `at` on. Returns how many.
    #[inline]
    pub fn copy_in(self, at: usize, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.len.saturating_sub(at));
        if n > 0 {
            // SAFETY: `n` bytes lie between `at` and the area's end; the program's own memory does
            // not overlap the segment's, of which it never has a reference.
            unsafe { copy(bytes.as_ptr(), self.base.add(at), n) };
        }
        n
    }

    /// Copies bytes out; as many as there are from `at` on. Returns how many.
    #[inline]
    pub fn copy_out(self, at: usize, bytes: &mut [u8]) -> usize {
        let n = bytes.len().min(self.len.saturating_sub(at));
        if n > 0 {
            // SAFETY: as for `copy_in`.
            unsafe { copy(self.base.add(at), bytes.as_mut_ptr(), n) };
        }
        n
    }

    /// Appends all of it to `to`.
    pub fn append_to(self, to: &mut Vec<u8>) {
        to.reserve(self.len);
        // SAFETY: room for `len` bytes was just reserved, and they are written before they count.
        unsafe {
            copy(self.base, to.as_mut_ptr().add(to.len()), self.len);
            to.set_len(to.len() + self.len);
        }
    }

    /// Zeroes all of it.
    pub fn clear(self) {
        // SAFETY: inside the map. Another party that writes at the same time makes it any mixture.
        unsafe { std::ptr::write_bytes(self.base, 0, self.len) };
    }

    /// Where it begins.
    pub fn as_ptr(self) -> *mut u8 {
        self.base
    }

    /// The bytes themselves.
    ///
    /// # Safety
    /// Nobody writes them for as long as the reference lives.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: inside the map; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }

    /// The bytes themselves, to be written.
    ///
    /// # Safety
    /// Nobody else reads or writes them for as long as the reference lives.
    pub unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        // SAFETY: inside the map; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }
}

/// A word of a segment, for as long as the process lives.
pub fn lasting(word: &AtomicU64) -> &'static AtomicU64 {
    // SAFETY: a segment's map is never unmapped (see the head of this file), and only words of
    // segments come here.
    unsafe { &*std::ptr::from_ref(word) }
}

/// Waits until something in an epoll set is ready, for `time` at most, with only the signals of
/// `mask` blocked, a bit for each. True where a signal came, or the process was stopped and goes
/// on: the kernel's semop(2) gives EINTR then, too (signal(7)), and ppoll(2) does not.
pub fn sleep_among_signals(epoll: BorrowedFd<'_>, time: std::time::Duration, mask: u64) -> bool {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
    let time = libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    let (fd, to, time, mask) =
        (epoll.as_raw_fd(), events.as_mut_ptr(), &raw const time, &raw const mask);
    // The system call, and not the C library's function: that has a set of another size.
    // SAFETY: room for four events, a time of this function's, and a set as large as the kernel's.
    let done = unsafe { libc::syscall(libc::SYS_epoll_pwait2, fd, to, 4, time, mask, 8) };
    let errno = || std::io::Error::last_os_error().raw_os_error();
    match (done, errno()) {
        (0.., _) => false,
        (_, Some(libc::ENOSYS)) => poll_among_signals(epoll, time, mask),
        (_, errno) => errno == Some(libc::EINTR),
    }
}

/// The same for a kernel before 5.11.
#[cold]
fn poll_among_signals(fd: BorrowedFd<'_>, time: *const libc::timespec, mask: *const u64) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd; the others are the caller's, and the time a copy that may be changed.
    let done = unsafe {
        let mut time = *time;
        libc::syscall(libc::SYS_ppoll, &raw mut poll, 1, &raw mut time, mask, 8)
    };
    done < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
}

/// A descriptor that is the caller's alone.
pub fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the caller has just made it, and nobody else closes it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A descriptor of the segment's own, for one call.
pub fn borrow(fd: i32) -> BorrowedFd<'static> {
    // SAFETY: the numbers that come here are of open files that are kept for as long as the waiter
    // is, or the process.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Tells a process from its children: a byte of a page that a child of fork finds zeroed.
#[derive(Debug)]
pub struct ForkMark(&'static AtomicU8);

impl ForkMark {
    /// A mark of this process.
    pub fn new() -> sys::Result<Self> {
        let page = sys::map_private(4096)?;
        sys::wipe_on_fork(page, 4096)?;
        // SAFETY: a page of this process's own, which is never unmapped.
        let mark = unsafe { &*page.cast::<AtomicU8>() };
        mark.store(1, Ordering::Relaxed);
        Ok(Self(mark))
    }

    /// Is this the process that made the mark, rather than a child of it?
    #[inline]
    pub fn is_own(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1
    }
}

/// Has the machine more than one processor? Not: may this thread run on more than one, since
/// whoever it waits for may run on another.
pub fn has_processors() -> bool {
    static MANY: OnceLock<bool> = OnceLock::new();
    // SAFETY: no memory is passed.
    *MANY.get_or_init(|| unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } > 1)
}

/// A value that is made once and never freed, and may be replaced by another.
pub struct OwnPointer<T>(AtomicPtr<T>);

impl<T: Sync> OwnPointer<T> {
    /// None yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// What is there.
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or from a box that was leaked; Acquire pairs with the exchange that put it
        // there, so it is seen whole.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Puts `new` there, unless what stands there by now `is_good`. Returns what stands there.
    pub fn replace_unless(&self, new: &'static mut T, is_good: impl Fn(&T) -> bool) -> &'static T {
        let seen = self.get();
        if let Some(seen) = seen.filter(|seen| is_good(seen)) {
            return seen;
        }
        let old = seen.map_or(std::ptr::null_mut(), |seen| std::ptr::from_ref(seen).cast_mut());
        let new = std::ptr::from_mut(new);
        match self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: from a box that was leaked.
            Ok(_) => unsafe { &*new },
            // SAFETY: not null: another thread has just put it there, from a box that was leaked.
            Err(other) => unsafe { &*other },
        }
    }
}

/// Has these run by fork(3) from here on: before it, and after it in the parent and in the child.
pub fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    ginnel_node::life::forks::heed();
    // SAFETY: functions that last as long as the process: nobody unloads this library.
    let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// Sets `GINNEL_DIR`, for tests and examples of one thread.
pub fn set_directory(path: &std::path::Path) {
    // SAFETY: documented as for programs of one thread.
    unsafe { std::env::set_var("GINNEL_DIR", path) };
    // SAFETY: as above.
    unsafe { std::env::remove_var("GINNEL_SEGMENT") };
}
