//! What UCX has pointers to: an interface, which is an endpoint of its own in the segment, and an
//! endpoint, its way to another one; and the requests that wait for room on such a way.

use crate::abi::{BaseInterface, IN_PROGRESS, OK, Pending};
use ginnel_fabric::EndpointId;
use ginnel_fabric::active::Active;
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// An interface. UCX knows it by its base, which is its beginning.
#[repr(C)]
pub struct Interface {
    pub base: UnsafeCell<BaseInterface>,
    pub active: UnsafeCell<Active>,
    pub waiting: Waiting,
    /// Progress is being made: a handler that asks for it again gets none.
    pub within: Cell<bool>,
    /// Somebody polls the descriptor.
    pub armed: AtomicBool,
    /// The thread that makes progress on it: see [`crate::rest`].
    pub owner: AtomicU64,
    /// Several threads use it at once, by UCX's lock.
    pub at_once: bool,
}

impl Interface {
    /// # Safety
    /// UCX's rules: the base of an open interface, of a thread that may use it.
    #[inline]
    pub unsafe fn of<'a>(base: *mut BaseInterface) -> &'a Self {
        // SAFETY: the caller's promise; the interface begins with its base.
        unsafe { &*base.cast::<Self>() }
    }

    /// The engine. Whoever follows the pointer lets go of it before anything else of UCX is called.
    #[inline]
    pub fn active(&self) -> *mut Active {
        self.active.get()
    }

    /// Does it wait for room? Then it is not to sleep for long.
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Does all that waits for room wait for it still? Its readers wake this interface when they
    /// have made some.
    ///
    /// # Safety
    /// UCX's rules; no other thread uses it now.
    pub unsafe fn is_full(&self) -> bool {
        // SAFETY: the caller's promise; a way that leads nowhere any more is not full.
        let is_full = |way| unsafe { (*self.active()).has_room(way) } == Ok(false);
        self.waiting.ways().all(is_full)
    }

    /// Does somebody poll its descriptor?
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Its beginning, which is UCX's.
    pub fn base(&self) -> *mut BaseInterface {
        self.base.get()
    }
}

/// An endpoint. UCX knows it by its first word.
#[repr(C)]
pub struct End {
    /// Its interface.
    pub base: *mut BaseInterface,
    /// Whom it leads to.
    pub id: EndpointId,
    /// The engine's number of that.
    pub way: u32,
}

/// Requests that wait for room, in order, with their endpoints.
type Queue = VecDeque<(*mut End, *mut Pending)>;

/// Such a queue for each way.
#[derive(Default)]
pub struct Waiting {
    queues: UnsafeCell<Vec<Queue>>,
    /// How many requests all of them have.
    count: AtomicUsize,
    /// A request is being tried on this way, and has not sent yet: what it sends does not queue.
    /// What is sent after that, by whoever is told that a message is done, does.
    trying: Cell<Option<u32>>,
}

impl Waiting {
    /// Calls `look` with a way's queue.
    #[inline]
    pub fn with<R>(&self, way: u32, look: impl FnOnce(&mut Queue) -> R) -> R {
        // SAFETY: one thread at a time, by UCX's rules; nothing that is called here comes back to
        // it.
        let queues = unsafe { &mut *self.queues.get() };
        if queues.len() <= way as usize {
            queues.resize_with(way as usize + 1, Queue::new);
        }
        let queue = &mut queues[way as usize];
        let before = queue.len();
        let done = look(queue);
        // One thread at a time writes it; another may look.
        self.count
            .store(self.count.load(Ordering::Relaxed) + queue.len() - before, Ordering::Relaxed);
        done
    }

    /// Are there none?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The ways on which something waits.
    fn ways(&self) -> impl Iterator<Item = u32> {
        // SAFETY: as in `with`.
        let ways = unsafe { (&*self.queues.get()).len() } as u32;
        (0..ways).filter(|way| self.with(*way, |queue| !queue.is_empty()))
    }

    /// Does something wait on this way, before which nothing else may be sent there?
    #[inline]
    pub fn stands_before(&self, way: u32) -> bool {
        !self.is_empty()
            && self.trying.get() != Some(way)
            && self.with(way, |queue| !queue.is_empty())
    }

    /// A message was sent on this way.
    #[inline]
    pub fn has_sent(&self, way: u32) {
        if self.trying.get() == Some(way) {
            self.trying.set(None);
        }
    }

    /// Takes an endpoint's requests out.
    pub fn take_all(&self, way: u32, end: *mut End) -> Vec<*mut Pending> {
        let mut taken = Vec::new();
        let mut keep = |(other, request): &(*mut End, *mut Pending)| {
            if *other == end {
                taken.push(*request);
            }
            *other != end
        };
        self.with(way, |queue| queue.retain(&mut keep));
        taken
    }

    /// Tries what waits, each way until it is full again. How much was done.
    ///
    /// # Safety
    /// UCX's rules.
    #[cold]
    pub unsafe fn dispatch(&self, interface: &Interface) -> u32 {
        // SAFETY: as in `with`.
        let ways = unsafe { (&*self.queues.get()).len() } as u32;
        let mut done = 0;
        for way in 0..ways {
            while let Some((end, request)) = self.with(way, Queue::pop_front) {
                // SAFETY: UCX's rules.
                if !unsafe { try_one(interface, way, request, &mut done) } {
                    self.with(way, |queue| queue.push_front((end, request)));
                    break;
                }
            }
        }
        done
    }
}

/// Calls a request's function until it is done, or there is no room. True: it is done.
///
/// # Safety
/// UCX's rules.
unsafe fn try_one(interface: &Interface, way: u32, request: *mut Pending, done: &mut u32) -> bool {
    loop {
        // SAFETY: UCX's rules; the engine is let go of before the request is called.
        if unsafe { (*interface.active()).has_room(way) } == Ok(false) {
            return false;
        }
        interface.waiting.trying.set(Some(way));
        // SAFETY: UCX's rules: the request stays until it is done or purged.
        let status = unsafe { ((*request).function)(request) };
        interface.waiting.trying.set(None);
        match status {
            OK => {
                *done += 1;
                return true;
            }
            IN_PROGRESS => *done += 1,
            _ => return false,
        }
    }
}
