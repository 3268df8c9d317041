//! Other hosts that lie, are silent, or take nothing: they harm nobody but their own connection.

use crate::common::fabric::{Net, secret};
use crate::common::{ALL, Lab, PATIENCE, alone, frame, mac, next, talk};
use ginnel_switch::config::Provider;
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::hosts::handshake::{self, CALL, Keys};
use ginnel_switch::hosts::libfabric::{Connection, Event, Fabric};
use ginnel_switch::hosts::link::Wire;
use ginnel_switch::hosts::message::{HEAD, Message, RECORD, Seals, put};
use ginnel_switch::secret::Secret;
use ginnel_switch::wire::{HEADER, MESSAGE};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const PORTS: &str = "[port.a]\n[port.b]\n";

/// A switch with two guests, and a host of its fabric that this test is.
pub struct Bystanders {
    pub lab: Lab,
    pub a: FrontEnd,
    pub b: FrontEnd,
    secret: Option<Secret>,
    own: SocketAddr,
    switch: SocketAddr,
}

impl Bystanders {
    pub fn new(net: &Net, text: Option<&str>) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let file = text.map(|text| secret(place.path(), text));
        let lab = Lab::new(&format!("{PORTS}{}", net.text(2, 2, file.as_deref())));
        let [a, b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
        let [own, switch] = [1, 2].map(|n| SocketAddr::new(net.address(n).into(), 9192));
        let secret = text.map(|text| Secret::new(text.as_bytes()));
        let mut all = Self { lab, a, b, secret, own, switch };
        // So that both are known, and what is for one goes to that one.
        all.undisturbed();
        all
    }

    pub fn undisturbed(&mut self) {
        while self.a.receive(0).is_some() {}
        while self.b.receive(0).is_some() {}
        talk((&mut self.a, 1), (&mut self.b, 2));
    }

    /// Calls the switch. Its answer, and the connection.
    fn call(&self, fabric: &Arc<Fabric>, call: &[u8]) -> Option<(Connection, Vec<u8>)> {
        let info = fabric.info_for(self.switch).expect("an address");
        let connection = Connection::open(fabric, &info).expect("opened");
        connection.call(self.switch, call).expect("called");
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match fabric.event().expect("events") {
                Some(Event::Connected { id, data }) if id == connection.id() => {
                    return Some((connection, data));
                }
                Some(Event::Ended { id, .. }) if id == connection.id() => return None,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        panic!("no answer");
    }

    fn good_call(&self) -> [u8; CALL] {
        handshake::call(self.secret.as_ref(), self.own, self.switch, handshake::nonce())
    }

    pub fn fabric(&self) -> Arc<Fabric> {
        let until = Instant::now() + PATIENCE;
        loop {
            match Fabric::open(Provider::Tcp, self.own) {
                Ok(fabric) => return Arc::new(fabric),
                // The one before is just being closed.
                Err(why) => assert!(Instant::now() < until, "{why}"),
            }
        }
    }

    /// A host like any other.
    pub fn host(&self, fabric: &Arc<Fabric>) -> Peer {
        let began = Instant::now();
        // The switch may not listen yet.
        let (call, wire, answer) = loop {
            let call = self.good_call();
            if let Some((wire, answer)) = self.call(fabric, &call) {
                break (call, wire, answer);
            }
            assert!(began.elapsed() < PATIENCE, "it is not answered");
        };
        let keys = handshake::answered(self.secret.as_ref(), &call, &answer).expect("good");
        Peer { wire, seals: Seals::new(keys) }
    }

    fn is_let_go(&mut self, why: &str) {
        let host = self.lab.until_host("h1", |host| {
            host.state == "down" && host.trouble.as_ref().is_some_and(|said| said.contains(why))
        });
        assert!(host.keys.is_empty());
        self.undisturbed();
    }
}

/// Connects from an address, with any port.
fn connect(from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::new(from.ip(), 0))?;
    let stream = TcpStream::from(socket);
    stream.set_write_timeout(Some(Duration::from_millis(300)))?;
    connect(&stream, &to)?;
    Ok(stream)
}

