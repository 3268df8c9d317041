//! Registrations whose number is closed here while another process has the socket.
//!
//! The kernel goes on telling of such a one, to every process that has the set, and this process
//! has no number by which it could look at the connection's rings. So if it waits on the set again,
//! whoever writes to the connection is to send a wake-up over TCP with the next byte, which the
//! kernel tells of. Where bytes lie in the ring by then, the connection is recalled to TCP for
//! good. Not before: most that close what they inherited never wait on a set of their parent's,
//! whose connections these are.

use super::collect::{ENDS, IN, OUT};
use super::edges::{BYTES, key, marks};
use super::registration::is_told;
use super::told::Purpose;
use super::{Inner, Registration, Set, kernel_control, owed, shared, shrinks};
use crate::runtime;
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use ginnel_ring::park::Want;
use ginnel_tcp::Endpoint;
use ginnel_tcp::hand_over;
use ginnel_tcp::ledger::{Reason, Stage, TOLD, flag};

/// A connection of which this process has no number any more.
#[derive(Clone, Copy)]
pub(super) struct Lost {
    /// Its registration.
    place: u32,
    slot: u32,
    cookie: u64,
    /// Edge-triggered: the [key] of all that was told of.
    told: Option<u64>,
    /// … which [ends](marks) were told with it …
    ended: u32,
    /// … and as many edges of the programs' own making: see [`super::edge`].
    edges: u32,
    /// Edge-triggered: room is yet to be told of.
    room: bool,
    recalled: bool,
}

/// For how many milliseconds a wait looks whether what lay in the ring comes over TCP.
const PATIENCE: usize = 5;

/// The number of registration `index` is about to be closed, and another process has its socket.
pub(super) fn begins(set: &Set, inner: &mut Inner, index: u32, endpoint: Option<Endpoint<'_>>) {
    inner.hot.retain(|hot| *hot != index);
    let Some(entry) = inner.registrations.get_mut(index as usize) else { return };
    tell_as_it_is(set, entry);
    let told = entry.wants(libc::EPOLLET).then(|| entry.told());
    let (ended, edges, room) = (entry.ended, entry.edges, entry.room);
    entry.turn.give_up();
    (entry.slot, entry.hot, entry.plain, entry.outlived) = (None, false, true, true);
    shrinks(set, inner, 1);
    if let Some(endpoint) = endpoint {
        let cookie = endpoint.slot().cookie.load(Ordering::Relaxed);
        inner.outlived.push(Lost {
            place: index,
            slot: endpoint.index(),
            cookie,
            told,
            ended,
            edges,
            room,
            recalled: false,
        });
        set.outlived.store(true, Ordering::Relaxed);
    }
}

/// The number of a registration is about to be closed, and its socket has others, here or in another
/// process: the kernel can be told nothing more of it, and is to tell all that the program asked for.
pub(super) fn tell_as_it_is(set: &Set, entry: &mut Registration) {
    if !entry.masked && !entry.loud {
        return;
    }
    let spends = entry.loud && entry.wants(libc::EPOLLONESHOT);
    entry.mask(set, false);
    entry.loud = false;
    // The number is noted as nobody's by now, and the kernel closes it after this. (Where it was
    // closed past the hooks, this fails, and so it does for one that is exclusive.) Of edges nothing
    // is masked, and to tell it of them would make one. But a shot would be spent for what was not
    // asked for.
    let epfd = set.fd.load(Ordering::Relaxed);
    // (Another process that has the set may have told its shot by now.)
    if (spends || !entry.wants(libc::EPOLLET)) && !shared::is_shot(set, epfd, entry) {
        let _ = kernel_control(epfd, libc::EPOLL_CTL_MOD, entry.fd, entry.interest(), entry.known);
        shared::told(set, entry);
    }
}

/// Somebody asks the set: what was lost by now is told of by the kernel alone.
pub(super) fn recall(set: &Set) {
    if !set.outlived.load(Ordering::Relaxed) {
        return;
    }
    let lost = set.with(|inner| {
        set.outlived.store(false, Ordering::Relaxed);
        let new = inner.outlived.iter().filter(|lost| !lost.recalled).copied().collect::<Vec<_>>();
        inner.outlived.retain(|lost| lost.endpoint().is_some());
        inner.outlived.iter_mut().for_each(|lost| lost.recalled = true);
        new
    });
    let is_recalled = |lost: &Lost| lost.recall().filter(|endpoint| !lost.owes(set, *endpoint));
    let recalled: Vec<Endpoint<'static>> = lost.iter().filter_map(is_recalled).collect();
    for _ in 0..if recalled.is_empty() { 0 } else { PATIENCE } {
        sys::sleep_ms(1);
        // Each piece is an edge of the kernel's, as the wake-up before it is: the program is told
        // of one.
        if recalled.iter().all(|endpoint| endpoint.was_sent_again()) {
            return;
        }
    }
}

/// Registration `index` is gone.
pub(super) fn forget(inner: &mut Inner, index: u32) {
    inner.outlived.retain(|lost| lost.place != index);
}

