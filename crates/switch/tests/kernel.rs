//! What the switch makes of a frame for a receiver that agreed on nothing, compared with what the
//! kernel makes of it: random frames with checksums to complete and segments to cut go from a tap
//! device by a bridge to one that takes no such thing, and byte by byte come out as here.

use ginnel_switch::offload::adapt;
use ginnel_switch::tap::Tap;
use ginnel_switch::wire::{Checksum, HEADER, Offload, Segments};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::UnshareFlags;
use std::ops::Range;
use std::process::Command;

const FRAMES: u64 = 3000;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Two taps at a bridge, in a network namespace that is gone with this thread.
struct Kernel {
    from: Tap,
    to: Tap,
    marks: u64,
}

impl Kernel {
    fn new() -> Self {
        #[expect(deprecated, reason = "the thread's own, and no memory is unshared")]
        rustix::thread::unshare(UnshareFlags::NEWNET).expect("a namespace");
        let quiet = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        std::fs::write(quiet, "1").expect("nothing else is sent");
        let [from, to] = ["a", "b"].map(|name| Tap::open(name).expect("a tap"));
        to.take(0).expect("none is always possible");
        for line in [
            "link add bridge type bridge",
            "link set bridge up",
            "link set dev a master bridge up",
            "link set dev b master bridge up",
        ] {
            let status = Command::new("ip").args(line.split(' ')).status().expect("ip");
            assert!(status.success(), "ip {line}");
        }
        let mut kernel = Self { from, to, marks: 0 };
        // A bridge's port may take a moment.
        while kernel.makes(&[]).is_none() {}
        kernel
    }

    /// What comes of a frame behind its header. (`None`: not even what was sent behind it came.)
    fn makes(&mut self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        // What the kernel finds wrong it says at once.
        let _ = frame.is_empty() || self.from.write(frame);
        self.marks += 1;
        let kind = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
        let mark = [&kind[..], &self.marks.to_le_bytes(), &[0; 38]].concat();
        let _ = self.from.write(&[&[0; HEADER][..], &mark].concat());
        let (mut all, mut bytes) = (Vec::new(), vec![0; HEADER + 70_000]);
        loop {
            while let Some(len) = self.to.read(&mut bytes).expect("a tap") {
                if bytes[HEADER..len] == mark[..] {
                    return Some(all);
                }
                // The bridge says something of its own, now and then.
                if bytes[HEADER..HEADER + 12] == kind[..12] {
                    assert_eq!(bytes[..2], [0, 0], "nothing is left to be done");
                    all.push(bytes[HEADER..len].to_vec());
                }
            }
            let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
            if poll(&mut [PollFd::new(&self.to, PollFlags::IN)], Some(&limit)) == Ok(0) {
                return None;
            }
        }
    }
}

/// Numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn of(&mut self, range: Range<usize>) -> usize {
        range.start + self.next() as usize % range.len()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        // A sum of nothing but zeroes or ones is a case of its own.
        match self.of(0..8) {
            0 => vec![0; len],
            1 => vec![0xff; len],
            _ => (0..len).map(|_| self.next() as u8).collect(),
        }
    }
}

