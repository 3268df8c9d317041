//! `ginnel-switch`: what a guest writes into its memory, and what a front end says.

use crate::Bytes;
use ginnel_ivshmem::doorbell::Ringer;
use ginnel_switch::front_end::{FrontEnd, GUEST, Options, USER};
use ginnel_switch::poller::Poller;
use ginnel_switch::ring::{Layout, Memory, Region, Ring, Slices};
use ginnel_switch::vhost::message::Request;
use ginnel_switch::vhost::{Connection, Device, Limits, Model};
use ginnel_switch::wire::{HEADER, Offload, features};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

const SIZE: u16 = 16;

/// Addresses near those that matter.
pub(crate) fn address(bytes: &mut Bytes<'_>, end: u64) -> u64 {
    let near = match bytes.byte() % 4 {
        0 => GUEST,
        1 => end,
        2 => GUEST + bytes.below(65536),
        _ => 0,
    };
    bytes.value(near)
}

/// A queue whose descriptors, rings and indirect tables a guest writes as it likes, while the
/// switch sends out of it and delivers into it. Whatever it says, the switch comes back, touches no
/// other memory, and gives back no more than was there.
///
/// # Panics
/// When no guest can be made, or a rule is broken.
#[allow(clippy::too_many_lines, reason = "one scene: a guest, then one match of what it does")]
pub fn ring(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let (socket, _other) = UnixStream::pair().expect("a pair");
    let options = Options { size: SIZE, ..Options::default() };
    let mut guest = FrontEnd::prepare(socket, options).expect("a guest");
    let size = rustix::fs::fstat(&guest.file).map_or(0, |stat| stat.st_size) as u64;
    let memory = match Region::new(&guest.file, 0, GUEST, size, USER) {
        Ok(region) => Memory::new(vec![Arc::new(region)], None),
        Err(error) => panic!("{error}"),
    };
    let number = usize::from(bytes.one_in(2));
    let [descriptors, available, used] = guest.queues[number].places();
    let user = |at: u64| at - GUEST + USER;
    let layout = Layout {
        size: SIZE,
        descriptors: user(descriptors),
        available: user(available),
        used: user(used),
        used_log: None,
        base: 0,
        event_idx: bytes.one_in(2),
        indirect: !bytes.one_in(4),
    };
    let mut ring = Ring::new(&memory, layout).expect("it lies in memory");
    if number == 0 {
        guest.fill(0);
    }
    while !bytes.is_empty() {
        let index = bytes.below(u64::from(SIZE)) as u16;
        let at = address(&mut bytes, GUEST + size);
        match bytes.byte() % 8 {
            0 => guest.write(descriptors + 16 * u64::from(index), bytes.take(16)),
            1 | 2 => {
                let (len, flags) = (bytes.value(64) as u32, u16::from(bytes.byte() % 8));
                guest.describe(number, index, at, len, flags, bytes.below(20) as u16);
            }
            3 => guest.offer(number, index),
            4 => guest.write(available, bytes.take(4)),
            5 => guest.write(available + 4 + 2 * u64::from(index), bytes.take(2)),
            6 => guest.write(GUEST + size - 4096 + bytes.below(4096), bytes.take(64)),
            _ => {
                let entry = [&at.to_le_bytes()[..], bytes.take(8)].concat();
                guest.write(GUEST + 16 * bytes.below(64), &entry);
            }
        }
        if number == 1 {
            let mut chain = Slices::new();
            match ring.take(&memory, &mut chain) {
                Ok(Some(head)) => {
                    assert!(head < SIZE);
                    let mut front = [0; 108];
                    let (whole, got) = (chain.len(), chain.take_front(&mut front));
                    assert_eq!(got + chain.len(), whole);
                    if chain.len() < 1 << 17 {
                        chain.append_to(&mut Vec::new());
                    }
                    ring.complete(&memory, head, 0);
                }
                Ok(None) => {}
                Err(_) => return,
            }
        } else {
            let front = vec![7; HEADER + bytes.below(5000) as usize];
            let base = ring.base();
            match ring.deliver(&memory, &front, &Slices::new(), HEADER, true) {
                Ok(()) => assert!(ring.base().wrapping_sub(base) <= SIZE),
                Err(_) => assert_eq!(ring.base(), base, "all or nothing"),
            }
        }
        let _ = ring.publish(&memory);
        if ring.arm().is_err() {
            return;
        }
    }
}

