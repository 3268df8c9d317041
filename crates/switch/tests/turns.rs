//! What one turn of a port may cost: frames that are more work than they look end it, too.

use crate::common::lent::World;
use crate::common::{ALL, PATIENCE, frame, mac};
use ginnel_switch::config::{Config, PortConfig};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::server::Server;
use ginnel_switch::wire::{HEADER, features};
use std::path::Path;
use std::time::{Duration, Instant};

/// Entries of each queue: many more than a turn takes of what is used here.
const SIZE: u16 = 1024;

/// A switch that does what the test says, with two guests.
struct Still {
    server: Server,
    evil: FrontEnd,
    _other: FrontEnd,
    _place: tempfile::TempDir,
}

fn connect(server: &mut Server, socket: &Path, options: Options) -> FrontEnd {
    let socket = socket.to_owned();
    let guest = std::thread::spawn(move || FrontEnd::connect(&socket, options).expect("a guest"));
    while !guest.is_finished() {
        server.look(Some(Duration::from_millis(1))).expect("it goes on");
        server.turn();
    }
    guest.join().expect("connected")
}

impl Still {
    /// The first guest is this one, and the other agrees on these features.
    fn new(evil: Options, other: u64) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let socket = |name: &str| place.path().join(name);
        let ports = ["evil", "other"].map(|name| PortConfig::new(name, socket(name), 0));
        let config = Config::new(place.path().to_owned(), ports.into());
        let mut server = Server::new(&config).expect("a switch");
        let evil = connect(&mut server, &socket("evil"), Options { size: SIZE, ..evil });
        let options = Options { size: SIZE, features: other, ..Options::default() };
        let other = connect(&mut server, &socket("other"), options);
        Self { server, evil, _other: other, _place: place }
    }

    /// Memory of the first guest's that holds no ring.
    fn buffer(&self) -> u64 {
        self.evil.queues[1].base + (64 << 10)
    }

    /// Where a queue's used ring stands.
    fn used(&self, queue: usize) -> u16 {
        u16::from_le_bytes(self.evil.read(self.evil.queues[queue].places()[2] + 2))
    }

    /// The chain at a queue's descriptor 0 is made available as often as the queue has entries.
    fn offer(&mut self, queue: usize) {
        let evil = &self.evil;
        let [_, available, _] = evil.queues[queue].places();
        for entry in 0..u64::from(SIZE) {
            evil.write(available + 4 + 2 * entry, &[0, 0]);
        }
        let was = self.used(queue);
        evil.write(available + 2, &was.wrapping_add(SIZE).to_le_bytes());
        evil.kick(queue);
        self.server.look(Some(Duration::ZERO)).expect("it goes on");
    }

    /// How many of these one turn takes.
    fn turn(&mut self) -> u16 {
        let was = self.used(1);
        self.offer(1);
        while self.used(1) == was {
            self.server.turn();
        }
        self.used(1).wrapping_sub(was)
    }
}

/// Descriptors of nothing cost no bytes, and time.
#[test]
fn empty_descriptors_are_no_way_to_a_longer_turn() {
    let mut still = Still::new(Options::default(), Options::default().features);
    let (buffer, last) = (still.buffer(), 1000);
    still.evil.write(buffer, &[&[0; HEADER][..], &frame(ALL, [2; 6], 50, 1)].concat());
    for index in 0..last {
        still.evil.describe(1, index, buffer, 0, 1, index + 1);
    }
    still.evil.describe(1, last, buffer, (HEADER + 64) as u32, 0, 0);
    let taken = still.turn();
    assert!(taken <= 4, "{taken} frames of 1000 descriptors in one turn");
}

