//! One lane of a queue and the others: what a bad or a dead sender leaves is its own lane's.

use crate::hostile::{PAGE, Stranger};
use crate::stage::{Part, play, role, segment, until};
use ginnel::{Error, Queue, Receiver, Sender};
use ginnel_region::{Extent, Owner, Use};
use std::time::Duration;

/// Where the words of a queue's first page lie: see `src/queue.rs`.
const RECEIVER: u64 = 0x40;
const IN_USE: u64 = 0xc0;
const FIRST_LANES_SENDER: u64 = 0x400;
const FIRST_LANES_PAGES: u64 = 0x408;
/// Cells of turns that cannot be beside each other, the first one long over.
const NONSENSE: [u64; 4] = [u64::MAX << 45, 70 << 45, 7 << 45, 700 << 45];

fn queue() -> Queue {
    Queue::new().capacity(4).message_size(100).senders(2).loans(2)
}

fn first_page(stranger: &Stranger) -> u64 {
    let object = |&(_, kind): &(u64, u64)| kind == Use::Object as u64;
    stranger.pages().into_iter().find(object).expect("a queue").0 * PAGE
}

/// Takes what there is. How often nonsense was told of.
fn take_all(receiver: &Receiver, taken: &mut Vec<Vec<u8>>) -> usize {
    let mut told = 0;
    loop {
        match receiver.try_recv() {
            Ok(message) => taken.push(message.to_vec()),
            Err(Error::Corrupt { .. }) => told += 1,
            Err(Error::WouldBlock | Error::Ended { .. }) => return told,
            Err(error) => panic!("{error}"),
        }
        assert!(told < 100, "nonsense, again and again");
    }
}

/// Who wants to send, and finds no memory for its lane, was no sender: that it gives the lane up is
/// the end of nobody. Seen while it has the lane.
#[test]
fn one_that_comes_and_finds_no_room_was_no_sender() {
    play("lanes::one_that_comes_and_finds_no_room_was_no_sender", |_| {
        let segment = segment();
        queue().create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let stranger = Stranger::new(&segment);
        let at = first_page(&stranger);
        let living = stranger.word(at + RECEIVER);
        stranger.put(at + FIRST_LANES_SENDER, living);
        assert_eq!(receiver.try_recv().err(), Some(Error::WouldBlock));
        stranger.put(at + FIRST_LANES_SENDER, 0);
        assert_eq!(receiver.try_recv().err(), Some(Error::WouldBlock));
        // One that has a lane is one, also where it sends nothing.
        let sender = Sender::open(&segment, "q").expect("a lane");
        assert_eq!(receiver.try_recv().err(), Some(Error::WouldBlock));
        drop(sender);
        assert_eq!(receiver.try_recv().err(), Some(Error::Ended { died: false }));
    });
}

#[test]
fn one_bad_lane_starves_nobody() {
    play("lanes::one_bad_lane_starves_nobody", |_| {
        let segment = segment();
        queue().create(&segment, "q").expect("free");
        let bad = Sender::open(&segment, "q").expect("a lane");
        let honest = Sender::open(&segment, "q").expect("a lane");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let stranger = Stranger::new(&segment);
        let cells = (stranger.word(first_page(&stranger) + FIRST_LANES_PAGES) & 0xffff_ffff) * PAGE;
        let cells = [0, 64, 128, 192].map(|at| cells + at);
        let before = cells.map(|at| stranger.word(at));
        bad.send(b"lost to nobody but its sender").expect("room");
        cells.iter().zip(NONSENSE).for_each(|(&at, word)| stranger.put(at, word));
        let mut taken = Vec::new();
        for i in 0..4u8 {
            honest.send(&[i]).expect("room");
        }
        assert_eq!(take_all(&receiver, &mut taken), 1, "told once");
        assert_eq!(taken, [[0], [1], [2], [3]]);
        // A wait is a wait, and not one error after the other.
        let time = Duration::from_millis(30);
        assert_eq!(receiver.recv_timeout(time).err(), Some(Error::TimedOut));
        // Whoever comes later does as well.
        drop((receiver, bad, honest));
        let receiver = Receiver::open(&segment, "q").expect("the place is free");
        let honest = Sender::open(&segment, "q").expect("the other lane");
        honest.send(b"another").expect("room");
        taken.clear();
        assert_eq!(take_all(&receiver, &mut taken), 1, "told once");
        assert_eq!(taken, [b"another"]);
        assert!(matches!(Sender::open(&segment, "q"), Err(Error::Corrupt { .. })));
        // In order again.
        cells.iter().zip(before).for_each(|(&at, word)| stranger.put(at, word));
        let mended = Sender::open(&segment, "q").expect("a lane");
        mended.send(b"mended").expect("room");
        taken.clear();
        until("the lane is looked at again", || {
            take_all(&receiver, &mut taken);
            !taken.is_empty()
        });
        assert_eq!(taken, [b"mended"]);
    });
}

