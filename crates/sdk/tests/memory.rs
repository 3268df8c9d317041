//! Memory by name: found by others, refused where it does not fit, freed when nobody has it.

use crate::stage::{Part, play, role, segment, until};
use ginnel::{
    Error, Keep, Kind, LockError, Memory, Mutex, Options, Queue, Receiver, Segment, Semaphore,
    Sender,
};
use std::sync::atomic::Ordering;

#[test]
fn two_processes_share_bytes_by_name() {
    play("memory::two_processes_share_bytes_by_name", |part| {
        let segment = segment();
        match part {
            Part::Test => {
                let memory = Memory::create(&segment, "numbers", 10_000).expect("free");
                assert_eq!((memory.len(), memory.name()), (10_000, "numbers"));
                assert_eq!(memory.as_ptr() as usize % 4096, 0);
                memory.write(9_990, b"0123456789").expect("inside");
                role("reader", "").ends();
                assert_eq!(memory.word(16).expect("inside").load(Ordering::Acquire), 77);
            }
            Part::Role(..) => {
                let memory = Memory::open(&segment, "numbers").expect("there");
                let mut bytes = [0; 12];
                memory.read(9_988, &mut bytes).expect("inside");
                assert_eq!(&bytes, b"\x00\x000123456789", "zeroed but for what was written");
                memory.word(16).expect("inside").store(77, Ordering::Release);
            }
        }
    });
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    play("memory::what_does_not_fit_is_refused_in_words", |_| {
        let segment = segment();
        let memory = Memory::create(&segment, "m", 100).expect("free");
        let said = |error: Error| error.to_string();
        let taken = Memory::create(&segment, "m", 100).expect_err("taken");
        assert_eq!(taken, Error::Taken { name: "m".into(), kind: Kind::Memory });
        assert!(said(taken).contains("`ginnel rm`"));
        let missing = Memory::open(&segment, "n").expect_err("missing");
        assert!(matches!(missing, Error::NotFound { .. }) && said(missing).contains("\"n\""));
        let size = Memory::open_or_create(&segment, "m", 101).expect_err("another size");
        assert!(said(size).contains("size 100, not 101"));
        assert_eq!(Memory::open_or_create(&segment, "m", 100).expect("same").len(), 100);
        let kind = Queue::new().open_or_create(&segment, "m").expect_err("no queue");
        assert!(said(kind).contains("memory"));
        let kind = ginnel::Receiver::open(&segment, "m").expect_err("no queue");
        assert!(matches!(kind, Error::WrongKind { is: Kind::Memory, wanted: Kind::Queue, .. }));
        for (at, len) in [(0, 101), (100, 1), (usize::MAX, 2), (99, usize::MAX)] {
            assert!(matches!(memory.write(at, &vec![0; len.min(200)]), Err(Error::Invalid { .. })));
        }
        assert!(memory.word(96).is_err() && memory.word(4).is_err() && memory.word(88).is_ok());
        let name = "x".repeat(97);
        assert_eq!(Memory::create(&segment, &name, 1).err(), Some(Error::Name { len: 97 }));
        assert_eq!(Memory::create(&segment, "", 1).err(), Some(Error::Name { len: 0 }));
        let full = Memory::create(&segment, "huge", 64 << 20).expect_err("full");
        assert!(matches!(full, Error::SegmentFull { .. }) && said(full).contains("ginnel segment"));
        Memory::create(&segment, "small", 1).expect("a refusal leaves nothing");
    });
}

/// An object that another version made is refused with both numbers.
#[test]
fn another_versions_object_is_refused() {
    use std::os::unix::fs::FileExt;
    play("memory::another_versions_object_is_refused", |_| {
        let segment = segment();
        let memory = Memory::create(&segment, "m", 5000).expect("free");
        memory.write(0, b"here it lies").expect("inside");
        let file = std::fs::File::options().read(true).write(true).open(segment.path());
        let file = file.expect("there");
        let is_it = |page: &u64| {
            let mut bytes = [0; 12];
            file.read_exact_at(&mut bytes, page * 4096).is_ok() && &bytes == b"here it lies"
        };
        let first = (1..16384).find(is_it).expect("in the segment") - 1;
        file.write_all_at(&3u16.to_le_bytes(), first * 4096 + 10).expect("inside");
        let refused = Memory::open(&segment, "m").expect_err("another version");
        assert_eq!(refused, Error::Version { name: "m".into(), theirs: 3, ours: 2 });
        assert!(refused.to_string().contains("version 3, this Ginnel speaks 2"));
    });
}