/// A short frame that is to be cut into pieces of a byte is as many frames.
#[test]
fn segments_of_a_byte_are_no_way_to_a_longer_turn() {
    // Who takes no large segments has them cut.
    let plain = features::VERSION_1 | features::MRG_RXBUF;
    let mut still = Still::new(Options::default(), plain);
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet.extend([0; 12]);
    packet.extend([0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    packet.extend([7; 250]);
    let frame = [&ALL[..], &[2; 6], &[8, 0], &packet].concat();
    // TCP over IPv4, in pieces of one byte; its checksum goes to byte 16 of TCP.
    let header = [1, 1, 54, 0, 1, 0, 34, 0, 16, 0, 0, 0];
    let buffer = still.buffer();
    still.evil.write(buffer, &[&header[..], &frame].concat());
    still.evil.describe(1, 0, buffer, (HEADER + frame.len()) as u32, 0, 0);
    let taken = still.turn();
    assert!(taken <= 4, "{taken} frames of 250 segments in one turn");
    let cut = still.server.switch().ports().find(|port| port.config.name == "other");
    assert!(cut.is_some_and(|port| port.counters.cut > 0), "nothing was cut");
}

#[test]
fn several_queues_are_no_way_to_a_longer_turn() {
    let pairs = 4;
    let evil = Options { pairs, ..Options::default() };
    let mut still = Still::new(evil, Options::default().features);
    let (buffer, senders) = (still.buffer(), (1..2 * usize::from(pairs)).step_by(2));
    still.evil.write(buffer, &[&[0; HEADER][..], &frame(ALL, [2; 6], 50, 1)].concat());
    for queue in senders.clone() {
        still.evil.describe(queue, 0, buffer, (HEADER + 64) as u32, 0, 0);
        still.offer(queue);
    }
    let taken = |still: &Still| senders.clone().map(|queue| still.used(queue)).collect::<Vec<_>>();
    still.server.turn();
    let first = taken(&still);
    let sum: u16 = first.iter().sum();
    assert!((1..=128).contains(&sum), "{first:?} frames in one turn");
    for _ in 0..4 * pairs {
        still.server.turn();
    }
    let later = taken(&still);
    assert!(later.iter().all(|&count| count > 128), "each has its turn: {later:?}");
}

/// A message of another host holds hundreds of short frames, each of which takes its time.
#[test]
fn short_frames_of_a_host_are_no_way_to_a_longer_turn() {
    let mut world = World::new(Options::default());
    let frame = frame(mac(2), mac(9), 46, 1);
    let count = (0..6).map(|_| world.others[0].say_often(&frame)).max().expect("messages");
    let before = world.host().counters.sent_frames;
    world.server.look(Some(Duration::ZERO)).expect("it goes on");
    let taken = world.host().counters.sent_frames - before;
    assert_eq!(taken, count as u64, "frames in one turn");
    world.until(|world| world.host().counters.sent_frames == before + 6 * count as u64);
}

/// A queue that sleeps is heard between two looks at others', however many of those there are.
#[test]
fn little_is_moved_before_others_are_heard() {
    let mut still = Still::new(Options::default(), Options::default().features);
    let buffer = still.buffer();
    still.evil.write(buffer, &[&[0; HEADER][..], &frame(ALL, [2; 6], 50, 1)].concat());
    still.evil.describe(1, 0, buffer, (HEADER + 64) as u32, 0, 0);
    still.offer(1);
    still.server.turns();
    let taken = still.used(1);
    assert!((100..=512).contains(&taken), "{taken} frames of {SIZE}");
    while still.used(1) < SIZE {
        still.server.look(Some(Duration::ZERO)).expect("it goes on");
        still.server.turns();
    }
}

/// Without an event index the device says by a flag that it looks by itself (virtio 1.2, 2.7.10).
#[test]
fn a_queue_that_is_looked_at_need_not_be_kicked() {
    let mut evil = Options::default();
    evil.features &= !features::EVENT_IDX;
    let mut still = Still::new(evil, Options::default().features);
    let flags = still.evil.queues[1].places()[2];
    for _ in 0..3 {
        let until = Instant::now() + PATIENCE;
        while still.evil.read(flags) == [1, 0] {
            assert!(Instant::now() < until, "it is always looked at");
            still.server.look(Some(Duration::ZERO)).expect("it goes on");
            still.server.turn();
        }
        assert!(still.evil.send(1, &frame(ALL, [2; 6], 50, 1)));
        still.server.look(Some(Duration::ZERO)).expect("it goes on");
        still.server.turn();
        assert_eq!(still.evil.read(flags), [1, 0], "a kick of each frame is asked for");
    }
}

#[test]
fn how_many_frames_were_found_at_once_is_counted() {
    let mut still = Still::new(Options::default(), Options::default().features);
    let counted = |server: &Server| {
        let port = server.switch().ports().next().expect("a port");
        (port.counters.sent_frames, port.counters.bursts)
    };
    for (count, expected) in [(5, (5, 1)), (0, (5, 1)), (1, (6, 2))] {
        for _ in 0..count {
            assert!(still.evil.send(1, &frame(ALL, mac(1), 50, 1)));
        }
        still.server.look(Some(Duration::ZERO)).expect("it goes on");
        still.server.turn();
        assert_eq!(counted(&still.server), expected);
    }
}
