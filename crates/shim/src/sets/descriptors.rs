//! What becomes of sets, and of registrations, as descriptors are made, duplicated and closed.

use super::{
    BY_FD, Inner, LOCAL, Place, Registration, SETS, Set, Spin, all_sets, doors, drop_registration,
    fresh, inside, kernel_control, late, outlived, places_of, registered, retell, set_at, unlink,
    unregistered, witness,
};
use crate::fds::{self, Entry};
use crate::mix::Map;
use crate::{bell, runtime};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use ginnel_region::sys;
use ginnel_tcp::Slot;
use ginnel_tcp::ledger::{Stage, flag};
use libc::c_int;

/// A new epoll set.
pub fn created(fd: c_int) {
    for (index, place) in SETS.iter().enumerate() {
        let mut set = place.load(Ordering::Acquire);
        if set.is_null() {
            let fresh = Box::into_raw(Box::new(Set {
                number: u32::try_from(index).unwrap_or(0),
                maker: AtomicU32::new(0),
                inner: Spin::new(Inner::default()),
                descriptors: AtomicU32::new(0),
                fd: AtomicI32::new(-1),
                size: AtomicU32::new(0),
                sleepers: AtomicU32::new(0),
                masked: AtomicU32::new(0),
                shared: AtomicBool::new(false),
                changes: AtomicU32::new(0),
                habit: crate::spin::Habit::new(),
                lively: AtomicBool::new(false),
                cold: AtomicBool::new(false),
                question: AtomicU64::new(0),
                still: AtomicBool::new(false),
                outlived: AtomicBool::new(false),
                echoes: AtomicBool::new(false),
            }));
            match place.compare_exchange(
                core::ptr::null_mut(),
                fresh,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => set = fresh,
                Err(other) => {
                    // SAFETY: just made, nobody has it.
                    drop(unsafe { Box::from_raw(fresh) });
                    set = other;
                }
            }
        }
        // SAFETY: sets are never freed.
        let set = unsafe { &*set };
        if set.descriptors.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            set.fd.store(fd, Ordering::Relaxed);
            set.maker.store(sys::pid(), Ordering::Relaxed);
            // A wait that was under way when the one before was closed may have said so.
            set.still.store(false, Ordering::SeqCst);
            return fds::set(fd, Entry::Epoll(set.number));
        }
    }
    fds::set(fd, Entry::Plain);
}

/// One more descriptor of a set.
pub fn duplicated(index: u32) {
    if let Some(set) = set_at(index) {
        set.descriptors.fetch_add(1, Ordering::AcqRel);
    }
}

/// A set's descriptor is closed.
pub fn closed(fd: c_int, index: u32) {
    let Some(set) = set_at(index) else { return };
    let last = set.descriptors.load(Ordering::Acquire) <= 1;
    inside::closed(fd, index, last);
    if !last {
        set.descriptors.fetch_sub(1, Ordering::AcqRel);
        if set.fd.load(Ordering::Relaxed) == fd {
            let other =
                fds::all().find(|(other, entry)| *other != fd && *entry == Entry::Epoll(index));
            set.fd.store(other.map_or(-1, |(other, _)| other), Ordering::Relaxed);
        }
        return;
    }
    let slot = |inner: &Inner, place: u32| {
        inner.registrations.get(place as usize).and_then(|entry| entry.slot)
    };
    let members: Vec<_> = set.with(|inner| {
        inner.by_fd.iter().map(|(&member, &place)| (member, slot(inner, place))).collect()
    });
    for (member, slot) in members {
        unlink(member, index);
        if let Some(slot) = slot {
            unregistered(member, slot);
        }
    }
    set.with(|inner| {
        doors::close(fd, inner);
        witness::close(inner);
        if let (Some(waiter), Some(attachment)) = (inner.waiter.take(), runtime::attachment()) {
            waiter.retire(&attachment.node);
        }
        *inner = Inner::default();
    });
    set.size.store(0, Ordering::Release);
    set.masked.store(0, Ordering::Release);
    set.shared.store(false, Ordering::Release);
    set.outlived.store(false, Ordering::Release);
    set.echoes.store(false, Ordering::Release);
    set.descriptors.store(0, Ordering::Release);
}

