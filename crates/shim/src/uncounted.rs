//! Calls on connections whose other end seems to have no shim: straight to the kernel, and not
//! counted in the ledger (see [`ginnel_tcp::uncounted`]).
//!
//! Which numbers have such calls, and which of them are under way, stands in [`crate::quiet`].

mod direct;

use crate::fds::{self, Entry};
use crate::quiet::{CALL, NOTEBOOK, Notes, Quiet, SLOTS, changed, goes, none_in, quiet, take_note};
use crate::{runtime, thread};
use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, fence};
pub use direct::{Direct, Word, call};
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::uncounted::LOOKS;
use libc::c_int;
use syscalls::Sysno;

/// Can all threads be made to pass a barrier?
static AVAILABLE: AtomicBool = AtomicBool::new(false);

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the call that announces it (`linux/membarrier.h`, Linux
/// 4.14).
const PRIVATE_EXPEDITED: usize = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;

fn membarrier(command: usize) -> bool {
    // SAFETY: no memory is passed.
    unsafe { sys::raw(Sysno::membarrier, [command, 0, 0, 0, 0, 0]) }.is_ok()
}

/// At the start, and in a fork child, while there is one thread: with more the kernel takes its
/// time.
pub fn start() {
    let at = ptr::from_ref(&NOTEBOOK).cast_mut().cast();
    let available =
        sys::wipe_on_fork(at, size_of::<Notes>()).is_ok() && membarrier(REGISTER_PRIVATE_EXPEDITED);
    NOTEBOOK.first.thread.store(thread::me(), Relaxed);
    AVAILABLE.store(available, SeqCst);
}

/// Another process is about to use this very memory, perhaps with this thread's control block: all
/// calls are counted from here on.
pub fn stop() {
    AVAILABLE.store(false, SeqCst);
    numbers().for_each(|(fd, _)| changed(fd));
}

/// All numbers that ever stood for anything.
fn numbers() -> impl Iterator<Item = (c_int, &'static Quiet)> {
    (0..).zip(NOTEBOOK.quiet.iter().take(fds::highest() as usize + 1))
}

/// The numbers of this slot whose calls may go uncounted.
fn numbers_of(slot: u32) -> impl Iterator<Item = c_int> {
    let only = fds::of_slot(slot)
        .filter(|&fd| fds::count(slot) < 2 && fds::get(fd) == Entry::Endpoint(slot));
    let goes = move |fd: &c_int| goes(*fd, slot);
    let all = numbers().map(|(fd, _)| fd).take_while(move |_| only.is_none());
    only.into_iter().chain(all).filter(goes)
}

/// Adds up what was returned so far, for whoever asks how many bytes went where.
pub fn report() {
    numbers().for_each(|(_, quiet)| quiet.report());
}

/// After a look at which nobody had come: the next calls need not be counted, if that has been so
/// for long.
pub fn begin(endpoint: Endpoint<'static>) {
    let Some(quiet) = quiet(endpoint.fd()).filter(|_| AVAILABLE.load(Relaxed)) else { return };
    SLOTS.store(ptr::from_ref(endpoint.attachment.ledger.slot(0)).cast_mut(), Release);
    // Also where they are not counted already: by another number of the socket's perhaps.
    if (endpoint.is_uncounted() || endpoint.begin_uncounted()) && take_note() {
        endpoint.while_uncounted(|| {
            let (fd, index) = (endpoint.fd(), endpoint.index());
            // Not stopped, nor closed or taken back by another thread, nor another process's after
            // a fork in a handler.
            let stands = || {
                fds::get(fd) == Entry::Endpoint(index)
                    && AVAILABLE.load(SeqCst)
                    && endpoint.is_uncounted()
            };
            if !stands() {
                return;
            }
            // What is there is this slot's, or of what the number stood for before.
            if quiet.slot.load(Relaxed) == index + 1 {
                quiet.report();
            } else {
                quiet.returned.iter().for_each(|returned| returned.store(0, Relaxed));
            }
            // Not usable yet.
            quiet.left.store(0, Relaxed);
            quiet.slot.store(index + 1, SeqCst);
            fence(SeqCst);
            // If it comes to that only after this look, it is found here.
            if stands() {
                quiet.left.store((LOOKS - 1) * CALL + index + 1, Relaxed);
            } else {
                changed(fd);
            }
        });
    }
}

/// Before the next step towards a channel: the process counts its calls again, if it did not and
/// something has changed. False while it may still be in one that was not.
pub fn end(endpoint: Endpoint<'static>) -> bool {
    if !endpoint.is_to_count() {
        return true;
    }
    endpoint.count_again();
    numbers_of(endpoint.index()).for_each(changed);
    // What can be seen without a barrier needs none.
    none_in(endpoint.index()) && is_over(endpoint)
}

/// The same, although nobody has come to where the connection is shown. False: not yet.
pub fn end_now(endpoint: Endpoint<'static>) -> bool {
    if !endpoint.does_not_count() {
        return true;
    }
    endpoint.count_again();
    numbers_of(endpoint.index()).for_each(changed);
    none_in(endpoint.index()) && is_over(endpoint)
}

/// Is the last of its uncounted calls over? Asked after `count_again`.
fn is_over(endpoint: Endpoint<'static>) -> bool {
    let slot = endpoint.index();
    endpoint.end_uncounted(|| {
        // Here, where no thread can begin it anew: another may have begun and ended it meanwhile.
        numbers_of(slot).for_each(changed);
        membarrier(PRIVATE_EXPEDITED) && none_in(slot)
    })
}

/// Before a fork: all calls are counted from here on, so that the child, which this process may
/// leave its connections to, can move them.
pub fn end_all() {
    let uncounted = || {
        fds::slots(0)
            .filter_map(|slot| runtime::endpoint(fds::of_slot(slot)?, slot))
            .filter(|endpoint| endpoint.does_not_count())
    };
    uncounted().for_each(Endpoint::count_again);
    for endpoint in uncounted() {
        let _ = is_over(endpoint);
    }
}
