//! From candidate to active channel. Every step is taken inside some call of the program's, or by
//! the service thread; nobody waits for the other end.

mod agree;
mod prove;

use crate::endpoint::Endpoint;
use crate::layout::{Channel, MAGIC, NO_EOF};
use crate::ledger::{Reason, Stage, flag};
use crate::lifetime;
use crate::rendezvous::{self, Entry, Found, state};
use crate::tuple::tuple_of;
use ginnel_node::budget::Purpose;
use ginnel_node::node::Standing;
use ginnel_region::{Corrupt, Error, Head, Owner, PAGE, Use, sys};
use ginnel_ring::park::Want;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// So many looks at a published entry are made at every operation; of the later ones only those at
/// which more is asked, and operations need not be counted any more ([`crate::uncounted`]).
pub(crate) const PATIENT: u32 = 256;
/// At each so many looks whether somebody has come, a power of two, it is asked whether the process
/// is to leave the segment, and the like.
pub(crate) const ASK_EVERY: u32 = 8;

impl<'a> Endpoint<'a> {
    /// Takes the next step towards an active channel, if one can be taken now. `patient`: the
    /// caller writes a stream without pause and may stop for a moment so that both ends can count.
    pub fn progress(self, patient: bool) {
        if self.attachment.node.is_away() || !self.all_are_here() {
            return;
        }
        // One thread at a time; the others have better things to do.
        let Some(_held) = self.slot().tx.lock.try_lock(self.ticket()) else { return };
        match self.slot().stage() {
            _ if self.slot().has(flag::LEAVING)
                || self.attachment.node.standing() != Standing::Here => {}
            _ if self.slot().has(flag::HOLD) && self.slot().stage() <= Stage::Published => {}
            Stage::Candidate if self.has_uncounted() => {}
            Stage::Candidate => self.publish(),
            Stage::Published => self.look_for_offer(),
            Stage::Offered => self.look_for_echo(),
            Stage::Settling => self.settle(patient),
            _ => {}
        }
    }

    /// Is it published, and has nobody come? Counts the look, of which there are many for a
    /// connection whose other end has no shim. False also at each eighth, at which
    /// [`progress`](Self::progress) asks more.
    #[inline]
    #[must_use]
    pub fn waits_in_vain(self) -> bool {
        let slot = self.slot();
        let looks = slot.attempts.load(Relaxed).wrapping_add(1);
        if slot.stage() != Stage::Published
            || looks.is_multiple_of(ASK_EVERY)
            || looks < ASK_EVERY
            || self.attachment.node.standing() != Standing::Here
        {
            return false;
        }
        let entry = || Entry::at(&self.joined().segment, slot.entry.load(Relaxed).wrapping_sub(1));
        // After a while the entry itself is looked at less often too: whoever comes so late has a
        // moment's time.
        let waits = looks > PATIENT || entry().state() == state::PUBLISHED;
        if waits {
            slot.attempts.store(looks, Relaxed);
        }
        waits
    }

    /// Do all processes that hold the socket have the same memory mapped? One may not have noticed
    /// a detach yet, or an attach.
    fn all_are_here(self) -> bool {
        let processes = &self.attachment.node.processes;
        let own = processes.process(self.me()).joined.load(Relaxed);
        let is_here = |process: u32| {
            processes.process(process).joined.load(SeqCst) == own || !processes.alive(process)
        };
        self.slot().held_by().all(|process| process == self.me() || is_here(process))
    }

    fn publish(self) {
        let slot = self.slot();
        if slot.has(flag::HOLD) {
            return;
        }
        let Some(tuple) = tuple_of(self.fd(), self.attachment.node.joined().place) else { return };
        if (tuple.local, tuple.local_port) == (tuple.remote, tuple.remote_port) {
            return slot.make_plain(Reason::SelfConnected);
        }
        slot.set_tuple(&tuple);
        if self.attachment.settings.policy.denies(&tuple) {
            return slot.make_plain(Reason::Denied);
        }
        if slot.nonce.load(Relaxed) == 0 {
            slot.nonce.store(sys::random_u64(), Relaxed);
        }
        let (joined, meets_at) = (self.joined(), self.meets_at(&tuple));
        let owner = (joined.member, self.index(), slot.generation.load(Relaxed));
        for _ in 0..2 {
            match rendezvous::meet(&joined.segment, &meets_at, slot.nonce.load(Relaxed), owner) {
                Found::Mate(entry) => {
                    if !self.worth_joining(entry) {
                        entry.free();
                        continue;
                    }
                    if entry.step(state::PUBLISHED, state::CLAIMED) {
                        return self.offer(entry);
                    }
                }
                Found::Published(entry) => {
                    slot.entry.store(entry.index() + 1, Relaxed);
                    slot.set_reason(Reason::NoPeer);
                    return slot.set_stage(Stage::Published);
                }
                Found::Same(entry) => {
                    if self.worth_joining(entry) {
                        return slot.make_plain(Reason::Duplicate);
                    }
                    entry.free();
                }
                Found::Full => return slot.make_plain(Reason::TableFull),
            }
        }
    }

