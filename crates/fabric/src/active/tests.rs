//! Ends of one process in one segment, which know nothing of being in one process.

use super::*;
use crate::layout::EndpointId;
use ginnel_region::PAGE;
use std::sync::atomic::Ordering;

pub(super) const KEY: Key = *b"a key of the job";

pub(super) struct Place(tempfile::TempDir);

impl Place {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub(super) fn end(&self, key: Option<Key>) -> Active {
        let config = Config { size: 16 << 20, ..Config::default() };
        Active::open(&self.0.path().join("mpi"), &config, key).expect("an end")
    }

    fn is_empty(&self) -> bool {
        ["mpi", "mpi.wake"].iter().all(|name| !self.0.path().join(name).exists())
    }
}

pub(super) fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + (at >> 8) * 7 + seed) as u8).collect()
}

pub(super) fn send(from: &mut Active, way: u32, handler: u8, bytes: &[u8]) -> Result<(), Error> {
    let (head, rest) = bytes.split_at(bytes.len().min(8));
    // SAFETY: both are slices.
    unsafe { from.send(way, handler, &[(head.as_ptr(), head.len()), (rest.as_ptr(), rest.len())]) }
}

pub(super) fn taken(end: &mut Active) -> Option<(u8, Vec<u8>)> {
    let taken = end.take()?;
    // SAFETY: it stays until the next one is taken.
    Some((taken.handler, unsafe { std::slice::from_raw_parts(taken.at, taken.len) }.to_vec()))
}

