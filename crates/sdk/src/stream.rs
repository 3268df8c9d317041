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

use crate::queue::{Message, MessageParts, Queue, Receiver, Sender, WhenFull};
use crate::sleeper::SLICE;
use crate::{Error, Keep, Result, Segment};
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

/// Where streams of a name come in.
///
/// ```
/// # let directory = ginnel::testing::directory();
/// use ginnel::{Listener, Segment, Stream};
/// use std::io::{Read, Write};
/// let segment = Segment::open("example")?;
/// let mut listener = Listener::bind(&segment, "echo")?;
///
/// // In another process, container or machine:
/// let there = segment.clone();
/// let client = std::thread::spawn(move || -> std::io::Result<String> {
///     let mut stream = Stream::connect(&there, "echo")?;
///     stream.write_all(b"hello")?;
///     stream.shutdown_write();
///     let mut answer = String::new();
///     stream.read_to_string(&mut answer)?;
///     Ok(answer)
/// });
///
/// let mut stream = listener.accept()?;
/// let mut bytes = Vec::new();
/// stream.read_to_end(&mut bytes)?;
/// stream.write_all(&bytes)?;
/// drop(stream);
/// assert_eq!(client.join().expect("whole")?, "hello");
/// # drop(directory);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Listener {
    segment: Segment,
    name: String,
    calls: Receiver,
    /// One that has called, and for which there was no room: it waits, and is the next.
    pending: Option<Pending>,
}

/// What was done for one that has called.
enum Pending {
    Called(String),
    /// Its other ends are taken; it has not heard.
    Taken(Box<(Receiver, Sender)>),
}

/// What came of an answer.
enum Answered {
    Heard(Box<Stream>),
    /// Who called is gone by now, or never was.
    Gone,
    /// This process's own trouble, and not that of who called, which may be answered yet.
    Not(Pending, Error),
}

/// One end of a stream: bytes both ways. [`Self::split`] gives each way by itself.
///
/// Dropping it ends both ways. Where the other end was dropped, reading gives what it wrote, then 0
/// bytes; where it died, [`io::ErrorKind::ConnectionReset`]. Writing gives
/// [`io::ErrorKind::BrokenPipe`] where nobody reads any more.
pub struct Stream {
    read: ReadHalf,
    write: Option<WriteHalf>,
}

/// The way in of a stream.
pub struct ReadHalf {
    queue: Receiver,
    /// A piece that was read in part.
    rest: Option<Rest>,
    end: Option<Error>,
    nonblocking: bool,
}

struct Rest {
    piece: MessageParts,
    at: usize,
}

/// The way out of a stream. Dropping it tells the other end that nothing more comes.
pub struct WriteHalf {
    queue: Sender,
    nonblocking: bool,
}

fn names(name: &str, call: &str) -> [String; 2] {
    [format!("{name}>{call}"), format!("{name}<{call}")]
}

/// A caller's number, as it came.
fn call_of(call: &[u8]) -> Option<String> {
    let is_of_one = |byte: u8| byte.is_ascii_hexdigit() || byte == b'.';
    let call = std::str::from_utf8(call).ok()?;
    call.bytes().all(is_of_one).then(|| call.to_owned())
}

