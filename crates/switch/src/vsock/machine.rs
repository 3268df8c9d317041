//! One machine: its device, its connections, and what waits until it takes more.

use super::connection::At;
use super::packet::Header;
use crate::closer::Closer;
use crate::config::VsockConfig;
use crate::places::{Place, Places};
use crate::poller::{Poller, Token};
use crate::seat::Seat;
use crate::vhost::{Limits, Model};
use std::collections::{HashMap, VecDeque};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The queue into which the guest receives, and the one from which it sends.
pub const RECEIVES: u16 = 0;
/// See above.
pub const SENDS: u16 = 1;

/// What others are told of a machine while the hub runs in its own thread.
#[derive(Debug, Default)]
pub struct Shown {
    /// Both queues are served.
    pub up: AtomicBool,
    /// Why its front end was let go, or a queue is served no further.
    pub trouble: Mutex<Option<String>>,
    /// Connections now.
    pub connections: AtomicU64,
    /// Bytes that its guest sent, and was given.
    pub sent: AtomicU64,
    /// See above.
    pub received: AtomicU64,
    /// Connections that it asked for and did not get.
    pub refused: AtomicU64,
    /// Connections that were reset since it broke a rule, or too much waited for it.
    pub reset: AtomicU64,
    /// Packets of it that were none, or came from an address that is not its own.
    pub bad: AtomicU64,
}

impl Shown {
    /// Counts.
    pub fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    /// Says what is wrong.
    pub fn set_trouble(&self, why: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

/// By which a machine knows a connection: its own port, and the other end.
pub type Key = (u32, u64, u32);

/// A machine.
#[derive(Debug)]
pub struct Machine {
    /// Its configuration.
    pub config: VsockConfig,
    /// Its device.
    pub seat: Seat,
    /// Closes streams of programs of the host: one that waits for ever holds up this machine alone.
    pub closer: Arc<Closer>,
    /// Where programs of the host connect.
    pub door: Option<UnixListener>,
    /// Its connections, by their numbers.
    pub connections: HashMap<Key, u64>,
    /// How many of them it began, …
    pub began: usize,
    /// … and how many with other machines there are of these and of those that are over, as one is
    /// still to be told.
    pub kept: usize,
    /// Connections of which something waits for it, in their order.
    pub queue: VecDeque<u64>,
    /// Answers to packets that belong to no connection.
    pub replies: VecDeque<Header>,
    /// When its unanswered connections were looked through, seconds.
    pub swept: u32,
    /// In which turn it was given of what waits for it last, …
    pub round: u64,
    /// … and what more of that may cost in that turn.
    pub left: usize,
    /// Bytes that its guest sent and that wait for others.
    pub held: usize,
    /// Where its guest's sending stood when its queues were stopped.
    pub stopped: Option<u16>,
    /// What others are told.
    pub shown: Arc<Shown>,
    /// It is no more in the configuration.
    pub gone: bool,
}

impl Machine {
    /// Has its sockets of `places`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(
        index: u32,
        config: VsockConfig,
        limits: Limits,
        (places, poller): (&mut Places, &Poller),
    ) -> anyhow::Result<Self> {
        let (mode, group) = (config.mode, config.group);
        let listener = places.socket(Place { socket: &config.socket, mode, group })?;
        let kind = (Model::vsock(config.cid), limits);
        let seat = Seat::open((&config.name, index), listener, kind, poller)?;
        let mut door = None;
        if let Some(socket) = &config.host {
            let listener = places.socket(Place { socket, mode, group })?;
            poller.watch(&listener, Token::Door(index))?;
            door = Some(listener);
        }
        Ok(Self {
            config,
            seat,
            closer: Arc::default(),
            door,
            connections: HashMap::new(),
            began: 0,
            kept: 0,
            queue: VecDeque::new(),
            replies: VecDeque::new(),
            swept: 0,
            round: 0,
            left: 0,
            held: 0,
            stopped: None,
            shown: Arc::default(),
            gone: false,
        })
    }

    /// Are both of its queues served?
    #[must_use]
    pub fn is_up(&self) -> bool {
        let serves = |number: u16| {
            let device = self.seat.device()?;
            let queue = device.queues.get(usize::from(number))?;
            Some(queue.ring.is_some() && device.is_enabled(number.into()))
        };
        serves(RECEIVES) == Some(true) && serves(SENDS) == Some(true)
    }
}

/// By which an end in a machine knows the other.
#[must_use]
pub fn key(own: &super::connection::End, other: &super::connection::End) -> Option<(u32, Key)> {
    let At::Machine(index) = own.at else { return None };
    Some((index, (own.address.port, other.address.cid, other.address.port)))
}
