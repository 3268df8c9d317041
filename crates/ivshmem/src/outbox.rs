//! The server's end towards one peer: what it still has to be sent, sent as far as the peer takes
//! it, and never waiting.

use crate::Error;
use crate::burst::{self, Piece};
use crate::wire::{MESSAGE, Message};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// How far [`Outbox::flush`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Everything is in the peer's socket.
    Done,
    /// The peer's socket is full: try again when it is writable.
    Full,
    /// Too many descriptors are on their way in unread sockets (ETOOMANYREFS). The socket may well
    /// be writable: try again after a while.
    Crowded,
}

/// Messages that one peer has not been sent yet; a bounded number.
#[derive(Debug)]
pub struct Outbox {
    queue: VecDeque<(Message, Option<Arc<OwnedFd>>)>,
    /// Bytes of the first message that are sent already.
    begun: usize,
    bound: usize,
}

impl Outbox {
    /// An empty queue that holds at most `bound` messages.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self { queue: VecDeque::new(), begun: 0, bound }
    }

    /// What a peer that joins is sent: version, its own id, the memory, the doorbells of all
    /// `others`, and at last its `own`. The queue is exactly as long as that.
    #[must_use]
    pub fn welcome<'a>(
        id: u16,
        memory: &Arc<OwnedFd>,
        others: impl IntoIterator<Item = (u16, &'a [Arc<OwnedFd>])>,
        own: &'a [Arc<OwnedFd>],
    ) -> Self {
        let mut queue = VecDeque::from([
            (Message::Version, None),
            (Message::Id(id), None),
            // QEMU waits for the memory without serving anything else: it comes before the
            // doorbells, however many these are.
            (Message::Memory, Some(memory.clone())),
        ]);
        for (peer, doorbells) in others.into_iter().chain([(id, own)]) {
            queue.extend(
                doorbells.iter().map(|doorbell| (Message::Doorbell(peer), Some(doorbell.clone()))),
            );
        }
        Self { bound: queue.len(), begun: 0, queue }
    }

    /// What is sent to a peer that may not join: a complete setup with a memory in which there is
    /// nothing. A server that closes instead leaves QEMU spinning, its lock held, in
    /// `ivshmem_recv_setup`.
    #[must_use]
    pub fn refusal(id: u16, dummy: &Arc<OwnedFd>) -> Self {
        Self::welcome(id, dummy, [], &[])
    }

    /// Adds a message; `descriptor` goes with [`Message::Memory`] and [`Message::Doorbell`].
    ///
    /// # Errors
    /// [`Error::Overflow`] where the queue is full: the peer does not read, and is to be let go.
    /// [`Error::StrayDescriptor`] and [`Error::NoMemory`] where message and descriptor do not fit
    /// together.
    pub fn push(
        &mut self,
        message: Message,
        descriptor: Option<Arc<OwnedFd>>,
    ) -> Result<(), Error> {
        match (message.has_descriptor(), descriptor.is_some()) {
            (true, false) => Err(Error::NoMemory),
            (false, true) => Err(Error::StrayDescriptor),
            _ if self.queue.len() >= self.bound => Err(Error::Overflow),
            _ => {
                self.queue.push_back((message, descriptor));
                Ok(())
            }
        }
    }

    /// Messages that are not sent whole.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Is everything sent?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends as much as the socket takes, in one system call if that is everything. Never waits,
    /// whatever the socket's mode.
    ///
    /// # Errors
    /// [`Error::Closed`] where the peer is gone, else [`Error::System`].
    pub fn flush(&mut self, socket: impl AsFd) -> Result<Progress, Error> {
        while !self.queue.is_empty() {
            match burst::send(socket.as_fd(), &self.pieces()) {
                Ok(sent) => self.sent(&sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(Progress::Full),
                Err(Errno::TOOMANYREFS) => return Ok(Progress::Crowded),
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(Error::Closed),
                Err(errno) => return Err(Error::system("send to peer")(errno)),
            }
        }
        Ok(Progress::Done)
    }

    fn pieces(&self) -> Vec<Piece> {
        let begun = std::iter::once(self.begun).chain(std::iter::repeat(0));
        let pieces = self.queue.iter().zip(begun).map(|((message, descriptor), begun)| Piece {
            bytes: message.bytes(),
            begun,
            // The descriptor travels with the message's first byte.
            descriptor: descriptor.as_ref().filter(|_| begun == 0).map(|fd| fd.as_raw_fd()),
        });
        pieces.take(burst::MOST).collect()
    }

    fn sent(&mut self, bytes: &[usize]) {
        for sent in bytes {
            self.begun += sent;
            if self.begun >= MESSAGE {
                self.begun = 0;
                self.queue.pop_front();
            }
        }
    }
}
