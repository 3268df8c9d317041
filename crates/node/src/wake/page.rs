//! The page of a waiter: words in a segment, and nothing else. What is said here of who wakes whom
//! knows only [`Segment`].
//!
//! | word | what stands there |
//! |---|---|
//! | 0 | bits 0–1: 0 awake, 1 asleep, 2 asleep and being woken, by somebody who may be killed before that is done: whoever comes meanwhile does it too; above: which sleep it is |
//! | 1 | the number of its FIFO |
//! | 2 | its owner: process entry + 1, of the page's member |
//! | 4 | its doorbell: bit 32 there is one, bits 16–31 peer, bits 0–15 vector |
//! | 0x40 | summary: one bit for each line of bits |
//! | 0x80 … | the bits |
//!
//! The handshake is that of a condition variable without a lock (compare `vring_need_event`,
//! linux/virtio_ring.h): the sleeper says that it sleeps, fences, and looks at its bits; who has
//! news sets the bit, fences, and looks whether the waiter sleeps. One of the two sees the other.
//! Each sleep has a number: who says late that it is over must not mean the next, whose waker may
//! have been killed. `tests/waking_model.rs` tries every run in small.

use ginnel_region::{Head, PAGE, Segment, Use};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// How many bits a waiter has.
pub const BITS: u32 = 62 * 512;
/// In the first word's lowest bits: it sleeps …
const ASLEEP: u64 = 1;
/// … and somebody is about to wake it.
const CALLED: u64 = 2;
const STATE: u64 = 3;
/// Above these: one more sleep.
const SLEEP: u64 = 4;
/// Byte offsets of the other words.
const FIFO: u64 = 8;
const OWNER: u64 = 16;
const DOORBELL: u64 = 32;
pub(crate) const SUMMARY: u64 = 0x40;
const FLAGS: u64 = 0x80;
/// In the doorbell's word: there is one.
const BELL: u64 = 1 << 32;

/// What wakes a waiter that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// A doorbell: peer and vector.
    Bell(u16, u16),
    /// A byte in the FIFO of this number.
    Fifo(u64),
}

/// A waiter that sleeps, and that the caller is about to wake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Called {
    pub by: Call,
    /// Which sleep it is, as it stands in the first word.
    sleep: u64,
}

/// A doorbell as it stands in a waiter's page; 0: none.
pub(crate) fn bell(peer: u16, vector: u16) -> u64 {
    BELL | u64::from(peer) << 16 | u64::from(vector)
}

fn word(segment: &Segment, page: u32, offset: u64) -> &AtomicU64 {
    segment.word(u64::from(page) * PAGE + offset)
}

/// The head of a page that is a waiter's.
pub(crate) fn head_of(segment: &Segment, page: u32) -> Option<Head> {
    segment.head(page).filter(|head| head.owner().kind == Use::Waiter)
}

/// The number of a waiter's FIFO.
pub(crate) fn fifo_of(segment: &Segment, page: u32) -> u64 {
    word(segment, page, FIFO).load(Ordering::Acquire)
}

/// Names the FIFO of a waiter that is being made.
pub(crate) fn name_fifo(segment: &Segment, page: u32, id: u64) {
    word(segment, page, FIFO).store(id, Ordering::Release);
}

/// The last of making a waiter: says whose it is (`process`: an entry of its member's process
/// table), and how it is woken. False where its maker was stopped for so long that it counted as
/// abandoned: the page is another's by now.
pub(crate) fn made(segment: &Segment, head: Head, process: u32, fifo: u64, bell: u64) -> bool {
    segment.still(head).is_ok() && {
        let word = |at| word(segment, head.page(), at);
        word(FIFO).store(fifo, Ordering::Relaxed);
        word(DOORBELL).store(bell, Ordering::Relaxed);
        word(OWNER).store(u64::from(process) + 1, Ordering::Release);
        segment.settle(head).is_some()
    }
}

/// The process (entry of the process table) that a waiter of this table's member belongs to; `None`
/// where the page is no waiter.
#[must_use]
pub fn owner(segment: &Segment, page: u32) -> Option<u32> {
    head_of(segment, page)?;
    owner_word(segment, page)
}

/// The same of a page that is known to be a waiter's, also one that is being made or freed.
pub(crate) fn owner_word(segment: &Segment, page: u32) -> Option<u32> {
    u32::try_from(word(segment, page, OWNER).load(Ordering::Relaxed)).ok()?.checked_sub(1)
}

