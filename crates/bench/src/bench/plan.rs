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
const SIZES: [usize; 12] =
    [1, 4, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const QUICK_SIZES: [usize; 5] = [1, 64, 4 << 10, 64 << 10, 1 << 20];
/// Message size of the patterns in which something else varies.
const SMALL: usize = 64;
const BULK: usize = 64 << 10;

use Transport::{
    Function, FunctionEmulated, Ginnel, GinnelVeth, Memory, Pipes, Ring, Switch, Tcp, Unix, Veth,
    Virtio, Vsock,
};
const ALL: [Transport; 13] = [
    Ginnel,
    GinnelVeth,
    Ring,
    Tcp,
    Veth,
    Virtio,
    Switch,
    Function,
    FunctionEmulated,
    Unix,
    Pipes,
    Vsock,
    Memory,
];
/// Those that a program is started over as it is; of the namespaces where root may make them, else
/// of loopback.
const PROGRAMS: [Transport; 4] = [Ginnel, GinnelVeth, Tcp, Veth];
const SOCKETS: [Transport; 10] =
    [Ginnel, GinnelVeth, Tcp, Veth, Virtio, Switch, Function, FunctionEmulated, Unix, Vsock];

impl Pattern {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 16] = [
        Self::Latency,
        Self::Paused,
        Self::Rate,
        Self::Stream,
        Self::Both,
        Self::Connect,
        Self::Many,
        Self::Pairs,
        Self::Rings,
        Self::Netpipe,
        Self::Sockperf,
        Self::Iperf3,
        Self::Nginx,
        Self::Redis,
        Self::Memcached,
        Self::Copy,
    ];

    /// Whether it is a real program's, see [`crate::apps`].
    pub fn is_app(self) -> bool {
        self >= Self::Netpipe
    }

    fn values(self, options: &Options) -> Vec<usize> {
        let or = |quick: &[usize], full: &[usize]| match (options.sizes.is_empty(), options.full) {
            (false, _) => options.sizes.clone(),
            (true, true) => full.to_vec(),
            (true, false) => quick.to_vec(),
        };
        let fixed = |quick: &[usize], full: &[usize]| {
            if options.full { full.to_vec() } else { quick.to_vec() }
        };
        match self {
            Self::Latency | Self::Stream => or(&QUICK_SIZES, &SIZES),
            Self::Paused => or(&[SMALL], &[1, SMALL, 1 << 10, 16 << 10]),
            Self::Both => or(&[BULK], &[SMALL, 4 << 10, BULK, 1 << 20]),
            Self::Connect => vec![1],
            Self::Many => fixed(&[1, 10, 100, 1000], &[1, 3, 10, 30, 100, 300, 1000, 3000, 10_000]),
            Self::Pairs => fixed(&[1, 2, 4], &[1, 2, 4, 8]),
            Self::Rate => fixed(&[1000, 10_000], &[1000, 3000, 10_000, 30_000]),
            Self::Netpipe => fixed(&[SMALL], &[SMALL, 4 << 10, BULK]),
            Self::Sockperf => fixed(&[SMALL], &[SMALL, 1 << 10]),
            Self::Iperf3 => fixed(&[1, 8], &[1, 2, 4, 8]),
            Self::Nginx => fixed(&[1, 64, 1024], &[1, 4, 16, 64, 256, 1024]),
            Self::Redis => fixed(&[1, 16], &[1, 4, 16]),
            Self::Memcached => fixed(&[10_000], &[2500, 5000, 10_000, 20_000]),
            Self::Copy => fixed(&[64 << 20], &[64 << 20, 512 << 20]),
            Self::Rings => fixed(
                &[32 << 10, 256 << 10, 1 << 20],
                &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192].map(|k| k << 10),
            ),
        }
    }

    fn transports(self) -> &'static [Transport] {
        match self {
            Self::Latency | Self::Stream => &ALL,
            Self::Paused | Self::Rate | Self::Both => &ALL[..12],
            Self::Pairs => &[
                Ginnel,
                GinnelVeth,
                Tcp,
                Veth,
                Virtio,
                Switch,
                Function,
                FunctionEmulated,
                Unix,
                Pipes,
                Vsock,
            ],
            Self::Connect | Self::Many => &SOCKETS,
            Self::Rings => &[Ginnel, Ring],
            _ => &PROGRAMS,
        }
    }
}

