//! An endpoint: opened, closed, and making progress.
//!
//! | module | part |
//! |---|---|
//! | `sending`, `receiving` | what the owner asks for |
//! | `outgoing`, `incoming` | the way to another endpoint; what is done with each kind of frame |

mod incoming;
mod outgoing;
mod receiving;
mod sending;

use crate::Error;
use crate::idle::{Idle, Rest};
use crate::layout::{EndpointId, meeting};
use crate::matching::Matching;
use crate::memory::Memory;
use crate::node::Node;
use crate::operation::Request;
pub use crate::operation::{Event, EventKind, Failure, Message};
use crate::pair::{Reader, release_writer};
use crate::requests::Requests;
use ginnel_region::{Config, sys};
use incoming::Incoming;
use outgoing::Outgoing;
use std::collections::{HashMap, VecDeque};
use std::path::Path;

/// Sizes that matter for speed.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Bytes of a ring, a power of two of whole pages.
    pub ring: u64,
    /// Messages up to this many bytes are sent at once, longer ones once they are taken.
    pub eager: usize,
    /// Bytes of a piece of a longer one.
    pub piece: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { ring: 64 << 10, eager: 8 << 10, piece: 8 << 10 }
    }
}

/// How long an endpoint that leaves tries to tell others that what they wait for is done,
/// nanoseconds.
const LINGER: u64 = 200_000_000;

/// One process's presence.
pub struct Endpoint {
    node: Node,
    tuning: Tuning,
    out: Vec<Outgoing>,
    out_of: HashMap<EndpointId, u32>,
    incoming: Vec<Incoming>,
    entered: u64,
    matching: Matching,
    requests: Requests<Request>,
    /// Requests of which pieces go out.
    pushing: VecDeque<u64>,
    /// Outboxes that are not empty.
    untold: usize,
    events: VecDeque<Event>,
    /// The owner counts what it is not told of.
    counts: bool,
    idle: Idle,
}

impl Endpoint {
    /// Joins the segment at `path`, which is made where there is none.
    ///
    /// # Errors
    /// What stood against it.
    pub fn open(path: &Path, config: &Config, tuning: Tuning) -> Result<Self, Error> {
        let node = Node::join(path, config)?;
        let mut idle = Idle::default();
        idle.set_crowded(node.is_crowded());
        Ok(Self {
            node,
            tuning,
            out: Vec::new(),
            out_of: HashMap::new(),
            incoming: Vec::new(),
            entered: 0,
            matching: Matching::default(),
            requests: Requests::default(),
            pushing: VecDeque::new(),
            untold: 0,
            events: VecDeque::new(),
            counts: false,
            idle,
        })
    }

