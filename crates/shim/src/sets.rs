//! Epoll sets: what the program registered, beside what the kernel was told.
//!
//! The kernel's set stays registered for every socket, and tells of connections, plain sockets,
//! FIN, errors and tokens. What it cannot see is ring bytes. So for TCP sockets this process keeps
//! each registration too, and finds it again by the program's own data; only where two
//! registrations of a set have the same data does the kernel's copy carry a tag instead. So a set
//! that another process shares (fork) or inherits (exec) still says what the program wrote there.
//!
//! A registration is *hot* while its ring is looked at in every wait, and *armed* otherwise: its
//! channel names the set's waiter and a bit. Only hot ones are looked at, and only what was hot is
//! armed before sleeping: the cost follows what happens, not what is registered. The kernel nearly
//! always calls an upgraded socket writable: while its ring is full, EPOLLOUT is taken out of the
//! kernel's interest (*masked*) and put back when there is room, which makes the edge.

mod arrange;
mod asked;
mod change;
mod collect;
mod descriptors;
mod doors;
mod edges;
mod hot;
mod inside;
mod late;
mod local;
mod lock;
mod look;
mod news;
mod order;
mod outlived;
mod owed;
mod places;
mod process;
mod registration;
mod room;
mod shared;
mod still;
mod tag;
mod told;
mod turn;
mod wait;
mod witness;

pub use asked::{arm_for_kernel, ready_at as ready, truly_ready};
pub use change::control;
pub use descriptors::{closed, closing, created, disconnecting, duplicated, forsake, returned};
pub use doors::part_with;
pub use edges::as_end;
pub use late::{lend, lend_inherited, tell_all, tell_set};
use local::{LOCAL, local_bits, local_of};
pub use local::{fresh, registered};
pub use news::{catch_up, edge, edge_begins, edge_comes, edge_of_bytes, emptied};
pub use process::{
    forget_parent, forget_slots, lock_all, moved, rejoined, retire_waiters, tag_again, unlock_all,
    untag,
};
pub use room::{filled, waits_for_room};
pub use shared::{look_before_close, recover};
pub use still::wait_still;
pub use wait::wait;

use crate::fds::{self, Entry};
use crate::mix::Map;
use crate::{bell, runtime};
use change::add;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use ginnel_node::waiter::Waiter;
use ginnel_tcp::ledger::flag;
use libc::c_int;
use lock::Spin;
use news::{stir, want};
use registration::{Registration, kernel_control, make_hot, retell};
use smallvec::SmallVec;
use tag::{fifo_tag, forget_data, is_tag, name, resolve};

const MAX_SETS: usize = 4096;

static SETS: [AtomicPtr<Set>; MAX_SETS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_SETS];
/// (set, registration).
type Place = (u32, u32);
/// The places of each descriptor.
static BY_FD: Spin<Option<Map<c_int, SmallVec<[Place; 2]>>>> = Spin::new(None);

#[derive(Default)]
struct Inner {
    registrations: Vec<Registration>,
    by_fd: Map<c_int, u32>,
    /// By what the kernel returns with their events.
    by_data: Map<u64, u32>,
    /// Had two registrations the same data, ever? Then data does not say whose an event is.
    alike: bool,
    lately: tag::Lately,
    /// Connections whose number is closed here, and that others have: see [`outlived`].
    outlived: Vec<outlived::Lost>,
    /// What was taken from the kernel and is yet to be told, of some of those: see [`owed`].
    owed: Vec<(u32, u32)>,
    free: Vec<u32>,
    removed: Removed,
    hot: Vec<u32>,
    /// Registrations of which the kernel was not told the last change, and some of which it was
    /// told since.
    late: Vec<u32>,
    /// Inner sets: (registration, its set's number).
    children: Vec<(u32, u32)>,
    /// How often something came to the rings of what is in it, as far as outer sets asked.
    arrivals: u64,
    /// Inner sets whose edge is told of in this wait, and comes once more: see [`inside::echoes`].
    echoes: Vec<u32>,
    /// By what it is known which edges are the kernel's own.
    witness: witness::Witness,
    /// The kernel told of an inner set, of which rings had told in the same wait.
    told_twice: bool,
    waiter: Option<Waiter>,
    /// By what it is woken for connections in the memory of pairs, where it has a waiter.
    doors: doors::Doors,
    /// Something lies in its FIFO, which is read with the next word to the kernel: see [`late`].
    full: bool,
    /// It was to have one, since something was about to be armed or a thread that slept was to be
    /// told something: it has, or may have none.
    waiter_tried: bool,
    /// It had a waiter, in a segment that was left.
    waiter_lost: bool,
    /// See [`Self::rung_elsewhere`]: since when, and how often since then.
    elsewhere: (u64, u32),
    /// Registered in another set, or polled: woken through the kernel only.
    nested: bool,
    looked: u64,
    /// As often others of the segment had said something over TCP when the kernel was asked last:
    /// what they put into rings since may come after it.
    by_tcp: u64,
    /// As often somebody had begun to; and when it was asked before.
    begun_by_tcp: u64,
    begun_before: u64,
    /// Before that, ticks: what is not counted in `begun_by_tcp` has begun since.
    asked: u64,
    /// Counts looks at the hot rings.
    passes: u64,
    /// Counts passes in which not all that may be ready had a place.
    favoured: u32,
    /// How many places the kernel used when it was asked last; twice as many where it used all that
    /// it had.
    share: usize,
    /// How many passes in a row have left every place to the kernel.
    passed_over: usize,
    /// When masked registrations were last looked for, ticks.
    searched: u64,
    order: order::Order,
    /// How many events of rings were told since the kernel was asked.
    unasked: usize,
}

