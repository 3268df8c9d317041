//! A stream without pauses is held back now and then, so that the other end can catch up with it:
//! only when nothing is under way can both count, and can a ring be taken up. What lies in the
//! kernel's buffers goes on being sent meanwhile, so a stop that ends when all has arrived costs
//! the stream next to nothing.
//!
//! A program of one thread reads nothing while it stops: two ends that both write without pause
//! would wait for each other. So an end does not stop while the other does, and where both began at
//! once, side one gives way.

use crate::layout::Channel;
use crate::ledger::{Slot, flag};
use ginnel_region::sys;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// So many sends go by before the first stop; then one at each power of two. At side one half as
/// many more: two ends that both write without pause would always begin together else.
const FIRST: u64 = 8;
/// The first stop lasts so long at most, nanoseconds; each further one four times as long, up to
/// [`LONGEST`]: what a virtual network has under way takes longer to arrive than what lies between
/// two namespaces.
const SHORTEST: u64 = 2_000_000;
const LONGEST: u64 = 512_000_000;
/// With more sockets than this, a process that does not block has others to serve meanwhile: its
/// stops last so long at most.
const FEW: u32 = 8;
const LONGEST_OF_MANY: u64 = 16_000_000;
/// A stop in which nothing gets on ends sooner, nanoseconds: the other end reads nothing, or does
/// not run.
const STANDSTILL: u64 = 50_000_000;
/// After a stop nothing in this process is stopped for so many times its length: a program that
/// serves many connections by one thread loses a small part of its time.
const REST: u64 = 8;

static REST_UNTIL: AtomicU64 = AtomicU64::new(0);
static SOCKETS: AtomicU32 = AtomicU32::new(0);

/// This process has one more connection that may be carried …
pub fn came() {
    SOCKETS.fetch_add(1, Relaxed);
}

/// … or one less.
pub fn went() {
    let _ = SOCKETS.fetch_update(Relaxed, Relaxed, |sockets| sockets.checked_sub(1));
}

fn longest(slot: &Slot) -> u64 {
    if slot.has(flag::NONBLOCKING) && SOCKETS.load(Relaxed) > FEW {
        LONGEST_OF_MANY
    } else {
        LONGEST
    }
}

/// Is it time for a stop at this send?
fn is_due(slot: &Slot, sends: u64) -> bool {
    let sends = if slot.side() == 0 {
        Some(sends)
    } else {
        sends.is_multiple_of(3).then_some(sends / 3 * 2)
    };
    sends.is_some_and(|sends| sends >= FIRST && sends.is_power_of_two())
}

/// Counts one more send before which the other end is behind, and where it is time for a stop,
/// waits until `done`. `channel`: where both say that they stop; asked for anew each time, since
/// another thread may close the connection meanwhile. `left`: a number that changes while the other
/// end gets on. True if it was `done`.
pub(crate) fn stop<'a>(
    slot: &Slot,
    channel: impl Fn() -> Channel<'a>,
    left: impl Fn() -> u64,
    mut done: impl FnMut() -> bool,
) -> bool {
    let begin = sys::monotonic_ns();
    let pauses = |on: bool| channel().pausing(slot.side()).store(u64::from(on), SeqCst);
    let other_pauses = || channel().pausing(1 - slot.side()).load(SeqCst) != 0;
    if begin < REST_UNTIL.load(Relaxed) || other_pauses() {
        return false;
    }
    let sends = slot.tx.tries.fetch_add(1, Relaxed) + 1;
    if !is_due(slot, sends) {
        return false;
    }
    let limit =
        begin + (SHORTEST << (2 * (sends.ilog2() - FIRST.ilog2())).min(16)).min(longest(slot));
    let (mut now, mut last, mut moved) = (begin, left(), begin);
    pauses(true);
    let gives_way = || slot.side() == 1 && other_pauses();
    let mut is_done = done();
    while !is_done && now < limit && now - moved < STANDSTILL && !gives_way() {
        if now - begin < SHORTEST {
            sys::yield_now();
        } else {
            sys::sleep_ms(1);
        }
        is_done = done();
        now = sys::monotonic_ns();
        let left = left();
        if left != last {
            (last, moved) = (left, now);
        }
    }
    pauses(false);
    if !is_done && now - begin < SHORTEST && gives_way() {
        // Hardly begun: it is made up for as soon as the other goes on.
        slot.tx.tries.store(sends - 1, Relaxed);
    }
    REST_UNTIL.store(now + REST * (now - begin), Relaxed);
    is_done
}

