//! What is looked at in every wait (*hot*), and what is armed instead.

use super::collect::{IN, cooled};
use super::doors::{self, Door};
use super::edges::key;
use super::registration::is_told;
use super::room::unmask_hot;
use super::{Inner, Registration, Set, fifo_tag, kernel_control, late, make_hot, want};
use crate::spin::{self};
use ginnel_node::node::Standing;
use ginnel_node::waiter::Waiter;
use ginnel_ring::park::Want;
use ginnel_ring::prefetch;
use ginnel_tcp::Attachment;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::Stage;
use ginnel_tcp::rx::Watch;
use libc::c_int;
use smallvec::SmallVec;

/// Arms a registration's channel. False: there is something to report. `past`: something that outer
/// sets have not been told of.
pub(super) fn armed(inner: &Inner, index: u32, endpoint: Endpoint<'static>, past: bool) -> bool {
    let Some(entry) = inner.registrations.get(index as usize) else { return true };
    if entry.disabled || endpoint.slot().stage() != Stage::Active {
        return true;
    }
    let want = want(inner, index, endpoint);
    if entry.events & IN != 0 && endpoint.rx_in_ring() && endpoint.look_at_ring().is_none() {
        // A switch is due. What comes over TCP the kernel tells of, and once.
        let _ = endpoint.tidy();
    }
    if endpoint.rx_in_ring() && entry.events & IN != 0 {
        let told = |key: u64| {
            entry.wants(libc::EPOLLET) && entry.was_told(key) || past && is_told(entry.noted, key)
        };
        let silent = told(key(endpoint));
        if endpoint.arm_data(want).is_none() && !silent {
            return false;
        }
        if silent {
            // Edge-triggered, reported, not read: only what comes after it is news.
            if endpoint.arm_past(want).is_err() || !told(key(endpoint)) {
                return false;
            }
        }
    }
    if entry.masked && endpoint.arm_space(want).is_none() {
        return false;
    }
    true
}

/// Takes back what a registration armed, which the program has taken out of the set: the next who
/// sleeps on the connection is to be the only one.
pub(super) fn disarm(inner: &Inner, index: u32) {
    let endpoint = inner.registrations.get(index as usize).and_then(Registration::endpoint);
    if let Some(endpoint) = endpoint.filter(|endpoint| endpoint.slot().stage() == Stage::Active) {
        let want = want(inner, index, endpoint);
        if want != Want::Token {
            endpoint.disarm_data(want);
        }
    }
}

/// Arms every hot registration. False: there is something to report.
pub(super) fn arm_hot(set: &Set, inner: &mut Inner) -> bool {
    late::tell(set, inner);
    unmask_hot(set, inner);
    let mut hot = core::mem::take(&mut inner.hot);
    hot.retain(|&index| {
        let endpoint = inner.registrations.get(index as usize).and_then(Registration::endpoint);
        let sleeps = endpoint.is_none_or(|endpoint| armed(inner, index, endpoint, false));
        if sleeps {
            cooled(inner, index);
            if inner
                .registrations
                .get(index as usize)
                .is_some_and(|entry| entry.wants(libc::EPOLLOUT))
            {
                // Its room is the kernel's to tell from here on: the next wait asks, whatever rings
                // have.
                inner.looked = 0;
            }
        }
        !sleeps
    });
    inner.hot = hot;
    inner.hot.is_empty()
}

/// Gives the set a waiter, where it may have one. To be called before anything is armed: what is
/// armed without is woken by tokens for as long as it lasts.
pub(super) fn make_waiter(
    set: &Set,
    attachment: &'static Attachment,
    epfd: c_int,
    inner: &mut Inner,
) {
    if inner.waiter.is_none() && !inner.waiter_tried {
        inner.waiter_tried = true;
        if let Ok(waiter) = Waiter::new(&attachment.node) {
            let _ = kernel_control(
                epfd,
                libc::EPOLL_CTL_ADD,
                waiter.fifo(),
                libc::EPOLLIN as u32,
                fifo_tag(),
            );
            inner.waiter = Some(waiter);
        } else {
            // To be had again, perhaps, after the process has joined.
            inner.waiter_lost = attachment.node.standing() != Standing::Here;
        }
    }
    doors::open(set, attachment, epfd, inner);
}

/// [`heed_bells`] under the lock.
#[inline]
pub(super) fn rang(inner: &mut Inner, attachment: &Attachment) {
    if let Some(waiter) =
        inner.waiter.filter(|waiter| waiter.any(&attachment.node.joined().segment))
    {
        waiter.take(&attachment.node.joined().segment, |bit| make_hot(inner, bit));
    }
    if !inner.doors.is_empty() {
        doors::rang(inner);
    }
}

/// What a look at a registration's ring needs to know of it.
#[derive(Clone, Copy)]
struct Watched {
    endpoint: Endpoint<'static>,
    /// Bytes are news …
    reads: bool,
    /// … unless they are told of already.
    told: Option<u64>,
    /// Room is news.
    masked: bool,
}