impl lock::Heal for Inner {
    /// What was under way may have had a list in its hands.
    fn heal(&mut self) {
        self.hot.clear();
        self.late.clear();
        self.order.heal();
        for index in 0..u32::try_from(self.registrations.len()).unwrap_or(u32::MAX) {
            let Some(entry) = self.registrations.get_mut(index as usize) else { break };
            (entry.hot, entry.turn.due) = (false, 0);
            entry.listed = entry.late.is_some();
            if entry.listed {
                self.late.push(index);
            }
            make_hot(self, index);
        }
    }
}

impl lock::Heal for Option<Map<c_int, SmallVec<[Place; 2]>>> {
    fn heal(&mut self) {}
}

/// The registrations that were removed last (data, what was asked for): a wait may have asked the
/// kernel before, which was told to report more than that.
#[derive(Default)]
struct Removed {
    last: [(u64, u32); 16],
    next: usize,
}

impl Removed {
    fn note(&mut self, data: u64, events: u32) {
        self.next = (self.next + 1) % self.last.len();
        if let Some(place) = self.last.get_mut(self.next) {
            *place = (data, events);
        }
    }

    /// What was asked for with this data, by any of them.
    fn of(&self, data: u64) -> Option<u32> {
        self.last
            .iter()
            .filter(|(of, asked)| *of == data && *asked != 0)
            .map(|(_, asked)| *asked)
            .reduce(|a, b| a | b)
    }
}

/// One epoll set of this process.
pub struct Set {
    number: u32,
    /// The process that made it.
    maker: AtomicU32,
    inner: Spin<Inner>,
    descriptors: AtomicU32,
    fd: AtomicI32,
    /// Registrations and inner sets.
    size: AtomicU32,
    sleepers: AtomicU32,
    /// Registrations whose EPOLLOUT is masked.
    masked: AtomicU32,
    /// Another process has it, or had: see [`shared`].
    shared: AtomicBool,
    /// As many changes of registrations, anybody's, are known here.
    changes: AtomicU32,
    habit: crate::spin::Habit,
    /// The kernel had something for the program when it was last asked.
    lively: AtomicBool,
    /// There was no hot registration at the last pass.
    cold: AtomicBool,
    /// How long the last question to the kernel took, ticks.
    question: AtomicU64,
    /// The kernel knows everything of it: see [`still`].
    still: AtomicBool,
    /// There are connections to be recalled: see [`outlived`].
    outlived: AtomicBool,
    /// Some edges come once more: see [`inside::echoes`].
    echoes: AtomicBool,
}

impl Set {
    /// May a ring carry anything that is in it?
    fn holds_any(&self) -> bool {
        self.size.load(Ordering::Acquire) != 0
    }
}

fn set_at(index: u32) -> Option<&'static Set> {
    // SAFETY: sets are leaked and never freed.
    SETS.get(index as usize).and_then(|set| unsafe { set.load(Ordering::Acquire).as_ref() })
}

/// Every set that was ever made here, in use or not.
fn all_sets() -> impl Iterator<Item = &'static Set> {
    // SAFETY: sets are leaked and never freed.
    SETS.iter().map_while(|set| unsafe { set.load(Ordering::Acquire).as_ref() })
}

/// So many registrations and inner sets are gone. One that has none left is the kernel's alone, as
/// polls go: nothing of ours may be ready in it.
fn shrinks(set: &Set, inner: &mut Inner, by: u32) {
    if set.size.fetch_sub(by, Ordering::AcqRel) == by {
        inner.read_fifo();
    }
}

/// Did this thread's signal handler interrupt its work on a set?
pub fn is_interrupted() -> bool {
    BY_FD.is_mine() || all_sets().any(|set| set.inner.is_mine())
}

