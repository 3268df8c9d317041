//! A barrier by name: all go on when all have come, and nobody waits for one that died.
//!
//! | offset | what stands in a barrier's first page |
//! |---|---|
//! | 0x28 | how many take part |
//! | 0x40 | bits 0–47: who has come, by seat; bits 48–63: how often all had |
//! | 0x80 | who sleeps: see [`crate::waitlist`] |
//! | 0x600 … | the seats: the party that takes part |
//!
//! Who comes sets its bit; whoever sets the last one takes all of them away and counts, in the same
//! exchange. So there is no moment in which some may go on and others not, and who gives up (its
//! time is over, or somebody died) finds in the exchange that takes its bit back whether all had
//! come before.
//!
//! A dead party's seat is told by the word. One that had come before it died has come. For one that
//! had not nobody waits: whoever does is told, until another has taken its seat. Who takes a seat
//! takes the bit of the one before away. `tests/barrier_model.rs` walks every run of it, with a
//! death at each step.

use crate::object::{self, Object, Shape};
use crate::presence::Presence;
use crate::wait::{self, Deadline};
use crate::waitlist::{Place, Waitlist};
use crate::{Error, Keep, Kind, Result, Segment};
use ginnel_region::{Party, Untrusted};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

const STATE: usize = 0x40;
const SEATS: usize = 0x600;
const MOST: u32 = 48;
const COME: u64 = (1 << MOST) - 1;
/// How often a change is tried anew because others change the word at the same time.
const TRIES: u32 = 1000;

fn times(state: u64) -> u64 {
    state >> MOST
}

/// One that takes part in a barrier, by name: processes, containers and machines go on together.
///
/// Each value has a seat, from when it is made or opened until it is dropped. While seats are empty
/// whoever waits waits for those that are to come, too. Where one that takes part dies, all that
/// wait are told ([`Error::Broken`]), and whoever comes, until somebody opens the barrier and has
/// the seat of the dead: then all wait anew.
///
/// A process that does not keep to the rules can let others go on too early, or have them wait for
/// as long as they said.
///
/// ```
/// # let directory = ginnel::testing::directory();
/// use ginnel::{Barrier, Segment};
/// let segment = Segment::open("example")?;
/// let mut mine = Barrier::open_or_create(&segment, "step", 2)?;
///
/// // In another process:
/// let other = std::thread::spawn(move || {
///     let mut its = Barrier::open_or_create(&segment, "step", 2)?;
///     its.wait()
/// });
///
/// let last = mine.wait()?; // one of them came last
/// assert_ne!(last, other.join().expect("whole")?);
/// # drop(directory);
/// # Ok::<(), ginnel::Error>(())
/// ```
pub struct Barrier {
    object: Object,
    state: &'static AtomicU64,
    list: Waitlist,
    parties: u32,
    seat: u32,
}

shown! {
    Barrier as "Barrier": |own| { name: own.name(), parties: own.parties() };
}

/// What came of coming.
enum Come {
    /// All have, this one last.
    Last,
    /// All had come so often before.
    Early(u64),
}

impl Barrier {
    /// Makes a barrier in which `parties` take part, 1 to 48, and takes part in it. It keeps its
    /// name until it is removed.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number, [`Error::Taken`], [`Error::SegmentFull`] and others.
    pub fn create(segment: &Segment, name: &str, parties: u32) -> Result<Self> {
        if !(1..=MOST).contains(&parties) {
            let what = format!("in a barrier 1 to {MOST} take part, not {parties}");
            return Err(Error::Invalid { what });
        }
        let (kind, keep, numbers) = (Kind::Barrier, Keep::UntilRemoved, [parties.into(), 0, 0]);
        let shape = Shape { kind, size: 8, pages: 0, numbers, keep };
        Self::of(Object::create(segment.inner, name, &shape, |_, _| {})?, None)
    }

    /// Takes part in one that is there.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::WrongKind`], [`Error::InUse`] where all seats are taken by
    /// who lives, [`Error::Corrupt`].
    pub fn open(segment: &Segment, name: &str) -> Result<Self> {
        Self::of(Object::open(segment.inner, name, Kind::Barrier)?, None)
    }

    /// Takes part in it, and makes it where it is not there.
    ///
    /// # Errors
    /// [`Error::WrongShape`] where another number takes part, else as [`Self::create`] and
    /// [`Self::open`].
    pub fn open_or_create(segment: &Segment, name: &str, parties: u32) -> Result<Self> {
        let open = || Self::of(Object::open(segment.inner, name, Kind::Barrier)?, Some(parties));
        object::open_or_create(name, || Self::create(segment, name, parties), open)
    }

    /// `wanted`: how many are to take part, where that is asked for. Whoever asks for another
    /// number is refused before it takes a seat: that seat may be the last one, or a dead one's, of
    /// whom the others are to hear.
    fn of(object: Object, wanted: Option<u32>) -> Result<Self> {
        let parties = Untrusted::new(object.numbers[0]).within(1, MOST.into());
        let parties = parties.ok().and_then(|parties| u32::try_from(parties).ok());
        let parties = parties.ok_or_else(|| object.corrupt())?;
        if let Some(wanted) = wanted.filter(|&wanted| wanted != parties) {
            let (name, what) = (object.name.clone(), "parties");
            let (is, wanted) = (parties.into(), wanted.into());
            return Err(Error::WrongShape { name, what, is, wanted });
        }
        let seat = take_seat(&object, parties)?;
        let (state, list) = (object.words.word(STATE), Waitlist::new(object.words));
        let barrier = Self { object, state, list, parties, seat };
        // Of the one before, who may have come and died.
        barrier.take_back(None)?;
        Ok(barrier)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.object.name
    }

