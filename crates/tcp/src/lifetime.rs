//! Giving back: a slot whose socket is gone, and the channel that two sides have, which whoever is
//! second frees.

use crate::attach::Attachment;
use crate::layout::Channel;
use crate::ledger::{Slot, Stage, TAKEN};
use ginnel_node::joined::Joined;
use ginnel_region::{Extent, Head, PAGE, Segment, Use};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

/// After the kernel's close of the last descriptor: the slot and this side of the channel are free.
/// `cookie`: the socket's, as whose the slot was [ended](Slot::end).
pub fn forget(attachment: &Attachment, slot: &Slot, cookie: u64) {
    if matches!(cookie, 0 | TAKEN..) || !slot.seize(cookie, attachment.node.ticket()) {
        return;
    }
    if slot.channel.load(Relaxed) != 0 || slot.left.load(Relaxed) != 0 {
        release_channel(attachment, slot);
    }
    slot.set_stage(Stage::Closed);
    attachment.ledger.free(slot);
}

/// [`forget`] for a slot whose holders died, which this process has seized.
pub(crate) fn bury(attachment: &Attachment, slot: &Slot) {
    release_left(attachment, slot);
    let page = slot.channel.swap(0, AcqRel);
    if let Some((joined, head)) = signed(attachment, slot, page, slot.side()) {
        let _ = release_dead_side(&joined.segment, head, slot.side());
    }
    slot.set_stage(Stage::Closed);
    attachment.ledger.free(slot);
}

/// Lets go of this side of the slot's channel, and of one that was left before. Whoever is second
/// frees it.
pub fn release_channel(attachment: &Attachment, slot: &Slot) {
    release_left(attachment, slot);
    let page = slot.channel.swap(0, AcqRel);
    release_side(attachment, slot, page, slot.side());
}

/// In [`Slot::left`]: seen before.
const SEEN: u32 = 1 << 31;
/// In [`Slot::left`]: the side was number one.
const SIDE: u32 = 1 << 30;

/// Remembers that the slot's channel was left. A thread that is late may still write a word there,
/// so that the page must not be another's at once.
pub(crate) fn set_left(attachment: &Attachment, slot: &Slot) {
    release_left(attachment, slot);
    let page = slot.channel.swap(0, AcqRel);
    slot.left.store(page | if slot.side() == 1 { SIDE } else { 0 }, Relaxed);
}

/// Gives back the channel that a slot left before the last call of this.
pub fn age_left(attachment: &Attachment, slot: &Slot) {
    let left = slot.left.load(Relaxed);
    if left & SEEN != 0 {
        release_left(attachment, slot);
    } else if left != 0 {
        let _ = slot.left.compare_exchange(left, left | SEEN, AcqRel, Relaxed);
    }
}

/// Gives back the channel that a slot left.
pub fn release_left(attachment: &Attachment, slot: &Slot) {
    let left = slot.left.swap(0, AcqRel);
    let (page, side) = (left & !(SEEN | SIDE), u8::from(left & SIDE != 0));
    if attachment
        .joined_of(slot)
        .is_some_and(|joined| slot.segment.load(Relaxed) == joined.segment.id())
    {
        release_side(attachment, slot, page, side);
    }
    if left != 0 && slot.channel.load(Relaxed) == 0 {
        slot.segment.store(0, Relaxed);
    }
}

/// The head of a page that is still the slot's channel. Who left a segment and came back may find
/// others' pages under the same numbers.
fn signed<'a>(
    attachment: &'a Attachment,
    slot: &Slot,
    page: u32,
    side: u8,
) -> Option<(&'a Joined, Head)> {
    let joined = attachment.joined_of(slot)?;
    // Before the look at the signature: a page that changes hands has another head then.
    let head = joined.segment.head(page).filter(|head| head.owner().kind == Use::Channel)?;
    let channel = Channel::at(&joined.segment, page);
    let owner = u64::from(joined.member) << 32 | u64::from(attachment.ledger.index(slot));
    let generation = slot.generation.load(Relaxed);
    (generation != 0
        && channel.owner(side).load(Relaxed) == owner
        && channel.generation(side).load(Relaxed) == generation)
        .then_some((joined, head))
}

/// Marks one side of a channel, the slot's, as released; frees the channel if both are.
fn release_side(attachment: &Attachment, slot: &Slot, page: u32, side: u8) {
    let Some((joined, head)) = signed(attachment, slot, page, side) else { return };
    let segment = &joined.segment;
    let channel = Channel::at(segment, page);
    let bit = 1 << side;
    let before = channel.released().fetch_or(bit, SeqCst);
    // Somebody who notes the other side's death there just now ([`release_dead_side`]) looks at
    // this side's word afterwards.
    if before & bit == 0
        && (before | bit) & 3 == 3
        && !head.is_busy()
        && let Some(head) = segment.take(head)
    {
        segment.add_carried(channel.carried());
        free_channel(segment, channel, head);
    }
}

/// In `released`: a side died, perhaps between claiming pages and describing them: every page with
/// the channel's tag is to be looked for.
pub(crate) const DIED: u64 = 0x10000;

/// Marks a side that died as released, of a channel that was seen as `head`. The head as it is
/// then, for [`crate::reclaim`] to free the channel if both are; `None` where it is no longer what
/// was seen.
pub(crate) fn release_dead_side(segment: &Segment, head: Head, side: u8) -> Option<Head> {
    // Taken meanwhile: the page cannot become another's between the look and the mark.
    let head = segment.take(head)?;
    Channel::at(segment, head.page()).released().fetch_or(DIED | 1 << side, SeqCst);
    segment.settle(head)
}

/// Frees a channel's pages, whose head this process has taken. The rings' places were written by
/// peers: only pages that carry the channel's tag are freed. Where a side died the head stays, for
/// [`crate::reclaim`] to look for others.
fn free_channel(segment: &Segment, channel: Channel<'_>, head: Head) {
    for side in [0, 1] {
        for grown in [0, 1] {
            let (_, offset, size) = channel.direction(side).ring(grown);
            let place = size.power_of_two(PAGE, 1 << 26).and_then(|size| {
                Ok((offset.checked(|&offset| segment.holds(offset, size))?, size))
            });
            if let Ok((offset, size)) = place {
                let page = u32::try_from(offset / PAGE).unwrap_or(u32::MAX);
                segment.release_part(
                    head,
                    Extent { page, pages: u32::try_from(size / PAGE).unwrap_or(0) },
                );
            }
        }
    }
    if channel.released().load(Acquire) & DIED != 0 {
        let _ = segment.settle(head);
    } else {
        segment.release_head(head);
    }
}
