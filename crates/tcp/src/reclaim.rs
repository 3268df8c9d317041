//! Memory of dead connections: slots, rendezvous entries and channels whose owners are gone. What
//! is not of sockets is [`ginnel_node::dead`]'s.

use crate::attach::{Attachment, LIBRARY};
use crate::layout::Channel;
use crate::ledger::{Slot, Stage, TAKEN, flag};
use crate::lifetime;
use crate::rendezvous::{self, Entry, state};
use ginnel_node::dead::Look;
pub use ginnel_node::dead::Reach;
use ginnel_region::{Head, Use, sys};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// How long an owner must have been seen dead: fork and exec change hands for a moment,
/// milliseconds.
const GRACE: u64 = 1000;

/// [`reclaim`], unless some process did so within the last second. Processes that come and go leave
/// no thread that would do it.
pub fn reclaim_now_and_then(attachment: &Attachment) {
    if attachment.node.processes.time_to_reclaim(LIBRARY, GRACE) {
        reclaim(attachment);
    }
}

/// Frees what the dead held. Returns how many slots and channels were freed.
pub fn reclaim(attachment: &Attachment) -> usize {
    reclaim_within(attachment, Reach::All)
}

/// [`reclaim`], at once or by the less costly way ([`Reach::Used`], which looks at this ledger's
/// own sockets); what that leaves out is to be looked at now and then all the same.
pub fn reclaim_within(attachment: &Attachment, reach: Reach) -> usize {
    let mut look = Look::begin(&attachment.node, reach);
    let mut freed = bury_dead(attachment, &mut look);
    if reach == Reach::All {
        free_entries(attachment, &mut look);
    }
    let mut channels = |look: &mut Look<'_>, head: Head| take_ended(attachment, look, head);
    freed += look.pages(&mut [(Use::Channel, &mut channels)]);
    look.end(&attachment.ledger);
    freed
}

/// Frees the slots whose holders are dead, or whom they died over. Returns how many.
fn bury_dead(attachment: &Attachment, look: &mut Look<'_>) -> usize {
    let (node, ledger) = (&attachment.node, &attachment.ledger);
    let mut freed = 0;
    for slot in ledger.slots() {
        let cookie = slot.cookie.load(Acquire);
        if cookie < TAKEN
            && dead(look, slot)
            && slot.seize_dead(&node.processes, cookie, node.ticket())
        {
            bury(attachment, slot);
            freed += 1;
        }
    }
    for (slot, word) in ledger.abandoned(&node.processes) {
        if slot.seize(word, node.ticket()) {
            bury(attachment, slot);
            freed += 1;
        }
    }
    freed
}

/// Frees the rendezvous entries of sockets and members that are gone.
fn free_entries(attachment: &Attachment, look: &mut Look<'_>) {
    let joined = attachment.node.joined();
    for entry in rendezvous::entries(&joined.segment) {
        let (member, index, generation) = entry.owner();
        let gone = if member == joined.member {
            attachment.ledger.slot(index).generation.load(Relaxed) != generation
        } else {
            !look.member_lives(member)
        };
        if gone && entry.state() != state::WRITING {
            entry.free();
        }
    }
}

/// Have all holders of a slot been dead for a while?
fn dead(look: &mut Look<'_>, slot: &Slot) -> bool {
    let alive = slot.held_by().any(|process| look.process_lives(process));
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
    // In a pair's memory nobody looks for the dead: it goes as a whole.
    if slot.stage() == Stage::Published && !slot.has(flag::PAIR) {
        let entry =
            Entry::at(&attachment.node.joined().segment, slot.entry.load(Relaxed).wrapping_sub(1));
        // The number may be of another segment.
        if entry.owner()
            == (
                attachment.node.joined().member,
                attachment.ledger.index(slot),
                slot.generation.load(Relaxed),
            )
        {
            let _ = entry.step(state::PUBLISHED, state::FREE);
        }
    }
    if slot.segment.load(Relaxed) == attachment.node.joined().segment.id() {
        lifetime::bury(attachment, slot);
    } else {
        attachment.ledger.free(slot);
    }
}

/// Releases the sides of a channel whose endpoints are gone. Where none is left it is taken: this
/// process, and no other, is to free all that is tagged with the page.
fn take_ended(attachment: &Attachment, look: &mut Look<'_>, head: Head) -> Option<Head> {
    let segment = &attachment.node.joined().segment;
    let channel = Channel::at(segment, head.page());
    let released = || channel.released().load(SeqCst);
    let maker = head.owner().member;
    let mut head = head;
    if head.is_busy() {
        // Who is making it only the maker's ledger knows; anybody may go on freeing it, or noting a
        // death there.
        let may = head.was_made()
            || maker == attachment.node.joined().member
            || !look.member_lives(maker);
        if !may || !look.is_left(head) {
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
        let (generation, owner) = Some(signature(side))
            .filter(|(generation, _)| *generation != 0)
            .unwrap_or_else(|| signature(1 - side));
        let (member, index) = ((owner >> 32) as u16, owner as u32);
        let gone = if member == attachment.node.joined().member {
            attachment.ledger.slot(index).generation.load(Relaxed) != generation
        } else {
            !look.member_lives(member)
        };
        if gone {
            head = lifetime::release_dead_side(segment, head, side)?;
        }
    }
    // Its rings may just have been freed, or the page be another's.
    let head = segment
        .head(head.page())
        .filter(|head| !head.is_busy() && head.owner().kind == Use::Channel)?;
    let released = released();
    // Without a death whoever was second is at it; or died there.
    let ended = released & 3 == 3 && (released & lifetime::DIED != 0 || look.is_left(head));
    ended.then(|| segment.take(head)).flatten()
}
