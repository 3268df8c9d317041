//! Descriptors that outlive this process: given to systemd's store, or to `ginneld --keep`, which
//! speaks the same protocol, and given back to the next instance.
//!
//! Sources: sd_notify(3) (`FDSTORE=1`, `FDNAME=`, `FDSTOREREMOVE=1`), sd_listen_fds(3)
//! (`LISTEN_FDS`, `LISTEN_FDNAMES`, `LISTEN_PID`).
//!
//! | name | descriptor |
//! |---|---|
//! | `m.SEGMENT.VERSION` | the memory, and the version of its layout (releases before this wrote `m.SEGMENT`) |
//! | `e.SEGMENT.PEER.VECTOR` | a doorbell |
//! | `l.SEGMENT.PEER` | the socket on which a peer's joiners arrive |
//! | `c.SEGMENT.PEER` | the connection of a virtual machine that has joined |
//! | `w` | the status page's listening socket |

use ginnel_daemon::log;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Set by `ginneld --keep` to its process id, in place of `LISTEN_PID`, which it cannot know before
/// it starts us.
pub const KEEPER: &str = "GINNELD_KEEPER";

/// What a kept descriptor is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// A segment's memory, and the version of its layout: noted here, as the header in the memory
    /// can be written by every peer.
    Memory(String, Option<u32>),
    /// A doorbell: of this peer, with this vector.
    Bell(String, u16, u16),
    /// A peer's listening socket.
    Listener(String, u16),
    /// The connection of a virtual machine.
    Connection(String, u16),
    /// The status page's listening socket.
    Page,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(segment, None) => write!(f, "m.{segment}"),
            Self::Memory(segment, Some(version)) => write!(f, "m.{segment}.{version}"),
            Self::Bell(segment, peer, vector) => write!(f, "e.{segment}.{peer}.{vector}"),
            Self::Listener(segment, peer) => write!(f, "l.{segment}.{peer}"),
            Self::Connection(segment, peer) => write!(f, "c.{segment}.{peer}"),
            Self::Page => f.write_str("w"),
        }
    }
}

impl FromStr for Name {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse::<u16>().map_err(|_| ());
        match text.split('.').collect::<Vec<_>>()[..] {
            ["m", segment] => Ok(Self::Memory(segment.into(), None)),
            ["m", segment, version] => {
                Ok(Self::Memory(segment.into(), Some(version.parse().map_err(|_| ())?)))
            }
            ["e", segment, peer, vector] => {
                Ok(Self::Bell(segment.into(), number(peer)?, number(vector)?))
            }
            ["l", segment, peer] => Ok(Self::Listener(segment.into(), number(peer)?)),
            ["c", segment, peer] => Ok(Self::Connection(segment.into(), number(peer)?)),
            ["w"] => Ok(Self::Page),
            _ => Err(()),
        }
    }
}

/// The way to whoever keeps our descriptors. Without one, everything here does nothing.
#[derive(Debug, Default)]
pub struct Store {
    socket: Option<OwnedFd>,
    /// What is not told yet; a store that is slow is not waited for.
    untold: VecDeque<(String, Option<Arc<OwnedFd>>)>,
}