pub struct Peer {
    wire: Connection,
    seals: Seals,
}

impl Peer {
    pub fn send(&mut self, message: &[u8]) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            if self.wire.look().is_err() {
                return false;
            }
            if let Some(index) = self.wire.take() {
                self.wire.buffer(index)[..message.len()].copy_from_slice(message);
                return self.wire.send(index, message.len()).unwrap_or(false);
            }
            assert!(Instant::now() < until, "the switch takes nothing");
        }
    }

    pub fn alive(&mut self, keys: &[u32]) -> bool {
        let mut message = vec![0; MESSAGE];
        let len = self.seals.alive(&mut message, keys);
        self.send(&message[..len])
    }

    /// The same with no look at what has come, but where buffers are out. None is given back.
    pub fn alive_unheard(&mut self, keys: &[u32]) {
        let mut message = vec![0; MESSAGE];
        let len = self.seals.alive(&mut message, keys);
        let freed = |wire: &mut Connection| wire.look().ok().and_then(|()| wire.take());
        let index = self.wire.take().or_else(|| freed(&mut self.wire)).expect("a buffer");
        self.wire.buffer(index)[..len].copy_from_slice(&message[..len]);
        assert!(self.wire.send(index, len).expect("sent"));
    }

    pub fn frames(&mut self, frames: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let mut message = vec![0; MESSAGE];
        let mut at = HEAD;
        for (key, frame) in frames {
            let place = put(&mut message, at, *key, HEADER + frame.len()).expect("room");
            place[HEADER..].copy_from_slice(frame);
            at += RECORD + frame.len();
        }
        message.truncate(at);
        self.seals.frames(&mut message, frames.len() as u32);
        message
    }

    /// The next frames that come.
    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some((index, len)) = self.wire.receive().expect("connected") {
                let bytes = self.wire.buffer(index).get_mut(..len).expect("so many");
                let frames = match self.seals.open(bytes).expect("good") {
                    Message::Frames(frames) => {
                        frames.map(|(_, front)| front[HEADER..].to_vec()).collect()
                    }
                    Message::Alive(_) => Vec::new(),
                };
                self.wire.give_back(index).expect("connected");
                if !frames.is_empty() {
                    return frames;
                }
            }
            assert!(Instant::now() < until, "nothing comes");
        }
    }
}

#[test]
fn messages_that_are_none_end_their_connection_alone() {
    let Some(net) = Net::new() else { return };
    for text in [None, Some("0123456789abcdef")] {
        let mut all = Bystanders::new(&net, text);
        let fabric = all.fabric();
        let hello = |all: &mut Bystanders, peer: &mut Peer| {
            assert!(peer.alive(&[0]));
            all.lab.until_host("h1", |host| host.state == "up" && host.keys == [0]);
        };
        let good = |peer: &mut Peer, n| peer.frames(&[(0, frame(mac(1), mac(7), 50, n))]);
        type Make = fn(&mut Peer, Vec<u8>) -> Vec<u8>;
        let cases: [(&str, Make); 6] = [
            ("message", |_, _| vec![0; MESSAGE]),
            ("message", |_, _| vec![1]),
            ("message", |_, good| good[..good.len() - 1].to_vec()),
            ("message", |peer, good| {
                assert!(peer.send(&good));
                good
            }),
            ("message", |peer, _| {
                let mut message = peer.frames(&[(0, vec![7; 60])]);
                message[HEAD + 4] = 59;
                message
            }),
            ("message", |_, mut good| {
                *good.last_mut().expect("a byte") ^= 1;
                good[40] ^= 1;
                good
            }),
        ];
        for (why, make) in cases {
            let mut peer = all.host(&fabric);
            hello(&mut all, &mut peer);
            let message = good(&mut peer, 1);
            let message = make(&mut peer, message);
            assert!(peer.send(&message));
            all.is_let_go(why);
        }
        let mut peer = all.host(&fabric);
        hello(&mut all, &mut peer);
        frames_that_are_none_are_dropped(&mut all, &mut peer, text.is_some());
        all.undisturbed();
    }
}

