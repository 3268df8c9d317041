//! The waiters that sleeping calls borrow, each for one sleep, and the lines that they take beside
//! them for connections in the memory of pairs.

use crate::fds::{self, Entry};
use crate::runtime;
use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use ginnel_node::joined::Joined;
use ginnel_node::node::Standing;
use ginnel_node::waiter::Waiter;
use ginnel_node::wake::line::Ear;
use ginnel_ring::park::Want;
use ginnel_tcp::{Attachment, Endpoint};
use libc::{c_short, c_void, pollfd};

/// Free waiters of this process: each word is 0 or page << 32 | low byte of
/// [`ginnel_node::joined::Joined::number`] << 24 | FIFO descriptor, with [`FULL`] or without it.
static POOL: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// A waiter for as long as one thread sleeps.
pub struct Borrowed {
    waiter: Waiter,
    attachment: &'static Attachment,
    /// Where it was made.
    joined: &'static Joined,
    /// Something lies in its FIFO. The next sleep reads that, before it begins: whoever was just
    /// woken has better things to do.
    full: Cell<bool>,
    /// Of one who sleeps for one connection, in a pair's memory.
    line: Option<Line>,
}

/// A line of a pair, beside a waiter, for as long as one thread sleeps.
pub struct Line {
    ear: Ear,
    pair: &'static Joined,
}

impl Line {
    /// Is it one of this pair's?
    #[must_use]
    pub fn is_of(&self, pair: &Joined) -> bool {
        core::ptr::eq(self.pair, pair)
    }

    /// See [`Ear::sleeping`].
    pub fn sleeping(&self) {
        self.ear.sleeping(self.pair);
    }

    /// See [`Ear::any`].
    #[must_use]
    pub fn any(&self) -> bool {
        self.ear.any(self.pair)
    }

    /// Awake again, as [`Borrowed::awake`]. `news`: something has come to a connection for which it
    /// was to be rung.
    pub fn awake(&self, polled: c_short, news: bool) {
        let told = polled != 0;
        self.ear.awake(self.pair, told);
        if self.ear.any(self.pair) {
            self.ear.take(self.pair, |_| news);
        }
        if told {
            self.ear.empty(self.pair);
        }
    }

    /// See [`Ear::want`].
    #[must_use]
    pub fn want(&self) -> Want {
        self.ear.want(self.pair, 0)
    }

    /// See [`Ear::fd`].
    #[must_use]
    pub fn fd(&self) -> i32 {
        self.ear.fd(self.pair)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.ear.give_back(self.pair);
    }
}

const DESCRIPTOR: u64 = 0xff_ffff;
const TAG: u64 = 0xff00_0000;
/// See [`Borrowed::full`]. Pages have 28 bits at most.
const FULL: u64 = 1 << 63;

impl Borrowed {
    /// Is it of the segment that the process is joined to? To be asked after arming: what is armed
    /// in another segment calls somebody else.
    #[must_use]
    pub fn is_current(&self) -> bool {
        core::ptr::eq(self.joined, self.attachment.node.joined())
            && self.attachment.node.standing() != Standing::Away
    }

