//! `ginnel-switch`: what a front end says, and what is to be cut.

use crate::Bytes;
use ginnel_ivshmem::doorbell::Ringer;
use ginnel_switch::front_end::{FrontEnd, GUEST, Options, USER};
use ginnel_switch::poller::Poller;
use ginnel_switch::ring::Slices;
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
        (header[5], header[7]) = (header[5] & 3, 0);
        (header[8], header[9]) = (16, 0);
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
