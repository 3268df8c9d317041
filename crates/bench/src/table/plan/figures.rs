//! The rows of the table.

use super::{Against, Figure, Target};
use Against::{Above, CostOf, Limit, Median, Messages, SetUpOf, TeardownOf};
use Target::{AtLeast, AtMost};

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
