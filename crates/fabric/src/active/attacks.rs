//! A party that may write the segment and has not the job's key, against ranks that have it.
//!
//! The thief knows all that stands in the segment: pages, rings, frames and their seals. Whatever
//! it does, what a reader hands on is what the writer sent it, each once, in order, from the first
//! on.
//! The thief may bring that to an end, and no more.

use super::tests::{KEY, Place, bytes, pair_of, send, taken};
use super::{Active, Error, HANDLERS, LONGEST, RING, Refused};
use crate::layout::EndpointId;
use ginnel_region::PAGE;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Words of a ring.
const WORDS: u64 = RING / 8;

/// Numbers that a seed gives.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % limit
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// The `number`th message from one rank to another, by the way that it has.
fn message(way: usize, number: usize) -> (u8, Vec<u8>) {
    let len = [8, 20, 300, 4064, LONGEST][(number * 7 + way) % 5];
    let mut body = bytes(len, number + way * 1000);
    body[..8].copy_from_slice(&(number as u64).to_le_bytes());
    ((number % usize::from(HANDLERS)) as u8, body)
}

/// Three ranks of which each sends to each, and a thief.
struct Game {
    ranks: Vec<Active>,
    thief: Active,
    /// By sender and receiver: how many messages were sent, and taken.
    counts: [[(usize, usize); 3]; 3],
    /// Rings as they were, with the words of the pages before them.
    recorded: Vec<Vec<u64>>,
    _place: Place,
}

impl Game {
    fn new() -> Self {
        let place = Place::new();
        let ranks: Vec<Active> = (0..3).map(|_| place.end(Some(KEY))).collect();
        let mut game = Self {
            ranks,
            thief: place.end(None),
            counts: Default::default(),
            recorded: Vec::new(),
            _place: place,
        };
        // Every pair is there from the start.
        (0..9).filter(|at| at / 3 != at % 3).for_each(|at| game.send(at / 3, at % 3));
        game
    }

