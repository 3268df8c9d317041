//! What was said over TCP, as those see it who look at rings.
//!
//! A set with busy rings looks at memory, and asks the kernel only now and then. A connection that
//! is new, or between two rings, speaks over TCP meanwhile, and what it says may come before what
//! is found in a ring. So each call by which a process of the segment has the kernel take something
//! ([`Endpoint::says_by_tcp`]) is noted in the segment's first page, twice: before it, to whom it
//! goes and when; and after it, that it has ended. What a ring gets after such a call is found by
//! nobody who does not find that, and asks the kernel too; and what the kernel then tells of has
//! its place among what the rings have by when it began ([`since`]).
//!
//! What a peer writes there, or leaves out, changes the order of reports and how often the kernel
//! is asked, and nothing else. Connections through NAT have other ports at each end: their times are
//! not found, and what the kernel tells of them comes first. So it is with what has no end here that
//! says at which machine the other is.

use crate::attach::Attachment;
use crate::clocks::{self, Machine};
use crate::endpoint::Endpoint;
use crate::ledger::SLOTS;
use crate::stamp::{PLACE, TIME, stamp, ticks};
use crate::tuple::ports_of;
use ginnel_node::Joined;
use ginnel_region::LATELY_ENTRIES;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of each slot that was used here, the ports of its connection, and below them part of its cookie.
static PORTS: [AtomicU64; SLOTS as usize] = [const { AtomicU64::new(0) }; SLOTS as usize];

/// Who speaks to whom, as an entry has it: in the lowest bits by whose clock.
fn key(from: u16, to: u16, by: Machine) -> u64 {
    let ports = (u64::from(from) << 16 | u64::from(to)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ports >> (u64::BITS - PLACE + Machine::BITS) << Machine::BITS | u64::from(by.0)
}

/// When an entry was made, as of `now`.
fn time_of(joined: &Joined, entry: u64, now: u64) -> u64 {
    clocks::time_of(joined, Machine((entry >> TIME) as u8), entry, now)
}

impl Endpoint<'_> {
    /// Has `call` give something of this end to the kernel.
    #[inline]
    pub fn says_by_tcp<T>(self, call: impl FnOnce() -> T) -> T {
        let joined = self.attachment.node.joined();
        let (segment, (own, others)) = (&joined.segment, self.ports());
        segment.begin_tcp(stamp(key(own, others, Machine::own(joined)), ticks()));
        let done = call();
        segment.note_tcp();
        done
    }

    /// This end's port, and the other's; 0 where they are not known.
    fn ports(self) -> (u16, u16) {
        let cookie = self.slot().cookie.load(Relaxed) & 0xffff_ffff;
        let Some(place) = PORTS.get(self.attachment.ledger.index(self.slot()) as usize) else {
            return (0, 0);
        };
        let mut known = place.load(Relaxed);
        if known & 0xffff_ffff != cookie || known >> 32 == 0 {
            let (own, others) = ports_of(self.fd()).unwrap_or_default();
            known = (u64::from(own) << 16 | u64::from(others)) << 32 | cookie;
            place.store(known, Relaxed);
        }
        ((known >> 48) as u16, (known >> 32) as u16)
    }

    /// [`since`] of this connection.
    #[must_use]
    pub fn spoken_since(self, from: u64, now: u64) -> Option<u64> {
        let (own, others) = self.ports();
        let key = key(others, own, self.others_machine());
        find(self.attachment.node.joined(), key, from, now)
    }
}

/// When the other end of `fd` began to say what the kernel tells of, ticks, as of `now`: the first
/// that it said since entry `from` was the next; if it said nothing since, what it said last before
/// that. `None`: not known.
#[must_use]
pub fn since(attachment: &Attachment, fd: i32, from: u64, now: u64) -> Option<u64> {
    let ((own, others), joined) = (ports_of(fd)?, attachment.node.joined());
    find(joined, key(others, own, Machine::own(joined)), from, now)
}

/// When what was noted as number `place` began, ticks, as of `now`; 0: not known.
#[must_use]
pub fn begun(attachment: &Attachment, place: u64, now: u64) -> u64 {
    let joined = attachment.node.joined();
    let segment = &joined.segment;
    let kept = (1..=LATELY_ENTRIES).contains(&segment.begun_by_tcp().wrapping_sub(place));
    if kept { time_of(joined, segment.lately_by_tcp(place), now) } else { 0 }
}

fn find(joined: &Joined, key: u64, from: u64, now: u64) -> Option<u64> {
    let segment = &joined.segment;
    let end = segment.begun_by_tcp();
    let first = end.saturating_sub(LATELY_ENTRIES);
    if from < first || from > end {
        // More than are kept: what it said first may be lost.
        return None;
    }
    let is = |place: &u64| segment.lately_by_tcp(*place) >> TIME == key;
    let place = (from..end).find(is).or_else(|| (first..from).rev().find(is))?;
    Some(time_of(joined, segment.lately_by_tcp(place), now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::attached;

    #[test]
    fn the_first_word_since_a_look_says_when() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let joined = attachment.node.joined();
        let (segment, own) = (&joined.segment, Machine::own(joined));
        let say = |from, to| {
            let now = ticks();
            segment.begin_tcp(stamp(key(from, to, own), now));
            now
        };
        let near =
            |found: Option<u64>, now: u64| found.is_some_and(|found| found.abs_diff(now) < 64);
        let find = |from, to, since| find(joined, key(from, to, own), since, ticks());
        let early = say(1, 2);
        let look = segment.begun_by_tcp();
        assert!(near(find(1, 2, look), early), "said before, and not told of then");
        let first = say(1, 2);
        say(1, 2);
        say(2, 1);
        assert!(near(find(1, 2, look), first));
        assert_eq!(find(3, 2, look), None, "it said nothing");
        for _ in 0..LATELY_ENTRIES {
            say(5, 6);
        }
        assert_eq!(find(1, 2, look), None, "too much was said since");
        assert_eq!(find(1, 2, u64::MAX), None, "a number that was never reached");
    }
}
