//! What is measured ([`MEASURES`]) and what is made of it ([`FIGURES`], the rows of the table).

/// What carries the bytes of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A reference that needs no sockets: the mode's name in `programs/references.c`.
    Shared(&'static str),
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
}

impl Carrier {
    /// Whether the programs run under `ginnel run`.
    pub fn is_ginnel(self) -> bool {
        matches!(self, Self::Ginnel | Self::GinnelTokens | Self::GinnelVeth | Self::GinnelGuests | Self::GinnelSysfs)
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
    /// 64 B ping-pong without pauses, in this mode of `programs/pingpong.c`: half a round trip in ns.
    PingPong(&'static str),
    /// 64 B ping-pong with both processes on one core: half a round trip in ns.
    OneCore,
    /// 64 B messages after pauses of 1 ms, in this mode: one way in ns, to a sleeping receiver.
    Paused(&'static str),
    /// A stream of writes of this many bytes: bytes per second.
    Stream(usize),
    /// Many open connections ([`Work::connections`]), both processes asleep: CPU time of both, or of both virtual machines, in percent of a core.
    Idle,
    /// Reading values of 1 KiB from memcached, one every 5 ms: from request to answer in ns.
    Getter,
}

impl Work {
    /// The workload program that does it, of both roles.
    pub fn program(self) -> &'static str {
        match self {
            Self::PingPong(_) | Self::Paused(_) | Self::OneCore => "pingpong",
            Self::Stream(_) => "stream",
            Self::Idle => "idle",
            Self::Getter => "getter",
        }
    }
}

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
    /// Does it lie far apart from round to round, and take little time? On a host that others use too, waking takes 12 µs one time and 60 the next, and the processors are
    /// near each other one time and far the next.
    pub fn more_often(&self) -> bool {
        matches!(self.work, Work::Paused(_) | Work::PingPong(_) | Work::Stream(_)) && !self.carrier.is_guests()
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

use Carrier::{Ginnel, GinnelGuests, GinnelSysfs, GinnelTokens, GinnelVeth, Shared, Tap, Tcp, Unix, Veth, Virtio};
use Work::{Getter, Idle, OneCore, Paused, PingPong, Stream};

/// Everything that is measured, in the order of a round: what is compared stands together.
pub const MEASURES: &[Measure] = &[
    measure("ring/ping-pong", Shared("ring"), PingPong("")),
    measure("ginnel/blocking", Ginnel, PingPong("blocking")),
    measure("ginnel/epoll", Ginnel, PingPong("epoll")),
    measure("ginnel/epoll-edge", Ginnel, PingPong("epoll-edge")),
    measure("ginnel/non-blocking", Ginnel, PingPong("spin")),
    measure("tcp/non-blocking", Tcp, PingPong("spin")),
    measure("tcp/blocking", Tcp, PingPong("blocking")),
    measure("unix/blocking", Unix, PingPong("blocking")),
    measure("veth/blocking", Veth, PingPong("blocking")),
    measure("ginnel-veth/blocking", GinnelVeth, PingPong("blocking")),
    measure("futex/paused", Shared("futex"), Paused("")),
    measure("ginnel/paused", Ginnel, Paused("blocking")),
    measure("ginnel/paused-epoll", Ginnel, Paused("epoll")),
    measure("tcp/paused", Tcp, Paused("blocking")),
    measure("tokens/paused", GinnelTokens, Paused("blocking")),
    measure("veth/paused", Veth, Paused("blocking")),
    measure("futex/one-core", Shared("futex"), OneCore),
    measure("tcp/one-core", Tcp, OneCore),
    measure("ginnel/one-core", Ginnel, OneCore),
    measure("ring/stream-64k", Shared("ring-stream"), Stream(65536)),
    measure("ginnel/stream-64k", Ginnel, Stream(65536)),
    measure("tcp/stream-64k", Tcp, Stream(65536)),
    measure("unix/stream-64k", Unix, Stream(65536)),
    measure("veth/stream-64k", Veth, Stream(65536)),
    measure("ginnel-veth/stream-64k", GinnelVeth, Stream(65536)),
    measure("ring/stream-64", Shared("ring-stream"), Stream(64)),
    measure("ginnel/stream-64", Ginnel, Stream(64)),
    measure("tcp/stream-64", Tcp, Stream(64)),
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
        }
    }

    /// The other measure that it needs.
    pub fn base(&self) -> Option<&'static str> {
        match self.against {
            Against::Measure(other) | Against::Above(other) => Some(other),
            Against::Limit | Against::Messages => None,
        }
    }
}

