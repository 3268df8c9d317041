//! `epoll_ctl`: what the program changes, told to the kernel at once. (What may be told later:
//! [`late`].)

use super::collect::IN;
use super::edges::{self, key};
use super::news::heed;
use super::registration::is_told;
use super::tag::is_known;
use super::{
    BY_FD, Inner, Place, Registration, Set, adopted, drop_registration, forget_data, hot, inside,
    kernel_control, late, local, local_bits, local_of, make_hot, name, order, recover, set_at,
    share, shared, unlink, unregistered, witness,
};
use crate::fds::{self, Entry};
use crate::mix::Map;
use crate::outcome::Outcome;
use crate::runtime;
use crate::spin::ticks;
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use ginnel_tcp::ledger::Stage;
use ginnel_tcp::{Endpoint, kernel};
use libc::{c_int, epoll_event};

/// `epoll_ctl` on set `index`; with `Done`/`Failed` the kernel's call has been made.
///
/// # Safety
/// `event` is null or points to an event.
pub unsafe fn control(
    index: u32,
    epfd: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> Outcome<c_int> {
    let Some(set) = set_at(index) else { return Outcome::Libc };
    // SAFETY: the caller's promise.
    let wanted = unsafe { event.as_ref() }.map(|event| (event.events, event.u64));
    late::give_way();
    shared::look(set, epfd);
    if let Some(done) = late::control(set, operation, fd, wanted) {
        return done;
    }
    let known = set.with(|inner| inner.by_fd.get(&fd).copied());
    match (operation, wanted, known) {
        (libc::EPOLL_CTL_ADD, Some((events, data)), _) => add(set, index, epfd, fd, events, data),
        (libc::EPOLL_CTL_MOD, Some((events, data)), Some(registration)) => {
            let done = set.with(|inner| change(set, inner, epfd, (fd, registration), events, data));
            inside::note_edges(set, registration);
            done
        }
        (libc::EPOLL_CTL_DEL, _, Some(registration)) => {
            set.with(|inner| remove(set, index, inner, epfd, (fd, registration)))
        }
        _ => Outcome::Libc,
    }
}

/// EPOLL_CTL_MOD of `fd`, whose registration this is.
fn change(
    set: &Set,
    inner: &mut Inner,
    epfd: c_int,
    (fd, registration): (c_int, u32),
    events: u32,
    data: u64,
) -> Outcome<c_int> {
    if !is_still(set, inner, fd, registration) {
        return Outcome::Libc;
    }
    let Some(entry) = inner.registrations.get_mut(registration as usize) else {
        return Outcome::Libc;
    };
    let events = if entry.plain { events } else { events & !shared::MARKS };
    if (entry.events | events) & libc::EPOLLEXCLUSIVE as u32 != 0 {
        // An error of the kernel's, if it has the registration at all: the number may be another's.
        return Outcome::Libc;
    }
    let before = (entry.data, entry.known);
    let since = order::begins_anew(entry);
    // What the kernel would have in its list still, as nobody has taken it: no edge for outer sets.
    let ends = |endpoint| inner.nested && edges::has_untold_end(entry, endpoint);
    let taken =
        |endpoint| entry.wants(libc::EPOLLET) && entry.was_told(key(endpoint)) && !ends(endpoint);
    let is_listed = !entry.disabled && !entry.endpoint().is_some_and(taken);
    let beside = if is_listed && inner.nested { come_beside_room(entry) } else { None };
    let alone = !set.shared.load(Ordering::Relaxed);
    let left_listed = inner.nested && alone && may_be_listed_in_vain(entry);
    let hides_token = inner.nested && hides_token(entry, events);
    let witnessed = witness::changes(inner, registration, events);
    name(set, inner, registration, data);
    let Some(entry) = inner.registrations.get_mut(registration as usize) else {
        return Outcome::Libc;
    };
    shared::arms(set, entry);
    if left_listed {
        let _ = kernel_control(epfd, libc::EPOLL_CTL_DEL, fd, 0, 0);
        entry.in_kernel = false;
    }
    let operation = if entry.in_kernel { libc::EPOLL_CTL_MOD } else { libc::EPOLL_CTL_ADD };
    if let Err(errno) = kernel_control(epfd, operation, fd, events, entry.known) {
        forget_data(inner, registration);
        is_known(inner, registration, before.0, before.1);
        return Outcome::Failed(errno);
    }
    entry.mask(set, false);
    entry.loud = false;
    entry.rearm();
    entry.events = events;
    entry.retold_outside |= hides_token;
    forget_told_of(entry, is_listed, beside);
    entry.turn.begin(since);
    order::enters(entry);
    entry.in_kernel = true;
    shared::told(set, entry);
    if let Some(slot) = entry.slot {
        local_bits(slot, writes(events), 0);
    }
    if witnessed {
        witness::changed(inner, registration);
    }
    make_hot(inner, registration);
    heed(set, inner);
    ask_soon(inner, registration);
    Outcome::Done(0)
}

/// What is known of a slot's registrations by what one asks for: see [`local`].
fn writes(events: u32) -> u8 {
    if events & libc::EPOLLOUT as u32 != 0 { local::WRITES } else { 0 }
}

/// EPOLL_CTL_DEL of `fd`, whose registration this is.
fn remove(
    set: &Set,
    index: u32,
    inner: &mut Inner,
    epfd: c_int,
    (fd, registration): (c_int, u32),
) -> Outcome<c_int> {
    if !is_still(set, inner, fd, registration) {
        return Outcome::Libc;
    }
    unlink(fd, index);
    let in_kernel =
        inner.registrations.get(registration as usize).is_some_and(|entry| entry.in_kernel);
    let slot = inner.registrations.get(registration as usize).and_then(|entry| entry.slot);
    let removed = kernel_control(epfd, libc::EPOLL_CTL_DEL, fd, 0, 0);
    if let Some(entry) = inner.registrations.get_mut(registration as usize) {
        shared::told(set, entry);
    }
    hot::disarm(inner, registration);
    witness::ends(inner, registration);
    inner.by_fd.remove(&fd);
    drop_registration(set, inner, registration);
    if let Some(slot) = slot {
        unregistered(fd, slot);
    }
    match removed {
        Err(errno) if in_kernel => Outcome::Failed(errno),
        _ => Outcome::Done(0),
    }
}

/// May the kernel still have a registration in its list of what is ready, for a token that was
/// swept away since? A change of it would be no edge then for the sets that this one is in. (What
/// it calls ready is there by right, or comes to be.)
fn may_be_listed_in_vain(entry: &Registration) -> bool {
    // Bytes that came and were not taken from the list leave it there plainly, too.
    let came =
        |endpoint| is_told(entry.noted, key(endpoint)) && !is_told(entry.seen, key(endpoint));
    if entry.endpoint().is_some_and(came) {
        return false;
    }
    let carried = entry.endpoint().is_some_and(|endpoint| endpoint.slot().stage() == Stage::Active);
    carried && entry.in_kernel && sys::poll(entry.fd, (entry.interest() & 0x3fff) as i16, 0) == 0
}

/// What was told of a registration that is changed comes anew. What outer sets know of it they know
/// on where it `is_listed`, and bytes that have come `beside` room.
fn forget_told_of(entry: &mut Registration, is_listed: bool, beside: Option<u64>) {
    let noted = (entry.noted, entry.noted_room && entry.room, entry.noted_ends);
    entry.forget_told();
    if is_listed {
        (entry.noted, entry.noted_room, entry.noted_ends) = noted;
    }
    if let Some(key) = beside {
        entry.note_come(key);
    }
}

/// A registration is in the kernel's list for the sake of room, and nobody asked for bytes: up to
/// where they have come all the same. To ask for them makes no edge then.
fn come_beside_room(entry: &Registration) -> Option<u64> {
    let room = entry.wants(libc::EPOLLOUT) && !entry.masked;
    let listed = room && (entry.room || !entry.wants(libc::EPOLLET)) && entry.events & IN == 0;
    let endpoint = entry.endpoint().filter(|endpoint| listed && endpoint.rx_in_ring())?;
    Some(key(endpoint))
}

/// Is a wake-up looked for no more, which lies there and was an edge for outer sets?
fn hides_token(entry: &Registration, events: u32) -> bool {
    let lies = |endpoint: Endpoint<'_>| {
        endpoint.receives_by_ring() && kernel::readable(endpoint.fd()) != 0
    };
    !entry.disabled
        && entry.events & IN != 0
        && events & IN == 0
        && entry.endpoint().is_some_and(lies)
}

