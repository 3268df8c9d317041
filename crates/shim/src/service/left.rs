//! What is left to the thread, as its caller must not do it: a child that uses this memory, and a
//! signal handler that interrupted the work on an epoll set.

use super::start::PATIENCE;
use super::with_endpoint;
use crate::bell::{ANY_BEHIND, BEHIND, RUNNING, ring};
use crate::{runtime, sets};
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::{Reason, SlotBits, flag};

/// One bit a slot: a child that shares this memory keeps its socket for another program.
static PASSED_ON: SlotBits = SlotBits::new();

/// In a child that uses this memory (`ops::lent`): has the thread bring a slot's connection back to
/// TCP, and waits for it. Bounded, and nothing is done where no thread runs.
pub fn pass_on(slot: u32) {
    let is_back = |endpoint: Endpoint<'static>| {
        endpoint.slot().has(flag::HOLD) && (!runtime::carried(endpoint) || endpoint.on_tcp())
    };
    if runtime::endpoint(-1, slot).is_some_and(is_back) {
        return;
    }
    PASSED_ON.set(slot);
    ring();
    let end = sys::monotonic_ns() + 2 * PATIENCE;
    while RUNNING.load(Ordering::Acquire) && PASSED_ON.has(slot) && sys::monotonic_ns() < end {
        sys::sleep_ms(1);
    }
    PASSED_ON.unset(slot);
}

/// Does what was left to it by [`bell::catch_up`](crate::bell::catch_up). True if there is more to
/// be done.
pub(super) fn catch_up_all() -> bool {
    let mut more = false;
    if ANY_BEHIND.swap(false, Ordering::AcqRel) {
        for index in BEHIND.ones(0) {
            BEHIND.unset(index);
            if with_endpoint(index, sets::catch_up) == Some(false) {
                BEHIND.set(index);
                more = true;
            }
        }
        if more {
            ANY_BEHIND.store(true, Ordering::Release);
        }
    }
    more
}

/// Takes the next step of what [`pass_on`] asked for: the other end may be served by this very
/// thread. True if there is more to be done.
pub(super) fn hand_over_passed() -> bool {
    let mut more = false;
    for index in PASSED_ON.ones(0) {
        let step = |endpoint: Endpoint<'static>| {
            if !endpoint.slot().has(flag::HOLD) {
                endpoint.begin_detach(Reason::HandedOver);
            }
            endpoint.go_on_detaching()
        };
        // A descriptor that is gone, or bytes in a ring that only reading removes: there is nothing
        // more that can be done.
        if with_endpoint(index, step) == Some(None) {
            more = true;
        } else {
            PASSED_ON.unset(index);
        }
    }
    more
}