/// Messages of a front end, mostly of the right shape, in any order.
///
/// # Panics
/// When no socket can be made, or an answer has no shape.
#[allow(clippy::too_many_lines, reason = "one scene: a front end, then one match of what it says")]
pub fn messages(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let (socket, other) = UnixStream::pair().expect("a pair");
    let options = Options { size: SIZE, ..Options::default() };
    let guest = FrontEnd::prepare(socket, options).expect("a guest");
    other.set_nonblocking(true).expect("set");
    let mut connection = Connection::new(OwnedFd::from(other), &Arc::default());
    let mut device =
        Device::new(0, Model::net(2), Limits::none(), Poller::new().expect("an epoll set"));
    let ringer = Ringer::polling();
    let size = rustix::fs::fstat(&guest.file).map_or(0, |stat| stat.st_size) as u64;
    if bytes.one_in(2) {
        // From a good beginning on.
        let _ = guest.share().and_then(|()| guest.start(0, 0)).and_then(|()| guest.start(1, 0));
    }
    while !bytes.is_empty() {
        let request = Request::ALL[bytes.below(Request::ALL.len() as u64) as usize];
        let mut payload: Vec<u8> = match request {
            Request::SetMemTable | Request::AddMemReg | Request::RemMemReg => {
                let first = u64::from(bytes.byte() % 4);
                let places = [GUEST, size, USER, 0].map(|word| bytes.value(word));
                [&[first][..], &places]
                    .concat()
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .collect()
            }
            Request::SetVringAddr => {
                let [a, b, c] = guest.queues[0].places().map(|at| bytes.value(at - GUEST + USER));
                let first = u64::from(bytes.byte() % 5) | u64::from(bytes.byte() & 1) << 32;
                [first, a, c, b, bytes.word()].iter().flat_map(|word| word.to_le_bytes()).collect()
            }
            Request::SetFeatures => (bytes.word() & features::OFFERED).to_le_bytes().to_vec(),
            _ => (bytes.below(5) | bytes.below(64) << 32).to_le_bytes().to_vec(),
        };
        if bytes.one_in(16) {
            payload.truncate(bytes.below(40) as usize);
        }
        let count = usize::from(bytes.byte() % 4) % 3;
        let file = if bytes.one_in(2) { &guest.file } else { &guest.queues[0].kick };
        if guest.tell(request, &payload, &[file, file][..count]).is_err() {
            return;
        }
        loop {
            let message = match connection.receive() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(_) => return,
            };
            match device.handle(message, &ringer) {
                Ok(done) => assert!(done.reply.is_none_or(|reply| reply.len() >= 12)),
                Err(refusal) => {
                    assert!(!refusal.to_string().is_empty());
                    return;
                }
            }
            for queue in &mut device.queues {
                if let Some(ring) = &mut queue.ring {
                    let mut chain = Slices::new();
                    let _ = ring.take(&device.memory, &mut chain);
                }
            }
        }
    }
}

/// A header, and TCP to be cut, as a guest gives them.
pub fn offload(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let mut header = [0; HEADER];
    let given = bytes.take(HEADER);
    header[..given.len()].copy_from_slice(given);
    // Of kinds that exist, for one in two.
    if bytes.one_in(2) {
        (header[0], header[1]) = (1, [1, 4, 0x81, 0x84][usize::from(bytes.byte() % 4)]);
        (header[5], header[7], header[9]) = (header[5] & 3, 0, 0);
    }
    let version = [0x45, 0x60, 0x4f][usize::from(bytes.byte() % 3)];
    let mut frame = vec![0; 14];
    frame.extend([version, 0, 0, 0, 0, 0, 6, 64, 64, 6]);
    frame.extend(bytes.take(1000));
    let Some(offload) = Offload::parse(&header, frame.len()) else { return };
    assert_eq!(Offload::parse(&offload.header(), frame.len()), Some(offload));
    let before = frame.len();
    let mut total = 0;
    let agreed = if bytes.one_in(2) { 0 } else { features::GUEST_CSUM };
    let cut =
        ginnel_switch::offload::adapt(&mut frame, offload, agreed, &mut Vec::new(), |one, left| {
            assert!(one.len() <= before && left.suits(agreed));
            total += one.len();
        });
    assert!(cut.is_err() || total >= before, "{total} of {before} bytes");
}
