//! What is measured ([`MEASURES`]) and what is made of it ([`FIGURES`], the rows of the table).

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

/// One thing to measure, once in each round.
#[derive(Debug)]
pub struct Measure {
    /// Unique name, "carrier/work".
    pub id: &'static str,
    /// What carries the bytes.
    pub carrier: Carrier,
    /// What is done.
    pub work: Work,
}

impl Measure {
    /// Does it lie far apart from round to round, and take little time? On a host that others use
    /// too, waking takes 12 µs one time and 60 the next, and the processors are near each other one
    /// time and far the next.
    pub fn more_often(&self) -> bool {
        let short = matches!(
            self.work,
            Work::Paused(_) | Work::PingPong(_) | Work::Large(_) | Work::Stream(_) | Work::Memcpy
        );
        short && !self.carrier.is_guests()
    }
}

const fn measure(id: &'static str, carrier: Carrier, work: Work) -> Measure {
    Measure { id, carrier, work }
}

/// Number of connections of [`Work::Idle`]; in virtual machines a tenth of it.
pub const IDLE_CONNECTIONS: u64 = 1000;

impl Carrier {
    /// Number of connections of [`Work::Idle`].
    pub fn idle_connections(self) -> u64 {
        if self.is_guests() { IDLE_CONNECTIONS / 10 } else { IDLE_CONNECTIONS }
    }
}

use Carrier::{
    Boost, Ginnel, GinnelGuests, GinnelSysfs, GinnelTokens, GinnelVeth, Iceoryx2, Object, Shared,
    Sockmap, Tap, Tcp, Ucx, Unix, Veth, Virtio,
};
use Work::{
    Beside, BesideOneCore, Both, Changes, Connect, Contended, Crowd, Getter, Go, GoBeside, GoCall,
    GoStream, Idle, Large, Lock, Memcpy, OneCore, Pairs, PairsApart, Paused, PingPong, Stream,
    Tail,
};

