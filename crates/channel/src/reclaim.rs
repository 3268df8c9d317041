//! Memory of the dead: slots, channels, waiters and rendezvous entries whose owners are gone.

use crate::attach::Attachment;
use crate::finish;
use crate::layout::{Channel, MAGIC};
use crate::ledger::{Slot, Stage};
use crate::place;
use crate::rendezvous::{self, Entry, state};
use crate::waiter;
use ginnel_region::{Head, PAGE, Use, sys};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

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
    let mut freed = 0;
    // Those of which nothing can come any more: what they hold by now is all there is.
    let gone = place::gone(&attachment.segment, attachment.place);
    let mut living = Living::default();
    for slot in attachment.ledger.slots() {
        let cookie = slot.cookie.load(Acquire);
        if dead(attachment, &mut living, slot) && slot.seize(cookie) {
            bury(attachment, slot);
            freed += 1;
        }
    }
    let mut lives = Members::default();
    for entry in rendezvous::entries(&attachment.segment) {
        let (member, index, generation) = entry.owner();
        let gone = if member == attachment.member {
            attachment.ledger.slot(index).generation.load(Relaxed) != generation
        } else {
            !lives.of(attachment, member)
        };
        if gone && entry.state() != state::WRITING {
            entry.free();
        }
    }
    let mut ended = Vec::new();
    for (page, owner) in attachment.segment.owned() {
        match (owner.kind, attachment.segment.head(page)) {
            (Use::Channel, Some(head)) => ended.extend(take_ended(attachment, &mut lives, head, owner.member)),
            (Use::Waiter, Some(head)) => {
                let ours = owner.member == attachment.member;
                let gone = if head.is_busy() {
                    (ours || !lives.of(attachment, owner.member)) && is_left(attachment, head)
                } else if ours {
                    let process = attachment.segment.word(u64::from(page) * PAGE + 16).load(Relaxed).saturating_sub(1);
                    !living.has(attachment, u32::try_from(process).unwrap_or(u32::MAX))
                } else {
                    !lives.of(attachment, owner.member)
                };
                if gone && attachment.segment.take(head).is_some() {
                    waiter::discard(attachment, page);
                }
            }
            (Use::Ring, _) => {
                // The head of a group is claimed first and freed last: without it the page is nobody's.
                let tag = owner.tag.unwrap_or(page);
                if !attachment.segment.owner(tag).is_some_and(|head| head.kind == Use::Channel) {
                    attachment.segment.release_if_tagged(page, 1, tag);
                }
            }
            // Another's by now.
            (_, None) => {}
        }
    }
    freed += ended.len();
    attachment.segment.release_groups(&ended);
    for member in gone {
        place::free_member(&attachment.segment, member);
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

/// Processes that were found alive, the last few: a hundred connections of one ask for it once. (The place of a dead one may be another's at any moment.)
#[derive(Default)]
struct Living {
    found: [Option<u32>; 8],
    next: usize,
}

impl Living {
    fn has(&mut self, attachment: &Attachment, process: u32) -> bool {
        if self.found.contains(&Some(process)) {
            return true;
        }
        let lives = attachment.ledger.alive(process);
        if let (true, Some(place)) = (lives, self.found.get_mut(self.next)) {
            *place = Some(process);
            self.next = (self.next + 1) % 8;
        }
        lives
    }
}

/// Have all holders of a slot been dead for a while?
fn dead(attachment: &Attachment, living: &mut Living, slot: &Slot) -> bool {
    let alive =
        slot.holders.iter().map(|holder| holder.load(Acquire)).any(|holder| holder != 0 && living.has(attachment, holder - 1));
    if alive {
        slot.dead_since.store(0, Relaxed);
        return false;
    }
    let now = sys::monotonic_ns() / 1_000_000;
    match slot.dead_since.load(Relaxed) {
        0 => {
            slot.dead_since.store(now.max(1), Relaxed);
            false
        }
        since => now.saturating_sub(since) >= GRACE,
    }
}

fn bury(attachment: &Attachment, slot: &Slot) {
    if slot.stage() == Stage::Published {
        let entry = Entry::at(&attachment.segment, slot.entry.load(Relaxed).wrapping_sub(1));
        // The number may be of another segment.
        if entry.owner() == (attachment.member, attachment.ledger.index(slot), slot.generation.load(Relaxed)) {
            let _ = entry.step(state::PUBLISHED, state::FREE);
        }
    }
    if slot.segment.load(Relaxed) == attachment.segment.id() {
        finish::bury(attachment, slot);
    } else {
        slot.free();
    }
}

/// Releases the sides of a channel whose endpoints are gone. Where none is left it is taken: this process, and no other, is to free all that is tagged with the page.
fn take_ended(attachment: &Attachment, lives: &mut Members, head: Head, maker: u16) -> Option<Head> {
    let segment = &attachment.segment;
    let channel = Channel::at(segment, head.page());
    let released = || channel.released().load(Acquire);
    if head.is_busy() {
        // Anybody may go on freeing it. Who is making it only the maker's ledger knows.
        let half_freed = channel.magic().load(Acquire) == MAGIC && released() & 3 == 3;
        let may = half_freed || maker == attachment.member || !lives.of(attachment, maker);
        return (may && is_left(attachment, head)).then(|| segment.take(head)).flatten();
    }
    for side in [0u8, 1] {
        if released() & 3 == 3 {
            break;
        }
        let owner = channel.owner(side).load(Relaxed);
        let (member, index) = ((owner >> 32) as u16, owner as u32);
        let generation = channel.generation(side).load(Relaxed);
        // A side that nobody signed yet is as alive as the other one.
        let (member, index, generation) = if generation == 0 {
            let other = channel.owner(1 - side).load(Relaxed);
            ((other >> 32) as u16, other as u32, channel.generation(1 - side).load(Relaxed))
        } else {
            (member, index, generation)
        };
        let gone = if member == attachment.member {
            attachment.ledger.slot(index).generation.load(Relaxed) != generation
        } else {
            !lives.of(attachment, member)
        };
        if gone {
            finish::release_dead_side(attachment, head, side);
        }
    }
    // Its rings may just have been freed, or the page be another's.
    let head = segment.head(head.page()).filter(|head| !head.is_busy())?;
    let released = released();
    // Without a death whoever was second is at it; or died there.
    let ended = released & 3 == 3 && (released & finish::DIED != 0 || is_left(attachment, head));
    ended.then(|| segment.take(head)).flatten()
}

/// Has somebody been making or freeing a page for so long that it must be thought dead?
fn is_left(attachment: &Attachment, head: Head) -> bool {
    attachment.ledger.is_long_so(attachment.ticket(), attachment.segment.id(), head)
}
