//! Sockets between machines, one of which, or a program of the host, wants the others held up.

use crate::common::{Lab, PATIENCE, alone};
use crate::vsock::{Guest, connect, connect_from};
use ginnel_switch::front_end::{BUFFER, FrontEnd, GUEST, Options};
use ginnel_switch::vhost::message::Request;
use ginnel_switch::vsock::packet::{HEADER, HOST, Header, Op};
use ginnel_switch::wire::features;
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// Machines `a`, `b`, … with the context ids from 3 on.
fn machines(count: u8) -> (Lab, Vec<String>) {
    let names: Vec<String> =
        (b'a'..).take(count.into()).map(|name| char::from(name).into()).collect();
    let one = |(at, name): (usize, &String)| format!("[vsock.{name}]\ncid = {}\n", at + 3);
    (Lab::new(&names.iter().enumerate().map(one).collect::<String>()), names)
}

/// A connection from port 1000 of one to port 80 of another, which says that it keeps any amount.
fn connect_wide(from: &mut Guest, to: &mut Guest) {
    from.say(1000, (to.cid, 80), Op::Request);
    to.hears((from.cid, 1000), 80, Op::Request);
    let answer = to.header(80, (from.cid, 1000), Op::Response);
    to.send(Header { buf_alloc: 1 << 30, ..answer }, &[]);
    // Its connection to another may end just now.
    let answered = |header: Header| header.from.cid == to.cid;
    while !answered(from.take(PATIENCE).expect("an answer").0) {}
}

#[test]
fn those_who_take_nothing_leave_room_for_who_does() {
    let (lab, names) = machines(8);
    let mut guests: Vec<Guest> =
        names.iter().zip(3..).map(|(name, cid)| Guest::new(&lab, name, cid)).collect();
    let (mut a, mut good) = (guests.remove(0), guests.remove(0));
    let piece = vec![7; 60_000];
    for stalled in &mut guests {
        connect_wide(&mut a, stalled);
        // As much as is taken of it; what is too much is that connection's own end.
        for _ in 0..300 {
            a.send(a.header(1000, (stalled.cid, 80), Op::Rw), &piece);
            if let Some((header, _)) = a.take(Duration::ZERO) {
                assert_eq!((header.from.cid, header.op), (stalled.cid, Op::Rst as u16));
                break;
            }
        }
        while a.take(Duration::from_millis(20)).is_some() {}
    }
    connect_wide(&mut a, &mut good);
    // More than it has buffers for at the moment.
    let sent = 20 * piece.len();
    for _ in 0..20 {
        a.send(a.header(1000, (good.cid, 80), Op::Rw), &piece);
    }
    assert_eq!(good.data((3, 1000), 80, sent).len(), sent);
    while let Some((header, _)) = a.take(Duration::from_millis(50)) {
        assert_ne!(header.from.cid, good.cid, "it has lost its connection");
    }
}

