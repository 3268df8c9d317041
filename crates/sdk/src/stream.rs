//! Streams by name: bytes both ways between two parties, as over a socket.
//!
//! A stream is two [queues](crate::queue) from one to one, and each piece of bytes that is written
//! is a message. So what is safe against a hostile neighbour and against deaths there is so here.
//! Who listens receives from a queue that has the name. Who connects
//!
//! 1. makes the two queues, `NAME>PARTY.N` and `NAME<PARTY.N`, whose names go with it, takes its
//!    end of each, and sends `PARTY.N` to who listens;
//! 2. waits for a message of no bytes: who listens has taken the other ends;
//! 3. takes both names away, so that nobody else comes in. The queues stay for as long as either
//!    has an end.

mod halves;
mod listener;

pub use halves::{ReadHalf, WriteHalf};
pub use listener::Listener;

use crate::queue::{Queue, Receiver, Sender, WhenFull};
use crate::sleeper::SLICE;
use crate::{Error, Keep, Result, Segment};
use halves::of_writer;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a piece, at most, and pieces of a direction that wait.
const PIECE: usize = 8192;
const PIECES: u32 = 32;
/// Bytes of a name, so that there is room for the rest.
const MOST_NAME: usize = 64;
/// What comes to who listens: `PARTY.N`.
const MOST_CALL: usize = 32;
/// Who finds 64 others connecting tries again after so long.
const AGAIN: Duration = Duration::from_millis(2);

/// One end of a stream: bytes both ways. [`Self::split`] gives each way by itself.
///
/// Dropping it ends both ways. Where the other end was dropped, reading gives what it wrote, then 0
/// bytes; where it died, [`io::ErrorKind::ConnectionReset`]. Writing gives
/// [`io::ErrorKind::BrokenPipe`] where nobody reads any more.
pub struct Stream {
    read: ReadHalf,
    write: Option<WriteHalf>,
}

shown! {
    Stream as "Stream": |own| { read: own.read, write: own.write };
}

fn names(name: &str, call: &str) -> [String; 2] {
    [format!("{name}>{call}"), format!("{name}<{call}")]
}

/// The queue of who listens, by whose measures it is told from others.
fn calls() -> Queue {
    Queue::new().capacity(4).message_size(MOST_CALL as u64).senders(64)
}

fn check_name(name: &str) -> Result<()> {
    if name.len() <= MOST_NAME && !name.is_empty() {
        return Ok(());
    }
    let what = format!("a stream's name has 1 to {MOST_NAME} bytes, not {}", name.len());
    Err(Error::Invalid { what })
}

impl Stream {
    fn new(read: Receiver, write: Sender) -> Self {
        Self { read: ReadHalf::new(read), write: Some(WriteHalf::new(write.of_one_receiver())) }
    }

    /// Connects to who listens under this name, waiting until it has accepted.
    ///
    /// # Errors
    /// [`Error::NotFound`] where nobody listens, [`Error::Ended`] where who listened has gone,
    /// [`Error::WrongKind`] and [`Error::Invalid`] where the name is another object's,
    /// [`Error::SegmentFull`] and others.
    pub fn connect(segment: &Segment, name: &str) -> Result<Self> {
        Self::connect_until(segment, name, None)
    }

    /// As [`Self::connect`], waiting for `time` at most.
    ///
    /// # Errors
    /// As [`Self::connect`], and [`Error::TimedOut`].
    pub fn connect_timeout(segment: &Segment, name: &str, time: Duration) -> Result<Self> {
        Self::connect_until(segment, name, Instant::now().checked_add(time))
    }

    fn connect_until(segment: &Segment, name: &str, end: Option<Instant>) -> Result<Self> {
        check_name(name)?;
        let caller = caller(segment, name, end)?;
        let queue = Queue::new().capacity(PIECES).message_size(PIECE as u64).senders(1).loans(1);
        let queue = queue.keep(Keep::WithCreator);
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let party = segment.inner.presence.party().bits();
        let number = format!("{party:x}.{:x}", COUNT.fetch_add(1, Ordering::Relaxed));
        let [up, down] = names(name, &number);
        let open = || -> Result<_> {
            queue.create(segment, &up)?;
            queue.create(segment, &down)?;
            Ok((Receiver::open(segment, &down)?, Sender::open(segment, &up)?))
        };
        let call = |read: &Receiver| {
            let mut loan = match end {
                None => caller.loan(number.len())?,
                Some(end) => {
                    let time = end.saturating_duration_since(Instant::now());
                    caller.loan_timeout(number.len(), time)?
                }
            };
            loan.write(0, number.as_bytes());
            loan.send()?;
            wait_for_answer(read, &caller, end)
        };
        let ends = open();
        let called = ends.as_ref().map_or(Ok(()), |(read, _)| call(read));
        // Before the ends are dropped, where nobody answered: who finds a name finds somebody
        // there.
        for name in [&up, &down] {
            let _ = segment.remove(name);
        }
        let (read, write) = ends?;
        called.map(|()| Self::new(read, write))
    }

    /// Each way by itself, for two threads or two halves of a program.
    ///
    /// # Panics
    /// Where [`Self::shutdown_write`] was called.
    #[must_use]
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write.expect("its way out is not shut"))
    }

    /// Tells the other end that nothing more comes. Reading goes on.
    pub fn shutdown_write(&mut self) {
        self.write = None;
    }

    /// Reading and writing say [`io::ErrorKind::WouldBlock`] rather than wait: the descriptors then
    /// tell when it is worth another try.
    pub fn set_nonblocking(&mut self, on: bool) {
        self.read.set_nonblocking(on);
        if let Some(write) = &mut self.write {
            write.set_nonblocking(on);
        }
    }

    /// The way in.
    pub fn reader(&mut self) -> &mut ReadHalf {
        &mut self.read
    }

    /// The way out; `None` after [`Self::shutdown_write`].
    pub fn writer(&mut self) -> Option<&mut WriteHalf> {
        self.write.as_mut()
    }
}

/// One's place among those that call who listens.
fn caller(segment: &Segment, name: &str, end: Option<Instant>) -> Result<Sender> {
    loop {
        match Sender::open(segment, name) {
            // So many others are connecting: each for a moment.
            Err(Error::InUse { .. }) if end.is_none_or(|end| Instant::now() < end) => {
                std::thread::sleep(AGAIN);
            }
            Err(Error::InUse { .. }) => return Err(Error::TimedOut),
            Ok(caller) if !caller.is_of(&calls()) => {
                let what = format!(
                    "{name:?} is a queue, at which nobody listens for streams; choose another name"
                );
                return Err(Error::Invalid { what });
            }
            Ok(caller) => {
                caller.look_for_receiver()?;
                return Ok(caller.when_full(WhenFull::Wait).of_one_receiver());
            }
            Err(error) => return Err(error),
        }
    }
}

fn wait_for_answer(read: &Receiver, caller: &Sender, end: Option<Instant>) -> Result<()> {
    loop {
        let left = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(Error::TimedOut);
        }
        match read.recv_timeout(left.min(SLICE)) {
            Ok(_) => return Ok(()),
            // Is there still somebody who could answer?
            Err(Error::TimedOut) => caller.look_for_receiver()?,
            Err(error) => return Err(error),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read.read(bytes)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let shut = || of_writer(Error::Ended { died: false });
        self.write.as_mut().ok_or_else(shut)?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Readable when reading that said [`io::ErrorKind::WouldBlock`] is worth another try, and now and
/// then without. Not to be read or closed.
impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}