impl Watched {
    fn of(entry: &Registration) -> Option<Self> {
        let endpoint = entry.endpoint().filter(|endpoint| {
            entry.used && !entry.disabled && endpoint.slot().stage() == Stage::Active
        })?;
        let told = entry.wants(libc::EPOLLET).then(|| entry.told());
        Some(Self { endpoint, reads: entry.events & IN != 0, told, masked: entry.masked })
    }

    fn has_news(&self) -> bool {
        let bytes = self.reads && self.endpoint.rx_in_ring() && self.endpoint.readable();
        bytes && self.is_untold() || self.has_room()
    }

    /// Was the program not told of what its ring has?
    #[inline]
    fn is_untold(&self) -> bool {
        self.told.is_none_or(|told| !is_told(told, key(self.endpoint)))
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.masked && self.endpoint.writable()
    }
}

/// Everything hot that a ring may have news of.
fn watched(inner: &Inner) -> impl Iterator<Item = Watched> {
    inner
        .hot
        .iter()
        .filter_map(|index| inner.registrations.get(*index as usize))
        .filter_map(Watched::of)
}

/// Has a hot ring something to report?
pub(super) fn hot_has_news(inner: &Inner) -> bool {
    watched(inner).any(|watched| watched.has_news())
}

impl Registration {
    /// Its connection, if that has bytes to tell of which are changing carriers at this moment.
    pub(super) fn awaits_switch(&self) -> Option<Endpoint<'static>> {
        let untold = |endpoint| !(self.wants(libc::EPOLLET) && self.was_told(key(endpoint)));
        let endpoint = self.endpoint().filter(|_| self.used && !self.disabled)?;
        (self.events & IN != 0 && endpoint.is_switching() && untold(endpoint)).then_some(endpoint)
    }
}

/// A connection of which a wait that found nothing would tell, were its bytes not just changing
/// carriers.
pub(super) fn switching(set: &Set) -> Option<Endpoint<'static>> {
    set.inner.with(|inner| {
        let hot = |index: &u32| inner.registrations.get(*index as usize);
        inner.hot.iter().filter_map(hot).find_map(Registration::awaits_switch)
    })
}

/// Has a hot ring something to report? Counts what came to rings since that was last asked.
pub(super) fn note_arrivals(inner: &mut Inner) -> bool {
    let mut any = false;
    for at in 0..inner.hot.len() {
        let Some(&index) = inner.hot.get(at) else { break };
        any |= note_arrival(inner, index);
    }
    any
}

/// The same of registration `index`.
pub(super) fn note_arrival(inner: &mut Inner, index: u32) -> bool {
    let Inner { registrations, arrivals, .. } = inner;
    let Some(entry) = registrations.get_mut(index as usize) else { return false };
    let Some(watched) = Watched::of(entry) else { return false };
    let news = watched.has_news();
    // Also what was told of by now, or read: it came.
    let reads = watched.reads && watched.endpoint.rx_in_ring();
    if news || reads && entry.noted != u64::MAX {
        let key = key(watched.endpoint);
        if !is_told(entry.note_come(key), key) {
            *arrivals = arrivals.wrapping_add(1);
        }
    }
    news
}

/// Spins until a hot ring has something to report.
pub(super) fn spin_hot(set: &Set, attachment: &Attachment) -> bool {
    let together = || {
        set.with(|inner| {
            let mut hot = watched(inner).peekable();
            hot.peek().is_some() && hot.all(|watched| spin::together(watched.endpoint))
        })
    };
    let (waiter, doors, few) =
        set.with(|inner| (inner.waiter, inner.doors.clone(), Few::of(inner)));
    let rang = || {
        waiter.is_some_and(|waiter| waiter.any(&attachment.node.joined().segment))
            || doors.iter().any(Door::any)
    };
    // Few are looked at without the lock, in memory only: a slot is never unmapped, and what else
    // changes meanwhile is seen after the spin.
    let found = || {
        rang() || few.as_ref().map_or_else(|| set.with(|inner| hot_has_news(inner)), Few::has_news)
    };
    spin::spin_on(attachment, &set.habit, found, together)
}

/// The hot registrations of a set that has few, and where their rings are.
struct Few {
    list: SmallVec<[(Watched, Watch<'static>); 8]>,
}

impl Few {
    fn of(inner: &Inner) -> Option<Self> {
        let mut list = SmallVec::new();
        for watched in watched(inner) {
            if list.len() == list.inline_size() {
                return None;
            }
            list.push((watched, watched.endpoint.watch()));
        }
        Some(Self { list })
    }

    #[inline]
    fn has_news(&self) -> bool {
        self.list.iter().any(|(watched, watch)| {
            prefetch::to_read(watch.next_place());
            watched.reads && watch.is_filled() && watched.is_untold() || watched.has_room()
        })
    }
}