    fn send(&mut self, from: usize, to: usize) {
        let id = self.ranks[to].id();
        let rank = &mut self.ranks[from];
        let way = rank.way(id);
        let sent = &mut self.counts[from][to].0;
        let (handler, body) = message(from * 3 + to, *sent);
        match send(rank, way, handler, &body) {
            Ok(()) => *sent += 1,
            Err(Error::Again | Error::Gone) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Takes what has come, and finds it to be what is next of somebody.
    fn take(&mut self, at: usize) {
        while let Some((handler, body)) = taken(&mut self.ranks[at]) {
            let is_next = |from: &usize| {
                let (sent, seen) = self.counts[*from][at];
                seen < sent && message(from * 3 + at, seen) == (handler, body.clone())
            };
            let from = (0..3).find(is_next).expect("what a rank sent, and nobody has taken yet");
            self.counts[from][at].1 += 1;
        }
        while self.ranks[at].refused().is_some() {}
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        self.thief.node().segment().word(offset)
    }

    fn copied(&self, ring: u64) -> Vec<u64> {
        (0..WORDS).map(|at| self.word(ring + at * 8).load(Ordering::Relaxed)).collect()
    }

    /// Writes `count` words of `from` where they were, into a ring.
    fn put(&self, ring: u64, from: &[u64], begin: u64, count: u64) {
        for at in begin..(begin + count).min(WORDS) {
            self.word(ring + at * 8).store(from[at as usize], Ordering::Relaxed);
        }
    }

    /// Does something that is not allowed.
    fn attack(&mut self, random: &mut Random) {
        let (reader, writer) = random.one_of(&[(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]);
        let id = self.ranks[writer].id();
        let Some((page, ring)) = pair_of(&self.ranks[reader], id) else { return };
        let frames: Vec<u64> =
            (0..WORDS).step_by(8).filter(|at| self.is_frame(ring, *at)).collect();
        let frame = if frames.is_empty() { 0 } else { random.one_of(&frames) };
        let (page, at) = (u64::from(page) * PAGE, ring + frame * 8);
        match random.below(10) {
            0 => self.recorded.push(self.copied(ring)),
            1 if !self.recorded.is_empty() => {
                let old = &self.recorded[random.below(self.recorded.len() as u64) as usize];
                self.put(ring, old, frame, random.one_of(&[1, 4, 8, 64, WORDS]));
            }
            // A bit of a frame: of its words, or of its bytes.
            2 => {
                _ = self
                    .word(at + random.below(16) * 8)
                    .fetch_xor(1 << random.below(64), Ordering::Relaxed)
            }
            // Another length, or another handler, or none.
            3 => {
                _ = self.word(at).fetch_add(
                    random.one_of(&[8, 64, 1 << 24, 1 << 32, u64::MAX - 63]),
                    Ordering::Relaxed,
                )
            }
            4 => self.word(at).store(0, Ordering::Relaxed),
            5 => {
                // Two frames change places.
                let other = ring + if frames.is_empty() { 0 } else { random.one_of(&frames) } * 8;
                for line in 0..8 {
                    let (one, two) = (self.word(at + line * 8), self.word(other + line * 8));
                    two.store(
                        one.swap(two.load(Ordering::Relaxed), Ordering::Relaxed),
                        Ordering::Relaxed,
                    );
                }
            }
            // What the pair's page says: ends, ring, size, how far the reader is, who has let go.
            6 => {
                let word = self.word(page + random.one_of(&[0x08, 0x10, 0x18, 0x20, 0x40, 0x80]));
                word.store(
                    random.one_of(&[0, 1, 3, 7, 64, RING, id.0, ring, u64::MAX - 63]),
                    Ordering::Relaxed,
                );
            }
            // What an endpoint's page says.
            7 => {
                let word = self.word(
                    u64::from(id.page()) * PAGE + random.one_of(&[0, 0x08, 0x10, 0x18, 0x28, 0x80]),
                );
                word.fetch_xor(1 << random.below(64), Ordering::Relaxed);
            }
            8 => self.forge(reader, writer, random),
            _ => {
                // A part of another pair's ring.
                let other = random.one_of(&[0, 1, 2]);
                if let Some((_, others)) = (other != reader)
                    .then(|| pair_of(&self.ranks[reader], self.ranks[other].id()))
                    .flatten()
                {
                    self.put(ring, &self.copied(others), frame, random.one_of(&[4, 8, WORDS]));
                }
            }
        }
    }

    fn is_frame(&self, ring: u64, at: u64) -> bool {
        let head = self.word(ring + at * 8).load(Ordering::Relaxed);
        head >> 24 & 0xff == 11 && (32..=LONGEST as u64 + 32).contains(&(head & 0xff_ffff))
    }

    /// A ring of the thief's that says it is a rank's, with what that one sent to somebody.
    fn forge(&mut self, reader: usize, writer: usize, random: &mut Random) {
        let (to, from) = (self.ranks[reader].id(), self.ranks[writer].id());
        let way = self.thief.way(to);
        if send(&mut self.thief, way, 1, b"to be another").is_err() {
            return;
        }
        let source = random.below(3) as usize;
        let (Some((page, own)), Some((_, true_one))) = (
            pair_of(&self.ranks[reader], self.thief.id()),
            pair_of(&self.ranks[source], if source == writer { to } else { from }),
        ) else {
            return;
        };
        self.put(own, &self.copied(true_one), 0, WORDS);
        self.word(u64::from(page) * PAGE + 0x08).store(from.0, Ordering::Relaxed);
    }
}

#[test]
fn a_thief_changes_nothing_that_is_handed_on() {
    for seed in 0..50 {
        let (mut game, mut random) = (Game::new(), Random(seed));
        for step in 0..400 {
            match random.below(24) {
                0..=11 => game.send(random.below(3) as usize, random.below(3) as usize),
                12..=20 => game.take(random.below(3) as usize),
                21 => game.ranks[random.below(3) as usize].look_for_the_dead(),
                // Often enough that something comes of it, seldom enough that there is something to
                // attack.
                _ if step > 30 => game.attack(&mut random),
                _ => {}
            }
        }
        (0..3).for_each(|at| game.take(at));
    }
}

/// A frame's own words tell 16 bits of its place: the same come again after 4 MiB, at the same
/// place of the ring.
#[test]
fn a_message_of_many_laps_before_is_not_taken_again() {
    let place = Place::new();
    let (mut a, mut b, thief) = (place.end(Some(KEY)), place.end(Some(KEY)), place.end(None));
    let to_b = a.way(b.id());
    let body = |number: u64| [&number.to_le_bytes()[..], &[7; 4056]].concat();
    send(&mut a, to_b, 3, &body(0)).expect("room");
    let (_, ring) = pair_of(&b, a.id()).expect("its pair");
    let words = |at: u64| thief.node().segment().word(ring + at * 8);
    let first: Vec<u64> = (0..512).map(|at| words(at).load(Ordering::Relaxed)).collect();
    for number in 0..1024 {
        assert_eq!(taken(&mut b), Some((3, body(number))));
        send(&mut a, to_b, 3, &body(number + 1)).expect("room");
    }
    assert_eq!(first[0], words(0).load(Ordering::Relaxed), "the same head, at the same place");
    first
        .iter()
        .enumerate()
        .for_each(|(at, word)| words(at as u64).store(*word, Ordering::Relaxed));
    assert_eq!(taken(&mut b), None);
    assert_eq!(b.refused(), Some(Refused::Peer(a.id())));
}

/// What is checked is what is handed on, however often it changes meanwhile.
#[test]
fn bytes_that_change_while_they_are_taken_are_refused_or_right() {
    let place = Place::new();
    let mut b = place.end(Some(KEY));
    let thief = place.end(None);
    for round in 0..10 {
        let mut a = place.end(Some(KEY));
        let to_b = a.way(b.id());
        let body = bytes(9000, 1);
        send(&mut a, to_b, 3, &body).expect("room");
        let (_, ring) = pair_of(&b, a.id()).expect("its pair");
        let (stop, mut wrong) = (AtomicBool::new(false), false);
        let word = thief.node().segment().word(ring + [0, 8, 32, 40, 8000][round % 5]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    word.fetch_xor(1 << (round % 30), Ordering::Relaxed);
                    word.fetch_xor(1 << (round % 30), Ordering::Relaxed);
                }
            });
            for _ in 0..10 {
                wrong |= taken(&mut b).is_some_and(|taken| taken != (3, body.clone()));
                let _ = send(&mut a, to_b, 3, &body);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(!wrong, "round {round}");
        while b.refused().is_some() {}
        a.close();
        b.look_for_the_dead();
    }
}

/// The seal is of both ranks: what a rank sent to a third one is nothing to the second.
#[test]
fn a_message_to_another_is_not_taken() {
    let place = Place::new();
    let (mut a, mut b, c) = (place.end(Some(KEY)), place.end(Some(KEY)), place.end(Some(KEY)));
    for id in [b.id(), c.id()] {
        let way = a.way(id);
        send(&mut a, way, 2, if id == b.id() { b"for b" } else { b"for c" }).expect("room");
    }
    let ring = |end: &Active, writer: EndpointId| pair_of(end, writer).expect("its pair").1;
    let (to_b, to_c) = (ring(&b, a.id()), ring(&c, a.id()));
    for at in 0..8 {
        let word = |ring| b.node().segment().word(ring + at * 8);
        word(to_b).store(word(to_c).load(Ordering::Relaxed), Ordering::Relaxed);
    }
    assert_eq!(taken(&mut b), None);
    assert_eq!(b.refused(), Some(Refused::Stranger(a.id())));
}
