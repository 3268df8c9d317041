//! Starting the thread, and ending it for a while.

use super::host::listen;
use super::{BELL_DATA, EPOLL, FIFO, FIFO_DATA, GENERATION, broker, control, run};
use crate::bell::{BELL, RUNNING, WATCHED, ring};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use ginnel_node::processes::ProcessFlags;
use ginnel_node::waiter::Waiter;
use ginnel_region::sys;
use ginnel_tcp::Attachment;
use syscalls::Sysno;

/// The last attempt to start it failed.
pub(super) static FAILED: AtomicBool = AtomicBool::new(false);

/// The thread's number; 0 until it runs.
static THREAD: AtomicU32 = AtomicU32::new(0);

/// How many calls are under way that need a process of one thread.
pub(super) static PAUSES: AtomicU32 = AtomicU32::new(0);

/// The thread is to run again after them.
pub(super) static PAUSED: AtomicBool = AtomicBool::new(false);

/// How long a pause waits for the thread to be gone, nanoseconds.
pub(super) const PATIENCE: u64 = 2_000_000_000;

/// Nothing is begun in the segment, and a thread that would see to it does not run, perhaps.
#[cold]
pub fn attend_absence(attachment: &'static Attachment) {
    if !RUNNING.load(Ordering::Acquire) {
        start(attachment);
    }
}

/// Did the thread begin with `no_new_privs`, as the one that started it?
static UNPRIVILEGED: AtomicBool = AtomicBool::new(false);

/// Starts the thread before there is anything for it to do: later it could not be. Where another
/// thread has ended it for a call of its own ([`pause`]), that call is over first.
#[cold]
pub fn begin(attachment: &'static Attachment) {
    let end = sys::monotonic_ns() + PATIENCE;
    while PAUSES.load(Ordering::Acquire) != 0 && sys::monotonic_ns() < end {
        sys::sleep_ms(1);
    }
    start(attachment);
}

/// Does the thread run, and has it `no_new_privs` already? Then nobody who takes that has to end
/// it: each of HAProxy's threads does, and the last ones when no thread may begin any more.
#[cold]
pub fn gains_no_privileges() -> bool {
    RUNNING.load(Ordering::Acquire) && UNPRIVILEGED.load(Ordering::Acquire)
}

/// Could the thread not be started, and still cannot? Then nothing is to be begun that it would
/// have to see to.
#[inline]
pub fn is_missing(attachment: &'static Attachment) -> bool {
    FAILED.load(Ordering::Relaxed) && !start(attachment)
}

/// Starts the thread, once. `false` where it cannot be.
pub(super) fn start(attachment: &'static Attachment) -> bool {
    if RUNNING.load(Ordering::Acquire) {
        return true;
    }
    if PAUSES.load(Ordering::Acquire) != 0 {
        PAUSED.store(true, Ordering::Release);
        return true;
    }
    if RUNNING.swap(true, Ordering::AcqRel) {
        return true;
    }
    let ok = (EPOLL.load(Ordering::Relaxed) >= 0 || prepare(attachment).is_ok()) && spawn();
    if !ok {
        RUNNING.store(false, Ordering::Release);
    }
    FAILED.store(!ok, Ordering::Relaxed);
    attachment.node.processes.process(attachment.node.me()).set(ProcessFlags::Serves, ok);
    ok
}

fn prepare(attachment: &'static Attachment) -> sys::Result<()> {
    // SAFETY: no memory is passed.
    let epoll =
        unsafe { sys::raw(Sysno::epoll_create1, [libc::EPOLL_CLOEXEC as usize, 0, 0, 0, 0, 0]) }?
            as i32;
    // SAFETY: likewise.
    let bell = unsafe {
        sys::raw(
            Sysno::eventfd2,
            [0, (libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) as usize, 0, 0, 0, 0],
        )
    }
    .inspect_err(|_| sys::close(epoll))? as i32;
    let (epoll, bell) = (sys::move_high(epoll), sys::move_high(bell));
    attachment.node.own(epoll);
    attachment.node.own(bell);
    EPOLL.store(epoll, Ordering::Relaxed);
    BELL.store(bell, Ordering::Relaxed);
    control(libc::EPOLL_CTL_ADD, bell, libc::EPOLLIN as u32, BELL_DATA);
    prepare_waiter(attachment);
    listen(attachment);
    Ok(())
}

/// Makes the thread's waiter, by which peers wake it.
pub(super) fn prepare_waiter(attachment: &'static Attachment) {
    if EPOLL.load(Ordering::Relaxed) >= 0
        && attachment.node.joined().service_page() == 0
        && let Ok(waiter) = Waiter::new(&attachment.node)
    {
        FIFO.store(waiter.fifo(), Ordering::Relaxed);
        control(libc::EPOLL_CTL_ADD, waiter.fifo(), libc::EPOLLIN as u32, FIFO_DATA);
        attachment.node.set_service_page(waiter.page());
    }
}

