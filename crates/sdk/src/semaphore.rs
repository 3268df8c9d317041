//! A semaphore by name: so many at a time, whoever of them dies.
//!
//! | where | what stands there |
//! |---|---|
//! | 0x28 | how many permits there can be |
//! | 0x40 | counts permits that were made free: a look at this tells whether a look at all is worth it |
//! | 0x80 | who sleeps: see [`crate::waitlist`] |
//! | the pages behind | one word for each permit that there can be |
//!
//! | a permit's word | it is |
//! |---|---|
//! | 0 | not there: room for one that is added |
//! | bit 62 | free |
//! | a party | had by that party |
//!
//! Each change is one exchange of one word, so a death at any step leaves a permit that is free, or
//! had by a dead party, whose it is no longer: whoever looks for one makes it free again. Nobody
//! sleeps for longer than a tenth of a second without that look.

use crate::object::{self, Object, Shape};
use crate::raw::Area;
use crate::wait::{self, Deadline};
use crate::waitlist::{Place, Waitlist};
use crate::watch::Watch;
use crate::{Error, Keep, Kind, Result, Segment};
use ginnel_region::{PAGE, Party, Untrusted};
use std::cell::Cell;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

const GIVEN: usize = 0x40;
const ABSENT: u64 = 0;
const FREE: u64 = 1 << 62;
/// As System V's semaphores count.
const MOST: u32 = 32_767;

/// A count of permits by name, for processes, containers and machines: who acquires one has it
/// until it gives it back, or dies.
///
/// It serves two purposes. *At most so many at a time*: make it with as many permits as may be had
/// at once, and keep each [`Permit`] for as long as the work takes. *As many as there are*: make it
/// with none, [add](Self::add) one for each thing that is there to be taken, and let whoever takes
/// a thing [use its permit up](Permit::use_up) when it is done. Who dies before that leaves the
/// permit to another.
///
/// A process that does not keep to the rules can take permits, give what others have, and add as
/// many as there is room for. A holder in another virtual machine is known to be dead when another
/// process with Ginnel's objects lives there and sees it, or when its machine is gone.
///
/// ```
/// # let directory = ginnel::testing::directory();
/// use ginnel::{Error, Segment, Semaphore};
/// let segment = Segment::open("example")?;
/// let connections = Semaphore::open_or_create(&segment, "connections", 2, 2)?;
/// let one = connections.acquire()?;
/// let two = connections.acquire()?;
/// assert_eq!(connections.try_acquire().err(), Some(Error::WouldBlock));
/// drop(one); // given back
/// let again = connections.try_acquire()?;
/// # drop((two, again));
/// # drop(directory);
/// # Ok::<(), ginnel::Error>(())
/// ```
pub struct Semaphore {
    object: Object,
    permits: Area,
    most: usize,
    given: &'static AtomicU64,
    list: Waitlist,
    /// Where to look first.
    hint: AtomicUsize,
    watch: Watch,
}

/// A permit that this process has, until it is dropped or [used up](Self::use_up).
#[must_use = "the permit is given back at once"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    place: usize,
}

shown! {
    Semaphore as "Semaphore": |own| { name: own.name(), most: own.most() };
    Permit<'_> as "Permit": |own| { semaphore: own.semaphore.name() };
}

impl Semaphore {
    /// Makes a semaphore with `permits` free ones, which keeps its name until it is removed. There
    /// can be `most` at any time: 1 to 32767, and no fewer than `permits`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other numbers, [`Error::Taken`], [`Error::SegmentFull`] and others.
    pub fn create(segment: &Segment, name: &str, permits: u32, most: u32) -> Result<Self> {
        if !(1..=MOST).contains(&most) || permits > most {
            let what = format!(
                "a semaphore has room for 1 to {MOST} permits, not {most}, and no more than that \
                 at first, not {permits}"
            );
            return Err(Error::Invalid { what });
        }
        let size = u64::from(most) * 8;
        let (kind, keep) = (Kind::Semaphore, Keep::UntilRemoved);
        let numbers = [most.into(), 0, 0];
        let shape = Shape { kind, size, pages: size.div_ceil(PAGE), numbers, keep };
        let fill = |_, body: Option<Area>| {
            let word = |place| body.map(|body| body.word(place as usize * 8));
            (0..permits).filter_map(word).for_each(|word| word.store(FREE, Relaxed));
        };
        Self::of(Object::create(segment.inner, name, &shape, fill)?)
    }

