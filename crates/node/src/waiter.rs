//! Sleeping and being woken: a page of flags in the segment, and something beside it that the
//! kernel sleeps on.
//!
//! A waiter is one sleeping thread, or one epoll set. Channels are armed with its page and a bit. A
//! peer that has news sets the bit, then looks whether the waiter sleeps, and only then wakes it: a
//! waiter that is awake costs no system call.
//!
//! What that is, FIFO, doorbell, relay or line ([`crate::wake`]), `Joined::way` says. Where none is
//! to be had there are no waiters, and the ends have to wake each other by other means.

use crate::joined::Joined;
use crate::node::{Node, Standing};
use crate::place::Place;
use crate::wake::directory::{find_wake_directory, wake_directory};
use crate::wake::line::{Ear, Lines};
use crate::wake::page::{self, Call};
pub use crate::wake::page::{BITS, owner};
use crate::wake::relay::Bells;
use crate::wake::{doorbell, fifo, open_device};
use ginnel_region::{Error, Head, Owner, Segment, Source, Use, device, sys};
use ginnel_ring::park::Want;
use std::path::Path;

/// A waiter of this process.
#[derive(Debug, Clone, Copy)]
pub struct Waiter {
    page: u32,
    fifo: i32,
}

/// How a process's waiters in a segment are woken.
#[derive(Clone, Copy)]
enum Way<'a> {
    Fifo,
    Doorbell(Place),
    Relay(&'a Bells),
    Line(&'a Lines),
}

impl Joined {
    fn way(&self) -> Way<'_> {
        match (self.place, &self.bells) {
            _ if self.segment.source() == Source::Pair => Way::Line(&self.lines),
            (_, Some(bells)) => Way::Relay(bells),
            (Some(place), None) => Way::Doorbell(place),
            (None, None) => Way::Fifo,
        }
    }
}

impl Waiter {
    /// Makes a waiter.
    ///
    /// # Errors
    /// Where there are no FIFOs, no pages or no descriptors left: use tokens.
    pub fn new(node: &Node) -> Result<Self, Error> {
        Self::new_in(node, node.joined())
    }

