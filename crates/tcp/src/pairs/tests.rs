use super::*;
use crate::attach::tests::attached;
use crate::ledger::{Stage, Tuple, flag};
use crate::rendezvous::{self, Entry, Found, state};
use crate::{Attachment, Endpoint};
use ginnel_node::processes::ProcessFlags;
use ginnel_region::{Segment, sys};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::sync::atomic::Ordering::SeqCst;

/// As the broker makes it.
pub(in crate::pairs) fn memory() -> File {
    // SAFETY: a terminated name; the kernel makes the descriptor for this caller.
    let memory = unsafe {
        File::from_raw_fd(libc::memfd_create(
            c"pair".as_ptr(),
            libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC,
        ))
    };
    Segment::format_pair(memory.as_fd(), 16 << 20).expect("formatted");
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    sys::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, seals as usize).expect("sealed");
    memory
}

pub(in crate::pairs) fn own(local_port: u16) -> Tuple {
    Tuple { label: 0, local: [3; 16], local_port, remote: [4; 16], remote_port: 9 }
}

/// An end that waits in its own segment, where nobody comes.
pub(in crate::pairs) fn waiting(
    attachment: &'static Attachment,
    tuple: &Tuple,
) -> Endpoint<'static> {
    let (slot, _) = attachment
        .ledger
        .find_or_claim(&attachment.node.processes, 77, attachment.node.ticket(), |_| {})
        .expect("room");
    let end = Endpoint::new(attachment, attachment.ledger.index(slot), -1);
    let owner = (end.joined().member, end.index(), slot.generation.load(Relaxed));
    let Found::Published(entry) = rendezvous::meet(&end.joined().segment, tuple, 5, owner) else {
        panic!("nobody is there")
    };
    slot.entry.store(entry.index() + 1, Relaxed);
    slot.set_stage(Stage::Published);
    end
}

#[test]
fn two_ends_meet_under_the_brokers_number_whatever_their_addresses_are() {
    let (places, memory) = ([(); 2].map(|()| tempfile::tempdir().expect("a directory")), memory());
    // Their addresses do not mirror each other.
    let ends = [0u8, 1].map(|side| {
        let attachment: &'static Attachment =
            Box::leak(Box::new(attached(places[usize::from(side)].path())));
        let tuple = own(7 + u16::from(side));
        let end = waiting(attachment, &tuple);
        let pair = attachment.pairs.add(memory.as_raw_fd(), Lines::none(), 1, 1).expect("added");
        assert!(end.meet_in(pair, 0xabcd_ef00, side));
        assert!(
            rendezvous::entries(&attachment.node.joined().segment).next().is_none(),
            "it has left its own segment"
        );
        assert!(!end.meet_in(pair, 2, side), "once");
        (end, end.meets_at(&tuple))
    });
    let [(first, a), (second, b)] = ends;
    assert_eq!(
        (first.slot().stage(), first.joined().segment.id()),
        (Stage::Candidate, second.joined().segment.id())
    );
    assert_ne!(first.joined().member, second.joined().member);
    let owner = |end: Endpoint<'_>| (end.joined().member, end.index(), 1);
    assert!(matches!(
        rendezvous::meet(&first.joined().segment, &a, 5, owner(first)),
        Found::Published(_)
    ));
    assert!(
        matches!(rendezvous::meet(&second.joined().segment, &b, 6, owner(second)), Found::Mate(mate) if mate.nonce() == 5)
    );
}

/// As after an exec, or where the socket was sent to another process of the user's.
#[test]
fn of_a_foreign_pair_nothing_is_reached() {
    let place = tempfile::tempdir().expect("a directory");
    let attachment: &'static Attachment = Box::leak(Box::new(attached(place.path())));
    let end = waiting(attachment, &own(7));
    end.slot().set(flag::PAIR, true);
    assert!(
        attachment.is_of_foreign_pair(end.slot()) && attachment.joined_of(end.slot()).is_none()
    );
    end.slot().channel.store(600, Relaxed);
    let nowhere = end.channel().nonce(0);
    assert!(
        !attachment
            .node
            .joined()
            .segment
            .memory()
            .contains(&(std::ptr::from_ref(nowhere) as usize))
    );
}

#[test]
fn memory_that_could_be_cut_short_is_not_taken() {
    let place = tempfile::tempdir().expect("a directory");
    let attachment = attached(place.path());
    // SAFETY: as above.
    let unsealed =
        unsafe { File::from_raw_fd(libc::memfd_create(c"pair".as_ptr(), libc::MFD_ALLOW_SEALING)) };
    Segment::format_pair(unsealed.as_fd(), 16 << 20).expect("formatted");
    assert!(matches!(
        attachment.pairs.add(unsealed.as_raw_fd(), Lines::none(), 1, 1),
        Err(Error::Unsealed)
    ));
    assert_eq!(attachment.pairs.all().count(), 0);
}

