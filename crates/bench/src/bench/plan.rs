//! What is measured: the cells of patterns × transports × sizes, and how a sample of each is taken.

use crate::args::{Options, Pattern, Transport};
use crate::work::Task;
use serde::{Deserialize, Serialize};

/// One thing that is measured, once in every round.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Cell {
    /// What the ends do.
    pub pattern: Pattern,
    /// What varies, see [`Cell::axis`].
    pub x: usize,
    /// What carries the bytes.
    pub transport: Transport,
}

/// Every fourth power of two from 1 B to 4 MiB.
const SIZES: [usize; 12] = [1, 4, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const QUICK_SIZES: [usize; 5] = [1, 64, 4 << 10, 64 << 10, 1 << 20];
/// Message size of the patterns in which something else varies.
const SMALL: usize = 64;
const BULK: usize = 64 << 10;

use Transport::{Ginnel, GinnelVeth, Memory, Pipes, Tcp, Unix, Veth, Vsock};
const ALL: [Transport; 8] = [Ginnel, GinnelVeth, Tcp, Veth, Unix, Pipes, Vsock, Memory];
const SOCKETS: [Transport; 6] = [Ginnel, GinnelVeth, Tcp, Veth, Unix, Vsock];

impl Pattern {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 8] =
        [Self::Latency, Self::Paused, Self::Stream, Self::Both, Self::Connect, Self::Many, Self::Pairs, Self::Rings];

    fn values(self, options: &Options) -> Vec<usize> {
        let or = |quick: &[usize], full: &[usize]| match (options.sizes.is_empty(), options.full) {
            (false, _) => options.sizes.clone(),
            (true, true) => full.to_vec(),
            (true, false) => quick.to_vec(),
        };
        let fixed = |quick: &[usize], full: &[usize]| if options.full { full.to_vec() } else { quick.to_vec() };
        match self {
            Self::Latency | Self::Stream => or(&QUICK_SIZES, &SIZES),
            Self::Paused => or(&[SMALL], &[1, SMALL, 1 << 10, 16 << 10]),
            Self::Both => or(&[BULK], &[SMALL, 4 << 10, BULK, 1 << 20]),
            Self::Connect => vec![1],
            Self::Many => fixed(&[1, 10, 100, 1000], &[1, 3, 10, 30, 100, 300, 1000, 3000, 10_000]),
            Self::Pairs => fixed(&[1, 2, 4], &[1, 2, 4, 8]),
            Self::Rings => {
                fixed(&[32 << 10, 256 << 10, 1 << 20], &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192].map(|k| k << 10))
            }
        }
    }

    fn transports(self) -> &'static [Transport] {
        match self {
            Self::Latency | Self::Stream => &ALL,
            Self::Paused | Self::Both | Self::Pairs => &ALL[..7],
            Self::Connect | Self::Many => &SOCKETS,
            Self::Rings => &[Ginnel],
        }
    }
}

impl Cell {
    /// What varies in its pattern, with the unit.
    pub fn axis(pattern: Pattern) -> &'static str {
        match pattern {
            Pattern::Latency | Pattern::Paused | Pattern::Stream | Pattern::Both => "message size, B",
            Pattern::Connect => "connection",
            Pattern::Many => "connections",
            Pattern::Pairs => "pairs of processes",
            Pattern::Rings => "ring size, B",
        }
    }

    /// All cells that these options ask for. Those of one pattern and size stand together: they are measured one after another.
    pub fn all(options: &Options) -> Vec<Self> {
        let wanted = |list: &[Transport], transport: &Transport| list.is_empty() || list.contains(transport);
        let reachable = |transport: &Transport| options.connect.is_none() || matches!(transport, Ginnel | Tcp);
        let mut cells = Vec::new();
        for pattern in Pattern::ALL {
            if !options.pattern.is_empty() && !options.pattern.contains(&pattern) {
                continue;
            }
            for x in pattern.values(options) {
                for &transport in pattern.transports().iter().filter(|t| wanted(&options.transport, t) && reachable(t)) {
                    let exists = transport != Memory || pattern != Pattern::Latency || x <= SMALL;
                    if exists {
                        cells.push(Self { pattern, x, transport });
                    }
                }
            }
        }
        cells
    }

    /// Bytes of a message.
    pub fn size(self) -> usize {
        match self.pattern {
            Pattern::Latency | Pattern::Paused | Pattern::Stream | Pattern::Both => self.x,
            Pattern::Connect => 1,
            Pattern::Many | Pattern::Pairs => SMALL,
            Pattern::Rings => BULK,
        }
    }

    /// Pairs of processes at once.
    pub fn pairs(self) -> usize {
        if self.pattern == Pattern::Pairs { self.x } else { 1 }
    }

    /// What one end does in a sample of so many seconds.
    pub fn task(self, server: bool, address: String, seconds: f64, cpu: Option<usize>) -> Task {
        Task {
            server,
            pattern: self.pattern,
            address,
            size: self.size(),
            connections: if self.pattern == Pattern::Many { self.x } else { 1 },
            seconds,
            // Ginnel's connections move while the others only get warm.
            warm_up: if self.pattern == Pattern::Paused { 0.005 } else { (seconds / 4.0).clamp(0.02, 0.1) },
            pause_us: if self.pattern == Pattern::Paused { 1000 } else { 0 },
            cpu,
        }
    }

    /// Ring size that Ginnel is given, where that is what varies.
    pub fn ring(self) -> Option<usize> {
        (self.pattern == Pattern::Rings).then_some(self.x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;
    use std::collections::BTreeSet;

    fn cells(arguments: &[&str]) -> Vec<Cell> {
        Cell::all(&Cli::try_parse_from([&["b"], arguments].concat()).unwrap().options)
    }

    #[test]
    fn every_cell_is_there_once() {
        for arguments in [&[][..], &["--full"], &["--sizes", "1,2"]] {
            let all = cells(arguments);
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
            assert_eq!(all.iter().map(|cell| cell.pattern).collect::<BTreeSet<_>>().len(), 8);
        }
    }

    #[test]
    fn options_choose() {
        let all = cells(&["--pattern", "latency", "--transport", "tcp,memory", "--sizes", "64,128"]);
        assert_eq!(all.iter().map(|c| (c.x, c.transport)).collect::<Vec<_>>(), [(64, Tcp), (64, Memory), (128, Tcp)]);
        let far = cells(&["--connect", "127.0.0.1"]);
        assert!(far.iter().all(|cell| matches!(cell.transport, Ginnel | Tcp)) && far.len() > 10);
    }
}
