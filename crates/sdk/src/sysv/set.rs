//! A set of System V semaphores (semget(2), semop(2), semctl(2)).
//!
//! | offset | what stands in its first page |
//! |---|---|
//! | 0x60 | seconds of the last operation |
//! | 0x68 | who changes it now: a party, or 0 |
//! | 0x70 | so many changes of the log are to be done: see [`super::transaction`] |
//! | 0x78 | number of the next sleeper |
//! | 0x80, 0x400 … | who waits to change it: see [`crate::waitlist`] |
//! | 0xd0 | so many undo entries are in use at most |
//! | 0xd8 | so many slots of the queue are in use at most |
//!
//! | behind it | |
//! |---|---|
//! | a word for each semaphore | value (bits 0–15), [`HELD`] (16), process that changed it last (32–63) |
//! | [`UNDOS`] times four words | see [`super::undo`] |
//! | [`SLOTS`] times eight words | see [`super::sleepers`] |
//! | the log | two words for each change |
//!
//! One process at a time changes a set: it stands in a word, and whoever finds a dead one there
//! takes its place. A change of one word is one store; one of several is written into the log
//! first, and done from there by whoever comes next, if its author is killed: so all of it happens
//! or nothing.
//!
//! One operation on one semaphore does without all that, where nobody sleeps and nothing is to be
//! undone: see [`super::quick`].
//!
//! Who is stopped (SIGSTOP) in the midst of a change holds the others up until it goes on. Signals
//! are let through meanwhile.

use super::doer::Doer;
use super::sleepers::Wakes;
use super::{Answer, Caller, Get, Perm, Space, id_of, no, now};
use crate::object::{Object, Shape};
use crate::raw::Area;
use crate::wait::{self, Deadline};
use crate::waitlist::{Place, Waitlist};
use crate::{Error, Keep, Kind};
use ginnel_region::{PAGE, Party, Segment, Untrusted};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

/// How many semaphores it was made with (see [`crate::object`]).
const NUMBER: usize = 0x28;
pub(super) const OPERATED: usize = 0x60;
const HOLDER: usize = 0x68;
pub(super) const LOGGED: usize = 0x70;
pub(super) const TICKET: usize = 0x78;
pub(super) const UNDO_END: usize = 0xd0;
pub(super) const QUEUE_END: usize = 0xd8;

/// Whoever has the set to itself has marked this semaphore: only it changes it.
pub(super) const HELD: u64 = 1 << 16;

/// Undo entries of a set: one for each process and semaphore.
pub(super) const UNDOS: usize = 512;
/// Bytes of one.
const UNDO: usize = 32;
/// Slots of its queue: two for a sleeper with up to seven operations.
pub(super) const SLOTS: usize = 512;
/// Bytes of a slot.
pub(super) const SLOT: usize = 64;
const HEAD: usize = PAGE as usize;

/// Most semaphores of a set (`SEMMSL`), operations of a call (`SEMOPM`), and the highest value
/// (`SEMVMX`), as Linux has them.
pub const MOST_SEMAPHORES: u32 = 32_000;
/// See there.
pub const MOST_OPERATIONS: usize = 500;
/// See there.
pub const HIGHEST: i32 = 32_767;

/// How long a signal may wait for a set that another changes.
const PATIENCE: Duration = Duration::from_millis(100);

/// A set that this process has a hand on.
pub struct Set {
    pub(super) object: Object,
    pub(super) count: usize,
    pub(super) log_room: usize,
    /// This process.
    pub(super) own: Doer,
    body: Area,
    list: Waitlist,
}

/// What `IPC_STAT` says.
#[derive(Debug, Clone, Copy)]
pub struct SetStatus {
    /// Who may do what.
    pub perm: Perm,
    /// Semaphores.
    pub count: usize,
    /// Seconds of the last operation, and at which it was changed.
    pub times: [u64; 2],
}

fn log_room(count: usize) -> usize {
    // A call's values and undo entries, and those that SETALL clears; a sleeper's result.
    count.max(MOST_OPERATIONS) + MOST_OPERATIONS * 4 + UNDOS + 16
}

fn body_len(count: usize) -> usize {
    count * 8 + UNDOS * UNDO + SLOTS * SLOT + log_room(count) * 16
}

