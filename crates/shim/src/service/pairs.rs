//! The pairs that a process is in: who comes to be in one, and that those end which nobody needs.

use super::broker::{BROKER, SOCKET};
use super::own_slots;
use crate::{maps, runtime};
use core::sync::atomic::Ordering;
use ginnel_node::wake::line::Lines;
use ginnel_region::sys;
use ginnel_tcp::Attachment;
use ginnel_tcp::broker::{self, Answer, Beside};
use ginnel_tcp::pairs::Pair;

/// A process may have so many times the size of all its pairs of address space, or takes no more.
const SPACE: u64 = 16;

/// The pair that an answer speaks of: the one that is known, or a new one with this memory.
pub(super) fn pair_of(
    attachment: &'static Attachment,
    answer: &Answer,
    beside: Beside,
) -> Option<&'static Pair> {
    let broker = BROKER.load(Ordering::Relaxed);
    let Some(memory) = beside.memory else {
        let known = |pair: &&Pair| {
            (pair.broker, pair.id) == (broker, answer.pair) && !pair.ended.load(Ordering::Acquire)
        };
        return attachment.pairs.all().find(known);
    };
    let memory = memory.0;
    let size = sys::fstat(memory).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
    let all = attachment.pairs.bytes_with(size);
    if maps::may_lock_later_maps() || sys::memory_limits().0 < all.saturating_mul(SPACE) {
        return None;
    }
    // Who has no FIFOs is to be woken by tokens (`GINNEL_TOKENS`).
    let sockets =
        beside.lines.into_iter().map_while(|end| end).filter(|_| attachment.node.joined().fifos);
    let lines = Lines::new(sockets, attachment.node.tells_of_descriptors());
    let pair = attachment.pairs.add(memory, lines, answer.pair, broker);
    match pair {
        Ok(pair) => Some(pair),
        Err(error) => {
            runtime::say(
                attachment.settings.verbose,
                &format!("a pair's memory cannot be used: {error}"),
            );
            None
        }
    }
}

/// After so many looks without a connection there a process parts with a pair: a minute.
const IDLE: u32 = 6;

/// Gives up the memory of pairs that have ended, once no connection is there any more, and says
/// farewell to those that have had none for long. Called every ten seconds.
pub(super) fn age(attachment: &'static Attachment) {
    attachment.pairs.look(&attachment.ledger, attachment.node.ticket());
    let (present, connected) =
        (BROKER.load(Ordering::Relaxed), SOCKET.load(Ordering::Relaxed) >= 0);
    for pair in attachment.pairs.all() {
        let lasts = connected && pair.broker == present && !pair.ended.load(Ordering::Acquire);
        let is_there = |index: u32| {
            attachment
                .pair_of(attachment.ledger.slot(index))
                .is_some_and(|of| core::ptr::eq(of, pair))
        };
        if own_slots().any(is_there) {
            pair.idle.store(0, Ordering::Relaxed);
        } else if !lasts {
            crate::sets::part_with(&pair.joined);
            attachment.pairs.let_go(pair);
            if connected && pair.broker == present {
                // It counts for its user until both have let it go.
                broker::part(SOCKET.load(Ordering::Relaxed), pair.id);
            }
        } else if pair.idle.fetch_add(1, Ordering::Relaxed) >= IDLE {
            // It ends with the broker's word: until then an answer may still speak of it.
            broker::part(SOCKET.load(Ordering::Relaxed), pair.id);
        }
    }
}
