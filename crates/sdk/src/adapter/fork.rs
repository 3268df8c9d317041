//! What a child of fork does with the memory of its parent's objects: the other library uses it in
//! place, without asking anybody. A child that ends as programs do drops all that it inherited, and
//! would take its parent's ports out of their services by that.
//!
//! So the child has copies of its own in the same places, from before its fork returns: it does
//! what it likes there, and its parent goes on. Where the segment is no file of this kernel, there
//! are no copies: the child is to leave its parent's objects alone.

use crate::joined::Inner;
use ginnel_region::{Extent, sys};
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, Once};

type Body = (&'static Inner, Extent);

/// How often a fork asks for the list, which is held for moments.
const TRIES: u32 = 10_000;

/// The bodies of all objects in use, one for each handle.
static BODIES: Mutex<Vec<Body>> = Mutex::new(Vec::new());

thread_local! {
    /// Between the handlers of a fork nobody else makes or drops an object.
    static HELD: RefCell<Option<MutexGuard<'static, Vec<Body>>>> = const { RefCell::new(None) };
}

fn bodies() -> MutexGuard<'static, Vec<Body>> {
    BODIES.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// A body that this process uses.
pub(super) struct Used(Body);

impl Used {
    pub fn new(inner: &'static Inner, extent: Extent) -> Self {
        static HANDLERS: Once = Once::new();
        HANDLERS.call_once(|| crate::raw::at_fork(prepare, parent, child));
        bodies().push((inner, extent));
        Self((inner, extent))
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let (inner, extent) = self.0;
        let mut bodies = bodies();
        let is_it = |&(of, body): &Body| std::ptr::eq(of, inner) && body == extent;
        if let Some(at) = bodies.iter().rposition(is_it) {
            bodies.swap_remove(at);
        }
    }
}

/// A handler of a signal that came while its thread had the lock does without.
extern "C" fn prepare() {
    let taken = (0..TRIES).find_map(|_| {
        let taken = BODIES.try_lock().ok();
        if taken.is_none() {
            sys::yield_now();
        }
        taken
    });
    let _ = HELD.try_with(|held| *held.borrow_mut() = taken);
}

extern "C" fn parent() {
    let _ = HELD.try_with(RefCell::take);
}

extern "C" fn child() {
    let held = HELD.try_with(RefCell::take).ok().flatten();
    let mut rest: &[Body] = held.as_deref().map_or(&[], Vec::as_slice);
    while let Some(&(inner, _)) = rest.first() {
        let same = rest.iter().take_while(|(of, _)| std::ptr::eq(*of, inner)).count();
        let (these, others) = rest.split_at(same);
        let _ = inner.presence.segment().keep_to_oneself(these.iter().map(|&(_, body)| body));
        rest = others;
    }
}
