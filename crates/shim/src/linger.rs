//! A receive that does not wait and finds nothing, in a program in Go: it looks on for a moment
//! before it says so. Go would park the goroutine, ask epoll, wake another thread for what else
//! there may be to do, and find the goroutine again: some microseconds, where an answer that is
//! under way is here in less than one.
//!
//! While it looks the thread runs no other goroutine. So a connection is looked at only as long as
//! that brings bytes ([`Habit`]), and not while others want the processors.

use crate::spin::{self, Habit};
use core::sync::atomic::{AtomicBool, Ordering};
use ginnel_ring::prefetch;
use ginnel_tcp::Endpoint;

/// For how long, ticks: about three microseconds, in which the other end's goroutine is found.
const A_MOMENT: u64 = 7_000;

/// Is this a program in Go?
static ON: AtomicBool = AtomicBool::new(false);

/// Connections share them by their numbers.
static HABITS: [Habit; 256] = [const { Habit::new() }; 256];

/// Before a program in Go starts.
pub fn start() {
    ON.store(true, Ordering::Relaxed);
}

/// Looks on, where that is worth while. True: there are bytes.
#[inline]
pub fn for_data(endpoint: Endpoint<'static>) -> bool {
    ON.load(Ordering::Relaxed) && look_on(endpoint)
}

fn look_on(endpoint: Endpoint<'static>) -> bool {
    let habit = &HABITS[(endpoint.slot().cookie.load(Ordering::Relaxed) % 256) as usize];
    if !endpoint.is_surely_empty() || !spin::pays(endpoint.attachment, habit) {
        return false;
    }
    let watch = endpoint.watch();
    let next = watch.next_place();
    let readable = || {
        prefetch::to_read(next);
        watch.has_changed() && endpoint.readable()
    };
    spin::for_a_moment(habit, A_MOMENT, readable, || spin::together(endpoint))
}