    /// Is the publisher of an entry still there? Only this ledger's own can be known to be gone.
    fn worth_joining(self, entry: Entry<'_>) -> bool {
        let (member, index, generation) = entry.owner();
        if member != self.joined().member {
            // The other process of a pair lives as long as its connections do, for all that is to
            // be known.
            return self.is_in_pair() || self.attachment.node.member_lives(member);
        }
        let publisher = self.attachment.ledger.slot(index);
        publisher.generation.load(Relaxed) == generation
            && publisher.cookie.load(Relaxed) != 0
            && publisher.stage() <= Stage::Published
    }

    /// Makes the channel and offers it to the publisher of `entry`.
    fn offer(self, entry: Entry<'_>) {
        let slot = self.slot();
        let page = match self.make_channel(entry.nonce()) {
            Ok(page) => page,
            Err(error) => {
                let _ = entry.step(state::CLAIMED, state::PUBLISHED);
                return slot.make_plain(match error {
                    Error::Full => Reason::SegmentFull,
                    Error::Limited => Reason::MemoryLimit,
                    _ => Reason::NoMemory,
                });
            }
        };
        slot.channel.store(page, Relaxed);
        slot.segment.store(self.joined().segment.id(), Relaxed);
        slot.entry.store(entry.index() + 1, Relaxed);
        slot.set_stage(Stage::Offered);
        entry.set_offer(page, entry.nonce());
    }

    fn make_channel(self, theirs: u64) -> Result<u32, Error> {
        let (segment, member) = (&self.joined().segment, self.joined().member);
        let ring = self.attachment.settings.ring;
        let ring_pages = u32::try_from(ring / PAGE).unwrap_or(1);
        let head = segment.claim_head(Owner::new(member, Use::Channel))?;
        segment.clear(head.page());
        let owner = Owner { member, kind: Use::Ring, tag: Some(head.page()) };
        let rings = segment
            .claim_if(2 * ring_pages, owner, |bytes| {
                self.attachment.node.may_take(bytes, Purpose::Rings)
            })
            .inspect_err(|_| _ = segment.release_head(head))?;
        segment.still(head)?;
        let channel = Channel::at(segment, head.page());
        for side in [0u8, 1] {
            let direction = channel.direction(side);
            direction.set_ring(0, 0, rings.offset() + u64::from(side) * ring, ring);
            direction.eof().store(NO_EOF, Relaxed);
            direction.want_data().store(Want::Token.word(), Relaxed);
        }
        channel.nonce(0).store(self.slot().nonce.load(Relaxed), Relaxed);
        channel.nonce(1).store(theirs, Relaxed);
        self.sign(channel, 0);
        channel.magic().store(MAGIC, Release);
        // Stopped for so long that it counted as abandoned: the pages are others' by now.
        segment.settle(head).map(Head::page).ok_or(Error::Full)
    }

    /// Writes who this side is.
    fn sign(self, channel: Channel<'_>, side: u8) {
        let index = self.index();
        channel
            .owner(side)
            .store(u64::from(self.joined().member) << 32 | u64::from(index), Relaxed);
        // Whoever sees it sees the owner too.
        channel.generation(side).store(self.slot().generation.load(Relaxed), Release);
        channel.service(side).store(u64::from(self.joined().service_page()), Relaxed);
    }

    /// The publisher's part: has somebody offered a channel?
    fn look_for_offer(self) {
        let (slot, segment) = (self.slot(), &self.joined().segment);
        let entry = Entry::at(segment, slot.entry.load(Relaxed).wrapping_sub(1));
        match entry.state() {
            state::OFFERED if self.has_uncounted() => return,
            state::OFFERED => {}
            state::FREE => return self.start_over(),
            state::PUBLISHED => {
                // Ever less often: nearly always nobody is there.
                let looks = slot.attempts.fetch_add(1, Relaxed).wrapping_add(1);
                if looks.is_power_of_two()
                    && rendezvous::gives_way(segment, &self.meets_at(&slot.tuple()), entry)
                {
                    self.start_over();
                }
                return;
            }
            _ => return,
        }
        let (page, nonce) = entry.offer();
        let channel = Channel::at(segment, page);
        let head =
            segment.head(page).filter(|head| head.owner().kind == Use::Channel && head.was_made());
        let sound = nonce == slot.nonce.load(Relaxed)
            && channel.magic().load(Acquire) == MAGIC
            && channel.nonce(1).load(Relaxed) == nonce;
        let Some(head) = head.filter(|_| sound) else {
            entry.free();
            return self.start_over();
        };
        slot.channel.store(page, Relaxed);
        slot.segment.store(segment.id(), Relaxed);
        slot.set(flag::SIDE_ONE, true);
        segment.fault_in(u64::from(page) * PAGE, PAGE);
        if self.adopt_rings(channel).is_err() {
            entry.free();
            return slot.make_plain(Reason::Corrupt);
        }
        // Stopped for so long that its maker has gone: the page may be another's.
        if segment.still(head).is_err() {
            entry.free();
            return self.start_over();
        }
        self.sign(channel, 1);
        slot.attempts.store(0, Relaxed);
        slot.set_reason(Reason::None);
        slot.set_stage(Stage::Settling);
        channel.echo(1).store(channel.nonce(0).load(Relaxed), Release);
        slot.entry.store(0, Relaxed);
        entry.free();
    }

