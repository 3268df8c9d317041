//! Streams of small writes: a reader that takes each one as it comes holds the writer up, for every
//! look at the ring's end takes that cache line away from the writer, which needs it for the next.
//! Where the ring was found filled at once, again and again, and each time with little, the reader
//! lets some more gather for a microsecond. A connection that answers before more comes (ping-pong)
//! is known by its waits; where one is taken for a stream, nothing gathers, and that is remembered
//! for long.

use crate::spin::ticks;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering};
use ginnel_tcp::Endpoint;

/// How many looks at an empty ring still count as at once.
const AT_ONCE: u32 = 40;
/// After how many little finds in a row.
const STREAK: u32 = 32;
/// With this much in the ring there is no need to wait, bytes.
const ENOUGH: u64 = 4096;
/// What a pause must bring, bytes.
const WORTH_IT: u64 = 256;
/// For how long bytes gather, ticks: about a microsecond.
const PAUSE: u64 = 2300;
/// How many finds a connection is left alone after a pause in vain, at first and at most: each time
/// four times as long.
const LEFT_ALONE_AT_FIRST: u32 = 1 << 10;
const LEFT_ALONE_AT_MOST: u32 = 1 << 20;

/// What is known of how a connection is used.
pub struct Habit {
    streak: AtomicU32,
    alone: AtomicU32,
    penalty: AtomicU32,
}

/// Some habits: connections share them by their numbers. What is lost by two threads that write at
/// once is only a guess.
static HABITS: [Habit; 256] = [const {
    Habit {
        streak: AtomicU32::new(0),
        alone: AtomicU32::new(0),
        penalty: AtomicU32::new(LEFT_ALONE_AT_FIRST),
    }
}; 256];

#[inline]
fn habit_of(endpoint: Endpoint<'_>) -> &'static Habit {
    &HABITS[(endpoint.slot().cookie.load(Ordering::Relaxed) % 256) as usize]
}

/// A receive is about to look at the ring.
#[inline]
pub fn before(endpoint: Endpoint<'_>) -> &'static Habit {
    let habit = habit_of(endpoint);
    if habit.streak.load(Ordering::Relaxed) >= STREAK {
        gather(endpoint, habit);
    }
    habit
}

impl Habit {
    /// The receive took less than the program had room for.
    #[inline]
    pub fn took_little(&self) {
        self.streak.store(self.streak.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }
}

/// A receive waited, and found bytes after `looks` looks at the ring.
#[inline]
pub fn waited(endpoint: Endpoint<'_>, looks: u32) {
    if looks > AT_ONCE {
        habit_of(endpoint).streak.store(0, Ordering::Relaxed);
    }
}

#[cold]
fn gather(endpoint: Endpoint<'_>, habit: &Habit) {
    let alone = habit.alone.load(Ordering::Relaxed);
    if alone != 0 {
        return habit.alone.store(alone - 1, Ordering::Relaxed);
    }
    let before = endpoint.ring_bytes();
    if before >= ENOUGH {
        return;
    }
    let begin = ticks();
    while ticks().wrapping_sub(begin) < PAUSE {
        spin_loop();
    }
    let penalty = habit.penalty.load(Ordering::Relaxed);
    if endpoint.ring_bytes() < before + WORTH_IT {
        habit.alone.store(penalty, Ordering::Relaxed);
        habit.penalty.store((penalty * 4).min(LEFT_ALONE_AT_MOST), Ordering::Relaxed);
    } else if penalty != LEFT_ALONE_AT_FIRST {
        habit.penalty.store(LEFT_ALONE_AT_FIRST, Ordering::Relaxed);
    }
}
