//! Asking the broker for the other ends of connections that nobody in the segment has, and taking
//! part in the pairs that it makes ([`ginnel_tcp::pairs`]).
//!
//! A program's call only notes that a connection waits in vain ([`want`]); this thread does the
//! rest. It hands the socket to the broker, hears of the other end or of none, maps the memory, and
//! has the connection meet its other end there. What it has of pairs outlives the broker: its end
//! only means that nothing new comes, until there is another one.
//!
//! A socket that was handed over and not read yet stays open when the program closes it. So the
//! broker says at once that it has read and closed it; where that does not come, the connection to
//! the broker is closed, and with it what lies unread there.

mod asks;

use super::{control, start};
use crate::bell::ring;
use crate::maps;
pub(super) use asks::Asks;
use asks::{ABSENCE, ABSENT_UNTIL, MEETING_UNTIL};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use ginnel_region::sys;
use ginnel_tcp::broker;
use ginnel_tcp::ledger::{SlotBits, Stage};
use ginnel_tcp::{Attachment, Endpoint};
use std::path::Path;

/// One bit a slot: the thread knows that its connection waits.
static KNOWN: SlotBits = SlotBits::new();
/// One bit a slot: the thread is to hear of it.
static WANTED: SlotBits = SlotBits::new();
static ANY_WANTED: AtomicBool = AtomicBool::new(false);
/// The connection to the broker; -1: none.
pub(super) static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// Counts the connections to brokers: a pair of an earlier one is known to none.
pub(super) static BROKER: AtomicU64 = AtomicU64::new(0);
/// The connection waits in the segment, and nobody has come: the broker is to be asked, if there is
/// one.
#[inline]
pub fn want(endpoint: Endpoint<'static>) {
    if let Some(path) = &endpoint.attachment.settings.broker
        && !KNOWN.has(endpoint.index())
    {
        want_slowly(endpoint, path);
    }
}

#[cold]
fn want_slowly(endpoint: Endpoint<'static>, path: &Path) {
    let now = sys::monotonic_ns();
    // Whose later maps are locked has no use for a pair's memory.
    if now < ABSENT_UNTIL.load(Ordering::Relaxed)
        || !endpoint.may_meet_by_broker()
        || maps::may_lock_later_maps()
    {
        return;
    }
    if SOCKET.load(Ordering::Relaxed) < 0 && !broker::is_there(path) {
        ABSENT_UNTIL.store(now + ABSENCE, Ordering::Relaxed);
        return;
    }
    let index = endpoint.index();
    KNOWN.set(index);
    WANTED.set(index);
    ANY_WANTED.store(true, Ordering::Release);
    if start::start(endpoint.attachment) {
        ring();
    } else {
        forget(index);
    }
}

/// A slot's last descriptor here is about to be closed.
pub(super) fn forget(index: u32) {
    KNOWN.unset(index);
    WANTED.unset(index);
}

/// In a fork child, and before everything is given up: what was asked is not this process's.
pub(super) fn close(attachment: &Attachment) {
    attachment.node.disown(SOCKET.swap(-1, Ordering::AcqRel));
    BROKER.fetch_add(1, Ordering::Relaxed);
    MEETING_UNTIL.store(0, Ordering::Relaxed);
    KNOWN.unset_all();
    WANTED.unset_all();
}

/// Is this connection about to meet its other end in a pair's memory?
pub(super) fn is_meeting(endpoint: Endpoint<'_>) -> bool {
    endpoint.is_in_pair()
        && matches!(endpoint.slot().stage(), Stage::Candidate | Stage::Published | Stage::Offered)
        && sys::monotonic_ns() < MEETING_UNTIL.load(Ordering::Relaxed)
}

fn hang_up(attachment: &Attachment) {
    let socket = SOCKET.swap(-1, Ordering::AcqRel);
    if socket >= 0 {
        control(libc::EPOLL_CTL_DEL, socket, 0, 0);
        attachment.node.disown(socket);
    }
}
