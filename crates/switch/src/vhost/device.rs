//! A guest's network card: what its front end has said so far, and the queues that are served.
//!
//! Messages may come in any order that the specification allows, and in one that it does not:
//! QEMU (7.2, 10.0) enables queues before it says which features were agreed on.

use super::connection::Incoming;
use super::message::{self, Addresses, Fields, MAX_TABLE, Malformed, RegionAt, Request};
use super::queue::{Queue, is_eventfd};
use crate::poller::{Poller, Token};
use crate::ring::{Log, MapError, Memory, Region};
use crate::wire::features;
use ginnel_ivshmem::doorbell::Ringer;
use rustix::io::Errno;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Protocol features (vhost-user.rst), by their bits.
mod protocol {
    pub const MQ: u64 = 1 << 0;
    pub const LOG_SHMFD: u64 = 1 << 1;
    pub const RARP: u64 = 1 << 2;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const MTU: u64 = 1 << 4;
    pub const RESET_DEVICE: u64 = 1 << 13;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub const STATUS: u64 = 1 << 16;
    pub const ALL: u64 =
        MQ | LOG_SHMFD | RARP | REPLY_ACK | MTU | RESET_DEVICE | CONFIGURE_MEM_SLOTS | STATUS;
}

/// Regions that a front end may add one by one.
const MAX_REGIONS: usize = 64;
/// In the number of SET_VRING_KICK, _CALL and _ERR: no descriptor comes beside it.
const NO_DESCRIPTOR: u64 = 1 << 8;
/// The largest log: of a guest of 64 TiB.
const MAX_LOG: u64 = 2 << 30;

/// Why a front end is not served any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It sent what is no message.
    Malformed(Malformed),
    /// There is no such queue.
    Queue(u32),
    /// It asks for features that were not offered.
    Features(u64),
    /// Its memory cannot be mapped.
    Memory(MapError),
    /// Regions overlap, or there are too many.
    Regions,
    /// There is no such region to be removed.
    NoRegion,
    /// A kick, call or error descriptor is no eventfd.
    NoEventfd,
    /// A queue without a kick would have to be looked at for ever.
    NoKick,
    /// No frame fits into that.
    Mtu(u64),
    /// The kernel's word.
    Kernel(Errno),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => what.fmt(f),
            Self::Queue(index) => write!(f, "there is no queue {index}; raise `queues`"),
            Self::Features(bits) => write!(f, "features {bits:#x} were not offered"),
            Self::Memory(why) => why.fmt(f),
            Self::Regions => f.write_str("regions of memory overlap, or are too many"),
            Self::NoRegion => f.write_str("no such region of memory is there to be removed"),
            Self::NoEventfd => f.write_str("a queue's kick, call or error is no eventfd"),
            Self::NoKick => f.write_str("a queue without an eventfd to kick is not served"),
            Self::Mtu(mtu) => write!(f, "an MTU of {mtu} makes no sense"),
            Self::Kernel(errno) => errno.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Malformed> for Refusal {
    fn from(what: Malformed) -> Self {
        Self::Malformed(what)
    }
}

impl From<MapError> for Refusal {
    fn from(why: MapError) -> Self {
        Self::Memory(why)
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

/// What a message leads to, beside what it changes in the device.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The answer, whole.
    pub reply: Option<Vec<u8>>,
    /// The guest has come from elsewhere, and has this address: the switch is to say so.
    pub announce: Option<[u8; 6]>,
}

/// A guest's network card.
#[derive(Debug)]
pub struct Device {
    port: u32,
    poller: Poller,
    /// What was agreed on.
    features: u64,
    protocol: u64,
    /// The front end says itself which queues are enabled.
    enables: bool,
    regions: Vec<Arc<Region>>,
    log: Option<Arc<Log>>,
    /// The guest's memory.
    pub memory: Arc<Memory>,
    /// Its queues: 0, 2, … those into which it receives, 1, 3, … those from which it sends.
    pub queues: Vec<Queue>,
    /// As the front end gave it; 0 where it did not.
    pub mtu: u16,
    status: u8,
}

impl Device {
    /// A card of port `port` with so many pairs of queues.
    #[must_use]
    pub fn new(port: u32, pairs: u16, poller: Poller) -> Self {
        Self {
            port,
            poller,
            features: 0,
            protocol: 0,
            enables: false,
            regions: Vec::new(),
            log: None,
            memory: Arc::default(),
            queues: (0..2 * pairs).map(|_| Queue::default()).collect(),
            mtu: 0,
            status: 0,
        }
    }

    /// Virtio features that were agreed on ([`features`]).
    #[must_use]
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Does the front end want this queue to carry frames?
    #[must_use]
    pub fn is_enabled(&self, index: usize) -> bool {
        let asked = self.enables || self.features & features::PROTOCOL_FEATURES != 0;
        self.queues.get(index).is_some_and(|queue| queue.enabled || !asked)
    }