/// A lane that seems to come into use again and again is one lane.
#[test]
fn a_lane_is_learnt_once() {
    play("lanes::a_lane_is_learnt_once", |_| {
        let segment = segment();
        queue().create(&segment, "q").expect("free");
        let sender = Sender::open(&segment, "q").expect("a lane");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let stranger = Stranger::new(&segment);
        sender.send(b"held").expect("room");
        let held = receiver.recv().expect("there");
        for _ in 0..10 {
            for bits in [0, 1] {
                stranger.put(first_page(&stranger) + IN_USE, bits);
                assert_eq!(receiver.try_recv().err(), Some(Error::WouldBlock));
            }
        }
        for _ in 0..20 {
            sender.send(b"more").expect("room");
            receiver.recv().expect("there");
        }
        assert_eq!(held.to_vec(), b"held", "what is held is nobody else's");
    });
}

fn large() -> Queue {
    Queue::new().capacity(4).message_size(8 << 20).senders(1).loans(1)
}

/// A sender dies while its pages become the queue's: the next one frees what that has left.
#[test]
fn pages_of_a_sender_that_died_at_once_come_back() {
    play("lanes::pages_of_a_sender_that_died_at_once_come_back", |part| {
        let segment = segment();
        let looker = ginnel_region::Segment::open(segment.path()).expect("there");
        let handed_over = move || {
            let object = looker.owned().find(|(_, owner)| owner.kind == Use::Object);
            let page = object.map(|(page, _)| page);
            let is_lanes = |owner: Owner| owner.kind == Use::Data && owner.tag == page;
            looker.owned().filter(|&(_, owner)| is_lanes(owner)).count()
        };
        if let Part::Role(..) = part {
            // SAFETY: ends this process.
            let dies = || unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            let looker = ginnel_region::Segment::open(segment.path()).expect("there");
            std::thread::spawn(move || {
                // First its own, then, page by page, the queue's: it dies as soon as one is.
                let claimed = |looker: &ginnel_region::Segment| {
                    let data = looker.owned().find(|(_, owner)| owner.kind == Use::Data);
                    data.map(|(page, owner)| (page, owner.tag))
                };
                let (page, party) = std::iter::repeat_with(|| claimed(&looker)).flatten().next()?;
                while looker.owner(page).is_some_and(|owner| owner.tag == party) {}
                dies();
                Some(())
            });
            let _sender = Sender::open(&segment, "q").expect("a lane");
            // The thread may have looked too late to see a page change hands.
            dies();
        }
        // Where it dies is chance, on a busy machine more than elsewhere: as often as it takes, for
        // as long as a test may.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let (mut between, mut rounds) = (0, 0);
        while rounds < 12 || between == 0 && std::time::Instant::now() < until {
            rounds += 1;
            large().create(&segment, "q").expect("free");
            let mut dies = role("sender", "");
            dies.0.wait().expect("a child");
            let left = handed_over();
            let sender = Sender::open(&segment, "q").expect("the dead one's lane");
            let lane = handed_over();
            between += usize::from(left > 0 && left < lane);
            assert_eq!(lane, 12289, "one lane, and nothing beside it; {left} were left");
            drop(sender);
            segment.remove("q").expect("there");
        }
        // What a death in between leaves is looked at below, too.
        eprintln!("{between} of {rounds} died in between");
    });
}

/// The same, with what a death leaves after half of the pages, put there by hand.
#[test]
fn pages_that_no_lane_names_come_back() {
    play("lanes::pages_that_no_lane_names_come_back", |_| {
        let segment = segment();
        queue().create(&segment, "q").expect("free");
        let other = Sender::open(&segment, "q").expect("the first lane");
        let stranger = Stranger::new(&segment);
        let first = first_page(&stranger);
        let looker = ginnel_region::Segment::open(segment.path()).expect("there");
        let free = looker.page_counts().0;
        let queue = u32::try_from(first / PAGE).expect("few");
        let owner = Owner { member: 0, kind: Use::Data, tag: Some(queue) };
        let Extent { page, pages } = looker.claim(2, owner).expect("room");
        let word = 1 << 63 | u64::from(pages) << 32 | u64::from(page);
        stranger.put(first + FIRST_LANES_PAGES + 32, word);
        let second = Sender::open(&segment, "q").expect("the second lane");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let lane = stranger.word(first + FIRST_LANES_PAGES) >> 32;
        assert_eq!(u64::from(free - looker.page_counts().0), lane, "one lane more, no page more");
        other.send(b"one").expect("room");
        second.send(b"two").expect("room");
        assert_eq!(receiver.recv().expect("there").to_vec(), b"one");
        assert_eq!(receiver.recv().expect("there").to_vec(), b"two");
    });
}
