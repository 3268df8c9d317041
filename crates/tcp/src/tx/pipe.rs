//! Out of a pipe (`splice(2)`), without a copy on the way.

use super::Put;
use crate::endpoint::Endpoint;
use crate::growth;
use crate::kernel::{self, pipe};
use crate::ledger::{Reason, Slot};
use ginnel_region::{Corrupt, sys};
use libc::{c_int, iovec};
use std::sync::atomic::Ordering::Relaxed;

/// So much is moved at once at most: the lock is held meanwhile, bytes.
const MOST: usize = 64 << 10;

impl Endpoint<'_> {
    /// Sends up to `n` bytes that lie in `pipe`, as [`Endpoint::put`] does. `Bytes(0)`: nothing
    /// lies there. EOPNOTSUPP: it cannot be taken into a ring. Only where the socket does not block,
    /// in [`crate::ledger::Stage::Settling`] and later.
    #[must_use]
    pub fn put_pipe(self, pipe: c_int, n: usize) -> Put {
        let n = n.min(MOST);
        let Ok(_held) = self.send_lock_unless_interrupted() else { return Put::Interrupted };
        if let Err(put) = self.prepare(0) {
            return put;
        }
        if self.tx_in_ring() {
            self.pipe_into_ring(pipe, n).unwrap_or_else(|Corrupt| self.broken(Reason::Corrupt))
        } else {
            self.pipe_into_kernel(pipe, n)
        }
    }

    fn pipe_into_ring(self, pipe: c_int, n: usize) -> Result<Put, Corrupt> {
        let slot = self.slot();
        let tx = &slot.tx;
        let direction = self.outgoing();
        let wanted = n as u64;
        let mut room = self.room(direction, wanted)?;
        if room < wanted && self.grow_as_full(direction)
            || growth::is_busy(tx, wanted) && self.grow_as_busy(direction)
        {
            room = self.room(direction, wanted)?;
        }
        if room == 0 {
            return Ok(Put::RingFull);
        }
        let span = self.ring(
            tx.ring_start.load(Relaxed),
            tx.ring_offset.load(Relaxed),
            tx.ring_size.load(Relaxed),
        )?;
        let (tail, n) = (tx.tail.load(Relaxed), room.min(wanted));
        let (at, first) = span.piece(tail, n);
        let (again, rest) = span.piece(tail.wrapping_add(first as u64), n - first as u64);
        let pieces = [
            iovec { iov_base: at.cast(), iov_len: first },
            iovec { iov_base: again.cast(), iov_len: rest },
        ];
        // SAFETY: so many bytes are free here, under the send lock.
        let taken = unsafe { pipe::take(pipe, &pieces) };
        match taken {
            Ok(0) | Err(libc::EAGAIN) => Ok(Put::Bytes(0)),
            Ok(got) => {
                let got = (got as u64).min(n);
                self.publish_tail(tx, direction, tail.wrapping_add(got));
                Slot::count(&slot.out_ring, got);
                Ok(Put::Bytes(got as usize))
            }
            Err(errno) => Ok(Put::Error(errno)),
        }
    }

    fn pipe_into_kernel(self, pipe: c_int, n: usize) -> Put {
        // The kernel's answer does not say whether it is about the pipe or the socket.
        let there = kernel::readable(pipe);
        let n = match there {
            0 if sys::poll(pipe, libc::POLLIN, 0) & libc::POLLIN == 0 => return Put::Bytes(0),
            // A buffer without a byte, as of a write that faulted: the kernel throws it away.
            0 => n,
            there => (n as u64).min(there) as usize,
        };
        let mut told = false;
        let put = self.by_kernel(n, || {
            let moved = pipe::splice(pipe, self.fd(), n);
            told = moved == Err(libc::EPIPE);
            moved
        });
        if there == 0 && put == Put::KernelFull && kernel::readable(pipe) == 0 {
            return Put::Bytes(0);
        }
        // The signal has come with it.
        if told && put == Put::Kernel { Put::Error(libc::EPIPE) } else { put }
    }
}
