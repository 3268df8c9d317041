//! What calls on a socket, and changes of a set, mean for those who wait on the sets that have it.

use super::collect::{ENDS, IN};
use super::edges::own_ends;
use super::room::mask_until_room;
use super::{
    BY_FD, Inner, Places, Registration, SETS, Set, doors, hot, kernel_control, link_all, listed_of,
    local, local_of, make_hot, retell, set_at, shared, wait,
};
use crate::fds::{self, Entry};
use crate::{bell, runtime};
use core::sync::atomic::Ordering;
use ginnel_node::waiter::BITS;
use ginnel_region::sys;
use ginnel_ring::park::Want;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::{Stage, flag};
use libc::c_int;

/// Something changed that a sleeper of this set must see: lets it look again.
pub(super) fn stir(set: &Set, inner: &mut Inner) {
    stir_of(set, inner, None);
}

/// The same, where it is this registration that changed. What else is looked at here, other
/// processes that have the set look at themselves, and were told of, perhaps: the kernel is told
/// nothing of it, which would be an edge.
pub(super) fn stir_of(set: &Set, inner: &mut Inner, only: Option<u32>) {
    let sleeps = set.sleepers.load(Ordering::Acquire) != 0;
    let epfd = set.fd.load(Ordering::Relaxed);
    if sleeps
        && set.holds_any()
        && let Some(attachment) = runtime::attachment()
    {
        hot::make_waiter(set, attachment, epfd, inner);
    }
    if let Some(waiter) = inner.waiter.filter(|_| sleeps) {
        waiter.poke();
    }
    // Whoever sleeps on a set from outside, or in another process, or on one that came from there,
    // is reached through the kernel alone.
    let elsewhere = shared::elsewhere(set, inner);
    let only = only.filter(|_| set.shared.load(Ordering::Relaxed) && !sleeps);
    if (inner.nested || elsewhere || sleeps && inner.waiter.is_none()) && !hot::arm_hot(set, inner)
    {
        for index in
            inner.hot.clone().into_iter().filter(|&index| only.is_none_or(|only| only == index))
        {
            let entry = inner.registrations.get_mut(index as usize);
            if let Some(entry) = entry.filter(|entry| {
                entry.used && !entry.disabled && entry.in_kernel && entry.is_named()
            }) {
                if shared::is_shot(set, epfd, entry) {
                    // Another process was told of it, or a thread here is about to be: who was arms
                    // it.
                    continue;
                }
                // The kernel calls the socket writable, and so the set ready. Nobody is told of
                // that: it was not asked for.
                let mark = if entry.wants(libc::EPOLLOUT) { 0 } else { shared::LOUD };
                let (events, data) = (entry.interest() | libc::EPOLLOUT as u32 | mark, entry.known);
                let told =
                    kernel_control(epfd, libc::EPOLL_CTL_MOD, entry.fd, events, data).is_ok();
                // Telling a wish once more is to be undone by nobody: that would be an edge.
                entry.loud = told && events != entry.interest();
                shared::told(set, entry);
            }
        }
    }
}

/// What is hot is to be looked at, also by those who sleep on this set: arms it for them, as they
/// would themselves. Only where there is something to tell already, or they sleep with a limit that
/// this may change, are they woken.
pub(super) fn heed(set: &Set, inner: &mut Inner) {
    heed_of(set, inner, None);
}

fn heed_of(set: &Set, inner: &mut Inner, only: Option<u32>) {
    let sleeps = set.sleepers.load(Ordering::Acquire) != 0;
    if sleeps
        && !inner.nested
        && set.masked.load(Ordering::Acquire) == 0
        && !shared::elsewhere(set, inner)
        && let (Some(waiter), Some(attachment)) = (inner.waiter, runtime::attachment())
    {
        doors::open(set, attachment, set.fd.load(Ordering::Relaxed), inner);
        if hot::arm_hot(set, inner) {
            return wait::left_asleep(inner, waiter, attachment);
        }
    }
    stir_of(set, inner, only);
}