/// Is it the trouble of the process that meets it?
fn is_own(error: &Error) -> bool {
    matches!(
        error,
        Error::Forked
            | Error::Lost
            | Error::Gone
            | Error::TooManyObjects
            | Error::SegmentFull { .. }
            | Error::NoMemory
            | Error::System { .. }
    )
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

impl Listener {
    /// Listens for streams of this name, which goes with this process, and with this value.
    ///
    /// # Errors
    /// [`Error::Taken`] where the name is taken, and others.
    pub fn bind(segment: &Segment, name: &str) -> Result<Self> {
        check_name(name)?;
        calls().keep(Keep::WithCreator).create(segment, name)?;
        let calls = Receiver::open(segment, name)?;
        Ok(Self { segment: segment.clone(), name: name.to_owned(), calls, pending: None })
    }

    /// Takes the next stream, waiting for it.
    ///
    /// # Errors
    /// [`Error::TooManyObjects`], [`Error::SegmentFull`], [`Error::NoMemory`], [`Error::System`] where
    /// somebody has called and there is no room for its stream, or no descriptor: it goes on
    /// waiting, and is the next whose stream is taken. [`Error::Forked`], [`Error::Lost`],
    /// [`Error::Gone`].
    pub fn accept(&mut self) -> Result<Stream> {
        self.accept_until(None)
    }

    /// The same, waiting for `time` at most.
    ///
    /// # Errors
    /// As [`Self::accept`], and [`Error::TimedOut`].
    pub fn accept_timeout(&mut self, time: Duration) -> Result<Stream> {
        self.accept_until(Instant::now().checked_add(time))
    }

    fn accept_until(&mut self, end: Option<Instant>) -> Result<Stream> {
        self.next(|calls| match end {
            None => calls.recv(),
            Some(end) => calls.recv_timeout(end.saturating_duration_since(Instant::now())),
        })
    }

    /// Takes the next stream, if somebody has called.
    ///
    /// # Errors
    /// As [`Self::accept`]; [`Error::WouldBlock`]: the descriptor then tells when somebody has.
    pub fn try_accept(&mut self) -> Result<Stream> {
        self.next(Receiver::try_recv)
    }

    fn next(&mut self, recv: impl Fn(&Receiver) -> Result<Message<'_>>) -> Result<Stream> {
        loop {
            let pending = match self.pending.take() {
                Some(pending) => pending,
                None => match recv(&self.calls).map(|call| call_of(&call.to_vec())) {
                    Ok(Some(call)) => Pending::Called(call),
                    // Those that called have left by now, or wrote nonsense: others may come.
                    Ok(None) | Err(Error::Ended { .. } | Error::Corrupt { .. }) => continue,
                    Err(error) => return Err(error),
                },
            };
            match self.answer(pending) {
                Answered::Heard(stream) => return Ok(*stream),
                Answered::Gone => {}
                Answered::Not(pending, error) => {
                    self.pending = Some(pending);
                    return Err(error);
                }
            }
        }
    }

    /// Takes the other ends of who called, and tells it.
    fn answer(&self, pending: Pending) -> Answered {
        let (read, write) = match pending {
            Pending::Taken(ends) => *ends,
            Pending::Called(call) => {
                let [up, down] = names(&self.name, &call);
                let ends = Receiver::open(&self.segment, &up)
                    .and_then(|read| Ok((read, Sender::open(&self.segment, &down)?)));
                match ends {
                    Ok(ends) => ends,
                    Err(error) if is_own(&error) => {
                        return Answered::Not(Pending::Called(call), error);
                    }
                    Err(_) => return Answered::Gone,
                }
            }
        };
        match write.try_send(&[]) {
            Ok(()) => Answered::Heard(Box::new(Stream::new(read, write))),
            Err(error) if is_own(&error) => {
                Answered::Not(Pending::Taken(Box::new((read, write))), error)
            }
            Err(_) => Answered::Gone,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The descriptor of [`AsFd`], or why there is none.
    #[doc(hidden)]
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.calls.descriptor()
    }
}

/// Readable when a [`Listener::try_accept`] that said [`Error::WouldBlock`] is worth another try,
/// and now and then without. Not to be read or closed.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.calls.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Where a child of fork drops its copy, the name is its parent's.
        let _ = self.segment.remove_own(&self.name);
    }
}

impl Stream {
    fn new(read: Receiver, write: Sender) -> Self {
        let read = ReadHalf { queue: read, rest: None, end: None, nonblocking: false };
        let write = WriteHalf { queue: write.of_one_receiver(), nonblocking: false };
        Self { read, write: Some(write) }
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

    /// The same, waiting for `time` at most.
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
        self.read.nonblocking = on;
        if let Some(write) = &mut self.write {
            write.nonblocking = on;
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

impl ReadHalf {
    /// Reads what there is, at most as much as there is room for; waits for at least a byte, for
    /// `time` at most where that is given. 0: nothing more comes.
    ///
    /// # Errors
    /// [`Error::Ended`] where the other end died, [`Error::TimedOut`], [`Error::WouldBlock`] where it
    /// is not to wait, [`Error::Corrupt`], [`Error::Forked`], [`Error::Lost`], [`Error::Gone`].
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

    /// As [`Stream::set_nonblocking`].
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
    /// Writes as much as fits into a piece; waits for room, for `time` at most where that is given.
    /// Returns how much.
    ///
    /// # Errors
    /// [`Error::Ended`] where nobody reads any more, [`Error::TimedOut`], [`Error::WouldBlock`] where
    /// it is not to wait, [`Error::Corrupt`], [`Error::Forked`], [`Error::Lost`], [`Error::Gone`].
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

    /// As [`Stream::set_nonblocking`].
    pub fn set_nonblocking(&mut self, on: bool) {
        self.nonblocking = on;
    }
}

fn of_writer(error: Error) -> io::Error {
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

/// As that of [`Stream`].
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