/// The kernel may have to tell of a registration that was changed: the next wait asks, where not
/// all of that is in a ring, room for what is sent among it, or where what is told of a ring would
/// be told once more.
pub(super) fn ask_soon(inner: &mut Inner, registration: u32) {
    let Some(entry) = inner.registrations.get(registration as usize) else { return };
    let endpoint = entry.endpoint().filter(|endpoint| endpoint.slot().stage() == Stage::Active);
    let by_kernel = |endpoint: Endpoint<'_>| {
        let room = entry.wants(libc::EPOLLOUT) && !endpoint.tx_in_ring();
        room || !endpoint.rx_in_ring() || endpoint.may_have_ended()
    };
    // (What was armed at once, for another process that has the set, is not looked at in the next
    // wait.)
    if !entry.hot || entry.wants(libc::EPOLLET) || endpoint.is_none_or(by_kernel) {
        inner.looked = 0;
    }
}

/// Is this still `fd`'s registration, with everything told? Another thread may have removed it, or
/// be about to.
fn is_still(set: &Set, inner: &mut Inner, fd: c_int, registration: u32) -> bool {
    late::tell_of(set, inner, registration);
    inner.by_fd.get(&fd) == Some(&registration)
}

pub(super) fn add(
    set: &'static Set,
    index: u32,
    epfd: c_int,
    fd: c_int,
    events: u32,
    data: u64,
) -> Outcome<c_int> {
    if fds::get(fd) == Entry::Unknown {
        recover(fd);
    }
    let entry = runtime::classify(fd);
    // Elsewhere it may be removed, and the kernel does not know.
    late::tell_of_descriptor(fd);
    let plain = !entry.is_tcp();
    let events = if plain { events } else { events & !shared::MARKS };
    let slot = match entry {
        Entry::Endpoint(slot) | Entry::Inherited(slot) => Some(slot),
        _ => None,
    };
    let inner_set = match entry {
        Entry::Epoll(number) => Some(number),
        _ => None,
    };
    let fresh = Registration {
        fd,
        slot,
        events,
        plain,
        inner_set,
        used: true,
        in_kernel: true,
        ..Registration::default()
    };
    let outcome = set.with(|inner| register(set, index, inner, epfd, fresh, data));
    if let (Some(number), Ok(place)) = (inner_set, outcome) {
        inside::begins(number);
        inside::note_edges(set, place);
    }
    match outcome {
        Err(errno) => Outcome::Failed(errno),
        Ok(_) if plain => Outcome::Done(0),
        Ok(place) => {
            link(fd, slot, (index, place), events);
            Outcome::Done(0)
        }
    }
}

