//! Waiting: spinning for as long as a wake-up would cost, then sleeping until somebody wakes.
//!
//! Who waits writes into a word of the object by which waiter it is to be woken, says that the
//! waiter sleeps, looks once more, and sleeps. Who has news claims that word and rings the waiter
//! ([`ginnel_ring::park`] has the handshake, which loom checks). Nobody sleeps for longer than
//! [`SLICE`] without looking again: so a neighbour that dies between its claim and the ring costs a
//! tenth of a second, and nobody waits for the dead.

use crate::descriptors::Own;
use crate::presence::Presence;
use crate::segment::Inner;
use crate::{Error, Result};
use ginnel_node::Waiter;
use ginnel_ring::park::{self, Want};
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::cell::OnceCell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

/// The longest sleep without a look.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
/// How long to spin before sleeping, on one kernel …
const SPIN: Duration = Duration::from_micros(30);
/// … and where other machines have the segment, whose wake-ups are interrupts.
const SPIN_FAR: Duration = Duration::from_micros(200);

/// How long a sleep is that nobody was asked to end.
const UNASKED: Duration = Duration::from_millis(1);
/// The shortest time that a timer takes: 0 switches it off.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// When a call gives up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub const NEVER: Self = Self(None);

    pub fn after(time: Duration) -> Self {
        // A time beyond all clocks is never.
        Self(Instant::now().checked_add(time))
    }

    pub fn left(self) -> Result<Duration> {
        let Some(at) = self.0 else { return Ok(Duration::MAX) };
        at.checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
            .ok_or(Error::TimedOut)
    }
}

/// Something of this process that sleeps: a waiter of the segment, and a descriptor that becomes
/// readable when somebody rings it, or when it is time to look.
pub(crate) struct Sleeper {
    waiter: Waiter,
    epoll: Own,
    timer: Own,
}

impl Sleeper {
    pub fn new(presence: &Presence) -> Result<Self> {
        let failed = |errno: rustix::io::Errno| Error::System {
            doing: "make a descriptor to sleep on",
            errno: errno.raw_os_error(),
        };
        let epoll = Own::new(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?);
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        let timer = Own::new(timer);
        let waiter = presence.waiter()?;
        let watch = |fd: BorrowedFd<'_>, how| {
            epoll::add(&*epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN | how)
        };
        let add = || {
            watch(timer.as_fd(), epoll::EventFlags::empty())?;
            watch(crate::raw::borrow(waiter.fifo()).as_fd(), epoll::EventFlags::empty())?;
            // It is never read: see `Neighbour::relayed`.
            presence
                .neighbour
                .relayed()
                .map_or(Ok(()), |fd| watch(crate::raw::borrow(fd).as_fd(), epoll::EventFlags::ET))
        };
        match add() {
            Ok(()) => Ok(Self { waiter, epoll, timer }),
            Err(errno) => {
                presence.neighbour.retire(waiter);
                Err(failed(errno))
            }
        }
    }

    /// The word that asks to be woken by this.
    pub fn wish(&self) -> u64 {
        self.waiter.want(0).word()
    }

    /// Says that it sleeps: news from here on rings it. The caller looks once more.
    pub fn sleeping(&self, presence: &Presence) {
        self.waiter.sleeping(presence.segment());
    }

    pub fn awake(&self, presence: &Presence) {
        self.waiter.awake(presence.segment(), false);
        self.waiter.take(presence.segment(), |_| {});
    }

    /// Sleeps until somebody rings, at most for `time`.
    pub fn sleep(&self, time: Duration) {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 4];
        let time = Timespec::try_from(time.min(SLICE)).ok();
        // A signal ends it, as somebody's ring does: the caller looks, and sleeps again.
        let _ = epoll::wait(&*self.epoll, &mut events[..], time.as_ref());
    }

    /// The same, as a system call of the program's that a signal ends: with the signals that `mask`
    /// has not blocked, where a bit stands for each. True where one came.
    pub fn sleep_among_signals(&self, time: Duration, mask: u64) -> bool {
        crate::raw::sleep_among_signals(self.epoll.as_fd(), time.min(SLICE), mask)
    }

    /// Has the descriptor become readable after a while, as long as it is not rung before.
    fn set_timer(&self, time: Duration) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value =
            Itimerspec { it_interval: zero, it_value: Timespec::try_from(time).unwrap_or(zero) };
        let _ = timerfd_settime(&*self.timer, TimerfdTimerFlags::empty(), &value);
    }

    /// For a program that waits in its own epoll set: arms `want` and the descriptor. The caller
    /// looks once more after it.
    pub fn arm(&self, presence: &Presence, want: &impl Wish) {
        self.arm_for(presence, want, SLICE);
    }

    /// The same; the descriptor is readable at once.
    pub fn arm_at_once(&self, presence: &Presence, want: &impl Wish) {
        self.arm_for(presence, want, AT_ONCE);
    }

    fn arm_for(&self, presence: &Presence, want: &impl Wish, time: Duration) {
        self.awake(presence);
        let asked = want.put(self.wish());
        self.set_timer(if asked { time } else { time.min(UNASKED) });
        self.sleeping(presence);
    }

    /// Takes that back.
    pub fn disarm(&self, presence: &Presence, want: &impl Wish) {
        want.take_back(self.wish());
        self.awake(presence);
    }

    /// The look after [`Self::arm`] found something. Arming made the descriptor forget what came
    /// before, so it becomes readable at once: there may be more.
    pub fn again(&self, presence: &Presence, want: &impl Wish) {
        self.disarm(presence, want);
        self.set_timer(AT_ONCE);
    }

    pub fn retire(self, presence: &Presence) {
        if presence.check_all().is_ok() {
            presence.neighbour.retire(self.waiter);
        }
    }
}

impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// The descriptor of an end that asks in `want`, made at the first call. It is readable then: a
/// call before may have said [`Error::WouldBlock`], and nobody was asked to wake this.
pub(crate) fn watched<'a>(
    watch: &'a OnceCell<Sleeper>,
    presence: &Presence,
    want: &AtomicU64,
) -> Result<BorrowedFd<'a>> {
    presence.check()?;
    if watch.get().is_none() {
        let sleeper = Sleeper::new(presence)?;
        sleeper.arm_at_once(presence, &want);
        let _ = watch.set(sleeper);
    }
    watch.get().map(AsFd::as_fd).ok_or(Error::WouldBlock)
}

/// In place of a descriptor that could not be made: one that epoll refuses, and that poll says is
/// not open.
pub(crate) fn no_descriptor() -> BorrowedFd<'static> {
    crate::raw::borrow(i32::MAX)
}

/// Sleepers that nobody uses at the moment: a call that sleeps takes one.
#[derive(Default)]
pub(crate) struct Sleepers(Mutex<Vec<Sleeper>>);

impl Sleepers {
    /// So many are kept for the next calls.
    const KEPT: usize = 16;

    pub fn take(&self, presence: &Presence) -> Result<Sleeper> {
        let kept = self.0.lock().unwrap_or_else(|broken| broken.into_inner()).pop();
        kept.map_or_else(|| Sleeper::new(presence), Ok)
    }

    pub fn give_back(&self, sleeper: Sleeper, presence: &Presence) {
        let mut kept = self.0.lock().unwrap_or_else(|broken| broken.into_inner());
        if kept.len() < Self::KEPT {
            kept.push(sleeper);
        } else {
            drop(kept);
            sleeper.retire(presence);
        }
    }
}

/// Asks to be woken, in a word that is this caller's alone to ask in.
pub(crate) fn put_wish(want: &AtomicU64, wish: u64) {
    want.store(wish, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Takes a wish back, where nobody claimed it.
pub(crate) fn take_wish_back(want: &AtomicU64, wish: u64) {
    let _ = want.compare_exchange(wish, 0, Ordering::AcqRel, Ordering::Relaxed);
}

/// There is news for whoever asked in `want`: wakes it. True if somebody slept.
#[inline]
pub(crate) fn wake(presence: &Presence, want: &AtomicU64) -> bool {
    match park::claim(want) {
        Want::Waiter { page, bit } => presence.neighbour.ring(page, bit),
        _ => false,
    }
}

/// How often in a row spinning found nothing.
static IN_VAIN: AtomicU32 = AtomicU32::new(0);
/// After so many times in vain …
const ENOUGH: u32 = 8;
/// … only one wait in so many spins, to see whether it pays again.
const NOW_AND_THEN: u32 = 16;

/// Does `attempt` again and again for as long as a wake-up would cost, unless that has not paid of
/// late: what is waited for comes later, or from the same processor. `None`: it is time to sleep.
pub(crate) fn spin<T>(
    presence: &Presence,
    mut attempt: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    if let Some(done) = attempt()? {
        return Ok(Some(done));
    }
    let in_vain = IN_VAIN.fetch_add(1, Ordering::Relaxed);
    // With one processor, whoever is waited for cannot run meanwhile.
    let pays = in_vain < ENOUGH || in_vain.is_multiple_of(NOW_AND_THEN);
    if !pays || !crate::raw::has_processors() {
        return Ok(None);
    }
    let far = presence.segment().source() != ginnel_region::Source::File;
    let until = Instant::now() + if far { SPIN_FAR } else { SPIN };
    while Instant::now() < until {
        for _ in 0..20 {
            if let Some(done) = attempt()? {
                IN_VAIN.store(0, Ordering::Relaxed);
                return Ok(Some(done));
            }
            std::hint::spin_loop();
        }
    }
    Ok(None)
}

/// Where a sleeper asks to be woken.
pub(crate) trait Wish {
    /// Asks. False where there is no room to: then nobody wakes, and the sleep is short.
    fn put(&self, wish: u64) -> bool;
    /// Takes it back, where nobody claimed it.
    fn take_back(&self, wish: u64);
}

/// A word that is one party's alone to ask in.
impl Wish for &AtomicU64 {
    fn put(&self, wish: u64) -> bool {
        put_wish(self, wish);
        true
    }

    fn take_back(&self, wish: u64) {
        take_wish_back(self, wish);
    }
}

/// Waits until `attempt` gives something: spinning, then asleep with a wish in `want`. `look` is
/// asked before each sleep whether there is anybody to wait for, and may give it too.
pub(crate) fn until<T>(
    inner: &Inner,
    want: impl Wish,
    deadline: Deadline,
    mut attempt: impl FnMut() -> Result<Option<T>>,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let presence = &inner.presence;
    if let Some(done) = spin(presence, &mut attempt)? {
        return Ok(done);
    }
    let sleeper = inner.sleepers.take(presence)?;
    let mut sleep = || loop {
        let asked = want.put(sleeper.wish());
        sleeper.sleeping(presence);
        if let Some(done) = attempt()? {
            return Ok(done);
        }
        presence.check_all()?;
        if let Some(done) = look()? {
            return Ok(done);
        }
        let most = if asked { SLICE } else { UNASKED };
        sleeper.sleep(deadline.left()?.min(most));
        sleeper.awake(presence);
        if let Some(done) = attempt()? {
            return Ok(done);
        }
    };
    let done = sleep();
    want.take_back(sleeper.wish());
    sleeper.awake(presence);
    inner.sleepers.give_back(sleeper, presence);
    done
}
