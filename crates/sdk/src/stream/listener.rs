//! Who listens: takes the other ends of those that call.

use super::{Stream, calls, check_name, names};
use crate::queue::{Receiver, Sender};
use crate::{Error, Keep, Result, Segment};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// So many calls that lead nowhere a call that is not to wait looks at. Then it is the program's
/// turn: who floods the listener with them holds up nobody.
const MOST_VAIN: u32 = 64;

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

shown! {
    Listener as "Listener": |own| { name: own.name };
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
    /// [`Error::TooManyObjects`], [`Error::SegmentFull`], [`Error::NoMemory`], [`Error::System`]
    /// where somebody has called and there is no room for its stream, or no descriptor: it goes on
    /// waiting, and is the next whose stream is taken. [`Error::Forked`], [`Error::Lost`],
    /// [`Error::Gone`].
    pub fn accept(&mut self) -> Result<Stream> {
        self.accept_until(None)
    }

    /// As [`Self::accept`], waiting for `time` at most.
    ///
    /// # Errors
    /// As [`Self::accept`], and [`Error::TimedOut`].
    pub fn accept_timeout(&mut self, time: Duration) -> Result<Stream> {
        self.accept_until(Instant::now().checked_add(time))
    }

    fn accept_until(&mut self, end: Option<Instant>) -> Result<Stream> {
        let recv = |calls: &Receiver| {
            let call = match end {
                None => calls.recv(),
                Some(end) => calls.recv_timeout(end.saturating_duration_since(Instant::now())),
            };
            call.map(|call| call_of(&call.to_vec()))
        };
        loop {
            if let Some(stream) = self.next(recv)? {
                return Ok(stream);
            }
            // While more calls come that lead nowhere, no call waits, and none ends for its time.
            if end.is_some_and(|end| Instant::now() >= end) {
                return Err(Error::TimedOut);
            }
        }
    }

    /// Takes the next stream, if somebody has called.
    ///
    /// # Errors
    /// As [`Self::accept`]; [`Error::WouldBlock`]: the descriptor then tells when somebody has.
    pub fn try_accept(&mut self) -> Result<Stream> {
        for _ in 0..MOST_VAIN {
            let recv = |calls: &Receiver| calls.try_recv().map(|call| call_of(&call.to_vec()));
            if let Some(stream) = self.next(recv)? {
                return Ok(stream);
            }
        }
        // There may be more, of which nobody tells any more.
        self.calls.look_again();
        Err(Error::WouldBlock)
    }

    /// Takes the next call, and answers it. `None` where it led nowhere.
    fn next(
        &mut self,
        recv: impl Fn(&Receiver) -> Result<Option<String>>,
    ) -> Result<Option<Stream>> {
        let pending = match self.pending.take() {
            Some(pending) => pending,
            None => match recv(&self.calls) {
                Ok(Some(call)) => Pending::Called(call),
                // Those that called have left by now, or wrote nonsense: others may come.
                Ok(None) | Err(Error::Ended { .. } | Error::Corrupt { .. }) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        match self.answer(pending) {
            Answered::Heard(stream) => Ok(Some(*stream)),
            Answered::Gone => Ok(None),
            Answered::Not(pending, error) => {
                self.pending = Some(pending);
                Err(error)
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