    /// Does what a message says.
    ///
    /// # Errors
    /// [`Refusal`]: the connection is to be closed.
    pub fn handle(&mut self, message: Incoming, ringer: &Ringer) -> Result<Done, Refusal> {
        use Request as R;
        let Incoming { head, payload, descriptors } = message;
        let mut done = Done::default();
        let mut answer: Option<Vec<u8>> = None;
        let numbered = |number: u64| Some(number.to_le_bytes().to_vec());
        let count = descriptors.len();
        let takes = match head.request {
            R::SetMemTable => 0..=MAX_TABLE,
            R::SetLogBase | R::SetLogFd | R::AddMemReg => 1..=1,
            // QEMU sends the region's descriptor with its removal, too.
            R::SetVringKick | R::SetVringCall | R::SetVringErr | R::RemMemReg => 0..=1,
            _ => 0..=0,
        };
        if !takes.contains(&count) {
            return Err(Malformed::Descriptors(count).into());
        }
        match head.request {
            R::GetFeatures => answer = numbered(features::OFFERED),
            R::GetProtocolFeatures => answer = numbered(protocol::ALL),
            R::GetQueueNum => answer = numbered(self.queues.len() as u64 / 2),
            R::GetMaxMemSlots => answer = numbered(MAX_REGIONS as u64),
            R::GetStatus => answer = numbered(u64::from(self.status)),
            R::SetFeatures => self.set_features(message::number(&payload)?)?,
            R::SetProtocolFeatures => self.set_protocol(message::number(&payload)?)?,
            R::SetOwner | R::ResetOwner | R::SetLogFd => {}
            R::SetMemTable => self.set_table(&payload, descriptors)?,
            R::AddMemReg => self.add_region(&payload, descriptors)?,
            R::RemMemReg => self.remove_region(&payload)?,
            R::SetLogBase => {
                self.set_log(&payload, descriptors)?;
                answer = numbered(0);
            }
            R::GetVringBase => {
                let (index, _) = message::state(&payload)?;
                let base = self.queue(index)?.stop();
                answer = Some([index.to_le_bytes(), u32::from(base).to_le_bytes()].concat());
            }
            R::SetVringNum | R::SetVringBase | R::SetVringEnable | R::SetVringAddr => {
                self.set_queue(head.request, &payload)?;
            }
            R::SetVringKick | R::SetVringCall | R::SetVringErr => {
                let number = message::number(&payload)?;
                let descriptor = eventfd(number, descriptors)?;
                self.set_eventfd(head.request, number as u8, descriptor, ringer)?;
            }
            R::SendRarp => {
                done.announce = message::number(&payload)?.to_le_bytes().first_chunk().copied()
            }
            R::NetSetMtu => self.mtu = mtu(message::number(&payload)?)?,
            R::ResetDevice => self.reset(),
            R::SetStatus => {
                self.status = message::number(&payload)? as u8;
                if self.status == 0 {
                    self.reset();
                }
            }
        }
        if answer.is_none() && head.need_reply && self.protocol & protocol::REPLY_ACK != 0 {
            answer = numbered(0);
        }
        done.reply = answer.map(|payload| message::reply(head.request, &payload));
        Ok(done)
    }

    /// The answer to a message that was refused, where one is wanted.
    #[must_use]
    pub fn failure(&self, request: Request, need_reply: bool) -> Option<Vec<u8>> {
        let wanted = need_reply && self.protocol & protocol::REPLY_ACK != 0;
        wanted.then(|| message::reply(request, &1u64.to_le_bytes()))
    }

    fn queue(&mut self, index: u32) -> Result<&mut Queue, Refusal> {
        self.queues.get_mut(index as usize).ok_or(Refusal::Queue(index))
    }

    fn set_features(&mut self, bits: u64) -> Result<(), Refusal> {
        if bits & !features::OFFERED != 0 {
            return Err(Refusal::Features(bits & !features::OFFERED));
        }
        self.features = bits;
        self.renew_memory();
        Ok(())
    }

    fn set_protocol(&mut self, bits: u64) -> Result<(), Refusal> {
        if bits & !protocol::ALL != 0 {
            return Err(Refusal::Features(bits & !protocol::ALL));
        }
        self.protocol = bits;
        Ok(())
    }

    /// Makes the map anew: of the regions, and with the log where writes are to be logged.
    fn renew_memory(&mut self) {
        let logs = self.features & features::LOG_ALL != 0;
        let log = self.log.as_ref().filter(|_| logs).map(Arc::clone);
        self.memory = Arc::new(Memory::new(self.regions.clone(), log));
    }

    /// Has the queues lie where the new regions say.
    fn set_regions(&mut self, regions: Vec<Arc<Region>>) {
        self.regions = regions;
        self.renew_memory();
        for queue in self.queues.iter_mut().filter(|queue| queue.ring.is_some()) {
            queue.start(&self.memory, self.features);
        }
    }

    fn set_table(&mut self, payload: &[u8], files: Vec<OwnedFd>) -> Result<(), Refusal> {
        let table = RegionAt::table(payload)?;
        if table.len() != files.len() {
            return Err(Malformed::Descriptors(files.len()).into());
        }
        let mut regions = Vec::new();
        for (at, file) in table.iter().zip(&files) {
            add(&mut regions, at, file)?;
        }
        self.set_regions(regions);
        Ok(())
    }