/// The next send is a time for a stop, and not for the shortest: the other end has caught up with
/// nearly all.
pub(crate) fn soon(slot: &Slot) {
    slot.tx.tries.store(if slot.side() == 0 { 4 * FIRST } else { 6 * FIRST } - 1, Relaxed);
    REST_UNTIL.store(0, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::COPIED;
    use std::cell::Cell;

    #[test]
    fn the_two_ends_stop_at_different_sends() {
        // SAFETY: as below.
        let slot: Box<Slot> = unsafe { Box::new(std::mem::zeroed()) };
        let due = || (1..200).filter(|&sends| is_due(&slot, sends)).collect::<Vec<_>>();
        assert_eq!(due(), [8, 16, 32, 64, 128]);
        slot.set(flag::SIDE_ONE, true);
        assert_eq!(due(), [12, 24, 48, 96, 192]);
    }

    /// One test, as the rest is the process's: stops are few, bounded, end when nothing gets on or
    /// the other end stops, and are followed by a rest.
    #[allow(clippy::too_many_lines, reason = "one test, as the rest is the process's")]
    #[test]
    fn stops_are_few_and_bounded() {
        // SAFETY: a slot is made of atomics, and zeroes are valid.
        let slot: Box<Slot> = unsafe { Box::new(std::mem::zeroed()) };
        let words = [const { AtomicU64::new(0) }; COPIED];
        let channel = || Channel::in_copy(&words);
        let sends = &slot.tx.tries;
        let looks = Cell::new(0u64);
        let never = || {
            looks.set(looks.get() + 1);
            false
        };
        assert!(
            (0..7).all(|_| !stop(&slot, channel, || 0, never)) && looks.get() == 0,
            "no stop at first"
        );
        assert!(!stop(&slot, channel, || 0, never) && looks.get() > 0, "a stop at the eighth");
        looks.set(0);
        assert!(
            (0..100).all(|_| !stop(&slot, channel, || 0, never)) && looks.get() == 0,
            "then a rest, in which nothing is counted"
        );
        assert_eq!(sends.load(Relaxed), 8);
        REST_UNTIL.store(0, Relaxed);
        sends.store(1023, Relaxed);
        let begin = sys::monotonic_ns();
        assert!(!stop(&slot, channel, || 0, never));
        let stood = sys::monotonic_ns() - begin;
        assert!((STANDSTILL..LONGEST).contains(&stood), "nothing got on: {stood} ns");
        (0..=FEW).for_each(|_| came());
        slot.set(flag::NONBLOCKING, true);
        sends.store(1023, Relaxed);
        REST_UNTIL.store(0, Relaxed);
        let begin = sys::monotonic_ns();
        assert!(!stop(&slot, channel, sys::monotonic_ns, never));
        let stood = sys::monotonic_ns() - begin;
        assert!((LONGEST_OF_MANY..LONGEST).contains(&stood), "others are waiting: {stood} ns");
        (0..=FEW).for_each(|_| went());
        soon(&slot);
        let left = Cell::new(2);
        let gets_on = || {
            left.set(left.get() - 1);
            left.get() == 0
        };
        assert!(stop(&slot, channel, || left.get(), gets_on), "as soon as it is done");

        // Side zero goes on stopping where side one begins to at the same moment, and side one
        // makes up for it.
        let stops = |side: u8| {
            slot.set(flag::SIDE_ONE, side == 1);
            soon(&slot);
            let other_begins = || {
                channel().pausing(1 - side).store(1, SeqCst);
                false
            };
            let begin = sys::monotonic_ns();
            assert!(
                !stop(&slot, channel, || 0, other_begins)
                    && channel().pausing(side).load(SeqCst) == 0
            );
            sys::monotonic_ns() - begin
        };
        let (stood, gave_way) = (stops(0), stops(1));
        assert!(
            stood >= 16 * SHORTEST && gave_way < 16 * SHORTEST,
            "{stood} ns, then {gave_way} ns"
        );
        looks.set(0);
        assert!(!stop(&slot, channel, || 0, never) && looks.get() == 0, "not while the other does");
        channel().pausing(0).store(0, SeqCst);
        REST_UNTIL.store(0, Relaxed);
        assert!(
            !stop(&slot, channel, || 0, never) && looks.get() > 0,
            "at the next send after that"
        );
    }
}