/// Each is dropped for its reason, and nothing else is.
fn frames_that_are_none_are_dropped(all: &mut Bystanders, peer: &mut Peer, sealed: bool) {
    let message = peer.frames(&[
        (1, frame(mac(1), mac(7), 50, 1)),
        (0, frame(mac(1), [1; 6], 50, 1)),
        (0, frame([1, 0x80, 0xc2, 0, 0, 3], mac(7), 50, 1)),
        (0, frame(mac(7), mac(8), 50, 1)),
        (0, frame(mac(1), mac(7), 50, 9)),
    ]);
    while all.a.receive(0).is_some() {}
    assert!(peer.send(&message));
    let got = all.a.wait(0, PATIENCE);
    assert_eq!(got, Some(frame(mac(1), mac(7), 50, 9)));
    let dropped = all.lab.host("h1").dropped;
    for reason in ["no_such_key", "bad_source", "link_local", "elsewhere"] {
        assert!(dropped.contains_key(reason), "{reason}: {dropped:?}");
    }
    let mut message = peer.frames(&[(0, frame(mac(1), mac(7), 50, 1))]);
    if !sealed {
        // A checksum beyond its end.
        message[HEAD + 8] = 1;
        message[HEAD + 14] = 255;
        assert!(peer.send(&message));
        all.lab.until_host("h1", |host| host.dropped.contains_key("bad_offload"));
    }
}