#[test]
fn messages_of_all_sizes_arrive_in_order() {
    for key in [None, Some(KEY)] {
        let place = Place::new();
        let (mut a, mut b) = (place.end(key), place.end(key));
        let way = a.way(b.id());
        let (mut sent, mut seen, mut full) = (0usize, 0usize, 0);
        while seen < 3000 {
            let message = bytes([0, 1, 8, 31, 32, 33, 300, 8000, LONGEST][sent % 9], sent);
            let done = if sent % 2 == 0 {
                send(&mut a, way, (sent % 32) as u8, &message)
            } else {
                // SAFETY: the message is not too long.
                let pack = |to: *mut u8| unsafe {
                    std::ptr::copy_nonoverlapping(message.as_ptr(), to, message.len());
                    message.len()
                };
                // SAFETY: as above.
                unsafe { a.send_packed(way, (sent % 32) as u8, pack) }
                    .map(|len| assert_eq!(len, message.len()))
            };
            match done {
                Ok(()) => sent += 1,
                Err(Error::Again) => {
                    full += 1;
                    assert!(b.has_news());
                    while let Some((handler, message)) = taken(&mut b) {
                        let expected =
                            bytes([0, 1, 8, 31, 32, 33, 300, 8000, LONGEST][seen % 9], seen);
                        assert!(
                            handler == (seen % 32) as u8 && message == expected,
                            "message {seen}"
                        );
                        seen += 1;
                    }
                    assert_eq!(seen, sent);
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(full > 20 && !b.has_news());
        assert_eq!(send(&mut a, way, 32, b"no such handler"), Err(Error::TooLong));
        assert_eq!(send(&mut a, way, 0, &bytes(LONGEST + 1, 0)), Err(Error::TooLong));
        a.close();
        b.close();
        assert!(place.is_empty(), "the last to leave removes the segment");
    }
}

/// Long messages without a seal are handed on where they lie in the ring.
#[test]
fn a_message_stays_as_it_is_until_the_next_is_taken() {
    let place = Place::new();
    let (mut a, mut b) = (place.end(None), place.end(None));
    let (way, mut sent) = (a.way(b.id()), 0);
    let mut flood = || {
        while send(&mut a, way, 0, &bytes(LONGEST - sent % 3 * 100, sent)) == Ok(()) {
            sent += 1;
        }
        sent
    };
    flood();
    for seen in 0..1000 {
        let taken = b.take().expect("another was sent");
        flood();
        // SAFETY: it stays until the next one is taken.
        let message = unsafe { std::slice::from_raw_parts(taken.at, taken.len) };
        assert!(message == bytes(LONGEST - seen % 3 * 100, seen), "message {seen}");
    }
    assert!(flood() > 1005);
    b.look_for_the_dead();
    assert!(b.take().is_some_and(|next| next.len == LONGEST - 100));
    a.close();
    b.close();
}

/// Another peer of the segment, which has not the key, can neither forge nor alter a message.
#[test]
fn what_strangers_write_is_not_handed_on() {
    let place = Place::new();
    let (mut a, mut b, mut stranger) =
        (place.end(Some(KEY)), place.end(Some(KEY)), place.end(None));
    let (to_b, from_stranger) = (a.way(b.id()), stranger.way(b.id()));
    send(&mut stranger, from_stranger, 1, b"0123456789").expect("room");
    assert_eq!(taken(&mut b), None, "no seal");
    assert_eq!((b.refused(), b.refused()), (Some(Refused::Stranger(stranger.id())), None));
    send(&mut a, to_b, 2, b"true").expect("room");
    assert_eq!(taken(&mut b), Some((2, b"true".to_vec())), "others are heard as before");
    // Each byte of a message that is on its way, altered; the ring is read no more, and its writer
    // is given up.
    for at in [4, 8, 32, 40] {
        let mut c = place.end(Some(KEY));
        let (to_b, to_c) = (c.way(b.id()), b.way(c.id()));
        send(&mut c, to_b, 3, b"first").expect("room");
        assert!(taken(&mut b).is_some());
        send(&mut c, to_b, 3, b"0123456789").expect("room");
        alter(&b, c.id(), 64 + at);
        assert_eq!(taken(&mut b), None, "byte {at}");
        assert_eq!(b.refused(), Some(Refused::Peer(c.id())));
        assert!(b.is_gone(to_c) && !a.is_gone(0));
        c.close();
        b.look_for_the_dead();
    }
    send(&mut a, to_b, 4, b"still").expect("room");
    assert_eq!(taken(&mut b), Some((4, b"still".to_vec())));
    for end in [a, b, stranger] {
        end.close();
    }
    assert!(place.is_empty());
}

/// A rank of which nothing is taken hears of it, also where it never sent a good message: it would
/// wait for ever.
#[test]
fn a_rank_that_is_not_heard_is_told() {
    for first in [true, false] {
        let place = Place::new();
        let (mut a, mut b) = (place.end(Some(KEY)), place.end(Some(KEY)));
        let to_b = a.way(b.id());
        if !first {
            send(&mut a, to_b, 3, b"first").expect("room");
            assert!(taken(&mut b).is_some());
        }
        send(&mut a, to_b, 3, b"garbled").expect("room");
        alter(&b, a.id(), if first { 32 } else { 64 + 32 });
        a.look_for_the_dead();
        assert_eq!(a.refused(), None, "nobody has looked at it");
        assert_eq!(taken(&mut b), None);
        assert_eq!(
            b.refused(),
            Some(if first { Refused::Stranger(a.id()) } else { Refused::Peer(a.id()) })
        );
        a.look_for_the_dead();
        a.look_for_the_dead();
        assert_eq!((a.refused(), a.refused()), (Some(Refused::Own(b.id())), None));
        assert_eq!(send(&mut a, to_b, 3, b"later"), Err(Error::Gone));
        a.close();
        b.look_for_the_dead();
        b.close();
        assert!(place.is_empty());
    }
}

/// The page of the pair from `writer`, and where its ring begins, if both are in the segment.
pub(super) fn pair_of(reader: &Active, writer: EndpointId) -> Option<(u32, u64)> {
    let segment = reader.node.segment();
    let word =
        |page: u32, at: u64| segment.word(u64::from(page) * PAGE + at).load(Ordering::Relaxed);
    let there = |page: &u32| segment.head(*page).is_some() && word(*page, 8) == writer.0;
    let page = reader.node.entries().map(|(_, page)| page).find(there)?;
    let ring = word(page, 0x18);
    (ring.is_multiple_of(PAGE) && segment.holds(ring, RING)).then_some((page, ring))
}

/// Alters a byte of the ring from `writer`.
fn alter(reader: &Active, writer: EndpointId, at: u64) {
    let (_, ring) = pair_of(reader, writer).expect("its pair");
    reader.node.segment().word(ring + at / 8 * 8).fetch_xor(1 << (at % 8 * 8), Ordering::Relaxed);
}

/// UCX acts on what its messages end with, too.
#[test]
fn a_long_message_is_sealed_to_its_last_byte() {
    let place = Place::new();
    let mut b = place.end(Some(KEY));
    for at in [0, 255, 256, 257, 999, 7000, LONGEST as u64 - 1] {
        let mut a = place.end(Some(KEY));
        let to_b = a.way(b.id());
        send(&mut a, to_b, 3, &bytes(LONGEST, 5)).expect("room");
        alter(&b, a.id(), 32 + at);
        assert!(taken(&mut b).is_none(), "byte {at}");
        assert_eq!(b.refused(), Some(Refused::Stranger(a.id())));
        a.close();
        b.look_for_the_dead();
    }
    b.close();
}

/// Whoever may write the segment may show a reader what a rank sent it before once more, as another
/// ring of that rank's: beside the true one, or once the true one looks as if its writer had left.
#[test]
fn what_a_rank_sent_is_not_taken_twice() {
    for left in [false, true] {
        let place = Place::new();
        let (mut a, mut b, mut stranger) =
            (place.end(Some(KEY)), place.end(Some(KEY)), place.end(None));
        let (to_b, from_stranger) = (a.way(b.id()), stranger.way(b.id()));
        for message in [b"first", b"later"] {
            send(&mut a, to_b, 2, message).expect("room");
        }
        assert_eq!(
            (taken(&mut b), taken(&mut b)),
            (Some((2, b"first".to_vec())), Some((2, b"later".to_vec())))
        );
        send(&mut stranger, from_stranger, 1, b"to be another").expect("room");
        let pair = |writer| pair_of(&b, writer).expect("its pair");
        let ((page, ring), (copied_page, copied)) = (pair(a.id()), pair(stranger.id()));
        for at in (0..RING).step_by(8) {
            let word = |ring| stranger.node.segment().word(ring + at);
            word(copied).store(word(ring).load(Ordering::Relaxed), Ordering::Relaxed);
        }
        stranger
            .node
            .segment()
            .word(u64::from(copied_page) * PAGE + 8)
            .store(a.id().0, Ordering::Relaxed);
        if left {
            stranger.node.segment().word(u64::from(page) * PAGE + 0x80).store(1, Ordering::Relaxed);
            b.look_for_the_dead();
        }
        assert_eq!(taken(&mut b), None, "left: {left}");
        assert_eq!(b.refused(), Some(Refused::Stranger(a.id())), "a stranger's");
        if !left {
            send(&mut a, to_b, 4, b"still").expect("room");
            assert_eq!(taken(&mut b), Some((4, b"still".to_vec())));
        }
    }
}

/// Whatever a ring says, without a key too: refused, or handed on as bytes; nothing outside is
/// touched.
#[test]
fn garbage_in_a_ring_ends_nothing() {
    let place = Place::new();
    let mut b = place.end(None);
    for seed in 0..300u64 {
        let mut a = place.end(None);
        let way = a.way(b.id());
        send(&mut a, way, 1, &bytes(100, 1)).expect("room");
        let segment = b.node.segment();
        let word = |offset: u64| segment.word(offset);
        let (_, page) = b
            .node
            .entries()
            .find(|(_, page)| word(u64::from(*page) * PAGE + 8).load(Ordering::Relaxed) == a.id().0)
            .expect("its pair");
        let ring = word(u64::from(page) * PAGE + 0x18).load(Ordering::Relaxed);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for at in 0..32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let value = if at == 0 && seed % 2 == 0 {
                state & 0x7fff | 11 << 24 | (state >> 60) << 32
            } else {
                state
            };
            word(ring + at * 8).store(value, Ordering::Relaxed);
        }
        if seed % 3 == 0 {
            // How far the reader is, and the pair's own words.
            word(u64::from(page) * PAGE + [0x40, 0x18, 0x20, 0x80][seed as usize / 3 % 4])
                .store(state, Ordering::Relaxed);
        }
        for _ in 0..64 {
            if taken(&mut b).is_none() {
                break;
            }
        }
        let _ = send(&mut a, way, 1, &bytes(100, 1));
        a.close();
        b.look_for_the_dead();
    }
    b.close();
}

/// Whoever sleeps is woken by a message, and by room.
#[test]
fn sleepers_are_woken() {
    let place = Place::new();
    let (mut a, mut b) = (place.end(Some(KEY)), place.end(Some(KEY)));
    let (to_b, to_a) = (a.way(b.id()), b.way(a.id()));
    let wait = |end: &mut Active| {
        loop {
            if let Some(taken) = taken(end) {
                return taken.1;
            }
            doze(end, |end| end.has_news());
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300 {
                let message = wait(&mut b);
                while send(&mut b, to_a, 0, &message) == Err(Error::Again) {
                    doze(&mut b, |end| end.has_room(to_a) == Ok(true));
                }
            }
        });
        for round in 0..300 {
            let message = bytes(if round % 3 == 0 { LONGEST } else { 10 }, round);
            send(&mut a, to_b, 0, &message).expect("room");
            assert!(wait(&mut a) == message);
        }
    });
    a.close();
    b.close();
}

