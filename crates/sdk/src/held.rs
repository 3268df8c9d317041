//! What a thread holds: a thread that ends without giving a lock back leaves it as a dead process
//! does.
//!
//! Destructors of a pthread's own keys run after those of Rust's thread-local values, and may lock
//! and unlock. So the list itself has no destructor, and stays usable until the thread is gone;
//! what ends with the thread stands beside it. A lock that is taken after that, and not given back,
//! goes with the process.

use crate::joined::Inner;
use crate::object::Object;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// One hold on an object. Locking copies it, so it is small.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub inner: &'static Inner,
    /// The object's first page, and the word that is another once that changed hands.
    of: (u32, u64),
    /// The handle through which it was taken: see [`handle`].
    handle: u64,
    /// The word that says who holds it, by which the hold is known.
    pub word: &'static AtomicU64,
    /// Leaves it as one that died.
    leave: fn(&Held),
}

impl Held {
    #[inline]
    pub fn new(object: &Object, handle: u64, word: &'static AtomicU64, leave: fn(&Held)) -> Self {
        Self { inner: object.inner, of: object.head.parts(), handle, word, leave }
    }

    /// The object's first page.
    pub fn page(&self) -> u32 {
        self.of.0
    }

    #[inline]
    pub fn is_of(&self, object: &Object) -> bool {
        self.of == object.head.parts() && ptr::eq(self.inner, object.inner)
    }

    /// Leaves it, where it is this process's still, and still the same object.
    fn left(&self) {
        let presence = &self.inner.presence;
        let there = || presence.segment().head(self.page()).map(ginnel_region::Head::parts);
        if presence.check_all().is_ok() && there() == Some(self.of) {
            (self.leave)(self);
        }
    }
}

struct List {
    held: ManuallyDrop<Vec<Held>>,
    /// What ends with the thread knows of it.
    begun: bool,
    /// That has ended.
    ended: bool,
}

thread_local! {
    static HELD: RefCell<List> = const {
        RefCell::new(List { held: ManuallyDrop::new(Vec::new()), begun: false, ended: false })
    };
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        let held = HELD.with_borrow_mut(|list| {
            list.ended = true;
            std::mem::take(&mut *list.held)
        });
        held.iter().for_each(Held::left);
    }
}

/// This thread holds it from here on.
#[inline]
pub(crate) fn push(held: Held) {
    HELD.with_borrow_mut(|list| {
        if !list.begun {
            list.begun = true;
            let _ = END.try_with(|_| ());
        }
        list.held.push(held);
    });
}

/// It does no longer hold what it holds by this word: most often what it took last.
#[inline]
pub(crate) fn forget(word: &AtomicU64) {
    let last = HELD.with_borrow_mut(|list| {
        let last = !list.ended && list.held.last().is_some_and(|held| ptr::eq(held.word, word));
        if last {
            let _ = list.held.pop();
        }
        last
    });
    if !last {
        let _ = remove(|held| ptr::eq(held.word, word));
    }
}

/// The last hold that `is_it`, where there is one, which it holds no longer.
#[cold]
pub(crate) fn remove(is_it: impl Fn(&Held) -> bool) -> Option<Held> {
    HELD.with_borrow_mut(|list| {
        let at = list.held.iter().rposition(is_it)?;
        let removed = list.held.swap_remove(at);
        if list.ended && list.held.is_empty() {
            *list.held = Vec::new();
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
    HELD.with_borrow(|list| list.held.iter().any(is_it))
}