/// How a registration's channel is to wake this set.
pub(super) fn want(inner: &Inner, index: u32, endpoint: Endpoint<'_>) -> Want {
    let shared = inner.nested || endpoint.wakes_by_token();
    match (inner.waiter, u16::try_from(index)) {
        (Some(_), Ok(bit)) if !shared && index < BITS && endpoint.is_in_pair() => {
            doors::want(inner, endpoint, bit)
        }
        (Some(waiter), Ok(bit)) if !shared && index < BITS => waiter.want(bit),
        _ => Want::Token,
    }
}

/// A receive found the ring empty (EAGAIN, or a short read): whoever waits for more must be woken.
/// True: there is more already, look again.
#[inline]
pub fn emptied(endpoint: Endpoint<'static>) -> bool {
    let slot = endpoint.slot();
    let index = endpoint.index();
    let local = local_of(index);
    let needs_nothing = if local & local::REGISTERED == 0 {
        !slot.has_several_holders()
    } else {
        local & local::HOT != 0 && !slot.has(flag::SHARED)
    };
    !needs_nothing && slot.stage() == Stage::Active && emptied_slowly(endpoint, index)
}

#[cold]
fn emptied_slowly(endpoint: Endpoint<'static>, index: u32) -> bool {
    if !endpoint.rx_in_ring() {
        return false;
    }
    let shared = endpoint.wakes_by_token();
    if !shared && endpoint.will_be_woken() {
        // Another thread sleeps on the set, or the set was left armed.
        return false;
    }
    if shared && endpoint.arm_data(Want::Token).is_none() {
        heat_now_or_later(endpoint, index);
        return true;
    }
    heat_now_or_later(endpoint, index);
    false
}

/// The service thread is not interrupted by signals: it does what a handler cannot, which
/// interrupted the work on a set.
fn heat_now_or_later(endpoint: Endpoint<'static>, slot: u32) {
    if heat(endpoint, slot).is_none() {
        bell::catch_up(slot);
    }
}

/// Every (set, registration) of a slot, whatever descriptor of it was registered. `None`: that
/// cannot be known now (this thread may have been interrupted while it changed it).
pub(super) fn places_of_slot(endpoint: Endpoint<'static>, slot: u32) -> Option<Places> {
    if fds::count(slot) == 1 {
        return BY_FD.soon(|map| listed_of(map.as_ref(), endpoint.fd()));
    }
    let mut found = Places::new();
    for (index, place) in SETS.iter().enumerate() {
        // SAFETY: sets are never freed.
        let Some(set) = (unsafe { place.load(Ordering::Acquire).as_ref() }) else { break };
        if set.holds_any() {
            set.soon(|inner| {
                let of_slot = |entry: &Registration| {
                    // (The number of one that has its slot may be another socket's by now.)
                    entry.used
                        && match entry.slot {
                            Some(of) => of == slot,
                            None => matches!(fds::get(entry.fd), Entry::Endpoint(of) | Entry::Inherited(of) if of == slot),
                        }
                };
                for (number, _) in inner.registrations.iter().enumerate().filter(|(_, entry)| of_slot(entry)) {
                    found.push((u32::try_from(index).unwrap_or(0), u32::try_from(number).unwrap_or(0)));
                }
            })?;
        }
    }
    Some(found)
}

/// Has every registration of the slot looked at in the next wait. `None`: not of all, for now (this
/// thread may have been interrupted while it worked on one of them).
fn heat(endpoint: Endpoint<'static>, slot: u32) -> Option<()> {
    for (index, registration) in places_of_slot(endpoint, slot)? {
        if let Some(set) = set_at(index) {
            // What is told to the kernel here is what the program wants by now, wherever it said
            // so.
            shared::look(set, set.fd.load(Ordering::Relaxed));
            set.soon(|inner| {
                make_hot(inner, registration);
                heed_of(set, inner, Some(registration));
            })?;
        }
    }
    Some(())
}

/// An edge of the connection, of all that it has to report, comes of what this program did: it
/// could not read what it was told of.
pub fn edge(endpoint: Endpoint<'static>) {
    edge_of(endpoint, false);
}