/// The kernel's `events` of registration `index`, which is `entry`, with what it does not tell: the
/// error that it tells once, where a look at the connection has taken that; and, but where edges are
/// told, bytes that lie in the ring or are on their way to TCP.
pub(super) fn whole(all: &[Lost], index: u32, entry: &Registration, events: u32) -> u32 {
    let lost = all.iter().find(|lost| events != 0 && lost.place == index);
    let Some(endpoint) = lost.and_then(Lost::endpoint) else { return events };
    let hung_up = events & libc::EPOLLHUP as u32 != 0;
    let error = if hung_up && endpoint.keeps_error() { libc::EPOLLERR as u32 } else { 0 };
    let in_ring = || endpoint.rx_in_ring() || endpoint.is_before_ring();
    let unread = || endpoint.ring_bytes() > 0 && in_ring();
    // A shot is spent for all that there is.
    let all = entry.wants(libc::EPOLLONESHOT) || !entry.wants(libc::EPOLLET);
    let bytes = if all && entry.events & IN & !events != 0 && unread() { IN } else { 0 };
    events | error | entry.events & bytes
}

/// What of the kernel's `events` of registration `index`, whose edges are told, is news: another
/// process that has it may have told of the same bytes, and had the kernel tell of them anew.
pub(super) fn edge(all: &mut [Lost], index: u32, events: u32, purpose: Purpose) -> u32 {
    let Some(lost) = all.iter_mut().find(|lost| lost.place == index) else { return events };
    let room = lost.room;
    lost.room &= events & OUT == 0 || purpose == Purpose::Asking;
    let Some(endpoint) = lost.endpoint().filter(|_| events & IN != 0) else { return events };
    // (Who has a number of it need not have followed the writer there yet.)
    let in_ring =
        endpoint.is_before_ring() || endpoint.rx_in_ring() && endpoint.look_at_ring().is_some();
    let (slot, ends) = (endpoint.slot(), events & ENDS | marks(endpoint));
    let in_common = slot.told_of.load(Ordering::Acquire) != u64::MAX;
    let told = if in_common {
        slot.told.load(Ordering::Acquire)
    } else {
        lost.told.map_or(0, |told| told | TOLD)
    };
    // What comes over TCP since it was recalled is the kernel's to tell, but what lay in the ring
    // and was told of.
    let of_channel = told & TOLD != 0 && (told ^ key(endpoint)) & !(BYTES | TOLD) == 0;
    let known = if in_ring {
        told == key(endpoint) | TOLD
    } else {
        of_channel && endpoint.was_all_in_ring(told & BYTES)
    };
    let edges = slot.edges.load(Ordering::Acquire);
    if known && ends & !lost.ended == 0 && edges == lost.edges {
        return events & !(IN | OUT | ENDS);
    }
    // (Frozen bytes lie there, and are on their way to TCP.)
    let is_token = endpoint.ring_bytes() == 0
        && match in_ring {
            true => endpoint.rx_in_ring() && endpoint.look_at_ring() == Some(false),
            false => endpoint.was_all_in_ring(endpoint.unread_from() & BYTES),
        };
    if is_token && ends & !lost.ended == 0 && edges == lost.edges {
        return events & !(IN | ENDS | if room { 0 } else { OUT });
    }
    if purpose == Purpose::Telling {
        lost.edges = edges;
    }
    if !in_ring {
        return events;
    }
    if purpose == Purpose::Telling {
        // What comes after this is to bring a wake-up.
        let _ = endpoint.arm_past(Want::Token);
        let key = key(endpoint);
        (lost.told, lost.ended) = (Some(key), lost.ended | ends);
        if in_common {
            slot.told.store(key | TOLD, Ordering::Release);
        }
    }
    events
}

impl Lost {
    /// `None` where it has ended, or is another by now.
    fn endpoint(&self) -> Option<Endpoint<'static>> {
        // Without a number: nothing that is done with it asks the kernel.
        let endpoint = runtime::endpoint(-1, self.slot)?;
        let slot = endpoint.slot();
        (slot.cookie.load(Ordering::Relaxed) == self.cookie && slot.stage() == Stage::Active)
            .then_some(endpoint)
    }

    /// Where edges are told: notes bytes of the ring that were not told of, to be told now. The
    /// kernel has them once the other end has sent them again, and they are known then. False: they
    /// are the kernel's to tell.
    fn owes(&self, set: &Set, endpoint: Endpoint<'_>) -> bool {
        set.with(|inner| {
            let entry = inner.registrations.get(self.place as usize).filter(|entry| entry.outlived);
            let Some(entry) = entry else { return false };
            let shot = entry.wants(libc::EPOLLONESHOT);
            let in_ring = endpoint.rx_in_ring() && endpoint.ring_bytes() > 0;
            if self.told.is_none() || shot || entry.events & IN == 0 || !in_ring {
                return false;
            }
            let slot = endpoint.slot();
            let full = if endpoint.tx_in_ring() {
                !endpoint.writable()
            } else {
                slot.has(flag::KERNEL_FULL)
            };
            let events = entry.events & (IN | if full { 0 } else { OUT });
            owed::note(set, inner, self.place, events);
            true
        })
    }

    /// Has the kernel told of it. Returns it if bytes may yet come over TCP.
    fn recall(&self) -> Option<Endpoint<'static>> {
        // Where it has ended and another has its slot just now, that one goes on over TCP: a pity,
        // no harm.
        let endpoint = self.endpoint()?;
        let slot = endpoint.slot();
        if endpoint.is_best_read_in_ring() {
            // That it has ended is what the kernel tells.
            return None;
        }
        // Whoever reads it until it is empty arms it so again, from now on.
        slot.set(flag::SHARED, true);
        let armed = endpoint.arm_past(Want::Token).is_ok();
        let told = self.told.is_some_and(|told| is_told(told, key(endpoint)));
        if armed && (told || !endpoint.ring_is_filled()) {
            return None;
        }
        endpoint.request_downgrade();
        hand_over::hold(endpoint, Reason::HandedOver);
        Some(endpoint)
    }
}