    /// Makes a waiter in a segment that this process is joined to, and may have left by now.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn new_in(node: &Node, joined: &Joined) -> Result<Self, Error> {
        let gone = joined.place.is_some() && joined.segment.is_gone();
        if !joined.fifos || gone || node.standing() != Standing::Here {
            return Err(Error::Full);
        }
        let segment = &joined.segment;
        let head = segment.claim_head(Owner::new(joined.member, Use::Waiter))?;
        segment.clear(head.page());
        match joined.way() {
            Way::Doorbell(place) => Self::with_doorbell(node, segment, head, place),
            Way::Fifo => Self::with_fifo(node, joined, head, None),
            Way::Relay(bells) => Self::with_fifo(node, joined, head, Some(bells)),
            // Has none of its own: see [`Joined::take_line`].
            Way::Line(_) => Err(Error::Full),
        }
    }

    fn with_fifo(
        node: &Node,
        joined: &Joined,
        head: Head,
        relay: Option<&Bells>,
    ) -> Result<Self, Error> {
        let (segment, dir, id) = (&joined.segment, joined.wake_dir(), sys::random_u64());
        let name = fifo::name(id);
        let opened = sys::mkfifoat(dir, &name, 0o600)
            .and_then(|()| fifo::open_own(dir, id, joined.wake_mode));
        // If this process is killed from here on, whoever frees the page removes it. (Not before it
        // is made and opened: who owns the directory would know the name, and could put another
        // there.)
        page::name_fifo(segment, head.page(), id);
        let give_up = |error| {
            let _ = sys::unlinkat(dir, &name);
            segment.release_head(head);
            Err(error)
        };
        let fd = match opened {
            Ok(fd) => sys::move_high(fd),
            Err(errno) => return give_up(Error::System { doing: "make FIFO", errno }),
        };
        node.own(fd);
        let waiter = Self { page: head.page(), fifo: fd };
        let entered = relay.is_none_or(|bells| bells.enter(waiter.page, waiter.fifo));
        let bell = relay.map_or(0, |bells| page::bell(0, bells.vector()));
        if entered && page::made(segment, head, node.me(), id, bell) {
            return Ok(waiter);
        }
        if let Some(bells) = relay.filter(|_| entered) {
            bells.leave(waiter.page);
        }
        node.disown(fd);
        give_up(Error::Full)
    }

    fn with_doorbell(
        node: &Node,
        segment: &Segment,
        head: Head,
        place: Place,
    ) -> Result<Self, Error> {
        let (file, vector) = doorbell::watch(segment, place, head.page()).map_err(|errno| {
            segment.release_head(head);
            Error::System { doing: "wait for doorbells", errno }
        })?;
        node.own(file);
        if !page::made(segment, head, node.me(), 0, page::bell(place.peer, vector)) {
            node.disown(file);
            return Err(Error::Full);
        }
        Ok(Self { page: head.page(), fifo: file })
    }

    /// A waiter that was taken apart before: its page and its FIFO.
    #[must_use]
    pub fn from_parts(page: u32, fifo: i32) -> Self {
        Self { page, fifo }
    }

    /// Wakes it from this process.
    pub fn poke(self) {
        let _ = sys::write(self.fifo, &[0]);
    }

    /// It belongs to a segment that was left: closes its descriptor. Its page went with the
    /// segment.
    pub fn abandon(self, node: &Node) {
        node.disown(self.fifo);
    }

    /// Gives the waiter back.
    pub fn retire(self, node: &Node) {
        self.retire_in(node, node.joined());
    }

    /// The same, where it was made in a segment that this process may have left by now.
    pub fn retire_in(self, node: &Node, joined: &Joined) {
        self.leave_relay(joined);
        node.disown(self.fifo);
        self.give_page_back(joined);
    }

    /// The same, where the number of its FIFO is the program's by now (`dup2`).
    pub fn lose_in(self, joined: &Joined) {
        self.leave_relay(joined);
        self.give_page_back(joined);
    }

    fn leave_relay(self, joined: &Joined) {
        if let Some(bells) = &joined.bells {
            bells.leave(self.page);
        }
    }

    fn give_page_back(self, joined: &Joined) {
        if let Some(head) =
            page::head_of(&joined.segment, self.page).and_then(|head| joined.segment.take(head))
        {
            discard(joined, head);
        }
    }

    /// The descriptor that becomes readable when a peer wakes this waiter.
    #[must_use]
    pub fn fifo(self) -> i32 {
        self.fifo
    }

    /// The same waiter, where its FIFO is `from`, which is the copy `to` from now on.
    #[must_use]
    pub fn moved(self, from: i32, to: i32) -> Option<Self> {
        (self.fifo == from).then_some(Self { fifo: to, ..self })
    }

    /// Its page.
    #[must_use]
    pub fn page(self) -> u32 {
        self.page
    }

    /// The wish to be woken by it with `bit`.
    #[must_use]
    pub fn want(self, bit: u16) -> Want {
        Want::Waiter { page: self.page, bit }
    }

    /// About to sleep. The caller looks at everything it waits for again after this, then sleeps
    /// with [`Self::fifo`] among its descriptors.
    pub fn sleeping(self, segment: &Segment) {
        page::sleeping(segment, self.page);
    }

    /// Awake again. Empties the FIFO if somebody may have written into it. `told`: the kernel told
    /// the caller of the FIFO, who empties it.
    pub fn awake(self, segment: &Segment, told: bool) {
        if page::awake(segment, self.page) && !told {
            self.empty();
        }
    }

    /// Reads the FIFO empty, of all that was in it before.
    pub fn empty(self) {
        fifo::empty(self.fifo);
    }

    /// Sleeps until somebody rings it, for `ms` milliseconds at most; −1: for as long as that
    /// takes. Returns at once where `is_there` finds that what is waited for has come already. Not
    /// for a waiter that other threads sleep on, too.
    ///
    /// Returns whether any bit is set, which [`Self::take`] takes.
    pub fn sleep(self, segment: &Segment, ms: i32, is_there: impl FnOnce() -> bool) -> bool {
        self.sleeping(segment);
        let may_sleep = !self.any(segment) && !is_there();
        let told = may_sleep && sys::poll(self.fifo, libc::POLLIN, ms) != 0;
        // (What came late for an earlier sleep would end the next one, too.)
        if page::awake(segment, self.page) || told {
            self.empty();
        }
        self.any(segment)
    }

    /// Is any bit set?
    #[must_use]
    #[inline]
    pub fn any(self, segment: &Segment) -> bool {
        page::has_news(segment, self.page)
    }

    /// Takes every bit that is set, and calls `each` with it.
    pub fn take(self, segment: &Segment, each: impl FnMut(u32)) {
        page::take(segment, self.page, each);
    }
}

/// Frees a waiter's page, whose head this process has taken, and removes its FIFO.
pub(crate) fn discard(joined: &Joined, head: Head) {
    if !matches!(joined.way(), Way::Doorbell(_)) {
        let id = page::fifo_of(&joined.segment, head.page());
        // As long as the page was this process's, so was what stood there.
        if joined.segment.head(head.page()) == Some(head) {
            let _ = sys::unlinkat(joined.wake_dir(), &fifo::name(id));
        }
    }
    joined.segment.release_head(head);
}