    /// The creator's part: has the publisher confirmed?
    fn look_for_echo(self) {
        let (slot, channel) = (self.slot(), self.channel());
        if channel.echo(1).load(Acquire) != slot.nonce.load(Relaxed) {
            // The entry may have been a dead one's, and cleared away by its successor.
            let entry = Entry::at(&self.joined().segment, slot.entry.load(Relaxed).wrapping_sub(1));
            let page = slot.channel.load(Relaxed);
            if entry.state() != state::OFFERED || entry.offer().0 != page {
                fence(SeqCst);
                if channel.echo(1).load(Acquire) != slot.nonce.load(Relaxed) {
                    lifetime::release_channel(self.attachment, slot);
                    self.start_over();
                }
            }
            return;
        }
        if self.adopt_rings(channel).is_err() {
            return slot.make_plain(Reason::Corrupt);
        }
        slot.entry.store(0, Relaxed);
        slot.attempts.store(0, Relaxed);
        slot.set_reason(Reason::None);
        slot.set_stage(Stage::Settling);
        channel.echo(0).store(channel.nonce(1).load(Relaxed), Release);
    }

    pub(crate) fn start_over(self) {
        let slot = self.slot();
        slot.entry.store(0, Relaxed);
        slot.channel.store(0, Relaxed);
        slot.nonce.store(0, Relaxed);
        slot.set(flag::SIDE_ONE, false);
        slot.set_stage(Stage::Candidate);
    }

    /// Copies the rings' places into private memory, once, checked.
    fn adopt_rings(self, channel: Channel<'_>) -> Result<(), Corrupt> {
        let (slot, segment) = (self.slot(), &self.joined().segment);
        let side = slot.side();
        let ring = |writer: u8| {
            let (_, offset, size) = channel.direction(writer).ring(0);
            let size = size.power_of_two(PAGE, 1 << 26)?;
            let offset =
                offset.checked(|&offset| offset % PAGE == 0 && segment.holds(offset, size))?;
            segment.fault_in(offset, size);
            Ok((offset, size))
        };
        let ((out, out_size), (into, into_size)) = (ring(side)?, ring(1 - side)?);
        let (tx, rx) = (&slot.tx, &slot.rx);
        for word in [
            &tx.epoch,
            &tx.tail,
            &tx.head_seen,
            &tx.ring_start,
            &tx.old_size,
            &tx.grown,
            &tx.growing,
            &tx.resend_from,
            &tx.resend_start,
            &tx.down,
            &tx.resend_to,
            &tx.owed,
            &tx.full,
            &tx.thought,
            &tx.tries,
        ] {
            word.store(0, Relaxed);
        }
        tx.stamps.iter().for_each(|stamp| stamp.store(0, Relaxed));
        tx.ring_offset.store(out, Relaxed);
        tx.ring_size.store(out_size, Relaxed);
        slot.set(flag::BOTH_AGREED | flag::OF_PROOF, false);
        slot.expected.store(0, Relaxed);
        for word in [
            &rx.phase,
            &rx.head,
            &rx.ring_start,
            &rx.grown,
            &rx.frozen,
            &rx.armed,
            &rx.tokens,
            &rx.seen,
            &rx.sleeper,
        ] {
            word.store(0, Relaxed);
        }
        rx.ring_offset.store(into, Relaxed);
        rx.ring_size.store(into_size, Relaxed);
        slot.channels.fetch_add(1, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Attachment;

    /// The end that made a channel, both directions of which TCP carries. No socket is behind its
    /// number.
    pub(crate) fn active_end(attachment: &Attachment) -> Endpoint<'_> {
        let (slot, _) = attachment
            .ledger
            .find_or_claim(&attachment.node.processes, 77, attachment.node.ticket(), |_| {})
            .expect("room");
        let end = Endpoint::new(attachment, attachment.ledger.index(slot), -1);
        slot.channel.store(end.make_channel(1).expect("room"), Relaxed);
        end.adopt_rings(end.channel()).expect("its own");
        slot.set_stage(Stage::Active);
        end
    }
}
