//! Endpoints, queues, counters and addresses of a domain, and what passes between them. All of it
//! is under one lock: an operation looks at most of it.

use crate::completion::{Entry, Queue};
use crate::{ADDR_UNSPEC, b, error};
use ginnel_fabric::endpoint::{Event, EventKind};
use ginnel_fabric::idle::Rest;
use ginnel_fabric::memory::Memory;
use ginnel_fabric::{Endpoint, EndpointId, Error};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter: successes and failures.
#[derive(Default)]
pub struct Count {
    pub done: AtomicU64,
    pub failed: AtomicU64,
}

/// An address vector.
#[derive(Default)]
pub struct Book {
    /// Segment and endpoint; `None`: removed.
    pub names: Vec<Option<(u64, EndpointId)>>,
    /// Each one's addresses: it may be entered more than once.
    pub numbers: HashMap<EndpointId, SmallVec<[u64; 1]>>,
}

/// One side of an endpoint, transmit or receive.
#[derive(Default)]
pub struct Side {
    pub queue: Option<usize>,
    /// Only what asks for it is told.
    pub selective: bool,
    /// What operations without flags of their own have.
    pub flags: u64,
}

impl Side {
    /// Is an operation with these flags told of in the queue?
    #[inline]
    pub fn tells(&self, flags: u64) -> bool {
        !self.selective || flags & u64::from(b::FI_COMPLETION) != 0
    }
}

/// An endpoint and what it is bound to.
pub struct Bound {
    pub endpoint: Endpoint,
    pub transmit: Side,
    pub receive: Side,
    pub book: Option<usize>,
    /// Which flag of `fi_ep_bind` counts where.
    pub counts: Vec<(u64, Arc<Count>)>,
    /// A receive looks at whose a message is.
    pub directed: bool,
    /// Bytes below which a receive of several messages ends.
    pub least: usize,
    pub enabled: bool,
    /// By address: the number by which the endpoint calls it.
    peers: Vec<Option<u32>>,
}

impl Bound {
    pub fn new(endpoint: Endpoint, directed: bool) -> Self {
        let (transmit, receive) = (Side::default(), Side::default());
        let (book, counts, peers) = (None, Vec::new(), Vec::new());
        Self {
            endpoint,
            transmit,
            receive,
            book,
            counts,
            directed,
            least: 64,
            enabled: false,
            peers,
        }
    }

    /// What stands under an address is removed.
    pub fn forget(&mut self, address: usize) {
        if let Some(peer) = self.peers.get_mut(address) {
            *peer = None;
        }
    }
}

/// All of a domain.
#[derive(Default)]
pub struct State {
    pub bound: Vec<Option<Box<Bound>>>,
    pub queues: Vec<Option<Queue>>,
    pub books: Vec<Option<Book>>,
    pub memory: Memory,
    /// Threads that sleep, or are about to.
    sleepers: usize,
    /// Somebody may sleep on a queue's descriptor.
    pub polled: bool,
}

/// Puts a value into the first free place.
pub fn keep<T>(places: &mut Vec<Option<T>>, value: T) -> usize {
    match places.iter().position(Option::is_none) {
        Some(at) => {
            places[at] = Some(value);
            at
        }
        None => {
            places.push(Some(value));
            places.len() - 1
        }
    }
}

/// libfabric's number for an error of the engine's.
pub fn number_of(failed: Error) -> c_int {
    error(match failed {
        Error::Again => b::FI_EAGAIN,
        Error::Gone => b::FI_ECONNRESET,
        Error::NoMessage => b::FI_ENOMSG,
        Error::NoMemory | Error::TooMany => b::FI_ENOMEM,
        Error::TooLong => b::FI_EMSGSIZE,
        Error::Invalid => b::FI_EINVAL,
        Error::Refused(_) | Error::System(..) => b::FI_EIO,
    })
}

impl State {
    /// The endpoint at this place, enabled, and the number by which it calls the address.
    #[inline]
    pub fn way(&mut self, at: usize, address: u64) -> Result<(&mut Bound, u32), c_int> {
        let bound = self.bound.get_mut(at).and_then(Option::as_mut).ok_or(error(b::FI_EINVAL))?;
        if let Some(Some(peer)) =
            usize::try_from(address).ok().and_then(|address| bound.peers.get(address))
        {
            let peer = *peer;
            return Ok((bound, peer));
        }
        let peer = name(&mut self.books, bound, address)?;
        Ok((bound, peer))
    }

    /// Whose messages a receive takes that names this address; `None`: anybody's.
    #[inline]
    pub fn source(&self, bound: &Bound, address: u64) -> Result<Option<EndpointId>, c_int> {
        if !bound.directed || address == ADDR_UNSPEC {
            return Ok(None);
        }
        let book = bound.book.and_then(|book| self.books.get(book)?.as_ref());
        let name = usize::try_from(address).ok().and_then(|at| *book?.names.get(at)?);
        name.map(|(_, id)| Some(id)).ok_or(error(b::FI_EINVAL))
    }

