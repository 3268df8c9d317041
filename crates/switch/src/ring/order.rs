//! Chains go back to the guest in the order in which they were taken, also where the bytes of one
//! are still being sent in place while those behind it are done.
//!
//! Virtio would allow any order. But a device that is killed leaves nothing behind than the used
//! ring's index, and QEMU has the next one go on at the entry of the available ring that has this
//! number: exactly those chains must have been given back that lie before it. (As in Linux'
//! `drivers/vhost/net.c`, `vhost_zerocopy_signal_used`.)

use super::memory::Memory;
use super::split::Ring;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many numbers a ring has for its chains.
const NUMBERS: u64 = 1 << 40;

/// A chain that was taken and not given back.
#[derive(Debug, Clone, Copy)]
struct Chain {
    head: u16,
    /// Bytes that were written into it.
    len: u32,
    lent: bool,
}

/// Chains from the first that is lent on.
#[derive(Debug)]
pub(super) struct Order {
    chains: VecDeque<Chain>,
    /// The first one's number. No other ring of this process has the same ones.
    first: u64,
}

impl Order {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { chains: VecDeque::new(), first: NEXT.fetch_add(NUMBERS, Ordering::Relaxed) }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.chains.len()
    }

    /// A chain is done with, behind one that is lent.
    pub(super) fn push(&mut self, head: u16, len: u32) {
        self.chains.push_back(Chain { head, len, lent: false });
    }
}

impl Ring {
    /// The number that the chain which was taken last has if it is [lent](Self::lend).
    #[must_use]
    #[inline]
    pub fn number(&self) -> u64 {
        self.order.first + self.order.chains.len() as u64
    }

    /// Keeps the chain that was taken last, while its bytes are sent where they are, until its
    /// [number](Self::number) is [given back](Self::give_back).
    pub fn lend(&mut self, head: u16) {
        self.order.chains.push_back(Chain { head, len: 0, lent: true });
    }

    /// A chain that was lent is done with. Gives back what can be given back now: is there
    /// anything to publish? A number of another ring, or one that came already, changes nothing.
    pub fn give_back(&mut self, memory: &Memory, number: u64) -> bool {
        self.settle(number) && self.give_back_settled(memory)
    }

    /// A chain that was lent is done with, and stays. False: it is none of this ring's.
    pub fn settle(&mut self, number: u64) -> bool {
        let place = number.checked_sub(self.order.first).and_then(|n| usize::try_from(n).ok());
        let chain = place.and_then(|place| self.order.chains.get_mut(place));
        chain.map(|chain| chain.lent = false).is_some()
    }

    /// Gives back what waits for no chain that is lent. Is there any?
    #[inline(always)]
    pub(super) fn give_back_settled(&mut self, memory: &Memory) -> bool {
        let mut any = false;
        while let Some(&Chain { head, len, lent: false }) = self.order.chains.front() {
            self.order.chains.pop_front();
            self.order.first += 1;
            self.write_used(memory, head, len);
            any = true;
        }
        any
    }

    /// Goes on where another one of the same queue stood, which lay elsewhere: with its chains that
    /// are lent, and those that were settled since: they go back with the next that are published.
    pub fn go_on_from(&mut self, memory: &Memory, before: Ring) {
        self.follow(before.next);
        self.order = before.order;
        self.mute(memory);
    }
}