/// What came of ringing a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// It was awake, or is no waiter: nothing was to be done.
    Awake,
    /// It slept, and was woken.
    Woken,
    /// It sleeps, in another kernel or as another user's, and there is no way from here to wake it.
    Unreachable,
}

impl Node {
    /// Sets the bit of a waiter, whosever it is, and wakes it if it sleeps. `page` and `bit` came
    /// from a peer: a page that is no waiter is left alone.
    pub fn ring(&self, page: u32, bit: u16) -> Rung {
        self.joined().ring(page, bit, false)
    }

    /// Wakes this process's sleeper that has a line of `pair`, by the waiter with this page there:
    /// by its own waiter.
    pub fn ring_own(&self, pair: &Joined, page: u32, bit: u16) -> Rung {
        let Some(taker) = pair.lines.taker_of(page) else { return Rung::Awake };
        // Whatever the other process has written there since.
        let called = page::raise(&pair.segment, page, bit);
        // Of its own waiter any bit will do: it looks at all that it sleeps on.
        let rung = self.ring(taker, 0);
        if let Some(called) = called {
            page::raised(&pair.segment, page, called, rung != Rung::Unreachable);
        }
        rung
    }
}

impl Joined {
    /// Takes a line of this pair's for one who sleeps on `own`, a waiter of its own segment.
    /// `None`: there is none that is free.
    #[must_use]
    pub fn take_line(&self, node: &Node, own: Waiter) -> Option<Ear> {
        let make_page = |number: usize| {
            let head = self.segment.claim_head(Owner::new(self.member, Use::Waiter)).ok()?;
            self.segment.clear(head.page());
            page::made(&self.segment, head, node.me(), number as u64, 0).then(|| head.page())
        };
        self.lines.take(own.page(), make_page)
    }

    /// As [`Node::ring`], in this segment. `in_vain`, for tests: no waiter that sleeps can be
    /// reached.
    pub fn ring(&self, page: u32, bit: u16, in_vain: bool) -> Rung {
        let (joined, segment) = (self, &self.segment);
        let Some(called) = page::raise(segment, page, bit) else { return Rung::Awake };
        let woken = !in_vain
            && match (called.by, joined.way()) {
                (Call::Fifo(line), Way::Line(lines)) => lines.ring(line),
                (Call::Bell(..), Way::Line(_)) => false,
                (Call::Bell(peer @ 1.., vector), Way::Relay(bells)) => bells.ring(peer, vector),
                (Call::Bell(0, _), Way::Relay(_)) => {
                    by_fifo(joined, page, page::fifo_of(segment, page))
                }
                (Call::Bell(peer, vector), _) => {
                    device::ring(joined.device(), peer, vector).is_ok()
                }
                (Call::Fifo(id), _) => by_fifo(joined, page, id),
            };
        page::raised(segment, page, called, woken);
        if woken { Rung::Woken } else { Rung::Unreachable }
    }
}

/// Wakes a waiter by its FIFO, or finds that it is no more: nobody sleeps there then. False: it
/// sleeps, and cannot be reached.
fn by_fifo(joined: &Joined, page: u32, id: u64) -> bool {
    let segment = &joined.segment;
    // A waiter is taken before its FIFO goes. One that is not has lost it to somebody who emptied
    // the directory.
    let is_live = || {
        page::head_of(segment, page).is_some_and(|head| !head.is_busy())
            && page::fifo_of(segment, page) == id
    };
    match joined.peers.write(joined.wake_dir(), id) {
        Ok(()) => true,
        Err(libc::ENOENT) => !is_live(),
        Err(_) => false,
    }
}

/// Wakes a waiter from a process that is not attached. `directory`: of the process table. Nothing
/// where it cannot be reached: service threads look now and then by themselves.
pub fn call(directory: &Path, segment: &Segment, page: u32) {
    let Some(called) = page::raise(segment, page, 0) else { return };
    let (file, byte): (_, &[u8]) = match called.by {
        Call::Bell(peer, vector) => {
            let device = open_device(segment.path());
            let _ = device::ring(device, peer, vector);
            (device, &[])
        }
        Call::Fifo(id) => {
            let file =
                find_wake_directory(&wake_directory(directory, segment.path()), segment.path())
                    .map_or(-1, |dir| {
                        let file = fifo::open(dir, id).unwrap_or(-1);
                        sys::close(dir);
                        file
                    });
            (file, &[0])
        }
    };
    if file >= 0 {
        let _ = sys::write(file, byte);
        sys::close(file);
    }
    page::raised(segment, page, called, true);
}
