//! Presence in a segment: which endpoints are there and live, how they are woken, and memory of the
//! dead.
//!
//! The segment is a file, or the memory that virtual machines share. Its other users' pages are of
//! other [kinds](ginnel_region::Use), and theirs to look after.
//!
//! An endpoint that lives holds a [lock](ginnel_node::life) on the byte that has its page's number.
//! Those of another machine are as alive as any process there that has endpoints.

#[cfg(test)]
mod attacks;
mod crowd;
mod dead;
mod ear;
mod place;

use crate::Error;
use crate::layout::endpoint::{
    ASLEEP, ENDPOINT, ENTERED, ENTRIES, JOB, NONCE, PROCESS, TABLE, TABLE_PAGES, WAITER,
};
use crate::layout::{EndpointId, head_of, pair, word};
pub use crate::neighbour::Guard;
use crate::neighbour::{Hold, UNREACHABLE};
use crowd::process_number;
pub use dead::clean;
use dead::{reclaim, remove_if_empty};
use ear::Ear;
use ginnel_node::LifeLock;
use ginnel_region::{Config, Head, Owner, PAGE, Segment, Use, sys};
pub use place::{NAME, default_path, join_default};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{Ordering, fence};

/// How long somebody else may be making or freeing groups, milliseconds.
const PATIENCE: u64 = 10_000;

/// A segment of endpoints, and one's own place in it.
pub struct Node {
    hold: Hold,
    own: Own,
}

/// This endpoint's place.
struct Own {
    id: EndpointId,
    head: Head,
    table: u64,
    life: LifeLock,
    ear: Ear,
}

impl Node {
    /// Joins the segment at `path`, a file that is made where there is none or a machine's device,
    /// with an endpoint of its own. What the dead left there is freed first.
    ///
    /// # Errors
    /// What stood against it.
    pub fn join(path: &Path, config: &Config) -> Result<Self, Error> {
        let mut why =
            Error::System("join a segment that is made and removed all the time", libc::EBUSY);
        // Another process may remove the file, with the last endpoint, between any two steps.
        for _ in 0..100 {
            match Self::try_join(path, config) {
                Err(Error::Again) => {}
                Err(UNREACHABLE) => why = UNREACHABLE,
                done => return done,
            }
        }
        Err(why)
    }

    fn try_join(path: &Path, config: &Config) -> Result<Self, Error> {
        let hold = Hold::join(path, config)?;
        let entered = hold.guard(PATIENCE).and_then(|guard| {
            let guard = guard.ok_or(Error::Again)?;
            reclaim(&guard, &hold);
            present(&guard, &hold)
        });
        match entered {
            Ok(own) => Ok(Self { hold, own }),
            Err(error) => {
                let is_there = hold.is_there();
                hold.leave();
                Err(if is_there { error } else { Error::Again })
            }
        }
    }

