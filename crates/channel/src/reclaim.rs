//! Memory of the dead: slots, channels, waiters and rendezvous entries whose owners are gone.

use crate::attach::Attachment;
use crate::layout::Channel;
use crate::ledger::{Life, Slot, Stage, TAKEN};
use crate::lifetime;
use crate::place;
use crate::rendezvous::{self, Entry, state};
use crate::waiter;
use ginnel_region::{Head, Use, sys};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// How long an owner must have been seen dead: fork and exec change hands for a moment, milliseconds.
const GRACE: u64 = 1000;

/// [`reclaim`], unless some process did so within the last second. Processes that come and go leave no thread that would do it.
pub fn reclaim_now_and_then(attachment: &Attachment) {
    if attachment.ledger.time_to_reclaim(GRACE) {
        reclaim(attachment);
    }
}

/// Frees what the dead held. Returns how many slots and channels were freed.
pub fn reclaim(attachment: &Attachment) -> usize {
    reclaim_within(attachment, Reach::All)
}

/// Where [`reclaim_within`] looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Everywhere: through some megabytes of tables, most of them empty.
    All,
    /// At this ledger's own sockets, and at the channels and waiters on the pages up to where the peers say that they have claimed any.
    Used,
}

/// [`reclaim`], at once or by the less costly way; what that leaves out is to be looked at now and then all the same.
pub fn reclaim_within(attachment: &Attachment, reach: Reach) -> usize {
    let mut freed = 0;
    // Those of which nothing can come any more: what they hold by now is all there is. Their numbers are free only after a look everywhere.
    let gone = if reach == Reach::All { place::gone(&attachment.joined().segment, attachment.joined().place) } else { Vec::new() };
    let mut processes = Processes::default();
    for slot in attachment.ledger.slots() {
        let cookie = slot.cookie.load(Acquire);
        if cookie < TAKEN
            && dead(attachment, &mut processes, slot)
            && slot.seize_dead(&attachment.ledger, cookie, attachment.ticket())
        {
            bury(attachment, slot);
            freed += 1;
        }
    }
    for (slot, word) in attachment.ledger.abandoned() {
        if slot.seize(word, attachment.ticket()) {
            bury(attachment, slot);
            freed += 1;
        }
    }
    let mut lives = Members::default();
    let entries = (reach == Reach::All).then(|| rendezvous::entries(&attachment.joined().segment));
    for entry in entries.into_iter().flatten() {
        let (member, index, generation) = entry.owner();
        let gone = if member == attachment.joined().member {
            attachment.ledger.slot(index).generation.load(Relaxed) != generation
        } else {
            !lives.of(attachment, member)
        };
        if gone && entry.state() != state::WRITING {
            entry.free();
        }
    }
    let mut ended = Vec::new();
    let mut look = |head: Head| {
        if head.owner().kind == Use::Channel {
            ended.extend(take_ended(attachment, &mut lives, head));
        } else if head.owner().kind == Use::Waiter
            && is_nobodys(attachment, &mut lives, &mut processes, head)
            && let Some(head) = attachment.joined().segment.take(head)
        {
            waiter::discard(attachment.joined(), head);
        }
    };
    match reach {
        Reach::All => attachment.joined().segment.owned().for_each(|(page, _)| match attachment.joined().segment.head(page) {
            Some(head) => look(head),
            None => attachment.joined().segment.release_orphan(page),
        }),
        Reach::Used => attachment.joined().segment.heads_within_reach().for_each(look),
    }
    freed += ended.len();
    attachment.joined().segment.release_groups(&ended);
    for member in gone {
        place::free_member(&attachment.joined().segment, member);
    }
    freed
}

/// Answers about other members, asked once each.
#[derive(Default)]
struct Members(Vec<(u16, bool)>);

impl Members {
    fn of(&mut self, attachment: &Attachment, member: u16) -> bool {
        if let Some((_, lives)) = self.0.iter().find(|(known, _)| *known == member) {
            return *lives;
        }
        let lives = attachment.member_lives(member);
        self.0.push((member, lives));
        lives
    }
}

/// What was found of processes, the last few: a hundred connections of one ask for it once. The place of a dead one may be another's at any moment, which has another life then.
#[derive(Default)]
struct Processes {
    found: [Option<(u32, Life, bool)>; 8],
    next: usize,
}

impl Processes {
    fn live(&mut self, attachment: &Attachment, process: u32) -> bool {
        let life = attachment.ledger.process(process).life();
        let known = self.found.iter().flatten().find(|(known, of, _)| (*known, *of) == (process, life));
        if let Some((_, _, lives)) = known {
            return *lives;
        }
        let lives = attachment.ledger.alive(process);
        if let Some(place) = self.found.get_mut(self.next) {
            *place = Some((process, life, lives));
            self.next = (self.next + 1) % self.found.len();
        }
        lives
    }
}