/// A child of fork has what stood in its parent's memory when it was made: where that was before
/// the connection met its other end, it could not reach it, and its parent's end would be taken
/// for one on TCP.
#[test]
fn a_fork_meanwhile_has_the_meeting_or_prevents_it() {
    let (place, memory) = (tempfile::tempdir().expect("a directory"), memory());
    let attachment: &'static Attachment = Box::leak(Box::new(attached(place.path())));
    let pair = attachment.pairs.add(memory.as_raw_fd(), Lines::none(), 1, 1).expect("added");
    let (turns, ready, begun) = (4000, AtomicU64::new(0), AtomicU64::new(0));
    for turn in 1..=turns {
        let end = waiting(attachment, &own(7));
        let slot = end.slot();
        assert!(slot.hold(attachment.node.me()));
        let copied = std::thread::scope(|scope| {
            let forks = scope.spawn(|| {
                ready.store(turn, SeqCst);
                until(&begun, turn);
                (0..turn % 32).for_each(|_| std::hint::spin_loop());
                slot.forking.fetch_add(1, SeqCst);
                // What the child would have.
                let copied = attachment.pairs.of(end.index(), slot).is_some();
                slot.hold(9);
                slot.forked();
                copied
            });
            until(&ready, turn);
            begun.store(turn, SeqCst);
            let _ = end.meet_in(pair, 2 * turn, 0);
            forks.join().expect("no panic")
        });
        assert!(copied || !end.is_in_pair(), "in turn {turn} the child has no way into the pair");
        if !end.is_in_pair() {
            Entry::at(&end.joined().segment, slot.entry.load(Relaxed) - 1).free();
        }
        crate::lifetime::forget(attachment, slot, 77);
    }
}

fn until(word: &AtomicU64, value: u64) {
    while word.load(SeqCst) != value {
        std::thread::yield_now();
    }
}

#[test]
fn who_is_about_to_become_another_program_meets_nobody() {
    let (place, memory) = (tempfile::tempdir().expect("a directory"), memory());
    let attachment: &'static Attachment = Box::leak(Box::new(attached(place.path())));
    let pair = attachment.pairs.add(memory.as_raw_fd(), Lines::none(), 1, 1).expect("added");
    let end = waiting(attachment, &own(7));
    let process = attachment.node.processes.process(attachment.node.me());
    process.set(ProcessFlags::Executing, true);
    assert!(!end.meet_in(pair, 2, 0) && !end.comes_to_pair());
    process.set(ProcessFlags::Executing, false);
    // A program that is started beside it has the socket, too.
    end.slot().set(flag::SPAWNED, true);
    assert!(!end.comes_to_pair() && !end.meet_in(pair, 2, 0));
    end.slot().set(flag::SPAWNED, false);
    assert!(end.meet_in(pair, 2, 0) && end.comes_to_pair());
}

/// The other end's process ended before it heard: nobody comes, and the connection is to be had by
/// another asking.
#[test]
fn who_waits_in_a_pair_in_vain_comes_back() {
    let (place, memory) = (tempfile::tempdir().expect("a directory"), memory());
    let attachment: &'static Attachment = Box::leak(Box::new(attached(place.path())));
    let pair = attachment.pairs.add(memory.as_raw_fd(), Lines::none(), 1, 1).expect("added");
    let tuple = own(7);
    let end = waiting(attachment, &tuple);
    let publish = |end: Endpoint<'static>| {
        let owner = (end.joined().member, end.index(), end.slot().generation.load(Relaxed));
        let Found::Published(entry) =
            rendezvous::meet(&end.joined().segment, &end.meets_at(&tuple), 5, owner)
        else {
            panic!("nobody is there")
        };
        end.slot().entry.store(entry.index() + 1, Relaxed);
        end.slot().set_stage(Stage::Published);
        entry
    };
    assert!(!end.come_back(), "it is nowhere else");
    assert!(end.meet_in(pair, 2, 0) && !end.come_back(), "not published there yet");
    let entry = publish(end);
    assert!(
        entry.step(state::PUBLISHED, state::CLAIMED) && !end.come_back(),
        "somebody comes at this moment"
    );
    assert!(entry.step(state::CLAIMED, state::PUBLISHED) && end.come_back());
    assert!(rendezvous::entries(&pair.joined.segment).next().is_none() && !end.is_in_pair());
    assert_eq!(
        (end.slot().stage(), end.joined().segment.id()),
        (Stage::Candidate, attachment.node.joined().segment.id())
    );
    publish(end);
    assert!(end.meet_in(pair, 4, 1), "and is found there again");
}
