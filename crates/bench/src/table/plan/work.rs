//! What two processes do, and what carries their bytes.

/// What carries the bytes of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A reference that needs no sockets: the mode's name in `programs/references.c`.
    Shared(&'static str),
    /// A named object without sockets: a mode of `ginnel-bench-objects`.
    Object(&'static str),
    /// A Unix stream socket.
    Unix,
    /// TCP on loopback.
    Tcp,
    /// TCP over two veth pairs and a bridge.
    Veth,
    /// Ginnel on loopback, with the default segment.
    Ginnel,
    /// Ginnel on loopback, in a segment that forces tokens.
    GinnelTokens,
    /// Ginnel between the two network namespaces of [`Carrier::Veth`].
    GinnelVeth,
    /// TCP between two virtual machines, over virtio-net and a switch in a process of the host.
    Virtio,
    /// The same by a bridge of the host's kernel and tap devices.
    Tap,
    /// Ginnel between the two machines, by the driver.
    GinnelGuests,
    /// Ginnel between the two machines without the driver: by sysfs, with tokens.
    GinnelSysfs,
    /// TCP on loopback, shortened by the kernel's sockmap.
    Sockmap,
    /// UCX over shared memory, by this test of `ucx_perftest`.
    Ucx(&'static str),
    /// A queue of boost.interprocess's.
    Boost,
    /// Publishing and subscribing by iceoryx2, without copies.
    Iceoryx2,
}

impl Carrier {
    /// Whether the programs run under `ginnel run`.
    pub fn is_ginnel(self) -> bool {
        matches!(
            self,
            Self::Ginnel
                | Self::GinnelTokens
                | Self::GinnelVeth
                | Self::GinnelGuests
                | Self::GinnelSysfs
        )
    }

    /// Whether it is another project's, measured only with `--peers`.
    pub fn is_peer(self) -> bool {
        matches!(self, Self::Sockmap | Self::Ucx(_) | Self::Boost | Self::Iceoryx2)
    }

    /// Whether each sample says which share of its bytes went the way that is measured: the rest
    /// went over TCP.
    pub fn is_counted(self) -> bool {
        self.is_ginnel() || self == Self::Sockmap
    }

    /// Whether the programs run in the two network namespaces.
    pub fn is_veth(self) -> bool {
        matches!(self, Self::Veth | Self::GinnelVeth)
    }

    /// Whether the programs run in two virtual machines.
    pub fn is_guests(self) -> bool {
        matches!(self, Self::Virtio | Self::Tap | Self::GinnelGuests | Self::GinnelSysfs)
    }
}

/// What the two processes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// 64 B ping-pong without pauses, in this mode of `programs/pingpong.c`: half a round trip in
    /// ns.
    PingPong(&'static str),
    /// 64 B ping-pong with both processes on one core: half a round trip in ns.
    OneCore,
    /// 64 B messages after pauses of 1 ms, in this mode: one way in ns, to a sleeping receiver.
    Paused(&'static str),
    /// Ping-pong of larger messages, blocking: half a round trip in ns.
    Large(usize),
    /// 64 B ping-pong in which each exchange is timed by itself: the slowest of a thousand over the
    /// median.
    Tail,
    /// A stream of writes of this many bytes: bytes per second.
    Stream(usize),
    /// Streams of writes of 64 KiB in both directions at once: bytes per second, both together.
    Both,
    /// Copying pieces of 64 KiB within the third cache by one core: bytes per second.
    Memcpy,
    /// Ping-pong of 64 B on 100 connections at once, beside others that are idle, up to so many:
    /// exchanges per second.
    Crowd(usize),
    /// Ping-pong of 64 B by so many pairs of processes at once on both processors, wherever the
    /// kernel lets them run: exchanges per second, together.
    Pairs(usize),
    /// The same, where each pair has one end on the first processor and one on the second.
    PairsApart(usize),
    /// So many processes on one processor that do nothing but give way: changes of processes per
    /// second. What pairs that share a processor need two of for an exchange.
    Changes(usize),
    /// Ping-pong of 64 B between the processors, on each of which another process works without a
    /// pause: exchanges per second.
    Beside,
    /// The same, with both ends and one such process on one processor.
    BesideOneCore,
    /// Connections made one after another, one byte to and fro on each: connections per second.
    Connect,
    /// Many open connections ([`Work::connections`]), both processes asleep: CPU time of both, or
    /// of both virtual machines, in percent of a core.
    Idle,
    /// Ping-pong of 64 B between two programs in Go on so many connections at once: exchanges per
    /// second.
    Go(usize),
    /// The same, with another process on each processor that works without a pause.
    GoBeside(usize),
    /// A stream of writes of this many bytes between two programs in Go: bytes per second.
    GoStream(usize),
    /// Taking a lock that nobody else wants, and giving it back: ns.
    Lock,
    /// The same by two processes at once, without a pause: locks per second, of both.
    Contended,
    /// In a program in Go a system call that is not about sockets: ns.
    GoCall,
    /// Reading values of 1 KiB from memcached, one every 5 ms: from request to answer in ns.
    Getter,
}

impl Work {
    /// Pairs of processes at once.
    pub fn pairs(self) -> usize {
        if let Self::Pairs(count) | Self::PairsApart(count) = self { count } else { 1 }
    }

    /// Is its value exchanges, or connections, per second?
    pub fn is_rate(self) -> bool {
        matches!(
            self,
            Self::Crowd(_)
                | Self::Pairs(_)
                | Self::PairsApart(_)
                | Self::Changes(_)
                | Self::Beside
                | Self::BesideOneCore
                | Self::Connect
                | Self::Go(_)
                | Self::GoBeside(_)
                | Self::Contended
        )
    }

    /// Which of the two processors the server is on, and which the client.
    pub fn places(self) -> [usize; 2] {
        if matches!(self, Self::OneCore | Self::BesideOneCore | Self::Changes(_)) {
            [0, 0]
        } else {
            [0, 1]
        }
    }

    /// The processors on which another process is busy meanwhile.
    pub fn busy(self) -> &'static [usize] {
        match self {
            Self::Beside | Self::GoBeside(_) => &[0, 1],
            Self::BesideOneCore => &[0],
            _ => &[],
        }
    }

    /// The pattern of `ginnel bench` that it is, if it is one.
    pub fn task(self) -> Option<&'static str> {
        match self {
            Self::Both => Some("both"),
            Self::Pairs(_) | Self::PairsApart(_) => Some("pairs"),
            Self::Connect => Some("connect"),
            _ => None,
        }
    }

    /// The workload program that does it, of both roles.
    pub fn program(self) -> &'static str {
        match self {
            Self::PingPong(_)
            | Self::Paused(_)
            | Self::OneCore
            | Self::Large(_)
            | Self::Tail
            | Self::Beside
            | Self::BesideOneCore => "pingpong",
            Self::Changes(_) | Self::Lock | Self::Contended => "references",
            Self::Stream(_) | Self::Memcpy => "stream",
            Self::Crowd(_) => "crowd",
            Self::Both | Self::Pairs(_) | Self::PairsApart(_) | Self::Connect => TASKS,
            Self::Go(_) | Self::GoBeside(_) | Self::GoStream(_) | Self::GoCall => GO,
            Self::Idle => "idle",
            Self::Getter => "getter",
        }
    }
}

/// Not one of the C programs: the workloads of `ginnel bench`.
pub const TASKS: &str = "ginnel-bench";

/// The workload for Go, which there may be no toolchain for.
pub const GO: &str = "gonet";

/// Number of connections of [`Work::Idle`]; in virtual machines a tenth of it.
pub const IDLE_CONNECTIONS: u64 = 1000;

impl Carrier {
    /// Number of connections of [`Work::Idle`].
    pub fn idle_connections(self) -> u64 {
        if self.is_guests() { IDLE_CONNECTIONS / 10 } else { IDLE_CONNECTIONS }
    }
}