/// The words of a set in which its sleepers ask to be woken; `page` is its first, `words` that.
pub(crate) fn wishes(
    segment: &Segment,
    page: u32,
    words: Area,
) -> impl Iterator<Item = &'static AtomicU64> {
    let count = words.word(NUMBER).load(Relaxed).min(MOST_SEMAPHORES.into());
    let at = (u64::from(page) + 1) * PAGE + count * 8 + (UNDOS * UNDO) as u64;
    let slots = Area::new(segment, at, (SLOTS * SLOT) as u64);
    slots.into_iter().flat_map(|slots| {
        // Elsewhere than in the first slot of a sleeper stands no wish.
        let waits = move |slot: &usize| slots.word(slot * SLOT).load(Relaxed) & 0xff == 1;
        (0..SLOTS).filter(waits).map(move |slot| slots.word(slot * SLOT + 24))
    })
}

impl Space {
    /// `semget(2)`: an id.
    ///
    /// # Errors
    /// As there.
    pub fn set_get(&self, get: Get, count: i32, caller: &Caller) -> Answer<i32> {
        let Some(count) = u32::try_from(count).ok().filter(|&count| count <= MOST_SEMAPHORES)
        else {
            return no(libc::EINVAL);
        };
        let check = |object: Object| {
            let set = Set::of(object)?;
            if count as usize > set.count {
                return no(libc::EINVAL);
            }
            set.perm().check_flags(caller, get.flags)?;
            Ok(id_of(set.object.place()))
        };
        let shape = Shape {
            kind: Kind::SystemVSemaphores,
            size: u64::from(count) * 2,
            pages: (body_len(count as usize) as u64).div_ceil(PAGE),
            numbers: [count.into(), 0, 0],
            keep: Keep::UntilRemoved,
        };
        let make = |name: &str| {
            if count == 0 {
                return Err(Error::Invalid { what: "a set has at least 1 semaphore".to_owned() });
            }
            let fill = |words: Area, _: Option<Area>| Perm::put(words, caller, get.key, get.mode());
            let object = Object::create(self.inner(), name, &shape, fill)?;
            Ok(id_of(object.place()))
        };
        self.get(get, ("sem", Kind::SystemVSemaphores), check, make)
    }

    /// The set of an id.
    ///
    /// # Errors
    /// EINVAL where there is none.
    pub fn set(&self, id: i32) -> Answer<Arc<Set>> {
        let known = self.sets().get(&id).cloned();
        if let Some(set) = known {
            if set.is_there() {
                return Ok(set);
            }
            drop(set);
            self.forget_removed();
            return no(libc::EINVAL);
        }
        let entry = self.entry(id)?;
        let open =
            || Object::open_at(self.inner(), entry.clone(), Kind::SystemVSemaphores, |_| false);
        let set = Arc::new(Set::of(self.opened(open)?)?);
        let mut sets = self.sets();
        sets.insert(id, set.clone());
        self.table.put(id, &set);
        Ok(set)
    }
}

impl Set {
    fn of(object: Object) -> Answer<Self> {
        let count = Untrusted::new(object.numbers[0]).within(1, MOST_SEMAPHORES.into());
        let count = count.ok().and_then(|count| usize::try_from(count).ok());
        let body = count.and_then(|count| object.body()?.part(0, body_len(count)));
        let (Some(count), Some(body)) = (count, body) else { return no(libc::EINVAL) };
        let (list, log_room) = (Waitlist::new(object.words), log_room(count));
        let own = Doer::own(object.presence().party().bits());
        Ok(Self { object, count, log_room, own, body, list })
    }

