//! What a thread holds: a thread that ends without giving a lock back leaves it as a dead process
//! does.
//!
//! Destructors of a pthread's own keys run after those of Rust's thread-local values, and may lock
//! and unlock. So the list itself has no destructor, and stays usable until the thread is gone;
//! what ends with the thread stands beside it. A lock that is taken after that, and not given back,
//! goes with the process.

use crate::segment::Inner;
use crate::waitlist::Waitlist;
use ginnel_region::Head;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// One hold on an object.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub inner: &'static Inner,
    /// The object's first page.
    pub head: Head,
    /// The handle through which it was taken: see [`handle`].
    pub handle: u64,
    /// The word that says who holds it, by which the hold is known.
    pub word: &'static AtomicU64,
    pub list: Waitlist,
    /// Leaves it as one that died.
    pub leave: fn(&Held),
}

impl Held {
    /// Leaves it, where it is this process's still, and still the same object.
    pub fn left(&self) {
        let presence = &self.inner.presence;
        if presence.check_all().is_ok() && presence.segment().still(self.head).is_ok() {
            (self.leave)(self);
        }
    }
}

thread_local! {
    static HELD: RefCell<ManuallyDrop<Vec<Held>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        let held = HELD.with_borrow_mut(|held| std::mem::take(&mut **held));
        held.iter().for_each(Held::left);
    }
}

/// This thread holds it from here on.
#[inline]
pub(crate) fn push(held: Held) {
    let _ = END.try_with(|_| ());
    HELD.with_borrow_mut(|list| list.push(held));
}

/// It does no longer: the last hold that `is_it`, where there is one.
#[inline]
pub(crate) fn remove(is_it: impl Fn(&Held) -> bool) -> Option<Held> {
    HELD.with_borrow_mut(|list| {
        let at = list.iter().rposition(is_it)?;
        let removed = list.swap_remove(at);
        if list.is_empty() && END.try_with(|_| ()).is_err() {
            **list = Vec::new();
        }
        Some(removed)
    })
}

/// A handle of an object is closed: what this thread holds through it is left.
pub(crate) fn closed(handle: u64) {
    while let Some(held) = remove(|held| held.handle == handle) {
        held.left();
    }
}

/// A number for a handle, which no other of this process has.
pub(crate) fn handle() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// Does this thread hold something by this word?
#[inline]
pub(crate) fn holds(word: &AtomicU64) -> bool {
    any(|held| ptr::eq(held.word, word))
}

/// Is there one among what this thread holds?
#[inline]
pub(crate) fn any(is_it: impl FnMut(&Held) -> bool) -> bool {
    HELD.with_borrow(|list| list.iter().any(is_it))
}
