//! The other side of vhost-user: a guest with its QEMU in one object, which sends and receives
//! frames, and breaks any rule that a test wants broken. Memory is a memfd, and everything in it is
//! reached by [`Memory`], as the switch itself does.

use crate::ring::{Memory, Region};
use crate::vhost::message::{Head, Request};
use crate::wire::{HEADER, features};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Where the guest has its memory, and where its front end has it.
pub const GUEST: u64 = 0x1_0000_0000;
/// See above.
pub const USER: u64 = 0x7000_0000_0000;
/// Bytes of each buffer.
pub const BUFFER: u64 = 2048;
/// Bytes of one queue's descriptors and rings, and of its buffers behind them.
const RINGS: u64 = 64 << 10;

const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// What a front end is to be.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Features that it agrees on.
    pub features: u64,
    /// Entries of each queue: a power of two, at most 1024.
    pub size: u16,
    /// Pairs of queues.
    pub pairs: u16,
    /// Enables queues before it says its features, as QEMU does.
    pub enables_first: bool,
}

impl Default for Options {
    fn default() -> Self {
        let features = features::OFFERED & !features::LOG_ALL;
        Self { features, size: 256, pairs: 1, enables_first: true }
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
        let file = memfd_create("guest", MemfdFlags::CLOEXEC)?;
        let count = 2 * options.pairs;
        let bytes = Half::bytes(options.size) * u64::from(count);
        ftruncate(&file, bytes)?;
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
        self.tell(Request::SetProtocolFeatures, &0x9_u64.to_le_bytes(), &[])?;
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

    /// Writes into the guest's memory, wherever that is.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        if let Some(place) = self.memory.slice(at, bytes.len() as u64) {
            place.write(bytes);
        }
    }

    /// Reads from it.
    #[must_use]
    pub fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        if let Some(place) = self.memory.slice(at, N as u64) {
            place.read(&mut bytes);
        }
        bytes
    }

    fn word(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.read(at))
    }

    /// Writes a descriptor.
    pub fn describe(&self, queue: usize, index: u16, at: u64, len: u32, flags: u16, next: u16) {
        let (len, flags, next) = (len.to_le_bytes(), flags.to_le_bytes(), next.to_le_bytes());
        let bytes = [&at.to_le_bytes()[..], &len, &flags, &next].concat();
        self.write(self.queues[queue].places()[0] + 16 * u64::from(index), &bytes);
    }

    /// Makes a chain available, and kicks where the switch wants that.
    pub fn offer(&mut self, queue: usize, head: u16) {
        let half = &self.queues[queue];
        let ([_, available, used], size) = (half.places(), u64::from(half.size));
        let (was, next) = (half.next, half.next.wrapping_add(1));
        let place = available + 4 + 2 * (u64::from(was) % size);
        self.write(place, &head.to_le_bytes());
        fence(Ordering::Release);
        self.write(available + 2, &next.to_le_bytes());
        self.queues[queue].next = next;
        fence(Ordering::SeqCst);
        let wanted = if self.options.features & features::EVENT_IDX != 0 {
            let event = self.word(used + 4 + 8 * size);
            next.wrapping_sub(event).wrapping_sub(1) < next.wrapping_sub(was)
        } else {
            self.word(used) & 1 == 0
        };
        if wanted {
            self.kick(queue);
        }
    }

    /// Kicks a queue.
    pub fn kick(&self, queue: usize) {
        // A full counter has been kicked.
        let _ = rustix::io::write(&self.queues[queue].kick, &1u64.to_ne_bytes());
    }

    /// Makes every free buffer available to be received into.
    pub fn fill(&mut self, queue: usize) {
        while let Some(index) = self.queues[queue].free.pop() {
            let at = self.queues[queue].buffer(index);
            self.describe(queue, index, at, BUFFER as u32, WRITE, 0);
            self.offer(queue, index);
        }
    }

    /// The next used entry: its head, and the bytes written.
    pub fn used(&mut self, queue: usize) -> Option<(u16, u32)> {
        let half = &self.queues[queue];
        let (used, seen, size) = (half.places()[2], half.seen, u64::from(half.size));
        if self.word(used + 2) == seen {
            return None;
        }
        fence(Ordering::Acquire);
        let entry: [u8; 8] = self.read(used + 4 + 8 * (u64::from(seen) % size));
        let [a, b, c, d, e, f, g, h] = entry;
        self.queues[queue].seen = seen.wrapping_add(1);
        let (head, len) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        Some((head as u16, len))
    }

    /// Sends a frame behind a header of zeroes.
    pub fn send(&mut self, queue: usize, frame: &[u8]) -> bool {
        let header = crate::port::header_len(self.options.features);
        self.send_with(queue, &[0; HEADER][..header], frame)
    }

    /// Sends a frame behind this header, in as many descriptors as it takes. False where too few
    /// are free.
    pub fn send_with(&mut self, queue: usize, header: &[u8], frame: &[u8]) -> bool {
        while let Some((head, _)) = self.used(queue) {
            self.release(queue, head);
        }
        let bytes = [header, frame].concat();
        let pieces: Vec<&[u8]> = bytes.chunks(BUFFER as usize).collect();
        if self.queues[queue].free.len() < pieces.len() {
            return false;
        }
        let indices: Vec<u16> =
            pieces.iter().filter_map(|_| self.queues[queue].free.pop()).collect();
        for (place, (piece, &index)) in pieces.iter().zip(&indices).enumerate() {
            let at = self.queues[queue].buffer(index);
            self.write(at, piece);
            let next = indices.get(place + 1);
            let flags = if next.is_some() { NEXT } else { 0 };
            self.describe(queue, index, at, piece.len() as u32, flags, next.copied().unwrap_or(0));
        }
        self.offer(queue, indices[0]);
        true
    }

    /// A chain that was sent is free again.
    fn release(&mut self, queue: usize, head: u16) {
        let mut index = head;
        for _ in 0..self.queues[queue].size {
            let at = self.queues[queue].places()[0] + 16 * u64::from(index);
            let descriptor: [u8; 16] = self.read(at);
            self.queues[queue].free.push(index);
            if descriptor[12] & NEXT as u8 == 0 {
                return;
            }
            index = u16::from_le_bytes([descriptor[14], descriptor[15]]);
        }
    }

    /// The next frame behind its header, put together from its buffers, which are made available
    /// again.
    pub fn receive_with(&mut self, queue: usize) -> Option<Vec<u8>> {
        let mut frame: Vec<u8> = Vec::new();
        let mut left = 1;
        while left > 0 {
            // All buffers of a frame are published at once.
            let (index, len) = self.used(queue)?;
            let mut piece = vec![0; len as usize];
            if let Some(place) = self.memory.slice(self.queues[queue].buffer(index), len.into()) {
                place.read(&mut piece);
            }
            if frame.is_empty() && self.options.features & features::MRG_RXBUF != 0 {
                left = u16::from_le_bytes([piece[10], piece[11]]);
            }
            frame.extend(piece);
            self.queues[queue].free.push(index);
            left -= 1;
        }
        self.fill(queue);
        Some(frame)
    }

    /// The next frame.
    pub fn receive(&mut self, queue: usize) -> Option<Vec<u8>> {
        let header = crate::port::header_len(self.options.features);
        self.receive_with(queue).map(|frame| frame[header..].to_vec())
    }

    /// Waits for a frame, asleep until the switch interrupts.
    pub fn wait(&mut self, queue: usize, limit: Duration) -> Option<Vec<u8>> {
        let until = std::time::Instant::now() + limit;
        loop {
            if let Some(frame) = self.receive(queue) {
                return Some(frame);
            }
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return None;
            }
            self.arm(queue);
            if let Some(frame) = self.receive(queue) {
                return Some(frame);
            }
            let mut polled = [rustix::event::PollFd::new(
                &self.queues[queue].call,
                rustix::event::PollFlags::IN,
            )];
            let limit = rustix::event::Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            let _ = rustix::event::poll(&mut polled, Some(&limit));
            // Another interrupt may come while this one is taken.
            let _ = rustix::io::read(&self.queues[queue].call, &mut [0u8; 8]);
        }
    }

    /// Asks the switch to interrupt at the next used entry.
    pub fn arm(&self, queue: usize) {
        let half = &self.queues[queue];
        let event = half.places()[1] + 4 + 2 * u64::from(half.size);
        self.write(event, &half.seen.to_le_bytes());
        fence(Ordering::SeqCst);
    }
}