impl Cell {
    /// What varies in its pattern, with the unit.
    pub fn axis(pattern: Pattern) -> &'static str {
        match pattern {
            Pattern::Latency
            | Pattern::Paused
            | Pattern::Stream
            | Pattern::Both
            | Pattern::Netpipe
            | Pattern::Sockperf => "message size",
            Pattern::Rate => "messages a second",
            Pattern::Connect => "connection",
            Pattern::Many | Pattern::Nginx => "connections",
            Pattern::Iperf3 => "streams",
            Pattern::Redis => "requests in flight on each connection",
            Pattern::Memcached => "requests a second",
            Pattern::Copy => "size of the file",
            Pattern::Pairs => "pairs of processes",
            Pattern::Rings => "ring size",
        }
    }

    /// All cells that these options ask for. Those of one pattern and size stand together: they are
    /// measured one after another.
    pub fn all(options: &Options) -> Vec<Self> {
        let namespaces = rustix::process::geteuid().is_root();
        let wanted = |pattern: Pattern, transport: &Transport| match &options.transport[..] {
            [] => !pattern.is_app() || transport.is_veth() == namespaces,
            list => list.contains(transport),
        };
        let reachable = |transport: &Transport| match transport.is_way() {
            true => options.way.iter().any(|way| way.0 == *transport),
            false => options.connect.is_none() || matches!(transport, Ginnel | Tcp),
        };
        let mut cells = Vec::new();
        for pattern in Pattern::ALL {
            let asked = match &options.pattern[..] {
                [] => !pattern.is_app(),
                list => list.contains(&pattern),
            };
            if !(asked || options.apps && pattern.is_app())
                || options.connect.is_some() && pattern.is_app()
            {
                continue;
            }
            for x in pattern.values(options) {
                for &transport in
                    pattern.transports().iter().filter(|t| wanted(pattern, t) && reachable(t))
                {
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
            Pattern::Rings => BULK,
            Pattern::Memcached => crate::work::RECORD,
            _ => SMALL,
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
            connections: match self.pattern {
                Pattern::Many => self.x,
                Pattern::Memcached => 16,
                _ => 1,
            },
            seconds,
            // Ginnel's connections move while the others only get warm.
            warm_up: if self.pattern == Pattern::Paused {
                0.005
            } else {
                (seconds / 4.0).clamp(0.02, 0.1)
            },
            pause_us: if self.pattern == Pattern::Paused { 1000 } else { 0 },
            rate: if matches!(self.pattern, Pattern::Rate | Pattern::Memcached) {
                self.x
            } else {
                0
            },
            cpu,
            host_cpu: None,
        }
    }

    /// Ring size that Ginnel is given, where that is what varies.
    pub fn ring(self) -> Option<usize> {
        (self.pattern == Pattern::Rings).then_some(self.x)
    }

    /// Ring size where there is nothing but the ring: what a connection's rings have grown to that
    /// carries the same. In the caches where one message at a time is under way.
    pub fn bare_ring(self) -> usize {
        let grown = match self.pattern {
            Pattern::Stream | Pattern::Both => 1 << 20,
            _ => (4 * self.size()).next_power_of_two().clamp(32 << 10, 1 << 20),
        };
        self.ring().unwrap_or(grown)
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
            assert_eq!(all.iter().map(|cell| cell.pattern).collect::<BTreeSet<_>>().len(), 9);
        }
    }

    #[test]
    fn programs_are_measured_on_request_plainly_and_with_ginnel() {
        let all = cells(&["--apps"]);
        assert_eq!(
            all.iter().map(|cell| cell.pattern).collect::<BTreeSet<_>>().len(),
            Pattern::ALL.len()
        );
        for cell in all.iter().filter(|cell| cell.pattern.is_app()) {
            let of_it = |ginnel| {
                all.iter()
                    .filter(|c| {
                        (c.pattern, c.x) == (cell.pattern, cell.x)
                            && c.transport.is_ginnel() == ginnel
                    })
                    .count()
            };
            assert_eq!((of_it(true), of_it(false)), (1, 1), "{cell:?}");
        }
        let only = cells(&["--pattern", "nginx", "--transport", "ginnel,tcp"]);
        assert!(only.iter().all(|cell| cell.pattern == Pattern::Nginx) && only.len() == 6);
        assert!(cells(&["--pattern", "nginx", "--connect", "127.0.0.1"]).is_empty());
        assert!(
            cells(&["--pattern", "latency", "--apps"])
                .iter()
                .any(|cell| cell.pattern == Pattern::Copy)
        );
    }

    #[test]
    fn options_choose() {
        let all =
            cells(&["--pattern", "latency", "--transport", "tcp,memory", "--sizes", "64,128"]);
        assert_eq!(
            all.iter().map(|c| (c.x, c.transport)).collect::<Vec<_>>(),
            [(64, Tcp), (64, Memory), (128, Tcp)]
        );
        let far = cells(&["--connect", "127.0.0.1"]);
        assert!(far.iter().all(|cell| matches!(cell.transport, Ginnel | Tcp)) && far.len() > 10);
        let ways = [
            "--connect",
            "127.0.0.1",
            "--way",
            "virtio=127.0.0.2",
            "--way",
            "function-emulated=127.0.0.3",
        ];
        let by = |pattern| {
            let of_it = cells(&ways)
                .into_iter()
                .filter(move |cell| cell.pattern == pattern && cell.x <= 64);
            of_it.map(|cell| cell.transport).collect::<BTreeSet<_>>()
        };
        let all = BTreeSet::from([Ginnel, Tcp, Virtio, FunctionEmulated]);
        assert!(
            by(Pattern::Latency) == all && by(Pattern::Many) == all && by(Pattern::Pairs) == all
        );
    }
}