impl Store {
    /// The store that `NOTIFY_SOCKET` names.
    #[must_use]
    pub fn from_environment() -> Self {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Self::default();
        };
        match Self::connect(path.as_encoded_bytes()) {
            Ok(socket) => Self { socket: Some(socket), untold: VecDeque::new() },
            Err(errno) => {
                log!(
                    Warning,
                    "no_store",
                    path = path.to_string_lossy(),
                    why = errno,
                    so = "a restart will lose its virtual machines"
                );
                Self::default()
            }
        }
    }

    fn connect(path: &[u8]) -> Result<OwnedFd, Errno> {
        let address = match path.strip_prefix(b"@") {
            Some(name) => SocketAddrUnix::new_abstract_name(name)?,
            None => SocketAddrUnix::new(path)?,
        };
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::net::connect(&socket, &address)?;
        Ok(socket)
    }

    /// Is anybody keeping our descriptors?
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// Has a descriptor kept.
    pub fn keep(&mut self, name: &Name, descriptor: &Arc<OwnedFd>) {
        // systemd would drop a descriptor by itself when it hangs up; a keeper that watches each is
        // not needed, as we say when one goes.
        self.tell(format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}"), Some(descriptor.clone()));
    }

    /// Has it no longer kept.
    pub fn forget(&mut self, name: &Name) {
        self.tell(format!("FDSTOREREMOVE=1\nFDNAME={name}"), None);
    }

    /// Says how we are: `READY=1`, `STATUS=…`, `STOPPING=1`.
    pub fn say(&mut self, state: &str) {
        self.tell(state.to_owned(), None);
    }

    fn tell(&mut self, text: String, descriptor: Option<Arc<OwnedFd>>) {
        if self.is_there() {
            self.untold.push_back((text, descriptor));
            self.flush();
        }
    }

    /// The same, for so long at most. For what must not be lost: it is told before anything follows
    /// from it.
    pub fn settle(&mut self, most: Duration) {
        let until = Instant::now() + most;
        while !self.flush() && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Tells what is not told yet, as far as the store takes it. Says whether all is told.
    pub fn flush(&mut self) -> bool {
        while let (Some(socket), Some((text, descriptor))) = (&self.socket, self.untold.front()) {
            match send(socket.as_fd(), text, descriptor.as_ref().map(|fd| fd.as_fd())) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => return false,
                Err(errno) => {
                    log!(
                        Error,
                        "store_lost",
                        why = errno,
                        so = "a restart will lose its virtual machines"
                    );
                    self.socket = None;
                    self.untold.clear();
                    return true;
                }
            }
            self.untold.pop_front();
        }
        true
    }
}

fn send(
    socket: BorrowedFd<'_>,
    text: &str,
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.as_slice();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut control, flags).map(drop)
}

/// The descriptors that an earlier instance had kept. To be called once, before anything else is
/// opened.
#[must_use]
pub fn received() -> BTreeMap<Name, OwnedFd> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let ours = match number("LISTEN_PID") {
        Some(pid) => pid == std::process::id(),
        // From our keeper: nobody else's, however the environment was handed on.
        None => number(KEEPER).is_some_and(|pid| pid == std::os::unix::process::parent_id()),
    };
    let count = number("LISTEN_FDS").filter(|_| ours).unwrap_or(0);
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut found = BTreeMap::new();
    for fd in 3..3 + i32::try_from(count).unwrap_or(0) {
        // SAFETY: whoever started us says, by the protocol of sd_listen_fds(3), that these numbers
        // are open and ours; asked first in case not.
        let open = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
        let name = names.next().unwrap_or_default();
        if !open {
            log!(Warning, "kept_descriptor_missing", fd = fd, name = name);
            continue;
        }
        // SAFETY: open, as was just seen, and owned by nobody else in this process: this runs once
        // and before all else.
        let descriptor = unsafe { OwnedFd::from_raw_fd(fd) };
        match name.parse::<Name>() {
            Ok(name) => drop(found.insert(name, descriptor)),
            Err(()) => log!(Warning, "kept_descriptor_unknown", name = name),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        let names = [
            Name::Memory("a-b_1".into(), None),
            Name::Memory("a-b_1".into(), Some(3)),
            Name::Bell("x".into(), 3, 255),
            Name::Listener("x".into(), 0),
            Name::Connection("x".into(), 254),
            Name::Page,
        ];
        for name in names {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for bad in ["", "m", "m.a.b", "e.a.1", "e.a.1.x", "c.a.70000", "z.a"] {
            assert_eq!(bad.parse::<Name>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn without_a_store_nothing_is_queued() {
        let mut store = Store::default();
        store.say("READY=1");
        assert!(store.flush() && store.untold.is_empty());
    }
}
