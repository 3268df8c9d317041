//! The reader's side of a direction: what is done here is done under the receive lock, where it
//! does not say otherwise.

mod end;
mod freeze;
mod lock;
mod peek;
mod ready;
mod ring;
mod sink;
mod switch;
mod tcp;
mod tokens;
mod watch;

pub use sink::Sink;
pub use watch::Watch;

use crate::endpoint::Endpoint;
use crate::ledger::{DRY_AT, Reason, Stage, flag};
use ginnel_region::{Corrupt, sys};
use ginnel_ring::park;
use libc::{c_int, iovec};
use std::sync::atomic::Ordering::Relaxed;
use tokens::Sweeper;

/// How often a receive turns from one phase or ring to the next without finding a byte. An honest
/// writer needs a few turns; one that goes on for ever would keep the reader in its call.
const TURNS: u32 = 1000;

/// How a non-blocking receive ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// So many bytes were received.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The receive ends here with what it has: urgent data comes next.
    Mark,
    /// End of the stream.
    End,
    /// The connection's error.
    Error(c_int),
    /// Nothing: the caller is a signal handler, and the thread that it interrupted was in the
    /// middle of a receive here.
    Interrupted,
}

impl<'a> Endpoint<'a> {
    /// Is the ring the carrier, as far as this reader has come?
    #[inline]
    pub fn rx_in_ring(self) -> bool {
        self.slot().rx.phase.load(Relaxed) & 1 == 1
    }

    /// Do its bytes come by a ring?
    #[inline]
    #[must_use]
    pub fn receives_by_ring(self) -> bool {
        self.slot().stage() == Stage::Active && self.rx_in_ring()
    }

    /// May the writer switch: has this side agreed, or will it under a lock that the caller holds?
    #[inline]
    pub(crate) fn live(self) -> bool {
        match self.slot().stage() {
            Stage::Active => true,
            Stage::Settling => self.slot().has(flag::COUNTED),
            _ => false,
        }
    }

