//! Endpoints of one process in one segment, which know nothing of being in one process.

use super::*;
use crate::matching::{Buffers, Posted, Token};
use crate::memory::{Region, op};

mod edges;

const SMALL: Tuning = Tuning { ring: 8192, eager: 1000, piece: 700 };

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn endpoint(&self) -> Endpoint {
        let config = Config { size: 16 << 20, ..Config::default() };
        Endpoint::open(&self.0.path().join("mpi"), &config, SMALL).expect("an endpoint")
    }

    fn is_empty(&self) -> bool {
        ["mpi", "mpi.wake"].iter().all(|name| !self.0.path().join(name).exists())
    }
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + (at >> 8) * 7 + seed) as u8).collect()
}

fn message(tag: Option<u64>, bytes: &[u8], token: Token) -> Message {
    let buffers = Buffers::one(bytes.as_ptr().cast_mut(), bytes.len());
    Message { tag, data: None, buffers, token, report: true, delivered: false }
}

fn posted(bytes: &mut [u8], tag: u64, token: Token) -> Posted {
    let buffers = Buffers::one(bytes.as_mut_ptr(), bytes.len());
    Posted { buffers, from: None, tag, ignore: 0, token, report: true, several: None }
}

/// Both go on until each has had so many events.
fn until(ends: &mut [(&mut Endpoint, &Memory, usize)]) -> Vec<Vec<Event>> {
    let mut all = vec![Vec::new(); ends.len()];
    for _ in 0..1_000_000 {
        for ((endpoint, memory, _), events) in ends.iter_mut().zip(&mut all) {
            endpoint.progress(memory);
            while let Some(event) = endpoint.event() {
                events.push(event);
            }
        }
        if ends.iter().zip(&all).all(|((_, _, wanted), events)| events.len() >= *wanted) {
            return all;
        }
    }
    panic!("it does not end: {all:?}");
}

#[test]
fn messages_of_all_sizes_arrive_early_and_late() {
    let place = Place::new();
    let (mut a, mut b) = (place.endpoint(), place.endpoint());
    let memory = Memory::default();
    let to = a.peer(b.id());
    for early in [false, true] {
        for len in [0, 1, 31, 32, 33, 64, 999, 1000, 1001, 5000, 100_000] {
            let sent = bytes(len, len);
            let mut got = vec![0; len + 1];
            let receive = posted(&mut got, 5, 2);
            if !early {
                // SAFETY: `got` and `sent` outlive the exchange below.
                unsafe { b.receive(true, receive.clone()) };
            }
            // SAFETY: as above.
            unsafe {
                a.send(
                    to,
                    Message {
                        data: Some(77),
                        delivered: len % 2 == 1,
                        ..message(Some(5), &sent, 1)
                    },
                )
            }
            .expect("room");
            if early {
                for _ in 0..10 {
                    b.progress(&memory);
                }
                b.peek(true, &receive, false, false);
                let seen = b.event().expect("a peek ends at once");
                assert_eq!((seen.len, seen.tag, seen.data, seen.failure), (len, 5, Some(77), None));
                // SAFETY: as above.
                unsafe { b.receive(true, receive) };
            }
            let events = until(&mut [(&mut a, &memory, 1), (&mut b, &memory, 1)]);
            let (end, event) = (&events[0][0], &events[1][0]);
            assert_eq!((end.kind, end.token, end.failure), (EventKind::Send(true), 1, None));
            assert_eq!(
                (event.len, event.data, event.from, event.failure),
                (len, Some(77), a.id(), None)
            );
            assert!(got[..len] == sent[..], "{len} bytes, early: {early}");
        }
    }
    assert!(a.is_quiet() && b.is_quiet());
    a.close();
    b.close();
    assert!(place.is_empty(), "the last to leave removes the segment");
}

