//! Waking between the two processes of a pair, who may be strangers: by *lines*. A line is two
//! connected sockets (AF_UNIX, a stream), of which each process has one. The broker makes [`LINES`]
//! of them with a pair's memory. What one process writes into its end wakes who sleeps on the
//! other.
//!
//! A sleeper takes a line, and with it a waiter's page in the pair's memory ([`super::page`]), in
//! which the line's number stands as a FIFO's does. It sleeps on the line beside the FIFO of its
//! own waiter: by that its own process wakes it.
//!
//! | the other process may | and then |
//! |---|---|
//! | fill a line, or never read it | a full line is one that was rung; no write waits (MSG_DONTWAIT), whatever it sets on its own end, which is another open file |
//! | close its ends | a write fails (no SIGPIPE), and tokens wake; who sleeps on that line gives it up |
//! | ring for nothing, by bytes or by bits | after [`IN_VAIN`] times in a row the line is given up |
//! | send descriptors, whose last close may wait | they are refused, or left unread ([`socket`]) |
//! | write anything into the page | its offsets and bits are bounded; the line's number is one of a few |
//!
//! Pipes would not do: a write whose buffer is memory that another process pages in (userfaultfd,
//! FUSE) holds a pipe's lock for as long as that process likes, and the reader waits for the lock.
//! Nor would eventfds: their two users share one open file, whose O_NONBLOCK either can clear.

mod socket;

use super::lock::Lock;
use super::page;
use ginnel_region::Segment;
use ginnel_region::sys::{self, Fd};
use ginnel_ring::park::Want;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};

/// How many lines a pair has: so many threads and epoll sets of each process sleep on it at once.
/// Others are woken by tokens.
pub const LINES: usize = 4;
/// A process has so many lines at most, and keeps one of each pair's from the half of that on. A
/// program may count on its descriptors.
const MOST: usize = 256;
/// … or this part of the descriptors that it may have, where that is less.
const PART: u64 = 4;
/// So many times in a row a line may ring for nothing. (Now and then an honest one does: a ring may
/// arrive after what it was for was seen.)
const IN_VAIN: u32 = 64;

/// How many lines this process has.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Has the kernel refuse to send descriptors to a line's end, for who makes lines: where it cannot,
/// their readers look out.
pub fn refuse_rights(end: i32) {
    socket::refuse_rights(end);
}

/// One process's end of a line.
struct Line {
    /// For one system call on the socket; held while it is closed, so that none reaches a number
    /// that is another's.
    lock: Lock,
    /// The socket; -1: there is none.
    fd: AtomicI32,
    /// Nobody can send descriptors to it.
    no_rights: bool,
    /// The page of the waiter in the pair's memory; 0: it was not made yet.
    page: AtomicU32,
    /// Who sleeps here: above, the page of its waiter in the own segment; below, how many had the
    /// line before. 0: nobody does.
    taker: AtomicU64,
    takers: AtomicU32,
    /// How often in a row it was rung for nothing.
    vain: AtomicU32,
    /// What it was rung for last was seen.
    news: AtomicBool,
    /// Nobody is to sleep here any more.
    lost: AtomicBool,
    /// Who held the lock when it was to be closed.
    held_by: AtomicU32,
}

impl Line {
    fn new(fd: i32) -> Self {
        Self {
            lock: Lock::new(),
            fd: AtomicI32::new(fd),
            no_rights: fd >= 0 && socket::takes_no_rights(fd),
            page: AtomicU32::new(0),
            taker: AtomicU64::new(0),
            takers: AtomicU32::new(0),
            vain: AtomicU32::new(0),
            news: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            held_by: AtomicU32::new(0),
        }
    }

    fn with<T>(&self, work: impl FnOnce(i32) -> T) -> Option<T> {
        self.lock.with(|| Some(self.fd.load(Relaxed)).filter(|&fd| fd >= 0).map(work)).flatten()
    }

    /// May anybody sleep here?
    fn is_fit(&self) -> bool {
        self.fd.load(Relaxed) >= 0 && !self.lost.load(Relaxed)
    }

    /// Takes it for one whose own waiter has this page. `None`: it is no longer free.
    fn take(&self, own: u32) -> Option<u64> {
        let taker = u64::from(own) << 32 | u64::from(self.takers.fetch_add(1, Relaxed));
        self.taker.compare_exchange(0, taker, AcqRel, Relaxed).ok().map(|_| taker)
    }

    /// Reads it empty.
    fn empty(&self) {
        if self.with(|fd| socket::empty(fd, self.no_rights)) == Some(false) {
            self.lost.store(true, Release);
        }
    }

    /// It was rung, and something had come, or nothing had.
    fn count(&self, something: bool) {
        if something {
            self.vain.store(0, Relaxed);
        } else if self.vain.fetch_add(1, Relaxed) >= IN_VAIN {
            self.lost.store(true, Release);
        }
    }

