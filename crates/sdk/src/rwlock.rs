//! A reader–writer lock by name: many read, or one writes; the next ones are told where a writer
//! died.
//!
//! | where | what stands there |
//! |---|---|
//! | 0x40 | who writes or is about to: its party; bit 60: it writes; bit 61: what the lock protects may be half changed |
//! | 0x48 | the wish of who is about to write, to be woken when the last reader has left |
//! | 0x80 | readers that sleep: see [`crate::waitlist`] |
//! | 0xc0 | writers that sleep for the first word |
//! | the page behind | 512 places for readers: the party that reads |
//!
//! A reader takes a place, fences, and looks at the first word: where somebody is in it, it leaves
//! its place again and waits. A writer puts itself into the first word, fences, and looks at the
//! places: it writes when all are empty. So one of the two sees the other (Dekker), and a writer
//! that waits keeps later readers out.
//!
//! Who is in a word is the word, so whoever finds a dead one there takes it out: a reader leaves
//! nothing, one that was about to write neither; one that wrote leaves bit 61, which stays until a
//! writer says that all is well. Nobody sleeps for longer than a tenth of a second without that
//! look. `tests/rwlock_model.rs` walks every run of it, with a death at each step.

mod words;

use crate::held::{self, Held};
use crate::lock::{LockError, LockResult};
use crate::object::{self, Object, Shape};
use crate::presence::Presence;
use crate::wait::{self, Deadline};
use crate::waitlist::Place;
use crate::{Error, Keep, Kind, Result, Segment};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;
use words::{HALF_DONE, Words};

/// A lock by name that many hold to read, or one to write: for processes, containers and machines.
///
/// It protects what its users say it does: a [`crate::Memory`] beside it, say. A writer that waits
/// goes before readers that come later; up to 512 read at a time. A thread has it once: whoever
/// asks again is told [`Error::Deadlock`].
///
/// Where a writer dies everybody is told ([`LockError::HolderDied`]), to read or to write, until a
/// writer has put things in order and says so ([`WriteGuard::mark_consistent`]). A reader that dies
/// leaves nothing.
///
/// A process that does not keep to the rules can take the lock away from its holders; what it
/// protects is as open to such a process anyhow. A holder in another virtual machine is known to be
/// dead when another process with Ginnel's objects lives there and sees it, or when its machine is
/// gone.
///
/// ```
/// # let directory = ginnel::testing::directory();
/// use ginnel::{LockError, Memory, RwLock, Segment};
/// let segment = Segment::open("example")?;
/// let table = Memory::open_or_create(&segment, "table", 4096)?;
/// let lock = RwLock::open_or_create(&segment, "table lock")?;
/// let guard = match lock.write() {
///     Ok(guard) => guard,
///     Err(LockError::HolderDied(guard)) => {
///         table.write(0, &[0; 16])?; // put in order what it left half done
///         guard.mark_consistent();
///         guard
///     }
///     Err(LockError::Failed(error)) => return Err(error),
/// };
/// table.write(0, b"all of it, at once")?;
/// drop(guard);
/// let guard = lock.read().expect("in order"); // beside other readers
/// let mut bytes = [0; 18];
/// table.read(0, &mut bytes)?;
/// # drop(guard);
/// # drop(directory);
/// # Ok::<(), ginnel::Error>(())
/// ```
pub struct RwLock {
    object: Object,
    handle: u64,
    words: Words,
    /// Where to look first for a place that is free, or taken.
    hint: AtomicUsize,
}

/// The lock is held to read for as long as this lives, by the thread that took it.
#[must_use = "the lock is given back at once"]
pub struct ReadGuard<'a> {
    lock: &'a RwLock,
    place: &'static AtomicU64,
    /// A thread gives back what it took.
    _thread: PhantomData<*const ()>,
}

/// The lock is held to write for as long as this lives, by the thread that took it.
#[must_use = "the lock is given back at once"]
pub struct WriteGuard<'a> {
    lock: &'a RwLock,
    /// A thread gives back what it took.
    _thread: PhantomData<*const ()>,
}

shown! {
    RwLock as "RwLock": |own| { name: own.name() };
    ReadGuard<'_> as "ReadGuard": |own| { lock: own.lock.name() };
    WriteGuard<'_> as "WriteGuard": |own| { lock: own.lock.name() };
}

