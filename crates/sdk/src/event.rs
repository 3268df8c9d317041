//! An event by name: something has happened, and whoever waits for it goes on.
//!
//! | offset | what stands in an event's first page |
//! |---|---|
//! | 0x28 | 1: it stays set until it is reset; 2: it lets one through and resets itself |
//! | 0x40 | bit 0: set; bits 1–63: how often it was set |
//! | 0x80 | who sleeps: see [`crate::waitlist`] |
//!
//! It has no holder, so a death leaves nothing behind but what this table says: who dies in the
//! middle of setting it has set it or has not, and whoever sleeps looks by itself every tenth of a
//! second. Whoever waits for an event that stays set goes on where the count has moved, too: it was
//! set meanwhile, and reset before this one looked.

use crate::object::{self, Object, Shape};
use crate::wait::{self, Deadline};
use crate::waitlist::{Place, Waitlist};
use crate::watch::Watch;
use crate::{Error, Keep, Kind, Result, Segment};
use ginnel_region::Untrusted;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

const STATE: usize = 0x40;
const SET: u64 = 1;
/// How often a change is tried anew because others change the word at the same time.
const TRIES: u32 = 1000;

/// What becomes of an event that is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reset {
    /// It stays set, and everybody goes on, until [`Event::reset`].
    #[default]
    Manual,
    /// One goes on, and it is reset by that. Setting it again before is setting it once.
    Auto,
}

impl Reset {
    fn number(self) -> u64 {
        match self {
            Self::Manual => 1,
            Self::Auto => 2,
        }
    }
}

/// Something that happens, by name, for processes, containers and machines.
///
/// Who goes on by an event that resets itself and dies then has taken it along. Where each thing
/// has to be done by somebody, count the things with a [`crate::Semaphore`].
///
/// A process that does not keep to the rules can set and reset it.
///
/// ```
/// # let directory = ginnel::testing::directory();
/// use ginnel::{Event, Reset, Segment};
/// use std::time::Duration;
/// let segment = Segment::open("example")?;
/// let ready = Event::open_or_create(&segment, "ready", Reset::Manual)?;
/// assert!(ready.wait_timeout(Duration::from_millis(1)).is_err());
///
/// // In another process:
/// let ready = Event::open(&segment, "ready")?;
/// ready.set()?;
/// ready.wait()?; // and so does everybody
/// # drop(directory);
/// # Ok::<(), ginnel::Error>(())
/// ```
pub struct Event {
    object: Object,
    reset: Reset,
    state: &'static AtomicU64,
    list: Waitlist,
    watch: Watch,
}

shown! {
    Event as "Event": |own| { name: own.name(), resets: own.resets() };
}

impl Event {
    /// Makes an event that is not set, and keeps its name until it is removed.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::SegmentFull`] and others.
    pub fn create(segment: &Segment, name: &str, reset: Reset) -> Result<Self> {
        let (kind, keep, numbers) = (Kind::Event, Keep::UntilRemoved, [reset.number(), 0, 0]);
        let shape = Shape { kind, size: 8, pages: 0, numbers, keep };
        Self::of(Object::create(segment.inner, name, &shape, |_, _| {})?)
    }

    /// Opens one that is there.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::WrongKind`], [`Error::Corrupt`].
    pub fn open(segment: &Segment, name: &str) -> Result<Self> {
        Self::of(Object::open(segment.inner, name, Kind::Event)?)
    }

    /// Opens it, or makes it where it is not there.
    ///
    /// # Errors
    /// [`Error::WrongShape`] where it is reset in the other way, else as [`Self::create`] and
    /// [`Self::open`].
    pub fn open_or_create(segment: &Segment, name: &str, reset: Reset) -> Result<Self> {
        let open = || {
            let event = Self::open(segment, name)?;
            if event.reset == reset {
                return Ok(event);
            }
            let (what, is) = ("way to be reset (1: by hand, 2: by itself)", event.reset.number());
            let name = name.to_owned();
            Err(Error::WrongShape { name, what, is, wanted: reset.number() })
        };
        object::open_or_create(name, || Self::create(segment, name, reset), open)
    }

