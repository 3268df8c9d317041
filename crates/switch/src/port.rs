//! One port: its configuration, whoever is connected to it, and what it has counted.

use crate::bucket::Bucket;
use crate::config::PortConfig;
use crate::counters::Counters;
use crate::places::{Place, Places};
use crate::poller::{Poller, Token};
use crate::seat::Seat;
use crate::tap::Tap;
use crate::vhost::{Device, Limits, Model};
use crate::wire::{HEADER, Mac, features};
use smallvec::SmallVec;
use std::time::Instant;

/// Addresses of which a port, or a host, remembers what the table says.
const CACHED: usize = 16;
/// How much more than its rate a port may send at once: what it saves in this time.
const BURST_MILLIS: u64 = 50;

/// What is at the other end.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are of the large kind; a port is boxed")]
pub enum Link {
    /// A front end, once it has connected.
    Guest(Seat),
    /// A tap device of the host.
    Tap(Tap),
}

/// What the table said of an address, as long as nothing there has moved.
#[derive(Debug, Clone, Copy, Default)]
struct Cached {
    generation: u64,
    /// Seconds of the switch's clock, at which it was true.
    at: u32,
    key: u32,
    mac: Mac,
    port: u32,
}

/// A small memory of what the table said.
#[derive(Debug, Default)]
pub struct Cache([Cached; CACHED]);

impl Cache {
    /// What the table said of this address of a segment, this second and of this generation.
    #[must_use]
    #[inline]
    pub fn get(&self, key: u32, mac: Mac, generation: u64, now: u32) -> Option<u32> {
        let entry = &self.0[usize::from(mac[5]) % CACHED];
        // A generation of 0 is an empty table's, of which nothing is remembered.
        let same = entry.generation == generation && entry.at == now && generation != 0;
        (same && (entry.key, entry.mac) == (key, mac)).then_some(entry.port)
    }

    /// Remembers it.
    pub fn put(&mut self, key: u32, mac: Mac, generation: u64, now: u32, port: u32) {
        self.0[usize::from(mac[5]) % CACHED] = Cached { generation, at: now, key, mac, port };
    }
}

/// What a port has cost in a turn.
#[derive(Debug, Default)]
pub struct Spent {
    round: u64,
    cost: usize,
}

impl Spent {
    /// In this one, so far.
    #[must_use]
    #[inline]
    pub fn of(&self, round: u64) -> usize {
        if self.round == round { self.cost } else { 0 }
    }

    /// So much in this one.
    #[inline]
    pub fn set(&mut self, round: u64, cost: usize) {
        *self = Self { round, cost };
    }
}

/// A port.
#[derive(Debug)]
pub struct Port {
    /// Its number: its place in the switch.
    pub index: u32,
    /// Its configuration.
    pub config: PortConfig,
    /// What is at its other end.
    pub link: Link,
    /// What it has counted.
    pub counters: Counters,
    /// Where addresses are to which it sends.
    pub destinations: Cache,
    /// Addresses from which it sent.
    pub sources: Cache,
    /// Queues into which its guest receives, now.
    pub receives: SmallVec<[u16; 4]>,
    /// What it may send, bytes.
    pub rate: Option<Bucket>,
    /// What it may send to all, frames.
    pub broadcasts: Option<Bucket>,
    /// What its queues have cost in the turn in which one was looked at last.
    pub spent: Spent,
    /// Not before then are its queues looked at.
    pub resume: Option<Instant>,
    /// Why its last front end was not served any further.
    pub trouble: Option<String>,
    /// Front ends that have connected.
    pub connections: u64,
    /// Somebody looks at its frames.
    pub traced: bool,
}

impl Port {
    /// Has its socket, or its tap device, of `places`.
    ///
    /// # Errors
    /// Those of the system, with the path.
    pub fn open(
        index: u32,
        config: PortConfig,
        limits: Limits,
        (places, poller): (&mut Places, &Poller),
    ) -> anyhow::Result<Self> {
        let link = match (&config.socket, &config.tap) {
            (Some(socket), _) => {
                let (mode, group) = (config.mode, config.group);
                let listener = places.socket(Place { socket, mode, group })?;
                let kind = (Model::net(config.pairs), limits);
                Link::Guest(Seat::open((&config.name, index), listener, kind, poller)?)
            }
            (None, Some(name)) => {
                let tap = places.tap(name)?;
                poller.watch(&tap, Token::Tap(index))?;
                Link::Tap(tap)
            }
            (None, None) => anyhow::bail!("port {} has neither socket nor tap", config.name),
        };
        let now = Instant::now();
        let (rate, broadcasts) = (rate(config.rate, now), broadcasts(config.broadcasts, now));
        Ok(Self {
            index,
            config,
            link,
            counters: Counters::default(),
            destinations: Cache::default(),
            sources: Cache::default(),
            receives: SmallVec::new(),
            rate,
            broadcasts,
            spent: Spent::default(),
            resume: None,
            trouble: None,
            connections: 0,
            traced: false,
        })
    }

    /// Has another configuration from now on, with the same socket or tap device. What was learned
    /// of the table is not asked any more.
    pub fn change(&mut self, config: PortConfig, limits: Limits, now: Instant) {
        if config.rate != self.config.rate {
            (self.rate, self.resume) = (rate(config.rate, now), None);
        }
        if config.broadcasts != self.config.broadcasts {
            self.broadcasts = broadcasts(config.broadcasts, now);
        }
        if let Link::Guest(seat) = &mut self.link {
            seat.change(&config.name, (Model::net(config.pairs), limits));
        }
        (self.destinations, self.sources) = (Cache::default(), Cache::default());
        self.config = config;
    }

    /// The card of its guest.
    #[must_use]
    pub fn device(&self) -> Option<&Device> {
        match &self.link {
            Link::Guest(seat) => seat.device(),
            Link::Tap(_) => None,
        }
    }

    /// The same, to be changed.
    #[inline]
    pub fn device_mut(&mut self) -> Option<&mut Device> {
        match &mut self.link {
            Link::Guest(seat) => seat.device_mut(),
            Link::Tap(_) => None,
        }
    }

    /// Can it be given frames at all?
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.link, Link::Tap(_)) || !self.receives.is_empty()
    }

    /// Notes which queues can be received into now.
    pub fn renew_receives(&mut self) {
        let mut receives = SmallVec::new();
        if let Some(device) = self.device() {
            for (index, queue) in device.queues.iter().enumerate().step_by(2) {
                if queue.ring.is_some() && device.is_enabled(index) {
                    receives.push(index as u16);
                }
            }
        }
        self.receives = receives;
    }
}

/// What it may send, bytes. At least what two large segments take can be saved up, or the bucket
/// would never let them through whole.
fn rate(bits: Option<u64>, now: Instant) -> Option<Bucket> {
    let bytes = bits? / 8;
    Some(Bucket::new(bytes, (bytes * BURST_MILLIS / 1000).max(128 << 10), now))
}

/// What it may send to all, frames.
fn broadcasts(frames: Option<u64>, now: Instant) -> Option<Bucket> {
    frames.map(|frames| Bucket::new(frames, frames.max(16), now))
}

/// Bytes of the header before each frame, by what was agreed on (virtio 1.2, 5.1.6.1).
#[must_use]
#[inline]
pub fn header_len(agreed: u64) -> usize {
    if agreed & (features::MRG_RXBUF | features::VERSION_1) != 0 { HEADER } else { HEADER - 2 }
}