/// Enters a registration and tells the kernel; which one it is.
///
/// # Errors
/// The kernel's.
fn register(
    set: &'static Set,
    index: u32,
    inner: &mut Inner,
    epfd: c_int,
    fresh: Registration,
    data: u64,
) -> Result<u32, c_int> {
    let (fd, plain, events) = (fresh.fd, fresh.plain, fresh.events);
    let place = free_place(inner);
    let listed = inner.registrations.get(place as usize).is_some_and(|entry| entry.listed);
    if let Some(&noted) = inner.by_fd.get(&fd) {
        late::tell_of(set, inner, noted);
    }
    // The number's registration of before, if the kernel agrees that it is gone.
    let before = inner.by_fd.get(&fd).copied();
    if let Some(entry) = inner.registrations.get_mut(place as usize) {
        *entry = Registration { listed, ..fresh };
        entry.turn.begin(ticks());
        entry.edges = entry.edges_made();
        if set.shared.load(Ordering::Relaxed) {
            entry.lend(set);
            entry.forget_told();
        }
        shared::arms(set, entry);
    }
    name(set, inner, place, data);
    let told = inner.registrations.get(place as usize).map_or(data, |entry| entry.known);
    let mut added = kernel_control(epfd, libc::EPOLL_CTL_ADD, fd, events, told);
    if added == Err(libc::ENOSPC) && !inner.late.is_empty() {
        // The user's limit of watches, and some of them are removed.
        late::tell(set, inner);
        added = kernel_control(epfd, libc::EPOLL_CTL_ADD, fd, events, told);
    }
    if let Err(errno) = added {
        forget_data(inner, place);
        if let Some(entry) = inner.registrations.get_mut(place as usize) {
            entry.used = false;
        }
        inner.free.push(place);
        return Err(errno);
    }
    if let Some(before) = before {
        unlink(fd, index);
        drop_registration(set, inner, before);
    }
    inner.by_fd.insert(fd, place);
    if let Some(entry) = inner.registrations.get_mut(place as usize) {
        order::enters(entry);
        shared::told(set, entry);
    }
    if !plain {
        set.size.fetch_add(1, Ordering::AcqRel);
    }
    inside::note(set, inner, place);
    witness::added(inner, place);
    make_hot(inner, place);
    order::one_more(inner, place);
    heed(set, inner);
    ask_soon(inner, place);
    Ok(place)
}

/// A place for one more registration.
fn free_place(inner: &mut Inner) -> u32 {
    inner.free.pop().unwrap_or_else(|| {
        inner.registrations.push(Registration::default());
        // It is made hot where nothing may be taken from an allocator.
        let more = inner.registrations.len().saturating_sub(inner.hot.len());
        inner.hot.reserve(more);
        inner.order.reserve(inner.registrations.len());
        u32::try_from(inner.registrations.len() - 1).unwrap_or(0)
    })
}

/// Enters a registration of a TCP socket among those of its descriptor and of its slot.
fn link(fd: c_int, slot: Option<u32>, place: Place, events: u32) {
    let places = BY_FD.with(|map| {
        let places = map.get_or_insert_with(Map::default).entry(fd).or_default();
        places.push(place);
        places.len()
    });
    if let Some(slot) = slot {
        let before = local_of(slot);
        local_bits(slot, local::REGISTERED | writes(events), 0);
        if places > 1 || before & local::REGISTERED != 0 {
            share(slot);
        }
    } else if let Entry::Endpoint(slot) = fds::get(fd) {
        // Another thread used it for the first time meanwhile, and found no registration yet.
        adopted(fd, slot);
    }
}
