//! One connection: its two ends, what each may be sent, and what waits for it.
//!
//! Credit (virtio 1.2, 5.10.6.3): each end says how much it can keep (`buf_alloc`) and how much it
//! has taken out (`fwd_cnt`), and is sent no more. Ends of two machines tell each other; the hub
//! passes it on, keeps account, and resets a connection whose end breaks it.

use super::packet::{Address, Header, Op, STREAM};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// What the hub keeps for a program of the host: `buf_alloc` of its end.
pub const WINDOW: u32 = 256 << 10;
/// The largest credit that is believed: so that a comparison of counters that wrap is one.
const MOST: u32 = 1 << 30;

/// Where an end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum At {
    /// In a machine, by its place in the hub.
    Machine(u32),
    /// In a program of the host.
    Host,
}

/// What is still to be told to an end, beside data.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Bytes.
    pub data: VecDeque<u8>,
    /// Operations, one bit each.
    ops: u8,
    /// Flags of a SHUTDOWN.
    pub flags: u32,
    /// The connection is in its machine's list.
    pub listed: bool,
}

impl Waiting {
    /// Adds an operation.
    pub fn add(&mut self, op: Op, flags: u32) {
        self.ops |= 1 << op as u16;
        self.flags |= flags;
    }

    /// Is this to be told?
    #[must_use]
    pub fn has(&self, op: Op) -> bool {
        self.ops & 1 << op as u16 != 0
    }

    /// It was told.
    pub fn done(&mut self, op: Op) {
        self.ops &= !(1 << op as u16);
    }

    /// Is there nothing?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.ops == 0
    }

    /// What is to be told next: who connects, then data, then the rest.
    #[must_use]
    pub fn next(&self) -> Option<Op> {
        let data = if self.data.is_empty() { None } else { Some(Op::Rw) };
        let first = [Op::Request, Op::Response].into_iter().find(|&op| self.has(op));
        let rest = [Op::CreditUpdate, Op::CreditRequest, Op::Shutdown, Op::Rst];
        first.or(data).or_else(|| rest.into_iter().find(|&op| self.has(op)))
    }
}

/// One end.
#[derive(Debug)]
pub struct End {
    /// Where it is.
    pub at: At,
    /// Its address.
    pub address: Address,
    /// What it said last.
    pub buf_alloc: u32,
    /// See above.
    pub fwd_cnt: u32,
    /// Up to where it may be sent, of the other end's `sent`. Never goes back.
    edge: u32,
    /// Bytes that came from it.
    pub sent: u32,
    /// What waits for it.
    pub waiting: Waiting,
    /// It has shut down: flags.
    pub shut: u32,
}

impl End {
    /// One of which nothing is known but where it is.
    #[must_use]
    pub fn new(at: At, address: Address) -> Self {
        let waiting = Waiting::default();
        Self { at, address, buf_alloc: 0, fwd_cnt: 0, edge: 0, sent: 0, waiting, shut: 0 }
    }

    /// It says how much it can keep and has taken, of which `given` bytes it was given. False where
    /// it says that it took more.
    #[must_use]
    pub fn announce(&mut self, buf_alloc: u32, fwd_cnt: u32, given: u32) -> bool {
        if given.wrapping_sub(fwd_cnt) > u32::MAX / 2 {
            return false;
        }
        (self.buf_alloc, self.fwd_cnt) = (buf_alloc, fwd_cnt);
        let edge = fwd_cnt.wrapping_add(buf_alloc.min(MOST));
        // What it promised once it may have been sent.
        if edge.wrapping_sub(self.edge) <= u32::MAX / 2 {
            self.edge = edge;
        }
        true
    }

    /// How many bytes it may be sent, having been sent `sent`.
    #[must_use]
    pub fn credit(&self, sent: u32) -> u32 {
        let left = self.edge.wrapping_sub(sent);
        if left > u32::MAX / 2 { 0 } else { left }
    }
}

/// What a connection has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The first end asks the second.
    Asked,
    /// Data goes both ways.
    Open,
    /// Its ends are being told that it is over.
    Ending,
    /// Nothing more is heard of it; an end may still have to be told, or given what waits for it.
    Over,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// The one that connected, and the other.
    pub ends: [End; 2],
    /// See there.
    pub state: State,
    /// When it began, seconds.
    pub began: u32,
    /// The stream of the program of the host that is one of the ends.
    pub stream: Option<Stream>,
}

/// A stream of the host.
#[derive(Debug)]
pub struct Stream {
    /// The socket.
    pub socket: OwnedFd,
    /// It may have something to read.
    pub readable: bool,
    /// `fwd_cnt` as the machine was told it last.
    pub told: u32,
}

impl Connection {
    /// The header of a packet to an end.
    pub fn header(&mut self, to: usize, op: Op) -> Header {
        let [one, two] = &mut self.ends;
        let (to, from) = if to == 0 { (one, two) } else { (two, one) };
        if let Some(stream) = &mut self.stream {
            stream.told = from.fwd_cnt;
        }
        Header {
            from: from.address,
            to: to.address,
            len: 0,
            kind: STREAM,
            op: op as u16,
            flags: if op == Op::Shutdown { to.waiting.flags } else { 0 },
            buf_alloc: from.buf_alloc,
            fwd_cnt: from.fwd_cnt,
        }
    }

    /// Bytes that an end was given, of those that the other sent.
    #[must_use]
    pub fn given(&self, to: usize) -> u32 {
        self.ends[1 - to].sent.wrapping_sub(self.ends[to].waiting.data.len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_does_not_shrink_and_wraps() {
        let mut end = End::new(At::Host, Address { cid: 2, port: 1 });
        assert_eq!(end.credit(0), 0);
        assert!(end.announce(100, 0, 0));
        assert_eq!((end.credit(0), end.credit(100), end.credit(101)), (100, 0, 0));
        // Whoever was promised more may have sent it.
        assert!(end.announce(10, 0, 50));
        assert_eq!(end.credit(50), 50);
        assert!(end.announce(100, 60, 60) && end.credit(60) == 100);
        assert!(!end.announce(100, 61, 60), "it has taken more than it was given");
        let mut end = End::new(At::Host, Address { cid: 2, port: 1 });
        end.edge = u32::MAX - 5;
        assert!(end.announce(100, u32::MAX - 50, u32::MAX - 50));
        assert_eq!(end.credit(u32::MAX - 50), 100);
        assert_eq!(end.credit(20), 29);
    }

    #[test]
    fn what_waits_goes_in_its_order() {
        let mut waiting = Waiting::default();
        for op in Op::ALL.into_iter().rev().filter(|&op| op != Op::Rw) {
            waiting.add(op, 0);
        }
        waiting.data.extend([1]);
        let mut order = Vec::new();
        while let Some(op) = waiting.next() {
            order.push(op as u16);
            if op == Op::Rw {
                waiting.data.clear();
            }
            waiting.done(op);
        }
        assert_eq!(order, [1, 2, 5, 6, 7, 4, 3]);
        assert!(waiting.is_empty());
    }
}