    /// May a thread sleep on it: is it current, and has the program not given the number of its
    /// FIFO to something else (`dup2`)? To be asked before each sleep.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        self.is_current() && self.is_ours()
    }

    fn is_ours(&self) -> bool {
        fds::get(self.waiter.fifo()) == Entry::Own
    }

    /// Takes a line for connections of `pair`. `None`: tokens wake there.
    #[must_use]
    pub fn take_line(&self, pair: &'static Joined) -> Option<Line> {
        pair.take_line(&self.attachment.node, self.waiter).map(|ear| Line { ear, pair })
    }

    /// See [`Waiter::sleeping`].
    pub fn sleeping(&self) {
        self.waiter.sleeping(&self.joined.segment);
        if let Some(line) = &self.line {
            line.sleeping();
        }
    }

    /// See [`Waiter::any`].
    #[must_use]
    pub fn any(&self) -> bool {
        self.waiter.any(&self.joined.segment) || self.line.as_ref().is_some_and(Line::any)
    }

    /// Awake again: nothing that was rung is left. `polled`: what the kernel told of its FIFO and
    /// of its line. (What stands in the waiter's page may be a peer's lie, and the sleeper would
    /// never sleep again.) `news`: as for [`Line::awake`].
    pub fn awake(&self, [fifo, line]: [c_short; 2], news: bool) {
        if let Some(own) = &self.line {
            own.awake(line, news);
        }
        let (told, ours) = (fifo != 0, self.is_ours());
        // What the program has by that number is not to be read.
        self.waiter.awake(&self.joined.segment, told || !ours);
        if told && ours {
            self.full.set(true);
        }
        self.waiter.take(&self.joined.segment, |_| {});
    }

    /// See [`Waiter::want`].
    #[must_use]
    pub fn want(&self) -> Want {
        self.line.as_ref().map_or_else(|| self.waiter.want(0), Line::want)
    }

    /// See [`Waiter::fifo`].
    #[must_use]
    pub fn fifo(&self) -> i32 {
        self.waiter.fifo()
    }

    /// What to poll beside a socket: the FIFO, and the line or -1.
    #[must_use]
    pub fn beside(&self) -> [pollfd; 2] {
        let line = self.line.as_ref().map_or(-1, Line::fd);
        [self.fifo(), line].map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 })
    }

    /// Those entries of a poll that it needs, where the last is of the line: the kernel takes no
    /// more than the process may have descriptors.
    pub fn entries<'a>(&self, all: &'a mut [pollfd; 3]) -> &'a mut [pollfd] {
        if self.line.is_some() { all } else { all.split_at_mut(2).0 }
    }

    fn tag(&self) -> u64 {
        u64::from(self.joined.number & 0xff) << 24
    }

    /// Into the pool with it.
    fn free(&self) {
        match (self.is_current(), self.is_ours()) {
            (true, true) => {}
            (true, false) => return self.waiter.lose_in(self.joined),
            (false, true) => return self.waiter.abandon(&self.attachment.node),
            (false, false) => return,
        }
        let word = self.word() | if self.full.get() { FULL } else { 0 };
        if !POOL.iter().any(|place| {
            place.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        }) {
            self.waiter.retire_in(&self.attachment.node, self.joined);
        }
    }

    /// As in [`POOL`].
    fn word(&self) -> u64 {
        u64::from(self.waiter.page()) << 32
            | self.tag()
            | u64::from(self.waiter.fifo().unsigned_abs()) & DESCRIPTOR
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // Else it is the parent's, in the child of a fork in a signal handler; or was taken for
        // left behind.
        if OUT.with(|out| out.strike(self.word())) {
            self.free();
        }
    }
}

/// The waiters that this thread has borrowed, as in [`POOL`]: a thread that is cancelled in a
/// sleep, or leaves it by `siglongjmp`, never comes to give its own back. Nothing here takes
/// memory: the sleep may be a signal handler's.
struct Out {
    /// Changed by one instruction each: this thread's signal handlers may sleep too.
    words: [AtomicU64; NESTED],
    /// Will [`thread_ends`] be called?
    watched: Cell<bool>,
}

/// So many sleeps of one thread, each in a signal handler that interrupted the one before, are
/// likely; where there are more, the first was left.
const NESTED: usize = 4;

thread_local! {
    static OUT: Out = const { Out { words: [const { AtomicU64::new(0) }; NESTED], watched: Cell::new(false) } };
}

/// The key whose destructor is [`thread_ends`], plus one; 0: there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

impl Out {
    /// Writes down what was borrowed. Returns what was left behind, or 0.
    fn enter(&self, word: u64) -> u64 {
        if !self.watched.replace(true)
            && let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1)
        {
            // SAFETY: the key is made; the value is only a sign that there is something to do.
            unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) };
        }
        let mut last = word;
        for place in &self.words {
            last = place.swap(last, Ordering::Relaxed);
            if last == 0 {
                break;
            }
        }
        last
    }

    /// False: it was not there.
    fn strike(&self, word: u64) -> bool {
        // Handlers only move words on, to places that come later here.
        self.words.iter().any(|place| {
            place.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })
    }
}

/// Makes what tells of threads that end. Early: the C library has room for the values of its first
/// keys, and takes memory for those of later ones.
pub fn start() {
    let mut key = 0;
    // SAFETY: `key` is writable.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0 {
        KEY.store(key + 1, Ordering::Release);
    }
}

extern "C" fn thread_ends(_: *mut c_void) {
    OUT.with(|out| {
        out.watched.set(false);
        if let Some(attachment) = runtime::attachment() {
            out.words
                .iter()
                .for_each(|place| left_behind(attachment, place.swap(0, Ordering::Relaxed)));
        }
    });
}