impl RwLock {
    /// Makes a lock that keeps its name until it is removed.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::SegmentFull`] and others.
    pub fn create(segment: &Segment, name: &str) -> Result<Self> {
        let (kind, keep) = (Kind::RwLock, Keep::UntilRemoved);
        let shape = Shape { kind, size: 8, pages: 1, numbers: [0; 3], keep };
        Self::of(Object::create(segment.inner, name, &shape, |_, _| {})?)
    }

    /// Opens one that is there.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::WrongKind`], [`Error::Corrupt`].
    pub fn open(segment: &Segment, name: &str) -> Result<Self> {
        Self::of(Object::open(segment.inner, name, Kind::RwLock)?)
    }

    /// Opens it, or makes it where it is not there.
    ///
    /// # Errors
    /// As [`Self::create`] and [`Self::open`].
    pub fn open_or_create(segment: &Segment, name: &str) -> Result<Self> {
        let open = || Self::open(segment, name);
        object::open_or_create(name, || Self::create(segment, name), open)
    }

    fn of(object: Object) -> Result<Self> {
        let words = object.body().and_then(|body| Words::new(object.words, body));
        let words = words.ok_or_else(|| object.corrupt())?;
        Ok(Self { object, handle: held::handle(), words, hint: AtomicUsize::new(0) })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.object.name
    }

