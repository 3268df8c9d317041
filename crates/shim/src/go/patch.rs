//! Putting jumps in the place of functions: all or none, and no page is ever both written to and
//! executed.
//!
//! Each page that changes is copied, changed, and made executable beside the program's; where the
//! system forbids that (SELinux, seccomp, PR_SET_MDWE), nothing has been touched. Then the copies
//! take the pages' places. No other thread runs yet.

use ginnel_region::{PAGE, sys};
use syscalls::Sysno;

/// A function and what takes its place.
#[derive(Debug, Clone, Copy)]
pub struct Jump {
    /// Where the function begins.
    pub from: usize,
    /// How much room it has.
    pub room: usize,
    /// Where to.
    pub to: usize,
}

/// `jmp [rip + 0]`, with the address behind it.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
const LEN: usize = JUMP.len() + 8;

/// Pages that belong together, and their copy.
struct Copied {
    at: usize,
    len: usize,
    copy: *mut u8,
}

impl Drop for Copied {
    fn drop(&mut self) {
        if !self.copy.is_null() {
            // SAFETY: mapped in `Copied::of`, and not moved.
            unsafe { sys::unmap(self.copy, self.len) };
        }
    }
}

/// Puts all of `jumps` in place.
///
/// # Errors
/// Why not: then nothing has changed.
///
/// # Safety
/// The functions are code of this process's, of which none runs, and what takes their place can.
pub unsafe fn patch(jumps: &mut [Jump]) -> Result<(), &'static str> {
    if jumps.iter().any(|jump| jump.room < LEN) {
        return Err("a function of its runtime is too short");
    }
    jumps.sort_unstable_by_key(|jump| jump.from);
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for jump in jumps.iter() {
        let (start, end) = (page(jump.from), page(jump.from + LEN - 1) + PAGE as usize);
        match groups.last_mut() {
            // Near ones go together: in one step.
            Some((_, before)) if start <= *before + PAGE as usize => *before = end.max(*before),
            _ => groups.push((start, end)),
        }
    }
    // SAFETY: the caller's promise.
    let copies = groups.iter().map(|(start, end)| unsafe { Copied::of(*start, *end, jumps) });
    let mut copies = copies.collect::<Result<Vec<_>, _>>()?;
    // Those of which one needs the other (the thread's and the signals') lie together, and are the
    // most. They come first: what fails after them leaves calls to the kernel, and nothing else.
    copies.sort_by_key(|copied| {
        core::cmp::Reverse(jumps.iter().filter(|jump| copied.holds(jump)).count())
    });
    for (index, copied) in copies.iter_mut().enumerate() {
        if !copied.take_place() && index == 0 {
            return Err("its code cannot be changed");
        }
    }
    Ok(())
}

fn page(at: usize) -> usize {
    at & !(PAGE as usize - 1)
}

impl Copied {
    fn holds(&self, jump: &Jump) -> bool {
        (self.at..self.at + self.len).contains(&jump.from)
    }

    /// # Safety
    /// The pages from `start` to `end` are mapped readable.
    unsafe fn of(start: usize, end: usize, jumps: &[Jump]) -> Result<Self, &'static str> {
        let len = end - start;
        let copy = sys::map_private(len).map_err(|_| "there is no memory")?;
        let copied = Self { at: start, len, copy };
        // SAFETY: the caller's promise, and a new map as long.
        let bytes = unsafe {
            core::ptr::copy_nonoverlapping(
                core::ptr::with_exposed_provenance::<u8>(start),
                copy,
                len,
            );
            core::slice::from_raw_parts_mut(copy, len)
        };
        for jump in jumps.iter().filter(|jump| copied.holds(jump)) {
            let place = bytes.get_mut(jump.from - start..).and_then(|rest| rest.get_mut(..LEN));
            let (code, address) = place.ok_or("a function lies badly")?.split_at_mut(JUMP.len());
            code.copy_from_slice(&JUMP);
            address.copy_from_slice(&jump.to.to_le_bytes());
        }
        let access = (libc::PROT_READ | libc::PROT_EXEC) as usize;
        // SAFETY: the new map, which nobody uses yet.
        let done = unsafe { sys::raw(Sysno::mprotect, [copy.addr(), len, access, 0, 0, 0]) };
        done.map(|_| copied).map_err(|_| "no new code may be executed here")
    }

    /// The copy goes where the pages are, in one step.
    fn take_place(&mut self) -> bool {
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
        // SAFETY: the pages have the copy's contents but for functions of which none runs (the
        // caller of `patch`).
        let moved = unsafe {
            sys::raw(Sysno::mremap, [self.copy.addr(), self.len, self.len, flags, self.at, 0])
        };
        if moved.is_ok() {
            self.copy = core::ptr::null_mut();
        }
        moved.is_ok()
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test may fail by a panic")]
mod tests {
    use super::*;

    fn page_of(byte: u8) -> *mut u8 {
        let page = sys::map_private(3 * PAGE as usize).expect("memory");
        // SAFETY: just mapped.
        unsafe { page.write_bytes(byte, 3 * PAGE as usize) };
        page
    }

    fn bytes(at: *mut u8, len: usize) -> &'static [u8] {
        // SAFETY: within the map of the test.
        unsafe { core::slice::from_raw_parts(at, len) }
    }

    #[test]
    fn a_jump_goes_where_it_is_told_across_pages() {
        extern "C" fn other() -> i32 {
            42
        }
        let code = page_of(0x90);
        let from = code.addr() + PAGE as usize - 5;
        let mut jumps = [Jump { from, room: 32, to: (other as *const ()).addr() }];
        // SAFETY: nobody executes the page.
        unsafe { patch(&mut jumps) }.expect("patched");
        // SAFETY: a jump to a function of this type stands there.
        let function: extern "C" fn() -> i32 = unsafe { core::mem::transmute(from) };
        assert_eq!(function(), 42);
        // What stands around it is as it was.
        assert!(bytes(code, PAGE as usize - 5).iter().all(|byte| *byte == 0x90));
        assert_eq!(
            bytes(code, 3 * PAGE as usize)[PAGE as usize + 9..].iter().find(|byte| **byte != 0x90),
            None
        );
    }

    #[test]
    fn a_short_function_changes_nothing() {
        let code = page_of(0x90);
        let mut jumps = [
            Jump { from: code.addr() + 64, room: 32, to: 1 },
            Jump { from: code.addr() + 128, room: LEN - 1, to: 1 },
        ];
        // SAFETY: nobody executes the page.
        assert!(unsafe { patch(&mut jumps) }.is_err());
        assert!(bytes(code, 3 * PAGE as usize).iter().all(|byte| *byte == 0x90));
    }
}
