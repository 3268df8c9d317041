//! What of the kernel's report is true, once rings and tokens are taken into account.

use super::Purpose;
use crate::fds::{self, Entry};
use crate::moment;
use crate::runtime;
use crate::sets::collect::{ENDS, IN, OUT};
use crate::sets::edges::{as_end, edge, key, urgent};
use crate::sets::registration::is_told;
use crate::sets::room::with_room;
use crate::sets::{
    Inner, Registration, Set, make_hot, outlived, owed, retell, shared, stir, witness,
};
use crate::spin::ticks;
use core::sync::atomic::Ordering;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::Stage;
use libc::{c_int, epoll_event};

/// What of the kernel's report is true, once rings and tokens are taken into account.
pub(super) fn judge(
    set: &Set,
    epfd: c_int,
    events: u32,
    index: u32,
    purpose: Purpose,
) -> Option<epoll_event> {
    let (endpoint, nested) = linked(set, index)?;
    let carried = endpoint
        .filter(|endpoint| matches!(endpoint.slot().stage(), Stage::Settling | Stage::Active));
    // Settling a reader's phase takes the endpoint's lock: not under the set's.
    let readable = carried.is_none_or(|endpoint| is_readable(endpoint, events, nested));
    let events = carried.map_or(events, |endpoint| as_end(endpoint, events));
    // What has come by now may have come after another process asked for something else.
    shared::look(set, epfd);
    set.with(|inner| {
        let pass = inner.passes;
        let entry = inner.registrations.get_mut(index as usize).filter(|entry| entry.used)?;
        if entry.is_spent(set) || !is_enabled(entry, events) {
            return None;
        }
        // What `stir` or a mask asked for, here or in another process that has the set. (What such
        // a one asks for of a plain socket is not known here.)
        let disguised = carried.is_some()
            || entry.outlived
            || entry.loud
            || entry.masked
            || !set.shared.load(Ordering::Relaxed);
        // An edge that was made by telling the kernel anew; what it is told from here on makes the
        // next.
        let loud = entry.loud && carried.is_some_and(|endpoint| !endpoint.rx_in_ring());
        let made = core::mem::take(&mut entry.retold) || loud;
        let unasked = if disguised { events & !entry.asked() } else { 0 };
        let mut events = events & !unasked;
        // (What it was not told of yet may be what it speaks of.)
        let mut retold = entry.loud || unasked & OUT != 0 || unasked != 0 && entry.late.is_some();
        if retold {
            retell(set, epfd, entry);
        }
        if let Some(endpoint) = carried {
            // A wake-up, which is swept away by now.
            let swept = !readable && events & IN != 0 && endpoint.rx_in_ring();
            if !readable {
                events &= !IN;
            }
            if endpoint.slot().stage() == Stage::Active {
                retold |= with_room(set, epfd, entry, endpoint, &mut events);
                if entry.wants(libc::EPOLLET) {
                    events = edge(set, entry, endpoint, events, made || swept);
                }
                entry.room &= events & OUT == 0;
                let again = retold || nested || set.shared.load(Ordering::Relaxed);
                events = with_bytes(entry, endpoint, events, again, pass);
            }
        } else if entry.masked {
            entry.mask(set, false);
            retell(set, epfd, entry);
            retold = true;
        }
        if entry.outlived {
            events = outlived::whole(&inner.outlived, index, entry, events);
        }
        if entry.outlived && entry.wants(libc::EPOLLET) {
            events = outlived::edge(&mut inner.outlived, index, events, purpose);
        }
        hand_out(
            set,
            epfd,
            inner,
            index,
            Found { events, retold, carried: carried.is_some() },
            purpose,
        )
    })
}

/// The endpoint of a registration, if its descriptor is one by now, and whether the set is in
/// another. `None`: there is no such registration.
fn linked(set: &Set, index: u32) -> Option<(Option<Endpoint<'static>>, bool)> {
    // Another process may have carried it, or another number of it is used here.
    let unknown = set.inner.with(|inner| {
        inner
            .registrations
            .get(index as usize)
            .filter(|entry| entry.used && !entry.plain && entry.slot.is_none())
            .map(|entry| entry.fd)
    });
    if let Some(fd) = unknown.filter(|&fd| !fds::get(fd).is_apart()) {
        let _ = runtime::find(fd);
    }
    set.with(|inner| {
        let entry = inner.registrations.get_mut(index as usize)?;
        if !entry.used {
            return None;
        }
        if entry.slot.is_none()
            && !entry.plain
            && let Entry::Endpoint(slot) | Entry::Inherited(slot) = fds::get(entry.fd)
        {
            entry.link(slot);
        }
        Some((entry.endpoint(), inner.nested))
    })
}

