//! What few programs do: memory that runs out at the wrong moment, senders that the owner never
//! named, writes that begin outside a region, receives that are taken back while they are filled.

use super::*;
use crate::active::Active;
use crate::shared::Pool;

/// Takes what is left of the segment.
fn fill(place: &Place) -> Pool {
    let config = Config { size: 16 << 20, ..Config::default() };
    let pool = Pool::open(&place.0.path().join("mpi"), &config, 0).expect("a pool");
    for len in [1 << 20, 64 << 10, 4096, 1] {
        while pool.allocate(len).is_ok() {}
    }
    pool
}

#[test]
fn an_answer_waits_until_there_is_room_for_a_way_back() {
    let place = Place::new();
    let (mut a, mut b) = (place.endpoint(), place.endpoint());
    let (memory, to) = (Memory::default(), a.peer(b.id()));
    let (sent, mut got) = (bytes(50_000, 1), vec![0; 50_000]);
    // SAFETY: both outlive the exchange below.
    unsafe {
        b.receive(true, posted(&mut got, 5, 2));
        a.send(to, message(Some(5), &sent, 1)).expect("room");
    }
    let pool = fill(&place);
    for _ in 0..10 {
        b.progress(&memory);
    }
    assert!(!b.is_quiet(), "what asks for the message has no way");
    pool.close();
    let events = until(&mut [(&mut a, &memory, 1), (&mut b, &memory, 1)]);
    assert_eq!((events[0][0].failure, events[1][0].failure), (None, None));
    assert!(got == sent);
}

/// The others come to the one that hears no more as soon as one of those that it hears is gone.
#[test]
fn one_more_than_can_be_heard_is_told_so_and_is_heard_when_there_is_room() {
    let place = Place::new();
    let (mut a, mut b) = (place.endpoint(), place.endpoint());
    let (memory, to) = (Memory::default(), b.peer(a.id()));
    let config = Config { size: 16 << 20, ..Config::default() };
    let mut active = Active::open(&place.0.path().join("mpi"), &config, None).expect("an end");
    let way = active.way(a.id());
    // What is entered here is none of theirs: the next look throws it out.
    while a.node().enter_pair(a.id(), a.id().page()).is_ok() {}
    let sent = bytes(100, 1);
    let quick = |from: &mut Endpoint| {
        // SAFETY: so short a message is copied at once.
        unsafe { from.send(to, Message { report: false, ..message(None, &sent, 0) }) }
    };
    assert_eq!(quick(&mut b), Err(Error::TooMany));
    let part = [(sent.as_ptr(), sent.len())];
    // SAFETY: as above.
    assert_eq!(unsafe { active.send(way, 1, &part) }, Err(Error::TooMany));
    a.progress(&memory);
    assert_eq!(quick(&mut b), Ok(()));
    // SAFETY: as above.
    assert_eq!(unsafe { active.send(way, 1, &part) }, Ok(()));
    active.close();
}

/// Nothing that has been received burdens its receiver any more.
#[test]
fn a_stranger_may_send_for_ever_what_is_taken() {
    let place = Place::new();
    let (mut a, mut b) = (place.endpoint(), place.endpoint());
    let (memory, to) = (Memory::default(), a.peer(b.id()));
    let sent = bytes(1000, 1);
    for round in 0..3000 {
        let mut got = vec![0; 1000];
        // SAFETY: `sent` stays, and is copied at once.
        unsafe { a.send(to, Message { report: false, ..message(None, &sent, 0) }) }.expect("room");
        b.progress(&memory);
        if round % 3 == 0 {
            b.peek(false, &posted(&mut got, 0, 1), false, true);
        } else {
            // SAFETY: `got` outlives the exchange below.
            unsafe { b.receive(false, posted(&mut got, 0, 1)) };
        }
        let event = b.event().expect("it has come");
        assert_eq!((event.len, event.failure), (1000, None), "message {round}");
    }
    // Those that nobody takes are more than are kept.
    let more = (0..3000).take_while(|_| {
        // SAFETY: as above.
        let sent = unsafe { a.send(to, Message { report: false, ..message(None, &sent, 0) }) };
        b.progress(&memory);
        sent.is_ok()
    });
    assert!((900..1200).contains(&more.count()));
}

/// In pieces of 1000 bytes, of which the last one lies in the region.
#[test]
fn a_write_that_begins_before_its_region_is_refused() {
    let place = Place::new();
    let (mut a, mut b) = (place.endpoint(), place.endpoint());
    let (mut memory, own, to) = (Memory::default(), Memory::default(), a.peer(b.id()));
    let mut region = vec![0u8; 30_000];
    let (base, origin) = (region.as_mut_ptr(), 1 << 20);
    // SAFETY: `region` outlives `memory`.
    assert!(unsafe {
        memory.insert(9, Region { base, len: 30_000, origin, readable: true, writable: true })
    });
    let sent = bytes(2500, 3);
    for (address, failure, told) in [
        (origin - 2000, Some(Failure::Refused), 0),
        (origin - 1, Some(Failure::Refused), 0),
        (1999, Some(Failure::Refused), 0),
        (u64::MAX - 2000, Some(Failure::Refused), 0),
        (origin + 27_501, Some(Failure::Refused), 0),
        (origin + 27_500, None, 1),
    ] {
        let written = Message { data: Some(5), ..message(None, &sent, 1) };
        // SAFETY: `sent` outlives what is done with it.
        unsafe { a.write(to, 9, address, written) }.expect("room");
        let events = until(&mut [(&mut a, &own, 1), (&mut b, &memory, told)]);
        assert_eq!(events[0][0].failure, failure, "at {address:#x}");
        assert_eq!(events[1].len(), told, "at {address:#x}");
        assert!(told == 0 || (events[1][0].data, events[1][0].len) == (Some(5), 2500));
        assert!(region[..500].iter().all(|byte| *byte == 0), "at {address:#x}");
    }
    assert!(region[27_500..] == sent);
}

/// Its memory is the caller's with the word that it was taken back.
#[test]
fn a_receive_of_several_is_taken_back_when_what_arrives_has_arrived() {
    let place = Place::new();
    let (mut a, mut b) = (place.endpoint(), place.endpoint());
    let (memory, to) = (Memory::default(), a.peer(b.id()));
    let (sent, mut all) = (bytes(40_000, 1), vec![0; 100_000]);
    // SAFETY: both outlive what is done with them.
    unsafe {
        b.receive(false, Posted { several: Some(100), ..posted(&mut all, 0, 20) });
        a.send(to, message(None, &sent, 1)).expect("room");
    }
    // Offered, asked for, and as much of it there as the ring has room for.
    b.progress(&memory);
    a.progress(&memory);
    assert!(b.cancel(20) && !b.cancel(20));
    assert!(b.event().is_none(), "it is still written to");
    let events = until(&mut [(&mut a, &memory, 1), (&mut b, &memory, 2)]).remove(1);
    assert_eq!((events[0].len, events[0].failure, events[0].last), (40_000, None, false));
    assert_eq!(
        (events[1].token, events[1].failure, events[1].last),
        (20, Some(Failure::Cancelled), true)
    );
    assert!(all[..40_000] == sent);
    // SAFETY: as above.
    unsafe { b.receive(false, Posted { several: Some(100), ..posted(&mut all, 0, 21) }) };
    assert!(b.cancel(21));
    let event = b.event().expect("nothing is arriving");
    assert_eq!((event.failure, event.last), (Some(Failure::Cancelled), true));
}
