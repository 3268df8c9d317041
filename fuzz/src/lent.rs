//! `ginnel-switch`: frames that are sent to another host from where they lie, while their guest,
//! its front end and the other host do what they like.

use crate::Bytes;
use crate::vsock::Place;
use ginnel_switch::config::{Config, FabricConfig, HostConfig, PortConfig};
use ginnel_switch::front_end::{BUFFER, FrontEnd, GUEST, Options};
use ginnel_switch::hosts::Hosts;
use ginnel_switch::hosts::handshake::Keys;
use ginnel_switch::hosts::link::Link;
use ginnel_switch::hosts::message::{HEAD, Message, Seals, put};
use ginnel_switch::hosts::pair::{End, pair};
use ginnel_switch::server::Server;
use ginnel_switch::vhost::message::Request;
use ginnel_switch::wire::{HEADER, MESSAGE};
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Frames of the guest at once, and descriptors of each.
const SLOTS: u16 = 16;
const PIECES: u16 = 4;
const LIMIT: Duration = Duration::from_secs(20);

/// The guest, and which of its chains are out.
struct Guest {
    end: FrontEnd,
    free: Vec<u16>,
    /// It has done nothing by which it would not know any more.
    honest: bool,
}

fn connect(server: &mut Server, socket: &Path, sealed: bool) -> Guest {
    let (socket, options) =
        (socket.to_owned(), Options { size: SLOTS * PIECES, sealed, ..Options::default() });
    // As QEMU does, until the one before is gone.
    let other = std::thread::spawn(move || {
        let until = Instant::now() + LIMIT;
        loop {
            match FrontEnd::connect(&socket, options) {
                Ok(end) => return end,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        }
    });
    while !other.is_finished() {
        server.look(Some(Duration::from_millis(1))).expect("it goes on");
        server.turn();
    }
    Guest { end: other.join().expect("connected"), free: (0..SLOTS).collect(), honest: true }
}

impl Guest {
    fn place(&self, slot: u16) -> u64 {
        self.end.queues[1].base + (64 << 10) + BUFFER * u64::from(slot * PIECES)
    }

    fn send(&mut self, bytes: &mut Bytes<'_>) {
        let Some(slot) = self.free.pop() else { return };
        let len = 60 + bytes.below(BUFFER * u64::from(PIECES) - 200) as usize;
        let mut frame = vec![slot as u8; HEADER + len];
        frame[..HEADER].fill(0);
        frame[HEADER..HEADER + 12]
            .copy_from_slice(&[0x52, 0x54, 0, 0, 0, 9, 0x52, 0x54, 0, 0, 0, 1]);
        let at = self.place(slot);
        self.end.write(at, &frame);
        let count = 1 + bytes.below(u64::from(PIECES)) as usize;
        let each = frame.len().div_ceil(count);
        let count = frame.len().div_ceil(each);
        for piece in 0..count {
            let (from, last) = (piece * each, piece + 1 == count);
            let (size, index) = (each.min(frame.len() - from), slot * PIECES + piece as u16);
            self.end.describe(1, index, at + from as u64, size as u32, u16::from(!last), index + 1);
        }
        self.end.offer(1, slot * PIECES);
    }

    fn take(&mut self) {
        while let Some((head, _)) = self.end.used(1) {
            if !self.honest {
                return;
            }
            let slot = head / PIECES;
            assert!(
                head % PIECES == 0 && slot < SLOTS && !self.free.contains(&slot),
                "{head} was not out"
            );
            // Whoever still sent it would send this.
            self.end.write(self.place(slot), &[0xdd; (BUFFER * PIECES as u64) as usize]);
            self.free.push(slot);
        }
    }

    /// What a front end may say at any time, or a guest write.
    fn stir(&mut self, bytes: &mut Bytes<'_>) {
        let base = [1u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
        let told = match bytes.byte() % 6 {
            0 => self.end.share(),
            1 => self.end.start(1, 0),
            2 => {
                // Stopped, and started where it says that it stood, once that is answered.
                self.honest = false;
                self.end.tell(Request::GetVringBase, &base, &[])
            }
            3 => {
                let (at, what) = (GUEST + bytes.value(0) % (1 << 20), bytes.take(16));
                self.honest = false;
                self.end.write(at, what);
                Ok(())
            }
            4 => self.end.unplug().and_then(|()| self.end.plug()),
            _ => {
                self.honest = false;
                self.end.offer(1, bytes.below(u64::from(SLOTS * PIECES)) as u16);
                Ok(())
            }
        };
        // It may have been let go.
        drop(told);
        self.end.socket.set_nonblocking(true).expect("set");
        while self.end.socket.read(&mut [0; 256]).is_ok_and(|len| len > 0) {}
    }
}

/// The other host: what it takes is whole, and of one frame.
fn receive(server: &Server, host: &End, seals: &mut Seals, honest: bool) -> bool {
    let Some(mut bytes) = host.read() else { return false };
    let opened = seals.open(&mut bytes);
    // A connection that was given up (this machine was slow) does not say all that was begun.
    if server.switch().hosts.all[0].link.is_none() {
        return true;
    }
    if let Message::Frames(frames) = opened.expect("a good message") {
        for (_, front) in frames {
            let body = &front[HEADER + 12..];
            assert!(
                !honest || body.iter().all(|&byte| byte == body[0] && byte < SLOTS as u8),
                "a frame is mixed up"
            );
        }
    }
    true
}

/// Whatever they do, an honest guest gets each chain back once and in order, what the other host
/// gets of it is what it sent, and a second guest is still reached.
///
/// # Panics
/// When that is not so.
#[allow(
    clippy::too_many_lines,
    reason = "one scene, from the hosts to the frame that still arrives"
)]
pub fn lent(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let place = Place::new();
    let socket = |name: &str| place.0.join(name);
    let port = |name: &str| PortConfig::new(name, socket(name), 0);
    let config = Config::new(place.0.clone(), vec![port("a"), port("b")]);
    let mut server = Server::new(&config).expect("a switch");
    let address = |n: u8| SocketAddr::from(([127, 0, 0, n], 1));
    let mut fabric =
        FabricConfig::new(address(1), vec![HostConfig::at("h2", address(2))]).expect("hosts");
    fabric.in_place = Some(256);
    let ([here, host], none) = (pair().expect("a pair"), Keys { ours: None, theirs: None });
    let link = Link::new(Box::new(here), none.clone(), true, Instant::now());
    server.join(Hosts::without_calls(&fabric, &config.ports), vec![link]);
    let (mut seals, mut message) = (Seals::new(none), vec![0; MESSAGE]);
    let len = seals.alive(&mut message, &[0]);
    assert!(host.write(&message[..len]));
    // Behind the other host is whom the guest sends to.
    let mut hello = vec![0; HEAD + 8 + HEADER + 60];
    put(&mut hello, HEAD, 0, HEADER + 60).expect("room")[HEADER..HEADER + 12]
        .copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0x54, 0, 0, 0, 9]);
    seals.frames(&mut hello, 1);
    assert!(host.write(&hello));
    let (mut guest, mut other) = {
        let sealed = !bytes.one_in(8);
        (connect(&mut server, &socket("a"), sealed), connect(&mut server, &socket("b"), true))
    };
    let mut honest = true;
    while !bytes.is_empty() {
        match bytes.byte() % 16 {
            0..7 => guest.send(&mut bytes),
            7 | 8 => guest.take(),
            9 | 10 => {
                receive(&server, &host, &mut seals, honest);
            }
            11 if bytes.one_in(4) => {
                guest.stir(&mut bytes);
                honest &= guest.honest;
            }
            12 if bytes.one_in(8) => {
                drop(guest);
                while receive(&server, &host, &mut seals, honest) {}
                guest = connect(&mut server, &socket("a"), true);
            }
            _ => {
                server.turn();
                server.look(Some(Duration::ZERO)).expect("it goes on");
            }
        }
    }
    let until = Instant::now() + LIMIT;
    loop {
        while receive(&server, &host, &mut seals, honest) {}
        server.turn();
        server.look(Some(Duration::ZERO)).expect("it goes on");
        guest.take();
        if !guest.honest || guest.free.len() == usize::from(SLOTS) {
            break;
        }
        assert!(
            Instant::now() < until,
            "{} chains do not come back",
            usize::from(SLOTS) - guest.free.len()
        );
    }
    let mut frame = vec![0xff; 12];
    frame[6..].copy_from_slice(&[0x52, 0x54, 1, 1, 1, 1]);
    frame.resize(60, 7);
    let mut fresh = connect_third(&mut server, guest, &socket("a"));
    assert!(other.end.send(1, &frame));
    let until = Instant::now() + LIMIT;
    while !std::iter::from_fn(|| fresh.end.receive(0)).any(|got| got == frame) {
        server.turn();
        server.look(Some(Duration::ZERO)).expect("it goes on");
        while receive(&server, &host, &mut seals, honest) {}
        assert!(Instant::now() < until, "a frame is lost");
    }
}

/// Another guest in this one's place.
fn connect_third(server: &mut Server, guest: Guest, socket: &Path) -> Guest {
    drop(guest);
    connect(server, socket, true)
}
