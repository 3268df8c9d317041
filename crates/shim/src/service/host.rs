//! The daemon's doorbells, where machines share the segment.

use super::{HOST_DATA, control, own_slots, with_endpoint};
use ginnel_region::sys;
use ginnel_tcp::Attachment;
use ginnel_tcp::Endpoint;

/// How long it then waits before it tries to join again, at first and at most, nanoseconds.
const REJOIN: [u64; 2] = [250_000_000, 8_000_000_000];

/// On the host, where the daemon serves the segment: hears its doorbell, and its end.
pub(super) fn listen(attachment: &Attachment) {
    if let Some(bells) = &attachment.node.joined().bells {
        control(
            libc::EPOLL_CTL_ADD,
            bells.own(),
            (libc::EPOLLIN | libc::EPOLLET) as u32,
            HOST_DATA,
        );
        control(
            libc::EPOLL_CTL_ADD,
            bells.socket(),
            (libc::EPOLLRDHUP | libc::EPOLLET) as u32,
            HOST_DATA,
        );
    }
}

/// Wakes those whom machines have rung; where the daemon is gone does without it, and joins again
/// once it is back. False while it is away.
pub(super) fn hear(attachment: &'static Attachment, again: &mut Again) -> bool {
    let Some(bells) = &attachment.node.joined().bells else { return true };
    bells.deliver(&attachment.node.joined().segment);
    if bells.lost() {
        for index in own_slots() {
            let _ = with_endpoint(index, Endpoint::wake_again);
        }
    }
    if bells.up() {
        *again = Again::default();
    } else if sys::monotonic_ns() >= again.at {
        if bells.rejoin(&attachment.node.settings.segment, &attachment.node.joined().segment) {
            listen(attachment);
            bells.deliver(&attachment.node.joined().segment);
        }
        again.pause = (again.pause * 2).clamp(REJOIN[0], REJOIN[1]);
        again.at = sys::monotonic_ns() + again.pause;
    }
    bells.up()
}

/// When to try to join again, and the pause before that: monotonic nanoseconds.
#[derive(Default)]
pub(super) struct Again {
    at: u64,
    pause: u64,
}
