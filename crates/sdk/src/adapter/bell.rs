//! Something to sleep on that any process of the segment rings, by a number that may lie in shared
//! memory: a waiter of this process that always counts as asleep, so that its descriptor tells of
//! every ring in whatever poll or epoll set it stands.

use crate::descriptors::Own;
use crate::joined::Inner;
use crate::{Error, Result, Segment};
use ginnel_node::Waiter;
use ginnel_region::Party;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The only bit that is rung.
const BIT: u16 = 0;

/// A bell of this process.
pub struct Bell {
    inner: &'static Inner,
    waiter: Waiter,
    /// How often its page had changed hands.
    claims: u16,
    /// Where rings of machines come by another descriptor: both.
    both: Option<Own>,
}

impl Bell {
    /// Makes a bell.
    ///
    /// # Errors
    /// [`Error::SegmentFull`], [`Error::System`], [`Error::Forked`], [`Error::Lost`].
    pub fn new(segment: &Segment) -> Result<Self> {
        let inner = segment.inner;
        inner.presence.enter()?;
        inner.presence.check_all()?;
        let waiter = inner.presence.waiter()?;
        let head = inner.presence.segment().head(waiter.page()).ok_or(Error::Lost)?;
        let mut bell = Self { inner, waiter, claims: head.claims(), both: None };
        if let Some(relayed) = inner.presence.neighbour.relayed() {
            bell.both = Some(both(waiter.fifo(), relayed)?);
        }
        waiter.sleeping(inner.presence.segment());
        Ok(bell)
    }

    /// What others ring it by: its page, and whose it is.
    #[must_use]
    pub fn number(&self) -> [u64; 2] {
        let page = u64::from(self.claims) << 32 | u64::from(self.waiter.page());
        [page, self.inner.presence.party().bits()]
    }

    /// Forgets that it was rung. True where it was.
    pub fn clear(&self) -> bool {
        if self.inner.presence.check_all().is_err() {
            return false;
        }
        let (segment, mut rung) = (self.inner.presence.segment(), false);
        if let Some(both) = &self.both {
            let mut events = [MaybeUninit::<epoll::Event>::uninit(); 2];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let _ = epoll::wait(&**both, &mut events[..], Some(&now));
        }
        loop {
            self.waiter.awake(segment, true);
            // Also where nobody seems to have rung: one that did before may have written only now.
            self.waiter.empty();
            self.waiter.take(segment, |_| rung = true);
            self.waiter.sleeping(segment);
            // Who rang in between saw that it was awake, and wrote nothing.
            if !self.waiter.any(segment) {
                return rung;
            }
        }
    }

    /// Waits until it is rung, for `time` at most, and forgets it. False: the time is over.
    ///
    /// # Errors
    /// [`Error::System`] with EINTR where a signal came.
    pub fn wait(&self, time: Option<Duration>) -> Result<bool> {
        let until = time.and_then(|time| Instant::now().checked_add(time));
        loop {
            if self.clear() {
                return Ok(true);
            }
            self.inner.presence.check_all()?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let slept = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)];
            match poll(&mut fds, slept.as_ref()) {
                // Once more: a ring may have come at the last moment.
                Ok(0) => return Ok(self.clear()),
                Ok(_) => {}
                Err(errno) => return Err(failed("wait for a ring")(errno)),
            }
        }
    }
}

fn failed(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::System { doing, errno: errno.raw_os_error() }
}

/// One descriptor for two: of the second, which is never read, each new ring tells once.
fn both(fifo: i32, relayed: i32) -> Result<Own> {
    let make = || {
        let both = Own::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let data = epoll::EventData::new_u64(0);
        epoll::add(&*both, crate::raw::borrow(fifo), data, epoll::EventFlags::IN)?;
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&*both, crate::raw::borrow(relayed), data, edge)?;
        Ok(both)
    };
    make().map_err(failed("make a descriptor to sleep on"))
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.both
            .as_ref()
            .map_or_else(|| crate::raw::borrow(self.waiter.fifo()), |both| both.as_fd())
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.both = None;
        if self.inner.presence.check_all().is_ok() {
            self.inner.presence.neighbour.retire(self.waiter);
        }
    }
}

/// Is there a bell of this number, and does the process live whose it is? A dead one's waiter is
/// there until somebody sweeps, and would be rung for nobody.
///
/// # Errors
/// [`Error::Forked`], [`Error::Lost`], [`Error::Gone`].
pub fn hangs(segment: &Segment, [page, party]: [u64; 2]) -> Result<bool> {
    let presence = &segment.inner.presence;
    presence.check_all()?;
    let (page, claims) = (page as u32, (page >> 32) as u16);
    let there = presence.segment().head(page).is_some_and(|head| head.claims() == claims);
    Ok(there && Party::of(party).is_some_and(|party| presence.lives(party)))
}

/// Rings the bell of this number. False where none [`hangs`], or it cannot be reached from here.
///
/// # Errors
/// As [`hangs`].
pub fn ring(segment: &Segment, number: [u64; 2]) -> Result<bool> {
    let hangs = hangs(segment, number)?;
    Ok(hangs && segment.inner.presence.neighbour.reaches(number[0] as u32, BIT))
}
