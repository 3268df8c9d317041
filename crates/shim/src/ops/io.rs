//! Moving bytes: every form of receive and send, and the way of a connection to its channel, which
//! they all take a step on.

mod file;
mod hand_over;
mod recv;
mod send;
mod splice;

pub use file::{PIECE, sendfile};
pub use hand_over::{hand_over, hand_over_for, hand_over_if_possible, offer};
pub use recv::{recv, recv_one};
pub use send::send_all;
pub use splice::splice;

use super::Outcome;
use crate::next;
use core::sync::atomic::Ordering::Relaxed;
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::{Reason, Slot, Stage, flag};
use libc::c_int;

/// How long a hand-over waits for the other end, nanoseconds.
const PATIENCE: u64 = 30_000_000_000;

/// What the kernel answers, as an outcome. `errno` is the C library's.
fn answer(n: isize) -> Outcome {
    if n < 0 { Outcome::Failed(next::errno()) } else { Outcome::Done(n) }
}

/// One more read or write, while that matters.
#[inline]
fn count_operation(slot: &Slot) {
    if slot.stage() == Stage::Candidate {
        slot.operations.fetch_add(1, Relaxed);
    }
}

/// The next step towards a channel, once there were enough exchanges.
#[inline]
fn advance(endpoint: Endpoint<'static>, patient: bool) {
    let slot = endpoint.slot();
    if endpoint.waits_in_vain() {
        return;
    }
    if slot.stage() != Stage::Candidate
        || slot.operations.load(Relaxed) >= endpoint.attachment.settings.after
    {
        if slot.stage() == Stage::Candidate {
            if crate::service::is_missing(endpoint.attachment) {
                return ginnel_tcp::hand_over::hold(endpoint, Reason::NoThread);
            }
            super::uring::look_for_rings();
            if !endpoint.attachment.node.is_away() && !crate::options::is_fit(endpoint) {
                return ginnel_tcp::hand_over::hold(endpoint, Reason::Option);
            }
        }
        if !crate::uncounted::end(endpoint) {
            // Asked again after a few calls.
            slot.attempts.fetch_add(1, Relaxed);
            return;
        }
        endpoint.progress(patient);
        if slot.stage() == Stage::Published {
            crate::uncounted::begin(endpoint);
            crate::service::want(endpoint);
        }
        if endpoint.attachment.node.is_away() {
            crate::service::attend_absence(endpoint.attachment);
        }
        if matches!(slot.stage(), Stage::Settling | Stage::Active) {
            crate::service::attend(endpoint);
        }
    }
}

#[inline]
fn nonblocking(endpoint: Endpoint<'_>, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT != 0 || endpoint.slot().has(flag::NONBLOCKING)
}

/// Does this call wait, after all? Asked before it answers EAGAIN or sleeps: a program that the
/// shim does not see may have changed O_NONBLOCK of a socket that it shares.
fn waits(endpoint: Endpoint<'_>, flags: c_int) -> bool {
    let slot = endpoint.slot();
    if slot.has(flag::HOLD | flag::SHARED | flag::SPAWNED)
        && let Ok(now) = sys::fcntl(endpoint.fd(), libc::F_GETFL, 0)
    {
        slot.set(flag::NONBLOCKING, now & libc::O_NONBLOCK as usize != 0);
    }
    !nonblocking(endpoint, flags)
}