/// About to sleep: see [`crate::waiter::Waiter::sleeping`].
pub(crate) fn sleeping(segment: &Segment, page: u32) {
    let state = word(segment, page, 0);
    let sleep = (state.load(Ordering::Relaxed) & !STATE).wrapping_add(SLEEP);
    state.store(sleep | ASLEEP, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Awake again. Returns whether somebody may have written into the FIFO meanwhile.
pub(crate) fn awake(segment: &Segment, page: u32) -> bool {
    let state = word(segment, page, 0);
    let sleep = state.load(Ordering::Relaxed) & !STATE;
    let rung = state.swap(sleep, Ordering::AcqRel) & STATE != ASLEEP;
    // An interrupt that was meant for another may have found a bit of ours set: it must not wake us
    // again and again.
    rung || word(segment, page, DOORBELL).load(Ordering::Relaxed) & BELL != 0
}

/// Is any bit of the waiter with this page set?
#[inline]
pub(crate) fn has_news(segment: &Segment, page: u32) -> bool {
    word(segment, page, SUMMARY).load(Ordering::Acquire) != 0
}

/// Takes every bit that is set, and calls `each` with it.
pub(crate) fn take(segment: &Segment, page: u32, mut each: impl FnMut(u32)) {
    let summary = word(segment, page, SUMMARY).swap(0, Ordering::AcqRel);
    for line in (0..62u64).filter(|line| summary >> line & 1 == 1) {
        for at in 0..8u64 {
            let mut bits =
                word(segment, page, FLAGS + line * 64 + at * 8).swap(0, Ordering::AcqRel);
            while bits != 0 {
                let bit = bits.trailing_zeros();
                bits &= bits - 1;
                each(u32::try_from(line * 512 + at * 64).unwrap_or(0) + bit);
            }
        }
    }
}

/// Sets a waiter's bit. Returns what wakes it, where it sleeps: the caller does that, and says so
/// ([`raised`]).
pub(crate) fn raise(segment: &Segment, page: u32, bit: u16) -> Option<Called> {
    if u32::from(bit) >= BITS || head_of(segment, page).is_none() {
        return None;
    }
    let line = u64::from(bit) / 512;
    let at = u64::from(bit) / 64 * 8;
    word(segment, page, FLAGS + at).fetch_or(1 << (bit % 64), Ordering::AcqRel);
    word(segment, page, SUMMARY).fetch_or(1 << line, Ordering::AcqRel);
    // Pairs with the fence in `sleeping`: either it sees the bit, or we see that it sleeps.
    fence(Ordering::SeqCst);
    let state = word(segment, page, 0);
    let seen = state.load(Ordering::Relaxed);
    let sleep = seen & !STATE;
    let call = |from, to| {
        state.compare_exchange(sleep | from, sleep | to, Ordering::AcqRel, Ordering::Relaxed)
    };
    let is_awake = |state: u64| state & STATE == 0;
    if is_awake(seen) || call(ASLEEP, CALLED).is_err_and(is_awake) {
        return None;
    }
    let bell = word(segment, page, DOORBELL).load(Ordering::Acquire);
    // Whatever a peer wrote there: to ring somebody in vain is all that can come of it.
    let by = if bell & BELL != 0 {
        Call::Bell((bell >> 16) as u16, bell as u16)
    } else {
        Call::Fifo(fifo_of(segment, page))
    };
    Some(Called { by, sleep })
}

/// What came of that: where the waiter was `woken`, nobody else need end that sleep. Else it sleeps
/// on, as far as is known here, and who can wake it is to do so.
pub(crate) fn raised(segment: &Segment, page: u32, called: Called, woken: bool) {
    // Not what a page holds that has come to be something else meanwhile.
    if head_of(segment, page).is_some() {
        let now = if woken { 0 } else { ASLEEP };
        let _ = word(segment, page, 0).compare_exchange(
            called.sleep | CALLED,
            called.sleep | now,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_region::{Config, Owner, sys};

    #[test]
    fn whoever_dies_before_it_wakes_leaves_that_to_the_next() {
        let path = std::env::temp_dir().join(format!("ginnel-waiter-{:x}", sys::random_u64()));
        let segment = Segment::create(&path, &Config { size: 16 << 20, ..Config::default() })
            .expect("create");
        let head = segment.claim_head(Owner::new(0, Use::Waiter)).expect("a page");
        segment.clear(head.page());
        segment.settle(head).expect("made");
        let page = head.page();
        let call = || raise(&segment, page, 7);

        assert!(call().is_none(), "it is awake");
        assert!(has_news(&segment, page));
        sleeping(&segment, page);
        // The first of these is killed here.
        let killed = call().expect("it sleeps");
        let called = call().expect("it was not woken yet");
        raised(&segment, page, called, true);
        assert!(call().is_none(), "it was woken");
        // It sleeps again, and is called by one who is killed. That the last sleep is over does not
        // mean this one.
        sleeping(&segment, page);
        assert!(call().is_some());
        raised(&segment, page, killed, true);
        let called = call().expect("it sleeps");
        raised(&segment, page, called, false);
        let called = call().expect("it could not be woken");
        raised(&segment, page, called, true);
        assert!(call().is_none());
        let _ = awake(&segment, page);
        assert!(call().is_none());
        std::fs::remove_file(&path).expect("there");
    }
}
