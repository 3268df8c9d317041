//! In which order connections became ready.
//!
//! The kernel's epoll reports descriptors in the order in which they became ready, and programs
//! count on it. A reader that finds bytes in several rings at once sees how many there are, not
//! since when. So a reader that looks at several connections asks their writers for it
//! ([`Endpoint::ask_for_order`]): a writer then *stamps* what it publishes, with the place of its
//! first byte and the processor's counter, which processors of one machine have in common. The
//! reader looks for the stamp of the first byte that it has not taken.
//!
//! A stamp is one word, and lies in the line that the writer writes with each publication anyway:
//! it costs nobody a line more. The writer never reads it there, since its reader has the line by
//! then: what it stamped it knows from its own memory. There are a few stamps. The writer looks
//! where the reader is only when all are used: to look each time would fetch the reader's line,
//! which changes with each piece that is taken, for every piece that is sent. While the reader lags
//! behind, what comes has no stamp; the first that it has not taken has its own.
//!
//! What a peer writes there, or that it writes nothing, changes the order of reports and nothing
//! else.

use crate::clocks;
use crate::endpoint::Endpoint;
use crate::layout::Direction;
use crate::ledger::Send;
pub use crate::stamp::ticks;
use crate::stamp::{PLACE, TIME, place, stamp};
use std::sync::atomic::Ordering::Relaxed;

impl Endpoint<'_> {
    /// Has the writer say since when its ring holds something. (Once: the writer reads this line
    /// for each piece that it sends, and who registers a socket anew for every step asks each
    /// time.) False: it was asked before.
    pub fn ask_for_order(self) -> bool {
        let ordered = self.incoming().ordered();
        let fresh = ordered.load(Relaxed) == 0;
        if fresh {
            ordered.store(1, Relaxed);
        }
        fresh
    }

    /// When the other end made a stamp, as of `now`.
    #[inline]
    fn time_of(self, stamp: u64, now: u64) -> u64 {
        clocks::time_of(self.attachment.node.joined(), self.others_machine(), stamp, now)
    }

    /// Where the first byte is that is unread, in the ring's positions.
    #[must_use]
    #[inline]
    pub fn unread_from(self) -> u64 {
        self.slot().rx.head.load(Relaxed)
    }

    /// When the first byte that is unread was put into the ring, also where others that came with
    /// it were read by now, ticks, as of `now`. `None`: the writer has not said.
    #[must_use]
    #[inline]
    pub fn filled_since(self, now: u64) -> Option<u64> {
        let head = self.unread_from();
        let (mut nearest, mut found) = (1 << (PLACE - 1), None);
        for stamp in self.incoming().stamps() {
            let stamp = stamp.load(Relaxed);
            let read = place(head.wrapping_sub(stamp >> TIME));
            if stamp != 0 && read < nearest {
                (nearest, found) = (read, Some(stamp));
            }
        }
        found.map(|stamp| self.time_of(stamp, now))
    }

    /// The same of the first that lies behind `told`, up to which a program was told of what there
    /// is. (Its lower 52 bits.) Where it was read meanwhile, and the writer's stamp is there no
    /// more, of the first that is unread.
    #[must_use]
    #[inline]
    pub fn filled_behind(self, told: u64, now: u64) -> Option<u64> {
        let mut stamps = self.incoming().stamps().into_iter().map(|stamp| stamp.load(Relaxed));
        let behind = stamps.find(|stamp| *stamp != 0 && stamp >> TIME == place(told));
        let ahead = told.wrapping_sub(self.unread_from()) << 12 >> 12;
        match behind {
            Some(stamp) => Some(self.time_of(stamp, now)),
            None if (1..=1 << 30).contains(&ahead) => None,
            None => self.filled_since(now),
        }
    }
}

/// The writer is about to publish bytes from `from` on: says when, if it is asked to. True: once
/// they are published, [`renew`] is due.
#[inline(always)]
pub(crate) fn note(tx: &Send, direction: Direction<'_>, from: u64) -> bool {
    direction.ordered().load(Relaxed) != 0 && note_asked(tx, direction, from)
}

#[inline]
fn note_asked(tx: &Send, direction: Direction<'_>, from: u64) -> bool {
    let free = || tx.stamps.iter().position(|stamp| stamp.load(Relaxed) == 0);
    let one = free().or_else(|| {
        // The reader lagged behind when that was looked at last, and may have caught up.
        renew(tx, direction, from);
        free()
    });
    let Some(one) = one else { return false };
    let stamp = stamp(from, ticks());
    // Seen by whoever sees the publication, which is a Release store.
    for words in [direction.stamps().get(one).copied(), tx.stamps.get(one)] {
        words.into_iter().for_each(|word| word.store(stamp, Relaxed));
    }
    free().is_none()
}

