//! The guest's driver: what it writes into its memory, and reads there.

use super::{BUFFER, FrontEnd};
use crate::wire::{HEADER, features};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

const NEXT: u16 = 1;
const WRITE: u16 = 2;

impl FrontEnd {
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
        let header = crate::port::header_len(self.options.features);
        self.wait_with(queue, limit).map(|frame| frame[header..].to_vec())
    }

    /// The same with its header.
    pub fn wait_with(&mut self, queue: usize, limit: Duration) -> Option<Vec<u8>> {
        let until = std::time::Instant::now() + limit;
        loop {
            if let Some(frame) = self.receive_with(queue) {
                return Some(frame);
            }
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return None;
            }
            self.arm(queue);
            if let Some(frame) = self.receive_with(queue) {
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
