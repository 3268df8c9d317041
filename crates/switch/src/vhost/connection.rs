//! A connection to a front end: whole messages in, answers out, and never a wait. A front end that
//! sends half a message, or does not read what it is answered, holds up nobody.

use super::message::{HEADER, Head, Malformed};
use crate::closer::{Closer, Received};
use crate::poller::is_over;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown};
use rustix::net::{recvmsg, send, shutdown};
use std::fmt;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Descriptors beside one message: as many as a table has regions, and some to spare.
const MAX_DESCRIPTORS: usize = 16;

/// A message.
#[derive(Debug)]
pub struct Incoming {
    /// Its header.
    pub head: Head,
    /// Its payload.
    pub payload: Vec<u8>,
    /// What came beside it.
    pub descriptors: Vec<Received>,
}

/// Why a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The front end has closed it.
    Closed,
    /// It sent what is no message.
    Malformed(Malformed),
    /// It does not read what it is answered.
    Deaf,
    /// The kernel's word.
    Kernel(Errno),
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the front end has closed the connection"),
            Self::Malformed(what) => what.fmt(f),
            Self::Deaf => f.write_str("the front end does not read its answers"),
            Self::Kernel(errno) => errno.fmt(f),
        }
    }
}

/// The connection.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    /// What has come of the next message.
    bytes: Vec<u8>,
    descriptors: Vec<Received>,
    closer: Arc<Closer>,
}

impl Connection {
    /// Over a connected stream socket. What comes beside messages is closed by `closer`, which is
    /// also who should close the connection: descriptors that nobody read go with it.
    #[must_use]
    pub fn new(socket: OwnedFd, closer: &Arc<Closer>) -> Self {
        let closer = Arc::clone(closer);
        Self { socket, bytes: Vec::new(), descriptors: Vec::new(), closer }
    }

    /// The next message, if it is there.
    ///
    /// # Errors
    /// [`Over`].
    pub fn receive(&mut self) -> Result<Option<Incoming>, Over> {
        loop {
            let head = match self.bytes.first_chunk::<HEADER>() {
                Some(bytes) => Some(Head::parse(*bytes).map_err(Over::Malformed)?),
                None => None,
            };
            let whole = HEADER + head.map_or(0, |head| head.size);
            if let Some(head) = head.filter(|_| self.bytes.len() == whole) {
                let payload = self.bytes.split_off(HEADER);
                self.bytes.clear();
                let descriptors = std::mem::take(&mut self.descriptors);
                return Ok(Some(Incoming { head, payload, descriptors }));
            }
            if !self.read(whole - self.bytes.len())? {
                return Ok(None);
            }
        }
    }

    /// Reads at most so many bytes: false if there are none.
    fn read(&mut self, most: usize) -> Result<bool, Over> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let start = self.bytes.len();
        self.bytes.resize(start + most, 0);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut parts = [IoSliceMut::new(&mut self.bytes[start..])];
        let result = loop {
            match recvmsg(&self.socket, &mut parts, &mut beside, flags) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        let got = result.as_ref().map_or(0, |message| message.bytes);
        self.bytes.truncate(start + got);
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                self.descriptors.extend(received.map(|one| Received::new(one, &self.closer)));
            }
        }
        if self.descriptors.len() > MAX_DESCRIPTORS {
            return Err(Over::Malformed(Malformed::Descriptors(self.descriptors.len())));
        }
        match result {
            Ok(_) if got == 0 => Err(Over::Closed),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::CONNRESET) => Err(Over::Closed),
            Err(errno) => Err(Over::Kernel(errno)),
        }
    }

    /// Sends an answer. They are short, and a front end waits for each before it sends more: one
    /// that lets them pile up until the socket is full is not served.
    ///
    /// # Errors
    /// [`Over`].
    pub fn send(&self, bytes: &[u8]) -> Result<(), Over> {
        loop {
            match send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) if sent == bytes.len() => return Ok(()),
                Ok(_) | Err(Errno::AGAIN) => return Err(Over::Deaf),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Over::Closed),
                Err(errno) => return Err(Over::Kernel(errno)),
            }
        }
    }
}

impl Connection {
    /// Has the front end closed it? What it said before may still be there.
    #[must_use]
    pub fn is_over(&self) -> bool {
        is_over(&self.socket)
    }

    /// Tells the front end that it is over, before the socket is closed, which may be later.
    pub fn end(&self) {
        // It may have gone already.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
