//! The sleeps that a thread is in the midst of.
//!
//! A signal's handler runs while its thread sleeps in the queue of a set. For the kernel the call
//! is over by then: nobody does it for the sleeper any more, and it gives EINTR. Here a call is
//! over when the handler makes one itself, or jumps out of it (siglongjmp(3)): the library that is
//! preloaded calls [`interrupted`] before both. A thread that ends leaves its sleeps, too.
//!
//! So a frame that sleeps owns nothing: what it needs stands in the thread's list, and is gone from
//! there when the handler has come back and the call was over before.

use super::set::Set;
use super::sleepers::Sleeper;
use super::{Answer, No, Waiting, no};
use crate::sleeper::{self, SLICE, put_wish, take_wish_back};
use crate::wait::{self, Deadline};
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

struct Asleep {
    id: u64,
    set: Arc<Set>,
    of: Sleeper,
    waiter: Option<sleeper::Sleeper>,
}

struct List(RefCell<Vec<Asleep>>);

thread_local! {
    /// How many there are: asked for in handlers, where the list must not be made.
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static LIST: List = const { List(RefCell::new(Vec::new())) };
    /// The number of the next one.
    static NEXT: Cell<u64> = const { Cell::new(1) };
    /// What became of those that were over before their frames looked: results, where they had one.
    static OVER: Cell<[(u64, Option<i32>); 8]> = const { Cell::new([(0, None); 8]) };
}

/// The calls in which this thread sleeps are over: it runs a handler, or has left them.
pub fn interrupted() {
    while COUNT.get() > 0 {
        let last = LIST.with(|list| list.0.borrow_mut().pop());
        let Some(asleep) = last else { return COUNT.set(0) };
        COUNT.set(COUNT.get() - 1);
        let id = asleep.id;
        let mut over = OVER.get();
        over.rotate_right(1);
        over[0] = (id, asleep.leave());
        OVER.set(over);
    }
}

/// Does this thread sleep in a call, below whatever it does now?
#[must_use]
pub fn is_asleep() -> bool {
    COUNT.get() > 0
}

/// Does something with one of this thread's; `None` where it is over. Signals wait meanwhile.
fn with<R>(id: u64, of: impl FnOnce(&mut Asleep) -> R) -> Option<R> {
    LIST.with(|list| list.0.borrow_mut().iter_mut().rev().find(|asleep| asleep.id == id).map(of))
}

/// Takes one off the list.
fn take(id: u64) -> Option<Asleep> {
    LIST.with(|list| {
        let mut list = list.0.borrow_mut();
        let at = list.iter().rposition(|asleep| asleep.id == id)?;
        COUNT.set(COUNT.get() - 1);
        Some(list.remove(at))
    })
}

fn answer_of(result: Option<i32>, why: Answer<()>) -> Answer<()> {
    match (result, why) {
        (Some(0), _) => Ok(()),
        (Some(errno), _) => no(errno),
        (None, Err(no)) => Err(no),
        // It cannot be: it was done.
        (None, Ok(())) => no(libc::EIDRM),
    }
}

/// What became of one that was over before.
fn over(id: u64) -> Answer<()> {
    let result = OVER.get().iter().find(|(of, _)| *of == id).and_then(|&(_, result)| result);
    answer_of(result, no(libc::EINTR))
}

/// Sleeps until somebody has done what a sleeper waits to do.
pub(super) fn sleep(
    set: Arc<Set>,
    of: Sleeper,
    deadline: Deadline,
    waiting: &Waiting<'_>,
) -> Answer<()> {
    let inner = set.object.inner;
    let id = NEXT.replace(NEXT.get() + 1);
    LIST.with(|list| list.0.borrow_mut().push(Asleep { id, set, of, waiter: None }));
    COUNT.set(COUNT.get() + 1);
    let why = until_done(id, inner, deadline, waiting);
    // Where a handler comes in while the set is waited for, and jumps away, this count of it stays.
    let Some(set) = with(id, |asleep| asleep.set.clone()) else { return over(id) };
    let locked = set.lock(waiting.pause);
    let Some(mut asleep) = take(id) else { return over(id) };
    asleep.awake();
    // What was done is done, also where the set was removed since.
    let result = locked?.leave(&asleep.of);
    answer_of(result, why)
}

fn until_done(
    id: u64,
    inner: &'static crate::joined::Inner,
    deadline: Deadline,
    waiting: &Waiting<'_>,
) -> Answer<()> {
    let presence = &inner.presence;
    let done = || with(id, |asleep| asleep.is_done()).unwrap_or(true);
    if wait::spin(presence, || Ok(done().then_some(())))?.is_some() {
        return Ok(());
    }
    let waiter = inner.sleepers.take(presence)?;
    let fd = waiter.as_fd().as_raw_fd();
    with(id, |asleep| asleep.waiter = Some(waiter));
    loop {
        let left = match with(id, |asleep| asleep.before_sleep(deadline)).transpose()?.flatten() {
            Some(left) => left,
            None => return Ok(()),
        };
        let fd = crate::raw::borrow(fd);
        let interrupted = crate::raw::sleep_among_signals(fd, left.min(SLICE), waiting.mask);
        if with(id, |asleep| asleep.has_slept()).unwrap_or(true) {
            return Ok(());
        }
        if interrupted {
            return no(libc::EINTR);
        }
    }
}

impl Asleep {
    fn is_done(&self) -> bool {
        self.set.is_done(&self.of)
    }

    /// Asks to be woken, and looks once more: for how long to sleep, or `None` where it is done.
    fn before_sleep(&mut self, deadline: Deadline) -> Answer<Option<Duration>> {
        let presence = self.set.object.presence();
        if let Some(waiter) = &self.waiter {
            put_wish(self.set.wish_of(&self.of), waiter.wish());
            waiter.sleeping(presence);
        }
        if self.is_done() {
            return Ok(None);
        }
        presence.check_all()?;
        if !self.set.is_there() {
            return no(libc::EIDRM);
        }
        // What the dead had to undo is undone by this, and what one that died has made possible is
        // done. Whoever has the set now does so itself.
        if let Some(mut locked) = self.set.try_lock()? {
            locked.look_at(&self.of);
        }
        if self.is_done() {
            return Ok(None);
        }
        deadline.left().map(Some).map_err(|_| No::Errno(libc::EAGAIN))
    }

    /// True where it is done.
    fn has_slept(&self) -> bool {
        if let Some(waiter) = &self.waiter {
            waiter.awake(self.set.object.presence());
        }
        self.is_done()
    }

    /// Asks no more to be woken.
    fn awake(&mut self) {
        let presence = self.set.object.presence();
        if let Some(waiter) = self.waiter.take() {
            take_wish_back(self.set.wish_of(&self.of), waiter.wish());
            waiter.awake(presence);
            self.set.object.inner.sleepers.give_back(waiter, presence);
        }
    }

    /// Out of the queue: its result, where it has one. Signals wait.
    fn leave(mut self) -> Option<i32> {
        self.awake();
        let locked = self.set.lock(&|| ()).ok()?;
        locked.leave(&self.of)
    }
}

impl Drop for List {
    fn drop(&mut self) {
        for asleep in self.0.get_mut().drain(..) {
            let _ = asleep.leave();
        }
    }
}
