//! Back to TCP for good, before code that the hooks cannot follow uses the socket.

use super::PATIENCE;
use crate::runtime;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::Reason;
use libc::c_int;

/// How long where the socket is only inherited, nanoseconds.
const PATIENCE_WITH_HEIRS: u64 = 2_000_000_000;

/// `fd` is about to be used in a way that the hooks cannot follow (fdopen, dprintf, SCM_TXTIME …):
/// bring both directions back to TCP and keep them there. Returns when the kernel's socket holds
/// the whole truth. Where that cannot be had (the other end is gone or does not answer, with bytes
/// unread in its ring), the connection is reset: bytes must not be lost in silence.
pub fn hand_over(fd: c_int) {
    hand_over_for(fd, Reason::HandedOver);
}

/// [`hand_over`], for a given reason.
pub fn hand_over_for(fd: c_int, reason: Reason) {
    let Some(endpoint) = runtime::find(fd) else { return };
    if !endpoint.detach(reason, PATIENCE) {
        runtime::say(
            endpoint.attachment.settings.verbose,
            "a connection was reset: the other end did not answer a hand-over",
        );
        endpoint.break_off(reason);
    }
}

/// [`hand_over`] for an option without which the stream is the same: where the connection cannot be
/// handed over it stays as it is, and goes back to TCP once the program has read what stands
/// before. True if the kernel honours the option.
pub fn hand_over_if_possible(fd: c_int) -> bool {
    let detach = |endpoint: Endpoint<'_>| {
        !endpoint.is_best_read_in_ring() && endpoint.detach(Reason::Option, PATIENCE_WITH_HEIRS)
    };
    runtime::find(fd).is_none_or(detach)
}

/// [`hand_over`] of a socket that may be used past the hooks and most likely will not (a program
/// without the shim inherits it, it became a standard stream): where it cannot be handed over, it
/// is left as it is, and the hooks go on.
pub fn offer(fd: c_int) {
    let Some(endpoint) = runtime::find(fd) else { return };
    if !endpoint.detach(Reason::HandedOver, PATIENCE_WITH_HEIRS) {
        runtime::say(
            endpoint.attachment.settings.verbose,
            "a connection could not be handed over: code past the shim would not see bytes that lie in its ring",
        );
    }
}
