//! Sockets between machines: guests made in the test, and programs of the host.

use crate::common::{Lab, PATIENCE};
use ginnel_switch::config::{Config, VsockConfig};
use ginnel_switch::front_end::{FrontEnd, GUEST, Options};
use ginnel_switch::poller::Poller;
use ginnel_switch::ring::Room;
use ginnel_switch::status::Status;
use ginnel_switch::vhost::message::Request;
use ginnel_switch::vsock::Hub;
use ginnel_switch::vsock::packet::{Address, HEADER, HOST, Header, Op, STREAM};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

const THREE: &str = "[vsock.a]\ncid = 3\n[vsock.b]\ncid = 4\n[vsock.c]\ncid = 5\n\
                     [vsock.far]\ncid = 4\nkey = 1\n";
/// What a guest of Linux can keep for a connection.
const WINDOW: u32 = 256 << 10;

pub struct Guest {
    pub front: FrontEnd,
    pub cid: u64,
}

impl Guest {
    pub fn new(lab: &Lab, name: &str, cid: u64) -> Self {
        Self::at(lab.directory.path(), name, cid)
    }

    fn at(place: &Path, name: &str, cid: u64) -> Self {
        Self::with(place, name, cid, Options::vsock())
    }

    pub fn with(place: &Path, name: &str, cid: u64, options: Options) -> Self {
        let path = place.join(format!("{name}.vsock"));
        let until = Instant::now() + PATIENCE;
        loop {
            // Who was there before is let go a little later.
            match FrontEnd::connect(&path, options) {
                Ok(front) => return Self { front, cid },
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn header(&self, port: u32, to: (u64, u32), op: Op) -> Header {
        Header {
            from: Address { cid: self.cid, port },
            to: Address { cid: to.0, port: to.1 },
            len: 0,
            kind: STREAM,
            op: op as u16,
            flags: 0,
            buf_alloc: WINDOW,
            fwd_cnt: 0,
        }
    }

    pub fn send(&mut self, header: Header, data: &[u8]) {
        let header = Header { len: data.len() as u32, ..header };
        let until = Instant::now() + PATIENCE;
        while !self.front.send_with(1, &header.bytes(), data) {
            assert!(Instant::now() < until, "nothing of what it sends is taken");
            std::thread::yield_now();
        }
    }

    pub fn say(&mut self, port: u32, to: (u64, u32), op: Op) {
        self.send(self.header(port, to, op), &[]);
    }

    pub fn take(&mut self, limit: Duration) -> Option<(Header, Vec<u8>)> {
        let whole = self.front.wait_with(0, limit)?;
        let header = Header::parse(whole.first_chunk::<HEADER>().expect("a header"));
        assert_eq!(whole.len(), HEADER + header.len as usize);
        assert_eq!((header.to.cid, header.kind), (self.cid, STREAM));
        Some((header, whole[HEADER..].to_vec()))
    }

    /// The next packet, which is this.
    #[track_caller]
    pub fn hears(&mut self, from: (u64, u32), port: u32, op: Op) -> (Header, Vec<u8>) {
        let (header, data) = self.take(PATIENCE).expect("a packet");
        let said = (header.from.cid, header.from.port, header.to.port, header.op);
        assert_eq!(said, (from.0, from.1, port, op as u16));
        (header, data)
    }

    /// So many bytes of a connection, in however many packets.
    #[track_caller]
    pub fn data(&mut self, from: (u64, u32), port: u32, len: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < len {
            all.extend(self.hears(from, port, Op::Rw).1);
        }
        assert_eq!(all.len(), len);
        all
    }

    fn quiet(&mut self) {
        assert_eq!(self.take(Duration::from_millis(50)), None);
    }
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|n| (n as u8).wrapping_mul(31).wrapping_add((n >> 8) as u8).wrapping_add(seed))
        .collect()
}

/// Two guests with a connection from port 1000 of the first to port 80 of the second.
pub fn connect(a: &mut Guest, b: &mut Guest) {
    connect_from(a, b, 1000);
}

pub fn connect_from(a: &mut Guest, b: &mut Guest, port: u32) {
    a.say(port, (b.cid, 80), Op::Request);
    let (request, _) = b.hears((a.cid, port), 80, Op::Request);
    assert_eq!((request.buf_alloc, request.fwd_cnt), (WINDOW, 0));
    b.say(80, (a.cid, port), Op::Response);
    a.hears((b.cid, 80), port, Op::Response);
}

fn pair(lab: &Lab) -> [Guest; 2] {
    [Guest::new(lab, "a", 3), Guest::new(lab, "b", 4)]
}

#[test]
fn the_front_end_reads_the_context_id() {
    let lab = Lab::new(THREE);
    let mut a = Guest::new(&lab, "a", 3);
    let asked = [0u32, 8, 0].map(u32::to_le_bytes).concat();
    let answer = a.front.question(Request::GetConfig, &[&asked[..], &[0; 8]].concat());
    assert_eq!(answer.expect("an answer"), [&asked[..], &3u64.to_le_bytes()].concat());
    // What is not there.
    let beyond = [4u32, 8, 0].map(u32::to_le_bytes).concat();
    assert_eq!(a.front.question(Request::GetConfig, &beyond).expect("an answer"), [0u8; 0]);
}

#[test]
fn siblings_talk() {
    let lab = Lab::new(THREE);
    let [mut a, mut b] = pair(&lab);
    connect(&mut a, &mut b);
    for len in [1, 44, 2004, 2005, 8192, 65536, 100_000] {
        let sent = bytes(len, len as u8);
        a.send(a.header(1000, (4, 80), Op::Rw), &sent);
        assert_eq!(b.data((3, 1000), 80, len), sent, "{len} bytes");
    }
    // The other way, with what was taken told.
    let told = Header { fwd_cnt: 177_782, ..b.header(80, (3, 1000), Op::Rw) };
    b.send(told, b"hello");
    let (heard, data) = a.hears((4, 80), 1000, Op::Rw);
    assert_eq!((heard.fwd_cnt, heard.buf_alloc, &data[..]), (177_782, WINDOW, &b"hello"[..]));
    let done = Header { flags: 3, ..a.header(1000, (4, 80), Op::Shutdown) };
    a.send(done, &[]);
    assert_eq!(b.hears((3, 1000), 80, Op::Shutdown).0.flags, 3);
    b.say(80, (3, 1000), Op::Rst);
    a.hears((4, 80), 1000, Op::Rst);
    // It is over.
    a.say(1000, (4, 80), Op::Rw);
    a.hears((4, 80), 1000, Op::Rst);
    b.quiet();
}

#[test]
fn who_is_not_there_refuses() {
    let lab = Lab::new(THREE);
    let [mut a, mut b] = pair(&lab);
    // Not up; not there; of another key alone; itself; no program of the host.
    for cid in [5, 9, 3, 1, HOST, 4 << 32, u64::MAX] {
        a.say(7, (cid, 80), Op::Request);
        a.hears((cid, 80), 7, Op::Rst);
    }
    let mut far = Guest::new(&lab, "far", 4);
    a.say(7, (4, 80), Op::Request);
    b.hears((3, 7), 80, Op::Request);
    far.quiet();
    b.say(80, (3, 7), Op::Rst);
    a.hears((4, 80), 7, Op::Rst);
    // Another kind of socket, an operation that there is not, one that belongs to nothing.
    a.send(Header { kind: 2, ..a.header(7, (4, 80), Op::Request) }, &[]);
    let whole = a.front.wait_with(0, PATIENCE).expect("an answer");
    assert_eq!(Header::parse(whole.first_chunk().expect("a header")).op, Op::Rst as u16);
    a.send(Header { op: 99, ..a.header(7, (4, 80), Op::Request) }, &[]);
    a.hears((4, 80), 7, Op::Rst);
    a.say(7, (4, 80), Op::CreditUpdate);
    a.hears((4, 80), 7, Op::Rst);
    b.quiet();
}

#[test]
fn nobody_speaks_for_another() {
    let lab = Lab::new(THREE);
    let [mut a, mut b] = pair(&lab);
    let mut c = Guest::new(&lab, "c", 5);
    connect(&mut a, &mut b);
    // As if it were a; longer than it is; no header at all.
    c.send(
        Header { from: Address { cid: 3, port: 1000 }, ..c.header(0, (4, 80), Op::Rw) },
        b"evil",
    );
    let long = Header { len: 99, ..c.header(1, (4, 80), Op::Request) };
    assert!(c.front.send_with(1, &long.bytes(), b"short"));
    c.hears((4, 80), 1, Op::Rst);
    assert!(c.front.send_with(1, &[0; 20], &[]));
    b.quiet();
    a.send(a.header(1000, (4, 80), Op::Rw), b"good");
    assert_eq!(b.data((3, 1000), 80, 4), b"good");
    let status: Status = serde_json::from_str(&lab.ask("status")).expect("a status");
    let of = |name: &str| status.vsock.iter().find(|one| one.name == name).expect("a device");
    assert_eq!((of("c").bad, of("c").connections, of("a").connections), (3, 0, 1));
    assert_eq!((of("a").sent_bytes, of("b").received_bytes, of("b").up), (4, 4, true));
}

#[test]
fn more_than_the_credit_resets_the_connection() {
    let lab = Lab::new(THREE);
    let [mut a, mut b] = pair(&lab);
    connect(&mut a, &mut b);
    let sent = bytes(WINDOW as usize, 1);
    a.send(a.header(1000, (4, 80), Op::Rw), &sent);
    assert!(b.data((3, 1000), 80, sent.len()) == sent);
    a.send(a.header(1000, (4, 80), Op::Rw), b"x");
    a.hears((4, 80), 1000, Op::Rst);
    b.hears((3, 1000), 80, Op::Rst);
    // Who says that it took more than it was given.
    connect(&mut a, &mut b);
    b.send(Header { fwd_cnt: 1, ..b.header(80, (3, 1000), Op::CreditUpdate) }, &[]);
    a.hears((4, 80), 1000, Op::Rst);
    b.hears((3, 1000), 80, Op::Rst);
    // Before it was answered.
    a.say(1000, (4, 80), Op::Request);
    b.hears((3, 1000), 80, Op::Request);
    a.send(a.header(1000, (4, 80), Op::Rw), b"x");
    a.hears((4, 80), 1000, Op::Rst);
    b.hears((3, 1000), 80, Op::Rst);
}

#[test]
fn who_does_not_read_stops_its_own_connections_alone() {
    let lab = Lab::new(THREE);
    let [mut a, mut b] = pair(&lab);
    let mut c = Guest::new(&lab, "c", 5);
    connect(&mut a, &mut c);
    for port in 2000..2004 {
        connect_from(&mut a, &mut b, port);
    }
    // As much as b has room for of each, while it takes nothing: 1 MiB for 256 buffers of 2 KiB.
    let sent: Vec<_> = (0..4).map(|n| bytes(WINDOW as usize, n)).collect();
    for (data, port) in sent.iter().zip(2000..) {
        for piece in data.chunks(50_000) {
            a.send(a.header(port, (4, 80), Op::Rw), piece);
        }
        // Others are not held up.
        a.send(a.header(1000, (5, 80), Op::Rw), b"still");
        assert_eq!(c.data((3, 1000), 80, 5), b"still");
    }
    // It reads again: everything is there, each connection's in its order.
    let mut got = vec![Vec::new(); 4];
    while got.iter().map(Vec::len).sum::<usize>() < 4 * WINDOW as usize {
        let (header, data) = b.take(PATIENCE).expect("a packet");
        got[header.to.port as usize - 80 + header.from.port as usize - 2000].extend(data);
    }
    assert!(got == sent);
    a.send(a.header(1000, (5, 80), Op::Rw), b"done");
    assert_eq!(c.data((3, 1000), 80, 4), b"done");
}

/// What was given to a guest before it broke a rule waits no longer.
#[test]
fn a_buffer_too_small_behind_good_ones_leaves_nothing() {
    let place = tempfile::tempdir().expect("a directory");
    let mut config = Config::new(place.path().to_owned(), Vec::new());
    let device = |(cid, name): (u32, &str)| {
        VsockConfig::new(name, cid, place.path().join(format!("{name}.vsock")), 0)
    };
    config.vsock = [(3, "a"), (4, "b")].map(device).into();
    let poller = Poller::new().expect("an epoll set");
    let mut hub = Hub::new(&config, &Room::new(1 << 40), poller.clone()).expect("a hub");
    let (end, ends) = UnixStream::pair().expect("a pair");
    let hub = std::thread::spawn(move || {
        hub.run(&poller, ends).expect("it runs");
        hub
    });
    let [mut a, mut b] = [("a", 3), ("b", 4)].map(|(name, cid)| Guest::at(place.path(), name, cid));
    for port in 2000..2004 {
        connect_from(&mut a, &mut b, port);
    }
    for port in 2000..2004 {
        for _ in 0..4 {
            a.send(a.header(port, (4, 80), Op::Rw), &bytes(50_000, 1));
        }
    }
    // Eight good buffers and a small one, all of which it sees at once.
    let heads: Vec<u16> = (0..9).map(|_| b.front.used(0).expect("a filled one").0).collect();
    b.front.describe(0, heads[8], GUEST, 10, 2, 0);
    let [_, available, _] = b.front.queues[0].places();
    let (next, size) = (b.front.queues[0].next, Options::vsock().size);
    for (&head, at) in heads.iter().zip(next..) {
        b.front.write(available + 4 + 2 * u64::from(at % size), &head.to_le_bytes());
    }
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    b.front.write(available + 2, &next.wrapping_add(9).to_le_bytes());
    b.front.kick(0);
    for _ in 0..4 {
        assert_eq!(a.take(PATIENCE).expect("a packet").0.op, Op::Rst as u16);
    }
    drop((a, b, end));
    assert!(hub.join().expect("the hub goes on").is_idle(), "bytes are counted as waiting");
}

/// A guest that takes nothing cannot have the switch keep more and more that is to be told to it.
#[test]
fn who_takes_nothing_is_heard_no_further() {
    let lab = Lab::new(THREE);
    let [mut a, mut b] = pair(&lab);
    let mut port = 10_000;
    let mut goes_on = true;
    while goes_on && port < 40_000 {
        port += 1;
        for op in [Op::Request, Op::Shutdown] {
            let header = a.header(port, (4, 80), op).bytes();
            let until = Instant::now() + Duration::from_secs(1);
            while !a.front.send_with(1, &header, &[]) && goes_on {
                goes_on = Instant::now() < until;
                std::thread::yield_now();
            }
        }
    }
    assert!(!goes_on, "30,000 connections end, and it is still heard");
    // When it takes again, all goes on.
    while a.take(Duration::from_millis(200)).is_some() {}
    while b.take(Duration::from_millis(200)).is_some() {}
    connect(&mut a, &mut b);
}

#[test]
fn a_machine_that_goes_or_boots_ends_its_connections() {
    let lab = Lab::new(THREE);
    let [mut a, mut b] = pair(&lab);
    connect(&mut a, &mut b);
    drop(b);
    a.hears((4, 80), 1000, Op::Rst);
    let mut b = Guest::new(&lab, "b", 4);
    connect(&mut a, &mut b);
    // It stands still, and goes on: what was sent meanwhile comes.
    let stop = |guest: &mut Guest| {
        [0u8, 1].map(|queue| {
            let state = guest.front.question(Request::GetVringBase, &[queue, 0, 0, 0, 0, 0, 0, 0]);
            u16::from_le_bytes([state.as_ref().expect("stopped")[4], state.expect("stopped")[5]])
        })
    };
    let bases = stop(&mut b);
    a.send(a.header(1000, (4, 80), Op::Rw), b"meanwhile");
    a.say(1001, (4, 80), Op::Request);
    for (queue, base) in bases.into_iter().enumerate() {
        b.front.start(queue, base).expect("started");
    }
    assert_eq!(b.data((3, 1000), 80, 9), b"meanwhile");
    b.hears((3, 1001), 80, Op::Request);
    b.say(80, (3, 1001), Op::Response);
    a.hears((4, 80), 1001, Op::Response);
    // It breaks a rule.
    b.front.describe(1, 0, GUEST, 64, 1, 999);
    b.front.offer(1, 0);
    b.front.kick(1);
    let mut ended = [1, 2].map(|_| a.take(PATIENCE).expect("a packet").0.to.port);
    ended.sort_unstable();
    assert_eq!(ended, [1000, 1001]);
    a.say(1000, (4, 80), Op::Request);
    a.hears((4, 80), 1000, Op::Rst);
}

#[test]
fn a_machine_reaches_programs_of_the_host() {
    let lab = Lab::new(THREE);
    let mut a = Guest::new(&lab, "a", 3);
    let listener = UnixListener::bind(lab.directory.path().join("a.host_52")).expect("bound");
    a.say(1000, (HOST, 52), Op::Request);
    let (answer, _) = a.hears((HOST, 52), 1000, Op::Response);
    assert!(answer.buf_alloc >= 65536);
    let (mut program, _) = listener.accept().expect("connected");
    program.set_read_timeout(Some(PATIENCE)).expect("set");
    // Much more than its window, as it is told of room.
    let (sent, mut told, mut read) = (bytes(1 << 20, 3), 0, vec![0; 1 << 20]);
    let reader = std::thread::spawn(move || {
        program.read_exact(&mut read).expect("read");
        (program, read)
    });
    let mut done = 0;
    while done < sent.len() {
        let room = (told + answer.buf_alloc as usize - done).min(sent.len() - done).min(50_000);
        if room > 0 {
            a.send(a.header(1000, (HOST, 52), Op::Rw), &sent[done..done + room]);
            done += room;
        } else {
            told = a.hears((HOST, 52), 1000, Op::CreditUpdate).0.fwd_cnt as usize;
        }
    }
    let (mut program, read) = reader.join().expect("read");
    assert!(read == sent);
    // And back, within what the machine can keep.
    let writer = std::thread::spawn(move || {
        program.write_all(&bytes(1 << 20, 4)).expect("written");
        program.shutdown(std::net::Shutdown::Write).expect("shut");
        program
    });
    let mut got = Vec::new();
    let mut program = loop {
        let (header, data) = a.take(PATIENCE).expect("a packet");
        match Op::of(header.op) {
            Some(Op::Rw) => got.extend(data),
            Some(Op::CreditUpdate) => continue,
            Some(Op::Shutdown) => {
                assert_eq!(header.flags, 2);
                break writer.join().expect("written");
            }
            other => panic!("{other:?}"),
        }
        assert!(got.len() <= 1 << 20);
        if got.len() % (128 << 10) < 2048 {
            let update = a.header(1000, (HOST, 52), Op::CreditUpdate);
            a.send(Header { fwd_cnt: got.len() as u32, ..update }, &[]);
        }
    };
    assert!(got == bytes(1 << 20, 4));
    let update = a.header(1000, (HOST, 52), Op::Shutdown);
    a.send(Header { flags: 3, fwd_cnt: 1 << 20, ..update }, &[]);
    a.hears((HOST, 52), 1000, Op::Rst);
    assert_eq!(program.read(&mut [0]).expect("the end"), 0);
}

/// Credit comes with any packet: a machine that answers with data need not tell of room besides.
#[test]
fn room_that_data_tells_of_is_used() {
    let lab = Lab::new(THREE);
    let mut a = Guest::new(&lab, "a", 3);
    let listener = UnixListener::bind(lab.directory.path().join("a.host_52")).expect("bound");
    let request = a.header(1000, (HOST, 52), Op::Request);
    a.send(Header { buf_alloc: 1000, ..request }, &[]);
    a.hears((HOST, 52), 1000, Op::Response);
    let (mut program, _) = listener.accept().expect("connected");
    program.write_all(&bytes(3000, 5)).expect("written");
    let mut got = a.data((HOST, 52), 1000, 1000);
    for taken in [1000, 2000] {
        let said = a.header(1000, (HOST, 52), Op::Rw);
        a.send(Header { buf_alloc: 1000, fwd_cnt: taken, ..said }, b"x");
        got.extend(a.data((HOST, 52), 1000, 1000));
    }
    assert!(got == bytes(3000, 5));
}

#[test]
fn programs_of_the_host_reach_a_machine() {
    let lab = Lab::new(THREE);
    let mut a = Guest::new(&lab, "a", 3);
    let path = lab.directory.path().join("a.host");
    let call = |line: &str| {
        let mut program = UnixStream::connect(&path).expect("connected");
        program.set_read_timeout(Some(PATIENCE)).expect("set");
        program.write_all(line.as_bytes()).expect("written");
        program
    };
    // What follows the line is for the machine.
    let mut program = call("CONNECT 22\nearly");
    let (request, _) = a.take(PATIENCE).expect("a packet");
    assert_eq!((request.from.cid, request.to.port, request.op), (HOST, 22, Op::Request as u16));
    let port = request.from.port;
    a.say(22, (HOST, port), Op::Response);
    let mut answer = vec![0; format!("OK {port}\n").len()];
    program.read_exact(&mut answer).expect("an answer");
    assert_eq!(String::from_utf8_lossy(&answer), format!("OK {port}\n"));
    assert_eq!(a.data((HOST, port), 22, 5), b"early");
    a.send(Header { fwd_cnt: 5, ..a.header(22, (HOST, port), Op::Rw) }, b"late");
    let mut data = [0; 4];
    program.read_exact(&mut data).expect("data");
    assert_eq!(&data, b"late");
    // Refused, malformed, gone before it was answered.
    for (line, answered) in
        [("CONNECT 23\n", true), ("CONNECT x\n", false), ("GET / HTTP/1.1\r\n", false)]
    {
        let mut program = call(line);
        if answered {
            let (request, _) = a.take(PATIENCE).expect("a packet");
            a.say(23, (HOST, request.from.port), Op::Rst);
        }
        assert_eq!(program.read(&mut [0]).expect("the end"), 0, "{line}");
    }
    let gone = call("CONNECT 24\n");
    let (request, _) = a.take(PATIENCE).expect("a packet");
    drop(gone);
    a.hears((HOST, request.from.port), 24, Op::Rst);
    // A line that never ends.
    let mut endless = call(&"x".repeat(100));
    // What it did not read is thrown away with it.
    assert!(endless.read(&mut [0]).is_ok_and(|len| len == 0) || endless.write(b"x").is_err());
}

#[test]
fn descriptors_of_programs_hold_up_nobody() {
    let lab = Lab::new(THREE);
    let [mut a, mut b] = pair(&lab);
    let path = lab.directory.path().join("a.host");
    let program = UnixStream::connect(&path).expect("connected");
    let program = FrontEnd::prepare(program, Options::vsock()).expect("made");
    program.raw(b"CONNECT 22\n", &[]).expect("told");
    // Its last close takes long. It is not read before the machine has answered, so that this is
    // not the last one.
    program.raw(b"x", &[&crate::hostile::lingering(120)]).expect("told");
    let (request, _) = a.take(PATIENCE).expect("a packet");
    let port = request.from.port;
    a.say(22, (HOST, port), Op::Response);
    a.hears((HOST, port), 22, Op::Rst);
    connect(&mut a, &mut b);
}