/// How often a machine that wants that was told of something since it was asked last.
fn told(b: &FrontEnd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(&b.queues[0].call, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

/// A machine offers as many buffers of one byte as its queue holds, each a chain of so many
/// descriptors, all at once. Returns where the used ring will be then.
fn offer_crumbs(b: &FrontEnd, chain: u16) -> u16 {
    let (buffer, size) = (GUEST + (64 << 10), b.queues[0].size());
    let [_, available, used] = b.queues[0].places();
    let more = u16::from(chain > 1);
    b.describe(0, 0, buffer, HEADER as u32 + 1, 2 | more, 1);
    for index in 1..chain {
        let more = u16::from(index + 1 < chain);
        b.describe(0, index, buffer, 0, 2 | more, index + 1);
    }
    for entry in 0..u64::from(size) {
        b.write(available + 4 + 2 * entry, &[0, 0]);
    }
    let all = u16::from_le_bytes(b.read(used + 2)).wrapping_add(size);
    told(b);
    fence(Ordering::SeqCst);
    b.write(available + 2, &all.to_le_bytes());
    b.kick(0);
    all
}

/// Waits until they are full. Returns how often, in some time, the switch told the machine of some.
fn told_of_crumbs(b: &FrontEnd, all: u16, patience: Duration) -> u64 {
    let [_, _, used] = b.queues[0].places();
    let until = Instant::now() + patience;
    let mut count = 0;
    while u16::from_le_bytes(b.read(used + 2)) != all && Instant::now() < until {
        count += told(b);
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    count + told(b)
}

fn crumbs(b: &FrontEnd, chain: u16, patience: Duration) -> u64 {
    let all = offer_crumbs(b, chain);
    told_of_crumbs(b, all, patience)
}

/// Makes one packet available so many times at once.
fn send_at_once(a: &mut FrontEnd, header: &Header, data: &[u8], times: u16) {
    let [_, available, used] = a.queues[1].places();
    // Where nothing is received.
    let (buffer, size) = (a.queues[1].base + (64 << 10), a.queues[1].size());
    a.write(buffer, &[&header.bytes()[..], data].concat());
    a.describe(1, 0, buffer, (HEADER + data.len()) as u32, 0, 0);
    for entry in 0..u64::from(size) {
        a.write(available + 4 + 2 * entry, &[0, 0]);
    }
    let was = u16::from_le_bytes(a.read(used + 2));
    fence(Ordering::SeqCst);
    a.write(available + 2, &was.wrapping_add(times).to_le_bytes());
    a.kick(1);
}

/// A machine that is told each time.
fn told_each_time(lab: &Lab, name: &str, cid: u64) -> Guest {
    let mut options = Options { size: 1024, ..Options::vsock() };
    options.features &= !features::EVENT_IDX;
    Guest::with(lab.directory.path(), name, cid, options)
}

/// A few small packets that are there at once are hundreds for who takes a byte at a time.
#[test]
fn small_packets_in_crumbs_are_no_way_to_a_longer_turn() {
    let (lab, _) = machines(2);
    let mut a = Guest::new(&lab, "a", 3);
    let mut b = told_each_time(&lab, "b", 4);
    connect_wide(&mut a, &mut b);
    let all = offer_crumbs(&b.front, 1);
    let header = Header { len: 200, ..a.header(1000, (4, 80), Op::Rw) };
    send_at_once(&mut a.front, &header, &[7; 200], 6);
    let times = told_of_crumbs(&b.front, all, PATIENCE);
    assert!(times >= 3, "1024 packets were given in {times} turns");
}

/// To ask the system whether somebody listens takes longer than to pass a packet on.
#[test]
fn calls_of_nobody_are_no_way_to_a_longer_turn() {
    let (lab, _) = machines(1);
    let mut a = told_each_time(&lab, "a", 3);
    let [_, _, used] = a.front.queues[0].places();
    let was = u16::from_le_bytes(a.front.read(used + 2));
    told(&a.front);
    let header = a.header(1000, (HOST, 80), Op::Request);
    send_at_once(&mut a.front, &header, &[], 100);
    let times = told_of_crumbs(&a.front, was.wrapping_add(100), PATIENCE);
    assert!(times >= 5, "100 calls in {times} turns");
}

#[test]
fn who_takes_crumbs_takes_no_more_than_its_turn() {
    for chain in [512, 513] {
        let (lab, _) = machines(4);
        let mut a = Guest::new(&lab, "a", 3);
        let mut b = told_each_time(&lab, "b", 4);
        let [mut c, mut d] = [("c", 5), ("d", 6)].map(|(name, cid)| Guest::new(&lab, name, cid));
        connect_wide(&mut a, &mut b);
        connect(&mut c, &mut d);
        // It takes nothing, until all its good buffers are full and much waits.
        for piece in vec![7; 4 << 20].chunks(60_000) {
            a.send(a.header(1000, (4, 80), Op::Rw), piece);
        }
        if chain == 512 {
            let times = crumbs(&b.front, chain, PATIENCE);
            assert!(times >= 4, "others had their turn {times} times while it was given 1024");
        } else {
            crumbs(&b.front, chain, Duration::ZERO);
            a.hears((4, 80), 1000, Op::Rst);
        }
        c.send(c.header(1000, (6, 80), Op::Rw), b"ping");
        assert_eq!(d.data((5, 1000), 80, 4), b"ping");
    }
}

#[test]
fn a_close_that_waits_shuts_the_door_of_its_machine_alone() {
    if !alone("vsock_attack::a_close_that_waits_shuts_the_door_of_its_machine_alone") {
        return;
    }
    let (lab, _) = machines(2);
    let [mut a, mut b] = [("a", 3), ("b", 4)].map(|(name, cid)| Guest::new(&lab, name, cid));
    let path = |name: &str| lab.directory.path().join(format!("{name}.host"));
    let program = UnixStream::connect(path("a")).expect("connected");
    let program = FrontEnd::prepare(program, Options::vsock()).expect("made");
    program.raw(b"CONNECT 22\n", &[]).expect("told");
    program.raw(b"x", &[&crate::hostile::lingering(120)]).expect("told");
    let (request, _) = a.take(PATIENCE).expect("a packet");
    a.say(22, (HOST, request.from.port), Op::Response);
    a.hears((HOST, request.from.port), 22, Op::Rst);
    // Others come and go at the other door.
    for _ in 0..100 {
        let mut program = UnixStream::connect(path("b")).expect("connected");
        let _ = program.write_all(b"nonsense\n");
    }
    let mut program = UnixStream::connect(path("b")).expect("connected");
    program.write_all(b"CONNECT 22\n").expect("written");
    let (request, _) = b.take(PATIENCE).expect("the door is open");
    assert_eq!((request.to.port, request.op), (22, Op::Request as u16));
}

#[test]
fn what_is_sent_while_queues_are_stopped_waits() {
    let (lab, _) = machines(2);
    let [mut a, mut b] = [("a", 3), ("b", 4)].map(|(name, cid)| Guest::new(&lab, name, cid));
    connect(&mut a, &mut b);
    connect_from(&mut a, &mut b, 1001);
    let stop = |guest: &mut Guest, queue: u8| {
        let asked = guest.front.question(Request::GetVringBase, &[queue, 0, 0, 0, 0, 0, 0, 0]);
        let state = asked.expect("stopped");
        u16::from_le_bytes([state[4], state[5]])
    };
    for round in 0..3u8 {
        let receives = stop(&mut a, 0);
        // Between the two the guest runs on.
        a.send(a.header(1000, (4, 80), Op::Rw), &[round; 10]);
        std::thread::sleep(Duration::from_millis(50));
        let sends = stop(&mut a, 1);
        for (queue, base) in [receives, sends].into_iter().enumerate() {
            a.front.start(queue, base).expect("started");
        }
        assert_eq!(b.data((3, 1000), 80, 10), [round; 10]);
        a.send(a.header(1001, (4, 80), Op::Rw), b"also");
        assert_eq!(b.data((3, 1001), 80, 4), b"also");
        let taken = u32::from(round + 1) * 10;
        b.send(Header { fwd_cnt: taken, ..b.header(80, (3, 1000), Op::Rw) }, b"back");
        assert_eq!(a.data((4, 80), 1000, 4), b"back");
    }
}

/// A machine that receives as Linux does: its answers wait outside the queue, as many as the queue
/// has entries, and while so many wait it takes nothing; what it has taken it makes available again
/// once half of its buffers are gone (`virtio_transport_rx_work`).
struct Lazy {
    front: FrontEnd,
    cid: u64,
    answers: VecDeque<Header>,
    taken: Vec<u16>,
    /// So many of them may wait.
    room: usize,
    /// None is sent yet.
    asleep: bool,
}

impl Lazy {
    fn new(lab: &Lab, name: &str, cid: u64) -> Self {
        let Guest { front, .. } =
            Guest::with(lab.directory.path(), name, cid, Options { size: 128, ..Options::vsock() });
        Self { front, cid, answers: VecDeque::new(), taken: Vec::new(), room: 128, asleep: false }
    }

    /// Takes a packet and answers it, if it may. It did?
    fn step(&mut self) -> bool {
        let size = usize::from(self.front.queues[0].size());
        let sends = |this: &mut Self| match this.answers.front().map(Header::bytes) {
            Some(bytes) => this.front.send_with(1, &bytes, &[]),
            None => false,
        };
        while !self.asleep && sends(self) {
            self.answers.pop_front();
        }
        let next = if self.answers.len() < self.room { self.front.used(0) } else { None };
        if let Some((head, _)) = next {
            let at = self.front.queues[0].base + (64 << 10) + BUFFER * u64::from(head);
            let header = Header::parse(&self.front.read(at));
            if header.op == Op::Request as u16 {
                let (from, to, op) = (header.to, header.from, Op::Response as u16);
                self.answers.push_back(Header { from, to, op, ..header });
            }
            self.taken.push(head);
        }
        if self.taken.len() > size / 2 {
            for head in std::mem::take(&mut self.taken) {
                self.front.offer(0, head);
            }
        }
        next.is_some()
    }

    /// Takes so many.
    fn take(&mut self, count: usize) {
        let until = Instant::now() + PATIENCE;
        for _ in 0..count {
            while !self.step() {
                assert!(Instant::now() < until, "it is given nothing");
                std::thread::yield_now();
            }
        }
    }
}

/// Two that each wait for the other to take something first would wait for ever.
#[test]
fn a_machine_whose_answers_wait_is_heard_whatever_waits_for_it() {
    let (lab, _) = machines(3);
    let (mut a, mut c) = (Guest::new(&lab, "a", 3), Guest::new(&lab, "c", 5));
    let mut b = Lazy::new(&lab, "b", 4);
    let ports = 1000..1640;
    for port in ports.clone() {
        a.say(port, (4, 80), Op::Request);
    }
    // It has answered two queues full of requests, one of which is just being sent …
    (b.asleep, b.room) = (true, 256);
    b.take(256);
    // … when all are given up.
    for port in ports {
        a.say(port, (4, 80), Op::Rst);
    }
    std::thread::sleep(Duration::from_millis(50));
    (b.asleep, b.room) = (false, 128);
    c.say(7, (4, 80), Op::Request);
    let until = Instant::now() + PATIENCE;
    loop {
        b.step();
        if let Some((header, _)) = c.take(Duration::ZERO) {
            assert_eq!((header.op, header.from.cid), (Op::Response as u16, b.cid));
            return;
        }
        assert!(Instant::now() < until, "it is stuck: {} answers wait", b.answers.len());
    }
}

#[test]
fn a_flood_of_connections_leaves_room_for_others() {
    let (lab, names) = machines(8);
    let mut guests: Vec<Guest> =
        names.iter().zip(3..).map(|(name, cid)| Guest::new(&lab, name, cid)).collect();
    let (mut good, mut b) = (guests.remove(0), guests.remove(0));
    // It takes nothing for a while, and all of them want all that there is of it.
    for evil in &mut guests {
        for port in 0..1500 {
            evil.say(port, (b.cid, 80), Op::Request);
        }
    }
    good.say(7, (b.cid, 80), Op::Request);
    assert_eq!(good.take(Duration::from_millis(200)), None, "it is turned away");
    let wanted = loop {
        let (header, _) = b.take(PATIENCE).expect("a packet");
        if header.from.cid == good.cid {
            break header;
        }
    };
    assert_eq!((wanted.op, wanted.from.port), (Op::Request as u16, 7));
    b.say(80, (good.cid, 7), Op::Response);
    good.hears((b.cid, 80), 7, Op::Response);
}