fn drop_registration(set: &Set, inner: &mut Inner, index: u32) {
    inner.hot.retain(|hot| *hot != index);
    outlived::forget(inner, index);
    owed::forget(inner, index);
    forget_data(inner, index);
    let Some(entry) = inner.registrations.get_mut(index as usize) else { return };
    entry.mask(set, false);
    entry.used = false;
    entry.hot = false;
    entry.late = None;
    entry.slot = None;
    inner.free.push(index);
    if !entry.plain {
        inner.removed.note(entry.data, entry.asked());
        shrinks(set, inner, 1);
    }
    inside::forget(set, inner, index);
}

/// The places of `fd`.
fn places_of(fd: c_int) -> Places {
    BY_FD.with(|map| listed_of(map.as_ref(), fd))
}

/// Of few, without taking memory.
type Places = SmallVec<[Place; 8]>;

fn listed_of(map: Option<&Map<c_int, SmallVec<[Place; 2]>>>, fd: c_int) -> Places {
    map.and_then(|map| map.get(&fd)).map_or_else(Places::new, |places| Places::from_slice(places))
}

/// Takes (set) off the places of `fd`.
fn unlink(fd: c_int, set: u32) {
    BY_FD.with(|map| {
        if let Some(map) = map.as_mut()
            && let Some(places) = map.get_mut(&fd)
        {
            places.retain(|(place, _)| *place != set);
            if places.is_empty() {
                map.remove(&fd);
            }
        }
    });
}

/// A registration of `fd`, of this slot's socket, is gone.
fn unregistered(fd: c_int, slot: u32) {
    let elsewhere = fds::count(slot) > 1
        || BY_FD.with(|map| map.as_ref().is_some_and(|map| map.contains_key(&fd)));
    local_bits(
        slot,
        0,
        if elsewhere { local::HOT } else { local::REGISTERED | local::WRITES | local::HOT },
    );
}

/// `fd` became an endpoint: registrations that it had before are the endpoint's.
pub fn adopted(fd: c_int, slot: u32) {
    if link_all(fd, slot).is_none() {
        bell::catch_up(slot);
    }
}

/// Does that. `None`: not for all of them, for now (this thread's signal handler uses the socket
/// for the first time, and interrupted the work on a set).
fn link_all(fd: c_int, slot: u32) -> Option<()> {
    let places = BY_FD.soon(|map| listed_of(map.as_ref(), fd))?;
    if places.len() > 1 {
        share(slot);
    }
    for (index, registration) in places {
        let Some(set) = set_at(index) else { continue };
        shared::look(set, set.fd.load(Ordering::Relaxed));
        set.soon(|inner| {
            let of_fd = |entry: &&mut Registration| {
                entry.used && entry.fd == fd && fds::get(fd) == Entry::Endpoint(slot)
            };
            let Some(entry) = inner.registrations.get_mut(registration as usize).filter(of_fd)
            else {
                return;
            };
            if entry.slot != Some(slot) {
                entry.link(slot);
                // Other threads may have used it meanwhile, so much that it moved.
                make_hot(inner, registration);
                stir(set, inner);
            }
        })?;
    }
    Some(())
}

fn share(slot: u32) {
    if let Some(attachment) = runtime::attachment() {
        attachment.ledger.slot(slot).set(flag::SHARED, true);
    }
}

/// The set is waited for through the kernel from now on: what was armed with its waiter is to be
/// armed anew. What a line told of would come to outer sets, which other processes may have.
fn nest(set: &Set, inner: &mut Inner) {
    if !inner.nested {
        inner.nested = true;
        doors::give_back(set, inner);
        for index in 0..inner.registrations.len() {
            make_hot(inner, u32::try_from(index).unwrap_or(0));
        }
    }
}

/// The number of `fd`'s set, whatever it holds.
#[must_use]
pub fn number_of(fd: c_int) -> Option<u32> {
    match fds::get(fd) {
        Entry::Epoll(index) => Some(index),
        _ => None,
    }
}

/// Set `index`, if it may hold carried sockets, is about to be polled. One that may not is left to
/// the kernel, by which this thread is woken should another add such a socket meanwhile.
#[must_use]
pub fn polled(index: u32) -> Option<u32> {
    let set = set_at(index)?;
    // Once; and not by a signal handler that interrupted this thread's own work on the set.
    if !set.holds_any() && set.inner.soon(|inner| inner.nested) == Some(false) {
        set.with(|inner| nest(set, inner));
    }
    set.holds_any().then_some(index)
}

/// The number of `fd`'s set, if it is one that may hold carried sockets.
#[must_use]
pub fn index_of(fd: c_int) -> Option<u32> {
    number_of(fd).filter(|&index| set_at(index).is_some_and(Set::holds_any))
}
