//! The bell of the service thread: how everybody else wakes it, and what is left to it.
//!
//! What [`crate::service`] does with that stands there.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use ginnel_region::sys;
use ginnel_tcp::ledger::SlotBits;

/// The thread runs, or is about to.
pub static RUNNING: AtomicBool = AtomicBool::new(false);
/// What is written to so that it looks around; -1: none.
pub static BELL: AtomicI32 = AtomicI32::new(-1);
/// One bit a slot: is its socket in the thread's epoll set?
pub static WATCHED: SlotBits = SlotBits::new();
/// One bit a slot: a signal handler has used its socket, and could not tell the sets.
pub static BEHIND: SlotBits = SlotBits::new();
/// One of [`BEHIND`] is set.
pub static ANY_BEHIND: AtomicBool = AtomicBool::new(false);

/// Does the thread hear of what the kernel says of this slot's socket?
pub fn is_watched(index: u32) -> bool {
    WATCHED.has(index)
}

/// Wakes the thread.
pub fn ring() {
    let _ = sys::write(BELL.load(Ordering::Relaxed), &1u64.to_ne_bytes());
}

/// Has the thread look around, where it runs.
pub fn look_around() {
    if RUNNING.load(Ordering::Acquire) {
        ring();
    }
}

/// In a signal handler that interrupted the work on a set: has the thread tell the sets what became
/// of the slot's socket.
pub fn catch_up(slot: u32) {
    BEHIND.set(slot);
    ANY_BEHIND.store(true, Ordering::Release);
    ring();
}
