//! EPOLLOUT while a ring is full: the kernel nearly always calls the socket writable, so its
//! interest in room is taken away and given back.
//!
//! 1. A send finds the ring full ([`filled`]), or a look at a registration finds no room. EPOLLOUT
//!    is taken out of what the kernel is asked ([`Registration::hide`]); where edges are told it
//!    stays, since the kernel tells of its own room only as that changes. What a masked
//!    registration asks the kernel is [`Registration::interest`].
//! 2. Who waits on the set looks at the ring ([`unmask`]), by itself while the registration is hot,
//!    now and then where it is not ([`heat_masked`]), or is rung for it: the reader is asked for
//!    that by `arm_space`, as in every sleep.
//! 3. Once there is room, or TCP carries again, the kernel is asked for EPOLLOUT anew, which makes
//!    the edge that the program waits for. What the kernel says by then is true, or is taken back
//!    once more ([`with_room`]).
//!
//! What is an edge is told in [`super::edges`].

use super::collect::OUT;
use super::news::{places_of_slot, stir_of};
use super::{Inner, Registration, Set, inside, local, local_of, make_hot, retell, set_at, shared};
use crate::bell;
use crate::spin::ticks;
use core::sync::atomic::Ordering;
use ginnel_tcp::ledger::{Stage, flag};
use ginnel_tcp::{Endpoint, kernel};
use libc::c_int;

/// A send found the ring full (EAGAIN, or a short write): takes EPOLLOUT out of the kernel's
/// interest until there is room.
pub fn filled(endpoint: Endpoint<'static>) {
    let index = endpoint.index();
    endpoint.slot().set(flag::RING_FULL, true);
    if mask_until_room(endpoint, index).is_none() {
        bell::catch_up(index);
    }
}

pub(super) fn mask_until_room(endpoint: Endpoint<'static>, slot: u32) -> Option<()> {
    if local_of(slot) & local::WRITES == 0 {
        return Some(());
    }
    for (index, registration) in places_of_slot(endpoint, slot)? {
        let Some(set) = set_at(index) else { continue };
        shared::look(set, set.fd.load(Ordering::Relaxed));
        set.soon(|inner| {
            let epfd = set.fd.load(Ordering::Relaxed);
            if let Some(entry) = inner.registrations.get_mut(registration as usize)
                && entry.used
                && entry.wants(libc::EPOLLOUT)
                && !entry.masked
                && !entry.disabled
            {
                if !entry.wants(libc::EPOLLET) {
                    // There was room until now, so it is in the kernel's list.
                    entry.turn.stays();
                }
                entry.hide(set, epfd);
            }
            make_hot(inner, registration);
            stir_of(set, inner, Some(registration));
        })?;
    }
    Some(())
}

impl Registration {
    /// Masks EPOLLOUT, and tells the kernel where that changes its interest: telling it again would
    /// make it report again. True if it was told.
    pub(super) fn hide(&mut self, set: &Set, epfd: c_int) -> bool {
        let before = self.interest();
        self.mask(set, true);
        let changes = self.interest() != before;
        if changes && !shared::is_shot(set, epfd, self) {
            retell(set, epfd, self);
        }
        if let Some(endpoint) = self.endpoint() {
            endpoint.probe_half_closed();
        }
        changes
    }

    /// Takes EPOLLOUT out of the kernel's interest, or puts it back, as soon as the kernel is told.
    pub(super) fn mask(&mut self, set: &Set, on: bool) {
        match (self.masked, on) {
            (false, true) => {
                self.noted_room = false;
                set.masked.fetch_add(1, Ordering::AcqRel)
            }
            (true, false) => set.masked.fetch_sub(1, Ordering::AcqRel),
            _ => return,
        };
        self.masked = on;
    }
}

/// There is room, or TCP is the carrier again: the kernel reports it, edge and all. True if that is
/// new.
pub(super) fn unmask(
    set: &Set,
    epfd: c_int,
    entry: &mut Registration,
    endpoint: Endpoint<'_>,
) -> bool {
    if !entry.masked {
        return false;
    }
    let left = endpoint.slot().stage() != Stage::Active || endpoint.reader_died();
    let news = left || !endpoint.tx_in_ring() || endpoint.writable();
    if news {
        entry.mask(set, false);
        entry.room = true;
        if !shared::is_shot(set, epfd, entry) {
            retell(set, epfd, entry);
        }
    }
    news
}

/// [`unmask`] for everything hot: a set that is only asked about, from outside, is never
/// examined.
pub(super) fn unmask_hot(set: &Set, inner: &mut Inner) {
    if set.masked.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Inner { hot, registrations, .. } = inner;
    for &index in hot.iter() {
        let Some(entry) =
            registrations.get_mut(index as usize).filter(|entry| entry.used && !entry.disabled)
        else {
            continue;
        };
        if let Some(endpoint) = entry.endpoint() {
            unmask(set, set.fd.load(Ordering::Relaxed), entry, endpoint);
        }
    }
}

/// Registrations that wait for room become hot, some hundred times a second at most: a token that
/// says that there is room may have been thrown away by another reader of the same socket.
pub(super) fn heat_masked(set: &Set) {
    const EVERY: u64 = 2_000_000;
    if set.masked.load(Ordering::Relaxed) != 0 {
        set.with(|inner| {
            if ticks().wrapping_sub(inner.searched) > EVERY {
                inner.searched = ticks();
                for index in 0..inner.registrations.len() {
                    if inner.registrations.get(index).is_some_and(|entry| entry.masked) {
                        make_hot(inner, u32::try_from(index).unwrap_or(0));
                    }
                }
            }
        });
    }
}

/// Does a registration of set `index`, or of one inside it, wait for room in a ring?
pub fn waits_for_room(index: u32) -> bool {
    set_at(index).is_some_and(waiting_for_room)
}

pub(super) fn waiting_for_room(set: &Set) -> bool {
    set.masked.load(Ordering::Acquire) != 0
        || set
            .with(|inner| inside::awaited(inner))
            .into_iter()
            .any(|(child, _)| waits_for_room(child))
}

/// Puts into `events` whether there is room to send. Returns whether the kernel was told anew what
/// to look for.
pub(super) fn with_room(
    set: &Set,
    epfd: c_int,
    entry: &mut Registration,
    endpoint: Endpoint<'static>,
    events: &mut u32,
) -> bool {
    let unmasked = unmask(set, epfd, entry, endpoint);
    if !(unmasked && entry.events & OUT != 0 || *events & OUT != 0) {
        return unmasked;
    }
    let told = *events & OUT != 0 || kernel::writable(endpoint.fd());
    if endpoint.sendable(told) {
        *events |= entry.events & OUT;
        return unmasked;
    }
    *events &= !OUT;
    endpoint.tx_in_ring() && entry.hide(set, epfd) || unmasked
}