fn doze(end: &mut Active, is_there: impl Fn(&mut Active) -> bool) {
    end.node().sleeping();
    if !is_there(end) {
        let woken = ginnel_region::sys::poll(end.node().fifo(), libc::POLLIN, 20_000);
        assert!(woken != 0, "nobody woke it");
    }
    end.node().awake();
}

/// Who wakes an endpoint clears that it sleeps, and writes to its FIFO later: by then that one may
/// be awake again, of itself. What it finds there ends one sleep, not all that follow.
#[test]
fn a_late_wake_up_ends_one_sleep_only() {
    let place = Place::new();
    let end = place.end(None);
    let is_readable = || ginnel_region::sys::poll(end.node().fifo(), libc::POLLIN, 0) != 0;
    let name = std::fs::read_dir(place.0.path().join("mpi.wake"))
        .expect("there")
        .flatten()
        .find(|entry| entry.file_name().as_encoded_bytes().starts_with(b"w"))
        .expect("a FIFO");
    std::fs::OpenOptions::new()
        .write(true)
        .open(name.path())
        .and_then(|mut late| std::io::Write::write(&mut late, &[0]))
        .expect("room");
    end.node().sleeping();
    assert!(is_readable());
    end.node().awake();
    assert!(!is_readable());
    end.close();
}
