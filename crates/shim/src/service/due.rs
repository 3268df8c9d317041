//! What is due for each connection of this process.

use super::{broker, own_slots, watch, with_endpoint};
use crate::bell::is_watched;
use crate::runtime;
use core::sync::atomic::Ordering;
use ginnel_tcp::ledger::{Reason, Stage, flag};
use ginnel_tcp::{Attachment, Endpoint};

/// What a look at every slot showed.
#[derive(Default, Clone, Copy)]
pub(super) struct Seen {
    pub(super) settling: bool,
    pub(super) shared: bool,
    pub(super) leaving: bool,
    /// Bytes that are to go over TCP, and for which there was no room.
    pub(super) owing: bool,
    /// There are rings in the memory of pairs, where nobody wakes this thread, and have carried so
    /// many bytes.
    pub(super) pairs: Option<u64>,
}

/// Looks at every slot of this process. Where nothing is due that costs no system call: most are
/// idle.
pub(super) fn all(attachment: &'static Attachment) -> Seen {
    let mut seen = Seen::default();
    for index in own_slots() {
        let Some(endpoint) = runtime::endpoint(-1, index) else { break };
        let slot = attachment.ledger.slot(index);
        if slot.has(flag::PAIR) && slot.is_in_channel() {
            let carried = slot
                .in_ring
                .load(Ordering::Relaxed)
                .wrapping_add(slot.out_ring.load(Ordering::Relaxed));
            seen.pairs = Some(seen.pairs.unwrap_or(0).wrapping_add(carried).wrapping_add(1));
        }
        match slot.stage() {
            Stage::Active if !is_due(endpoint) => {
                // Nothing else that is asked below can be so.
                seen.leaving |= endpoint.wishes();
                continue;
            }
            Stage::Settling | Stage::Active => serve(index),
            _ if broker::is_meeting(endpoint) => {
                let _ = with_endpoint(index, |endpoint| endpoint.progress(false));
                seen.settling = true;
            }
            _ => {}
        }
        let active = slot.stage() == Stage::Active;
        seen.settling |= slot.stage() == Stage::Settling || active && !endpoint.shows_service();
        seen.leaving |= active && endpoint.wishes() || endpoint.is_leaving();
        seen.owing |= active && endpoint.owes();
        seen.shared |= slot.has(flag::SHARED) && slot.may_move();
    }
    seen
}

/// Would [`serve`] find anything to do for an active connection?
fn is_due(endpoint: Endpoint<'_>) -> bool {
    !is_watched(endpoint.index())
        || !endpoint.shows_service()
        || endpoint.slot().has(flag::SHARED)
        || endpoint.asked_to_freeze()
        || endpoint.wants_service()
        || endpoint.is_leaving()
        || endpoint.waits_for_half_closed()
}

/// Does for one slot what is due.
pub(super) fn serve(index: u32) {
    with_endpoint(index, |endpoint| match endpoint.slot().stage() {
        stage @ (Stage::Settling | Stage::Active) if endpoint.is_leaving() => {
            if stage == Stage::Active {
                watch(endpoint);
            }
            let _ = endpoint.leave(Reason::Held);
        }
        Stage::Settling => {
            endpoint.progress(false);
            if endpoint.slot().stage() == Stage::Active {
                watch(endpoint);
            }
        }
        Stage::Active => {
            watch(endpoint);
            if !endpoint.shows_service() {
                // Looked at again soon where it cannot be said now, either.
                let _ = endpoint.show_service();
            }
            if endpoint.slot().has(flag::SHARED) {
                endpoint.heal();
                take_over(endpoint);
            }
            if endpoint.asked_to_freeze() {
                let _ = endpoint.tidy();
                endpoint.request_downgrade();
            }
            if endpoint.wants_service() {
                endpoint.serve_tx();
            }
            endpoint.probe_half_closed();
        }
        _ => {}
    });
}

/// Another process that has the socket was named as the one to wake, and ended: this one is.
fn take_over(endpoint: Endpoint<'static>) {
    if endpoint.is_in_pair() {
        // Nobody is named there.
        return;
    }
    let attachment = endpoint.attachment;
    let named = endpoint.channel().service(endpoint.slot().side()).load(Ordering::Relaxed);
    let page = u32::try_from(named).unwrap_or(0);
    let mine = attachment.node.joined().service_page();
    if page != mine && mine != 0 {
        let process = ginnel_node::waiter::owner(&attachment.node.joined().segment, page);
        if !process.is_some_and(|process| attachment.node.processes.alive(process)) {
            let _ = endpoint.show_service();
        }
    }
}
