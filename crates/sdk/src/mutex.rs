//! A lock by name, which tells the next holder where the last one died.
//!
//! | offset | what stands in a mutex's first page |
//! |---|---|
//! | 0x40 | the holder: its party, and bit 61: what the lock protects may be half changed |
//! | 0x80 | who sleeps: see [`crate::waitlist`] |
//!
//! The holder is in the word by which it is the holder, so whoever finds it knows whether it lives.
//! A dead one's lock is exchanged for one's own, with bit 61 set; the bit stays until a holder says
//! that all is well again. Nobody sleeps for longer than a tenth of a second without looking
//! whether the holder lives. A thread that ends while it holds the lock leaves it as a dead process
//! does.

use crate::held::{self, Held};
use crate::lock::{LockError, LockResult};
use crate::object::{self, Object, Shape};
use crate::presence::Presence;
use crate::raw::Area;
use crate::wait::{self, Deadline};
use crate::waitlist::{Place, Waitlist};
use crate::{Error, Keep, Kind, Result, Segment};
use ginnel_region::{PAGE, Party};
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

const HOLDER: usize = 0x40;
const HALF_DONE: u64 = 1 << 61;

/// A lock by name: for processes, containers and machines, one at a time.
///
/// It protects what its users say it does: a [`crate::Memory`] beside it, say. Where its holder
/// dies the next one is told ([`LockError::HolderDied`]), and so is every one after it until a
/// holder has put things in order and says so ([`Guard::mark_consistent`]).
///
/// A process that does not keep to the rules can take the lock away from its holder; what it
/// protects is as open to such a process anyhow. A holder in another virtual machine is known to be
/// dead when another process with Ginnel's objects lives there and sees it, or when its machine is
/// gone.
///
/// ```
/// # let directory = ginnel::testing::directory();
/// use ginnel::{LockError, Memory, Mutex, Segment};
/// let segment = Segment::open("example")?;
/// let account = Memory::open_or_create(&segment, "account", 4096)?;
/// let mutex = Mutex::open_or_create(&segment, "account lock")?;
/// let guard = match mutex.lock() {
///     Ok(guard) => guard,
///     Err(LockError::HolderDied(guard)) => {
///         account.write(0, &[0; 16])?; // put in order what it left half done
///         guard.mark_consistent();
///         guard
///     }
///     Err(LockError::Failed(error)) => return Err(error),
/// };
/// account.write(0, &42u64.to_le_bytes())?;
/// drop(guard);
/// # drop(directory);
/// # Ok::<(), ginnel::Error>(())
/// ```
pub struct Mutex {
    object: Object,
    handle: u64,
    /// This process's party.
    mine: u64,
    holder: &'static AtomicU64,
    list: Waitlist,
}

/// The lock is held for as long as this lives, by the thread that took it.
#[must_use = "the lock is given back at once"]
pub struct Guard<'a> {
    mutex: &'a Mutex,
    /// A thread gives back what it took.
    _thread: PhantomData<*const ()>,
}

shown! {
    Mutex as "Mutex": |own| { name: own.name() };
    Guard<'_> as "Guard": |own| { mutex: own.mutex.name() };
}

impl Mutex {
    /// Makes a mutex that keeps its name until it is removed.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::SegmentFull`] and others.
    pub fn create(segment: &Segment, name: &str) -> Result<Self> {
        let (kind, keep) = (Kind::Mutex, Keep::UntilRemoved);
        let shape = Shape { kind, size: 8, pages: 0, numbers: [0; 3], keep };
        Object::create(segment.inner, name, &shape, |_, _| {}).map(Self::of)
    }

    /// Opens one that is there.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::WrongKind`], [`Error::Corrupt`].
    pub fn open(segment: &Segment, name: &str) -> Result<Self> {
        Object::open(segment.inner, name, Kind::Mutex).map(Self::of)
    }

    /// Opens it, or makes it where it is not there.
    ///
    /// # Errors
    /// As [`Self::create`] and [`Self::open`].
    pub fn open_or_create(segment: &Segment, name: &str) -> Result<Self> {
        let open = || Self::open(segment, name);
        object::open_or_create(name, || Self::create(segment, name), open)
    }

    fn of(object: Object) -> Self {
        let (holder, list) = (object.words.word(HOLDER), Waitlist::new(object.words));
        let mine = object.presence().party().bits();
        Self { object, handle: held::handle(), mine, holder, list }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.object.name
    }

