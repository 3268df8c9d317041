//! A segment of endpoints: two honest ones that send, receive, read and write, and a third party
//! that writes into their pages, their rings and the owner words. What they send may be garbled or
//! lost; nothing outside the memory that they gave may change, and everything comes back.

use crate::Bytes;
use ginnel_fabric::endpoint::{Endpoint, Message, Tuning};
use ginnel_fabric::matching::{Buffers, Posted};
use ginnel_fabric::memory::{Memory, Region};
use ginnel_region::{Config, PAGE, Segment};
use std::sync::atomic::Ordering::Relaxed;

const KEY: u64 = 7;
/// Bytes of each piece of memory that is given to an operation, and of what lies around it.
const GIVEN: usize = 3000;
const AROUND: usize = 512;
const UNTOUCHED: u8 = 0xa5;
const TUNING: Tuning = Tuning { ring: 8192, eager: 1000, piece: 700 };

/// Memory for operations, with a margin that nobody may write.
struct Given(Vec<u8>);

impl Given {
    fn new() -> Self {
        let mut bytes = vec![UNTOUCHED; GIVEN + 2 * AROUND];
        bytes[AROUND..AROUND + GIVEN].fill(0);
        Self(bytes)
    }

    fn buffers(&mut self, len: usize) -> Buffers {
        Buffers::one(self.0[AROUND..].as_mut_ptr(), len.min(GIVEN))
    }

    fn check(&self) {
        let around = self.0[..AROUND].iter().chain(&self.0[AROUND + GIVEN..]);
        assert!(
            around.into_iter().all(|byte| *byte == UNTOUCHED),
            "memory was written that nobody gave"
        );
    }
}

/// One end, its registered memory and what it gives to operations.
struct End {
    endpoint: Endpoint,
    memory: Memory,
    region: Given,
    /// Where messages go: each receive has its own.
    taken: Vec<Given>,
    sent: Given,
    answer: Given,
}

impl End {
    fn new(path: &std::path::Path) -> Self {
        let config = Config { size: 16 << 20, ..Config::default() };
        let endpoint = Endpoint::open(path, &config, TUNING).expect("an endpoint");
        let (mut memory, mut region) = (Memory::default(), Given::new());
        let base = region.0[AROUND..].as_mut_ptr();
        let part = Region { base, len: GIVEN as u64, origin: 0, readable: true, writable: true };
        // SAFETY: the region lives as long as the memory that it stands in.
        assert!(unsafe { memory.insert(KEY, part) });
        Self {
            endpoint,
            memory,
            region,
            taken: Vec::new(),
            sent: Given::new(),
            answer: Given::new(),
        }
    }

    fn act(&mut self, other: &Endpoint, bytes: &mut Bytes<'_>) {
        let to = self.endpoint.peer(other.id());
        let (len, tag) = (bytes.below(GIVEN as u64 + 1) as usize, bytes.below(3));
        let tagged = bytes.one_in(2);
        let message = Message {
            tag: tagged.then_some(tag),
            data: bytes.one_in(3).then_some(1),
            buffers: self.sent.buffers(len),
            token: 1,
            report: true,
            delivered: bytes.one_in(3),
        };
        let address = bytes.below(GIVEN as u64);
        // What is given to an operation lives until the endpoint has left.
        match bytes.byte() % 6 {
            // SAFETY: as above.
            0 | 1 => _ = unsafe { self.endpoint.send(to, message) },
            2 => {
                self.taken.push(Given::new());
                let buffers = self.taken.last_mut().expect("just put").buffers(len);
                let several = (bytes.one_in(4) && !tagged).then_some(200);
                let posted =
                    Posted { buffers, from: None, tag, ignore: 0, token: 2, report: true, several };
                // SAFETY: as above.
                unsafe { self.endpoint.receive(tagged, posted) };
            }
            3 => {
                // SAFETY: as above.
                _ = unsafe {
                    self.endpoint.write(to, KEY, address, Message { tag: None, ..message })
                }
            }
            4 => {
                let into = self.answer.buffers(len);
                // SAFETY: as above.
                _ = unsafe { self.endpoint.read(to, KEY, address, into, 3, true) };
            }
            _ => {
                let mut operands = vec![2, 6, 0, 0, 1, 0, 0, 0];
                operands.extend(bytes.word().to_le_bytes());
                let answer = bytes.one_in(2).then(|| self.answer.buffers(8));
                // SAFETY: as above.
                _ = unsafe {
                    self.endpoint.apply(to, (KEY, address), &operands, answer, (4, true))
                };
            }
        }
    }

    fn go_on(&mut self) {
        for _ in 0..4 {
            self.endpoint.progress(&self.memory);
            while self.endpoint.event().is_some() {}
        }
    }

    fn check(&self) {
        [&self.region, &self.sent, &self.answer]
            .into_iter()
            .chain(&self.taken)
            .for_each(Given::check);
    }
}

/// # Panics
/// When memory was written that nobody gave.
pub fn target(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let folder = crate::place("fabric");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let path = folder.join("mpi");
    let mut ends = [End::new(&path), End::new(&path)];
    let stranger = Segment::open(&path).expect("there");
    for round in 0.. {
        if bytes.is_empty() {
            break;
        }
        let (a, b) = ends.split_at_mut(1);
        let (one, other) =
            if bytes.one_in(2) { (&mut a[0], &mut b[0]) } else { (&mut b[0], &mut a[0]) };
        one.act(&other.endpoint, &mut bytes);
        if round > 4 && bytes.one_in(2) {
            spoil(&stranger, &mut bytes);
        }
        one.go_on();
        other.go_on();
        if bytes.one_in(8) {
            one.endpoint.look_for_the_dead();
        }
        one.check();
        other.check();
    }
    let [a, b] = ends;
    a.endpoint.close();
    b.endpoint.close();
    stranger.close();
    let _ = std::fs::remove_dir_all(folder);
}

/// A word of an endpoint, a pair, a ring, or an owner word gets another value.
fn spoil(segment: &Segment, bytes: &mut Bytes<'_>) {
    let owned: Vec<u32> = segment.owned().map(|(page, _)| page).collect();
    let Some(page) = owned.get(bytes.below(owned.len() as u64) as usize).copied() else { return };
    // Heads have their words at the front, rings their frames anywhere on a line.
    let at = if bytes.one_in(2) {
        bytes.below(24) * 8
    } else {
        bytes.below(64) * 64 + bytes.below(4) * 8
    };
    let word = segment.word(u64::from(page) * PAGE + at);
    let now = word.load(Relaxed);
    // A frame that passes the first check: one field of its first word, the others as they were.
    let new = if now != 0 && bytes.one_in(2) {
        now ^ (bytes.value(0) & 0xff) << (8 * bytes.below(6))
    } else {
        bytes.value(now)
    };
    word.store(new, Relaxed);
}