    /// Its name in the segment.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        self.node.id()
    }

    /// The segment's number, for builds of one format: who says another cannot be reached.
    #[must_use]
    pub fn segment_id(&self) -> u64 {
        meeting(self.node.segment())
    }

    /// The presence behind it, for sleeping.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Ends as one that is killed.
    #[cfg(test)]
    pub(crate) fn die(self) {
        self.node.die();
    }

    /// Leaves the segment. What was sent stays readable for those who live; answers that had no
    /// room are given a moment.
    pub fn close(mut self) {
        let until = sys::monotonic_ns() + LINGER;
        while self.untold > 0 && self.node.is_own() && sys::monotonic_ns() < until {
            self.tell_again();
            sys::yield_now();
        }
        self.node.leave();
    }

    /// The ended operation that comes next.
    #[inline]
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Has any operation ended?
    #[must_use]
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Tells of all operations that have ended, in their order.
    #[inline]
    pub fn each_event(&mut self, mut each: impl FnMut(&Event)) {
        let (first, second) = self.events.as_slices();
        for events in [first, second] {
            for event in events {
                each(event);
            }
        }
        self.events.clear();
    }

    /// The owner counts what it is not [told](Event::is_told) of, too.
    pub fn count_all(&mut self) {
        self.counts = true;
    }

    #[inline]
    fn tell_owner(&mut self, event: Event) {
        if self.counts || event.is_told() {
            self.events.push_back(event);
        }
    }

    /// Takes what has come, and sends what can be sent by now. True: there was something.
    #[inline]
    pub fn progress(&mut self, memory: &Memory) -> bool {
        self.has_work() && self.work(memory)
    }

    /// Is there anything that [`Self::progress`] would do? Most looks are in vain, and how long one
    /// takes is a part of every message's way.
    #[must_use]
    #[inline(always)]
    pub fn has_work(&self) -> bool {
        self.node.entered() != self.entered
            || self.untold > 0
            || !self.pushing.is_empty()
            || !self.events.is_empty()
            || self.incoming.iter().any(|incoming| incoming.reader.has_news())
    }

    /// The same, where somebody has [asked](Self::has_work) already.
    pub fn work(&mut self, memory: &Memory) -> bool {
        if self.node.entered() != self.entered {
            self.take_entries();
        }
        if self.untold > 0 {
            self.tell_again();
        }
        for _ in 0..self.pushing.len() {
            if let Some(number) = self.pushing.pop_front()
                && !self.push_or_give(number, memory)
            {
                self.pushing.push_back(number);
            }
        }
        let news = self.take_frames(memory);
        if news {
            self.idle.reset();
        }
        news || !self.events.is_empty()
    }

    #[cold]
    fn take_entries(&mut self) {
        self.entered = self.node.entered();
        let is_known = |page| self.incoming.iter().any(|incoming| incoming.reader.page() == page);
        for reader in Reader::entered(&self.node, is_known) {
            let back = self.peer_of(reader.writer());
            self.incoming.push(Incoming::new(reader, back));
        }
        self.idle.set_crowded(self.node.is_crowded());
    }

    /// Nothing came: what the caller does now, once it has let go of its locks.
    #[inline]
    pub fn rest(&mut self) -> Rest {
        if self.idle.is_time() {
            self.look_for_the_dead();
            self.idle.set_crowded(self.node.is_crowded());
        }
        self.idle.rest()
    }

    /// Ends what waits for the dead, and gives back what they shared with this endpoint.
    #[cold]
    pub fn look_for_the_dead(&mut self) {
        for to in 0..self.out.len() {
            if !self.out[to].gone
                && self.out[to].writer.is_some()
                && !self.node.lives(self.out[to].id)
            {
                self.out[to].gone = true;
            }
            // Where the lock is not to be had the ring is kept, for the next look.
            if self.out[to].gone
                && self.out[to].writer.is_some()
                && let Some(guard) = self.node.guard_now()
                && let Some(writer) = self.out[to].writer.take()
            {
                release_writer(&guard, &self.node, &writer);
            }
        }
        let out = &self.out;
        let to_the_dead = |request: &Request| match request {
            Request::Done(sent) | Request::Offered(sent, _) | Request::Pieces { sent, .. } => {
                out[sent.to as usize].gone
            }
            Request::Writing { sent, .. } | Request::Reading { sent, .. } => {
                out[sent.to as usize].gone
            }
            Request::Receiving(receiving) => out[receiving.back as usize].gone,
            Request::Giving { to, .. } => out[*to as usize].gone,
        };
        let ended: Vec<u64> = self
            .requests
            .iter()
            .filter(|(_, request)| to_the_dead(request))
            .map(|(number, _)| number)
            .collect();
        ended.into_iter().for_each(|number| self.fail(number, Failure::Gone));
        self.release_left();
    }

    /// Ends a request that cannot be done.
    fn fail(&mut self, number: u64, failure: Failure) {
        match self.requests.remove(number) {
            Some(
                Request::Done(sent)
                | Request::Offered(sent, _)
                | Request::Pieces { sent, .. }
                | Request::Writing { sent, .. }
                | Request::Reading { sent, .. },
            ) => {
                let event = Event::new(sent.kind, sent.token, true);
                self.tell_owner(Event { failure: Some(failure), ..event });
            }
            Some(Request::Receiving(receiving)) => {
                let event =
                    Event::new(EventKind::Receive(receiving.tagged), receiving.place.token, true);
                let (tag, from, len) = (receiving.tag, receiving.from, receiving.got);
                let event = Event { failure: Some(failure), tag, from, len, ..event };
                match receiving.place.several {
                    None => self.tell_owner(event),
                    Some(number) => self.received_one_of_several(number, event),
                }
            }
            Some(Request::Giving { .. }) | None => {}
        }
    }

    /// Does nothing wait for another endpoint?
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.requests.is_empty() && self.untold == 0
    }
}

#[cfg(test)]
mod tests;