/// `fd`, a TCP socket, is about to be closed: its registrations go with it.
pub fn closing(fd: c_int, slot: Option<u32>) {
    let places = BY_FD.with(|map| map.as_mut().and_then(|map| map.remove(&fd)));
    let Some(places) = places else { return };
    let endpoint =
        slot.filter(|&slot| fds::count(slot) <= 1).and_then(|slot| runtime::endpoint(fd, slot));
    // A child that was forked just now may not have said yet that it has it.
    let several =
        |slot: &Slot| slot.has_several_holders() || slot.forking.load(Ordering::SeqCst) != 0;
    // Nor does one say so that was forked before this process used it first.
    let heir = |slot: &Slot| slot.has(flag::SPAWNED) && is_lent(&places, fd);
    let elsewhere = endpoint.filter(|endpoint| several(endpoint.slot()) || heir(endpoint.slot()));
    if let Some(endpoint) = elsewhere {
        // What the kernel tells is all that can be known here from now on: no token is to lie
        // there. (A look would take the error of one that has ended.)
        if !endpoint.may_have_ended() {
            let _ = endpoint.tidy();
        }
        endpoint.forgo_room();
    }
    for (index, registration) in places {
        let Some(set) = set_at(index) else { continue };
        set.with(|inner| {
            late::tell_of(set, inner, registration);
            inner.by_fd.remove(&fd);
            let of_fd = |entry: &&mut Registration| entry.used && entry.fd == fd;
            let Some(entry) = inner.registrations.get_mut(registration as usize).filter(of_fd)
            else {
                return;
            };
            let slot = slot.or(entry.slot);
            if slot.is_some_and(|slot| fds::count(slot) > 1) {
                // The kernel goes on reporting it for the other descriptors of the socket: so does
                // this.
                entry.slot = slot;
                return outlived::tell_as_it_is(set, entry);
            }
            if elsewhere.is_some() || slot.is_none() && entry.lent {
                return outlived::begins(set, inner, registration, elsewhere);
            }
            if slot.is_some_and(is_held_by_service) {
                // A kernel goes on reporting a closed descriptor while another thread's wait still
                // looks at the socket.
                let _ =
                    kernel_control(set.fd.load(Ordering::Relaxed), libc::EPOLL_CTL_DEL, fd, 0, 0);
            }
            drop_registration(set, inner, registration);
        });
    }
    if let Some(slot) = slot
        && fds::count(slot) <= 1
        && let Some(local) = LOCAL.get(slot as usize)
    {
        local.store(0, Ordering::Release);
    }
}

/// Was there a fork since `fd` was registered at one of these places?
fn is_lent(places: &[Place], fd: c_int) -> bool {
    places.iter().any(|&(index, registration)| {
        let lent = |inner: &mut Inner| {
            let entry = inner.registrations.get(registration as usize);
            entry.is_some_and(|entry| entry.used && entry.fd == fd && entry.lent)
        };
        set_at(index).is_some_and(|set| set.with(lent))
    })
}

/// `fd`, of this slot's socket, is about to be closed where no lock may be taken: the kernel is to
/// report it no more.
pub fn forsake(fd: c_int) {
    for set in all_sets() {
        let _ = kernel_control(set.fd.load(Ordering::Relaxed), libc::EPOLL_CTL_DEL, fd, 0, 0);
    }
}

/// May the service thread wait on the socket too, or begin to before the number is closed? Which
/// nobody else has.
fn is_held_by_service(slot: u32) -> bool {
    let Some(attachment) = runtime::attachment() else { return false };
    let of = attachment.ledger.slot(slot);
    of.is_alone()
        && (bell::is_watched(slot) || matches!(of.stage(), Stage::Settling | Stage::Active))
}

/// `fd` is a descriptor of this slot's socket, perhaps again: registrations that the socket had
/// under this number go on, and can be changed and removed again.
pub fn returned(fd: c_int, slot: u32) {
    if !registered(slot) {
        return;
    }
    for set in all_sets().filter(|set| set.holds_any()) {
        set.with(|inner| {
            let kept =
                |entry: &Registration| entry.used && entry.fd == fd && entry.slot == Some(slot);
            let Some(place) = inner
                .registrations
                .iter()
                .position(kept)
                .and_then(|place| u32::try_from(place).ok())
            else {
                return;
            };
            if inner.by_fd.insert(fd, place).is_none() {
                BY_FD.with(|map| {
                    map.get_or_insert_with(Map::default)
                        .entry(fd)
                        .or_default()
                        .push((set.number, place))
                });
            }
        });
    }
}

/// The connection of `fd` ends and its socket lives on: the kernel keeps the registrations, for the
/// next connection.
pub fn disconnecting(fd: c_int, slot: u32) {
    late::tell_of_descriptor(fd);
    let places = places_of(fd);
    for (index, registration) in places {
        let Some(set) = set_at(index) else { continue };
        set.with(|inner| {
            inner.hot.retain(|hot| *hot != registration);
            let Some(entry) = inner.registrations.get_mut(registration as usize) else { return };
            if entry.masked {
                entry.mask(set, false);
                if !entry.disabled {
                    retell(set, set.fd.load(Ordering::Relaxed), entry);
                }
            }
            (entry.slot, entry.hot, entry.idle) = (None, false, 0);
            entry.forget_told();
        });
    }
    if fds::count(slot) <= 1 {
        fresh(slot);
    }
}