#[test]
fn only_a_segment_that_is_trusted_gives_the_bytes_themselves() {
    play("memory::only_a_segment_that_is_trusted_gives_the_bytes_themselves", |_| {
        let memory = Memory::create(&segment(), "m", 100).expect("free");
        // SAFETY: nobody else has the segment.
        assert_eq!(unsafe { memory.in_place() }.err(), Some(Error::NotTrusting));
        let trusting = Options::new().trusting(true).open("stage").expect("the same");
        let mut again = Memory::open(&trusting, "m").expect("there");
        // SAFETY: as above.
        unsafe { again.in_place_mut() }.expect("trusted").fill(7);
        let mut byte = [0];
        memory.read(99, &mut byte).expect("inside");
        assert_eq!(byte, [7]);
    });
}

/// A name that was taken away is free at once; the memory is when nobody uses it any more.
#[test]
fn what_is_removed_stays_for_those_that_use_it() {
    play("memory::what_is_removed_stays_for_those_that_use_it", |part| {
        let segment = segment();
        if let Part::Role(..) = part {
            let memory = Memory::open(&segment, "m").expect("there");
            memory.word(0).expect("inside").store(1, Ordering::Release);
            until("told to end", || memory.word(8).expect("inside").load(Ordering::Acquire) == 1);
            return;
        }
        let memory = Memory::create(&segment, "m", 1 << 20).expect("free");
        let user = role("user", "");
        until("opened", || memory.word(0).expect("inside").load(Ordering::Acquire) == 1);
        let listed = segment.objects().expect("listed");
        assert_eq!((listed.len(), listed[0].users.len(), listed[0].removed), (1, 2, false));
        assert!(listed[0].users.iter().any(|party| party.pid == user.0.id()));
        segment.remove("m").expect("there");
        assert!(matches!(segment.remove("m"), Err(Error::NotFound { .. })));
        let another = Memory::create(&segment, "m", 8).expect("free again");
        assert_eq!(another.word(0).expect("inside").load(Ordering::Relaxed), 0, "another one");
        memory.word(8).expect("inside").store(1, Ordering::Release);
        user.ends();
        let removed = |listed: &[ginnel::ObjectInfo]| listed.iter().filter(|o| o.removed).count();
        assert_eq!(removed(&segment.objects().expect("listed")), 1, "this process has it still");
        drop(memory);
        assert_eq!(removed(&segment.objects().expect("listed")), 0);
    });
}

/// A name goes with its maker where that was asked for, and stays where it was not.
#[test]
fn names_go_or_stay_as_asked() {
    play("memory::names_go_or_stay_as_asked", |part| {
        let segment = segment();
        if let Part::Role(..) = part {
            let kept = Memory::create(&segment, "kept", 8).expect("free");
            let goes =
                Memory::create_keeping(&segment, "goes", 8, Keep::WithCreator).expect("free");
            std::mem::forget((kept, goes));
            return;
        }
        role("maker", "").ends();
        let names: Vec<_> =
            segment.objects().expect("listed").into_iter().map(|object| object.name).collect();
        assert_eq!(names, ["kept"]);
        assert!(matches!(Memory::open(&segment, "goes"), Err(Error::NotFound { .. })));
    });
}

/// Another segment that comes to have the path is another one, in this process too.
#[test]
fn a_path_that_names_another_file_is_another_segment() {
    play("memory::a_path_that_names_another_file_is_another_segment", |_| {
        let old = segment();
        let memory = Memory::create(&old, "m", 8).expect("free");
        std::fs::rename(old.path(), old.path().with_file_name("moved")).expect("its own");
        let new = segment();
        Memory::create(&new, "m", 8).expect("free in another segment");
        assert_eq!(new.objects().expect("listed").len(), 1);
        memory.write(0, b"still").expect("the old one is there for those that have it");
    });
}

/// What can be no segment is refused by what is wrong with it, and nobody is told to remove a
/// directory.
#[test]
fn what_is_no_segments_name_is_refused() {
    play("memory::what_is_no_segments_name_is_refused", |_| {
        let directory = segment().path().parent().expect("one").to_owned();
        let directory = directory.to_str().expect("UTF-8");
        for name in ["", ".", "..", "a\0b", directory, "/"] {
            let refused = Segment::open(name).expect_err("no name").to_string();
            assert!(refused.contains(&format!("{name:?}")), "{refused}");
            assert!(refused.contains("whole path") && !refused.contains("remove"), "{refused}");
        }
    });
}

/// A name that another process wrote, and that is no text, is shown and removed by what is shown.
#[test]
fn a_name_that_is_no_text_can_be_removed() {
    use crate::hostile::{NAMES, Stranger};
    play("memory::a_name_that_is_no_text_can_be_removed", |_| {
        let segment = segment();
        drop(Memory::create(&segment, "m234567", 8).expect("free"));
        let stranger = Stranger::new(&segment);
        let is_it = |at: &u64| stranger.word(*at) == u64::from_le_bytes(*b"m234567\0");
        let mut details = (0..2048).map(|entry| NAMES + 2048 * 8 + entry * 128 + 32);
        let at = details.find(is_it).expect("in the table");
        stranger.put(at, u64::from_le_bytes(*b"\xff234567\0"));
        let shown = segment.objects().expect("listed").remove(0).name;
        assert_eq!(shown, r"\xff234567");
        segment.remove(&shown).expect("there");
        assert_eq!(segment.objects().expect("listed"), []);
    });
}

