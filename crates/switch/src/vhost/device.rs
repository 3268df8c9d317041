//! A device of a guest: what its front end has said so far, and the queues that are served.
//!
//! Messages may come in any order that the specification allows, and in one that it does not:
//! QEMU (7.2, 10.0) enables queues before it says which features were agreed on.

use super::connection::Incoming;
use super::message::{self, Addresses, Fields, MAX_TABLE, Malformed, RegionAt, Request};
use super::model::{Limits, Model, protocol};
use super::queue::Queue;
use super::refusal::Refusal;
use crate::closer::Received;
use crate::poller::{Poller, Token};
use crate::ring::{Log, MapError, Memory, Region};
use crate::wire::features;
use ginnel_ivshmem::doorbell::Ringer;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Regions that a front end may add one by one: so few that a thousand ports leave mappings for
/// the rest of the process.
const MAX_REGIONS: usize = 32;
/// In the number of SET_VRING_KICK, _CALL and _ERR: no descriptor comes beside it.
const NO_DESCRIPTOR: u64 = 1 << 8;
/// The largest log: of a guest of 64 TiB.
const MAX_LOG: u64 = 2 << 30;

/// What a message leads to, beside what it changes in the device.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The answer, whole.
    pub reply: Option<Vec<u8>>,
    /// The guest has come from elsewhere, and has this address: the switch is to say so.
    pub announce: Option<[u8; 6]>,
}

/// A device.
#[derive(Debug)]
pub struct Device {
    port: u32,
    model: Model,
    limits: Limits,
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
    /// Its queues: 0, 2, … those into which it receives, 1, 3, … those from which it sends. (The
    /// third of a vsock device is for events, of which there are none.)
    pub queues: Vec<Queue>,
    /// As the front end gave it; 0 where it did not.
    pub mtu: u16,
    status: u8,
    /// Held once here, and by each frame of its guest that is being sent from where it lies.
    pub loans: Arc<()>,
    /// May frames be sent so now?
    pub lends: bool,
}

impl Device {
    /// One whose kicks are reported for `port`.
    #[must_use]
    pub fn new(port: u32, model: Model, limits: Limits, poller: Poller) -> Self {
        Self {
            port,
            queues: (0..model.queues).map(|_| Queue::default()).collect(),
            model,
            limits,
            poller,
            features: 0,
            protocol: 0,
            enables: false,
            regions: Vec::new(),
            log: None,
            memory: Arc::default(),
            mtu: 0,
            status: 0,
            loans: Arc::default(),
            lends: true,
        }
    }

    /// Must this message wait? After it the guest may use its memory for something else, of which
    /// something is being sent.
    #[must_use]
    pub fn must_wait(&self, request: Request) -> bool {
        let ends = matches!(request, Request::GetVringBase | Request::ResetDevice);
        ends && Arc::strong_count(&self.loans) > 1
    }