    fn add_region(&mut self, payload: &[u8], files: Vec<OwnedFd>) -> Result<(), Refusal> {
        let at = RegionAt::single(payload)?;
        let mut regions = self.regions.clone();
        for file in &files {
            add(&mut regions, &at, file)?;
        }
        self.set_regions(regions);
        Ok(())
    }

    fn remove_region(&mut self, payload: &[u8]) -> Result<(), Refusal> {
        let at = RegionAt::single(payload)?;
        let mut regions = self.regions.clone();
        let is =
            |one: &Arc<Region>| (one.guest, one.size, one.user) == (at.guest, at.size, at.user);
        let index = regions.iter().position(is).ok_or(Refusal::NoRegion)?;
        regions.remove(index);
        self.set_regions(regions);
        Ok(())
    }

    fn set_log(&mut self, payload: &[u8], files: Vec<OwnedFd>) -> Result<(), Refusal> {
        let mut fields = Fields::new(payload);
        let (size, offset) = (fields.u64()?, fields.u64()?);
        fields.end()?;
        if size > MAX_LOG {
            return Err(MapError::Size.into());
        }
        for file in &files {
            self.log = Some(Arc::new(Log::new(file, offset, size)?));
        }
        self.renew_memory();
        Ok(())
    }

    /// What is said of a queue in numbers.
    fn set_queue(&mut self, request: Request, payload: &[u8]) -> Result<(), Refusal> {
        if request == Request::SetVringAddr {
            let at = Addresses::parse(payload)?;
            let (memory, agreed) = (Arc::clone(&self.memory), self.features);
            let queue = self.queue(at.index)?;
            queue.addresses = Some(at);
            if queue.ring.is_some() {
                queue.start(&memory, agreed);
            }
            return Ok(());
        }
        let (index, number) = message::state(payload)?;
        self.enables |= request == Request::SetVringEnable;
        let queue = self.queue(index)?;
        match request {
            Request::SetVringNum => queue.size = u16::try_from(number).unwrap_or(0),
            Request::SetVringEnable => queue.enabled = number != 0,
            // The rings that are split have indices of 16 bits.
            _ => queue.base = number as u16,
        }
        Ok(())
    }

    fn set_eventfd(
        &mut self,
        request: Request,
        index: u8,
        descriptor: Option<OwnedFd>,
        ringer: &Ringer,
    ) -> Result<(), Refusal> {
        let token = Token::Kick { port: self.port, queue: u16::from(index) };
        let (memory, agreed) = (Arc::clone(&self.memory), self.features);
        let poller = self.poller.clone();
        let queue = self.queue(index.into())?;
        match request {
            Request::SetVringKick => {
                queue.set_kick(descriptor.ok_or(Refusal::NoKick)?, &poller, token)?;
                queue.start(&memory, agreed);
            }
            Request::SetVringCall => queue.set_call(descriptor),
            _ => queue.set_error(descriptor),
        }
        // What an earlier device published without interrupting the guest is seen now.
        if queue.ring.is_some() && request != Request::SetVringErr {
            queue.interrupt(ringer);
        }
        Ok(())
    }

    fn reset(&mut self) {
        for queue in &mut self.queues {
            queue.stop();
            *queue = Queue::default();
        }
        (self.features, self.enables) = (0, false);
        self.renew_memory();
    }
}

/// Maps a region, unless it overlaps with one of the others.
fn add(regions: &mut Vec<Arc<Region>>, at: &RegionAt, file: &OwnedFd) -> Result<(), Refusal> {
    let apart = |a: u64, b: u64, size: u64, other: u64| {
        a.checked_add(size).is_some_and(|end| end <= b)
            || b.checked_add(other).is_some_and(|end| end <= a)
    };
    let fits = regions.iter().all(|one| {
        apart(at.guest, one.guest, at.size, one.size) && apart(at.user, one.user, at.size, one.size)
    });
    if !fits || regions.len() >= MAX_REGIONS {
        return Err(Refusal::Regions);
    }
    let region = Region::new(file, at.offset, at.guest, at.size, at.user)?;
    regions.push(Arc::new(region));
    Ok(())
}

/// The eventfd beside a message that says whether there is one.
fn eventfd(number: u64, descriptors: Vec<OwnedFd>) -> Result<Option<OwnedFd>, Refusal> {
    let wanted = usize::from(number & NO_DESCRIPTOR == 0);
    let count = descriptors.len();
    match descriptors.into_iter().next() {
        Some(one) if wanted == 1 => is_eventfd(&one).then_some(Some(one)).ok_or(Refusal::NoEventfd),
        None if wanted == 0 => Ok(None),
        _ => Err(Malformed::Descriptors(count).into()),
    }
}

fn mtu(number: u64) -> Result<u16, Refusal> {
    // The least of IPv4 (RFC 791), and what the field holds.
    u16::try_from(number).ok().filter(|&mtu| mtu >= 68).ok_or(Refusal::Mtu(number))
}
