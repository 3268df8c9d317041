//! The other side of vhost-user: a guest with its QEMU in one object, which sends and receives
//! frames, and breaks any rule that a test wants broken. Memory is a memfd, and everything in it is
//! reached by [`Memory`], as the switch itself does.

mod driver;

use crate::ring::{Memory, Region};
use crate::vhost::message::{Head, Request};
use crate::wire::features;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where the guest has its memory, and where its front end has it.
pub const GUEST: u64 = 0x1_0000_0000;
/// See above.
pub const USER: u64 = 0x7000_0000_0000;
/// Bytes of each buffer.
pub const BUFFER: u64 = 2048;
/// Bytes of one queue's descriptors and rings, and of its buffers behind them.
const RINGS: u64 = 64 << 10;

/// What a front end is to be.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Features that it agrees on.
    pub features: u64,
    /// Entries of each queue: a power of two, at most 1024.
    pub size: u16,
    /// Pairs of queues.
    pub pairs: u16,
    /// Protocol features that it agrees on.
    pub protocol: u64,
    /// Enables queues before it says its features, as QEMU does.
    pub enables_first: bool,
    /// Its memory cannot be cut short, as of QEMU's `memory-backend-memfd`.
    pub sealed: bool,
}

impl Options {
    /// A device for sockets.
    #[must_use]
    pub fn vsock() -> Self {
        let features = features::COMMON & !features::LOG_ALL;
        Self { features, protocol: 1 << 3, ..Self::default() }
    }
}

impl Default for Options {
    fn default() -> Self {
        let features = features::OFFERED & !features::LOG_ALL;
        // Several queues, and answers where there are none.
        let protocol = 1 << 0 | 1 << 3;
        Self { features, size: 256, pairs: 1, protocol, enables_first: true, sealed: true }
    }
}

/// One queue, from the driver's side.
#[derive(Debug)]
pub struct Half {
    /// Where it lies in the guest's memory.
    pub base: u64,
    size: u16,
    /// Next available index, and the next used one.
    pub next: u16,
    seen: u16,
    free: Vec<u16>,
    /// The eventfd that the switch waits for.
    pub kick: OwnedFd,
    /// The one that the switch rings.
    pub call: OwnedFd,
}

impl Half {
    /// How many entries it has.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Descriptors, available ring and used ring.
    #[must_use]
    pub fn places(&self) -> [u64; 3] {
        [self.base, self.base + (32 << 10), self.base + (40 << 10)]
    }

    fn buffer(&self, index: u16) -> u64 {
        self.base + RINGS + BUFFER * u64::from(index)
    }

    fn bytes(size: u16) -> u64 {
        RINGS + BUFFER * u64::from(size)
    }
}

/// A guest and its front end.
#[derive(Debug)]
pub struct FrontEnd {
    /// The connection.
    pub socket: UnixStream,
    /// The file of its memory.
    pub file: OwnedFd,
    /// The memory, as this process sees it.
    pub memory: Memory,
    /// 0, 2, … it receives into, 1, 3, … it sends from.
    pub queues: Vec<Half>,
    options: Options,
    bytes: u64,
}

impl FrontEnd {
    /// Connects, shares memory, and sets every queue up.
    ///
    /// # Errors
    /// Those of the system, and that the switch closes the connection.
    pub fn connect(path: &Path, options: Options) -> io::Result<Self> {
        let mut one = Self::prepare(UnixStream::connect(path)?, options)?;
        one.set_up()?;
        Ok(one)
    }

    /// Has memory and queues, and has said nothing yet.
    ///
    /// # Errors
    /// Those of the system.
    pub fn prepare(socket: UnixStream, options: Options) -> io::Result<Self> {
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let count = 2 * options.pairs;
        let bytes = Half::bytes(options.size) * u64::from(count);
        ftruncate(&file, bytes)?;
        if options.sealed {
            fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        }
        let region = Region::new(&file, 0, GUEST, bytes, USER);
        let region = region.map_err(|error| io::Error::other(error.to_string()))?;
        let memory = Memory::new(vec![Arc::new(region)], None);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let mut queues = Vec::new();
        for index in 0..count {
            queues.push(Half {
                base: GUEST + Half::bytes(options.size) * u64::from(index),
                size: options.size,
                next: 0,
                seen: 0,
                free: (0..options.size).rev().collect(),
                kick: eventfd(0, flags)?,
                call: eventfd(0, flags)?,
            });
        }
        Ok(Self { socket, file, memory, queues, options, bytes })
    }

