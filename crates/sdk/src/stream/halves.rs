//! Each way of a stream by itself.

use super::PIECE;
use crate::queue::{MessageParts, Receiver, Sender};
use crate::{Error, Result};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The way in of a stream.
pub struct ReadHalf {
    queue: Receiver,
    /// A piece that was read in part.
    rest: Option<Rest>,
    end: Option<Error>,
    nonblocking: bool,
}

/// What is left of a piece.
struct Rest {
    piece: MessageParts,
    at: usize,
}

/// The way out of a stream. Dropping it tells the other end that nothing more comes.
pub struct WriteHalf {
    queue: Sender,
    nonblocking: bool,
}

shown! {
    ReadHalf as "ReadHalf": |own| { queue: own.queue };
    WriteHalf as "WriteHalf": |own| { queue: own.queue };
}

impl ReadHalf {
    pub(super) fn new(queue: Receiver) -> Self {
        Self { queue, rest: None, end: None, nonblocking: false }
    }

    /// Reads what there is, at most as much as there is room for; waits for at least a byte, for
    /// `time` at most where that is given. 0: nothing more comes.
    ///
    /// # Errors
    /// [`Error::Ended`] where the other end died, [`Error::TimedOut`], [`Error::WouldBlock`] where
    /// it is not to wait, [`Error::Corrupt`], [`Error::Forked`], [`Error::Lost`], [`Error::Gone`].
    pub fn read_some(&mut self, bytes: &mut [u8], time: Option<Duration>) -> Result<usize> {
        loop {
            if bytes.is_empty() {
                return Ok(0);
            }
            if let Some(n) = self.read_rest(bytes) {
                return Ok(n);
            }
            match &self.end {
                Some(Error::Ended { died: false }) => return Ok(0),
                Some(error) => return Err(error.clone()),
                None => {}
            }
            let queue = &self.queue;
            let next = match time {
                _ if self.nonblocking => queue.try_recv(),
                Some(Duration::ZERO) => queue.try_recv(),
                Some(time) => queue.recv_timeout(time),
                None => queue.recv(),
            };
            match next {
                // Nobody writes one: a peer that sent them without end would outlast any time
                // limit.
                Ok(piece) if piece.len() == 0 => self.end = Some(queue.corrupt()),
                Ok(piece) => self.rest = Some(Rest { at: 0, piece: piece.into_whole() }),
                Err(error @ (Error::Ended { .. } | Error::Corrupt { .. })) => {
                    self.end = Some(error)
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads of the piece that was begun. `None` where there is none, or nothing left of it.
    fn read_rest(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let rest = self.rest.take()?;
        let piece = self.queue.whole(rest.piece)?;
        let n = piece.read(rest.at, bytes);
        let at = rest.at + n;
        if at < piece.len() {
            self.rest = Some(Rest { at, piece: piece.into_whole() });
        }
        // Where nothing is left, the piece is given back here.
        Some(n).filter(|&n| n > 0)
    }

    /// The descriptor of [`AsFd`], or why there is none.
    #[doc(hidden)]
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.queue.descriptor()
    }

    /// As [`Stream::set_nonblocking`](super::Stream::set_nonblocking).
    pub fn set_nonblocking(&mut self, on: bool) {
        self.nonblocking = on;
    }
}

impl Drop for ReadHalf {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            drop(self.queue.whole(rest.piece));
        }
    }
}

impl WriteHalf {
    pub(super) fn new(queue: Sender) -> Self {
        Self { queue, nonblocking: false }
    }

    /// Writes as much as fits into a piece; waits for room, for `time` at most where that is given.
    /// Returns how much.
    ///
    /// # Errors
    /// [`Error::Ended`] where nobody reads any more, [`Error::TimedOut`], [`Error::WouldBlock`]
    /// where it is not to wait, [`Error::Corrupt`], [`Error::Forked`], [`Error::Lost`],
    /// [`Error::Gone`].
    pub fn write_some(&mut self, bytes: &[u8], time: Option<Duration>) -> Result<usize> {
        let bytes = &bytes[..bytes.len().min(PIECE)];
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.queue.receiver_has_left() {
            return Err(Error::Ended { died: false });
        }
        let mut loan = match time {
            _ if self.nonblocking => self.queue.try_loan(bytes.len())?,
            Some(Duration::ZERO) => self.queue.try_loan(bytes.len())?,
            Some(time) => self.queue.loan_timeout(bytes.len(), time)?,
            None => self.queue.loan(bytes.len())?,
        };
        loan.write(0, bytes);
        loan.send()?;
        Ok(bytes.len())
    }

    /// The descriptor of [`AsFd`], or why there is none.
    #[doc(hidden)]
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.queue.descriptor()
    }

    /// As [`Stream::set_nonblocking`](super::Stream::set_nonblocking).
    pub fn set_nonblocking(&mut self, on: bool) {
        self.nonblocking = on;
    }
}

pub(super) fn of_writer(error: Error) -> io::Error {
    match error {
        Error::Ended { .. } => io::Error::new(io::ErrorKind::BrokenPipe, error),
        error => error.into(),
    }
}

impl Read for ReadHalf {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(self.read_some(bytes, None)?)
    }
}

impl Write for WriteHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_some(bytes, None).map_err(of_writer)
    }

    /// What was written is there: nothing is kept back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As that of [`Stream`](super::Stream).
impl AsFd for ReadHalf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// Becomes *readable* when writing that said [`io::ErrorKind::WouldBlock`] is worth another try,
/// and now and then without. Not to be read or closed.
impl AsFd for WriteHalf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