/// Have all holders of a slot been dead for a while?
fn dead(attachment: &Attachment, processes: &mut Processes, slot: &Slot) -> bool {
    let alive =
        slot.holders.iter().map(|holder| holder.load(Acquire)).any(|holder| holder != 0 && processes.live(attachment, holder - 1));
    if alive {
        // Most are, and have been: nothing is written then.
        if slot.dead_since.load(Relaxed) != 0 {
            slot.dead_since.store(0, Relaxed);
        }
        return false;
    }
    let now = sys::monotonic_ns() / 1_000_000;
    match slot.dead_since.load(Relaxed) {
        0 => {
            slot.dead_since.store(now.max(1), Relaxed);
            false
        }
        // A child that is to hold it may be long about saying so.
        since if slot.forking.load(Relaxed) != 0 => now.saturating_sub(since) >= 30 * GRACE,
        since => now.saturating_sub(since) >= GRACE,
    }
}

fn bury(attachment: &Attachment, slot: &Slot) {
    if slot.stage() == Stage::Published {
        let entry = Entry::at(&attachment.joined().segment, slot.entry.load(Relaxed).wrapping_sub(1));
        // The number may be of another segment.
        if entry.owner() == (attachment.joined().member, attachment.ledger.index(slot), slot.generation.load(Relaxed)) {
            let _ = entry.step(state::PUBLISHED, state::FREE);
        }
    }
    if slot.segment.load(Relaxed) == attachment.joined().segment.id() {
        lifetime::bury(attachment, slot);
    } else {
        attachment.ledger.free(slot);
    }
}

/// Is a waiter one of the dead?
fn is_nobodys(attachment: &Attachment, lives: &mut Members, processes: &mut Processes, head: Head) -> bool {
    let maker = head.owner().member;
    let ours = maker == attachment.joined().member;
    if head.is_busy() {
        return (ours || !lives.of(attachment, maker)) && is_left(attachment, head);
    }
    if !ours {
        return !lives.of(attachment, maker);
    }
    let process = waiter::owner_word(&attachment.joined().segment, head.page());
    !processes.live(attachment, process.unwrap_or(u32::MAX))
}

/// Releases the sides of a channel whose endpoints are gone. Where none is left it is taken: this process, and no other, is to free all that is tagged with the page.
fn take_ended(attachment: &Attachment, lives: &mut Members, head: Head) -> Option<Head> {
    let segment = &attachment.joined().segment;
    let channel = Channel::at(segment, head.page());
    let released = || channel.released().load(SeqCst);
    let maker = head.owner().member;
    let mut head = head;
    if head.is_busy() {
        // Who is making it only the maker's ledger knows; anybody may go on freeing it, or noting a death there.
        let may = head.was_made() || maker == attachment.joined().member || !lives.of(attachment, maker);
        if !may || !is_left(attachment, head) {
            return None;
        }
        let taken = segment.take(head)?;
        if !taken.was_made() || released() & 3 == 3 {
            return Some(taken);
        }
        head = segment.settle(taken)?;
    }
    for side in [0u8, 1] {
        if released() & 1 << side != 0 {
            continue;
        }
        let signature = |side| {
            let generation = channel.generation(side).load(Acquire);
            (generation, channel.owner(side).load(Relaxed))
        };
        // A side that nobody signed yet is as alive as the other one.
        let (generation, owner) =
            Some(signature(side)).filter(|(generation, _)| *generation != 0).unwrap_or_else(|| signature(1 - side));
        let (member, index) = ((owner >> 32) as u16, owner as u32);
        let gone = if member == attachment.joined().member {
            attachment.ledger.slot(index).generation.load(Relaxed) != generation
        } else {
            !lives.of(attachment, member)
        };
        if gone {
            head = lifetime::release_dead_side(attachment, head, side)?;
        }
    }
    // Its rings may just have been freed, or the page be another's.
    let head = segment.head(head.page()).filter(|head| !head.is_busy() && head.owner().kind == Use::Channel)?;
    let released = released();
    // Without a death whoever was second is at it; or died there.
    let ended = released & 3 == 3 && (released & lifetime::DIED != 0 || is_left(attachment, head));
    ended.then(|| segment.take(head)).flatten()
}

/// Has somebody been making or freeing a page for so long that it must be thought dead?
fn is_left(attachment: &Attachment, head: Head) -> bool {
    attachment.ledger.is_long_so(attachment.ticket(), attachment.joined().segment.id(), head)
}
