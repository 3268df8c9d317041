//! Sets and what becomes of their process: fork, exec, leaving the segment.

use super::{
    BY_FD, Registration, Set, all_sets, doors, fresh, kernel_control, late, make_hot, retell,
    shared, tag, tell_all, witness,
};
use crate::runtime;
use core::sync::atomic::{AtomicU32, Ordering};
use ginnel_region::sys;
use ginnel_tcp::ledger::SLOTS;
use libc::c_int;

/// How many sets [`lock_all`] has locked.
static LOCKED: AtomicU32 = AtomicU32::new(0);

/// Before fork: no set is being changed. Others take these locks in orders of their own (a set's,
/// then an inner set's or the places'): so all or none, and again.
pub fn lock_all() {
    if all_sets().next().is_some() {
        tag::prepare();
    }
    late::forking();
    loop {
        if BY_FD.try_acquire() {
            let taken = all_sets().take_while(|set| set.inner.try_acquire()).count();
            // SAFETY: under the locks.
            let told = || all_sets().all(|set| unsafe { &*set.inner.value.get() }.is_told());
            if taken == all_sets().count() && told() {
                for set in all_sets() {
                    set.disturb();
                    // SAFETY: under the locks.
                    let inner = unsafe { &mut *set.inner.value.get() };
                    inner.registrations.iter_mut().for_each(|entry| entry.lend(set));
                    set.shared
                        .store(set.descriptors.load(Ordering::Relaxed) != 0, Ordering::Relaxed);
                    doors::give_back(set, inner);
                }
                late::may_fork();
                return LOCKED.store(u32::try_from(taken).unwrap_or(0), Ordering::Relaxed);
            }
            release_first(taken);
        }
        tell_all();
        sys::yield_now();
    }
}

/// After fork, on both sides.
pub fn unlock_all() {
    release_first(LOCKED.load(Ordering::Relaxed) as usize);
}

fn release_first(sets: usize) {
    for set in all_sets().take(sets) {
        set.inner.release();
    }
    BY_FD.release();
}

/// In a fork child: the waiters are the parent's. The sets themselves are shared in the kernel:
/// from here on both sides are woken through it.
pub fn forget_parent() {
    late::forked();
    let Some(attachment) = runtime::attachment() else { return };
    for set in all_sets() {
        set.sleepers.store(0, Ordering::Relaxed);
        set.with(|inner| {
            if let Some(waiter) = inner.waiter.take() {
                attachment.node.disown(waiter.fifo());
            }
            inner.doors.clear();
            witness::close(inner);
            // The parent is told of it.
            inner.owed.clear();
            // A set that is used on both sides is woken through the kernel; one that is not in use
            // begins anew.
            inner.waiter_tried = set.descriptors.load(Ordering::Relaxed) != 0;
            for index in 0..inner.registrations.len() {
                make_hot(inner, u32::try_from(index).unwrap_or(0));
            }
        });
    }
}

/// The number `from` is about to be the program's: a set's waiter or witness that has it has the
/// copy `to` from now on. False: none has it. (The kernel's set knows the open file, which stays.)
pub fn moved(from: c_int, to: c_int) -> bool {
    let put = |set: &Set| {
        set.with(|inner| {
            let moved = inner.waiter.and_then(|waiter| waiter.moved(from, to));
            inner.waiter = moved.or(inner.waiter);
            moved.is_some() || witness::moved(inner, from, to)
        })
    };
    witness::moved_in_common(from, to) || all_sets().any(put)
}

/// Before the segment is left: no set has a waiter there. Whoever sleeps is woken by the kernel
/// alone from now on, as its connections are on TCP.
pub fn retire_waiters(attachment: &'static ginnel_tcp::Attachment) {
    for set in all_sets() {
        set.with(|inner| {
            late::tell(set, inner);
            doors::close(set.fd.load(Ordering::Relaxed), inner);
            if let Some(waiter) = inner.waiter.take() {
                inner.waiter_lost = true;
                let _ = kernel_control(
                    set.fd.load(Ordering::Relaxed),
                    libc::EPOLL_CTL_DEL,
                    waiter.fifo(),
                    0,
                    0,
                );
                waiter.retire(&attachment.node);
            }
        });
    }
}

/// No socket has a slot any more, though it goes on in its sets: the kernel knows everything of
/// each registration, and whoever gets a slot again links it anew.
pub fn forget_slots() {
    for set in all_sets() {
        let epfd = set.fd.load(Ordering::Relaxed);
        set.with(|inner| {
            late::tell(set, inner);
            inner.hot.clear();
            for entry in inner.registrations.iter_mut().filter(|entry| entry.used) {
                if entry.masked || entry.loud {
                    entry.mask(set, false);
                    if entry.in_kernel && !entry.disabled {
                        retell(set, epfd, entry);
                    }
                }
                (entry.slot, entry.hot, entry.idle, entry.seen) = (None, false, 0, u64::MAX);
                (entry.arming, entry.changes) = (0, 0);
            }
        });
    }
    (0..SLOTS).for_each(fresh);
}

/// The process has joined a segment again: sets that had a waiter may have one there.
pub fn rejoined() {
    for set in all_sets() {
        set.with(|inner| {
            if core::mem::take(&mut inner.waiter_lost) {
                inner.waiter_tried = false;
            }
        });
    }
}

/// Before an exec: the new program knows nothing of tags, nor what is masked or asked for beside
/// the program's wish.
pub fn untag() {
    late::executing();
    for set in all_sets() {
        shared::look(set, set.fd.load(Ordering::Relaxed));
    }
    each_disguised(|set, epfd, entry| {
        let _ = kernel_control(epfd, libc::EPOLL_CTL_MOD, entry.fd, entry.events, entry.data);
        shared::told(set, entry);
    });
}

/// The exec did not happen.
pub fn tag_again() {
    late::not_executed();
    each_disguised(retell);
}

/// Calls `work` with (set, its descriptor, registration) for all of which the kernel has other
/// words than the program's. Not for one that is disabled: it is armed with the program's own,
/// perhaps by another process already.
fn each_disguised(work: impl Fn(&Set, c_int, &mut Registration)) {
    for set in all_sets() {
        let epfd = set.fd.load(Ordering::Relaxed);
        set.with(|inner| {
            for entry in &mut inner.registrations {
                if entry.used
                    && entry.in_kernel
                    && entry.is_named()
                    && !entry.disabled
                    && (entry.is_tagged() || entry.masked || entry.loud)
                {
                    work(set, epfd, entry);
                }
            }
        });
    }
}