/// Making and removing takes no memory for good, and a full segment has room again.
#[test]
fn memory_comes_back() {
    play("memory::memory_comes_back", |_| {
        let segment = segment();
        for round in 0..20 {
            let memory = Memory::create(&segment, "half", 40 << 20).expect("room");
            assert!(Memory::create(&segment, "other", 40 << 20).is_err());
            memory.write(0, &[round]).expect("inside");
            assert!(memory.remove() && !memory.remove());
        }
    });
}

/// A child of fork cannot use its parent's handles, nor take anything from it; it opens its own.
/// A page lists 384 objects: who uses more has further pages, and others see what all of them list.
#[test]
fn a_process_uses_more_objects_than_a_page_lists() {
    play("memory::a_process_uses_more_objects_than_a_page_lists", |part| {
        let segment = segment();
        let make = |i: usize| Memory::create(&segment, &format!("m{i}"), 8).expect("room");
        match part {
            Part::Test => {
                let mut all: Vec<_> = (0..500).map(make).collect();
                for (i, memory) in (0..).zip(&all) {
                    memory.write(0, &[i as u8; 8]).expect("inside");
                    assert!(memory.remove());
                }
                // It frees what nobody uses, and looks into every page for who does.
                role("another", "").ends();
                for (i, memory) in (0..).zip(&all) {
                    let mut bytes = [0; 8];
                    memory.read(0, &mut bytes).expect("inside");
                    assert_eq!(bytes, [i as u8; 8], "still this process's");
                }
                all.truncate(100);
                assert_eq!(segment.objects().expect("a list").len(), 100);
                drop(all);
                assert_eq!(segment.objects().expect("a list").len(), 0);
            }
            Part::Role(..) => assert!((500..600).map(make).all(|memory| memory.remove())),
        }
    });
}

#[test]
fn a_forked_child_opens_its_own() {
    play("memory::a_forked_child_opens_its_own", |_| {
        let first: Segment = segment();
        let memory = Memory::create(&first, "m", 64).expect("free");
        // SAFETY: the child makes system calls, opens a segment and ends; this process has one
        // thread beside the test harness's, which waits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = memory.write(0, b"x") == Err(Error::Forked);
            let refused = refused && matches!(first.objects(), Err(Error::Forked));
            drop(memory);
            let own = segment();
            let ok = Memory::open(&own, "m").is_ok_and(|memory| memory.write(0, b"child").is_ok());
            // SAFETY: ends the child at once, without what belongs to the harness.
            unsafe { libc::_exit(i32::from(!(refused && ok))) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        let mut bytes = [0; 5];
        memory.read(0, &mut bytes).expect("still this process's");
        assert_eq!(&bytes, b"child");
        assert_eq!(first.objects().expect("listed")[0].users.len(), 1, "the child is gone");
    });
}

/// What fails in a test by `unwrap_err`, or is logged, is shown by name; no word of the segment is
/// read for that.
#[test]
fn all_that_a_program_holds_is_shown_by_its_name() {
    play("memory::all_that_a_program_holds_is_shown_by_its_name", |_| {
        let segment = segment();
        let mutex = Mutex::create(&segment, "account lock").expect("free");
        let guard = mutex.lock().expect("free");
        assert_eq!(format!("{mutex:?}"), r#"Mutex { name: "account lock", .. }"#);
        assert_eq!(format!("{guard:?}"), r#"Guard { mutex: "account lock", .. }"#);
        assert!(matches!(mutex.try_lock().unwrap_err(), LockError::Failed(Error::Deadlock)));
        let jobs = Semaphore::create(&segment, "jobs", 1, 3).expect("free");
        let permit = jobs.acquire().expect("one");
        assert_eq!(format!("{permit:?}"), r#"Permit { semaphore: "jobs", .. }"#);
        assert_eq!(jobs.try_acquire().unwrap_err(), Error::WouldBlock);
        Queue::new().message_size(64).create(&segment, "words").expect("free");
        let receiver = Receiver::open(&segment, "words").expect("first");
        let sender = Sender::open(&segment, "words").expect("first");
        let loan = sender.loan(5).expect("room");
        assert_eq!(format!("{loan:?}"), r#"Loan { queue: "words", len: 5, .. }"#);
        loan.send().expect("room");
        let message = receiver.recv().expect("sent");
        assert_eq!(format!("{message:?}"), r#"Message { queue: "words", len: 5, .. }"#);
        let shown = r#"Receiver { name: "words", message_size: 64, .. }"#;
        assert_eq!(format!("{receiver:?}"), shown);
    });
}
