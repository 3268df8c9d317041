//! A full segment: who comes in can make room, and pages of the dead are found.

use crate::stage::{Part, play, role, segment, until};
use ginnel::{Error, Keep, Memory, Mutex, Queue, Receiver, Segment};
use std::time::Duration;

/// Takes every page that is left, under names that begin with `name`. How many objects.
fn fill(segment: &Segment, name: &str, keep: Keep) -> usize {
    let mut count = 0;
    let mut size = 32 << 20;
    while size >= 4096 {
        let name = format!("{name} {count}");
        match Memory::create_keeping(segment, &name, size, keep) {
            Ok(memory) => {
                std::mem::forget(memory);
                count += 1;
            }
            Err(Error::SegmentFull { .. }) => size /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    // The last page, which goes with this process in any case.
    while let Ok(mutex) = Mutex::create(segment, "last") {
        std::mem::forget(mutex);
        segment.remove("last").expect("its own");
        count += 1;
    }
    count
}

/// Another process lists and removes, as `ginnel ls` and `ginnel rm` do, and then has room.
#[test]
fn room_is_made_by_who_comes_in() {
    play("full::room_is_made_by_who_comes_in", |part| {
        let segment = segment();
        if let Part::Role(what, _) = part {
            let refused = Mutex::create(&segment, "mine").err();
            assert!(matches!(refused, Some(Error::SegmentFull { .. })), "{refused:?}");
            let listed = segment.objects().expect("one may look");
            assert!(listed.iter().any(|object| object.name == "goes"));
            if what == "removes" {
                segment.remove("goes").expect("there");
                Mutex::create(&segment, "mine").expect("there is room");
                drop(Memory::create(&segment, "more", 1 << 20).expect("there is room"));
            }
            return;
        }
        drop(Memory::create(&segment, "goes", 2 << 20).expect("room"));
        assert!(fill(&segment, "stays", Keep::UntilRemoved) > 2);
        role("looks", "").ends();
        role("removes", "").ends();
    });
}

/// What a dead process had filled is free for who comes next, for a name or for a sleep.
#[test]
fn what_the_dead_had_is_found() {
    play("full::what_the_dead_had_is_found", |part| {
        if let Part::Role(what, _) = part {
            let segment = segment();
            if what == "comes" {
                Mutex::create(&segment, "mine").expect("there is room");
                segment.remove("mine").expect("there");
                return;
            }
            fill(&segment, "goes", Keep::WithCreator);
            segment.objects().expect("full");
            drop(Memory::open(&segment, "goes 0").expect("there"));
            std::process::abort();
        }
        let segment = segment();
        Queue::new().capacity(2).message_size(64).create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let mut dies = role("dies", "");
        dies.0.wait().expect("a child");
        role("comes", "").ends();
        let mut dies = role("dies", "");
        dies.0.wait().expect("a child");
        // Nobody has looked since: the sleep's own page is one of the dead's.
        let time = Duration::from_millis(20);
        assert_eq!(receiver.recv_timeout(time).err(), Some(Error::TimedOut));
        until("the names are gone", || segment.objects().expect("listed").len() == 1);
    });
}

/// Where living processes have all of it, a sleep says so.
#[test]
fn a_sleep_without_a_page_says_so() {
    play("full::a_sleep_without_a_page_says_so", |_| {
        let segment = segment();
        Queue::new().capacity(2).message_size(64).create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        fill(&segment, "stays", Keep::UntilRemoved);
        let refused = receiver.recv_timeout(Duration::from_millis(20)).err();
        assert!(matches!(refused, Some(Error::SegmentFull { bytes: 4096 })), "{refused:?}");
    });
}