    /// Takes the lock, waiting for it.
    ///
    /// # Errors
    /// [`LockError::HolderDied`], which holds it; [`Error::Deadlock`] where this thread has it
    /// already, [`Error::Forked`], [`Error::Lost`], [`Error::Gone`].
    pub fn lock(&self) -> LockResult<Guard<'_>> {
        self.lock_until(Deadline::NEVER)
    }

    /// As [`Self::lock`], waiting for `time` at most.
    ///
    /// # Errors
    /// As [`Self::lock`], and [`Error::TimedOut`].
    pub fn lock_timeout(&self, time: Duration) -> LockResult<Guard<'_>> {
        self.lock_until(Deadline::after(time))
    }

    /// Takes the lock, if nobody has it, or had it who died.
    ///
    /// # Errors
    /// As [`Self::lock`], and [`Error::WouldBlock`].
    pub fn try_lock(&self) -> LockResult<Guard<'_>> {
        self.object.presence().check()?;
        if let Some(had) = self.take().map_or_else(|| self.take_from_dead(), Some) {
            return self.held(had);
        }
        Err(if self.is_mine() { Error::Deadlock } else { Error::WouldBlock }.into())
    }

    #[inline]
    fn lock_until(&self, deadline: Deadline) -> LockResult<Guard<'_>> {
        self.object.presence().check()?;
        if let Some(had) = self.take() {
            return self.held(had);
        }
        if self.is_mine() {
            return Err(Error::Deadlock.into());
        }
        let place = Place::new(self.list, self.object.presence());
        let attempt = || Ok(self.take());
        let look = || Ok(self.take_from_dead());
        let had = wait::until(self.object.inner, place, deadline, attempt, look)?;
        self.held(had)
    }

    /// Takes it where nobody has it. Gives what stood there.
    #[inline]
    fn take(&self) -> Option<u64> {
        let seen = self.holder.load(Relaxed);
        let mine = self.mine | seen & HALF_DONE;
        let free = Party::of(seen).is_none();
        // Acquire pairs with the Release of whoever gave it back.
        (free && self.holder.compare_exchange(seen, mine, Acquire, Relaxed).is_ok()).then_some(mine)
    }

    /// Takes it where its holder died.
    fn take_from_dead(&self) -> Option<u64> {
        let seen = self.holder.load(Relaxed);
        let dead = Party::of(seen).filter(|&party| !self.object.presence().lives(party));
        let mine = self.mine | HALF_DONE;
        dead.filter(|_| self.holder.compare_exchange(seen, mine, AcqRel, Relaxed).is_ok())?;
        Some(mine)
    }

    fn held(&self, had: u64) -> LockResult<Guard<'_>> {
        // Asked after it was taken: a party that was taken for dead before may hold it beside
        // another, and does not go in.
        if let Err(error) = self.object.presence().check_all() {
            self.give_back(had & HALF_DONE);
            return Err(error.into());
        }
        held::push(self.hold());
        let guard = Guard { mutex: self, _thread: PhantomData };
        if had & HALF_DONE == 0 { Ok(guard) } else { Err(LockError::HolderDied(guard)) }
    }

    #[inline]
    fn hold(&self) -> Held {
        Held::new(&self.object, self.handle, self.holder, leave)
    }

    /// Gives it back where this process holds it. `add`: what is to stand beside.
    #[inline]
    fn give_back(&self, add: u64) {
        give_back(self.object.presence(), self.mine, self.holder, self.list, add);
    }

    /// For the interface in C, which has no guards: gives back what this thread holds. False where
    /// it holds nothing.
    #[doc(hidden)]
    pub fn unlock(&self) -> bool {
        let mine = self.is_mine();
        drop(mine.then_some(Guard { mutex: self, _thread: PhantomData }));
        mine
    }

    /// Likewise: see [`Guard::mark_consistent`].
    #[doc(hidden)]
    pub fn mark_consistent(&self) -> bool {
        let mine = self.is_mine();
        if mine {
            let guard = Guard { mutex: self, _thread: PhantomData };
            guard.mark_consistent();
            std::mem::forget(guard);
        }
        mine
    }

    /// Does this thread hold it?
    fn is_mine(&self) -> bool {
        held::holds(self.holder)
    }
}

/// In C a lock may be closed while it is held: it is left as by a thread that ends.
impl Drop for Mutex {
    fn drop(&mut self) {
        held::closed(self.handle);
    }
}

impl Guard<'_> {
    /// What the mutex protects is in order again, after a holder died: the next one is not told.
    pub fn mark_consistent(&self) {
        if self.mutex.object.presence().check().is_ok() {
            let mine = self.mutex.mine;
            // Only one's own word: a process that was taken for dead says nothing about another's.
            let _ = self.mutex.holder.compare_exchange(mine | HALF_DONE, mine, AcqRel, Relaxed);
        }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        let mutex = self.mutex;
        if mutex.object.presence().check().is_ok() {
            held::forget(mutex.holder);
            mutex.give_back(0);
        }
    }
}

/// Leaves a lock as a dead holder does.
fn leave(held: &Held) {
    let presence = &held.inner.presence;
    let page = Area::new(presence.segment(), u64::from(held.page()) * PAGE, PAGE);
    if let Some(page) = page {
        let mine = presence.party().bits();
        give_back(presence, mine, held.word, Waitlist::new(page), HALF_DONE);
    }
}

#[inline]
fn give_back(presence: &Presence, mine: u64, holder: &AtomicU64, list: Waitlist, add: u64) {
    let clean = holder.compare_exchange(mine, add, Release, Relaxed);
    // Where neither stands there, this process was taken for dead, and it is another's.
    if clean.is_ok()
        || holder.compare_exchange(mine | HALF_DONE, HALF_DONE, Release, Relaxed).is_ok()
    {
        list.wake_one(presence);
    }
}