/// Gives back a waiter whose sleep was left.
fn left_behind(attachment: &'static Attachment, word: u64) {
    if word != 0 {
        let waiter = from_word(word);
        // No longer written down: only what is called here becomes of it.
        let (joined, full) = (attachment.node.joined(), Cell::new(false));
        let left = ManuallyDrop::new(Borrowed { waiter, attachment, joined, full, line: None });
        attachment.pairs.all().for_each(|pair| pair.joined.lines.give_back_of(waiter.page()));
        if word & TAG == left.tag() {
            left.awake([0; 2], true);
            left.free();
        } else {
            // Of a segment that was left.
            waiter.abandon(&attachment.node);
        }
    }
}

/// Borrows a waiter; `None` where only tokens are to be had.
#[must_use]
pub fn borrow(attachment: &'static Attachment) -> Option<Borrowed> {
    if !attachment.node.joined().fifos {
        return None;
    }
    let joined: &'static Joined = attachment.node.joined();
    let pooled =
        POOL.iter()
            .map(|place| {
                if place.load(Ordering::Relaxed) == 0 { 0 } else { place.swap(0, Ordering::AcqRel) }
            })
            .find(|&word| word != 0);
    let waiter = match pooled {
        Some(word) => from_word(word),
        None => Waiter::new_in(&attachment.node, joined).ok()?,
    };
    if waiter.fifo().unsigned_abs() > DESCRIPTOR as u32 || fds::get(waiter.fifo()) != Entry::Own {
        // A pooled one's number was taken by the program, and there was none to move it to.
        match pooled {
            Some(_) => waiter.lose_in(joined),
            None => waiter.retire_in(&attachment.node, joined),
        }
        return None;
    }
    let borrowed = ManuallyDrop::new(Borrowed {
        waiter,
        attachment,
        joined,
        full: Cell::new(false),
        line: None,
    });
    if pooled.is_some_and(|word| word & TAG != borrowed.tag()) {
        // Of a segment that was left: put there too late.
        waiter.abandon(&attachment.node);
        return None;
    }
    if pooled.is_some_and(|word| word & FULL != 0) {
        waiter.empty();
    }
    left_behind(attachment, OUT.with(|out| out.enter(borrowed.word())));
    Some(ManuallyDrop::into_inner(borrowed))
}

/// Borrows a waiter to sleep for `endpoint` alone: with a line, where that is in a pair's memory.
#[must_use]
pub fn borrow_for(endpoint: Endpoint<'static>) -> Option<Borrowed> {
    if endpoint.is_in_pair() && !endpoint.joined().rings() {
        return None;
    }
    let mut borrowed = borrow(endpoint.attachment)?;
    if endpoint.is_in_pair() {
        borrowed.line = Some(borrowed.take_line(endpoint.joined())?);
    }
    Some(borrowed)
}

fn from_word(word: u64) -> Waiter {
    Waiter::from_parts(((word & !FULL) >> 32) as u32, (word & DESCRIPTOR) as i32)
}

/// The number `from` is about to be the program's: a free waiter that has it has the copy `to` from
/// now on. False: none has it.
pub fn moved(from: i32, to: i32) -> bool {
    let (own, copy) = (u64::from(from.unsigned_abs()), u64::from(to.unsigned_abs()));
    let put = |word: u64| {
        let is_its = word != 0 && word & DESCRIPTOR == own && copy <= DESCRIPTOR;
        is_its.then_some(word & !DESCRIPTOR | copy)
    };
    POOL.iter().any(|place| place.fetch_update(Ordering::AcqRel, Ordering::Relaxed, put).is_ok())
}

/// Before the segment is left: gives the free waiters back.
pub fn retire(attachment: &Attachment) {
    empty(|waiter| waiter.retire(&attachment.node));
}

/// In a fork child: the parent's waiters are not ours. Closes our copies of the free ones'
/// descriptors.
pub fn forget() {
    if let Some(attachment) = runtime::attachment() {
        empty(|waiter| waiter.abandon(&attachment.node));
    }
    OUT.with(|out| out.words.iter().for_each(|place| place.store(0, Ordering::Relaxed)));
}

fn empty(each: impl Fn(Waiter)) {
    POOL.iter()
        .map(|place| place.swap(0, Ordering::AcqRel))
        .filter(|&word| word != 0)
        .map(from_word)
        .for_each(each);
}
