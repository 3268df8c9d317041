//! A guest of one's own making, at the packets' level.

use crate::common::{Lab, PATIENCE};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::vsock::packet::{Address, HEADER, Header, Op, STREAM};
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) const THREE: &str = "[vsock.a]\ncid = 3\n[vsock.b]\ncid = 4\n[vsock.c]\ncid = 5\n\
                     [vsock.far]\ncid = 4\nkey = 1\n";

/// What a guest of Linux can keep for a connection.
pub(super) const WINDOW: u32 = 256 << 10;

pub struct Guest {
    pub front: FrontEnd,
    pub cid: u64,
}

impl Guest {
    pub fn new(lab: &Lab, name: &str, cid: u64) -> Self {
        Self::at(lab.directory.path(), name, cid)
    }

    pub(super) fn at(place: &Path, name: &str, cid: u64) -> Self {
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

    pub(super) fn quiet(&mut self) {
        assert_eq!(self.take(Duration::from_millis(50)), None);
    }
}

pub(super) fn bytes(len: usize, seed: u8) -> Vec<u8> {
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

pub(super) fn pair(lab: &Lab) -> [Guest; 2] {
    [Guest::new(lab, "a", 3), Guest::new(lab, "b", 4)]
}
