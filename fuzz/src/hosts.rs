//! `ginnel-switch`'s other hosts: what they send, as bytes and as messages that are nearly right,
//! and how they call and answer.

use crate::Bytes;
use crate::vsock::Place;
use ginnel_switch::config::{Config, FabricConfig, HostConfig, PortConfig};
use ginnel_switch::counters::Reason;
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::hosts::Hosts;
use ginnel_switch::hosts::handshake::{self, Keys};
use ginnel_switch::hosts::link::Link;
use ginnel_switch::hosts::message::{HEAD, Message, RECORD, Seals, put};
use ginnel_switch::hosts::pair::pair;
use ginnel_switch::secret::Secret;
use ginnel_switch::server::Server;
use ginnel_switch::wire::{ETHERNET, HEADER, LONGEST, MESSAGE, features};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A message that is nearly right, mostly.
fn message(bytes: &mut Bytes<'_>, seals: &mut Seals) -> Vec<u8> {
    let mut message = vec![0; MESSAGE];
    if bytes.one_in(8) {
        let keys: Vec<u32> = (0..bytes.below(5)).map(|_| bytes.below(4) as u32).collect();
        let len = seals.alive(&mut message, &keys);
        message.truncate(len);
    } else {
        let (mut at, count) = (HEAD, bytes.below(6));
        for _ in 0..count {
            let len = match bytes.byte() % 16 {
                0 => bytes.below(20000) as usize,
                1 => ETHERNET - 1,
                2 => LONGEST + bytes.below(2) as usize,
                _ => ETHERNET + bytes.below(100) as usize,
            };
            let Some(place) = put(&mut message, at, bytes.below(4) as u32, HEADER + len) else {
                break;
            };
            let given = bytes.take(HEADER);
            if bytes.one_in(2) {
                place[..given.len()].copy_from_slice(given);
            }
            let body = bytes.take(40);
            let end = (HEADER + body.len()).min(place.len());
            place[HEADER..end].copy_from_slice(&body[..end - HEADER]);
            // Between two addresses of four, often.
            if len >= ETHERNET && !bytes.one_in(4) {
                let (to, from) = (bytes.byte() % 5, bytes.byte() % 4);
                let mac = |n: u8| if n == 4 { [0xff; 6] } else { [0x52, 0x54, 0, 0, 0, n] };
                place[HEADER..HEADER + 6].copy_from_slice(&mac(to));
                place[HEADER + 6..HEADER + 12].copy_from_slice(&mac(from));
            }
            at += RECORD + len;
        }
        message.truncate(at);
        seals.frames(&mut message, count as u32);
    }
    for _ in 0..bytes.below(6).saturating_sub(3) {
        let at = bytes.below(message.len() as u64) as usize;
        message[at] = bytes.byte();
    }
    if bytes.one_in(16) {
        message.truncate(bytes.below(200) as usize);
    }
    message
}