#[test]
fn a_message_that_is_longer_than_its_place_is_cut_and_said_to_be() {
    let place = Place::new();
    let (mut a, mut b) = (place.endpoint(), place.endpoint());
    let (memory, to) = (Memory::default(), a.peer(b.id()));
    for len in [100, 50_000] {
        let sent = bytes(len, 1);
        let mut got = vec![0xee; len];
        // SAFETY: both outlive the exchange below.
        unsafe { b.receive(true, posted(&mut got[..len / 2], 0, 2)) };
        // SAFETY: as above.
        unsafe { a.send(to, message(Some(0), &sent, 1)) }.expect("room");
        let events = until(&mut [(&mut a, &memory, 1), (&mut b, &memory, 1)]);
        assert_eq!(
            (events[0][0].failure, events[1][0].failure),
            (None, Some(Failure::Truncated(len - len / 2)))
        );
        assert!(
            got[..len / 2] == sent[..len / 2] && got[len / 2..].iter().all(|byte| *byte == 0xee)
        );
    }
}

#[test]
fn a_full_ring_says_so_and_goes_on() {
    let place = Place::new();
    let (mut a, mut b) = (place.endpoint(), place.endpoint());
    let (memory, to) = (Memory::default(), a.peer(b.id()));
    let (mut sent, mut taken, mut again) = (0u64, 0u64, 0);
    while taken < 5000 {
        let word = sent.to_le_bytes();
        // SAFETY: at once, and nobody wants to hear.
        match unsafe { a.send(to, Message { report: false, ..message(None, &word, 0) }) } {
            Ok(()) => sent += 1,
            Err(Error::Again) => {
                again += 1;
                let mut got = [0; 8];
                // SAFETY: `got` outlives the exchange: the message is there already.
                unsafe { b.receive(false, posted(&mut got, 0, 0)) };
                until(&mut [(&mut b, &memory, 1)]);
                assert_eq!(u64::from_le_bytes(got), taken, "in order");
                taken += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
        while a.event().is_some() {}
    }
    assert!(again > 1000);
}

#[test]
fn memory_is_written_read_and_changed() {
    let place = Place::new();
    let (mut a, mut b) = (place.endpoint(), place.endpoint());
    let (mut memory, own, to) = (Memory::default(), Memory::default(), a.peer(b.id()));
    let mut region = vec![0u8; 30_000];
    let base = region.as_mut_ptr();
    // SAFETY: `region` outlives `memory`.
    assert!(unsafe {
        memory.insert(9, Region { base, len: 30_000, origin: 0, readable: true, writable: true })
    });
    let sent = bytes(20_000, 3);
    // SAFETY: `sent` and `got` outlive what is done with them below.
    unsafe { a.write(to, 9, 100, Message { data: Some(5), ..message(None, &sent, 1) }) }
        .expect("room");
    let events = until(&mut [(&mut a, &own, 1), (&mut b, &memory, 1)]);
    assert_eq!((events[0][0].kind, events[0][0].failure), (EventKind::Write, None));
    assert_eq!((events[1][0].kind, events[1][0].data), (EventKind::Written, Some(5)));
    let mut got = vec![0; 20_000];
    let into = Buffers::one(got.as_mut_ptr(), got.len());
    // SAFETY: as above.
    unsafe { a.read(to, 9, 100, into, 2, true) }.expect("room");
    until(&mut [(&mut a, &own, 1), (&mut b, &memory, 0)]);
    assert!(got == sent);
    let operand = |operation: u32, words: &[i64]| {
        let mut bytes = vec![operation as u8, 6, 0, 0, 1, 0, 0, 0];
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes
    };
    let mut before = vec![0u8; 8];
    let at = before.as_mut_ptr();
    let answer = || Buffers::one(at, 8);
    region_word(&mut region, 40);
    // SAFETY: `before` outlives what is done with it.
    unsafe { a.apply(to, (9, 0), &operand(op::SUM, &[2]), Some(answer()), (3, true)) }
        .expect("room");
    until(&mut [(&mut a, &own, 1), (&mut b, &memory, 0)]);
    assert_eq!(before, 40i64.to_le_bytes());
    // SAFETY: as above.
    unsafe { a.apply(to, (9, 0), &operand(op::CSWAP, &[7, 42]), None, (3, true)) }.expect("room");
    until(&mut [(&mut a, &own, 1), (&mut b, &memory, 0)]);
    assert_eq!(region[..8], 7i64.to_le_bytes());
    // What is outside, or nobody's, is refused, and nothing of it is done.
    for (key, address) in [(9, 29_999), (8, 0), (9, u64::MAX - 3)] {
        // SAFETY: as above.
        unsafe {
            a.write(to, key, address, message(None, &sent[..8], 1)).expect("room");
            a.read(to, key, address, answer(), 1, true).expect("room");
            a.apply(to, (key, address), &operand(op::SUM, &[2]), None, (1, true)).expect("room");
        }
        let events = until(&mut [(&mut a, &own, 3), (&mut b, &memory, 0)]);
        assert!(
            events[0].iter().all(|event| event.failure == Some(Failure::Refused)),
            "{events:?}"
        );
    }
}

fn region_word(region: &mut [u8], value: i64) {
    region[..8].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn claims_cancels_and_several() {
    let place = Place::new();
    let (mut a, mut b) = (place.endpoint(), place.endpoint());
    let (memory, to) = (Memory::default(), a.peer(b.id()));
    let (one, two) = (bytes(50, 1), bytes(3000, 2));
    // SAFETY: all buffers outlive what is done with them.
    unsafe {
        a.send(to, message(Some(1), &one, 1)).expect("room");
        a.send(to, message(Some(1), &two, 1)).expect("room");
    }
    b.progress(&memory);
    let mut got = vec![0; 3000];
    b.peek(true, &posted(&mut got, 1, 10), true, false);
    assert_eq!(b.event().map(|event| event.len), Some(50));
    let mut other = vec![0; 3000];
    // SAFETY: as above.
    unsafe { b.receive(true, posted(&mut other, 1, 11)) };
    until(&mut [(&mut a, &memory, 2), (&mut b, &memory, 1)]);
    assert!(other == two, "the first was claimed");
    // SAFETY: as above.
    unsafe { b.receive_claimed(true, posted(&mut got, 1, 10), false) }.expect("claimed");
    assert_eq!((b.event().map(|event| event.len), &got[..50]), (Some(50), &one[..]));
    assert_eq!(
        // SAFETY: as above.
        unsafe { b.receive_claimed(true, posted(&mut got, 1, 10), false) },
        Err(Error::NoMessage)
    );
    // SAFETY: as above.
    unsafe { b.receive(true, posted(&mut got, 3, 12)) };
    assert!(b.cancel(12) && !b.cancel(12));
    assert_eq!(b.event().and_then(|event| event.failure), Some(Failure::Cancelled));
    // Into one buffer: what came early, and what comes.
    let mut all = vec![0; 400];
    // SAFETY: as above.
    unsafe {
        a.send(to, Message { report: false, ..message(None, &one, 0) }).expect("room");
        b.progress(&memory);
        b.receive(false, Posted { several: Some(100), ..posted(&mut all, 0, 20) });
        (0..6).for_each(|_| {
            a.send(to, Message { report: false, ..message(None, &one, 0) }).expect("room")
        });
    }
    let events = until(&mut [(&mut b, &memory, 7)]).remove(0);
    assert!(events[..6].iter().all(|event| !event.last) && events[6].last, "{events:?}");
    assert!(all[..350].chunks(50).all(|piece| piece == &one[..]));
}

/// A process that is killed: a fork child, which has no map of its parent's lock.
#[test]
fn what_the_killed_held_is_freed_and_what_waits_for_them_fails() {
    let place = Place::new();
    let mut a = place.endpoint();
    let memory = Memory::default();
    let mut pipe = [0; 2];
    // SAFETY: two numbers' room.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: the child calls what allocates, as only glibc's fork of one of several threads may.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no memory is passed. It ends with the test, however that ends.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let mut b = place.endpoint();
        let to = b.peer(a.id());
        let sent = bytes(60_000, 1);
        // SAFETY: the buffers stay until this process is killed.
        unsafe { b.send(to, message(Some(1), &sent, 1)) }.expect("room");
        let name = b.id().0.to_le_bytes();
        // SAFETY: eight bytes.
        unsafe { libc::write(pipe[1], name.as_ptr().cast(), 8) };
        loop {
            // Not `progress`: it takes nothing, and so the message below stays unanswered.
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    }
    let mut name = [0; 8];
    // SAFETY: eight bytes' room.
    assert_eq!(unsafe { libc::read(pipe[0], name.as_mut_ptr().cast(), 8) }, 8);
    let b = EndpointId(u64::from_le_bytes(name));
    assert!(a.node().lives(b) && a.node().count() == 2);
    let to = a.peer(b);
    let (sent, mut got) = (bytes(50_000, 2), vec![0; 60_000]);
    // SAFETY: both outlive what is done with them.
    unsafe {
        a.send(to, message(Some(2), &sent, 5)).expect("room");
        a.receive(true, posted(&mut got, 1, 6));
    }
    a.progress(&memory);
    a.look_for_the_dead();
    assert!(a.event().is_none(), "it lives");
    // SAFETY: a child of this process.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert!(!a.node().lives(b));
    a.look_for_the_dead();
    let events = until(&mut [(&mut a, &memory, 2)]).remove(0);
    let mut tokens: Vec<Token> = events.iter().map(|event| event.token).collect();
    tokens.sort_unstable();
    assert_eq!(
        (tokens, events.iter().all(|event| event.failure == Some(Failure::Gone))),
        (vec![5, 6], true)
    );
    // SAFETY: as above.
    assert_eq!(unsafe { a.send(to, message(Some(2), &sent, 5)) }, Err(Error::Gone));
    // Whoever comes next frees what is left of it.
    let c = place.endpoint();
    assert_eq!(c.node().count(), 2);
    a.close();
    c.close();
    assert!(place.is_empty());
}

/// Whoever sleeps is woken by a message, and by room.
#[test]
fn sleepers_are_woken() {
    let place = Place::new();
    let (mut a, mut b) = (place.endpoint(), place.endpoint());
    let (memory, to, rounds) = (Memory::default(), a.peer(b.id()), 300u64);
    let from = b.peer(a.id());
    let wait = |endpoint: &mut Endpoint, memory: &Memory| {
        loop {
            if let Some(event) = endpoint.event() {
                return event;
            }
            endpoint.node().sleeping();
            if !endpoint.progress(memory) {
                let woken = ginnel_region::sys::poll(endpoint.node().fifo(), libc::POLLIN, 20_000);
                assert!(woken != 0, "nobody woke it");
            }
            endpoint.node().awake();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let memory = Memory::default();
            let mut got = vec![0; 40_000];
            for round in 0..rounds {
                let len = if round % 3 == 0 { 40_000 } else { 8 };
                // SAFETY: `got` outlives the exchange.
                unsafe { b.receive(true, posted(&mut got, round, 1)) };
                wait(&mut b, &memory);
                // SAFETY: as above.
                unsafe { b.send(from, message(Some(round), &got[..len], 2)) }.expect("room");
                wait(&mut b, &memory);
            }
        });
        let mut got = vec![0; 40_000];
        for round in 0..rounds {
            let len = if round % 3 == 0 { 40_000 } else { 8 };
            let sent = bytes(len, round as usize);
            // SAFETY: all buffers outlive the exchange.
            unsafe {
                a.receive(true, posted(&mut got, round, 1));
                a.send(to, message(Some(round), &sent, 2)).expect("room");
            }
            wait(&mut a, &memory);
            wait(&mut a, &memory);
            assert!(got[..len] == sent[..]);
        }
    });
}