    /// Takes what has come for every endpoint, and tells queues and counters. True: there was
    /// something.
    #[inline(always)]
    pub fn progress(&mut self) -> bool {
        self.bound.iter().flatten().any(|bound| bound.endpoint.has_work()) && self.work()
    }

    fn work(&mut self) -> bool {
        let mut news = false;
        for at in 0..self.bound.len() {
            if let Some(bound) = &mut self.bound[at]
                && bound.endpoint.work(&self.memory)
            {
                news = true;
                self.settle(at);
            }
        }
        news
    }

    /// Tells queues and counters what an endpoint has ended.
    #[inline]
    pub fn settle(&mut self, at: usize) {
        if let Some(Some(bound)) = self.bound.get(at)
            && bound.endpoint.has_events()
        {
            self.tell(at);
        }
    }

    fn tell(&mut self, at: usize) {
        let Some(Some(bound)) = self.bound.get_mut(at) else { return };
        let Bound { endpoint, transmit, receive, book, counts, .. } = &mut **bound;
        // Whoever waits for a counter looks at it.
        let mut told = !counts.is_empty();
        endpoint.each_event(|event| {
            if !counts.is_empty() {
                count(counts, event);
            }
            if !event.is_told() {
                return;
            }
            let side = match event.kind {
                EventKind::Receive(_) | EventKind::Written => &*receive,
                _ => &*transmit,
            };
            if let Some(Some(queue)) = side.queue.and_then(|queue| self.queues.get_mut(queue)) {
                queue.push(Entry::new(event, *book));
                told = true;
            }
        });
        if told && self.sleepers > 0 {
            // It may be for another thread, which sleeps.
            self.wake_own();
        }
    }

    /// What a caller does whose queue is empty.
    #[inline]
    pub fn rest(&mut self) -> Rest {
        let mut least = Rest::Yield;
        for at in 0..self.bound.len() {
            let Some(bound) = &mut self.bound[at] else { continue };
            let rest = bound.endpoint.rest();
            self.settle(at);
            match rest {
                Rest::Spin => return Rest::Spin,
                Rest::Sleep(ms) => least = Rest::Sleep(ms),
                Rest::Yield => {}
            }
        }
        least
    }

    /// A thread is about to sleep: others wake it. It looks at everything once more after this.
    pub fn fall_asleep(&mut self) {
        self.sleepers += 1;
        self.bound.iter().flatten().for_each(|bound| bound.endpoint.node().sleeping());
    }

    /// A thread is awake again.
    pub fn wake_up(&mut self) {
        self.sleepers -= 1;
        for bound in self.bound.iter().flatten() {
            bound.endpoint.node().awake();
            if self.sleepers > 0 {
                bound.endpoint.node().sleeping();
            }
        }
    }

    /// Wakes other threads that sleep here: something has ended at once.
    pub fn wake_own(&self) {
        self.bound.iter().flatten().for_each(|bound| bound.endpoint.node().wake_own());
    }

    /// The descriptors that become readable when others wake the endpoints.
    pub fn fifos(&self) -> impl Iterator<Item = i32> {
        self.bound.iter().flatten().map(|bound| bound.endpoint.node().fifo())
    }

    /// The address by which a book has an endpoint.
    pub fn address_of(&self, book: Option<usize>, id: EndpointId) -> u64 {
        let book = book.and_then(|book| self.books.get(book)?.as_ref());
        let numbers = book.and_then(|book| book.numbers.get(&id));
        numbers.and_then(|numbers| numbers.first().copied()).unwrap_or(ADDR_UNSPEC)
    }
}

#[cold]
fn name(books: &mut [Option<Book>], bound: &mut Bound, address: u64) -> Result<u32, c_int> {
    let invalid = error(b::FI_EINVAL);
    let at = usize::try_from(address).map_err(|_| invalid)?;
    let book = bound.book.and_then(|book| books.get(book)?.as_ref()).ok_or(invalid)?;
    let (segment, id) = book.names.get(at).copied().flatten().ok_or(invalid)?;
    if segment != bound.endpoint.segment_id() {
        return Err(error(b::FI_EHOSTUNREACH));
    }
    let peer = bound.endpoint.peer(id);
    if bound.peers.len() <= at {
        bound.peers.resize(at + 1, None);
    }
    bound.peers[at] = Some(peer);
    Ok(peer)
}

fn count(counts: &[(u64, Arc<Count>)], event: &Event) {
    let flag = match event.kind {
        EventKind::Send(_) => b::FI_SEND,
        EventKind::Receive(_) => b::FI_RECV,
        EventKind::Write | EventKind::Change => b::FI_WRITE,
        EventKind::Read | EventKind::Fetch => b::FI_READ,
        EventKind::Written => b::FI_REMOTE_WRITE,
    };
    for (_, count) in counts.iter().filter(|(flags, _)| flags & u64::from(flag) != 0) {
        let which = if event.failure.is_some() { &count.failed } else { &count.done };
        which.fetch_add(1, Ordering::Relaxed);
    }
}