/// Everything that is measured, in the order of a round: what is compared stands together.
pub const MEASURES: &[Measure] = &[
    measure("ring/ping-pong", Shared("ring"), PingPong("")),
    measure("ring-locked/ping-pong", Shared("ring-locked"), PingPong("")),
    measure("queue/ping-pong", Object("queue"), PingPong("")),
    measure("ginnel/blocking", Ginnel, PingPong("blocking")),
    measure("ginnel/epoll", Ginnel, PingPong("epoll")),
    measure("ginnel/epoll-edge", Ginnel, PingPong("epoll-edge")),
    measure("ginnel/non-blocking", Ginnel, PingPong("spin")),
    measure("tcp/non-blocking", Tcp, PingPong("spin")),
    measure("tcp/blocking", Tcp, PingPong("blocking")),
    measure("sockmap/blocking", Sockmap, PingPong("blocking")),
    measure("ucx/tag", Ucx("tag_lat"), PingPong("")),
    measure("boost/polling", Boost, PingPong("")),
    measure("iceoryx2/polling", Iceoryx2, PingPong("")),
    measure("unix/blocking", Unix, PingPong("blocking")),
    measure("veth/blocking", Veth, PingPong("blocking")),
    measure("ginnel-veth/blocking", GinnelVeth, PingPong("blocking")),
    measure("ginnel/tail", Ginnel, Tail),
    measure("tcp/tail", Tcp, Tail),
    measure("ring/4k", Shared("ring"), Large(4096)),
    measure("ginnel/4k", Ginnel, Large(4096)),
    measure("tcp/4k", Tcp, Large(4096)),
    measure("ucx/4k", Ucx("tag_lat"), Large(4096)),
    // Its receiver is called with the place of the bytes, and reads none of them.
    measure("ucx/4k-unread", Ucx("ucp_am_lat"), Large(4096)),
    measure("iceoryx2/4k", Iceoryx2, Large(4096)),
    measure("ring/64k", Shared("ring"), Large(65536)),
    measure("queue/64k", Object("queue"), Large(65536)),
    measure("ginnel/64k", Ginnel, Large(65536)),
    measure("tcp/64k", Tcp, Large(65536)),
    measure("ucx/64k", Ucx("tag_lat"), Large(65536)),
    measure("loan/1", Object("loan"), Large(1)),
    measure("loan/4k", Object("loan"), Large(4096)),
    measure("loan/64k", Object("loan"), Large(65536)),
    measure("loan/1m", Object("loan"), Large(1 << 20)),
    measure("python/1m", Object("python"), Large(1 << 20)),
    measure("loan/4m", Object("loan"), Large(4 << 20)),
    measure("mutex/alone", Object("mutex"), Lock),
    measure("pthread/alone", Object("pthread"), Lock),
    measure("mutex/contended", Object("mutex-contended"), Contended),
    measure("pthread/contended", Object("pthread-contended"), Contended),
    measure("futex/paused", Shared("futex"), Paused("")),
    measure("queue/paused", Object("paused"), Paused("")),
    measure("ginnel/paused", Ginnel, Paused("blocking")),
    measure("ginnel/paused-epoll", Ginnel, Paused("epoll")),
    measure("tcp/paused", Tcp, Paused("blocking")),
    measure("sockmap/paused", Sockmap, Paused("blocking")),
    measure("tokens/paused", GinnelTokens, Paused("blocking")),
    measure("veth/paused", Veth, Paused("blocking")),
    measure("futex/one-core", Shared("futex"), OneCore),
    measure("tcp/one-core", Tcp, OneCore),
    measure("sockmap/one-core", Sockmap, OneCore),
    measure("ginnel/one-core", Ginnel, OneCore),
    measure("core/copy", Shared("copy"), Memcpy),
    measure("ring/stream-64k", Shared("ring-stream"), Stream(65536)),
    measure("ginnel/stream-64k", Ginnel, Stream(65536)),
    measure("tcp/stream-64k", Tcp, Stream(65536)),
    measure("sockmap/stream-64k", Sockmap, Stream(65536)),
    measure("ucx/stream-64k", Ucx("stream_bw"), Stream(65536)),
    measure("unix/stream-64k", Unix, Stream(65536)),
    measure("veth/stream-64k", Veth, Stream(65536)),
    measure("ginnel-veth/stream-64k", GinnelVeth, Stream(65536)),
    measure("ring/rate-64", Shared("ring-rate"), Stream(64)),
    measure("queue/rate-64", Object("rate"), Stream(64)),
    measure("ring/stream-64", Shared("ring-stream"), Stream(64)),
    measure("ginnel/stream-64", Ginnel, Stream(64)),
    measure("tcp/stream-64", Tcp, Stream(64)),
    measure("sockmap/stream-64", Sockmap, Stream(64)),
    measure("ucx/stream-64", Ucx("tag_bw"), Stream(64)),
    measure("ring/both", Shared("ring-both"), Both),
    measure("ginnel/both", Ginnel, Both),
    measure("tcp/both", Tcp, Both),
    measure("sockmap/both", Sockmap, Both),
    measure("unix/both", Unix, Both),
    measure("ginnel/100-of-100", Ginnel, Crowd(100)),
    measure("ginnel/100-of-10000", Ginnel, Crowd(10_000)),
    measure("tcp/100-of-100", Tcp, Crowd(100)),
    measure("tcp/100-of-10000", Tcp, Crowd(10_000)),
    measure("ginnel/pairs-1", Ginnel, Pairs(1)),
    measure("ginnel/pairs-2", Ginnel, Pairs(2)),
    measure("ginnel/pairs-4", Ginnel, Pairs(4)),
    measure("ginnel/pairs-8", Ginnel, Pairs(8)),
    measure("tcp/pairs-1", Tcp, Pairs(1)),
    measure("sockmap/pairs-1", Sockmap, Pairs(1)),
    measure("tcp/pairs-2", Tcp, Pairs(2)),
    measure("tcp/pairs-4", Tcp, Pairs(4)),
    measure("tcp/pairs-8", Tcp, Pairs(8)),
    measure("changes/2", Shared("changes"), Changes(2)),
    measure("changes/4", Shared("changes"), Changes(4)),
    measure("changes/8", Shared("changes"), Changes(8)),
    measure("ginnel/apart-1", Ginnel, PairsApart(1)),
    measure("ginnel/apart-2", Ginnel, PairsApart(2)),
    measure("ginnel/apart-4", Ginnel, PairsApart(4)),
    measure("ginnel/apart-8", Ginnel, PairsApart(8)),
    measure("tcp/apart-8", Tcp, PairsApart(8)),
    measure("ginnel/beside", Ginnel, Beside),
    measure("tcp/beside", Tcp, Beside),
    measure("ginnel/beside-one-core", Ginnel, BesideOneCore),
    measure("tcp/beside-one-core", Tcp, BesideOneCore),
    measure("ginnel/connect", Ginnel, Connect),
    measure("tcp/connect", Tcp, Connect),
    measure("unix/connect", Unix, Connect),
    measure("ginnel/go-1", Ginnel, Go(1)),
    measure("tcp/go-1", Tcp, Go(1)),
    measure("sockmap/go-1", Sockmap, Go(1)),
    measure("ginnel/go-64", Ginnel, Go(64)),
    measure("tcp/go-64", Tcp, Go(64)),
    measure("sockmap/go-64", Sockmap, Go(64)),
    measure("ginnel/go-stream-64", Ginnel, GoStream(64)),
    measure("tcp/go-stream-64", Tcp, GoStream(64)),
    measure("ginnel/go-stream-64k", Ginnel, GoStream(65536)),
    measure("tcp/go-stream-64k", Tcp, GoStream(65536)),
    measure("ginnel/go-beside-1", Ginnel, GoBeside(1)),
    measure("tcp/go-beside-1", Tcp, GoBeside(1)),
    measure("ginnel/go-beside-16", Ginnel, GoBeside(16)),
    measure("tcp/go-beside-16", Tcp, GoBeside(16)),
    measure("ginnel/go-beside-64", Ginnel, GoBeside(64)),
    measure("tcp/go-beside-64", Tcp, GoBeside(64)),
    measure("ginnel/go-call", Ginnel, GoCall),
    measure("tcp/go-call", Tcp, GoCall),
    measure("tcp/idle", Tcp, Idle),
    measure("ginnel/idle", Ginnel, Idle),
    measure("virtio/spinning", Virtio, PingPong("spin")),
    measure("guests/spinning", GinnelGuests, PingPong("spin")),
    measure("virtio/paused", Virtio, Paused("blocking")),
    measure("guests/paused", GinnelGuests, Paused("blocking")),
    measure("sysfs/paused", GinnelSysfs, Paused("blocking")),
    measure("virtio/stream-64k", Virtio, Stream(65536)),
    measure("tap/stream-64k", Tap, Stream(65536)),
    measure("guests/stream-64k", GinnelGuests, Stream(65536)),
    measure("virtio/memcached", Virtio, Getter),
    measure("guests/memcached", GinnelGuests, Getter),
    measure("virtio/idle", Virtio, Idle),
    measure("guests/idle", GinnelGuests, Idle),
];