    /// Does this message bring more memory than there is room for now? Of what was taken away
    /// before, some may still be mapped.
    #[must_use]
    pub fn lacks_room(&self, message: &Incoming) -> bool {
        let payload = &message.payload;
        let sizes = |regions: Vec<RegionAt>| {
            regions.iter().fold(0u64, |sum, one| sum.saturating_add(one.size))
        };
        let brings = match message.head.request {
            Request::SetMemTable => RegionAt::table(payload).map(sizes),
            Request::AddMemReg => RegionAt::single(payload).map(|one| one.size),
            Request::SetLogBase => Fields::new(payload).u64(),
            _ => return false,
        };
        // What is no message is said when it is handled.
        brings.is_ok_and(|bytes| bytes > self.limits.room.left())
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
        if !takes(head.request).contains(&count) {
            return Err(Malformed::Descriptors(count).into());
        }
        match head.request {
            R::GetFeatures => answer = numbered(self.model.features),
            R::GetProtocolFeatures => answer = numbered(self.model.protocol),
            R::GetQueueNum => answer = numbered(self.model.counted.into()),
            R::GetMaxMemSlots => answer = numbered(MAX_REGIONS as u64),
            R::GetStatus => answer = numbered(u64::from(self.status)),
            R::SetFeatures => self.set_features(message::number(&payload)?)?,
            R::SetProtocolFeatures => self.set_protocol(message::number(&payload)?)?,
            R::GetConfig => answer = Some(message::config(&payload, &self.model.config)?),
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
                let memory = Arc::clone(&self.memory);
                let base = self.queue(index)?.stop(&memory, ringer);
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
            R::ResetDevice => self.reset(ringer),
            // Zero resets nothing: QEMU 7.2 sends it before it asks where the queues stand.
            R::SetStatus => self.status = message::number(&payload)? as u8,
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
        if bits & !self.model.features != 0 {
            return Err(Refusal::Features(bits & !self.model.features));
        }
        self.features = bits;
        self.renew_memory();
        Ok(())
    }

    fn set_protocol(&mut self, bits: u64) -> Result<(), Refusal> {
        if bits & !self.model.protocol != 0 {
            return Err(Refusal::Features(bits & !self.model.protocol));
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
        for queue in self.queues.iter_mut().filter(|queue| queue.is_placed()) {
            queue.start(&self.memory, self.features);
        }
    }

    fn set_table(&mut self, payload: &[u8], files: Vec<Received>) -> Result<(), Refusal> {
        let table = RegionAt::table(payload)?;
        if table.len() != files.len() {
            return Err(Malformed::Descriptors(files.len()).into());
        }
        let mut regions = Vec::new();
        for (at, file) in table.iter().zip(&files) {
            self.add(&mut regions, at, file)?;
        }
        self.set_regions(regions);
        Ok(())
    }

    /// Maps a region, unless it overlaps with one of the others, or is more than may be mapped.
    fn add(
        &self,
        regions: &mut Vec<Arc<Region>>,
        at: &RegionAt,
        file: &Received,
    ) -> Result<(), Refusal> {
        let apart = |a: u64, b: u64, size: u64, other: u64| {
            a.checked_add(size).is_some_and(|end| end <= b)
                || b.checked_add(other).is_some_and(|end| end <= a)
        };
        let fits = regions.iter().all(|one| {
            let guest = apart(at.guest, one.guest, at.size, one.size);
            guest && apart(at.user, one.user, at.size, one.size)
        });
        if !fits || regions.len() >= MAX_REGIONS {
            return Err(Refusal::Regions);
        }
        let Limits { own, room } = &self.limits;
        let sum = regions.iter().try_fold(at.size, |sum, one| sum.checked_add(one.size));
        if sum.is_none_or(|sum| sum > *own) {
            return Err(Refusal::Limit(*own));
        }
        let part = room.take(at.size).ok_or(Refusal::Room(room.limit()))?;
        let region = Region::new(file, at.offset, at.guest, at.size, at.user)?;
        regions.push(Arc::new(region.until_closed(file.closer(), part)));
        Ok(())
    }

    fn add_region(&mut self, payload: &[u8], files: Vec<Received>) -> Result<(), Refusal> {
        let at = RegionAt::single(payload)?;
        let mut regions = self.regions.clone();
        for file in &files {
            self.add(&mut regions, &at, file)?;
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

    fn set_log(&mut self, payload: &[u8], files: Vec<Received>) -> Result<(), Refusal> {
        let mut fields = Fields::new(payload);
        let (size, offset) = (fields.u64()?, fields.u64()?);
        fields.end()?;
        if size > MAX_LOG {
            return Err(MapError::Size.into());
        }
        for file in &files {
            let room = &self.limits.room;
            let part = room.take(size).ok_or(Refusal::Room(room.limit()))?;
            let log = Log::new(file, offset, size)?;
            self.log = Some(Arc::new(log.until_closed(file.closer(), part)));
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
            if queue.is_placed() {
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

    fn reset(&mut self, ringer: &Ringer) {
        for queue in &mut self.queues {
            queue.stop(&self.memory, ringer);
            *queue = Queue::default();
        }
        (self.features, self.enables, self.status) = (0, false, 0);
        self.renew_memory();
    }
}

/// How many descriptors come beside a message.
fn takes(request: Request) -> std::ops::RangeInclusive<usize> {
    use Request as R;
    match request {
        R::SetMemTable => 0..=MAX_TABLE,
        R::SetLogBase | R::SetLogFd | R::AddMemReg => 1..=1,
        // QEMU sends the region's descriptor with its removal, too.
        R::SetVringKick | R::SetVringCall | R::SetVringErr | R::RemMemReg => 0..=1,
        _ => 0..=0,
    }
}

/// The eventfd beside a message that says whether there is one.
fn eventfd(number: u64, descriptors: Vec<Received>) -> Result<Option<OwnedFd>, Refusal> {
    let wanted = usize::from(number & NO_DESCRIPTOR == 0);
    let count = descriptors.len();
    match descriptors.into_iter().next() {
        Some(one) if wanted == 1 => one.into_eventfd().map(Some).ok_or(Refusal::NoEventfd),
        None if wanted == 0 => Ok(None),
        _ => Err(Malformed::Descriptors(count).into()),
    }
}

fn mtu(number: u64) -> Result<u16, Refusal> {
    // The least of IPv4 (RFC 791), and what the field holds.
    u16::try_from(number).ok().filter(|&mtu| mtu >= 68).ok_or(Refusal::Mtu(number))
}
