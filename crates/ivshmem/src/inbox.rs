//! Messages as they come in: in pieces of any size, from a server that is not trusted.

use crate::{Error, wire::MESSAGE};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// The message that is being received.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: [u8; MESSAGE],
    /// How many of them have come.
    have: usize,
    descriptor: Option<OwnedFd>,
}

impl Inbox {
    /// Takes what is there: a whole message's number and descriptor, or `None` while it is not
    /// complete. Never waits. Descriptors that come in excess are closed.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Truncated`], [`Error::ManyDescriptors`], [`Error::System`].
    pub fn receive(&mut self, socket: impl AsFd) -> Result<Option<(i64, Option<OwnedFd>)>, Error> {
        while self.have < MESSAGE {
            // Room for more than one, so that a second one is seen and closed rather than cut off.
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            // Never more than this message's bytes: a descriptor belongs to the message it came
            // with.
            let mut into = [IoSliceMut::new(&mut self.bytes[self.have..])];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = match recvmsg(socket.as_fd(), &mut into, &mut control, flags) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::CONNRESET) => return Err(Error::Closed),
                Err(errno) => return Err(Error::system("receive from the ivshmem server")(errno)),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    for descriptor in descriptors {
                        if self.descriptor.replace(descriptor).is_some() {
                            return Err(Error::ManyDescriptors);
                        }
                    }
                }
            }
            if received.flags.contains(ReturnFlags::CTRUNC) {
                return Err(Error::ManyDescriptors);
            }
            match received.bytes {
                0 if self.have == 0 => return Err(Error::Closed),
                0 => return Err(Error::Truncated { bytes: self.have }),
                bytes => self.have += bytes,
            }
        }
        self.have = 0;
        Ok(Some((i64::from_le_bytes(self.bytes), self.descriptor.take())))
    }
}
