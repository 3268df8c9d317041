//! What a process sleeps on: a waiter of the segment behind a descriptor, and where it asks to be
//! woken.

use crate::descriptors::Own;
use crate::presence::Presence;
use crate::{Error, Result};
use ginnel_node::Waiter;
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

/// The longest sleep without a look.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
/// How long a sleep is that nobody was asked to end.
pub(crate) const UNASKED: Duration = Duration::from_millis(1);
/// The shortest time that a timer takes: 0 switches it off.
const AT_ONCE: Duration = Duration::from_nanos(1);

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

/// Asks to be woken, in a word that is this caller's alone to ask in.
pub(crate) fn put_wish(want: &AtomicU64, wish: u64) {
    want.store(wish, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Takes a wish back, where nobody claimed it.
pub(crate) fn take_wish_back(want: &AtomicU64, wish: u64) {
    let _ = want.compare_exchange(wish, 0, Ordering::AcqRel, Ordering::Relaxed);
}
