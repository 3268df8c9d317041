//! The slots of this process's connections, and their descriptors while the thread uses them: they
//! are not closed under it.

use crate::{fds, runtime};
use core::sync::atomic::{AtomicBool, Ordering};
use ginnel_region::sys;
use ginnel_tcp::{Endpoint, kernel};

/// Held while the thread uses a descriptor of a slot, so that it is not closed under it.
pub(super) static GUARDS: [AtomicBool; 64] = [const { AtomicBool::new(false) }; 64];

/// Runs `work` while the thread is not using a descriptor of `slot`.
pub fn unless_serving<T>(slot: u32, work: impl FnOnce() -> T) -> T {
    let guard = GUARDS.get(slot as usize % GUARDS.len());
    let mut round = 0u32;
    while guard.is_some_and(|guard| guard.swap(true, Ordering::Acquire)) {
        core::hint::spin_loop();
        round = round.wrapping_add(1);
        if round.is_multiple_of(1024) {
            // The thread may wait for a lock that this one took and left by `siglongjmp`, of this
            // slot or one with the same guard.
            for index in own_slots()
                .filter(|index| *index as usize % GUARDS.len() == slot as usize % GUARDS.len())
            {
                if let Some(endpoint) =
                    fds::of_slot(index).and_then(|fd| runtime::endpoint(fd, index))
                {
                    endpoint.take_back_left();
                }
            }
            sys::yield_now();
        }
    }
    let result = work();
    if let Some(guard) = guard {
        guard.store(false, Ordering::Release);
    }
    result
}

/// The slots of this process's connections.
pub fn own_slots() -> impl Iterator<Item = u32> {
    fds::slots(0)
}

/// Runs `work` on a slot by one of its descriptors, which stays open meanwhile. `None`: this
/// process has none.
pub fn with_endpoint<T>(index: u32, work: impl FnOnce(Endpoint<'static>) -> T) -> Option<T> {
    unless_serving(index, || {
        let fd = fds::of_slot(index)?;
        let endpoint = runtime::endpoint(fd, index)?;
        // The number may have been closed past the hooks.
        (kernel::cookie(fd) == Ok(endpoint.slot().cookie.load(Ordering::Relaxed)))
            .then(|| work(endpoint))
    })
}