/// Two hosts of which one sends anything: frames, lengths, numbers, keys that it should not. A host
/// without the secret gets nothing in. What a port sends afterwards still reaches the other port.
///
/// # Panics
/// When that is not so.
#[allow(
    clippy::too_many_lines,
    reason = "one scene, from the hosts to the frame that still arrives"
)]
pub fn messages(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let place = Place::new();
    let socket = |name: &str| place.0.join(name);
    let port = |name: &str| PortConfig::new(name, socket(name), 0);
    let config = Config::new(
        place.0.clone(),
        vec![port("a"), port("b"), PortConfig::new("c", socket("c"), 2)],
    );
    let mut server = Server::new(&config).expect("a switch");
    let address = |n: u8| SocketAddr::from(([127, 0, 0, n], 1));
    let host = |n: u8| HostConfig::at(&format!("h{n}"), address(n));
    let fabric = FabricConfig::new(address(1), vec![host(2), host(3)]).expect("hosts");
    let secret = bytes.one_in(2);
    let knows = !bytes.one_in(4);
    let now = Instant::now();
    let ([here, liar], [other, _witness]) = (pair().expect("a pair"), pair().expect("a pair"));
    let key = |n: u8| secret.then_some([n; 32]);
    let link =
        |end, n| Link::new(Box::new(end), Keys { ours: key(n), theirs: key(n + 1) }, n == 3, now);
    server.join(Hosts::without_calls(&fabric, &config.ports), vec![link(here, 1), link(other, 3)]);
    let wrong = if knows { key(2) } else { Some([9; 32]) };
    let mut seals = Seals::new(Keys { ours: if secret { wrong } else { None }, theirs: key(1) });
    let options = Options { size: 64, ..Options::default() };
    let plain = Options { features: features::VERSION_1, ..options };
    let (a, b) = (socket("a"), socket("b"));
    let guests = std::thread::spawn(move || {
        (FrontEnd::connect(&a, options).expect("a"), FrontEnd::connect(&b, plain).expect("b"))
    });
    while !guests.is_finished() {
        server.look(Some(Duration::from_millis(1))).expect("it goes on");
        server.turn();
    }
    let (mut a, mut b) = guests.join().expect("connected");
    for _ in 0..12 {
        let sent = message(&mut bytes, &mut seals);
        if !liar.write(&sent) || bytes.is_empty() {
            break;
        }
        server.turn();
        server.look(Some(Duration::ZERO)).expect("it goes on");
        while a.receive_with(0).is_some() || b.receive_with(0).is_some() {
            assert!(knows || !secret, "somebody without the secret got in");
        }
    }
    for host in &server.switch().hosts.all {
        assert!(knows || !secret || host.counters.sent_frames == 0);
        let bad = host.counters.dropped[Reason::BadLength as usize];
        assert_eq!(bad, 0, "a message was opened with a frame that cannot be one");
    }
    // From whoever it came: it is for a port, and a port gets it.
    let mut frame = vec![0xff; 12];
    frame[6..].copy_from_slice(&[0x52, 0x54, 1, 1, 1, 1]);
    frame.extend([0x88, 0xb5]);
    frame.resize(60, 7);
    assert!(a.send(1, &frame));
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        server.turn();
        server.look(Some(Duration::ZERO)).expect("it goes on");
        if std::iter::from_fn(|| b.receive(0)).any(|got| got == frame) {
            break;
        }
        assert!(Instant::now() < until, "a frame is lost");
    }
}

/// Calls and answers. Whatever they say, nobody agrees on keys with whom has another secret.
///
/// # Panics
/// When that is not so.
pub fn handshakes(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let [a, b] = [1u8, 2].map(|n| SocketAddr::from(([10, 0, 0, n], 1)));
    let [one, two] = [&b"one secret"[..], &b"another one"[..]].map(Secret::new);
    let own = [None, Some(&one)][usize::from(bytes.byte() % 2)];
    let other = [None, Some(&one), Some(&two)][usize::from(bytes.byte() % 3)];
    let spoil = |bytes: &mut Bytes<'_>, what: &mut [u8]| {
        let before = what.to_vec();
        for _ in 0..bytes.below(4) {
            let at = bytes.below(what.len() as u64) as usize;
            what[at] = bytes.byte();
        }
        before != what
    };
    let mut call = handshake::call(other, a, b, [bytes.byte(); 16]);
    let good_call = call;
    let spoilt = spoil(&mut bytes, &mut call);
    let _ = handshake::caller(bytes.take(60));
    let Ok((mut answer, theirs)) = handshake::answer(own, &call, b, [bytes.byte(); 16]) else {
        return;
    };
    assert!(own.is_none() || (own == other && !spoilt));
    let spoilt = spoil(&mut bytes, &mut answer);
    let Ok(ours) = handshake::answered(other, &good_call, &answer) else { return };
    assert!(other.is_none() || (own == other && !spoilt));
    assert_eq!((ours.ours, ours.theirs), (theirs.theirs, theirs.ours));
    // A message of one is the other's, and not its own.
    let [mut seals, mut opens] = [Seals::new(ours.clone()), Seals::new(theirs)];
    let mut sent = vec![0; MESSAGE];
    let len = seals.alive(&mut sent, &[7]);
    assert!(other.is_none() || Seals::new(ours).open(&mut sent[..len].to_vec()).is_err());
    assert!(matches!(opens.open(&mut sent[..len]), Ok(Message::Alive(_))));
}