    /// Takes the lock to read, waiting until nobody writes or waits to.
    ///
    /// # Errors
    /// [`LockError::HolderDied`], which holds it; [`Error::Deadlock`] where this thread has it
    /// already, [`Error::SegmentFull`] where there is no page to sleep on, [`Error::Forked`],
    /// [`Error::Lost`], [`Error::Gone`].
    pub fn read(&self) -> LockResult<ReadGuard<'_>> {
        self.read_until(Deadline::NEVER)
    }

    /// As [`Self::read`], waiting for `time` at most.
    ///
    /// # Errors
    /// As [`Self::read`], and [`Error::TimedOut`].
    pub fn read_timeout(&self, time: Duration) -> LockResult<ReadGuard<'_>> {
        self.read_until(Deadline::after(time))
    }

    /// Takes it to read, if nobody who lives writes or waits to.
    ///
    /// # Errors
    /// As [`Self::read`], and [`Error::WouldBlock`].
    pub fn try_read(&self) -> LockResult<ReadGuard<'_>> {
        self.may_ask()?;
        let place = self.take_place().or_else(|| self.take_place_after_a_look());
        self.reads(place.ok_or(Error::WouldBlock)?)
    }

    fn read_until(&self, deadline: Deadline) -> LockResult<ReadGuard<'_>> {
        self.may_ask()?;
        if let Some(place) = self.take_place() {
            return self.reads(place);
        }
        let list = Place::new(self.words.readers(), self.presence());
        let attempt = || Ok(self.take_place());
        let look = || Ok(self.take_place_after_a_look());
        self.reads(wait::until(self.object.inner, list, deadline, attempt, look)?)
    }

    /// Takes the lock to write, waiting until nobody else has it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&self) -> LockResult<WriteGuard<'_>> {
        self.write_until(Deadline::NEVER)
    }

    /// As [`Self::write`], waiting for `time` at most.
    ///
    /// # Errors
    /// As [`Self::read`], and [`Error::TimedOut`].
    pub fn write_timeout(&self, time: Duration) -> LockResult<WriteGuard<'_>> {
        self.write_until(Deadline::after(time))
    }

    /// Takes it to write, if nobody who lives has it.
    ///
    /// # Errors
    /// As [`Self::read`], and [`Error::WouldBlock`].
    pub fn try_write(&self) -> LockResult<WriteGuard<'_>> {
        self.may_ask()?;
        let (words, presence) = (self.words, self.presence());
        // Only then, not to keep readers out for nothing.
        let enter = || words.is_drained(&self.hint).then(|| words.enter(presence)).flatten();
        let look = || {
            words.clear_dead(presence);
            enter()
        };
        enter().or_else(look).ok_or(Error::WouldBlock)?;
        let had = words.go_in(presence, &self.hint);
        self.writes(had.ok_or(Error::WouldBlock).inspect_err(|_| words.withdraw(presence))?)
    }

    fn write_until(&self, deadline: Deadline) -> LockResult<WriteGuard<'_>> {
        self.may_ask()?;
        let (inner, words, presence) = (self.object.inner, self.words, self.presence());
        if words.enter(presence).is_none() {
            let list = Place::new(words.writers(), presence);
            let look = || {
                words.free_of_dead(presence);
                Ok(words.enter(presence))
            };
            wait::until(inner, list, deadline, || Ok(words.enter(presence)), look)?;
        }
        let go_in = || Ok(words.enter_and_go_in(presence, &self.hint));
        let look = || {
            words.clear_dead(presence);
            go_in()
        };
        let had = wait::until(inner, words.drained(), deadline, go_in, look);
        self.writes(had.inspect_err(|_| self.withdraw())?)
    }

    fn withdraw(&self) {
        if self.presence().check_all().is_ok() {
            self.words.withdraw(self.presence());
        }
    }

    fn presence(&self) -> &'static Presence {
        &self.object.inner.presence
    }

    fn may_ask(&self) -> Result<()> {
        self.presence().check_all()?;
        if held::any(|held| held.is_of(&self.object)) { Err(Error::Deadlock) } else { Ok(()) }
    }

    fn take_place(&self) -> Option<&'static AtomicU64> {
        self.words.take_place(self.presence(), &self.hint)
    }

    /// The same, after the dead were taken out of the way.
    #[cold]
    fn take_place_after_a_look(&self) -> Option<&'static AtomicU64> {
        self.words.clear_dead(self.presence());
        self.take_place()
    }

    fn reads(&self, place: &'static AtomicU64) -> LockResult<ReadGuard<'_>> {
        let hold = self.hold(place);
        // Asked after it was taken: who was taken for dead before has no part in it any more.
        self.presence().check_all().inspect_err(|_| leave(&hold, 0))?;
        held::push(hold);
        let guard = ReadGuard { lock: self, place, _thread: PhantomData };
        if self.words.is_half_done() { Err(LockError::HolderDied(guard)) } else { Ok(guard) }
    }

    fn writes(&self, had: u64) -> LockResult<WriteGuard<'_>> {
        let hold = self.hold(self.words.writer());
        self.presence().check_all().inspect_err(|_| leave(&hold, had & HALF_DONE))?;
        held::push(hold);
        let guard = WriteGuard { lock: self, _thread: PhantomData };
        if had & HALF_DONE != 0 { Err(LockError::HolderDied(guard)) } else { Ok(guard) }
    }

    fn hold(&self, word: &'static AtomicU64) -> Held {
        // A reader that ends leaves nothing, a writer what may be half done.
        Held::new(&self.object, self.handle, word, |held| leave(held, HALF_DONE))
    }

    /// Gives back what this thread holds by a word. False where it holds nothing.
    fn give_back(&self, is_it: impl Fn(&Held) -> bool) -> bool {
        let held = held::remove(|held| held.is_of(&self.object) && is_it(held));
        if let Some(held) = held.as_ref().filter(|_| self.presence().check_all().is_ok()) {
            leave(held, 0);
        }
        held.is_some()
    }

    /// For the interface in C, which has no guards: gives back what this thread holds. False where
    /// it holds nothing.
    #[doc(hidden)]
    pub fn unlock(&self) -> bool {
        self.give_back(|_| true)
    }

    /// Likewise: see [`WriteGuard::mark_consistent`].
    #[doc(hidden)]
    pub fn mark_consistent(&self) -> bool {
        let writes = held::holds(self.words.writer());
        if writes && self.presence().check_all().is_ok() {
            self.words.mark_consistent(self.presence());
        }
        writes
    }
}

/// Gives back what this process holds. `add`: what is to stand in the first word where it wrote.
fn leave(held: &Held, add: u64) {
    let presence = &held.inner.presence;
    let Some(words) = Words::at(presence, held.page()) else { return };
    if std::ptr::eq(held.word, words.writer()) {
        words.leave_writing(presence, add);
    } else {
        words.leave_place(presence, held.word);
    }
}

/// In C a lock may be closed while it is held: it is left as by a thread that ends.
impl Drop for RwLock {
    fn drop(&mut self) {
        held::closed(self.handle);
    }
}

impl WriteGuard<'_> {
    /// What the lock protects is in order again, after a writer died: the next one is not told.
    pub fn mark_consistent(&self) {
        self.lock.mark_consistent();
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.lock.give_back(|held| std::ptr::eq(held.word, self.place));
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.lock.give_back(|held| std::ptr::eq(held.word, self.lock.words.writer()));
    }
}
