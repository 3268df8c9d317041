//! A receive that does not wait and finds nothing, in a program in Go: it looks on for a moment
//! before it says so. Go would park the goroutine, ask epoll, wake another thread for what else
//! there may be to do, and find the goroutine again: some microseconds, where an answer that is
//! under way is here in less than one.
//!
//! While it looks the thread runs no other goroutine. So a connection is looked at only as long as
//! that brings bytes ([`Habit`]), and not while others want the processors. Where it always brings
//! some, the goroutine would never park, and Go takes the thread from it after ten milliseconds
//! only: other goroutines and timers would wait for as long. So a thread is told that there is
//! nothing after a [turn](A_TURN).

use crate::spin::{self, Habit};
use crate::thread;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ginnel_ring::prefetch;
use ginnel_tcp::Endpoint;

/// For how long, ticks: about three microseconds, in which the other end's goroutine is found.
const A_MOMENT: u64 = 7_000;

/// For how long a thread looks on, read by read, without being told that there is nothing, ticks:
/// about a tenth of a millisecond, in which a goroutine that waits for another process parks some
/// times over TCP. To park costs two microseconds.
const A_TURN: u64 = 250_000;

/// Is this a program in Go?
static ON: AtomicBool = AtomicBool::new(false);

/// Connections share them by their numbers.
static HABITS: [Habit; 256] = [const { Habit::new() }; 256];

/// When a thread was last told that there is nothing, ticks. Threads share them by their addresses.
static TURNS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Before a program in Go starts; those are known on this processor only.
#[cfg(target_arch = "x86_64")]
pub fn start() {
    ON.store(true, Ordering::Relaxed);
}

/// Looks on, where that is worth while. True: there are bytes.
#[inline]
pub fn for_data(endpoint: Endpoint<'static>) -> bool {
    ON.load(Ordering::Relaxed) && look_on(endpoint)
}

fn look_on(endpoint: Endpoint<'static>) -> bool {
    // First, as it takes least: where many connections wait for their turns no look pays.
    let habit = &HABITS[(endpoint.slot().cookie.load(Ordering::Relaxed) % 256) as usize];
    if !spin::pays(endpoint.attachment, habit) || !endpoint.is_surely_empty() {
        return false;
    }
    // (Knuth's multiplicative hash.)
    let hash = (thread::me() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let turn = &TURNS[hash as usize];
    let over = spin::ticks().wrapping_sub(turn.load(Ordering::Relaxed)) > A_TURN;
    let came = !over && for_a_moment(endpoint, habit);
    if !came {
        turn.store(spin::ticks(), Ordering::Relaxed);
    }
    came
}

fn for_a_moment(endpoint: Endpoint<'static>, habit: &Habit) -> bool {
    let watch = endpoint.watch();
    let next = watch.next_place();
    let readable = || {
        prefetch::to_read(next);
        watch.has_changed() && endpoint.readable()
    };
    spin::for_a_moment(habit, A_MOMENT, readable, || spin::together(endpoint))
}
