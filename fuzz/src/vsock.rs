//! `ginnel-switch`'s sockets between machines: what guests send, and what programs of the host say.

use crate::Bytes;
use ginnel_switch::config::{Config, VsockConfig};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::poller::Poller;
use ginnel_switch::ring::Room;
use ginnel_switch::vhost::message::Request;
use ginnel_switch::vsock::Hub;
use ginnel_switch::vsock::packet::{Address, HEADER, Header, Op, STREAM};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Somewhere for sockets, removed when this is dropped.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("ginnel-fuzz-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It is only a directory of sockets.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn connect(place: &Path, name: &str) -> Option<FrontEnd> {
    for _ in 0..1000 {
        // Whoever was there before is let go a little later.
        if let Ok(guest) = FrontEnd::connect(&place.join(name), Options::vsock()) {
            return Some(guest);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

/// A header that is nearly right, mostly.
fn header(bytes: &mut Bytes<'_>, cid: u64) -> Header {
    let near = |bytes: &mut Bytes<'_>, is: u64| if bytes.one_in(12) { bytes.value(is) } else { is };
    let other = 2 + bytes.below(4);
    let [own, to] = [1, 2].map(|_| 50 + bytes.below(3) as u32);
    let op = if bytes.one_in(16) {
        u16::from(bytes.byte())
    } else {
        Op::ALL[bytes.below(7) as usize] as u16
    };
    let taken = if bytes.one_in(2) { 0 } else { bytes.below(300) };
    Header {
        from: Address { cid: near(bytes, cid), port: own },
        to: Address { cid: near(bytes, other), port: to },
        len: 0,
        kind: near(bytes, STREAM.into()) as u16,
        op,
        flags: u32::from(bytes.byte() & 3),
        buf_alloc: near(bytes, 4096) as u32,
        fwd_cnt: near(bytes, taken) as u32,
    }
}

fn send(guest: &mut FrontEnd, header: Header, len: usize, said: u32) -> bool {
    let header = Header { len: said, ..header };
    guest.send_with(1, &header.bytes(), &vec![7; len])
}

/// Two guests that send anything, stop and come again; programs of the host beside them; and two
/// that mind their own business, whose bytes must arrive. Nothing is left when all are gone.
///
/// # Panics
/// When that is not so.
#[allow(
    clippy::too_many_lines,
    reason = "one scene: guests and programs, then one match of what they do"
)]
pub fn packets(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let honest = bytes.take(48);
    let place = Place::new();
    let mut config = Config::new(place.0.clone(), Vec::new());
    let device = |(cid, name): (u32, &&str)| VsockConfig::new(name, cid, place.0.join(name), 0);
    config.vsock = (2 + 1..).zip(&NAMES).map(device).collect();
    let listeners = [51, 52]
        .map(|port| UnixListener::bind(place.0.join(format!("a.host_{port}"))).expect("bound"));
    let poller = Poller::new().expect("an epoll set");
    let mut hub = Hub::new(&config, &Room::new(1 << 40), poller.clone()).expect("a hub");
    let (end, ends) = UnixStream::pair().expect("a pair");
    let hub = std::thread::spawn(move || {
        hub.run(&poller, ends).expect("it runs");
        hub
    });
    let mut evil = ["a", "b"].map(|name| connect(&place.0, name));
    let mut programs = Vec::new();
    while !bytes.is_empty() {
        let n = usize::from(bytes.byte() % 2);
        let Some(guest) = &mut evil[n] else {
            evil[n] = connect(&place.0, NAMES[n]);
            continue;
        };
        match bytes.byte() % 16 {
            0 => evil[n] = None,
            1 => {
                let _ =
                    guest.question(Request::GetVringBase, &[bytes.byte() % 3, 0, 0, 0, 0, 0, 0, 0]);
            }
            2 => {
                let base = bytes.byte().into();
                let _ = guest.start(usize::from(bytes.byte() % 2), base);
            }
            3 => {
                let program = UnixStream::connect(place.0.join("a.host")).expect("connected");
                let line = [&b"CONNECT 50\n"[..], b"CONNECT 51\nmore", b"CONNECT", b"\n"]
                    [bytes.below(4) as usize];
                let _ = (&program).write_all(line);
                programs.push(program);
            }
            4 => programs.truncate(bytes.below(4) as usize),
            5..8 => while guest.receive_with(0).is_some() {},
            8 => {
                for listener in &listeners {
                    listener.set_nonblocking(true).expect("set");
                    programs.extend(listener.accept().map(|(program, _)| program));
                }
            }
            9 => {
                for program in &programs {
                    program.set_nonblocking(true).expect("set");
                    let _ = ({ program }.write(b"data"), { program }.read(&mut [0; 4096]));
                }
            }
            _ => {
                let header = header(&mut bytes, 3 + n as u64);
                let len = if bytes.one_in(2) { 0 } else { bytes.below(5000) as usize };
                let said =
                    if bytes.one_in(16) { bytes.value(len as u64) as u32 } else { len as u32 };
                let _ = send(guest, header, len, said);
            }
        }
    }
    bystanders(&place.0, &mut Bytes::new(honest));
    drop((evil, programs, listeners, end));
    let hub = hub.join().expect("the hub goes on");
    assert!(hub.is_idle(), "something is left although all are gone");
}

/// Two that mind their own business, at port 9 of each.
struct Pair {
    /// Who sends, and who says how much of it that one may send.
    ends: [FrontEnd; 2],
    /// Bytes that were sent, and up to where they might be.
    sent: u64,
    edge: u64,
}

const CIDS: [u64; 2] = [5, 6];

impl Pair {
    fn say(&mut self, from: usize, op: Op, credit: (u32, u32), len: usize) {
        let [from_at, to] = [from, 1 - from].map(|n| Address { cid: CIDS[n], port: 9 });
        let (buf_alloc, fwd_cnt) = credit;
        let (kind, op) = (STREAM, op as u16);
        let header = Header { from: from_at, to, len: 0, kind, op, flags: 0, buf_alloc, fwd_cnt };
        assert!(send(&mut self.ends[from], header, len, len as u32), "its queue is full");
    }

    /// The next packet of the connection that one of them gets: what it is, and its bytes.
    fn hears(&mut self, at: usize, wanted: Op) -> usize {
        // What the others may have sent before.
        for _ in 0..1000 {
            let whole = self.ends[at].wait_with(0, LIMIT).expect("a packet");
            let got = Header::parse(whole.first_chunk().expect("a header"));
            if got.to.port == 9 {
                let len = whole.len() - HEADER;
                assert_eq!((got.op, got.len as usize), (wanted as u16, len), "{got:?}");
                return len;
            }
        }
        panic!("nothing but what others have sent");
    }

    /// How much it may send, of what the other said: a promise that was made is not taken back.
    fn promise(&mut self, (buf_alloc, fwd_cnt): (u32, u32)) {
        self.edge = self.edge.max(u64::from(fwd_cnt) + u64::from(buf_alloc));
    }

    /// The second tells the first what it keeps, and has taken. False where it took more than it
    /// got, and both have lost the connection.
    fn announce(&mut self, bytes: &mut Bytes<'_>) -> bool {
        let lies = bytes.one_in(16);
        let taken = if lies { self.sent + 1 } else { bytes.below(self.sent + 1) };
        let kept = [0, 1, 1000, 65536, u32::MAX >> 2][usize::from(bytes.byte() % 5)];
        let credit = (kept, taken as u32);
        self.say(1, Op::CreditUpdate, credit, 0);
        if lies {
            return false;
        }
        self.hears(0, Op::CreditUpdate);
        self.promise(credit);
        true
    }

    /// The first sends, up to what it may send or beyond. False where it was beyond, and both have
    /// lost the connection.
    fn send(&mut self, bytes: &mut Bytes<'_>) -> bool {
        let left = self.edge - self.sent;
        let len = match bytes.byte() % 4 {
            0 => left,
            1 => left + 1,
            2 => left.saturating_sub(1),
            _ => bytes.below(5000),
        };
        let len = len.min(60_000);
        self.say(0, Op::Rw, (65536, 0), len as usize);
        if len > left {
            return false;
        }
        let mut got = self.hears(1, Op::Rw) as u64;
        while got < len {
            got += self.hears(1, Op::Rw) as u64;
        }
        assert_eq!(got, len);
        self.sent += len;
        true
    }
}

/// Two guests connect, and one sends the other as much as that has room for. What is more is given
/// to nobody, and ends the connection, as does a lie about what was taken.
fn bystanders(place: &Path, bytes: &mut Bytes<'_>) {
    let ends = ["c", "d"].map(|name| connect(place, name).expect("a guest"));
    let mut pair = Pair { ends, sent: 0, edge: 0 };
    pair.say(0, Op::Request, (65536, 0), 0);
    pair.hears(1, Op::Request);
    let kept = [65536, 0, 1, 1000][usize::from(bytes.byte() % 4)];
    pair.say(1, Op::Response, (kept, 0), 0);
    pair.promise((kept, 0));
    pair.hears(0, Op::Response);
    while !bytes.is_empty() {
        let goes_on = if bytes.one_in(2) { pair.announce(bytes) } else { pair.send(bytes) };
        if !goes_on {
            pair.hears(0, Op::Rst);
            pair.hears(1, Op::Rst);
            return;
        }
    }
}