    /// This endpoint's name.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        self.own.id
    }

    /// The segment.
    #[must_use]
    #[inline]
    pub fn segment(&self) -> &Segment {
        self.hold.segment()
    }

    /// The member as which this process's pages are entered.
    pub(crate) fn member(&self) -> u16 {
        self.hold.member()
    }

    /// The descriptor that becomes readable when this endpoint is woken.
    #[must_use]
    pub fn fifo(&self) -> i32 {
        self.own.ear.fd()
    }

    /// How many endpoints there are, this one among them.
    #[must_use]
    pub fn count(&self) -> usize {
        self.endpoints().count()
    }

    fn endpoints(&self) -> impl Iterator<Item = Head> {
        let segment = self.segment();
        segment
            .heads_within_reach()
            .filter(|head| head_of(segment, head.page(), ENDPOINT).is_some())
    }

    /// Is it this process's, and not its parent's?
    pub(crate) fn is_own(&self) -> bool {
        self.hold.is_own()
    }

    /// Says which job it belongs to.
    pub(crate) fn set_job(&self, job: u64) {
        word(self.segment(), self.own.id.page(), JOB).store(job, Ordering::Relaxed);
    }

    /// Lets go of its lock and of nothing else, as the kernel does for a process that is killed.
    /// (Its waiter would be freed as a dead process's, which this one is not.)
    #[cfg(test)]
    pub(crate) fn die(self) {
        drop(self.own.life);
        self.hold.retire(self.own.ear.waiter());
        self.hold.leave();
    }

    /// Waits for the right to make and free groups.
    ///
    /// # Errors
    /// Where it is not to be had.
    pub fn guard(&self) -> Result<Guard, Error> {
        let removed = Error::System("find the segment's file, which was removed", libc::ENOENT);
        self.hold.guard(PATIENCE)?.ok_or(removed)
    }

    /// The same right, for what can be done at another time as well: nobody is waited for.
    pub(crate) fn guard_now(&self) -> Option<Guard> {
        self.hold.guard(0).ok().flatten()
    }

    /// Does that endpoint live?
    #[must_use]
    pub fn lives(&self, id: EndpointId) -> bool {
        lives(&self.hold, id)
    }

    /// Enters a pair in the table of the endpoint that is to read it.
    ///
    /// # Errors
    /// [`Error::TooMany`]; [`Error::Gone`] where there is no such endpoint.
    pub(crate) fn enter_pair(&self, reader: EndpointId, pair: u32) -> Result<(), Error> {
        let table = table_of(self.segment(), reader.page()).ok_or(Error::Gone)?;
        let free = |at: &u64| {
            let entry = self.segment().word(table + at * 8);
            entry.compare_exchange(0, pair.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if !(0..ENTRIES).any(|at| free(&at)) {
            say_too_many();
            return Err(Error::TooMany);
        }
        word(self.segment(), reader.page(), ENTERED).fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// How often a pair was entered in this endpoint's table.
    #[inline]
    pub(crate) fn entered(&self) -> u64 {
        word(self.segment(), self.own.id.page(), ENTERED).load(Ordering::Acquire)
    }

    /// This endpoint's table of incoming pairs: (entry, page).
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, u32)> {
        let entry = |at| self.segment().word(self.own.table + at * 8).load(Ordering::Acquire);
        (0..ENTRIES).filter_map(move |at| {
            Some((at, u32::try_from(entry(at)).ok().filter(|page| *page != 0)?))
        })
    }

    /// Frees an entry of this endpoint's table, if it still names this pair.
    pub(crate) fn forget_entry(&self, at: u64, pair: u32) {
        let entry = self.segment().word(self.own.table + at * 8);
        let _ = entry.compare_exchange(pair.into(), 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// About to sleep: whoever has news from here on wakes this endpoint. The caller looks at
    /// everything it waits for again after this.
    pub fn sleeping(&self) {
        self.own.ear.sleeping(self.segment());
        // Release: whoever sees this word rings the waiter, and is to find it asleep.
        word(self.segment(), self.own.id.page(), ASLEEP).store(1, Ordering::Release);
        // Pairs with the fence in `wake`: either it sees that this endpoint sleeps, or this one its
        // news.
        fence(Ordering::SeqCst);
    }

    /// Awake again; takes what it was rung with.
    pub fn awake(&self) {
        word(self.segment(), self.own.id.page(), ASLEEP).store(0, Ordering::Release);
        self.own.ear.awake(self.segment());
    }

    /// Wakes this endpoint itself, where another of its threads sleeps.
    pub fn wake_own(&self) {
        self.wake(self.own.id);
    }

    /// News for that endpoint were published: wakes it if it sleeps.
    #[inline]
    pub(crate) fn wake(&self, id: EndpointId) {
        fence(Ordering::SeqCst);
        if word(self.segment(), id.page(), ASLEEP).load(Ordering::Relaxed) != 0 {
            self.rouse(id);
        }
    }

    #[cold]
    fn rouse(&self, id: EndpointId) {
        let asleep = word(self.segment(), id.page(), ASLEEP);
        let step = |from, to| {
            asleep
                .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
                .map_or_else(|now| now == to, |_| true)
        };
        // Whoever found it asleep before may have been killed before it rang.
        if step(1, 2) {
            let waiter = word(self.segment(), id.page(), WAITER).load(Ordering::Acquire);
            u32::try_from(waiter).into_iter().for_each(|page| self.hold.ring(page));
            step(2, 0);
        }
    }

    /// Leaves: frees this endpoint and every pair whose other end is gone, too. The last to leave
    /// removes the segment, where that is a file. In a child of fork it stays its parent's.
    pub fn leave(self) {
        if !self.is_own() {
            // Nor is anything closed: where the lock's map was there may be something else.
            return std::mem::forget(self);
        }
        let Self { hold, own } = self;
        let guard = hold.guard(PATIENCE);
        let segment = hold.segment();
        if guard.is_ok() {
            pair::release_all(segment, own.id);
        }
        hold.retire(own.ear.waiter());
        drop(own.life);
        if let Ok(guard) = guard {
            if let Some(head) = segment.take(own.head) {
                segment.release_groups(&[head]);
            }
            if let Some(guard) = guard {
                reclaim(&guard, &hold);
                remove_if_empty(&guard, &hold);
            }
        }
        hold.leave();
    }
}

/// Makes this endpoint's page, lock and waiter.
fn present(_guard: &Guard, hold: &Hold) -> Result<Own, Error> {
    let segment = hold.segment();
    let head = segment.claim_head(Owner::new(hold.member(), Use::Endpoint))?;
    let free = |error| {
        segment.release_groups(&[head]);
        error
    };
    let page = head.page();
    segment.clear(page);
    let owner = Owner { tag: Some(page), ..Owner::new(hold.member(), Use::Ring) };
    let table = segment.claim(TABLE_PAGES, owner).map_err(|error| free(error.into()))?;
    (table.page..table.page + table.pages).for_each(|page| segment.clear(page));
    let life = hold.live(page).map_err(free)?;
    let waiter = hold.waiter().map_err(free)?;
    let ear = Ear::new(waiter, hold.relayed()).map_err(|error| {
        hold.retire(waiter);
        free(error)
    })?;
    let nonce = (sys::random_u64() & 0xffff_ffff).max(1);
    word(segment, page, NONCE).store(nonce, Ordering::Relaxed);
    word(segment, page, WAITER).store(waiter.page().into(), Ordering::Relaxed);
    word(segment, page, TABLE).store(table.offset(), Ordering::Relaxed);
    word(segment, page, PROCESS).store(process_number(), Ordering::Relaxed);
    // Release pairs with the Acquire in `head_of`: whoever finds an endpoint finds it whole.
    word(segment, page, 0).store(ENDPOINT, Ordering::Release);
    let id = EndpointId(u64::from(page) << 32 | nonce);
    match segment.settle(head) {
        Some(head) => Ok(Own { id, head, table: table.offset(), life, ear }),
        None => {
            hold.retire(waiter);
            Err(Error::System(
                "make an endpoint in a segment that somebody else overwrites",
                libc::EIO,
            ))
        }
    }
}

/// The library above says at most that a message was not sent.
#[cold]
fn say_too_many() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        eprintln!(
            "ginnel: {ENTRIES} ranks send to another one already, and it hears no more: messages to it from here on wait or \
             fail; a job in which more send to one rank goes over TCP (ginnel mpirun --over tcp)"
        );
    });
}

fn table_of(segment: &Segment, page: u32) -> Option<u64> {
    head_of(segment, page, ENDPOINT)?;
    let table = word(segment, page, TABLE).load(Ordering::Acquire);
    (table.is_multiple_of(PAGE) && segment.holds(table, ENTRIES * 8)).then_some(table)
}

fn lives(hold: &Hold, id: EndpointId) -> bool {
    let segment = hold.segment();
    head_of(segment, id.page(), ENDPOINT).is_some_and(|head| {
        word(segment, id.page(), NONCE).load(Ordering::Relaxed) == id.nonce() && hold.lives(head)
    })
}
