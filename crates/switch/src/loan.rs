//! Frames that another host is sent where they lie in a machine's memory. The chain of such a frame
//! is lent: it goes back to its machine once whoever sends it needs the memory no more. Wherever
//! that is found out, in the thread of the frames or in the one that closes connections, a note of
//! it ends up on the switch's desk.

use crate::ring::{Held, Memory, Region, Slices};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which chain was lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The port from which the frame came.
    pub port: u32,
    /// The queue.
    pub queue: u16,
    /// [`crate::ring::Ring::number`]: of no other ring and chain.
    pub number: u64,
}

/// What came back: the memory with it, where it is not unmapped yet.
pub type Back = (Ticket, Option<Held>);

/// Where it is noted what came back.
#[derive(Debug)]
pub struct Desk {
    back: Mutex<Vec<Back>>,
    /// There is something.
    any: AtomicBool,
    bell: OwnedFd,
}

impl Desk {
    /// An empty one.
    ///
    /// # Errors
    /// The `errno` of eventfd(2).
    pub fn new() -> Result<Arc<Self>, Errno> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { back: Mutex::default(), any: AtomicBool::new(false), bell }))
    }

    fn back(&self) -> MutexGuard<'_, Vec<Back>> {
        self.back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, back: Back) {
        let mut all = self.back();
        all.push(back);
        // Written and cleared with the list locked: who sees it unset misses nothing but what is
        // just being put there, which is rung for or put by the one who looks.
        self.any.store(true, Ordering::Relaxed);
    }

    /// Takes what came back.
    #[must_use]
    #[inline]
    pub fn take(&self) -> Vec<Back> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut all = self.back();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *all)
    }

    /// The bell was heard.
    pub fn quiet(&self) {
        // It may not have been rung.
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
    }
}

/// Can be read when something came back while nobody looked.
impl AsFd for Desk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// What a frame comes from that may be lent.
#[derive(Debug)]
pub struct Lender<'a> {
    /// The machine's memory.
    pub memory: &'a Memory,
    /// Held once by the device, and by each of its loans.
    pub device: &'a Arc<()>,
    /// The chain.
    pub ticket: Ticket,
    /// Where it comes back.
    pub desk: &'a Arc<Desk>,
}

impl Lender<'_> {
    /// Lends the last `count` pieces of `rest`, if they lie in regions that are all `good`.
    #[must_use]
    pub fn lend(
        &self,
        rest: &Slices<'_>,
        count: usize,
        good: impl Fn(&Arc<Region>) -> bool,
    ) -> Option<Loan> {
        let held = Held::last(self.memory, rest, count, good)?;
        let lent = Some((self.ticket, held));
        Some(Loan { lent, desk: Arc::clone(self.desk), _device: Arc::clone(self.device) })
    }
}

/// Memory that was lent. Whoever drops it needs it no more.
#[derive(Debug)]
pub struct Loan {
    lent: Option<(Ticket, Held)>,
    desk: Arc<Desk>,
    _device: Arc<()>,
}

impl Loan {
    /// The memory.
    #[must_use]
    pub fn held(&self) -> Option<&Held> {
        self.lent.as_ref().map(|(_, held)| held)
    }

    /// Gives it back in the thread of the frames, which looks at the desk anyway.
    pub fn settle(mut self) {
        if let Some((ticket, held)) = self.lent.take() {
            self.desk.put((ticket, Some(held)));
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some((ticket, held)) = self.lent.take() {
            drop(held);
            self.desk.put((ticket, None));
            // A full counter has been rung.
            let _ = rustix::io::write(&self.desk.bell, &1u64.to_ne_bytes());
        }
    }
}