    /// Receives without blocking. Only in [`Stage::Settling`] and later. `peek`: leaves the bytes
    /// where they are.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    pub unsafe fn take(self, sink: &mut Sink<'_>, peek: bool) -> Take {
        let (take, after) = {
            let Ok(_held) = self.receive_lock_unless_interrupted() else {
                return Take::Interrupted;
            };
            // SAFETY: the caller's promise.
            unsafe { self.take_held(sink, peek) }
        };
        self.after_take(after);
        take
    }

    /// Receives without blocking what `put` takes of it: that is given bytes, as many as there are
    /// and `buffer` has room for, and says how many it has taken, without waiting. Nobody else
    /// receives meanwhile. Only in [`Stage::Settling`] and later.
    ///
    /// [`Take::Mark`]: an urgent byte is next, and stays, as splice(2) leaves it.
    ///
    /// # Errors
    /// What `put` says.
    pub fn take_by(
        self,
        buffer: &mut [u8],
        put: impl FnOnce(&[u8]) -> sys::Result<usize>,
    ) -> sys::Result<Take> {
        let Ok(held) = self.receive_lock_unless_interrupted() else {
            return Ok(Take::Interrupted);
        };
        if self.may_be_urgent() {
            // What is left in the ring comes before it.
            // SAFETY: nothing is stored.
            let (settled, _) = unsafe { self.take_held(&mut Sink::new(&[], false), true) };
            if matches!(settled, Take::Error(_)) {
                return Ok(settled);
            }
            if !self.rx_in_ring() && self.is_at_mark() {
                return Ok(Take::Mark);
            }
        }
        let pieces = [iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }];
        let mut sink = Sink::new(&pieces, false);
        // SAFETY: the buffer is writable.
        let (take, mut after) = unsafe { self.take_held(&mut sink, true) };
        let mut answer = Ok(take);
        if let Some(seen) = buffer.get(..sink.filled()).filter(|seen| !seen.is_empty()) {
            let put = put(seen);
            answer = put.map(Take::Bytes);
            let mut left = put.unwrap_or(0);
            while left > 0 {
                let pieces = [iovec { iov_base: core::ptr::null_mut(), iov_len: left }];
                // SAFETY: what is thrown away is stored nowhere.
                let (taken, more) = unsafe { self.take_held(&mut Sink::new(&pieces, true), false) };
                (after.wake, after.asked) = (after.wake | more.wake, after.asked | more.asked);
                let Take::Bytes(n) = taken else { break };
                left = left.saturating_sub(n);
            }
        }
        drop(held);
        self.after_take(after);
        answer
    }

    /// [`Self::take`] under the lock, and what is to be done once that is given up.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    #[inline]
    unsafe fn take_held(self, sink: &mut Sink<'_>, peek: bool) -> (Take, After) {
        let slot = self.slot();
        if slot.stage() == Stage::Broken {
            return (Take::Error(libc::ECONNRESET), After::default());
        }
        let before = sink.filled();
        let head = slot.rx.head.load(Relaxed);
        // SAFETY: the caller's promise.
        let result = unsafe { if peek { self.peek(sink) } else { self.receive(sink) } };
        let moved = slot.rx.head.load(Relaxed) != head;
        let after = After {
            wake: moved && self.publish_head(),
            asked: moved && self.asked_to_freeze() && self.freeze(),
        };
        if !peek && sink.room() > 0 && !self.rx_in_ring() {
            let count = slot.dry.load(Relaxed) & !DRY_AT;
            slot.dry.store(
                count.wrapping_add(DRY_AT + 1) | slot.rx.received.load(Relaxed) & DRY_AT,
                Relaxed,
            );
        }
        let take = match result {
            Ok(Take::Mark) => Take::Mark,
            Ok(take) if sink.filled() > before => {
                if let Take::Error(errno) = take {
                    self.keep_error(errno);
                }
                Take::Bytes(sink.filled() - before)
            }
            Ok(take) => take,
            Err(Corrupt) => {
                self.break_off(Reason::Corrupt);
                Take::Error(libc::ECONNRESET)
            }
        };
        (take, after)
    }

    #[inline]
    fn after_take(self, after: After) {
        if after.asked {
            self.poke_service();
        } else if after.wake {
            self.grant_space();
        }
    }

    #[inline]
    fn publish_head(self) -> bool {
        let direction = self.incoming();
        park::publish_and_look(
            direction.head(),
            self.slot().rx.head.load(Relaxed),
            direction.want_space(),
        )
    }

    /// Receives until the sink is full or nothing more is there. The answer counts only where
    /// nothing was received.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    #[inline]
    unsafe fn receive(self, sink: &mut Sink<'_>) -> Result<Take, Corrupt> {
        let mut turns = 0;
        loop {
            let filled = sink.filled();
            // SAFETY: the caller's promise.
            let step = unsafe { self.step(sink, Sweeper::ArmsNext)? };
            match step {
                Step::Again if sink.room() > 0 => {}
                Step::Again => return Ok(Take::Nothing),
                Step::Done(take) => return Ok(take),
            }
            turns = if sink.filled() == filled { turns + 1 } else { 0 };
            if turns > TURNS {
                return Err(Corrupt);
            }
        }
    }

    /// One step of a receive, by the carrier that this reader has come to.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    #[inline]
    unsafe fn step(self, sink: &mut Sink<'_>, sweeper: Sweeper) -> Result<Step, Corrupt> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.rx_in_ring() {
                self.step_in_ring(sink, sweeper)
            } else {
                self.step_in_kernel(sink)
            }
        }
    }
}

/// What a receive leaves to be done once its lock is given up.
#[derive(Default)]
struct After {
    /// The writer waits for room.
    wake: bool,
    /// The writer is to go back to TCP.
    asked: bool,
}

/// What one step of a receive came to.
enum Step {
    /// Something changed: look again.
    Again,
    /// No more for now.
    Done(Take),
}
