//! The server's end towards one peer: what it still has to be sent, sent as far as the peer takes it, and never waiting.

use crate::{Error, wire::Message};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// How far [`Outbox::flush`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Everything is in the peer's socket.
    Done,
    /// The peer's socket is full: try again when it is writable.
    Full,
    /// Too many descriptors are on their way in unread sockets (ETOOMANYREFS). The socket may well be writable: try again after a while.
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

    /// What a peer that joins is sent: version, its own id, the memory, the doorbells of all `others`, and at last its `own`.
    /// The queue is exactly as long as that.
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
            // QEMU waits for the memory without serving anything else: it comes before the doorbells, however many these are.
            (Message::Memory, Some(memory.clone())),
        ]);
        for (peer, doorbells) in others.into_iter().chain([(id, own)]) {
            queue.extend(doorbells.iter().map(|doorbell| (Message::Doorbell(peer), Some(doorbell.clone()))));
        }
        Self { bound: queue.len(), begun: 0, queue }
    }

    /// What is sent to a peer that may not join: a complete setup with a memory in which there is nothing. A server that closes instead
    /// leaves QEMU spinning, its lock held, in `ivshmem_recv_setup`.
    #[must_use]
    pub fn refusal(id: u16, dummy: &Arc<OwnedFd>) -> Self {
        Self::welcome(id, dummy, [], &[])
    }

    /// Adds a message; `descriptor` goes with [`Message::Memory`] and [`Message::Doorbell`].
    ///
    /// # Errors
    /// [`Error::Overflow`] where the queue is full: the peer does not read, and is to be let go.
    /// [`Error::StrayDescriptor`] and [`Error::NoMemory`] where message and descriptor do not fit together.
    pub fn push(&mut self, message: Message, descriptor: Option<Arc<OwnedFd>>) -> Result<(), Error> {
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

    /// Sends as much as the socket takes. Never waits, whatever the socket's mode.
    ///
    /// # Errors
    /// [`Error::Closed`] where the peer is gone, else [`Error::System`].
    pub fn flush(&mut self, socket: impl AsFd) -> Result<Progress, Error> {
        while let Some((message, descriptor)) = self.queue.front() {
            let bytes = message.bytes();
            // The descriptor travels with the message's first byte.
            let descriptor = descriptor.as_ref().filter(|_| self.begun == 0).map(|fd| fd.as_fd());
            match send(socket.as_fd(), &bytes[self.begun..], descriptor) {
                Ok(sent) => self.begun += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(Progress::Full),
                Err(Errno::TOOMANYREFS) => return Ok(Progress::Crowded),
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(Error::Closed),
                Err(errno) => return Err(Error::system("send to peer")(errno)),
            }
            if self.begun == bytes.len() {
                self.begun = 0;
                self.queue.pop_front();
            }
        }
        Ok(Progress::Done)
    }
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.as_slice();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}
