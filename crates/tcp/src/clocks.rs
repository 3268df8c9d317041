//! What another machine's times say by this machine's counter.
//!
//! Machines' counters begin at different times. A stamp of another machine lies behind this one's
//! counter by the difference of the two, and by what it took until it was seen. The least that any
//! of its stamps lay behind lately is the difference and next to nothing more: by that they are
//! taken forward. So two stamps of one machine keep their distance, and those of two machines are
//! right but for the shortest time that a stamp takes.
//!
//! Where stamps are never seen soon, the least is too great, and all seem younger than they are. Who
//! looks at rings leaves what comes while he looks to his next look: so nothing of another machine
//! counts as that, and it is told when it is found.
//!
//! "Lately" is two windows: a machine that was moved to another host, or another one in its place,
//! has another difference from then on. Whoever can write into the segment may lie about anybody's
//! times: that changes the order of reports, and nothing else. Machines that do not know their
//! number among the peers are taken for one.

use crate::endpoint::Endpoint;
use crate::layout::Channel;
use crate::stamp::{self, TIME, UNIT};
use ginnel_node::Joined;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How long a window is, in units of 2^[`UNIT`] ticks: some seconds.
const WINDOW: u64 = 1 << 29;
/// How old the youngest is when a pass begins, in units: more than what the order counts as now.
const YOUNGEST: u64 = 4;
const MASK: u64 = (1 << TIME) - 1;
const NONE: u64 = u64::MAX;

/// The machine whose clock a time is by: its number among a segment's peers, from 1 on. 0: there is
/// one kernel alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine(pub(crate) u8);

impl Machine {
    /// Bits of it in a word.
    pub(crate) const BITS: u32 = 8;

    /// This one.
    pub(crate) fn own(joined: &Joined) -> Self {
        joined.place.map_or(Self(0), |place| Self::of(place.peer))
    }

    fn of(peer: u16) -> Self {
        Self((peer as u8).wrapping_add(1))
    }
}

/// The least of one machine, in units: of this window and of the one before.
struct Least {
    begun: AtomicU64,
    now: AtomicU64,
    before: AtomicU64,
}

static LEAST: [Least; 1 << Machine::BITS] = [const { Least::new() }; 1 << Machine::BITS];

fn is_less(a: u64, b: u64) -> bool {
    a.wrapping_sub(b) >> (TIME - 1) & 1 != 0
}

impl Least {
    const fn new() -> Self {
        Self { begun: AtomicU64::new(0), now: AtomicU64::new(NONE), before: AtomicU64::new(NONE) }
    }

    /// A stamp lies so far behind, seen at `units`. Returns the least. (Threads that are here at
    /// once may lose each other's: the next stamp says it again.)
    fn with(&self, behind: u64, units: u64) -> u64 {
        let now = self.now.load(Relaxed);
        // (Another thread may have begun one a moment after this one looked at the counter.)
        let open = units.wrapping_sub(self.begun.load(Relaxed)).cast_signed();
        if open > WINDOW.cast_signed() {
            // What is older than two says nothing: the machine may be another by now.
            let lately = open <= 2 * WINDOW.cast_signed();
            self.before.store(if lately { now } else { NONE }, Relaxed);
            self.begun.store(units, Relaxed);
            self.now.store(behind, Relaxed);
        } else if now == NONE || is_less(behind, now) {
            self.now.store(behind, Relaxed);
        }
        let (now, before) = (self.now.load(Relaxed), self.before.load(Relaxed));
        if before != NONE && is_less(before, now) { before } else { now }
    }
}

/// When a stamp of `machine` was made, by this machine's counter, as of `now`: a pass began then, and
/// the stamp, which was read by now, may have been made since.
#[inline]
pub(crate) fn time_of(joined: &Joined, machine: Machine, stamp: u64, now: u64) -> u64 {
    if machine == Machine::own(joined) {
        return stamp::time_of(stamp, now);
    }
    let least = &LEAST[usize::from(machine.0)];
    as_of(taken_forward(least, stamp, stamp::ticks()), now)
}

/// When a stamp was made that was taken forward, as of a pass that began at `now`: before that.
fn as_of(stamp: u64, now: u64) -> u64 {
    stamp::time_of(stamp, now).min(now.saturating_sub(YOUNGEST << UNIT))
}

