//! Memory with pages around it that nobody may touch: whoever reads or writes beyond what it was
//! given ends the process there.

use std::ptr::{NonNull, null_mut};

/// Bytes of each page.
pub const PAGE: usize = 4096;
/// Bytes on either side that nobody may touch.
const GUARD: usize = 16 * PAGE;
/// How often a place is looked for.
const TRIES: u32 = 1000;

/// The pages on both sides of something that is mapped. They go when this is dropped, after what
/// lies between them.
#[derive(Debug)]
pub struct Fence {
    at: NonNull<u8>,
    /// Bytes between them.
    len: usize,
}

/// New pages, of which nothing may be read or written.
fn reserve(len: usize) -> NonNull<u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel chooses addresses that nobody has.
    let at = unsafe { libc::mmap(null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED, "no addresses are left");
    NonNull::new(at.cast()).expect("an address")
}

/// # Safety
/// Nothing that is used lies there.
unsafe fn give_up(at: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::munmap(at.cast(), len) };
    assert_eq!(done, 0, "munmap");
}

/// Is nothing mapped at this page?
fn is_free(at: *mut u8) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: what is there already stays there.
    let got = unsafe { libc::mmap(at.cast(), PAGE, libc::PROT_NONE, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: it was mapped just now, for nobody.
    unsafe { give_up(got.cast(), PAGE) };
    true
}

impl Fence {
    /// Has `make` map `len` bytes, whole pages, between two fences. The kernel takes the highest
    /// addresses that are free (mmap(2)): so long as it takes others, what `make` has mapped there
    /// stays, and it is tried again. (Another thread may map something there first: what is made
    /// then has no fence, and nothing else is wrong.)
    ///
    /// # Panics
    /// When no place is found.
    pub fn around<T>(len: usize, make: impl Fn() -> T) -> (T, Self) {
        assert!(len > 0 && len.is_multiple_of(PAGE));
        let mut elsewhere = Vec::new();
        for _ in 0..TRIES {
            let fence = Self { at: reserve(len + 2 * GUARD), len };
            let between = fence.between();
            // SAFETY: between the fences, where nothing is yet.
            unsafe { give_up(between, len) };
            let made = make();
            if !is_free(between) {
                return (made, fence);
            }
            elsewhere.push(made);
        }
        panic!("no place with fences around it");
    }

    fn between(&self) -> *mut u8 {
        // SAFETY: within what was reserved.
        unsafe { self.at.as_ptr().add(GUARD) }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        // SAFETY: the fences are this one's.
        unsafe {
            give_up(self.at.as_ptr(), GUARD);
            give_up(self.between().add(self.len), GUARD);
        }
    }
}

/// Bytes of this process's own, with a fence directly behind the last one.
#[derive(Debug)]
pub struct Fenced {
    pages: NonNull<u8>,
    /// Bytes of all pages, and those among them that were given, which are the last.
    room: usize,
    len: usize,
}

impl Fenced {
    /// With room for so many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let room = most.next_multiple_of(PAGE).max(PAGE);
        let pages = reserve(room + PAGE);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: of the pages that were just reserved, all but the last.
        let done = unsafe { libc::mprotect(pages.as_ptr().cast(), room, protection) };
        assert_eq!(done, 0, "mprotect");
        Self { pages, room, len: 0 }
    }

    /// These, in the place of those before.
    ///
    /// # Panics
    /// When there is no room for as many.
    pub fn put(&mut self, bytes: &[u8]) -> &mut [u8] {
        assert!(bytes.len() <= self.room);
        self.len = bytes.len();
        // SAFETY: the last bytes before the fence, which are this one's and lent with it.
        let place = unsafe {
            let at = self.pages.as_ptr().add(self.room - self.len);
            std::slice::from_raw_parts_mut(at, self.len)
        };
        place.copy_from_slice(bytes);
        place
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the pages are this one's, and nobody has them lent any more.
        unsafe { give_up(self.pages.as_ptr(), self.room + PAGE) };
    }
}
