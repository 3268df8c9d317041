//! Out of the kernel, where TCP is the carrier, as far as the next switch.

use super::{Sink, Step, Take};
use crate::endpoint::Endpoint;
use crate::kernel;
use crate::ledger::{Slot, Stage, flag};
use ginnel_region::Corrupt;
use libc::{c_int, iovec};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

impl<'a> Endpoint<'a> {
    /// # Safety
    /// The sink's buffers are writable memory.
    pub(super) unsafe fn step_in_kernel(self, sink: &mut Sink<'_>) -> Result<Step, Corrupt> {
        let slot = self.slot();
        let rx = &slot.rx;
        let active = self.live();
        if sink.filled() > 0 && self.is_at_mark() {
            return Ok(Step::Done(Take::Mark));
        }
        // The bytes that are there first (and whether the stream ended), the records after: every
        // upgrade that they could lie behind is then known.
        let (there, looked, at_mark) = self.look_at_kernel();
        fence(SeqCst);
        let mut limit = u64::MAX;
        if active {
            let direction = self.incoming();
            let phase = rx.phase.load(Relaxed);
            if self.epoch(direction)? > phase {
                let record = self.record(direction, phase + 1)?;
                limit = record.tcp - rx.received.load(Relaxed);
                if limit == 0 {
                    self.enter_ring(direction, record)?;
                    return Ok(Step::Again);
                }
            }
        }
        let n = there.min(limit).min(sink.room() as u64) as usize;
        if n == 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.nothing_in_kernel(sink, looked) };
        }
        let got = if sink.discard {
            kernel::discard(self.fd(), n)
        } else {
            let Some((at, len)) = sink.next() else { return Ok(Step::Done(Take::Nothing)) };
            let piece = [iovec { iov_base: at.cast(), iov_len: n.min(len) }];
            // SAFETY: the sink's place is writable for `len` bytes.
            unsafe { kernel::recv(self.fd(), &piece, 0) }
        };
        if at_mark && !kernel::at_mark(self.fd()) {
            // The urgent byte was stepped over.
            Slot::count(&rx.received, 1);
        }
        match got {
            Ok(0) => Ok(Step::Done(self.ended_on_tcp())),
            Ok(got) => {
                sink.moved(got);
                Slot::count(&rx.received, got as u64);
                if active {
                    self.incoming().received().store(rx.received.load(Relaxed), Release);
                }
                Slot::count(&slot.in_tcp, got as u64);
                // Look for more only where a switch is at hand: another round costs three calls.
                let more = limit != u64::MAX
                    || sink.next().is_some_and(|(_, len)| len > 0) && there > got as u64;
                Ok(if more && got > 0 { Step::Again } else { Step::Done(Take::Nothing) })
            }
            Err(libc::EAGAIN) => Ok(Step::Done(Take::Nothing)),
            Err(errno) => Ok(Step::Done(self.failed(errno))),
        }
    }

    /// The bytes that the kernel has to receive, what it says of the next one, and whether urgent
    /// data is next.
    fn look_at_kernel(self) -> (u64, Result<usize, c_int>, bool) {
        let there = kernel::readable(self.fd());
        let looked = if there == 0 { self.look_kept() } else { Ok(1) };
        let at_mark = there == 0
            && match looked {
                Ok(1) => kernel::at_mark(self.fd()),
                // (Also where the stream ends behind it.)
                Ok(0) | Err(libc::EAGAIN) => self.is_at_mark(),
                _ => false,
            };
        // What follows urgent data is not counted, and the kernel steps over the byte itself, in
        // the receive. A writer that sent any never upgrades again: no boundary can come.
        (if at_mark { u64::MAX } else { there }, looked, at_mark)
    }

    /// No byte can be received, or there is no room for any.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    unsafe fn nothing_in_kernel(
        self,
        sink: &mut Sink<'_>,
        looked: Result<usize, c_int>,
    ) -> Result<Step, Corrupt> {
        if !matches!(looked, Ok(1) | Err(libc::EAGAIN))
            && let Some(next) = self.left_at_the_end()?
        {
            // The kernel tells it once, and it comes behind them.
            looked.err().into_iter().for_each(|errno| self.keep_error(errno));
            // SAFETY: the caller's promise.
            let taken = unsafe { self.take_left(sink, next)? };
            // Who only looks, looks there.
            return Ok(if taken { Step::Again } else { Step::Done(Take::Nothing) });
        }
        Ok(match looked {
            Ok(1) => Step::Again,
            Ok(_) => Step::Done(self.ended_on_tcp()),
            Err(libc::EAGAIN) => Step::Done(Take::Nothing),
            Err(errno) => Step::Done(self.failed(errno)),
        })
    }

    /// Is urgent data next on TCP?
    pub(crate) fn is_at_mark(self) -> bool {
        self.may_be_urgent() && kernel::at_mark(self.fd())
    }

    /// May the other end have sent urgent data? It holds the direction then.
    pub(crate) fn may_be_urgent(self) -> bool {
        !self.live() || self.outgoing().held()
    }

    /// Is this reader on TCP, and holds the other end the direction for good? The kernel may then
    /// answer a receive that takes nothing.
    #[must_use]
    pub fn stays_on_tcp(self) -> bool {
        self.slot().stage() == Stage::Active
            && !self.slot().has(flag::LEAVING)
            && !self.rx_in_ring()
            && self.incoming().epoch().load(Acquire) == self.slot().rx.phase.load(Relaxed)
            && self.outgoing().asked_back()
    }
}