/// The stamp that this machine would have made when another made this one, which is seen now.
fn taken_forward(least: &Least, stamp: u64, now: u64) -> u64 {
    let units = now >> UNIT;
    let behind = units.wrapping_sub(stamp) & MASK;
    stamp.wrapping_add(least.with(behind, units)) & MASK
}

impl Endpoint<'_> {
    /// The machine at which the other end is; this one where it has not said so.
    #[inline]
    pub(crate) fn others_machine(self) -> Machine {
        let joined = self.attachment.node.joined();
        let Some(place) = joined.place else { return Machine(0) };
        let (slot, page) = (self.slot(), self.slot().channel.load(Relaxed));
        if self.is_in_pair() || page == 0 {
            return Machine::of(place.peer);
        }
        let channel = Channel::at(&joined.segment, page);
        let owner = channel.owner(1 - slot.side()).load(Relaxed);
        let peer = joined.peer_of((owner >> 32) as u16);
        Machine::of(peer.unwrap_or(place.peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By its own counter, which is `ahead` of this one's, a machine stamps at `made`.
    fn stamp(made: u64, ahead: u64) -> u64 {
        stamp::stamp(0, made.wrapping_add(ahead)) & MASK
    }

    fn found(least: &Least, stamp: u64, seen: u64) -> u64 {
        as_of(taken_forward(least, stamp, seen), seen)
    }

    /// Whatever the difference: what was made later is later, and near to when it was made.
    #[test]
    fn stamps_of_another_machine_keep_their_order() {
        for ahead in [0, 1 << 20, 1 << 45, u64::MAX - (1 << 33), u64::MAX - 77_777] {
            let (least, begun) = (Least::new(), 1 << 42);
            // Each is seen 2,000 ticks later at least, and some much later.
            let mut last = 0;
            for i in 0..10_000 {
                let made = begun + i * 100_000;
                let seen = made + 2000 + (i * 7919 % 13) * 5000;
                let found = found(&least, stamp(made, ahead), seen);
                assert!(found + (2 << UNIT) < seen, "it is not said to come while one looks");
                if i > 20 {
                    assert!(found.abs_diff(made) <= 2000 + (8 << UNIT), "{ahead} {i}");
                    assert!(found > last, "{ahead} {i}");
                }
                last = found;
            }
        }
    }

    /// A stamp that is made while a pass goes on teaches nothing wrong, and is told in it; nor is one
    /// left to the next pass that seems younger than it is, as no stamp was ever seen soon.
    #[test]
    fn none_is_of_the_time_of_a_pass() {
        let (least, begun) = (Least::new(), 1u64 << 42);
        let late = |pass: u64, made: u64, seen: u64| {
            let word = taken_forward(&least, stamp(made, 1 << 40), seen);
            as_of(word, pass) + (2 << UNIT) >= pass
        };
        assert!(!late(begun + 30_000_000, begun, begun + 30_001_000));
        assert!(!late(begun + 70_000_000, begun + 40_000_000, begun + 70_500_000));
        let made = begun + 90_000_000;
        assert!(!late(made - 5_000_000, made, made + 3000));
        let next = made + 50_000;
        assert!(found(&least, stamp(next, 1 << 40), next + 3000).abs_diff(next) < 3200);
    }

    /// A machine that was moved has another difference: that is known two windows later.
    #[test]
    fn a_difference_that_grew_is_found() {
        let least = Least::new();
        let mut now = 1u64 << 42;
        let mut error = |ahead: u64| {
            now += WINDOW << UNIT >> 2;
            let made = now;
            found(&least, stamp(made, ahead), now + 2000).abs_diff(made)
        };
        (0..20).for_each(|_| assert!(error(1 << 40) <= 2000 + (8 << UNIT)));
        let errors: Vec<u64> = (0..20).map(|_| error((1 << 40) - (1 << 30))).collect();
        assert!(errors[0] > 1 << 29, "{errors:?}");
        assert!(errors[12..].iter().all(|error| *error <= 2000 + (8 << UNIT)), "{errors:?}");
    }
}