    /// `taker` sleeps on it no more. One that is lost is closed. Nothing where it was [given
    /// back](Lines::give_back_of) before: it may be another's by now.
    fn give_back(&self, taker: u64, on_descriptor: fn(i32, bool)) {
        if self.taker.load(Acquire) != taker {
            return;
        }
        if self.lost.load(Acquire) {
            self.close(on_descriptor, false);
        }
        let _ = self.taker.compare_exchange(taker, 0, AcqRel, Relaxed);
    }

    /// Closes what was to be closed and could not be, as somebody had the lock; `ended`: all are to
    /// be. Who has it at two looks in a row left its work by `siglongjmp`. To be called every few
    /// seconds.
    fn tidy(&self, on_descriptor: fn(i32, bool), ended: bool) {
        let is_over = ended || self.lost.load(Acquire);
        if !is_over || self.taker.load(Acquire) != 0 || self.fd.load(Relaxed) < 0 {
            return;
        }
        let holder = self.lock.holder();
        if self.held_by.swap(holder, Relaxed) == holder && holder != 0 {
            self.lock.give_back(holder);
        }
        self.close(on_descriptor, false);
    }

    /// `in_child`: in a child of fork, whose parent goes on with it.
    fn close(&self, on_descriptor: fn(i32, bool), in_child: bool) {
        let taken = self.lock.with(|| self.fd.swap(-1, AcqRel)).unwrap_or(-1);
        if taken >= 0 && (in_child || socket::hang_up(taken, self.no_rights)) {
            on_descriptor(taken, false);
            sys::close(taken);
            HELD.fetch_sub(usize::from(!in_child), Relaxed);
        }
    }
}

/// A process's ends of a pair's lines.
pub struct Lines {
    lines: [Line; LINES],
    /// Told of each descriptor that is kept (true) or is about to be closed (false).
    on_descriptor: fn(i32, bool),
}

impl Lines {
    /// Of a broker that makes none.
    #[must_use]
    pub fn none() -> Self {
        Self { lines: [const { -1 }; LINES].map(Line::new), on_descriptor: |_, _| {} }
    }

    /// Takes the sockets that came with a pair's memory, in their order, as far as this process can
    /// spare the descriptors; the others are closed, by which the other process knows. Of each of
    /// these it is told.
    #[must_use]
    pub fn new(sockets: impl IntoIterator<Item = Fd>, on_descriptor: fn(i32, bool)) -> Self {
        let most = MOST.min(usize::try_from(sys::descriptor_limit() / PART).unwrap_or(MOST));
        let held = HELD.load(Relaxed);
        let kept = if held + LINES <= most / 2 { LINES } else { usize::from(held < most) };
        let mut sockets = sockets.into_iter().take(kept);
        let lines = [(); LINES].map(|()| {
            let fd = sockets.next().map_or(-1, |socket| sys::move_high(socket.take()));
            if fd >= 0 {
                HELD.fetch_add(1, Relaxed);
                on_descriptor(fd, true);
            }
            Line::new(fd)
        });
        Self { lines, on_descriptor }
    }

    /// May any of them wake a sleeper of this process?
    #[must_use]
    pub fn are_there(&self) -> bool {
        self.lines.iter().any(Line::is_fit)
    }

    /// Does anybody of this process sleep on one, or is about to?
    #[must_use]
    pub fn are_taken(&self) -> bool {
        self.lines.iter().any(|line| line.taker.load(Relaxed) != 0)
    }

    /// Rings the other process's waiter that has this line. False: it cannot be reached.
    pub(crate) fn ring(&self, number: u64) -> bool {
        let line = usize::try_from(number).ok().and_then(|number| self.lines.get(number));
        line.and_then(|line| line.with(socket::ring)) == Some(true)
    }

    /// Takes a line for one who sleeps on a waiter of its own segment, which has the page `own`.
    /// `make_page` makes the waiter's page of a line, which it keeps. `None`: there is none that is
    /// free.
    pub(crate) fn take(
        &self,
        own: u32,
        make_page: impl FnOnce(usize) -> Option<u32>,
    ) -> Option<Ear> {
        let mut fit = (0..).zip(&self.lines).filter(|(_, line)| line.is_fit());
        let (number, line, taker) =
            fit.find_map(|(number, line)| Some((number, line, line.take(own)?)))?;
        if line.page.load(Relaxed) == 0 {
            let Some(page) = make_page(number) else {
                line.give_back(taker, self.on_descriptor);
                return None;
            };
            line.page.store(page, Relaxed);
        }
        Some(Ear { number, taker })
    }

    /// The page, in the own segment, of the waiter of who sleeps here by the waiter with this page.
    /// `None`: it is none of this process's.
    pub(crate) fn taker_of(&self, page: u32) -> Option<u32> {
        let line = self.lines.iter().find(|line| page != 0 && line.page.load(Relaxed) == page)?;
        Some((line.taker.load(Relaxed) >> 32) as u32).filter(|&taker| taker != 0)
    }

