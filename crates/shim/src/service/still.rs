//! Between two pieces of its work the thread may be ended: an exec waits for that, in the middle of
//! a receive it would leave counts half written.

use crate::{own, runtime, sets};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use ginnel_node::processes::ProcessFlags;
use ginnel_region::sys;

/// The thread is doing something.
pub(super) static WORKING: AtomicBool = AtomicBool::new(false);

/// So many threads want it to begin nothing more: [`stand_still`].
pub(super) static STILL: AtomicU32 = AtomicU32::new(0);

/// How long an exec waits for the thread to come to a place where it may be ended, nanoseconds.
const HURRY: u64 = 100_000_000;

/// From here on the thread does nothing: an exec is to end it, and in the middle of a receive it
/// would leave counts half written, or a lock held by a process that lives on. False: it is still
/// in the middle of something.
pub fn stand_still() -> bool {
    STILL.fetch_add(1, Ordering::SeqCst);
    let end = sys::monotonic_ns() + HURRY;
    while WORKING.load(Ordering::SeqCst) {
        if sys::monotonic_ns() > end {
            return false;
        }
        sys::yield_now();
    }
    true
}

/// The exec failed.
fn go_on() {
    // It may have begun before there was a segment, and so without a word.
    let _ = STILL.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
}

/// The exec did not happen: the thread works on, and the sets are as they were.
pub fn not_executed() {
    if !own::is_ours_by_number() {
        return;
    }
    if let Some(attachment) = runtime::attachment() {
        go_on();
        sets::tag_again();
        attachment.node.processes.process(attachment.node.me()).set(ProcessFlags::Executing, false);
    }
}

fn is_to_stand_still() -> bool {
    STILL.load(Ordering::SeqCst) != 0
}

/// May the thread begin to work? If so, it has begun: one thread at a time.
fn begin() -> bool {
    if is_to_stand_still() || WORKING.swap(true, Ordering::SeqCst) {
        return false;
    }
    // Whoever wants it to stand still sees that it has begun, or is seen here.
    let begun = !is_to_stand_still();
    if !begun {
        rest();
    }
    begun
}

/// The thread begins to work. An exec that has not ended it for a second has failed, without a word
/// where it was an `execl`.
pub(super) fn work() {
    let end = sys::monotonic_ns() + 10 * HURRY;
    while !begin() {
        if sys::monotonic_ns() > end && is_to_stand_still() {
            not_executed();
        }
        sys::sleep_ms(1);
    }
}

/// It may be ended now.
pub(super) fn rest() {
    WORKING.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;
    use std::thread;

    /// What the thread does, but for the work itself: in the midst of it nothing may end it.
    #[test]
    fn an_exec_waits_until_the_thread_is_between_two_pieces_of_work() {
        static IN_THE_MIDST: AtomicBool = AtomicBool::new(false);
        static PIECES: AtomicUsize = AtomicUsize::new(0);
        static OVER: AtomicBool = AtomicBool::new(false);
        let worker = thread::spawn(|| {
            while !OVER.load(Ordering::Relaxed) {
                work();
                IN_THE_MIDST.store(true, Ordering::SeqCst);
                let begin = sys::monotonic_ns();
                while sys::monotonic_ns() - begin < HURRY / 1000 {}
                IN_THE_MIDST.store(false, Ordering::SeqCst);
                PIECES.fetch_add(1, Ordering::Relaxed);
                rest();
            }
        });
        let mut times = 0;
        for turn in 0..200 {
            let before = PIECES.load(Ordering::Relaxed);
            while PIECES.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
            let still = stand_still();
            if turn % 2 == 1 {
                // A second thread's exec fails meanwhile.
                stand_still();
                go_on();
            }
            if still {
                times += 1;
                for _ in 0..1000 {
                    assert!(!IN_THE_MIDST.load(Ordering::SeqCst), "the exec would end it here");
                }
            }
            go_on();
        }
        // A busy machine may take a processor away for as long as an exec waits, now and then.
        assert!(times > 100, "it stood still {times} times of 200");
        OVER.store(true, Ordering::Relaxed);
        worker.join().expect("no panic");
    }
}
