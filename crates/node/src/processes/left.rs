//! Frames that were left: a signal handler that interrupted a thread inside the library may leave
//! by `siglongjmp` (time limits are made so), and what was under way there is never ended. A lock
//! that was taken in such a frame would be held for ever.
//!
//! The word of a lock says where on its stack the holder was. A thread that waits for a lock that
//! its own process has finds its own frames, by that place, to be gone: if it lies below where the
//! thread is now; or if it lies above, and no signal handler runs between the two, for then frames
//! of this call stand there.

use super::elsewhere;
use ginnel_region::sys;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;

/// A place on the stack is known to 1 << `GRAIN` bytes.
pub const GRAIN: u32 = 8;
/// Bits of a place that are known, above [`GRAIN`].
const KNOWN: u32 = 31;

/// Where on its stack this thread is.
#[inline(always)]
pub fn here() -> u64 {
    let local = MaybeUninit::<u8>::uninit();
    local.as_ptr() as u64
}

/// The place of the caller's frame, as [`frame`] is asked of it: not 0.
#[inline(always)]
pub fn place() -> u64 {
    (here() >> GRAIN) & ((1 << KNOWN) - 1) | 1 << KNOWN
}

/// Was the frame with this [`place`] this thread's, which has left it?
#[cold]
pub fn was_left(place: u64) -> bool {
    frame(place) == Frame::Left
}

/// Does this thread run no signal handler? False where that cannot be told.
#[cold]
pub fn is_outside_handlers() -> bool {
    let now = here();
    tells() && stack().is_some_and(|stack| stack.contains(&now) && !handler_between(now..stack.end))
}

/// Was it another thread's, which sleeps elsewhere by now? False where that cannot be told. Takes
/// milliseconds.
#[cold]
pub fn was_left_elsewhere(place: u64) -> bool {
    elsewhere::was_left(place)
}

/// Are handlers' frames known here?
fn tells() -> bool {
    #[cfg(target_arch = "x86_64")]
    let tells = std::arch::is_x86_feature_detected!("xsave");
    #[cfg(not(target_arch = "x86_64"))]
    let tells = false;
    tells
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// It was this thread's, and was left.
    Left,
    /// It is this thread's, and waits for the signal handler that runs now.
    Interrupted,
    /// Another thread's it may be, or that cannot be told.
    Unknown,
}

/// What became of the frame at `place`, of which some bits are known (see [`here`]).
#[cold]
pub fn frame(place: u64) -> Frame {
    if !tells() {
        return Frame::Unknown;
    }
    let (now, Some(stack)) = (here(), stack()) else { return Frame::Unknown };
    let Some(start) = address(place, &stack).filter(|_| stack.contains(&now)) else {
        return Frame::Unknown;
    };
    let end = (start + (1 << GRAIN)).min(stack.end);
    if end > now && handler_between(now..end) { Frame::Interrupted } else { Frame::Left }
}

/// Where on a stack a place is.
pub fn address(place: u64, stack: &Range<u64>) -> Option<u64> {
    // All the addresses that the bits may mean are so far apart that one at most is on this stack.
    let span = 1u64 << (KNOWN + GRAIN);
    let low = place << GRAIN & (span - 1);
    let near = stack.start & !(span - 1);
    // The last map of all (vsyscall) lies where there is no other behind.
    [near | low, near.wrapping_add(span) | low].into_iter().find(|start| stack.contains(start))
}

/// Does the stack hold a signal handler's frame there (the kernel's `struct rt_sigframe`)? It
/// begins with the address that the handler returns to (sigaction's `sa_restorer`). Remains of the
/// frame of a handler that was left may lie about in what the frames of now have not written to;
/// not whole ones.
fn handler_between(range: Range<u64>) -> bool {
    /// Where in the frame the interrupted stack pointer and the address of the processor's other
    /// state stand, and where in that and what its mark is.
    const POINTER: u64 = 168;
    const STATE: u64 = 232;
    const MARK_AT: u64 = 464;
    const MARK: u64 = 0x4650_5853;
    let mut restorers = [0; 64];
    for (restorer, signal) in restorers.iter_mut().zip(1..) {
        *restorer = sys::signal_action(signal).map_or(0, |action| action.restorer);
    }
    let read = |at: u64| {
        // SAFETY: only for places in `range`, which is this thread's stack above where it is now.
        range.contains(&at).then(|| unsafe { std::ptr::read_volatile((at & !7) as *const u64) })
    };
    let is_frame = |at: u64| {
        let pointer =
            read(at + POINTER).is_some_and(|pointer| pointer > at && pointer <= range.end);
        pointer
            && read(at + STATE)
                .and_then(|state| read(state + MARK_AT))
                .is_some_and(|mark| mark & 0xffff_ffff == MARK)
    };
    (range.start & !7..range.end & !7).step_by(8).any(|at| {
        read(at).is_some_and(|word| word != 0 && restorers.contains(&word)) && is_frame(at)
    })
}

/// No stack is larger, bytes.
const MOST: u64 = 1 << 30;
const _: () = assert!(MOST < 1 << (KNOWN + GRAIN));

/// This thread's stack; the C library reads a file to tell the first thread's.
fn stack() -> Option<Range<u64>> {
    thread_local! {
        static STACK: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }
    if STACK.get().1 == 0 {
        STACK.set(ask_for_stack().map_or((0, 1), |stack| (stack.start, stack.end)));
    }
    let (start, end) = STACK.get();
    Some(start..end).filter(|_| end > 1)
}

fn ask_for_stack() -> Option<Range<u64>> {
    // The C library holds a lock of the thread's meanwhile: a handler that leaves by siglongjmp, or
    // asks as well, would stand there for ever.
    let _blocked = sys::block_signals();
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut base, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: asks the C library about this thread; all places are writable, and the attributes are
    // destroyed once they were made.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let known = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut base, &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        let end = base as u64 + size as u64;
        // Where there is no limit the first thread's is said to have most of the address space, and
        // other threads' in it.
        (known == 0).then(|| (base as u64).max(end.saturating_sub(MOST))..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place_of(address: u64) -> u64 {
        (address >> GRAIN) & ((1 << KNOWN) - 1)
    }

    #[inline(never)]
    fn deeper(depth: u32) -> u64 {
        let room = [0u8; 600];
        std::hint::black_box(&room);
        if depth == 0 { here() } else { std::hint::black_box(deeper(depth - 1)) }
    }

    #[test]
    fn a_frame_that_returned_was_left() {
        assert_eq!(frame(place_of(deeper(5))), Frame::Left);
    }

    #[test]
    fn what_is_on_another_stack_is_not_ours() {
        let other = std::thread::spawn(here).join().expect("a thread");
        assert_eq!(frame(place_of(other)), Frame::Unknown);
    }

    #[test]
    fn a_handler_knows_the_frame_that_it_interrupted() {
        use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
        static INTERRUPTED: AtomicU64 = AtomicU64::new(0);
        static ANSWER: AtomicU64 = AtomicU64::new(0);
        extern "C" fn handler(_: i32) {
            let known = frame(place_of(INTERRUPTED.load(SeqCst))) == Frame::Interrupted || !tells();
            ANSWER.store(known.into(), SeqCst);
        }
        // SAFETY: a handler of the right shape; the signal goes to this thread.
        unsafe {
            libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t);
            INTERRUPTED.store(here(), SeqCst);
            libc::raise(libc::SIGUSR1);
        }
        assert_eq!(ANSWER.load(SeqCst), 1);
    }
}
