//! Frames that another host is sent where they lie in a machine's memory. The chain of such a frame
//! is lent: it goes back to its machine once whoever sends it needs the memory no more. Wherever
//! that is found out, in the thread of the frames or in the one that closes connections, a note of
//! it ends up on the switch's desk.

use crate::ring::{Held, Memory, Region, Slices};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::any::Any;
use std::cell::Cell;
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

/// What is kept as long as memory is lent, as what a device knows of it. To let go of the last of
/// one may take long.
pub type Beside = SmallVec<[Arc<dyn Any + Send + Sync>; 3]>;

/// What came back.
#[derive(Debug)]
pub struct Back {
    /// The chain.
    pub ticket: Ticket,
    /// The memory, where it is not unmapped yet.
    pub held: Option<Held>,
    /// What was kept beside it.
    pub beside: Beside,
    /// A device has something lent until its chain was given back, not only until nobody needs it.
    _device: Arc<()>,
}

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
    /// It was lent: it comes back by the desk, whatever became of the frame.
    pub lent: Cell<bool>,
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
        self.lent.set(true);
        let lent = Some((self.ticket, held, Arc::clone(self.device)));
        Some(Loan { lent, desk: Arc::clone(self.desk) })
    }
}

/// Memory that was lent. Whoever drops it needs it no more.
#[derive(Debug)]
pub struct Loan {
    lent: Option<(Ticket, Held, Arc<()>)>,
    desk: Arc<Desk>,
}

impl Loan {
    /// The memory.
    #[must_use]
    pub fn held(&self) -> Option<&Held> {
        self.lent.as_ref().map(|(_, held, _)| held)
    }

    /// Gives it back in the thread of the frames, which looks at the desk anyway.
    pub fn settle(mut self, beside: Beside) {
        if let Some((ticket, held, device)) = self.lent.take() {
            self.desk.put(Back { ticket, held: Some(held), beside, _device: device });
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some((ticket, held, device)) = self.lent.take() {
            drop(held);
            let beside = Beside::new();
            self.desk.put(Back { ticket, held: None, beside, _device: device });
            // A full counter has been rung.
            let _ = rustix::io::write(&self.desk.bell, &1u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front_end::{FrontEnd, GUEST, Options};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_device_has_something_lent_until_its_chain_can_be_given_back() {
        let (socket, _other) = UnixStream::pair().expect("a pair");
        let guest = FrontEnd::prepare(socket, Options::default()).expect("memory");
        let (desk, device) = (Desk::new().expect("an eventfd"), Arc::new(()));
        let mut rest = Slices::new();
        assert!(guest.memory.append(GUEST, 100, &mut rest));
        for settles in [true, false] {
            let ticket = Ticket { port: 1, queue: 1, number: 7 };
            let (memory, lent) = (&guest.memory, Cell::new(false));
            let lender = Lender { memory, device: &device, ticket, desk: &desk, lent };
            assert!(lender.lend(&rest, 3, |_| false).is_none() && !lender.lent.get());
            let loan = lender.lend(&rest, 3, |_| true).expect("lent");
            assert!(lender.lent.get() && Arc::strong_count(&device) == 2);
            if settles {
                loan.settle(Beside::new())
            } else {
                drop(loan)
            }
            // A queue that is stopped now would stand before a chain that was sent.
            assert_eq!(Arc::strong_count(&device), 2, "nobody has heard of it yet");
            let back = desk.take();
            assert!(back.len() == 1 && back[0].ticket == ticket);
            assert_eq!(back[0].held.is_some(), settles);
            drop(back);
            assert_eq!(Arc::strong_count(&device), 1);
        }
    }
}