/// How a figure is made of measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// Ratio to the limit measured around the same sample.
    Limit,
    /// Ratio to another measure of the same round.
    Measure(&'static str),
    /// Difference to another measure of the same round.
    Above(&'static str),
    /// Wake-ups per message, from the shims' reports.
    Messages,
    /// CPU time of both ends for a byte, in proportion to that of another measure of the same
    /// round.
    CostOf(&'static str),
    /// Time that it takes to make each of its connections, the first exchanges included, in
    /// proportion to that of another measure of the same round.
    SetUpOf(&'static str),
    /// Likewise, to close each.
    TeardownOf(&'static str),
    /// Its own quantiles: 99.9 % of the exchanges take no longer than so many times the median.
    Median,
}

impl Against {
    /// The time that the ends say themselves, where the figure is made of that and not of what its
    /// measures come to.
    pub fn said(self) -> Option<&'static str> {
        match self {
            Self::SetUpOf(_) => Some("made_ns"),
            Self::TeardownOf(_) => Some("closed_ns"),
            _ => None,
        }
    }
}

/// What a figure should reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// No target: shown for comparison.
    None,
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

impl Target {
    /// Whether the value reaches the target; None without one.
    pub fn reached(self, value: f64) -> Option<bool> {
        match self {
            Self::None => None,
            Self::AtMost(most) => Some(value <= most),
            Self::AtLeast(least) => Some(value >= least),
        }
    }
}

/// One row of the table.
#[derive(Debug)]
pub struct Figure {
    /// Which part of the table it belongs to.
    pub group: &'static str,
    /// The measure.
    pub measure: &'static str,
    /// What it is compared with.
    pub against: Against,
    /// What it should reach.
    pub target: Target,
}

impl Figure {
    /// Unique name.
    pub fn id(&self) -> String {
        match self.against {
            Against::Limit => format!("{} : limit", self.measure),
            Against::Measure(other) => format!("{} : {other}", self.measure),
            Against::Above(other) => format!("{} - {other}", self.measure),
            Against::Messages => format!("{} wake-ups", self.measure),
            Against::CostOf(other) => format!("{} cpu : {other}", self.measure),
            Against::SetUpOf(other) => format!("{} set-up : {other}", self.measure),
            Against::TeardownOf(other) => format!("{} teardown : {other}", self.measure),
            Against::Median => format!("{} p99.9 : median", self.measure),
        }
    }

    /// Whether it is shown by this run: of the virtual machines, or of the rest, and there with the
    /// peers or without.
    pub fn belongs(&self, guests: bool, peers: bool) -> bool {
        Self::is_carried(Some(self.measure), Carrier::is_guests) == guests
            && (peers || !self.needs_peer())
    }

    /// Whether another project's transport is part of it.
    pub fn needs_peer(&self) -> bool {
        [Some(self.measure), self.base()]
            .into_iter()
            .any(|id| Self::is_carried(id, Carrier::is_peer))
    }

    fn is_carried(id: Option<&str>, kind: fn(Carrier) -> bool) -> bool {
        MEASURES.iter().any(|measure| Some(measure.id) == id && kind(measure.carrier))
    }

    /// The other measure that it needs.
    pub fn base(&self) -> Option<&'static str> {
        match self.against {
            Against::Measure(other)
            | Against::Above(other)
            | Against::CostOf(other)
            | Against::SetUpOf(other)
            | Against::TeardownOf(other) => Some(other),
            Against::Limit | Against::Messages | Against::Median => None,
        }
    }
}

const fn figure(
    group: &'static str,
    measure: &'static str,
    against: Against,
    target: Target,
) -> Figure {
    Figure { group, measure, against, target }
}

const NEAR: &str = "64 B one way, both spinning";
const ASLEEP: &str = "64 B to a sleeping receiver";
const SAME: &str = "64 B one way, both on one core";
const BULK: &str = "stream, 64 KiB writes";
const SMALL: &str = "stream, 64 B writes";
const SLOW: &str = "64 B one way, the slowest of a thousand";
const LARGE: &str = "4 and 64 KiB one way, blocking";
const DUPLEX: &str = "streams both ways, 64 KiB writes";
const CROWD: &str = "100 busy connections, alone and beside 9,900 idle ones";
const PAIRS: &str = "pairs of processes on two processors, 64 B to and fro";
const BESIDE: &str = "64 B to and fro beside processes that are always busy";
const SETUP: &str = "connect, one byte to and fro, close";
const LOANS: &str = "queue: a loan to and fro, of which the first bytes are written and read";
const LOCKS: &str = "locking and unlocking: alone, and two processes without a pause";
const AWAKE: &str = "wake-ups per message, peer awake";
const GO_NET: &str =
    "programs in Go, both ends: 64 B to and fro, streams, a call that is not about sockets";
const GO_BESIDE: &str = "programs in Go beside processes that are always busy";
const QUIET: &str = "1,000 idle connections, % of a core";
const FAR: &str = "guest to guest: 64 B one way";
const FAR_BULK: &str = "guest to guest: stream, 64 KiB writes";
const FAR_CACHE: &str = "guest to guest: memcached GET of 1 KiB at 200/s";
const FAR_QUIET: &str = "guest to guest: 100 idle connections, % of a core of the host";

use Against::{Above, CostOf, Limit, Median, Messages, SetUpOf, TeardownOf};
use Target::{AtLeast, AtMost};

const fn to(other: &'static str) -> Against {
    Against::Measure(other)
}

/// The rows of the table.
pub const FIGURES: &[Figure] = &[
    figure(NEAR, "ginnel/blocking", Limit, AtMost(1.6)),
    figure(NEAR, "ginnel/epoll", Limit, AtMost(1.6)),
    figure(NEAR, "ginnel/epoll-edge", Limit, AtMost(1.6)),
    figure(NEAR, "ginnel/non-blocking", Limit, AtMost(1.6)),
    figure(NEAR, "ginnel-veth/blocking", Limit, Target::None),
    figure(NEAR, "ring/ping-pong", Limit, Target::None),
    figure(NEAR, "ring-locked/ping-pong", Limit, Target::None),
    figure(NEAR, "queue/ping-pong", Limit, AtMost(1.4)),
    figure(NEAR, "queue/ping-pong", to("ring/ping-pong"), Target::None),
    figure(NEAR, "queue/ping-pong", to("unix/blocking"), Target::None),
    figure(NEAR, "queue/ping-pong", to("ucx/tag"), AtMost(1.0)),
    figure(NEAR, "queue/ping-pong", to("iceoryx2/polling"), AtMost(1.0)),
    figure(NEAR, "queue/ping-pong", to("boost/polling"), AtMost(1.0)),
    figure(NEAR, "tcp/non-blocking", Limit, Target::None),
    figure(NEAR, "unix/blocking", Limit, Target::None),
    figure(NEAR, "tcp/blocking", Limit, Target::None),
    figure(NEAR, "veth/blocking", Limit, Target::None),
    figure(NEAR, "sockmap/blocking", Limit, Target::None),
    figure(NEAR, "ucx/tag", Limit, Target::None),
    figure(NEAR, "iceoryx2/polling", Limit, Target::None),
    figure(NEAR, "ginnel/blocking", to("sockmap/blocking"), Target::None),
    figure(NEAR, "ginnel/blocking", to("ucx/tag"), Target::None),
    figure(NEAR, "ginnel/blocking", to("iceoryx2/polling"), Target::None),
    figure(SLOW, "ginnel/tail", Median, AtMost(8.0)),
    figure(SLOW, "tcp/tail", Median, Target::None),
    figure(LARGE, "ginnel/4k", Limit, AtMost(3.0)),
    figure(LARGE, "ginnel/4k", to("ring/4k"), Target::None),
    figure(LARGE, "tcp/4k", Limit, Target::None),
    figure(LARGE, "ginnel/64k", to("ring/64k"), AtMost(1.1)),
    figure(LARGE, "queue/64k", to("ring/64k"), Target::None),
    figure(LARGE, "tcp/64k", to("ring/64k"), Target::None),
    figure(LARGE, "ucx/4k", Limit, Target::None),
    figure(LARGE, "ucx/4k-unread", Limit, Target::None),
    figure(LARGE, "iceoryx2/4k", Limit, Target::None),
    figure(LARGE, "ucx/64k", to("ring/64k"), Target::None),
    figure(LARGE, "ginnel/4k", to("ucx/4k"), Target::None),
    figure(LARGE, "ginnel/4k", to("iceoryx2/4k"), Target::None),
    figure(LARGE, "ginnel/64k", to("ucx/64k"), Target::None),
    figure(LOANS, "loan/1", Limit, AtMost(1.4)),
    figure(LOANS, "loan/4k", to("loan/1"), AtMost(1.1)),
    figure(LOANS, "loan/64k", to("loan/1"), AtMost(1.1)),
    figure(LOANS, "loan/1m", to("loan/1"), AtMost(1.1)),
    figure(LOANS, "loan/4m", to("loan/1"), AtMost(1.1)),
    figure(LOANS, "python/1m", Above("loan/1m"), AtMost(5000.0)),
    figure(LOCKS, "mutex/alone", to("pthread/alone"), AtMost(1.5)),
    figure(LOCKS, "mutex/contended", to("pthread/contended"), AtLeast(1.0)),
    figure(AWAKE, "ginnel/blocking", Messages, AtMost(0.01)),
    figure(AWAKE, "ginnel/epoll", Messages, AtMost(0.01)),
    figure(AWAKE, "ginnel/non-blocking", Messages, AtMost(0.01)),
    figure(ASLEEP, "queue/paused", to("futex/paused"), AtMost(1.15)),
    figure(ASLEEP, "ginnel/paused", to("futex/paused"), AtMost(1.15)),
    figure(ASLEEP, "ginnel/paused-epoll", to("futex/paused"), AtMost(1.15)),
    figure(ASLEEP, "ginnel/paused", to("tcp/paused"), AtMost(0.8)),
    figure(ASLEEP, "tokens/paused", to("tcp/paused"), AtMost(1.0)),
    figure(ASLEEP, "tcp/paused", to("futex/paused"), Target::None),
    figure(ASLEEP, "veth/paused", to("futex/paused"), Target::None),
    figure(ASLEEP, "sockmap/paused", to("tcp/paused"), Target::None),
    figure(ASLEEP, "ginnel/paused", to("sockmap/paused"), Target::None),
    figure(SAME, "ginnel/one-core", to("tcp/one-core"), AtMost(0.4)),
    figure(SAME, "futex/one-core", to("tcp/one-core"), Target::None),
    figure(SAME, "sockmap/one-core", to("tcp/one-core"), Target::None),
    figure(SAME, "ginnel/one-core", to("sockmap/one-core"), Target::None),
    figure(BULK, "ginnel/stream-64k", to("ring/stream-64k"), AtLeast(0.7)),
    figure(BULK, "ginnel/stream-64k", to("core/copy"), AtLeast(0.85)),
    figure(BULK, "ginnel/stream-64k", to("tcp/stream-64k"), AtLeast(8.0)),
    figure(BULK, "ginnel/stream-64k", to("veth/stream-64k"), AtLeast(11.0)),
    figure(BULK, "ginnel/stream-64k", CostOf("tcp/stream-64k"), AtMost(0.125)),
    figure(BULK, "unix/stream-64k", CostOf("tcp/stream-64k"), Target::None),
    figure(BULK, "ginnel-veth/stream-64k", to("veth/stream-64k"), Target::None),
    figure(BULK, "tcp/stream-64k", to("ring/stream-64k"), Target::None),
    figure(BULK, "unix/stream-64k", to("ring/stream-64k"), Target::None),
    figure(BULK, "veth/stream-64k", to("ring/stream-64k"), Target::None),
    figure(BULK, "sockmap/stream-64k", to("tcp/stream-64k"), Target::None),
    figure(BULK, "ucx/stream-64k", to("ring/stream-64k"), Target::None),
    figure(BULK, "ginnel/stream-64k", to("sockmap/stream-64k"), Target::None),
    figure(BULK, "ginnel/stream-64k", to("ucx/stream-64k"), Target::None),
    figure(SMALL, "queue/rate-64", to("ring/rate-64"), AtLeast(0.8)),
    figure(SMALL, "ginnel/stream-64", to("tcp/stream-64"), AtLeast(100.0)),
    figure(SMALL, "ginnel/stream-64", to("ring/stream-64"), AtLeast(0.45)),
    figure(SMALL, "sockmap/stream-64", to("tcp/stream-64"), Target::None),
    figure(SMALL, "ucx/stream-64", to("ring/stream-64"), Target::None),
    figure(SMALL, "ginnel/stream-64", to("sockmap/stream-64"), Target::None),
    figure(SMALL, "ginnel/stream-64", to("ucx/stream-64"), Target::None),
    figure(DUPLEX, "ginnel/both", to("ring/both"), AtLeast(0.9)),
    figure(DUPLEX, "ginnel/both", to("tcp/both"), AtLeast(12.0)),
    figure(DUPLEX, "unix/both", to("ring/both"), Target::None),
    figure(DUPLEX, "sockmap/both", to("tcp/both"), Target::None),
    figure(DUPLEX, "ginnel/both", to("sockmap/both"), Target::None),
    figure(CROWD, "ginnel/100-of-10000", to("ginnel/100-of-100"), AtLeast(0.95)),
    figure(CROWD, "tcp/100-of-10000", to("tcp/100-of-100"), Target::None),
    figure(CROWD, "ginnel/100-of-10000", SetUpOf("ginnel/100-of-100"), AtMost(1.5)),
    figure(CROWD, "tcp/100-of-10000", SetUpOf("tcp/100-of-100"), Target::None),
    figure(CROWD, "ginnel/100-of-10000", SetUpOf("tcp/100-of-10000"), Target::None),
    figure(CROWD, "ginnel/100-of-10000", TeardownOf("ginnel/100-of-100"), AtMost(1.5)),
    figure(CROWD, "tcp/100-of-10000", TeardownOf("tcp/100-of-100"), Target::None),
    figure(CROWD, "ginnel/100-of-10000", TeardownOf("tcp/100-of-10000"), Target::None),
    figure(CROWD, "ginnel/100-of-100", to("tcp/100-of-100"), Target::None),
    figure(PAIRS, "ginnel/pairs-1", to("tcp/pairs-1"), AtLeast(2.0)),
    figure(PAIRS, "ginnel/pairs-2", to("tcp/pairs-2"), AtLeast(2.0)),
    figure(PAIRS, "ginnel/pairs-4", to("tcp/pairs-4"), AtLeast(2.0)),
    figure(PAIRS, "ginnel/pairs-8", to("tcp/pairs-8"), AtLeast(2.0)),
    figure(PAIRS, "ginnel/pairs-4", to("ginnel/pairs-2"), AtLeast(1.0)),
    figure(PAIRS, "ginnel/pairs-8", to("ginnel/pairs-4"), AtLeast(1.0)),
    // Two, four and eight pairs on two processors are as many processes on each.
    figure(PAIRS, "changes/4", to("changes/2"), Target::None),
    figure(PAIRS, "changes/8", to("changes/4"), Target::None),
    figure(PAIRS, "ginnel/apart-2", to("ginnel/apart-1"), AtLeast(1.0)),
    figure(PAIRS, "ginnel/apart-4", to("ginnel/apart-2"), AtLeast(1.0)),
    figure(PAIRS, "ginnel/apart-8", to("ginnel/apart-4"), AtLeast(1.0)),
    figure(PAIRS, "ginnel/apart-8", to("tcp/apart-8"), AtLeast(2.0)),
    figure(PAIRS, "sockmap/pairs-1", to("tcp/pairs-1"), Target::None),
    figure(PAIRS, "ginnel/pairs-1", to("sockmap/pairs-1"), Target::None),
    figure(BESIDE, "ginnel/beside", to("tcp/beside"), AtLeast(1.0)),
    figure(BESIDE, "ginnel/beside-one-core", to("tcp/beside-one-core"), AtLeast(1.0)),
    figure(SETUP, "ginnel/connect", to("tcp/connect"), AtLeast(0.95)),
    figure(SETUP, "unix/connect", to("tcp/connect"), Target::None),
    figure(GO_NET, "ginnel/go-1", to("tcp/go-1"), AtLeast(8.0)),
    figure(GO_NET, "ginnel/go-1", to("sockmap/go-1"), AtLeast(2.0)),
    figure(GO_NET, "ginnel/go-64", to("tcp/go-64"), AtLeast(8.0)),
    figure(GO_NET, "sockmap/go-64", to("tcp/go-64"), Target::None),
    figure(GO_NET, "ginnel/go-64", CostOf("tcp/go-64"), AtMost(0.167)),
    figure(GO_NET, "ginnel/go-stream-64", to("tcp/go-stream-64"), AtLeast(25.0)),
    figure(GO_NET, "ginnel/go-stream-64k", to("tcp/go-stream-64k"), AtLeast(7.0)),
    figure(GO_NET, "ginnel/go-call", Above("tcp/go-call"), AtMost(60.0)),
    figure(GO_BESIDE, "ginnel/go-beside-1", to("tcp/go-beside-1"), AtLeast(0.95)),
    figure(GO_BESIDE, "ginnel/go-beside-16", to("tcp/go-beside-16"), AtLeast(0.95)),
    figure(GO_BESIDE, "ginnel/go-beside-64", to("tcp/go-beside-64"), AtLeast(0.95)),
    figure(QUIET, "ginnel/idle", Above("tcp/idle"), AtMost(0.1)),
    figure(FAR, "guests/spinning", to("virtio/spinning"), AtMost(0.02)),
    figure(FAR, "guests/paused", to("virtio/paused"), AtMost(0.4)),
    figure(FAR, "sysfs/paused", to("virtio/paused"), AtMost(1.0)),
    figure(FAR_BULK, "guests/stream-64k", to("virtio/stream-64k"), AtLeast(5.0)),
    figure(FAR_BULK, "guests/stream-64k", to("tap/stream-64k"), AtLeast(5.0)),
    figure(FAR_CACHE, "guests/memcached", to("virtio/memcached"), AtMost(0.4)),
    figure(FAR_QUIET, "guests/idle", Above("virtio/idle"), AtMost(0.5)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn figures_name_measures_and_every_measure_is_used() {
        let measures: BTreeSet<_> = MEASURES.iter().map(|m| m.id).collect();
        let used: BTreeSet<_> =
            FIGURES.iter().flat_map(|f| [Some(f.measure), f.base()]).flatten().collect();
        assert_eq!(measures, used);
        assert_eq!(measures.len(), MEASURES.len());
    }

    #[test]
    fn without_being_asked_for_no_peer_is_measured() {
        let plain = FIGURES.iter().filter(|figure| figure.belongs(false, false));
        let measured: BTreeSet<_> =
            plain.flat_map(|figure| [Some(figure.measure), figure.base()]).flatten().collect();
        assert!(
            MEASURES
                .iter()
                .filter(|m| measured.contains(m.id))
                .all(|m| !m.carrier.is_peer() && !m.carrier.is_guests())
        );
        let of =
            |guests, peers| FIGURES.iter().filter(|figure| figure.belongs(guests, peers)).count();
        assert_eq!(of(false, true) + of(true, false), FIGURES.len());
    }

    #[test]
    fn figures_have_unique_names() {
        let names: BTreeSet<_> = FIGURES.iter().map(Figure::id).collect();
        assert_eq!(names.len(), FIGURES.len());
    }
}