/// The ring is the carrier from `tail` on, where the bytes for which it was made so are about to
/// lie: says so, asked or not. The reader asks when it enters the ring, and these are there by
/// then.
pub(crate) fn begin(tx: &Send, direction: Direction<'_>, tail: u64) {
    let mut value = stamp(tail, ticks());
    for (own, shown) in tx.stamps.iter().zip(direction.stamps()) {
        own.store(value, Relaxed);
        shown.store(value, Relaxed);
        value = 0;
    }
}

/// Frees the stamps of what the reader has taken, all of it: of a piece that was read in part, the
/// rest is as old. `tail`: where the last publication ends.
#[cold]
pub(crate) fn renew(tx: &Send, direction: Direction<'_>, tail: u64) {
    let unread = tail.wrapping_sub(direction.head().load(Relaxed));
    let behind = |stamp: u64| place(tail.wrapping_sub(stamp >> TIME));
    let stamps = tx.stamps.iter().map(|stamp| stamp.load(Relaxed)).filter(|stamp| *stamp != 0);
    let first = stamps.map(behind).filter(|&behind| unread != 0 && behind >= unread).min();
    let first = first.unwrap_or(unread);
    for (own, shown) in tx.stamps.iter().zip(direction.stamps()) {
        if behind(own.load(Relaxed)) > first {
            own.store(0, Relaxed);
            shown.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::attached;
    use crate::settle::tests::active_end;
    use crate::stamp::UNIT;

    /// Publishes up to `tail`, as [`Endpoint::publish_tail`] does.
    fn publish(tx: &Send, direction: Direction<'_>, from: u64, tail: u64) {
        let due = note(tx, direction, from);
        direction.tail().store(tail, Relaxed);
        if due {
            renew(tx, direction, tail);
        }
    }

    /// However many pieces come, and however the reader follows: the first that it has not taken
    /// has the stamp of its own publication, unless too many came since it took the last.
    #[test]
    fn the_first_unread_piece_has_its_stamp() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let end = active_end(&attachment);
        let direction = end.incoming();
        publish(&end.slot().tx, direction, 0, 10);
        assert_eq!(end.filled_since(ticks()), None, "nobody asked");
        end.ask_for_order();
        let take = |to: u64| {
            end.slot().rx.head.store(to, Relaxed);
            direction.head().store(to, Relaxed);
        };
        let mut at = 10;
        take(at);
        for lag in [1, 1, 2, 1, 3, 3, 4, 9, 1, 4, 2].repeat(50) {
            let begun = ticks();
            let first = at;
            for piece in 0..lag {
                publish(&end.slot().tx, direction, at, at + 7 + piece);
                at += 7 + piece;
            }
            assert_eq!(end.slot().rx.head.load(Relaxed), first);
            let since = end.filled_since(ticks()).expect("it has a stamp");
            assert!(
                since + (2 << UNIT) >= begun && since <= ticks(),
                "of this round: {begun} {since}"
            );
            take(at);
        }
    }

    /// What is left of a piece is as old as the piece, also when the writer needs new stamps.
    #[test]
    fn a_piece_that_was_read_in_part_keeps_its_stamp() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let end = active_end(&attachment);
        let (tx, direction) = (&end.slot().tx, end.incoming());
        end.ask_for_order();
        publish(tx, direction, 0, 10);
        end.slot().rx.head.store(10, Relaxed);
        direction.head().store(10, Relaxed);
        publish(tx, direction, 10, 30);
        let first = end.filled_since(ticks()).expect("it has a stamp");
        end.slot().rx.head.store(11, Relaxed);
        direction.head().store(11, Relaxed);
        for from in 30..50 {
            publish(tx, direction, from, from + 1);
            let since = end.filled_since(ticks()).expect("it has a stamp");
            assert!(since.abs_diff(first) < 2 << UNIT, "after {from}: {first} {since}");
        }
    }

    /// A program was told of some bytes, and left them there: what comes after them is as old as it
    /// is.
    #[test]
    fn what_was_told_of_has_no_part_in_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let end = active_end(&attachment);
        end.ask_for_order();
        publish(&end.slot().tx, end.incoming(), 0, 10);
        let between = ticks();
        publish(&end.slot().tx, end.incoming(), 10, 30);
        let now = ticks();
        let first = end.filled_since(now).expect("it has a stamp");
        let second = end.filled_behind(10, now).expect("so has this");
        assert!(first < between && second + (2 << UNIT) >= between, "{first} {between} {second}");
        assert_eq!(end.filled_behind(30, now), None, "nothing is behind them");
        end.slot().rx.head.store(20, Relaxed);
        assert_eq!(end.filled_behind(10, now), Some(second), "some of it was read");
        end.slot().rx.head.store(30, Relaxed);
        publish(&end.slot().tx, end.incoming(), 30, 40);
        assert_eq!(end.filled_behind(10, now), Some(second), "all of it was read, and more came");
    }
}
