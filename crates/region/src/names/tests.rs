use super::*;
use crate::Config;
use std::collections::HashSet;
use std::sync::Mutex;

fn segment() -> (Segment, std::path::PathBuf) {
    let path = std::env::temp_dir().join(format!("ginnel-names-{:x}", sys::random_u64()));
    let segment =
        Segment::create(&path, &Config { size: 16 << 20, ..Config::default() }).expect("create");
    (segment, path)
}

fn all_live(_: Party) -> bool {
    true
}

#[test]
fn a_name_is_had_once_and_comes_back() {
    let (segment, path) = segment();
    let (names, me) = (segment.names(), Party::new(700, 3));
    assert_eq!((me.page(), me.claims(), Party::of(me.bits() | 1 << 50)), (700, 3, Some(me)));
    assert_eq!(names.find(b"frames"), None);
    let claim = names.claim(b"frames", me, all_live).expect("free");
    assert_eq!(names.find(b"frames"), None, "it is not made yet");
    let entry = names.publish(claim, 5, 701, 4096, Some(me)).expect("its own");
    assert_eq!(names.find(b"frames"), Some(entry.clone()));
    assert_eq!(names.find(b"frame"), None);
    assert!(
        matches!(names.claim(b"frames", me, all_live), Err(NameError::Taken(found)) if *found == entry)
    );
    assert!(names.remove(&entry) && !names.remove(&entry) && !names.is_live(&entry));
    assert_eq!(names.find(b"frames"), None);
    assert!(names.entries().next().is_some_and(|left| left.removed));
    // While somebody uses the old one, another object may have the name.
    let claim = names.claim(b"frames", me, all_live).expect("free again");
    let another = names.publish(claim, 5, 900, 1, None).expect("its own");
    assert_ne!(another.index, entry.index);
    assert!(names.free(&entry) && !names.free(&entry));
    assert_eq!(names.entries().count(), 1);
    std::fs::remove_file(path).expect("remove");
}

#[test]
fn names_have_a_length_and_the_table_an_end() {
    let (segment, path) = segment();
    let (names, me) = (segment.names(), Party::new(700, 3));
    for bad in [b"".as_slice(), &[b'x'; NAME_LEN + 1], b"a\0b"] {
        assert!(
            matches!(names.claim(bad, me, all_live), Err(NameError::Length(n)) if n == bad.len())
        );
    }
    let longest = [b'y'; NAME_LEN];
    let claim = names.claim(&longest, me, all_live).expect("free");
    assert_eq!(names.publish(claim, 1, 1, 1, None).expect("own").name, longest);
    for i in 1..NAMES {
        let claim = names.claim(i.to_string().as_bytes(), me, all_live).expect("room");
        let _ = names.publish(claim, 1, i, 1, Some(Party::new(i, 1))).expect("own");
    }
    assert!(matches!(names.claim(b"one more", me, all_live), Err(NameError::Full)));
    names.bury(|party| party.page() != 77);
    assert_eq!(names.find(b"77"), None, "it went with its party");
    assert!(names.find(b"76").is_some());
    std::fs::remove_file(path).expect("remove");
}

/// A party dies between its claim and what it meant to make: the next one is not held up.
#[test]
fn what_the_dead_had_claimed_is_free() {
    let (segment, path) = segment();
    let (names, dead, me) = (segment.names(), Party::new(700, 3), Party::new(701, 1));
    let lives = |party| party != dead;
    let left = names.claim(b"frames", dead, all_live).expect("free");
    let claim = names.claim(b"frames", me, lives).expect("its rival is dead");
    assert!(
        matches!(names.publish(left, 1, 9, 9, None), Err(NameError::Lost)),
        "it was taken for dead"
    );
    let entry = names.publish(claim, 1, 10, 10, None).expect("own");
    assert_eq!(names.find(b"frames"), Some(entry));
    std::fs::remove_file(path).expect("remove");
}

/// Eight threads make and remove the same few names: nobody ever has a name that another has.
#[test]
fn racing_claims_never_have_one_name_twice() {
    let (segment, path) = segment();
    let names = segment.names();
    let held = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let held = &held;
            scope.spawn(move || {
                let me = Party::new(700 + thread, 1);
                for round in 0..400u32 {
                    let name = [b'n', (round % 3) as u8 + b'0'];
                    let Ok(claim) = names.claim(&name, me, all_live) else { continue };
                    assert!(held.lock().expect("lock").insert(name), "{name:?} twice");
                    let entry = names.publish(claim, 1, thread, 1, None).expect("own");
                    assert!(names.find(&name).is_some());
                    held.lock().expect("lock").remove(&name);
                    assert!(names.remove(&entry) && names.free(&entry));
                }
            });
        }
    });
    assert_eq!(names.entries().count(), 0);
    std::fs::remove_file(path).expect("remove");
}