    /// Opens one that is there.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::WrongKind`], [`Error::Corrupt`].
    pub fn open(segment: &Segment, name: &str) -> Result<Self> {
        Self::of(Object::open(segment.inner, name, Kind::Semaphore)?)
    }

    /// Opens it, or makes it where it is not there.
    ///
    /// # Errors
    /// [`Error::WrongShape`] where it has room for another number, else as [`Self::create`] and
    /// [`Self::open`].
    pub fn open_or_create(segment: &Segment, name: &str, permits: u32, most: u32) -> Result<Self> {
        let open = || {
            let semaphore = Self::open(segment, name)?;
            let (what, is, wanted) = ("most permits", semaphore.most as u64, most.into());
            let name = || name.to_owned();
            let same = is == wanted;
            if same {
                Ok(semaphore)
            } else {
                Err(Error::WrongShape { name: name(), what, is, wanted })
            }
        };
        object::open_or_create(name, || Self::create(segment, name, permits, most), open)
    }

    fn of(object: Object) -> Result<Self> {
        let most = Untrusted::new(object.numbers[0]).within(1, MOST.into());
        let most = most.ok().and_then(|most| usize::try_from(most).ok());
        let permits = most.and_then(|most| object.body()?.part(0, most * 8));
        let (Some(most), Some(permits)) = (most, permits) else { return Err(object.corrupt()) };
        let (given, list) = (object.words.word(GIVEN), Waitlist::new(object.words));
        let (hint, watch) = (AtomicUsize::new(0), Watch::default());
        Ok(Self { object, permits, most, given, list, hint, watch })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.object.name
    }

    /// How many permits there can be.
    #[must_use]
    pub fn most(&self) -> u32 {
        u32::try_from(self.most).unwrap_or(MOST)
    }

    /// How many are free at the moment, those of the dead not counted.
    #[must_use]
    pub fn available(&self) -> u32 {
        let free = self.words().filter(|word| word.load(Relaxed) == FREE).count();
        u32::try_from(free).unwrap_or(MOST)
    }