#[test]
fn nobody_gets_in_without_the_secret_or_takes_a_hosts_place() {
    let Some(net) = Net::new() else { return };
    let mut all = Bystanders::new(&net, Some("0123456789abcdef"));
    let fabric = all.fabric();
    let mut peer = all.host(&fabric);
    assert!(peer.alive(&[0]));
    all.lab.until_host("h1", |host| host.state == "up" && host.keys == [0]);
    let other = Secret::new(b"another one than that");
    let stranger: SocketAddr = "127.0.0.99:9192".parse().expect("an address");
    let nonce = handshake::nonce();
    for call in [
        vec![],
        vec![0; CALL],
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        handshake::call(None, all.own, all.switch, nonce).to_vec(),
        handshake::call(Some(&other), all.own, all.switch, nonce).to_vec(),
        handshake::call(all.secret.as_ref(), all.switch, all.switch, nonce).to_vec(),
        handshake::call(all.secret.as_ref(), stranger, all.switch, nonce).to_vec(),
        handshake::call(all.secret.as_ref(), all.own, stranger, nonce).to_vec(),
    ] {
        assert!(all.call(&fabric, &call).is_none());
    }
    // Who says half of something, or nothing, keeps nobody waiting.
    let halves: Vec<_> = [&b""[..], b"\x01", b"\x03\x01\x00\x30", &[3; 20], &[0xff; 300]]
        .into_iter()
        .map(|bytes| {
            let mut stream = connect(all.own, all.switch).expect("connected");
            // It may have been closed already.
            let _ = std::io::Write::write_all(&mut stream, bytes);
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    // Who has no host's address does not even connect.
    assert!(connect("127.0.0.99:0".parse().expect("an address"), all.switch).is_err());
    // A call that was recorded is answered. Who has no secret can do nothing with the answer.
    let (wire, _) = all.call(&fabric, &all.good_call()).expect("answered");
    let keys = Keys { ours: Some([7; 32]), theirs: None };
    let mut thief = Peer { wire, seals: Seals::new(keys) };
    assert!(thief.alive(&[0]));
    let message = peer.frames(&[(0, frame(mac(1), mac(7), 50, 1))]);
    thief.send(&message);
    let host = all.lab.host("h1");
    assert_eq!((host.state.as_str(), host.connections), ("up", 1));
    while all.a.receive(0).is_some() {}
    assert!(peer.send(&message));
    assert_eq!(all.a.wait(0, PATIENCE), Some(frame(mac(1), mac(7), 50, 1)));
    all.undisturbed();
    // One that has it takes the place of the connection before.
    let mut again = all.host(&fabric);
    assert!(again.alive(&[0]));
    all.lab.until_host("h1", |host| host.state == "up" && host.connections == 2);
    let message = again.frames(&[(0, frame(mac(1), mac(7), 50, 2))]);
    while all.a.receive(0).is_some() {}
    assert!(again.send(&message));
    assert_eq!(all.a.wait(0, PATIENCE), Some(frame(mac(1), mac(7), 50, 2)));
    drop(halves);
    all.undisturbed();
}

#[test]
fn a_host_that_says_nothing_is_forgotten() {
    let Some(net) = Net::new() else { return };
    let mut all = Bystanders::new(&net, None);
    let fabric = all.fabric();
    let mut peer = all.host(&fabric);
    assert!(peer.alive(&[0]));
    all.lab.until_host("h1", |host| host.state == "up");
    let began = Instant::now();
    all.is_let_go("nothing was heard");
    let took = began.elapsed();
    assert!((2..8).contains(&took.as_secs()), "{took:?}");
    drop(peer);
    // One that was answered and shows nothing is turned away.
    let silent = all.host(&fabric);
    all.is_let_go("did not show who it is");
    drop(silent);
}

#[test]
fn a_host_that_takes_nothing_holds_up_nobody_and_what_is_dropped_is_counted() {
    let Some(net) = Net::new() else { return };
    let mut all = Bystanders::new(&net, Some("0123456789abcdef"));
    let fabric = all.fabric();
    let mut peer = all.host(&fabric);
    assert!(peer.alive(&[0]));
    all.lab.until_host("h1", |host| host.keys == [0]);
    let message = peer.frames(&[(0, frame(mac(1), mac(7), 50, 1))]);
    assert!(peer.send(&message));
    assert!(all.a.wait(0, PATIENCE).is_some());
    // To it: it never looks what has come.
    let (began, mut alive) = (Instant::now(), Instant::now());
    let long = frame(mac(7), mac(1), 60_000, 1);
    loop {
        for _ in 0..8 {
            all.a.send(1, &long);
        }
        if alive.elapsed() > Duration::from_secs(1) {
            // It lives: it is only slow.
            alive = Instant::now();
            peer.alive_unheard(&[0]);
        }
        if all.lab.host("h1").missed.get("host_full").is_some_and(|&count| count > 100) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{:?}", all.lab.host("h1"));
    }
    let began = Instant::now();
    for _ in 0..20 {
        all.undisturbed();
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(all.lab.host("h1").state, "up");
}

#[test]
fn a_guest_that_cuts_its_memory_short_ends_nobody_where_the_library_is_loaded() {
    let Some(net) = Net::new() else { return };
    let test =
        "hostile_hosts::a_guest_that_cuts_its_memory_short_ends_nobody_where_the_library_is_loaded";
    // Of what a process of its own loads first and last depends who handles signals.
    if !alone(test) {
        return;
    }
    let labs = net.hosts(&["[port.a]\n[port.evil]\n", "[port.a]\n"], None);
    for (n, lab) in labs.iter().enumerate() {
        lab.until_host(&format!("h{}", 2 - n), |host| !host.keys.is_empty());
    }
    let [mut a, mut b] = [0, 1].map(|n: usize| labs[n].guest("a", Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    let evil = labs[0].guest("evil", Options { sealed: false, ..Options::default() });
    rustix::fs::ftruncate(&evil.file, 0).expect("cut");
    assert!(a.send(1, &frame(ALL, mac(1), 50, 1)));
    let port = labs[0].until("evil", |port| port.state == "waiting");
    assert!(port.trouble.is_some_and(|why| why.contains("cut short")));
    assert!(next(&mut b).is_some());
    talk((&mut a, 1), (&mut b, 2));
}