/// The same of SO_RCVLOWAT, for the sake of what lies in the ring, of which the kernel makes none.
/// Behind it a reset may have come: once the bytes are read, that is what there is to tell.
pub fn edge_of_bytes(endpoint: Endpoint<'static>) {
    let ends = libc::POLLERR | libc::POLLHUP;
    let has_ended = endpoint.may_have_ended() && sys::poll(endpoint.fd(), 0, 0) & ends != 0;
    edge_of(endpoint, has_ended && endpoint.rx_in_ring() && endpoint.ring_bytes() > 0);
}

/// `retells`: also of what only the kernel tells.
fn edge_of(endpoint: Endpoint<'static>, retells: bool) {
    let edges = another_edge(endpoint);
    for_edges(endpoint, |set, inner, registration, epfd| {
        let entry = inner.registrations.get_mut(registration as usize);
        if let Some(entry) = entry.filter(|entry| entry.used && entry.wants(libc::EPOLLET)) {
            entry.forget_told();
            (entry.ended, entry.edges) = (own_ends(endpoint), edges);
            if retells && entry.in_kernel && entry.events & IN != 0 {
                retell(set, epfd, entry);
            }
            make_hot(inner, registration);
            inner.looked = 0;
        }
        stir_of(set, inner, Some(registration));
    });
}

/// The kernel is about to make an edge of the connection, of all that it has to report: this end
/// shuts a direction down. What was told before is forgotten by then, as a thread that sleeps is
/// told of that edge at once. Returns the edge's number, for [`edge_comes`].
pub fn edge_begins(endpoint: Endpoint<'static>) -> u32 {
    let edges = another_edge(endpoint);
    for_edges(endpoint, |_, inner, registration, _| {
        let entry = inner.registrations.get_mut(registration as usize);
        if let Some(entry) = entry.filter(|entry| entry.used && entry.wants(libc::EPOLLET)) {
            entry.forget_told();
            (entry.ended, entry.edges) = (own_ends(endpoint), edges);
        }
    });
    edges
}

/// The kernel has made the edge of this number: whoever was not told of it by now is to be.
pub fn edge_comes(endpoint: Endpoint<'static>, edge: u32) {
    for_edges(endpoint, |set, inner, registration, _| {
        let entry = inner.registrations.get_mut(registration as usize);
        let of_edge = |entry: &&mut Registration| {
            entry.used && entry.wants(libc::EPOLLET) && entry.edges == edge
        };
        if let Some(entry) = entry.filter(of_edge) {
            if was_told_since(entry) {
                entry.ended |= own_ends(endpoint);
                return;
            }
            entry.ended = own_ends(endpoint);
            make_hot(inner, registration);
            inner.looked = 0;
        }
        stir_of(set, inner, Some(registration));
    });
}

/// Was the program told of bytes, or of an end, since what it was told of was forgotten?
fn was_told_since(entry: &Registration) -> bool {
    entry.told() != u64::MAX || entry.told_by_tcp.is_some() || entry.ended & ENDS != 0
}

/// Counts an edge of the connection that this program makes. Another process that has it registered
/// is told of the edge by the kernel, and learns from this that it is one.
fn another_edge(endpoint: Endpoint<'_>) -> u32 {
    endpoint.slot().edges.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
}

/// Has each registration of the connection learn of an edge: (set, its state, the registration, the
/// set's number for the kernel).
fn for_edges(endpoint: Endpoint<'static>, learn: impl Fn(&'static Set, &mut Inner, u32, c_int)) {
    let slot = endpoint.index();
    if local_of(slot) & local::REGISTERED == 0 {
        return;
    }
    for (index, registration) in places_of_slot(endpoint, slot).unwrap_or_default() {
        let Some(set) = set_at(index) else { continue };
        let epfd = set.fd.load(Ordering::Relaxed);
        shared::look(set, epfd);
        let _ = set.soon(|inner| learn(set, inner, registration, epfd));
    }
}

/// By the service thread, for a signal handler: what its sends and receives mean for the sets.
/// False: it is to be done once more.
pub fn catch_up(endpoint: Endpoint<'static>) -> bool {
    let slot = endpoint.index();
    let mut numbers = fds::all().filter(|(_, entry)| *entry == Entry::Endpoint(slot));
    numbers.all(|(fd, _)| link_all(fd, slot).is_some())
        && mask_until_room(endpoint, slot).is_some()
        && heat(endpoint, slot).is_some()
}