/// Gives it back: called by the thread.
pub(super) fn retire_waiter(attachment: &'static Attachment) {
    if let Some(waiter) = waiter(attachment) {
        attachment.node.set_service_page(0);
        FIFO.store(-1, Ordering::Relaxed);
        control(libc::EPOLL_CTL_DEL, waiter.fifo(), 0, 0);
        waiter.retire(&attachment.node);
    }
}

/// Where the thread has something on its heap: see [`heap`].
static HEAP: AtomicUsize = AtomicUsize::new(0);

/// An address on the thread's heap, 0 where there is none yet. The C library reserves 64 MB of
/// addresses for each thread that allocates (malloc(3), arenas).
pub fn heap() -> usize {
    HEAP.load(Ordering::Relaxed)
}

fn spawn() -> bool {
    extern "C" fn body(generation: *mut libc::c_void) -> *mut libc::c_void {
        HEAP.store(core::ptr::from_ref(Box::leak(Box::new(0u64))).addr(), Ordering::Relaxed);
        // SAFETY: no arguments.
        let number = unsafe { sys::raw(Sysno::gettid, [0; 6]) }.unwrap_or(0);
        THREAD.store(number as u32, Ordering::Release);
        run(generation.addr());
        core::ptr::null_mut()
    }
    THREAD.store(0, Ordering::Relaxed);
    // SAFETY: the question takes numbers only.
    let mine =
        unsafe { sys::raw(Sysno::prctl, [libc::PR_GET_NO_NEW_PRIVS as usize, 0, 0, 0, 0, 0]) };
    UNPRIVILEGED.store(mine == Ok(1), Ordering::Release);
    let generation = core::ptr::without_provenance_mut(GENERATION.load(Ordering::Relaxed));
    // SAFETY: the mask is ours; the thread's function takes a number and touches statics only.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&raw mut attributes, 256 << 10);
        // A number, or a pointer, by the C library.
        let mut thread: libc::pthread_t = core::mem::zeroed();
        let made = libc::pthread_create(&raw mut thread, &raw const attributes, body, generation);
        libc::pthread_attr_destroy(&raw mut attributes);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        made == 0
    }
}

/// Ends the thread until [`resume`] ([`crate::alone`]). Its descriptors stay. False: it did not
/// run.
pub fn pause() -> bool {
    PAUSES.fetch_add(1, Ordering::AcqRel);
    if !RUNNING.load(Ordering::Acquire) {
        return false;
    }
    let end = sys::monotonic_ns() + PATIENCE;
    let wait = || {
        sys::sleep_ms(1);
        sys::monotonic_ns() < end
    };
    while THREAD.load(Ordering::Acquire) == 0 && wait() {}
    GENERATION.fetch_add(1, Ordering::AcqRel);
    ring();
    PAUSED.store(true, Ordering::Release);
    UNPRIVILEGED.store(false, Ordering::Release);
    RUNNING.store(false, Ordering::Release);
    // Not joined: it counts as a thread until the kernel has forgotten its number.
    let number = THREAD.load(Ordering::Relaxed) as usize;
    // SAFETY: signal 0 only asks.
    while unsafe { sys::raw(Sysno::tgkill, [sys::pid() as usize, number, 0, 0, 0, 0]) }.is_ok()
        && wait()
    {}
    true
}

/// After [`pause`]: the thread runs again, if it did and the process carries anything yet. `false`
/// where it is to, and cannot.
pub fn resume(attachment: Option<&'static Attachment>) -> bool {
    let last = PAUSES.fetch_sub(1, Ordering::AcqRel) == 1;
    let Some(attachment) = attachment else { return true };
    !last || !PAUSED.swap(false, Ordering::AcqRel) || start(attachment)
}

/// After [`pause`], where the process gives up everything that it has of ledger and segment: the
/// thread begins anew with whatever the process joins next.
pub fn close_down(attachment: &Attachment) {
    WATCHED.unset_all();
    broker::close(attachment);
    for fd in [&EPOLL, &BELL, &FIFO] {
        attachment.node.disown(fd.swap(-1, Ordering::AcqRel));
    }
    PAUSED.store(false, Ordering::Release);
    PAUSES.fetch_sub(1, Ordering::AcqRel);
}

/// The number `from` is about to be the program's: what the thread has by it, it has by the copy
/// `to` from now on. False: it has nothing by it.
pub fn moved(from: i32, to: i32) -> bool {
    let put = |place: &AtomicI32| {
        place.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    [&EPOLL, &BELL, &FIFO, &broker::SOCKET].into_iter().any(put)
}

pub(super) fn waiter(attachment: &Attachment) -> Option<Waiter> {
    let page = attachment.node.joined().service_page();
    (page != 0).then(|| Waiter::from_parts(page, FIFO.load(Ordering::Relaxed)))
}
