//! How many connections a segment carries, and how many bytes, for one who looks on.
//!
//! All of it is the word of those who can write into the segment: honest peers make it right, any
//! one of them can make it wrong. Whoever counts is neither stopped nor led astray by it: values
//! are copied once and checked, and there is an end to how much is looked at.

use crate::layout::{COPIED, Channel, MAGIC};
use ginnel_node::place;
use ginnel_region::{Error, Onlooker, PAGE, Untrusted, Use};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pages that are looked at: those of 64 GiB, whose owner words take 35 ms to read (AMD EPYC; 0.2
/// ms in a segment of 1 GiB). Pages are taken from the front.
const MOST_PAGES: u32 = 1 << 24;
/// Channels that are looked at: 24 ms.
const MOST_CHANNELS: u32 = 1 << 14;
/// More bytes than this no connection carries, nor all of a segment's.
const MOST_BYTES: u64 = 1 << 60;

/// What there is in a segment, as its peers have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// Connections whose both ends have agreed on their channel, until both have ended; where an
    /// end was killed, until what it held is reclaimed.
    pub connections: u64,
    /// Bytes that they have carried so far in their rings, both ways.
    pub carried: u64,
    /// Bytes of these and of all that have ended, since the segment was made.
    pub carried_ever: u64,
    /// Named objects, and the bytes that these have for their users.
    pub objects: (u64, u64),
    /// By peer id and the low bits of its generation in the table of peers: what a machine left
    /// behind is not the next one's in its slot. The host's is 0. Those of members that do not say
    /// which peer they are at are left out.
    pub by_peer: BTreeMap<(u16, u16), Share>,
    /// There were more pages or channels than are looked at: the counts are the least.
    pub partial: bool,
}

/// A peer's part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Connections that have an end there.
    pub connections: u64,
    /// Bytes that those ends have put into rings.
    pub sent: u64,
    /// Bytes that the other ends have put into rings for them.
    pub received: u64,
}

/// Looks at a segment of `size` bytes once.
///
/// # Errors
/// Where its memory cannot be read.
pub fn census(memory: BorrowedFd<'_>, size: u64) -> Result<Census, Error> {
    count(&Onlooker::new(memory, size), MOST_PAGES, MOST_CHANNELS)
}

fn count(looker: &Onlooker<'_>, most_pages: u32, most_channels: u32) -> Result<Census, Error> {
    // First: a connection that ends while this looks is rather missing than counted twice.
    let ended = looker.carried()?.at_most(MOST_BYTES).unwrap_or(0);
    let members = looker.members()?;
    let peer = |owner: u64| {
        let at = (owner >> 32) as usize * place::MEMBER_BYTES as usize;
        let word =
            members.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        word.and_then(place::life_of)
    };
    let (mut census, mut seen) = (Census::default(), 0);
    let copy = [const { AtomicU64::new(0) }; COPIED];
    let all = looker.owned(most_pages, |page, owner| {
        if owner.kind != Use::Channel || seen == most_channels {
            return Ok(());
        }
        seen += 1;
        let mut bytes = [0; COPIED * 8];
        looker.copy(u64::from(page) * PAGE, &mut bytes)?;
        for (word, bytes) in copy.iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        census.add(Channel::in_copy(&copy), peer);
        Ok(())
    })?;
    let sizes = looker.objects()?;
    let bytes = sizes.iter().map(|&size| if size <= MOST_BYTES { size } else { 0 });
    census.objects = (sizes.len() as u64, bytes.fold(0, u64::saturating_add));
    census.carried_ever = census.carried_ever.saturating_add(ended);
    census.partial = !all || seen == most_channels;
    Ok(census)
}