    /// Says everything that QEMU says when its guest starts.
    ///
    /// # Errors
    /// That the switch closes the connection.
    pub fn set_up(&mut self) -> io::Result<()> {
        self.number(Request::GetFeatures, &[])?;
        self.number(Request::GetProtocolFeatures, &[])?;
        let protocol = self.options.protocol.to_le_bytes();
        self.tell(Request::SetProtocolFeatures, &protocol, &[])?;
        self.number(Request::GetQueueNum, &[])?;
        self.tell(Request::SetOwner, &[], &[])?;
        if self.options.enables_first {
            self.enable(true)?;
        }
        self.tell(Request::SetFeatures, &self.options.features.to_le_bytes(), &[])?;
        self.share()?;
        for index in 0..self.queues.len() {
            self.start(index, 0)?;
        }
        if !self.options.enables_first {
            self.enable(true)?;
        }
        for index in (0..self.queues.len()).step_by(2) {
            self.fill(index);
        }
        // When this is answered all of the above has been heard.
        self.number(Request::GetFeatures, &[]).map(drop)
    }

    /// Enables every queue, or disables it.
    ///
    /// # Errors
    /// That the connection is closed.
    pub fn enable(&mut self, on: bool) -> io::Result<()> {
        for index in 0..self.queues.len() {
            let state = [(index as u32).to_le_bytes(), u32::from(on).to_le_bytes()].concat();
            self.tell(Request::SetVringEnable, &state, &[])?;
        }
        Ok(())
    }

    /// Shares its memory.
    ///
    /// # Errors
    /// That the connection is closed.
    pub fn share(&self) -> io::Result<()> {
        let table = [1, GUEST, self.bytes, USER, 0].map(u64::to_le_bytes).concat();
        self.tell(Request::SetMemTable, &table, &[&self.file])
    }

    /// Takes its memory away, as if it were unplugged.
    ///
    /// # Errors
    /// That the connection is closed.
    pub fn unplug(&self) -> io::Result<()> {
        let region = [0, GUEST, self.bytes, USER, 0].map(u64::to_le_bytes).concat();
        self.tell(Request::RemMemReg, &region, &[])
    }

    /// Gives it back.
    ///
    /// # Errors
    /// That the connection is closed.
    pub fn plug(&self) -> io::Result<()> {
        let region = [0, GUEST, self.bytes, USER, 0].map(u64::to_le_bytes).concat();
        self.tell(Request::AddMemReg, &region, &[&self.file])
    }

    /// Sets one queue up, from this index on.
    ///
    /// # Errors
    /// That the connection is closed.
    pub fn start(&self, index: usize, base: u16) -> io::Result<()> {
        let half = &self.queues[index];
        let number = (index as u32).to_le_bytes();
        let state = |value: u32| [number, value.to_le_bytes()].concat();
        self.tell(Request::SetVringNum, &state(half.size.into()), &[])?;
        self.tell(Request::SetVringBase, &state(base.into()), &[])?;
        let [descriptors, available, used] = half.places().map(|at| at - GUEST + USER);
        let places = [descriptors, used, available, half.places()[2]].map(u64::to_le_bytes);
        let addresses = [&state(0)[..], &places.concat()].concat();
        self.tell(Request::SetVringAddr, &addresses, &[])?;
        let number = (index as u64).to_le_bytes();
        self.tell(Request::SetVringCall, &number, &[&half.call])?;
        self.tell(Request::SetVringKick, &number, &[&half.kick])
    }

    /// Sends a message.
    ///
    /// # Errors
    /// That the connection is closed.
    pub fn tell(&self, request: Request, payload: &[u8], beside: &[&OwnedFd]) -> io::Result<()> {
        let head = Head { request, need_reply: false, size: payload.len() };
        self.raw(&[&head.bytes(), payload].concat(), beside)
    }

    /// Sends any bytes.
    ///
    /// # Errors
    /// That the connection is closed.
    pub fn raw(&self, bytes: &[u8], beside: &[&OwnedFd]) -> io::Result<()> {
        let descriptors: Vec<_> = beside.iter().map(|one| one.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a message and returns the payload of its answer.
    ///
    /// # Errors
    /// That the connection is closed, or nothing comes.
    pub fn question(&mut self, request: Request, payload: &[u8]) -> io::Result<Vec<u8>> {
        self.tell(request, payload, &[])?;
        self.answer()
    }

    /// The payload of the next answer.
    ///
    /// # Errors
    /// That the connection is closed, or nothing comes.
    pub fn answer(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 12];
        self.socket.read_exact(&mut head)?;
        let size = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let mut payload = vec![0; size.min(4096) as usize];
        self.socket.read_exact(&mut payload)?;
        Ok(payload)
    }

    /// The same where the answer is a number.
    ///
    /// # Errors
    /// See [`Self::question`].
    pub fn number(&mut self, request: Request, payload: &[u8]) -> io::Result<u64> {
        let answer = self.question(request, payload)?;
        Ok(answer.first_chunk().copied().map_or(0, u64::from_le_bytes))
    }
}