const fn figure(group: &'static str, measure: &'static str, against: Against, target: Target) -> Figure {
    Figure { group, measure, against, target }
}

const NEAR: &str = "64 B one way, both spinning";
const ASLEEP: &str = "64 B to a sleeping receiver";
const SAME: &str = "64 B one way, both on one core";
const BULK: &str = "stream, 64 KiB writes";
const SMALL: &str = "stream, 64 B writes";
const AWAKE: &str = "wake-ups per message, peer awake";
const QUIET: &str = "1,000 idle connections, % of a core";
const FAR: &str = "guest to guest: 64 B one way";
const FAR_BULK: &str = "guest to guest: stream, 64 KiB writes";
const FAR_CACHE: &str = "guest to guest: memcached GET of 1 KiB at 200/s";
const FAR_QUIET: &str = "guest to guest: 100 idle connections, % of a core of the host";

use Against::{Above, Limit, Messages};
use Target::{AtLeast, AtMost};

const fn to(other: &'static str) -> Against {
    Against::Measure(other)
}

/// The rows of the table.
pub const FIGURES: &[Figure] = &[
    figure(NEAR, "ginnel/blocking", Limit, AtMost(2.5)),
    figure(NEAR, "ginnel/epoll", Limit, AtMost(2.5)),
    figure(NEAR, "ginnel/epoll-edge", Limit, AtMost(2.5)),
    figure(NEAR, "ginnel/non-blocking", Limit, AtMost(2.5)),
    figure(NEAR, "ginnel-veth/blocking", Limit, Target::None),
    figure(NEAR, "ring/ping-pong", Limit, Target::None),
    figure(NEAR, "tcp/non-blocking", Limit, Target::None),
    figure(NEAR, "unix/blocking", Limit, Target::None),
    figure(NEAR, "tcp/blocking", Limit, Target::None),
    figure(NEAR, "veth/blocking", Limit, Target::None),
    figure(AWAKE, "ginnel/blocking", Messages, AtMost(0.01)),
    figure(AWAKE, "ginnel/epoll", Messages, AtMost(0.01)),
    figure(AWAKE, "ginnel/non-blocking", Messages, AtMost(0.01)),
    figure(ASLEEP, "ginnel/paused", to("futex/paused"), AtMost(1.25)),
    figure(ASLEEP, "ginnel/paused-epoll", to("futex/paused"), AtMost(1.25)),
    figure(ASLEEP, "tokens/paused", to("tcp/paused"), AtMost(1.0)),
    figure(ASLEEP, "tcp/paused", to("futex/paused"), Target::None),
    figure(ASLEEP, "veth/paused", to("futex/paused"), Target::None),
    figure(SAME, "ginnel/one-core", to("tcp/one-core"), AtMost(0.6)),
    figure(SAME, "futex/one-core", to("tcp/one-core"), Target::None),
    figure(BULK, "ginnel/stream-64k", to("ring/stream-64k"), AtLeast(0.7)),
    figure(BULK, "ginnel/stream-64k", to("tcp/stream-64k"), AtLeast(5.0)),
    figure(BULK, "ginnel-veth/stream-64k", to("veth/stream-64k"), Target::None),
    figure(BULK, "tcp/stream-64k", to("ring/stream-64k"), Target::None),
    figure(BULK, "unix/stream-64k", to("ring/stream-64k"), Target::None),
    figure(BULK, "veth/stream-64k", to("ring/stream-64k"), Target::None),
    figure(SMALL, "ginnel/stream-64", to("tcp/stream-64"), AtLeast(40.0)),
    figure(SMALL, "ginnel/stream-64", to("ring/stream-64"), Target::None),
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
        let used: BTreeSet<_> = FIGURES.iter().flat_map(|f| [Some(f.measure), f.base()]).flatten().collect();
        assert_eq!(measures, used);
        assert_eq!(measures.len(), MEASURES.len());
    }

    #[test]
    fn figures_have_unique_names() {
        let names: BTreeSet<_> = FIGURES.iter().map(Figure::id).collect();
        assert_eq!(names.len(), FIGURES.len());
    }
}
