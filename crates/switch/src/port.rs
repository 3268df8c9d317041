//! One port: its configuration, whoever is connected to it, and what it has counted.

use crate::bucket::Bucket;
use crate::config::PortConfig;
use crate::counters::Counters;
use crate::poller::{Poller, Token};
use crate::seat::{Place, Seat};
use crate::tap::Tap;
use crate::vhost::{Device, Limits, Model};
use crate::wire::{HEADER, Mac, features};
use smallvec::SmallVec;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;

/// Addresses of which a port remembers what the table says.
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
    mac: Mac,
    port: u32,
}

/// A small memory of what the table said.
#[derive(Debug, Default)]
pub struct Cache([Cached; CACHED]);

impl Cache {
    /// What the table said of this address, this second and of this generation.
    #[must_use]
    #[inline]
    pub fn get(&self, mac: Mac, generation: u64, now: u32) -> Option<u32> {
        let entry = &self.0[usize::from(mac[5]) % CACHED];
        // A generation of 0 is an empty table's, of which nothing is remembered.
        let same = entry.generation == generation && entry.at == now && generation != 0;
        (same && entry.mac == mac).then_some(entry.port)
    }

    /// Remembers it.
    pub fn put(&mut self, mac: Mac, generation: u64, now: u32, port: u32) {
        self.0[usize::from(mac[5]) % CACHED] = Cached { generation, at: now, mac, port };
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
    /// Listens at its socket, or opens its tap device.
    ///
    /// # Errors
    /// Those of the system, with the path.
    pub fn open(
        index: u32,
        config: PortConfig,
        limits: Limits,
        poller: &Poller,
    ) -> anyhow::Result<Self> {
        use anyhow::Context;
        let link = match (&config.socket, &config.tap) {
            (Some(socket), _) => {
                let place = Place { socket, mode: config.mode, group: config.group };
                let model = Model::net(config.pairs);
                Link::Guest(Seat::open((&config.name, index), &place, (model, limits), poller)?)
            }
            (None, Some(name)) => {
                let tap = Tap::open(name).with_context(|| format!("tap device {name}"))?;
                poller.watch(&tap, Token::Tap(index))?;
                Link::Tap(tap)
            }
            (None, None) => anyhow::bail!("port {} has neither socket nor tap", config.name),
        };
        let now = Instant::now();
        // At least what two large segments take, or the bucket would never let them through whole.
        let bytes = |bits: u64| bits / 8;
        let rate = config.rate.map(|bits| {
            Bucket::new(bytes(bits), (bytes(bits) * BURST_MILLIS / 1000).max(128 << 10), now)
        });
        let broadcasts = config.broadcasts.map(|frames| Bucket::new(frames, frames.max(16), now));
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
            resume: None,
            trouble: None,
            connections: 0,
            traced: false,
        })
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

/// Bytes of the header before each frame, by what was agreed on (virtio 1.2, 5.1.6.1).
#[must_use]
#[inline]
pub fn header_len(agreed: u64) -> usize {
    if agreed & (features::MRG_RXBUF | features::VERSION_1) != 0 { HEADER } else { HEADER - 2 }
}

/// Listens at a path. What a switch that is gone left there is taken away; one that lives, or a
/// file that is no socket, is left alone.
pub(crate) fn listen(path: &Path, mode: u32, group: Option<u32>) -> io::Result<UnixListener> {
    if let Ok(meta) = path.symlink_metadata() {
        if !meta.file_type().is_socket() {
            return Err(io::Error::other("the path is taken by something that is no socket"));
        }
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return Err(io::Error::other("another switch serves this socket")),
        }
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(mode))?;
    if let Some(group) = group {
        rustix::fs::chown(path, None, Some(rustix::fs::Gid::from_raw(group)))?;
    }
    Ok(listener)
}
