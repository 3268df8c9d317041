//! Which places of a wait are the kernel's, where not all that is ready may have one.

use super::{Inner, order};
use ginnel_tcp::Attachment;

/// Why the kernel may be asked in this pass.
#[derive(Clone, Copy)]
pub(super) struct Asks {
    /// It was, just now.
    pub(super) asked: bool,
    /// It had something the last time.
    pub(super) lively: bool,
    /// Somebody said something over TCP since.
    pub(super) by_tcp: bool,
    /// Nothing else asks for it.
    pub(super) recent: bool,
}

/// How many of the `room` places are kept for the kernel, and whether that is since not all that is
/// ready may have one (`tight`). Busy rings must not keep what only the kernel knows (a listening
/// socket, a timer) from being told, nor they inner sets: then one place is the kernel's now and
/// then, and a single place goes round.
pub(super) fn keep_places(
    inner: &mut Inner,
    attachment: &Attachment,
    now: u64,
    room: usize,
    tight: bool,
    asks: Asks,
) -> (bool, usize) {
    let Asks { asked, lively, by_tcp, recent } = asks;
    if tight && !asked {
        inner.favoured = inner.favoured.wrapping_add(1);
    }
    // What the kernel had to tell the last time has its turn among them, as in the kernel's own
    // list; and so has what was said over TCP before what is due. What is due before that was said
    // goes before it, but not for ever: the kernel may have something else.
    let behind = tight && by_tcp && order::is_behind_tcp(inner, attachment, now);
    let others = (inner.hot.len() + inner.children.len()) << u32::from(by_tcp && !behind);
    let its_turn = tight && !asked && (lively || by_tcp) && inner.unasked >= others || behind;
    let recent = recent && !its_turn;
    let round = inner.favoured & 1 == 0 && (behind || !by_tcp);
    // (What others say of when they spoke must not keep a ring from being told for ever. The kernel
    // has told of each registration once by then.)
    let waits = room > 1 || inner.passed_over < inner.registrations.len();
    let reserved = tight && !recent && waits && (its_turn || room > 1 || round);
    let share = if recent { 0 } else { kernels_share(inner, room) };
    (reserved, share.max(usize::from(reserved)))
}

/// How many of so many places are kept for the kernel, which uses them: no more than its part of
/// what is registered, as the kernel's own list would have all of it go round.
fn kernels_share(inner: &Inner, room: usize) -> usize {
    let all = inner.by_fd.len();
    let of_kernel = all.saturating_sub(inner.hot.len() + inner.children.len());
    inner.share.min((room * of_kernel).checked_div(all).unwrap_or(0))
}
