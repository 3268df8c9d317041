//! `ginnel-switch`'s queues, while a guest's other processor writes into them.

use crate::Bytes;
use crate::fence::Fence;
use crate::switch::address;
use ginnel_switch::front_end::{FrontEnd, GUEST, Options, USER};
use ginnel_switch::ring::{Layout, Memory, Region, Ring, Slices};
use ginnel_switch::wire::HEADER;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SIZE: u16 = 16;
/// Chains that are taken, or frames that are delivered, while the other processor writes.
const CHAINS: u32 = 1000;

/// Eight bytes of the guest's memory, and what stands there in turn.
type Spot = (u64, [[u8; 8]; 2]);

/// Places that the switch reads: entries of the available ring, four at once, and halves of
/// descriptors. Each is what it should be, and something else.
fn spots(bytes: &mut Bytes<'_>, guest: &FrontEnd, number: usize, end: u64) -> Vec<Spot> {
    let [descriptors, available, _] = guest.queues[number].places();
    (0..=bytes.below(3))
        .map(|_| {
            let at = match bytes.byte() % 3 {
                0 => available + 4 + 8 * bytes.below(u64::from(SIZE) / 4),
                1 => descriptors + 16 * bytes.below(SIZE.into()),
                _ => descriptors + 16 * bytes.below(SIZE.into()) + 8,
            };
            let good = guest.read(at);
            let bad = if bytes.one_in(2) { bytes.word() } else { address(bytes, end) };
            (at, [good, bad.to_le_bytes()])
        })
        .collect()
}

/// A guest whose descriptors and available ring change while the switch reads them. What the switch
/// has checked is what it uses: no head is outside the table, no buffer outside the memory, and a
/// frame is delivered whole or not at all.
///
/// # Panics
/// When no guest can be made, or a rule is broken.
pub fn race(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let (socket, _other) = UnixStream::pair().expect("a pair");
    let options = Options { size: SIZE, ..Options::default() };
    let mut guest = FrontEnd::prepare(socket, options).expect("a guest");
    let size = rustix::fs::fstat(&guest.file).map_or(0, |stat| stat.st_size) as u64;
    let map = || {
        let region = Region::new(&guest.file, 0, GUEST, size, USER).expect("mapped");
        Memory::new(vec![Arc::new(region)], None)
    };
    let (memory, _fence) = Fence::around(size as usize, map);
    let others = map();
    let number = usize::from(bytes.one_in(2));
    let [descriptors, available, used] = guest.queues[number].places().map(|at| at - GUEST + USER);
    let (event_idx, indirect) = (false, bytes.one_in(2));
    let layout = Layout {
        size: SIZE,
        descriptors,
        available,
        used,
        used_log: None,
        base: 0,
        event_idx,
        indirect,
    };
    let mut ring = Ring::new(&memory, layout).expect("it lies in memory");
    for index in 0..SIZE {
        let flags = if number == 0 { 2 } else { 0 };
        guest.describe(number, index, GUEST + 0x10000 + 256 * u64::from(index), 256, flags, 0);
        guest.offer(number, index);
    }
    let spots = spots(&mut bytes, &guest, number, GUEST + size);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for (at, words) in &spots {
                    for word in [words[1], words[0]] {
                        if let Some(place) = others.slice(*at, 8) {
                            place.write(&word);
                        }
                    }
                }
            }
        });
        let _ends = Ends(&over);
        for _ in 0..CHAINS {
            if ring.waiting().is_ok_and(|waits| waits == 0) {
                // The same heads once more: only the index is written.
                let index = ring.base().wrapping_add(SIZE);
                guest.write(available - USER + GUEST + 2, &index.to_le_bytes());
            }
            if number == 1 {
                take(&mut ring, &memory)
            } else {
                deliver(&mut ring, &memory)
            }
            let _ = ring.publish(&memory);
        }
    });
}

/// The other processor stops, also when this one has panicked.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn take(ring: &mut Ring, memory: &Memory) {
    let mut chain = Slices::new();
    if let Ok(Some(head)) = ring.take(memory, &mut chain) {
        assert!(head < SIZE, "head {head}");
        if chain.len() < 1 << 17 {
            chain.append_to(&mut Vec::new());
        }
        ring.complete(memory, head, 0);
    }
}

fn deliver(ring: &mut Ring, memory: &Memory) {
    let base = ring.base();
    match ring.deliver(memory, &[7; HEADER + 60], &Slices::new(), HEADER, true) {
        Ok(()) => assert!(ring.base().wrapping_sub(base) <= SIZE),
        Err(_) => assert_eq!(ring.base(), base, "all or nothing"),
    }
}
