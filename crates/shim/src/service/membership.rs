//! Leaving the segment and joining it again, in the middle of the program's work: what the service
//! thread does when the user asks for it (`ginnel detach`, `ginnel attach`), and when the virtual
//! machine's device goes and comes back.
//!
//! A process leaves once none of its connections is in the segment. Its threads are not asked to
//! stop for that: whoever is late finds zeroes where the segment was
//! ([`ginnel_region::Segment::let_go`]), and nothing that counts is read there.

use super::start::{attend_absence, prepare_waiter, retire_waiter};
use super::{listen, own_slots, with_endpoint};
use crate::{fds, pool, sets, spin};
use core::sync::atomic::{AtomicBool, Ordering};
use ginnel_node::node::Standing;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::Reason;
use ginnel_tcp::{Attachment, leave, lifetime};

/// How often the thread looks while connections are on their way out, ms.
const LEAVING_TICK: u64 = 2;
/// How often while the process is asked to stay away, ms.
const AWAY_TICK: u64 = 100;
/// How often it looks whether the segment is there again, ms.
const MISSING_TICK: u64 = 500;

/// Does what is due. Returns when to look again at the latest, ms; `None` where the process is
/// joined and stays so.
pub(super) fn look(attachment: &'static Attachment) -> Option<u64> {
    let asked = attachment.node.processes.is_detached(attachment.node.joined().segment.id());
    // Who has a waiter there is told by the driver; another finds zeroes.
    if attachment.node.joined().place.is_some()
        && attachment.node.joined().service_page() == 0
        && attachment.node.joined().segment.is_gone()
    {
        unplugged(attachment);
    }
    match (attachment.node.standing(), asked) {
        (Standing::Here, false) => None,
        (Standing::Leaving, false) => {
            attachment.node.set_leaving(false);
            None
        }
        (Standing::Here | Standing::Leaving, true) => {
            attachment.node.set_leaving(true);
            // Every one, each time: all are to come down together.
            let left = |&index: &u32| {
                with_endpoint(index, |endpoint| endpoint.leave(Reason::Detached)) == Some(false)
            };
            if own_slots().filter(left).count() != 0 {
                return Some(LEAVING_TICK);
            }
            // One that came meanwhile, from another process, may have brought a channel.
            let out = fds::hold_changes()
                && !own_slots().any(|index| attachment.ledger.slot(index).is_in_channel());
            if out {
                for index in own_slots() {
                    lifetime::release_left(attachment, attachment.ledger.slot(index));
                }
                go(attachment, Reason::Detached);
            }
            fds::release_changes(false);
            Some(if out { AWAY_TICK } else { LEAVING_TICK })
        }
        (Standing::Away, true) => Some(AWAY_TICK),
        (Standing::Away, false) => {
            come_back(attachment, false);
            (attachment.node.standing() == Standing::Away).then_some(MISSING_TICK)
        }
    }
}

/// Somebody is joining the segment.
static JOINING: AtomicBool = AtomicBool::new(false);

/// Joins the segment, if it is there. `asked`: although the process is asked to stay away.
fn come_back(attachment: &'static Attachment, asked: bool) {
    while JOINING.swap(true, Ordering::Acquire) {
        ginnel_region::sys::yield_now();
    }
    if attachment.node.standing() == Standing::Away && attachment.node.rejoin(asked).is_ok() {
        spin::set_kernel(attachment);
        sets::rejoined();
        prepare_waiter(attachment);
        listen(attachment);
    }
    JOINING.store(false, Ordering::Release);
}

/// In a fork child: whoever was joining is not there.
pub(super) fn forget_parent() {
    JOINING.store(false, Ordering::Relaxed);
}

/// A socket came from another process, with a channel in a segment that this process has left.
/// Either it takes part again, or the connection ends.
#[cold]
pub fn admit(endpoint: Endpoint<'static>) {
    let attachment = endpoint.attachment;
    if attachment.node.standing() == Standing::Away {
        come_back(attachment, true);
        attend_absence(attachment);
    }
    if attachment.node.standing() == Standing::Away {
        leave::lose(endpoint, Reason::Unplugged);
    }
}

/// The virtual machine has lost the device, and with it the segment: zeroes stand in its place, in
/// this process's own memory. What was in the rings is lost, and the other ends are to hear of it.
#[cold]
pub(super) fn unplugged(attachment: &'static Attachment) {
    if attachment.node.standing() == Standing::Away {
        return;
    }
    attachment.node.set_leaving(true);
    let _ = fds::hold_changes();
    for index in own_slots() {
        let _ = with_endpoint(index, |endpoint| leave::lose(endpoint, Reason::Unplugged));
    }
    go(attachment, Reason::Unplugged);
    fds::release_changes(false);
}

/// No connection is in the segment any more: gives back what else is there.
fn go(attachment: &'static Attachment, reason: Reason) {
    retire_waiters(attachment);
    attachment.node.leave(reason as u32);
}

/// Gives back what waiters the process has in the segment.
pub fn retire_waiters(attachment: &'static Attachment) {
    retire_waiter(attachment);
    sets::retire_waiters(attachment);
    pool::retire(attachment);
}

/// For how long a left channel is kept, at least: [the thread](super) calls this every ten seconds.
pub(super) fn age(attachment: &'static Attachment) {
    for slot in own_slots()
        .map(|index| attachment.ledger.slot(index))
        .filter(|slot| slot.left.load(Ordering::Relaxed) != 0)
    {
        lifetime::age_left(attachment, slot);
    }
}
