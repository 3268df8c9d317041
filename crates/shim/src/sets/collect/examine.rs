//! What one hot registration has to report: of its ring, and of room in it.

use super::{ENDS, IN, OUT};
use crate::moment;
use crate::sets::edges::{held, key, marks, own_ends};
use crate::sets::registration::is_told;
use crate::sets::room::unmask;
use crate::sets::{Registration, Set, kernel_control, shared};
use ginnel_tcp::ledger::Stage;
use libc::c_int;

pub(super) enum Look {
    /// These events.
    Report(u32),
    /// Nothing at the moment.
    Nothing,
    /// The kernel knows about it: not to be looked at here.
    Kernel,
}

/// What a hot registration has to report from its ring, and what the kernel holds beside that.
/// `recent`: as of [`Pass`]. `goes_on` is asked once it is known whether there are bytes that were
/// not told of, and before anything is: if it says no, nothing is.
pub(super) fn examine(
    set: &Set,
    epfd: c_int,
    entry: &mut Registration,
    recent: bool,
    goes_on: impl FnOnce(bool) -> bool,
) -> Look {
    let Some(endpoint) = entry.endpoint().filter(|_| entry.used && !entry.disabled) else {
        return Look::Kernel;
    };
    unmask(set, epfd, entry, endpoint);
    if endpoint.slot().stage() != Stage::Active {
        return Look::Kernel;
    }
    let (rx, tx) = (endpoint.rx_in_ring(), endpoint.tx_in_ring());
    if !(rx || tx && entry.masked) {
        return Look::Kernel;
    }
    let edges = entry.wants(libc::EPOLLET);
    let (mut events, mut unread) = (0, 0);
    // (A switch that was due may have been entered: what has come over TCP the kernel tells of.)
    let filled = rx
        && entry.events & IN != 0
        && (endpoint.readable() && endpoint.rx_in_ring() || moment::brings_bytes(endpoint));
    let key = if filled { key(endpoint) } else { 0 };
    let untold = filled && !(edges && entry.was_told(key));
    if !goes_on(untold) || shared::is_outdated(set, entry) {
        // The caller looks at that, and comes again.
        return Look::Nothing;
    }
    if filled {
        unread = entry.events & IN;
    }
    if untold {
        events |= unread;
        entry.tell(key);
    }
    if tx && entry.events & OUT != 0 && !entry.masked && (events != 0 || !edges) {
        if endpoint.sendable(false) {
            events |= entry.events & OUT;
            entry.room = false;
        } else {
            entry.hide(set, epfd);
        }
    }
    if events == 0 {
        return Look::Nothing;
    }
    // Told together, as the kernel does: after a shot or an edge the rest would come to nobody, or
    // as one edge more. An end that nobody meant is noticed by the looks at the kernel's set, which
    // tells nothing of a registration whose shot was spent.
    let once = entry.wants(libc::EPOLLONESHOT);
    let room = entry.events & OUT != 0 && !tx;
    let switched = rx && !endpoint.rx_in_ring();
    if room || once && (!recent || switched) || endpoint.may_have_ended() {
        let mut held = held(endpoint);
        if !room {
            held &= !OUT;
        }
        events |= (held | unread) & entry.asked();
        entry.ended |= held & ENDS | marks(endpoint);
    } else if edges {
        // An edge of before: a wake-up that comes for these bytes is none of it.
        entry.ended |= own_ends(endpoint);
    }
    if once {
        entry.spend(true);
        if entry.is_named() {
            let _ =
                kernel_control(epfd, libc::EPOLL_CTL_MOD, entry.fd, entry.interest(), entry.known);
        }
    }
    Look::Report(events)
}

/// What has come to a set that is `nested` is an edge for outer sets, though a shot was spent for it
/// just now: nobody looks at that registration any more.
pub(super) fn note_shot(nested: bool, entry: &mut Registration, events: u32, arrivals: &mut u64) {
    if nested
        && entry.disabled
        && events & IN != 0
        && let Some(endpoint) = entry.endpoint().filter(|endpoint| endpoint.rx_in_ring())
        && !is_told(entry.note_come(key(endpoint)), key(endpoint))
    {
        *arrivals = arrivals.wrapping_add(1);
    }
}
