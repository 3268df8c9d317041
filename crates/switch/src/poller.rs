//! What the switch sleeps on: one epoll set, and what each of its entries stands for.

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Events taken at once.
const BATCH: usize = 64;
/// What turns without a look at what else there is may cost, bytes: eight of one port. Were it not
/// counted, a queue that sleeps would be heard the later, the more there are that do not.
pub const UNHEARD: usize = 1 << 20;

/// What has something to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// A guest has kicked a queue of a port.
    Kick {
        /// The port's number.
        port: u32,
        /// The queue's.
        queue: u16,
    },
    /// Somebody connects to a port.
    Listen(u32),
    /// A port's front end has sent something.
    FrontEnd(u32),
    /// A tap device has frames.
    Tap(u32),
    /// Somebody connects to the control socket.
    Control,
    /// A visitor of the control socket.
    Visitor(u32),
    /// The switch is to end.
    Signal,
    /// A program of the host connects to the sockets of a machine.
    Door(u32),
    /// A stream of a program of the host. Numbers have 48 bits.
    Stream(u64),
    /// There is news of connections to other hosts.
    Hosts,
    /// A host has sent something, or takes more.
    Host(u32),
    /// The configuration is to be read again.
    Reload,
    /// Another configuration is prepared.
    Prepared,
    /// Memory of a machine came back that was lent.
    Desk,
}

impl Token {
    fn pack(self) -> u64 {
        let (kind, port, queue): (u64, _, _) = match self {
            Self::Kick { port, queue } => (0, port, queue),
            Self::Listen(port) => (1, port, 0),
            Self::FrontEnd(port) => (2, port, 0),
            Self::Tap(port) => (3, port, 0),
            Self::Control => (4, 0, 0),
            Self::Visitor(visitor) => (5, visitor, 0),
            Self::Signal => (6, 0, 0),
            Self::Door(machine) => (7, machine, 0),
            Self::Stream(stream) => (8, stream as u32, (stream >> 32) as u16),
            Self::Hosts => (9, 0, 0),
            Self::Host(host) => (10, host, 0),
            Self::Reload => (11, 0, 0),
            Self::Prepared => (12, 0, 0),
            Self::Desk => (13, 0, 0),
        };
        kind << 48 | u64::from(queue) << 32 | u64::from(port)
    }

    fn unpack(word: u64) -> Option<Self> {
        let (port, queue) = (word as u32, (word >> 32) as u16);
        Some(match word >> 48 {
            0 => Self::Kick { port, queue },
            1 => Self::Listen(port),
            2 => Self::FrontEnd(port),
            3 => Self::Tap(port),
            4 => Self::Control,
            5 => Self::Visitor(port),
            6 => Self::Signal,
            7 => Self::Door(port),
            8 => Self::Stream(word & ((1 << 48) - 1)),
            9 => Self::Hosts,
            10 => Self::Host(port),
            11 => Self::Reload,
            12 => Self::Prepared,
            13 => Self::Desk,
            _ => return None,
        })
    }
}

/// The set.
#[derive(Debug, Clone)]
pub struct Poller(Arc<OwnedFd>);

impl Poller {
    /// An empty one.
    ///
    /// # Errors
    /// The `errno` of epoll_create1(2).
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(Arc::new(epoll::create(CreateFlags::CLOEXEC)?)))
    }

    fn add(&self, source: impl AsFd, token: Token, flags: EventFlags) -> Result<(), Errno> {
        epoll::add(self.0.as_fd(), source, EventData::new_u64(token.pack()), flags)
    }

    /// Reports `source` as long as it can be read.
    ///
    /// # Errors
    /// The `errno` of epoll_ctl(2).
    pub fn watch(&self, source: impl AsFd, token: Token) -> Result<(), Errno> {
        self.add(source, token, EventFlags::IN)
    }

    /// Reports each time that something comes, whether or not anybody reads it.
    ///
    /// # Errors
    /// The `errno` of epoll_ctl(2).
    pub fn watch_edges(&self, source: impl AsFd, token: Token) -> Result<(), Errno> {
        self.add(source, token, EventFlags::IN | EventFlags::ET)
    }

    /// Reports each time that something comes, or room, or the end, whether or not anybody reads.
    ///
    /// # Errors
    /// The `errno` of epoll_ctl(2).
    pub fn watch_stream(&self, source: impl AsFd, token: Token) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        self.add(source, token, flags)
    }

    /// Reports from now on also when `source` can be written, or no more.
    ///
    /// # Errors
    /// The `errno` of epoll_ctl(2).
    pub fn want_room(&self, source: impl AsFd, token: Token, want: bool) -> Result<(), Errno> {
        let flags = if want { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        epoll::modify(self.0.as_fd(), source, EventData::new_u64(token.pack()), flags)
    }

    /// Reports no more of `source`. (The kernel forgets by itself only when the last holder, in
    /// whatever process, closes it.)
    pub fn forget(&self, source: impl AsFd) {
        // It may never have been added.
        let _ = epoll::delete(self.0.as_fd(), source);
    }

    /// Waits until something is there, or for so long; `None`: for ever.
    ///
    /// # Errors
    /// The `errno` of epoll_wait(2); a signal is no error.
    pub fn wait(&self, limit: Option<Duration>, into: &mut Vec<Token>) -> Result<(), Errno> {
        into.clear();
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let mut events = [MaybeUninit::<Event>::uninit(); BATCH];
        match epoll::wait(self.0.as_fd(), &mut events[..], limit.as_ref()) {
            Ok((events, _)) => {
                into.extend(events.iter().filter_map(|event| Token::unpack(event.data.u64())));
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// Has the other end of a stream socket gone? What it said before may still be there.
#[must_use]
pub fn is_over(socket: impl AsFd) -> bool {
    // That is reported whatever is asked for.
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let polls = poll(&mut polled, Some(&now)).is_ok();
    polls && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}
