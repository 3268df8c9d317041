//! Memory of the dead: slots, channels, waiters and rendezvous entries whose owners are gone.

use crate::attach::Attachment;
use crate::finish;
use crate::layout::{Channel, MAGIC};
use crate::ledger::{Slot, Stage};
use crate::place;
use crate::rendezvous::{self, Entry, state};
use crate::waiter;
use ginnel_region::{PAGE, Use, sys};
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
        if dead(attachment, &mut living, slot) {
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
        match owner.kind {
            Use::Channel => {
                if is_ended(attachment, &mut lives, page, owner.member) {
                    ended.push(page);
                }
            }
            Use::Ring => {
                // The head of a group is claimed first and freed last: without it the page is nobody's.
                let head = owner.tag.and_then(|tag| attachment.segment.owner(tag));
                if !head.is_some_and(|head| head.kind == Use::Channel) {
                    attachment.segment.release_if_tagged(page, 1, owner.tag.unwrap_or(page));
                }
            }
            Use::Waiter => {
                let process = attachment.segment.word(u64::from(page) * PAGE + 16).load(Relaxed);
                let gone = if owner.member == attachment.member {
                    match process.checked_sub(1) {
                        Some(process) => !living.has(attachment, u32::try_from(process).unwrap_or(0)),
                        None => is_abandoned(attachment, page, 24),
                    }
                } else {
                    !lives.of(attachment, owner.member)
                };
                if gone {
                    waiter::discard(attachment, page);
                }
            }
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

/// Releases the sides of a channel whose endpoints are gone. True where none is left: the caller, and nobody else, is to free what is tagged with the page.
fn is_ended(attachment: &Attachment, lives: &mut Members, page: u32, maker: u16) -> bool {
    let channel = Channel::at(&attachment.segment, page);
    if channel.magic().load(Acquire) != MAGIC {
        // Half made, or half freed. Somebody is at it, or died: only a ledger that knows its own slots can tell after a while.
        return (maker == attachment.member || !lives.of(attachment, maker)) && is_abandoned(attachment, page, 0x1f8);
    }
    for side in [0u8, 1] {
        if channel.released().load(Relaxed) & 3 == 3 {
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
            finish::release_dead_side(attachment, page, side);
        }
    }
    channel.released().load(Acquire) & 3 == 3 && channel.unmake()
}

/// Was a page seen before as one that its owner had not finished with, a while ago? Remembered in the page, at `place`.
fn is_abandoned(attachment: &Attachment, page: u32, place: u64) -> bool {
    let seen = attachment.segment.word(u64::from(page) * PAGE + place);
    let now = sys::monotonic_ns() / 1_000_000;
    let since = seen.load(Relaxed);
    if since == 0 || since > now {
        seen.store(now.max(1), Relaxed);
        return false;
    }
    if now - since < 5 * GRACE {
        return false;
    }
    seen.store(0, Relaxed);
    true
}