    /// A thread that had this waiter, of the own segment, sleeps no more: it was cancelled, say.
    pub fn give_back_of(&self, own: u32) {
        for line in &self.lines {
            let taker = line.taker.load(Relaxed);
            if taker >> 32 == u64::from(own) {
                let _ = line.taker.compare_exchange(taker, 0, AcqRel, Relaxed);
            }
        }
    }

    /// The program is about to have this number stand for something else (`dup2`): a line that has
    /// it is one no more. Who sleeps there wakes, and arms anew. The kernel closes it within the
    /// call.
    pub fn replaced(&self, number: i32) {
        for line in self.lines.iter().filter(|line| line.fd.load(Relaxed) == number) {
            line.lost.store(true, Release);
            // Under the lock, if it can be had: who holds it is at its system call, or has left it.
            let _ = line.lock.with(|| line.fd.store(-1, Release));
            line.fd.store(-1, Release);
            socket::end(number);
            HELD.fetch_sub(1, Relaxed);
        }
    }

    /// Closes what was to be closed and could not be: lines that were lost, or all, where the pair
    /// has `ended`. To be called every few seconds, by one thread.
    pub fn tidy(&self, ended: bool) {
        self.lines.iter().for_each(|line| line.tidy(self.on_descriptor, ended));
    }

    /// The pair was given up: closes all.
    pub fn close(&self) {
        self.lines.iter().for_each(|line| line.close(self.on_descriptor, false));
    }

    /// In a child of fork: they are the parent's.
    pub fn forget_parent(&self) {
        for line in &self.lines {
            line.lock.forget();
            line.taker.store(0, Relaxed);
            line.close(self.on_descriptor, true);
        }
        HELD.store(0, Relaxed);
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.close();
    }
}

/// A pair whose lines wake this process: its memory, and this process's ends of its lines.
pub trait OfPair {
    /// The memory.
    fn segment(&self) -> &Segment;
    /// The lines.
    fn lines(&self) -> &Lines;
}

/// A line that somebody of this process has taken, to be woken by.
#[derive(Debug, Clone, Copy)]
pub struct Ear {
    number: usize,
    /// See [`Line::taker`].
    taker: u64,
}

impl Ear {
    fn line(self, pair: &impl OfPair) -> Option<&Line> {
        pair.lines().lines.get(self.number)
    }

    fn page(self, pair: &impl OfPair) -> u32 {
        self.line(pair).map_or(0, |line| line.page.load(Relaxed))
    }

    /// What becomes readable when the other process rings; -1: nothing any more.
    #[must_use]
    pub fn fd(self, pair: &impl OfPair) -> i32 {
        self.line(pair).map_or(-1, |line| line.fd.load(Relaxed))
    }

    /// The wish to be woken by it with `bit`.
    #[must_use]
    pub fn want(self, pair: &impl OfPair, bit: u16) -> Want {
        Want::Waiter { page: self.page(pair), bit }
    }

    /// It rang for nothing too often, or the other process is gone: it is to be given back, and
    /// what was armed with it armed anew.
    #[must_use]
    pub fn is_lost(self, pair: &impl OfPair) -> bool {
        !self.line(pair).is_some_and(Line::is_fit)
    }

    /// See [`crate::Waiter::sleeping`].
    pub fn sleeping(self, pair: &impl OfPair) {
        page::sleeping(pair.segment(), self.page(pair));
    }

    /// Awake again. `told`: the kernel told the caller of it, who [empties](Self::empty) it.
    pub fn awake(self, pair: &impl OfPair, told: bool) {
        if page::awake(pair.segment(), self.page(pair))
            && !told
            && let Some(line) = self.line(pair)
        {
            line.empty();
        }
    }

    /// The kernel told of it: reads it empty.
    pub fn empty(self, pair: &impl OfPair) {
        if let Some(line) = self.line(pair) {
            line.empty();
            line.count(line.news.swap(false, Relaxed));
        }
    }

    /// Is any bit set?
    #[must_use]
    #[inline]
    pub fn any(self, pair: &impl OfPair) -> bool {
        !self.is_lost(pair) && page::has_news(pair.segment(), self.page(pair))
    }

    /// Takes every bit that is set, and calls `each` with it. Has something come for any?
    pub fn take(self, pair: &impl OfPair, mut each: impl FnMut(u32) -> bool) {
        let mut news = false;
        page::take(pair.segment(), self.page(pair), |bit| news |= each(bit));
        if let Some(line) = self.line(pair) {
            line.count(news);
            line.news.fetch_or(news, Relaxed);
        }
    }

    /// Nobody sleeps on it any more. One that is lost is closed. Nothing where it was [given
    /// back](Lines::give_back_of) before: it may be another's by now.
    pub fn give_back(self, pair: &impl OfPair) {
        if let Some(line) = self.line(pair) {
            line.give_back(self.taker, pair.lines().on_descriptor);
        }
    }
}

#[cfg(test)]
mod tests;