    /// Is it not removed?
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.object.is_named()
    }

    /// Who may do what.
    #[must_use]
    pub fn perm(&self) -> Perm {
        Perm::of(self.object.words)
    }

    /// `IPC_STAT`.
    #[must_use]
    pub fn status(&self) -> SetStatus {
        let operated = self.object.words.word(OPERATED).load(Relaxed);
        let times = [operated, Perm::changed(self.object.words)];
        SetStatus { perm: self.perm(), count: self.count, times }
    }

    /// `IPC_SET`.
    ///
    /// # Errors
    /// EPERM.
    pub fn set(&self, caller: &Caller, uid: u32, gid: u32, mode: u32) -> Answer<()> {
        self.perm().check_owner(caller)?;
        Perm::set(self.object.words, uid, gid, mode);
        Ok(())
    }

    /// `IPC_RMID`: who sleeps there is told.
    ///
    /// # Errors
    /// EPERM.
    pub fn remove(&self, caller: &Caller) -> Answer<()> {
        self.perm().check_owner(caller)?;
        self.object.remove();
        self.wake_all();
        Ok(())
    }

    // Words are told by their place: below a page in the first page, else behind it.

    /// The word at a place.
    pub(super) fn word(&self, at: usize) -> &'static AtomicU64 {
        match at.checked_sub(HEAD) {
            Some(at) => self.body.word(at),
            None => self.object.words.word(at),
        }
    }

    pub(super) fn semaphore(&self, number: usize) -> usize {
        HEAD + number * 8
    }

    /// The places of all of them.
    pub(super) fn semaphores(&self) -> std::ops::Range<usize> {
        HEAD..self.undo(0)
    }

    pub(super) fn undo(&self, index: usize) -> usize {
        HEAD + self.count * 8 + index * UNDO
    }

    pub(super) fn slot(&self, index: usize) -> usize {
        self.undo(UNDOS) + index * SLOT
    }

    pub(super) fn log(&self, index: usize) -> usize {
        self.slot(SLOTS) + index * 16
    }

    pub(super) fn mine(&self) -> u64 {
        self.object.presence().party().bits()
    }

    pub(super) fn lives(&self, party: u64) -> bool {
        Party::of(party).is_some_and(|party| self.object.presence().lives(party))
    }

    /// Takes it where nobody has it.
    fn take(&self) -> bool {
        let holder = self.word(HOLDER);
        // Acquire pairs with the Release of whoever gave it back.
        holder.load(Relaxed) == 0
            && holder.compare_exchange(0, self.mine(), Acquire, Relaxed).is_ok()
    }

    /// Takes it from a dead one.
    fn take_from_dead(&self) -> bool {
        let (holder, mine) = (self.word(HOLDER), self.mine());
        let seen = holder.load(Relaxed);
        let dead = seen != 0 && seen != mine && !self.lives(seen);
        dead && holder.compare_exchange(seen, mine, AcqRel, Relaxed).is_ok()
    }

    /// Has it to oneself. `pause` lets the thread's signals through.
    pub(super) fn lock(&self, pause: &dyn Fn()) -> Answer<Locked<'_>> {
        let presence = self.object.presence();
        presence.check_all()?;
        let mut of_dead = false;
        while !self.take() {
            let place = Place::new(self.list, presence);
            let attempt = || Ok(self.take().then_some(false));
            let look = || Ok(self.take_from_dead().then_some(true));
            match wait::until(self.object.inner, place, Deadline::after(PATIENCE), attempt, look) {
                Ok(dead) => {
                    of_dead = dead;
                    break;
                }
                Err(Error::TimedOut) => pause(),
                Err(error) => return Err(error.into()),
            }
            if !self.is_there() {
                return no(libc::EIDRM);
            }
        }
        self.locked(of_dead)
    }

    /// The same, if nobody who lives has it.
    pub(super) fn try_lock(&self) -> Answer<Option<Locked<'_>>> {
        self.object.presence().check_all()?;
        if self.take() {
            return self.locked(false).map(Some);
        }
        if self.take_from_dead() { self.locked(true).map(Some) } else { Ok(None) }
    }

    fn locked(&self, of_dead: bool) -> Answer<Locked<'_>> {
        let mut locked = Locked { set: self, wakes: Wakes::default() };
        if let Err(error) = self.object.presence().check_all() {
            // It was taken for dead: this is no longer its to change.
            drop(locked);
            return Err(error.into());
        }
        locked.finish_log(of_dead);
        locked.bury_dead(of_dead);
        Ok(locked)
    }

    pub(super) fn touch(&self) {
        self.object.words.word(OPERATED).store(now(), Relaxed);
    }
}

/// A set that this process has to itself. Dropped, it is another's to change, and those that may go
/// on are woken.
pub(super) struct Locked<'a> {
    pub(super) set: &'a Set,
    pub(super) wakes: Wakes,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let presence = self.set.object.presence();
        if presence.check().is_err() {
            return;
        }
        let holder = self.set.word(HOLDER);
        // Where another stands there, this process was taken for dead.
        if holder.compare_exchange(self.set.mine(), 0, Release, Relaxed).is_ok() {
            self.set.list.wake_one(presence);
        }
        self.wakes.wake(self.set);
    }
}