    /// How many take part.
    #[must_use]
    pub fn parties(&self) -> u32 {
        self.parties
    }

    /// Waits until all have come. True for the one that came last.
    ///
    /// # Errors
    /// [`Error::Broken`] where one that takes part died before it came: nobody goes on, and who
    /// waits again waits for all of them. [`Error::SegmentFull`] where there is no page to sleep
    /// on, [`Error::Forked`], [`Error::Lost`], [`Error::Gone`], [`Error::Corrupt`].
    pub fn wait(&mut self) -> Result<bool> {
        self.wait_until(Deadline::NEVER)
    }

    /// As [`Self::wait`], for `time` at most. Where that is over this one has not come.
    ///
    /// # Errors
    /// As [`Self::wait`], and [`Error::TimedOut`].
    pub fn wait_timeout(&mut self, time: Duration) -> Result<bool> {
        self.wait_until(Deadline::after(time))
    }

    fn wait_until(&mut self, deadline: Deadline) -> Result<bool> {
        let presence = self.presence();
        presence.check_all()?;
        let before = match self.come()? {
            Come::Last => {
                self.list.wake_some(presence, usize::MAX);
                return Ok(true);
            }
            Come::Early(before) => before,
        };
        let place = Place::new(self.list, presence);
        // Acquire pairs with the Release of whoever came last.
        let attempt = || Ok((times(self.state.load(Acquire)) != before).then_some(()));
        let look = || if self.is_broken() { Err(Error::Broken) } else { Ok(None) };
        let waited = wait::until(self.object.inner, place, deadline, attempt, look);
        let Err(error) = waited else { return Ok(false) };
        presence.check_all()?;
        // All may have come in the last moment.
        if self.take_back(Some(before))? { Err(error) } else { Ok(false) }
    }

    fn presence(&self) -> &'static Presence {
        &self.object.inner.presence
    }

    fn bit(&self) -> u64 {
        1 << self.seat
    }

    fn all(&self) -> u64 {
        COME >> (MOST - self.parties)
    }

    /// Changes the state; `None` from `change`: it is as it should be.
    fn change(&self, change: impl Fn(u64) -> Option<u64>) -> Result<u64> {
        let mut seen = self.state.load(Acquire);
        for _ in 0..TRIES {
            let Some(next) = change(seen) else { return Ok(seen) };
            match self.state.compare_exchange_weak(seen, next, AcqRel, Acquire) {
                Ok(_) => return Ok(seen),
                Err(now) => seen = now,
            }
        }
        Err(self.object.corrupt())
    }

    fn come(&self) -> Result<Come> {
        let (bit, all) = (self.bit(), self.all());
        let is_last = |state: u64| (state | bit) & all == all;
        let next = |state: u64| {
            // The count goes round: nobody is more than once behind.
            let counted = times(state).wrapping_add(1) << MOST;
            Some(if is_last(state) { counted } else { state | bit })
        };
        let seen = self.change(next)?;
        Ok(if is_last(seen) { Come::Last } else { Come::Early(times(seen)) })
    }

    /// Has not come after all. False where all had come meanwhile, of whom there were `before`.
    fn take_back(&self, before: Option<u64>) -> Result<bool> {
        let (bit, times_are) =
            (self.bit(), |state| before.is_none_or(|before| times(state) == before));
        let next = |state: u64| (times_are(state) && state & bit != 0).then_some(state & !bit);
        self.change(next).map(times_are)
    }

    fn seat(&self, seat: u32) -> u64 {
        self.object.words.word(seat_at(seat)).load(Acquire)
    }

    /// Has one died that had not come?
    fn is_broken(&self) -> bool {
        let broken = |seat: u32| {
            let seen = self.seat(seat);
            let dead = Party::of(seen).is_some_and(|party| !self.presence().lives(party));
            // In this order: a bit that the dead one set is there by now, and one that has taken
            // its seat meanwhile lives.
            dead && self.state.load(Acquire) >> seat & 1 == 0 && self.seat(seat) == seen
        };
        (0..self.parties).any(broken)
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        let presence = self.presence();
        if presence.check_all().is_ok() {
            let seat = self.object.words.word(seat_at(self.seat));
            let _ = seat.compare_exchange(presence.party().bits(), 0, Release, Relaxed);
        }
    }
}

fn seat_at(seat: u32) -> usize {
    SEATS + seat as usize * 8
}

/// Takes the seat of a dead one, else an empty one.
fn take_seat(object: &Object, parties: u32) -> Result<u32> {
    let presence = object.presence();
    let take = |seat: u32, is_it: &dyn Fn(u64) -> bool| {
        let word = object.words.word(seat_at(seat));
        let seen = word.load(Acquire);
        let mine = presence.party().bits();
        is_it(seen) && word.compare_exchange(seen, mine, AcqRel, Relaxed).is_ok()
    };
    let dead = |seen: u64| Party::of(seen).is_some_and(|party| !presence.lives(party));
    let empty = |seen: u64| Party::of(seen).is_none();
    let found = (0..parties).find(|&seat| take(seat, &dead));
    let found = found.or_else(|| (0..parties).find(|&seat| take(seat, &empty)));
    found.ok_or_else(|| {
        let first = Party::of(object.words.word(seat_at(0)).load(Acquire));
        let pid = first.map_or(0, |party| presence.pid_of(party));
        let (name, role) = (object.name.clone(), "party in each of its seats, the first");
        Error::InUse { name, role, pid }
    })
}
