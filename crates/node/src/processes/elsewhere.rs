//! Frames that another thread left, as in [`super::left`]. Where that thread is now the kernel
//! tells, if it sleeps (`/proc/self/task/TID/syscall`, proc(5)): above the frame on the same stack,
//! it has left it. A thread that has ended is not known. No memory is taken but the stack's.

use super::left::{GRAIN, address};
use ginnel_region::sys;
use std::ffi::CStr;
use std::io::Write;
use std::ops::Range;

/// A thread that sleeps: its number, its call's, its stack pointer and program counter.
#[derive(PartialEq, Eq)]
struct Sleeper {
    thread: u32,
    call: u32,
    pointer: u64,
    counter: u64,
}

/// So far above a place the frame that it is in may still begin, bytes.
const NEAR: u64 = 512;

/// Was the frame at `place` (see [`super::left::here`]) another thread's, which has left it? False
/// where that cannot be told.
#[cold]
pub fn was_left(place: u64) -> bool {
    // What sleeps in the same call before and after was there in between.
    let before = sleeper_above(place);
    before.is_some() && {
        sys::sleep_ms(2);
        sleeper_above(place) == before
    }
}

/// The thread that sleeps above the place, if it is the only one that is known to be on that stack.
fn sleeper_above(place: u64) -> Option<Sleeper> {
    let mut stacks: [Option<(Range<u64>, u64)>; 8] = Default::default();
    let mut known = 0;
    each_map(|range| {
        if let Some(address) = address(place, &range) {
            if let Some(free) = stacks.get_mut(known) {
                *free = Some((range, address));
            }
            known += 1;
        }
    });
    if known > stacks.len() {
        return None;
    }
    let tasks =
        sys::openat(libc::AT_FDCWD, c"/proc/self/task", libc::O_RDONLY | libc::O_DIRECTORY, 0)
            .ok()?;
    let (mut found, mut others) = (None, false);
    sys::each_entry(tasks, |name| {
        let Some(sleeper) = asleep(tasks, name) else { return };
        let pointer = sleeper.pointer;
        if let Some((_, address)) =
            stacks.iter().flatten().find(|(stack, _)| stack.contains(&pointer))
        {
            others |= found.is_some() || pointer < address + (1 << GRAIN) + NEAR;
            found = Some(sleeper);
        }
    });
    sys::close(tasks);
    found.filter(|_| !others)
}

/// A thread in a system call.
fn asleep(tasks: i32, name: &CStr) -> Option<Sleeper> {
    let thread = name.to_str().ok()?.parse().ok()?;
    let mut path = [0u8; 32];
    write!(&mut path[..31], "{thread}/syscall").ok()?;
    let mut call = [0u8; 256];
    read(tasks, CStr::from_bytes_until_nul(&path).ok()?, &mut call)?;
    // The call and its six arguments, the stack pointer, the program counter; "running" of one that
    // does not sleep, and -1 for the call of one that waits for a page.
    let mut fields =
        CStr::from_bytes_until_nul(&call).ok()?.to_str().ok()?.split_ascii_whitespace();
    let call = fields.next()?.parse().ok()?;
    let mut number =
        fields.skip(6).map(|field| u64::from_str_radix(field.trim_start_matches("0x"), 16).ok());
    Some(Sleeper { thread, call, pointer: number.next()??, counter: number.next()?? })
}

fn read(directory: i32, path: &CStr, buffer: &mut [u8]) -> Option<usize> {
    let file = sys::openat(directory, path, libc::O_RDONLY, 0).ok()?;
    let got = sys::read(file, buffer).ok();
    sys::close(file);
    got
}

/// Every map of this process (`/proc/self/maps`).
fn each_map(mut each: impl FnMut(Range<u64>)) {
    let Ok(file) = sys::openat(libc::AT_FDCWD, c"/proc/thread-self/maps", libc::O_RDONLY, 0) else {
        return;
    };
    let mut piece = [0u8; 512];
    // The two numbers of a line, which of them comes next; 2: the rest of the line.
    let (mut ends, mut at) = ([0u64; 2], 0);
    while let Ok(got @ 1..) = sys::read(file, &mut piece) {
        for byte in piece.iter().take(got) {
            match (byte, ends.get_mut(at)) {
                (b'\n', _) => (ends, at) = ([0; 2], 0),
                (_, None) => {}
                (_, Some(end)) => match char::from(*byte).to_digit(16) {
                    Some(digit) => *end = *end << 4 | u64::from(digit),
                    None => {
                        at += 1;
                        if at == 2 {
                            each(ends[0]..ends[1]);
                        }
                    }
                },
            }
        }
    }
    sys::close(file);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::left::here;
    use std::sync::mpsc;

    #[inline(never)]
    fn at_depth(depth: u32, work: &mut dyn FnMut()) {
        let room = [0u8; 600];
        std::hint::black_box(&room);
        if depth == 0 {
            work()
        } else {
            at_depth(depth - 1, work)
        }
        std::hint::black_box(&room);
    }

    #[test]
    fn only_a_frame_that_a_sleeping_thread_is_above_was_left() {
        let (place, places) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            at_depth(5, &mut || {
                place.send(here() >> GRAIN).expect("sent");
                // Deeper than the frame.
                at_depth(2, &mut || goes.recv().expect("received"));
            });
            goes.recv().expect("received");
        });
        let place = places.recv().expect("received") & 0x7fff_ffff;
        for _ in 0..20 {
            assert!(!was_left(place), "it is in there");
        }
        go.send(()).expect("sent");
        assert!((0..1000).any(|_| was_left(place)));
        go.send(()).expect("sent");
        thread.join().expect("no panic");
    }
}
