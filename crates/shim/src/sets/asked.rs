//! Sets that are asked from outside, by poll, select or a set that they are in: asking takes nothing away.

use super::collect::unmask_hot;
use super::hot::{arm_hot, heat_masked, hot_has_news, rang};
use super::told::{Purpose, ask, heed_bells, truth};
use super::wait::leave;
use super::{Set, nest, set_at, shared};
use crate::fds::{self, Entry};
use crate::runtime;
use core::sync::atomic::Ordering;
use libc::{c_int, epoll_event};

/// Does an inner set have something to report?
pub(super) fn ready_inside(fd: c_int) -> bool {
    matches!(fds::get(fd), Entry::Epoll(index) if ready_at(index))
}

/// Has a ring of this set something to report? Reports nothing.
fn ready(set: &Set) -> bool {
    shared::look(set, set.fd.load(Ordering::Relaxed));
    heat_masked(set);
    set.with(|inner| {
        if let Some(attachment) = runtime::attachment() {
            // A channel that was armed in a wait, and told of bytes since.
            rang(inner, attachment);
        }
        unmask_hot(set, inner);
        hot_has_news(inner) || inner.children.clone().iter().any(|(child, ..)| ready_inside(*child))
    })
}

/// Set `index` is waited for from outside (poll, select): arms everything hot with tokens. False: there is something to report.
pub fn arm_for_kernel(index: u32) -> bool {
    let Some(set) = set_at(index) else { return true };
    let children = set.with(|inner| {
        nest(inner);
        inner.children.clone()
    });
    let all = set.with(|inner| arm_hot(set, inner));
    all && children.iter().all(|(child, ..)| match fds::get(*child) {
        Entry::Epoll(child) => arm_for_kernel(child),
        _ => true,
    })
}

/// See [`ready`], by number.
pub fn ready_at(index: u32) -> bool {
    set_at(index).is_some_and(ready)
}

/// The kernel says that set `index` is ready: is it, once tokens and full rings are taken into account? Reports nothing to anybody.
pub fn truly_ready(index: u32, epfd: c_int) -> bool {
    let Some(set) = set_at(index) else { return true };
    let mut room = [epoll_event { events: 0, u64: 0 }; 16];
    let got = ask(set, epfd, &mut room).unwrap_or(0);
    let mut any = false;
    for event in room.into_iter().take(got) {
        any |= truth(set, epfd, event, Purpose::Asking).1.is_some();
    }
    heed_bells(set);
    // What rang for those who sleep on the set was taken from them.
    leave(set);
    any || ready(set)
}