    /// Acquires a permit, waiting for one.
    ///
    /// # Errors
    /// [`Error::SegmentFull`] where there is no page to sleep on, [`Error::Forked`],
    /// [`Error::Lost`], [`Error::Gone`].
    pub fn acquire(&self) -> Result<Permit<'_>> {
        self.acquire_until(Deadline::NEVER)
    }

    /// As [`Self::acquire`], waiting for `time` at most.
    ///
    /// # Errors
    /// As [`Self::acquire`], and [`Error::TimedOut`].
    pub fn acquire_timeout(&self, time: Duration) -> Result<Permit<'_>> {
        self.acquire_until(Deadline::after(time))
    }

    /// Acquires a permit, if one is free, or was had by who died.
    ///
    /// # Errors
    /// As [`Self::acquire`], and [`Error::WouldBlock`]: the descriptor then tells when there is
    /// one.
    pub fn try_acquire(&self) -> Result<Permit<'_>> {
        self.object.presence().check_all()?;
        let place = self.take().or_else(|| self.take_after_a_look());
        let armed = || self.watch.arm(self.object.presence(), || self.take());
        let place = place.or_else(armed);
        self.had(place.ok_or(Error::WouldBlock)?)
    }

    fn acquire_until(&self, deadline: Deadline) -> Result<Permit<'_>> {
        self.object.presence().check_all()?;
        if let Some(place) = self.take() {
            return self.had(place);
        }
        let list = Place::new(self.list, self.object.presence());
        let seen = Cell::new(None);
        let attempt = || {
            // Acquire pairs with the Release of whoever made one free.
            let given = Some(self.given.load(Acquire));
            Ok(if seen.replace(given) == given { None } else { self.take() })
        };
        let look = || Ok(self.take_after_a_look());
        self.had(wait::until(self.object.inner, list, deadline, attempt, look)?)
    }

    /// The descriptor of [`AsFd`], or why there is none.
    #[doc(hidden)]
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.watch.descriptor(self.object.inner, self.list)
    }

    fn words(&self) -> impl Iterator<Item = &'static AtomicU64> {
        let permits = self.permits;
        (0..self.most).map(move |place| permits.word(place * 8))
    }

    fn word(&self, place: usize) -> &'static AtomicU64 {
        self.permits.word(place * 8)
    }

    fn mine(&self) -> u64 {
        self.object.presence().party().bits()
    }

    /// Takes a free permit: its place.
    fn take(&self) -> Option<usize> {
        let (first, mine) = (self.hint.load(Relaxed), self.mine());
        let place = (0..self.most).map(|at| (first + at) % self.most).find(|&place| {
            let word = self.word(place);
            // Acquire pairs with the Release of whoever gave it back.
            word.load(Relaxed) == FREE
                && word.compare_exchange(FREE, mine, Acquire, Relaxed).is_ok()
        })?;
        self.hint.store(place, Relaxed);
        Some(place)
    }

    /// The same, after those of the dead were made free.
    #[cold]
    fn take_after_a_look(&self) -> Option<usize> {
        let presence = self.object.presence();
        // Each word may name another: asked for once, and not looked up one after the other.
        let mut known: HashMap<u64, bool> = HashMap::new();
        let mut lives =
            |party: Party| *known.entry(party.bits()).or_insert_with(|| presence.lives(party));
        let mut back = 0;
        for word in self.words() {
            let seen = word.load(Relaxed);
            let dead = Party::of(seen).is_some_and(|party| !lives(party));
            back += usize::from(dead && word.compare_exchange(seen, FREE, AcqRel, Relaxed).is_ok());
        }
        let place = self.take();
        self.tell(back.saturating_sub(place.is_some().into()));
        place
    }

    fn had(&self, place: usize) -> Result<Permit<'_>> {
        let permit = Permit { semaphore: self, place };
        // Asked after it was taken: who was taken for dead before has no part in it any more.
        self.object.presence().check_all().inspect_err(|_| self.free(place))?;
        Ok(permit)
    }

    /// So many were made free: wakes as many that sleep.
    fn tell(&self, count: usize) {
        if count > 0 {
            self.given.fetch_add(1, Release);
            self.list.wake_some(self.object.presence(), count);
        }
    }

    /// Makes a permit free that this process has.
    fn free(&self, place: usize) {
        let word = self.word(place);
        // Where another stands there, this process was taken for dead.
        if word.compare_exchange(self.mine(), FREE, Release, Relaxed).is_ok() {
            self.tell(1);
        }
    }

    /// Adds `count` free permits: all of them, or none where there is no room for all.
    ///
    /// # Errors
    /// [`Error::TooManyPermits`], [`Error::Forked`], [`Error::Lost`], [`Error::Gone`].
    pub fn add(&self, count: u32) -> Result<()> {
        self.object.presence().check_all()?;
        let mine = self.mine();
        let mut places = Vec::new();
        for place in 0..self.most {
            if places.len() == count as usize {
                break;
            }
            let (word, seen) = (self.word(place), self.word(place).load(Relaxed));
            // What stands for nothing is room, too.
            let room = seen != FREE && Party::of(seen).is_none();
            if room && word.compare_exchange(seen, mine, Relaxed, Relaxed).is_ok() {
                places.push(place);
            }
        }
        let all = places.len() == count as usize;
        let to = if all { FREE } else { ABSENT };
        let change =
            |&place: &usize| self.word(place).compare_exchange(mine, to, Release, Relaxed).is_ok();
        let changed = places.iter().filter(|place| change(place)).count();
        if !all {
            return Err(Error::TooManyPermits { most: self.most() });
        }
        self.tell(changed);
        Ok(())
    }
}

/// The descriptor becomes readable when a call that said [`Error::WouldBlock`] is worth another
/// try, and now and then without. It is this handle's for as long as it lives: not to be read or
/// closed. Where none can be made, poll says of it that it is not open.
impl AsFd for Semaphore {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor().unwrap_or_else(|_| wait::no_descriptor())
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        self.watch.retire(&self.object.inner.presence);
    }
}

impl<'a> Permit<'a> {
    /// Uses it up: it is not given back, and there is room for another one.
    pub fn use_up(self) {
        let (semaphore, place) = (self.semaphore, self.place);
        std::mem::forget(self);
        if semaphore.object.presence().check_all().is_ok() {
            let word = semaphore.word(place);
            let _ = word.compare_exchange(semaphore.mine(), ABSENT, Release, Relaxed);
        }
    }

    /// For the interface in C, whose callers name no permit: it is had until [`Self::from_place`].
    #[doc(hidden)]
    #[must_use]
    pub fn into_place(self) -> usize {
        let place = self.place;
        std::mem::forget(self);
        place
    }

    /// The permit that was taken apart.
    #[doc(hidden)]
    pub fn from_place(semaphore: &'a Semaphore, place: usize) -> Self {
        Self { semaphore, place: place.min(semaphore.most - 1) }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.semaphore.object.presence().check_all().is_ok() {
            self.semaphore.free(self.place);
        }
    }
}