impl Census {
    /// Counts a channel, if it is one and in use.
    fn add(&mut self, channel: Channel<'_>, peer: impl Fn(u64) -> Option<(u16, u16)>) {
        let (agreed, released) =
            (|side| channel.agreed(side).load(Relaxed) == 1, channel.released().load(Relaxed));
        if channel.magic().load(Relaxed) != MAGIC || released & 3 == 3 || !agreed(0) || !agreed(1) {
            return;
        }
        let tail = |side| {
            Untrusted::new(channel.direction(side).tail().load(Relaxed))
                .at_most(MOST_BYTES)
                .unwrap_or(0)
        };
        let (mine, theirs) = (tail(0), tail(1));
        self.carried_ever = self.carried_ever.saturating_add(mine + theirs);
        // Let go of, reset or ended: a process that ends closes no socket, and its channel stays
        // until it is reclaimed.
        let over = (released | released >> 8 | released >> 10) & 3;
        if over == 3 {
            return;
        }
        self.connections += 1;
        self.carried = self.carried.saturating_add(mine + theirs);
        let ends = [0, 1].map(|side| peer(channel.owner(side).load(Relaxed)));
        // One between two processes of a peer is one connection of it.
        for (end, count, sent, received) in
            [(ends[0], 1, mine, theirs), (ends[1], u64::from(ends[0] != ends[1]), theirs, mine)]
        {
            let Some(share) = end.map(|peer| self.by_peer.entry(peer).or_default()) else {
                continue;
            };
            share.connections += count;
            share.sent = share.sent.saturating_add(sent);
            share.received = share.received.saturating_add(received);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_region::{Config, Owner, Segment, sys};
    use std::os::fd::AsFd;

    /// A member of the segment that says it is at `peer`.
    fn enter(segment: &Segment, member: u16, peer: u64) {
        segment
            .word(segment.members().0 + u64::from(member) * place::MEMBER_BYTES)
            .store(peer << 8 | 2, Relaxed);
    }

    /// A channel between two members that has carried so much.
    fn connect(segment: &Segment, members: [u64; 2], carried: [u64; 2]) -> u32 {
        let page = segment.claim_head(Owner::new(0, Use::Channel)).expect("room").page();
        segment.clear(page);
        let channel = Channel::at(segment, page);
        channel.magic().store(MAGIC, Relaxed);
        for side in [0u8, 1] {
            channel.owner(side).store(members[usize::from(side)] << 32, Relaxed);
            channel.agreed(side).store(1, Relaxed);
            channel.direction(side).tail().store(carried[usize::from(side)], Relaxed);
        }
        page
    }

    #[test]
    fn connections_and_bytes_are_counted_and_a_liars_are_bounded() {
        let path = std::env::temp_dir().join(format!("ginnel-census-{:x}", sys::random_u64()));
        let segment = Segment::create(&path, &Config { size: 16 << 20, ..Config::default() })
            .expect("create");
        let file = std::fs::File::open(&path).expect("there");
        let look = || census(file.as_fd(), segment.len()).expect("read");
        assert_eq!(look(), Census::default());
        enter(&segment, 0, 1);
        enter(&segment, 1, 7);
        let first = connect(&segment, [0, 1], [100, 20]);
        let within = connect(&segment, [1, 1], [3, 4]);
        let stranger = connect(&segment, [1, 0xffff], [5, 0]);
        let seen = look();
        assert_eq!(
            (seen.connections, seen.carried, seen.carried_ever, seen.partial),
            (3, 132, 132, false)
        );
        assert_eq!(
            seen.by_peer.get(&(1, 0)),
            Some(&Share { connections: 1, sent: 100, received: 20 })
        );
        assert_eq!(
            seen.by_peer.get(&(7, 0)),
            Some(&Share { connections: 3, sent: 20 + 7 + 5, received: 100 + 7 })
        );

        // Another machine is in the slot by now: what the first one left is not its.
        enter(&segment, 0, 2 << 8 | 1);
        assert_eq!(
            (look().by_peer.get(&(1, 0)), look().by_peer.get(&(1, 2)).map(|share| share.sent)),
            (None, Some(100))
        );
        enter(&segment, 0, 1);

        // Not one yet, one no more.
        Channel::at(&segment, within).agreed(1).store(0, Relaxed);
        Channel::at(&segment, stranger).released().store(3, Relaxed);
        assert_eq!((look().connections, look().carried, look().carried_ever), (1, 120, 120));
        // Over, though its ends were not closed; its bytes are not added up elsewhere yet.
        Channel::at(&segment, first).end(0);
        assert_eq!(look().connections, 1);
        Channel::at(&segment, first).end(1);
        assert_eq!((look().connections, look().carried, look().carried_ever), (0, 0, 120));
        Channel::at(&segment, first).released().store(0, Relaxed);

        let all = count(&Onlooker::new(file.as_fd(), segment.len()), u32::MAX, 1).expect("read");
        assert!(all.partial && all.connections == 1, "{all:?}");
        assert!(count(&Onlooker::new(file.as_fd(), segment.len()), 1, 100).expect("read").partial);

        // Whatever stands there, it is counted as nothing or as what it says.
        for word in 0..COPIED as u64 {
            segment.word(u64::from(first) * PAGE + word * 8).store(u64::MAX, Relaxed);
        }
        segment.add_carried(u64::MAX);
        assert_eq!(look(), Census::default());
        let liar = connect(&segment, [0, 1], [u64::MAX, 1 << 60]);
        assert_eq!((look().connections, look().carried), (1, 1 << 60));
        Channel::at(&segment, liar).magic().store(0, Relaxed);
        assert_eq!(look(), Census::default());
        std::fs::remove_file(path).expect("remove");
    }
}
