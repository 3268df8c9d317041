//! The joining end: takes the setup from a server, checks it, and keeps the memory and everybody's
//! doorbells.
//!
//! For host programs and tests. In a guest the same work is done by QEMU's device.

use crate::{Error, doorbell, inbox::Inbox, wire::MAX_VECTORS, wire::Message, wire::Stage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Doorbells that a client keeps at most, all peers together. A server that sends more is left.
pub const MAX_DOORBELLS: usize = 4096;

/// A peer as seen from inside it: connected to a server, and given what the server has sent so far.
#[derive(Debug)]
pub struct Client {
    socket: UnixStream,
    inbox: Inbox,
    stage: Stage,
    memory: Option<OwnedFd>,
    doorbells: BTreeMap<u16, Vec<OwnedFd>>,
    kept: usize,
}

impl Client {
    /// Connects. Nothing has been received yet: see [`Client::settle`].
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn connect(path: &Path) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::System {
            doing: "connect to the ivshmem server",
            errno: error.raw_os_error().unwrap_or(0),
        };
        UnixStream::connect(path).map(Self::over).map_err(failed)
    }

    /// Speaks over a socket that is connected already.
    #[must_use]
    pub fn over(socket: UnixStream) -> Self {
        Self {
            socket,
            inbox: Inbox::default(),
            stage: Stage::default(),
            memory: None,
            doorbells: BTreeMap::new(),
            kept: 0,
        }
    }

    /// The own id, once it has come.
    #[must_use]
    pub fn id(&self) -> Option<u16> {
        match self.stage {
            Stage::Running { own, .. } => Some(own),
            _ => None,
        }
    }

    /// The shared memory, once it has come. Its size is the file's, and like everything else from
    /// the server not trusted: a file that is not sealed against shrinking (`F_GET_SEALS`) can
    /// raise SIGBUS.
    #[must_use]
    pub fn memory(&self) -> Option<&OwnedFd> {
        self.memory.as_ref()
    }

    /// The doorbells of a peer, vector 0 first; those of the own id are the ones to wait for.
    #[must_use]
    pub fn doorbells(&self, peer: u16) -> &[OwnedFd] {
        self.doorbells.get(&peer).map_or(&[], Vec::as_slice)
    }

    /// The peers whose doorbells are here, the own id among them.
    pub fn peers(&self) -> impl Iterator<Item = u16> + '_ {
        self.doorbells.keys().copied()
    }

    /// Rings a vector of a peer. Plainly, as the server's relays are not held by strangers.
    ///
    /// # Errors
    /// [`Error::NoDoorbell`], [`Error::System`].
    pub fn ring(&self, peer: u16, vector: u16) -> Result<(), Error> {
        let bell = self
            .doorbells(peer)
            .get(usize::from(vector))
            .ok_or(Error::NoDoorbell { peer, vector })?;
        doorbell::ring(bell).map_err(Error::system("ring a doorbell"))
    }

    /// Takes one message, if a whole one is there: `None` means that nothing more is there now.
    /// Never waits.
    ///
    /// # Errors
    /// See [`Error`]. After any of them the connection is of no use; what came before stays valid.
    pub fn receive(&mut self) -> Result<Option<Message>, Error> {
        let Some((number, descriptor)) = self.inbox.receive(&self.socket)? else { return Ok(None) };
        let (message, stage) = self.stage.next(number, descriptor.is_some())?;
        self.stage = stage;
        match (message, descriptor) {
            (Message::Memory, memory) => self.memory = memory,
            (Message::Doorbell(peer), Some(bell)) => {
                let known = self.doorbells.entry(peer).or_default();
                if known.len() >= usize::from(MAX_VECTORS) || self.kept >= MAX_DOORBELLS {
                    return Err(Error::ManyDoorbells);
                }
                known.push(bell);
                self.kept += 1;
            }
            // The id may come back, as another peer: with new doorbells from vector 0 on.
            (Message::Left(peer), _) => {
                self.kept -= self.doorbells.remove(&peer).map_or(0, |bells| bells.len())
            }
            _ => {}
        }
        Ok(Some(message))
    }

    /// Receives until the memory and `vectors` doorbells of the own id are there, which servers
    /// send last.
    ///
    /// # Errors
    /// [`Error::Timeout`] at `deadline`, else as [`Client::receive`].
    pub fn settle(&mut self, vectors: u16, deadline: Instant) -> Result<(), Error> {
        loop {
            let all = self.id().is_some_and(|id| self.doorbells(id).len() >= usize::from(vectors));
            if all && self.memory.is_some() {
                return Ok(());
            }
            match self.receive()? {
                None => wait(self.socket.as_fd(), deadline)?,
                // Also where one message comes after another.
                Some(_) if Instant::now() >= deadline => return Err(Error::Timeout),
                Some(_) => {}
            }
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn wait(socket: BorrowedFd<'_>, deadline: Instant) -> Result<(), Error> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left == Duration::ZERO {
        return Err(Error::Timeout);
    }
    let left = Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(Error::system("wait for the ivshmem server")(errno)),
    }
}
