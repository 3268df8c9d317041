//! Waiting until a send may find room.

use super::{HABITS, Limit, Woken, interrupted, naps, ppoll};
use crate::deadline::{Deadline, is_over, remaining, sooner};
use crate::pool::{Borrowed, borrow_for};
use crate::spin::{spin, together};
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use ginnel_ring::park::Want;
use ginnel_tcp::Endpoint;
use libc::{c_short, pollfd, timespec};

/// How long a writer waits for a reader that takes nothing before it goes on over TCP, nanoseconds.
const PATIENCE: u64 = 15_000_000;

/// Waits until a send may find room.
pub fn for_room(endpoint: Endpoint<'static>, limit: &mut Limit, in_ring: bool) -> Woken {
    if !in_ring {
        let end = limit.end(endpoint);
        let mut fds = [pollfd { fd: endpoint.fd(), events: libc::POLLOUT, revents: 0 }];
        return match naps(endpoint, limit, &mut fds, end) {
            Ok(0) if is_over(end) => Woken::TimedOut,
            Err(libc::EINTR) => interrupted(end.is_some(), limit.partial).unwrap_or(Woken::Again),
            _ => Woken::Again,
        };
    }
    let habit = &HABITS[((endpoint.slot().cookie.load(Ordering::Relaxed) + 128) % 256) as usize];
    if spin(endpoint.attachment, habit, || endpoint.writable(), || together(endpoint))
        || !limit.is_still(endpoint)
    {
        return Woken::Again;
    }
    let end = limit.end(endpoint);
    let waiter = borrow_for(endpoint);
    let want = waiter.as_ref().map_or(Want::Token, Borrowed::want);
    let Some(armed) = endpoint.arm_space(want) else { return Woken::Again };
    if let Some(waiter) = &waiter {
        waiter.sleeping();
    }
    let head = || endpoint.outgoing().head().load(Ordering::Relaxed);
    let _ = limit.standstill(head());
    let mut rung = [0; 2];
    let woken = asleep(endpoint, waiter.as_ref(), armed, end, limit, head, &mut rung);
    if let Some(waiter) = &waiter {
        waiter.awake(
            rung,
            !limit.has_slot(endpoint) || !endpoint.tx_in_ring() || endpoint.writable(),
        );
        if waiter.is_current() && limit.has_slot(endpoint) {
            endpoint.disarm_space(want);
        }
    }
    woken
}

/// [`for_room`], armed: sleeps once, for a while at most. `rung`: what the kernel told of the
/// waiter's FIFO and line.
fn asleep(
    endpoint: Endpoint<'static>,
    waiter: Option<&Borrowed>,
    armed: Want,
    end: Deadline,
    limit: &mut Limit,
    head: impl Fn() -> u64,
    rung: &mut [c_short; 2],
) -> Woken {
    if !endpoint.tx_in_ring()
        || endpoint.writable()
        || waiter.is_some_and(|waiter| !waiter.is_fit())
    {
        return Woken::Again;
    }
    let mut events = libc::POLLRDHUP;
    let standing = sys::poll(endpoint.fd(), libc::POLLIN | libc::POLLRDHUP, 0);
    if standing & libc::POLLRDHUP != 0 {
        // FIN: half-closed, closing, or dead. A token asks; the answer, if there is nobody, is RST.
        events = 0;
        endpoint.probe();
    } else if armed == Want::Token && standing & libc::POLLIN == 0 {
        events |= libc::POLLIN;
    }
    // Unread bytes hide a token, another thread may throw it away, or may have made this one's wish
    // a token: look again soon.
    let soon = if armed != Want::Token {
        20_000_000
    } else if events & libc::POLLIN == 0 {
        1_000_000
    } else {
        10_000_000
    };
    let soon = sooner(remaining(end), timespec { tv_sec: 0, tv_nsec: soon });
    let none = pollfd { fd: -1, events: 0, revents: 0 };
    let [fifo, line] = waiter.map_or([none; 2], Borrowed::beside);
    let mut fds = [pollfd { fd: endpoint.fd(), events, revents: 0 }, fifo, line];
    let entries = match waiter {
        Some(waiter) => waiter.entries(&mut fds),
        None => &mut fds,
    };
    let slept = ppoll(entries, Some(soon));
    if !limit.is_still(endpoint) {
        *rung = [fds[1].revents, fds[2].revents];
        return Woken::Again;
    }
    // A reader that takes nothing: TCP's buffers hold more than a ring, and programs count on it.
    // (Signals may come faster than the time passes.)
    if matches!(slept, Ok(0) | Err(libc::EINTR)) && limit.standstill(head()) > PATIENCE {
        endpoint.spill();
        // As where the kernel takes no more: see `send_rest`.
        let _ = endpoint.tidy();
    }
    match slept {
        Ok(0) if is_over(end) => Woken::TimedOut,
        Err(libc::EINTR) => interrupted(end.is_some(), limit.partial).unwrap_or(Woken::Again),
        Ok(1..) => {
            *rung = [fds[1].revents, fds[2].revents];
            if fds[0].revents & libc::POLLIN != 0 {
                let _ = endpoint.tidy();
            }
            if fds[0].revents & (libc::POLLERR | libc::POLLHUP) != 0 {
                // The connection is gone: the kernel knows the error.
                endpoint.give_up_ring();
            }
            Woken::Again
        }
        _ => Woken::Again,
    }
}
