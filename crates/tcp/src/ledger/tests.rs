use super::*;
use ginnel_node::processes::Library;
use std::sync::Barrier;

/// A ledger and a process table beside it, in a directory that goes with the test.
struct Place {
    ledger: Ledger,
    processes: Processes,
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let ledger = Ledger::open_or_create(directory.path()).expect("a ledger");
        let processes = Processes::open_or_create(directory.path()).expect("a table");
        Self { ledger, processes, directory }
    }

    fn claim(&self, cookie: u64) -> Option<(&Slot, bool)> {
        self.ledger.find_or_claim(&self.processes, cookie, 0, |_| {})
    }
}

/// A cookie whose place begins at `start`.
fn cookie_at(start: u32, from: u64) -> u64 {
    (from..).find(|cookie| PARTS[0].place(*cookie) == start).expect("one of them")
}

#[test]
fn slots_in_use_are_all_told_and_no_others() {
    let place = Place::new();
    let ledger = &place.ledger;
    let taken: Vec<u32> =
        (1..3000).map(|cookie| ledger.index(place.claim(cookie).expect("room").0)).collect();
    let told = || ledger.slots().map(|slot| ledger.index(slot)).collect::<Vec<_>>();
    let mut expected = taken.clone();
    expected.sort_unstable();
    assert_eq!(told(), expected);
    for index in taken.iter().step_by(3) {
        ledger.free(ledger.slot(*index));
    }
    let again = place.claim(1).expect("room");
    assert!(again.1, "it was freed");
    let mut expected: Vec<u32> =
        taken.iter().enumerate().filter(|(at, _)| at % 3 != 0).map(|(_, index)| *index).collect();
    expected.push(ledger.index(again.0));
    expected.sort_unstable();
    assert_eq!(told(), expected);
    assert_eq!(told(), expected, "looking changes nothing");
}

/// Slots that no socket had yet may have no memory behind them, so that a look at one may be a
/// fault: none is looked at, whatever the cookie.
#[test]
fn no_slot_is_looked_at_that_no_socket_had() {
    let place = Place::new();
    let ledger = &place.ledger;
    ledger.header().parts.store(PARTS.len() as u32, Ordering::Release);
    for cookie in (1..).filter(|cookie| mixed(*cookie) >> 8 & 0xffff == 0).take(20) {
        for part in &PARTS {
            for index in part.near(part.place(cookie)) {
                // As if it were there: whoever looks finds it.
                ledger.slot(index).cookie.store(cookie, Ordering::Release);
            }
        }
        assert!(ledger.find(cookie).is_none(), "{cookie}");
    }
}

#[test]
fn as_many_sockets_as_are_promised_have_room_and_are_found() {
    let place = Place::new();
    let ledger = &place.ledger;
    let cookies = 1_000_000..1_020_000;
    let claimed: Vec<u32> =
        cookies.clone().map(|cookie| ledger.index(place.claim(cookie).expect("room").0)).collect();
    for (cookie, index) in cookies.zip(&claimed) {
        assert_eq!(ledger.find(cookie).map(|slot| ledger.index(slot)), Some(*index));
    }
    let mut places = claimed.clone();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), claimed.len(), "each has one of its own");
    // Once they are gone, the first ones serve again.
    for index in claimed {
        ledger.free(ledger.slot(index));
    }
    let again = ledger
        .find_or_claim(&place.processes, 7, 0, |slot| slot.set(flag::SHARED, true))
        .expect("room")
        .0;
    assert!(ledger.index(again) < PARTS[0].count && again.has(flag::SHARED));
}

/// A program with few sockets is not to pay for many: whatever it touches counts to its memory
/// limit.
#[test]
fn memory_is_taken_as_sockets_come() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    let ledger = &place.ledger;
    let taken = || place.directory.path().join(LEDGER).metadata().expect("there").blocks() * 512;
    assert!(taken() < 2 << 20, "{}", taken());
    let _ = (1..200).filter(|&cookie| place.claim(cookie).is_some()).count();
    assert_eq!(ledger.slots().count(), 199);
    assert!(taken() < 3 << 20, "{}", taken());
    let _ = (200..6000).filter(|&cookie| place.claim(cookie).is_some()).count();
    assert_eq!(ledger.slots().count(), 5999);
    assert!(taken() < 16 << 20, "{}", taken());
}

/// Each look at a slot is another cache line, and there are 64 where a socket may be.
#[test]
fn slots_that_tags_or_marks_rule_out_are_not_looked_at() {
    let place = Place::new();
    let ledger = &place.ledger;
    let first = PARTS[0].index(PARTS[0].place(77));
    ledger.header().parts.store(1, Ordering::Relaxed);
    assert_ne!(tag_of(77), 0, "or it would be that of a slot that nobody had");
    // Whoever looked at this slot would take it for the socket's …
    ledger.slot(first).cookie.store(77, Ordering::Relaxed);
    assert!(ledger.find(77).is_none());
    // … and now for a free one.
    ledger.slot(first).cookie.store(0, Ordering::Relaxed);
    ledger.header().used.set(first);
    let (slot, taken) = place.claim(77).expect("room");
    assert!(taken && ledger.index(slot) != first);
}

#[test]
fn a_slot_that_a_dead_process_seized_is_found() {
    let place = Place::new();
    let ledger = &place.ledger;
    let index = place.processes.enter(Library::of_process(LEDGER), ledger).expect("room");
    let me = place.processes.process(index).ticket(index);
    // Of the same entry, one program before: the process is there, who seized is not.
    let before = me.wrapping_sub(1 << 16);
    let [living, dead] = [1, 2]
        .map(|cookie| ledger.find_or_claim(&place.processes, cookie, me, |_| {}).expect("room").0);
    assert!(living.seize(1, me) && dead.seize(2, before));
    assert!(ledger.slots().next().is_none() && ledger.find(2).is_none());
    let found: Vec<_> = ledger.abandoned(&place.processes).collect();
    let [(slot, word)] = found[..] else { panic!("{} found", found.len()) };
    assert_eq!(ledger.index(slot), ledger.index(dead));
    assert!(slot.seize(word, me) && !slot.seize(word, me), "one of them has it");
    assert!(ledger.abandoned(&place.processes).next().is_none());
}

#[test]
fn sockets_whose_places_overlap_never_share_one() {
    let place = Place::new();
    let ledger = &place.ledger;
    let occupied = cookie_at(100, 1);
    let _ = place.claim(occupied).expect("room");
    // Both come to the same free place, each under the lock of its own stripe.
    let racing = [cookie_at(100, occupied + 1), cookie_at(101, 1)];
    let barrier = &Barrier::new(2);
    for round in 0..20_000 {
        let got = std::thread::scope(|scope| {
            let claim = |cookie| {
                barrier.wait();
                ledger.index(place.claim(cookie).expect("room").0)
            };
            let other = scope.spawn(move || claim(racing[1]));
            [claim(racing[0]), other.join().expect("no panic")]
        });
        assert_ne!(got[0], got[1], "round {round}");
        for index in got {
            ledger.free(ledger.slot(index));
        }
    }
}
