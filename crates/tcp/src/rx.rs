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
use ginnel_region::Corrupt;
use ginnel_ring::park;
use libc::c_int;
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
        let slot = self.slot();
        let (wake, asked);
        let take = {
            let Ok(_held) = self.receive_lock_unless_interrupted() else {
                return Take::Interrupted;
            };
            if slot.stage() == Stage::Broken {
                return Take::Error(libc::ECONNRESET);
            }
            let before = sink.filled();
            let head = slot.rx.head.load(Relaxed);
            // SAFETY: the caller's promise.
            let result = unsafe { if peek { self.peek(sink) } else { self.receive(sink) } };
            let moved = slot.rx.head.load(Relaxed) != head;
            wake = moved && self.publish_head();
            asked = moved && self.asked_to_freeze() && self.freeze();
            if !peek && sink.room() > 0 && !self.rx_in_ring() {
                let count = slot.dry.load(Relaxed) & !DRY_AT;
                slot.dry.store(
                    count.wrapping_add(DRY_AT + 1) | slot.rx.received.load(Relaxed) & DRY_AT,
                    Relaxed,
                );
            }
            match result {
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
            }
        };
        if asked {
            self.poke_service();
        } else if wake {
            self.grant_space();
        }
        take
    }

    #[inline]
    fn publish_head(self) -> bool {
        let direction = self.incoming();
        park::publish_only(
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

/// What one step of a receive came to.
enum Step {
    /// Something changed: look again.
    Again,
    /// No more for now.
    Done(Take),
}