/// Is there more to read than a wake-up, which is swept away? Only asked of what the kernel tells
/// news of. Takes the endpoint's lock.
fn is_readable(endpoint: Endpoint<'static>, events: u32, nested: bool) -> bool {
    let news = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 | IN;
    if events & news == 0 {
        return true;
    }
    endpoint.slot().heed_kernel();
    let readable = endpoint.tidy_before_sleep();
    // (Outer sets go by the tokens that lie.)
    if readable && !nested {
        endpoint.sweep_beside_bytes();
    }
    readable
}

/// Is it to be told of anything? Had a shot disabled it, another process has armed it since.
fn is_enabled(entry: &mut Registration, events: u32) -> bool {
    if !entry.disabled {
        return true;
    }
    if events & !(libc::EPOLLERR | libc::EPOLLHUP) as u32 == 0 && entry.events & (IN | OUT) != 0 {
        // The kernel adds these unasked. Had another process armed it, there were more with them.
        return false;
    }
    entry.rearm();
    true
}

/// Notes what a registration is told of bytes, and adds those that lie in the ring. `again`: the
/// kernel, or an outer set, may tell of the same bytes once more. `pass`: the number of this one.
fn with_bytes(
    entry: &mut Registration,
    endpoint: Endpoint<'static>,
    mut events: u32,
    again: bool,
    pass: u64,
) -> u32 {
    let edge_on_tcp = || events & IN != 0 && entry.wants(libc::EPOLLET) && !endpoint.rx_in_ring();
    if edge_on_tcp() && (again || endpoint.may_have_ended()) {
        entry.told_by_tcp = Some(endpoint.come_by_tcp());
        entry.ended |= urgent(endpoint);
    }
    if events & (IN | ENDS) != 0 && endpoint.rx_in_ring() {
        entry.is_ready_since(endpoint, ticks(), entry.reported.0 == pass);
        entry.tell(key(endpoint));
    } else if events != 0 && entry.events & IN & !events != 0 && has_bytes(endpoint) {
        // All that is ready comes in one event: after a shot, the rest would come to nobody.
        let key = key(endpoint);
        if !entry.wants(libc::EPOLLET) || !entry.was_told(key) {
            events |= entry.events & IN;
        }
        entry.tell(key);
    }
    events
}

/// Does a ring carry, and hold bytes, or are such on their way to TCP?
fn has_bytes(endpoint: Endpoint<'static>) -> bool {
    let in_ring = || endpoint.rx_in_ring() && endpoint.readable() && endpoint.rx_in_ring();
    in_ring() || moment::brings_bytes(endpoint)
}

/// What a report has come to.
struct Found {
    events: u32,
    /// The kernel was told anew what to look for.
    retold: bool,
    /// Of a connection with a channel.
    carried: bool,
}

/// The event, if there is one, and what telling it, or asking for it, changes of the registration.
fn hand_out(
    set: &Set,
    epfd: c_int,
    inner: &mut Inner,
    index: u32,
    Found { events, retold, carried }: Found,
    purpose: Purpose,
) -> Option<epoll_event> {
    let entry = inner.registrations.get_mut(index as usize)?;
    let (empty, data) = (events == 0, entry.data);
    // What has come is an edge for outer sets, though a shot is spent for it now. (Where no bytes
    // are it is an end, of which the kernel makes the edge itself.)
    if inner.nested
        && carried
        && events & IN != 0
        && let Some(endpoint) = entry.endpoint().filter(|endpoint| endpoint.rx_in_ring())
        && !is_told(entry.note_come(key(endpoint)), key(endpoint))
        && endpoint.look_at_ring() != Some(false)
    {
        inner.arrivals = inner.arrivals.wrapping_add(1);
    }
    if !empty && purpose == Purpose::Telling {
        entry.turn.has_come();
        if carried {
            let once = (libc::EPOLLET | libc::EPOLLONESHOT) as u32;
            entry.turn.told_by_kernel(ticks(), entry.events & once == 0);
        }
    }
    let once = entry.wants(libc::EPOLLONESHOT) || entry.wants(libc::EPOLLET);
    if purpose == Purpose::Asking && !empty && once && !entry.is_named() {
        // The kernel cannot be told anew, and has forgotten it.
        owed::note(set, inner, index, events);
        return Some(epoll_event { events, u64: data });
    }
    if purpose == Purpose::Asking && !empty && once {
        // Nobody is told of it now: the kernel is to tell it again, also to those who sleep.
        entry.forget_told();
        retell(set, epfd, entry);
        make_hot(inner, index);
        stir(set, inner);
        return Some(epoll_event { events, u64: data });
    }
    if entry.wants(libc::EPOLLONESHOT) {
        if !empty {
            entry.spend(retold);
        }
        let witnessed = entry.witnessed && !empty;
        if empty || retold {
            // The kernel disabled it for an event that was none, or enabled it when it was told
            // anew.
            retell(set, epfd, entry);
        }
        if witnessed {
            witness::ends(inner, index);
        }
    }
    if carried {
        make_hot(inner, index);
    }
    (!empty).then_some(epoll_event { events, u64: data })
}