    fn of(object: Object) -> Result<Self> {
        let number = Untrusted::new(object.numbers[0]).within(1, 2);
        let number = number.map_err(|_| object.corrupt())?;
        let reset = if number == 1 { Reset::Manual } else { Reset::Auto };
        let (state, list) = (object.words.word(STATE), Waitlist::new(object.words));
        Ok(Self { object, reset, state, list, watch: Watch::default() })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.object.name
    }

    /// What becomes of it once it is set.
    #[must_use]
    pub fn resets(&self) -> Reset {
        self.reset
    }

    /// Is it set at the moment?
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.state.load(Acquire) & SET != 0
    }

    /// Sets it: whoever waits goes on, or one of those who do.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::Lost`], [`Error::Gone`].
    pub fn set(&self) -> Result<()> {
        let presence = self.object.presence();
        presence.check_all()?;
        let set = |state: u64| ((state >> 1).wrapping_add(1) << 1) | SET;
        let mut state = self.state.load(Relaxed);
        for _ in 0..TRIES {
            if state & SET != 0 {
                break;
            }
            // Release: who goes on sees what was done before.
            match self.state.compare_exchange_weak(state, set(state), AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        // Also where it was set before: who did that may have died before it woke anybody.
        let most = if self.reset == Reset::Manual { usize::MAX } else { 1 };
        self.list.wake_some(presence, most);
        Ok(())
    }

    /// Resets it: whoever comes waits. True where it was set.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn reset(&self) -> Result<bool> {
        self.object.presence().check_all()?;
        Ok(self.state.fetch_and(!SET, AcqRel) & SET != 0)
    }

    /// Waits until it is set.
    ///
    /// # Errors
    /// [`Error::SegmentFull`] where there is no page to sleep on, [`Error::Forked`],
    /// [`Error::Lost`], [`Error::Gone`].
    pub fn wait(&self) -> Result<()> {
        self.wait_until(Deadline::NEVER)
    }

    /// As [`Self::wait`], for `time` at most.
    ///
    /// # Errors
    /// As [`Self::wait`], and [`Error::TimedOut`].
    pub fn wait_timeout(&self, time: Duration) -> Result<()> {
        self.wait_until(Deadline::after(time))
    }

    /// Goes on where it is set.
    ///
    /// # Errors
    /// As [`Self::wait`], and [`Error::WouldBlock`]: the descriptor then tells when it is set.
    pub fn try_wait(&self) -> Result<()> {
        self.object.presence().check_all()?;
        let armed = || self.watch.arm(self.object.presence(), || self.pass(None));
        self.pass(None).or_else(armed).ok_or(Error::WouldBlock)
    }

    /// The descriptor of [`AsFd`], or why there is none.
    #[doc(hidden)]
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.watch.descriptor(self.object.inner, self.list)
    }

    fn wait_until(&self, deadline: Deadline) -> Result<()> {
        self.object.presence().check_all()?;
        let began = self.state.load(Relaxed) >> 1;
        if let Some(()) = self.pass(Some(began)) {
            return Ok(());
        }
        let place = Place::new(self.list, self.object.presence());
        let attempt = || Ok(self.pass(Some(began)));
        wait::until(self.object.inner, place, deadline, attempt, || Ok(None))
    }

    /// Goes on, where that may be: it is set, or was since it had been set `began` times.
    fn pass(&self, began: Option<u64>) -> Option<()> {
        // Acquire pairs with the Release of whoever set it.
        let mut state = self.state.load(Acquire);
        if self.reset == Reset::Manual {
            let was_set = began.is_some_and(|began| state >> 1 != began);
            return (state & SET != 0 || was_set).then_some(());
        }
        for _ in 0..TRIES {
            if state & SET == 0 {
                return None;
            }
            match self.state.compare_exchange_weak(state, state & !SET, AcqRel, Acquire) {
                Ok(_) => return Some(()),
                Err(now) => state = now,
            }
        }
        None
    }
}

/// The descriptor becomes readable when a call that said [`Error::WouldBlock`] is worth another
/// try, and now and then without. It is this handle's for as long as it lives: not to be read or
/// closed. Where none can be made, poll says of it that it is not open.
impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor().unwrap_or_else(|_| wait::no_descriptor())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.watch.retire(&self.object.inner.presence);
    }
}
