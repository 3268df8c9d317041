//! Sockets between machines: guests made in the test, and programs of the host.

mod guest;
mod programs;

use crate::common::{Lab, PATIENCE};
use ginnel_switch::config::{Config, VsockConfig};
use ginnel_switch::front_end::{GUEST, Options};
use ginnel_switch::poller::Poller;
use ginnel_switch::ring::Room;
use ginnel_switch::status::Status;
use ginnel_switch::vhost::message::Request;
use ginnel_switch::vsock::Hub;
use ginnel_switch::vsock::packet::{Address, HOST, Header, Op};
pub use guest::{Guest, connect, connect_from};
use guest::{THREE, WINDOW, bytes, pair};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

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
    let (hub, end) = hub(place.path());
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
    drop((a, b));
    assert!(end(hub).is_idle(), "bytes are counted as waiting");
}

/// A guest that takes nothing cannot have the switch keep more and more that is to be told to it.
#[test]
fn who_takes_nothing_is_heard_and_no_more_is_kept_for_it() {
    let place = tempfile::tempdir().expect("a directory");
    let (hub, end) = hub(place.path());
    let [mut a, mut b] = [("a", 3), ("b", 4)].map(|(name, cid)| Guest::at(place.path(), name, cid));
    // It begins connections that the other refuses, and some that nobody knows; it reads nothing.
    for port in 10_000..16_000 {
        a.say(port, (4, 80), Op::Request);
        a.say(port, (9, 80), Op::Request);
        while let Some((header, _)) = b.take(Duration::ZERO) {
            if header.op == Op::Request as u16 {
                b.say(80, (3, header.from.port), Op::Rst);
            }
        }
    }
    let hub = end(hub);
    assert!(hub.machines[0].queue.len() <= 1024, "{}", hub.machines[0].queue.len());
    assert!(hub.machines[0].replies.len() <= 1024, "{}", hub.machines[0].replies.len());
    drop((a, b));
}

/// A program that leaves what it was sent has the last of its connection taken along.
#[test]
fn what_waits_for_a_program_goes_with_it() {
    let place = tempfile::tempdir().expect("a directory");
    let (hub, end) = hub(place.path());
    let listener = UnixListener::bind(place.path().join("a.vsock.host_52")).expect("bound");
    let mut a = Guest::at(place.path(), "a", 3);
    // The last one's end is heard, so that the hub has seen all of them when it ends.
    for port in 1001..=1010 {
        a.say(port, (HOST, 52), Op::Request);
        a.hears((HOST, 52), port, Op::Response);
        let (program, _) = listener.accept().expect("connected");
        a.send(a.header(port, (HOST, 52), Op::Rw), &bytes(WINDOW as usize, 1));
        // It goes before its machine ends the connection, or after that.
        let before = port % 2 == 0;
        if !before {
            a.say(port, (HOST, 52), Op::Rst);
        }
        while a.take(Duration::from_millis(20)).is_some() {}
        drop(program);
        if before {
            a.hears((HOST, 52), port, Op::Rst);
        }
    }
    assert!(end(hub).is_idle(), "connections are kept of which both ends are gone");
}

/// A hub of two machines in a thread of its own, and how that is ended.
fn hub(place: &Path) -> (JoinHandle<Hub>, impl FnOnce(JoinHandle<Hub>) -> Hub + use<>) {
    let mut config = Config::new(place.to_owned(), Vec::new());
    let device = |(cid, name): (u32, &str)| {
        VsockConfig::new(name, cid, place.join(format!("{name}.vsock")), 0)
    };
    config.vsock = [(3, "a"), (4, "b")].map(device).into();
    let poller = Poller::new().expect("an epoll set");
    let mut hub = Hub::new(&config, &Room::new(1 << 40), poller.clone()).expect("a hub");
    let (end, ends) = UnixStream::pair().expect("a pair");
    let hub = std::thread::spawn(move || {
        hub.run(&poller, ends).expect("it runs");
        hub
    });
    (hub, move |hub: JoinHandle<Hub>| {
        end.shutdown(std::net::Shutdown::Both).expect("shut");
        hub.join().expect("the hub goes on")
    })
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
