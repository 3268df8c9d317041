//! What a thread does while nothing comes to any of its interfaces.
//!
//! A rank may have several: Open MPI has one for messages and one for one-sided calls. They are
//! asked for progress in turn, and news for one is not to wait until a sleep over another ends. So
//! the interfaces of one thread count looks in vain together, and sleep together.
//!
//! An interface is the thread's that makes progress on it, which need not be the one that opened
//! it, or the one that closes it. [`OWNERS`] is locked by whoever takes one over, or looks at those
//! that others may take over meanwhile; nobody sleeps with it.

//!
//! Where several threads use a worker at once (`UCS_THREAD_MODE_MULTI`), UCX holds the worker's
//! lock while progress is made, and the others spin for it. Whoever sleeps then, or lets others
//! run, lets them spin: so nobody does.

use crate::objects::Interface;
use ginnel_fabric::idle::{Idle, Rest};
use ginnel_region::sys;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    static IDLE: RefCell<Idle> = RefCell::default();
    static NUMBER: u64 = {
        static LAST: AtomicU64 = AtomicU64::new(0);
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    };
}

thread_local! {
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// This thread makes a worker, which several threads are to use at once, or has made it.
pub fn opening(at_once: bool) {
    let _ = AT_ONCE.try_with(|now| now.set(at_once));
}

/// Does it make such a worker?
pub fn is_opening_at_once() -> bool {
    AT_ONCE.try_with(Cell::get).unwrap_or(false)
}

/// An open interface.
struct Open(*const Interface);

// SAFETY: an address; what may be done with it says `OWNERS`.
unsafe impl Send for Open {}

/// All interfaces of the process. Who holds the lock may look at those of its own thread: none of
/// them is closed, and no other thread makes progress on it.
static OWNERS: Mutex<Vec<Open>> = Mutex::new(Vec::new());

fn owners() -> MutexGuard<'static, Vec<Open>> {
    OWNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread's number; 0 while it ends.
#[inline]
fn own_number() -> u64 {
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// An interface was opened.
pub fn enter(interface: &Interface) {
    interface.owner.store(own_number(), Ordering::Relaxed);
    owners().push(Open(interface));
}

/// It is about to be closed, by any thread.
pub fn leave(interface: &Interface) {
    owners().retain(|open| !std::ptr::eq(open.0, interface));
}

/// This thread is about to make progress on an interface.
#[inline]
pub fn own(interface: &Interface) {
    let number = own_number();
    if interface.owner.load(Ordering::Relaxed) != number {
        take_over(interface, number);
    }
}

#[cold]
fn take_over(interface: &Interface, number: u64) {
    let _owners = owners();
    interface.owner.store(number, Ordering::Relaxed);
    // The other one may sleep over it. Whoever polls its descriptor goes on doing that.
    if !interface.is_armed() {
        // SAFETY: UCX's rules: no other thread uses it now, but for who holds the lock.
        unsafe { (*interface.active()).node().awake() };
    }
}

/// Something came.
#[inline]
pub fn reset() {
    let _ = IDLE.try_with(|idle| {
        if let Ok(mut idle) = idle.try_borrow_mut() {
            idle.reset();
        }
    });
}

/// A look was in vain.
///
/// # Safety
/// UCX's rules: the interface is open, this thread makes progress on it, and no other one uses it
/// now.
pub unsafe fn rest(interface: &Interface) {
    let rest = IDLE.try_with(|idle| {
        let mut idle = idle.try_borrow_mut().ok()?;
        // SAFETY: the caller's promise; nothing that is called here comes back to it.
        Some(unsafe { (*interface.active()).rest(&mut idle) })
    });
    match rest {
        _ if interface.at_once => {}
        Ok(Some(Rest::Yield)) => sys::yield_now(),
        // SAFETY: the caller's promise.
        Ok(Some(Rest::Sleep(ms))) => unsafe { doze(interface, ms) },
        _ => {}
    }
}

/// Sleeps until one of this thread's interfaces is woken, at most so long.
///
/// # Safety
/// As for [`rest`].
unsafe fn doze(interface: &Interface, ms: i32) {
    let (number, own) = (own_number(), owners());
    let mine = |own: &[Open]| {
        own.iter()
            // SAFETY: who is in the list is open while the lock is held.
            .map(|open| unsafe { &*open.0 })
            .filter(|it| it.owner.load(Ordering::Relaxed) == number)
            .collect()
    };
    let all: SmallVec<[&Interface; 8]> = mine(&own);
    // SAFETY: they are this thread's while the lock is held; what another thread may send on one of
    // them now changes nothing that is looked at here.
    let active = |interface: &Interface| unsafe { &*interface.active() };
    // Whoever armed a descriptor wants to be woken by it still, whatever is done here.
    all.iter().filter(|it| !it.is_armed()).for_each(|it| active(it).node().sleeping());
    // Whoever waits for room in full rings is woken when there is some. Of another interface it is
    // not known: another thread may be sending on it.
    // SAFETY: the caller's promise.
    let is_full = |it: &Interface| std::ptr::eq(it, interface) && unsafe { it.is_full() };
    let busy = all.iter().any(|it| it.is_busy() && !is_full(it));
    let news = all.iter().any(|it| active(it).has_news());
    let polled = all.iter().map(|it| libc::pollfd {
        fd: active(it).node().fifo(),
        events: libc::POLLIN,
        revents: 0,
    });
    let mut polled: SmallVec<[libc::pollfd; 8]> = polled.collect();
    drop(own);
    if busy {
        // Whoever is to make room may wait for this processor.
        sys::yield_now();
    } else if !news {
        // One that another thread closes meanwhile may give its number to another file: then the
        // sleep ends early, or with its time.
        // SAFETY: as many descriptors as it says.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, ms) };
    }
    let own = owners();
    let all: SmallVec<[&Interface; 8]> = mine(&own);
    all.iter().filter(|it| !it.is_armed()).for_each(|it| active(it).node().awake());
}