/// A frame as a guest's driver leaves it, and what is still to be done of it.
fn frame(random: &mut Random, v6: bool, protocol: u8, payload: usize) -> (Vec<u8>, Checksum) {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if random.of(0..3) == 0 {
        frame.extend([0x81, 0, random.next() as u8, random.next() as u8]);
    }
    frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
    let ip = frame.len();
    let addresses = if v6 {
        frame.extend([0x60 | random.of(0..16) as u8, random.next() as u8, 0, 0]);
        frame.extend([0, 0, protocol, 64]);
        frame.extend(random.bytes(32));
        ip + 8..ip + 40
    } else {
        let words = random.of(5..16);
        frame.extend([0x40 | words as u8, random.next() as u8, 0, 0]);
        // A number that wraps, now and then, and whether it may be cut.
        let number = if random.of(0..4) == 0 { [0xff, 0xfe] } else { [random.next() as u8, 7] };
        frame.extend([number[0], number[1], [0, 0x40][random.of(0..2)], 0, 64, protocol, 0, 0]);
        frame.extend(random.bytes(8));
        frame.extend(vec![1; 4 * (words - 5)]);
        ip + 12..ip + 20
    };
    let start = frame.len();
    let offset = if protocol == TCP {
        let words = random.of(5..16);
        frame.extend(random.bytes(4));
        frame.extend([[0xff, 0xff, 0xff, random.next() as u8], [random.next() as u8; 4]].concat());
        frame.extend([(words as u8) << 4, random.next() as u8, 1, 0, 0, 0, 0, 0]);
        frame.extend(vec![1; 4 * (words - 5)]);
        16
    } else {
        frame.extend(random.bytes(4));
        frame.extend([((8 + payload) >> 8) as u8, (8 + payload) as u8, 0, 0]);
        6
    };
    frame.extend(random.bytes(payload));
    let len = frame.len() - if v6 { start } else { ip };
    frame[if v6 { ip + 4..ip + 6 } else { ip + 2..ip + 4 }]
        .copy_from_slice(&(len as u16).to_be_bytes());
    if !v6 {
        let sum = sum(&frame[ip..start]);
        frame[ip + 10..ip + 12].copy_from_slice(&(!sum).to_be_bytes());
    }
    let length = ((frame.len() - start) as u32).to_be_bytes();
    let pseudo = sum(&[&frame[addresses], &length, &[0, protocol]].concat());
    frame[start + offset..start + offset + 2].copy_from_slice(&pseudo.to_be_bytes());
    (frame, Checksum { start: start as u16, offset: offset as u16 })
}

/// The sum of the Internet checksum, not inverted.
fn sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0u32, |sum, two| {
        let sum = sum + (u32::from(two[0]) << 8) + u32::from(*two.get(1).unwrap_or(&0));
        (sum & 0xffff) + (sum >> 16)
    }) as u16
}

/// A frame, and what a header says of it.
fn whatever(random: &mut Random) -> (Vec<u8>, Offload) {
    let v6 = random.of(0..2) == 0;
    if random.of(0..3) == 0 {
        let protocol = [TCP, UDP][random.of(0..2)];
        let payload = random.of(0..1300);
        let (frame, mut checksum) = frame(random, v6, protocol, payload);
        if random.of(0..6) == 0 {
            // Somewhere else, over whatever is there.
            let end = frame.len();
            checksum.start = random.of(usize::from(checksum.start)..end - 2) as u16;
            checksum.offset = random.of(0..end - 1 - usize::from(checksum.start)) as u16;
        }
        return (frame, Offload { checksum: Some(checksum), segments: None });
    }
    let size = random.of(256..1400);
    // The longest packet of IPv4 has 65535 bytes.
    let payload = random.of(size + 1..65_535 - 120);
    let (frame, checksum) = frame(random, v6, TCP, payload);
    let header = frame.len() - payload;
    let ecn = random.of(0..4) == 0;
    let segments = Segments { v6, ecn, header: header as u16, size: size as u16 };
    (frame, Offload { checksum: Some(checksum), segments: Some(segments) })
}

#[test]
fn checksums_and_segments_are_the_kernels() {
    if !rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: needs root and /dev/net/tun");
        return;
    }
    let seed = ginnel_tests::seed();
    let (mut kernel, mut random) = (Kernel::new(), Random(seed));
    let (mut compared, mut cut) = (0, 0);
    for number in 0..FRAMES {
        let (frame, offload) = whatever(&mut random);
        let theirs = kernel.makes(&[&offload.header()[..], &frame].concat()).expect("a bridge");
        let (mut ours, mut copy) = (Vec::new(), frame.clone());
        let each = |bytes: &mut [u8], left| {
            assert_eq!(left, Offload::default());
            ours.push(bytes.to_vec());
        };
        adapt(&mut copy, offload, 0, &mut Vec::new(), each).expect("TCP");
        let case = format!("seed {seed}, frame {number}: {offload:?} of {} bytes", frame.len());
        let lengths = |all: &[Vec<u8>]| all.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths(&ours), lengths(&theirs), "{case}");
        for (n, (our, their)) in ours.iter().zip(&theirs).enumerate() {
            let at = our.iter().zip(their).position(|(a, b)| a != b);
            assert!(our == their, "{case}, segment {n}, from byte {at:?}\n{our:x?}\n{their:x?}");
        }
        compared += ours.len();
        cut += usize::from(ours.len() > 1);
    }
    assert!(cut > 1000 && compared > 10 * cut, "{compared} frames, of which {cut} were cut");
}
