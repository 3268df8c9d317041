use super::*;
use crate::Waiter;
use crate::joined::Joined;
use crate::node::tests::node_in;
use crate::waiter::Rung;
use ginnel_region::Segment;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many lines the process has is one number, for all tests.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As the broker makes it.
fn memory() -> File {
    // SAFETY: a terminated name; the kernel makes the descriptor for this caller.
    let memory = unsafe {
        File::from_raw_fd(libc::memfd_create(
            c"pair".as_ptr(),
            libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC,
        ))
    };
    Segment::format_pair(memory.as_fd(), 16 << 20).expect("formatted");
    sys::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK as usize)
        .expect("sealed");
    memory
}

/// What both processes of a pair have, and the ends of the second's lines, as well.
fn pair() -> [Joined; 2] {
    let memory = memory();
    let (one, other): (Vec<_>, Vec<_>) =
        (0..LINES).map(|_| UnixStream::pair().expect("sockets")).unzip();
    [one, other].map(|ends| {
        let lines = Lines::new(ends.into_iter().map(|end| Fd(end.into_raw_fd())), |_, _| {});
        Joined::of_pair(Segment::of_pair(memory.as_raw_fd()).expect("a segment"), lines)
            .expect("a member")
    })
}

/// The page and the bit of a wish.
fn parts(want: Want) -> (u32, u16) {
    match want {
        Want::Waiter { page, bit } => (page, bit),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_sleeps_on_a_line_is_rung_by_the_other_process_and_who_is_awake_costs_nothing() {
    let _one = one_at_a_time();
    let place = tempfile::tempdir().expect("a directory");
    let node = node_in(place.path());
    let [own, other] = pair();
    let waiter = Waiter::new(&node).expect("a waiter");
    let ear = own.take_line(&node, waiter).expect("a line");
    let (page, bit) = parts(ear.want(&own, 7));
    assert_eq!(other.ring(page, bit, false), Rung::Awake);
    assert!(ear.any(&own) && sys::poll(ear.fd(&own), libc::POLLIN, 0) == 0, "a bit, and no byte");
    ear.take(&own, |bit| bit == 7);
    ear.sleeping(&own);
    assert_eq!(other.ring(page, bit, false), Rung::Woken);
    assert_eq!(sys::poll(ear.fd(&own), libc::POLLIN, 10_000), libc::POLLIN);
    ear.awake(&own, true);
    ear.take(&own, |bit| bit == 7);
    ear.empty(&own);
    assert_eq!((sys::poll(ear.fd(&own), libc::POLLIN, 0), ear.is_lost(&own)), (0, false));
    // The same line the other way: both sleep.
    let back = other.take_line(&node, waiter).expect("a line");
    let (page, bit) = parts(back.want(&other, 3));
    back.sleeping(&other);
    ear.sleeping(&own);
    assert_eq!(own.ring(page, bit, false), Rung::Woken);
    assert_eq!(sys::poll(back.fd(&other), libc::POLLIN, 10_000), libc::POLLIN);
    assert_eq!(sys::poll(ear.fd(&own), libc::POLLIN, 0), 0);
}

/// What the own process has to say to its sleeper comes by the sleeper's own waiter.
#[test]
fn the_own_process_wakes_its_sleeper_too() {
    let _one = one_at_a_time();
    let place = tempfile::tempdir().expect("a directory");
    let node = node_in(place.path());
    let [own, other] = pair();
    let waiter = Waiter::new(&node).expect("a waiter");
    let ear = own.take_line(&node, waiter).expect("a line");
    let (page, bit) = parts(ear.want(&own, 2));
    waiter.sleeping(&node.joined().segment);
    ear.sleeping(&own);
    assert_eq!(node.ring_own(&own, page, bit), Rung::Woken);
    assert_eq!(sys::poll(waiter.fifo(), libc::POLLIN, 10_000), libc::POLLIN);
    assert!(ear.any(&own));
    assert_eq!(node.ring_own(&other, page, bit), Rung::Awake, "none of that one's");
}

#[test]
fn so_many_sleep_at_once_and_a_line_that_is_given_back_is_free() {
    let _one = one_at_a_time();
    let place = tempfile::tempdir().expect("a directory");
    let node = node_in(place.path());
    let [own, _other] = pair();
    let waiter = Waiter::new(&node).expect("a waiter");
    let ears: Vec<_> = (0..LINES).map(|_| own.take_line(&node, waiter).expect("a line")).collect();
    assert!(own.take_line(&node, waiter).is_none() && own.rings());
    let page = parts(ears[1].want(&own, 0)).0;
    ears[1].give_back(&own);
    let again = own.take_line(&node, waiter).expect("a line");
    assert_eq!(parts(again.want(&own, 0)).0, page, "with the page that it had");
    // As after a thread that was cancelled.
    own.lines.give_back_of(waiter.page() + 1);
    assert!(own.lines.are_taken() && own.take_line(&node, waiter).is_none());
    own.lines.give_back_of(waiter.page());
    assert!(!own.lines.are_taken() && own.take_line(&node, waiter).is_some());
}

/// A sleep that counted as left behind goes on, and ends, while another has its line.
#[test]
fn a_line_that_is_anothers_by_now_is_not_given_back() {
    let _one = one_at_a_time();
    let place = tempfile::tempdir().expect("a directory");
    let node = node_in(place.path());
    let [own, _other] = pair();
    let [first, second] = [(); 2].map(|()| Waiter::new(&node).expect("a waiter"));
    for next in [first, second] {
        let late = own.take_line(&node, first).expect("a line");
        own.lines.give_back_of(first.page());
        let ear = own.take_line(&node, next).expect("a line");
        late.give_back(&own);
        assert!(own.lines.are_taken());
        ear.give_back(&own);
        assert!(!own.lines.are_taken());
    }
}

/// The other process may ring as often as it likes, by bytes or by bits: it wakes nobody for ever.
#[test]
fn who_rings_for_nothing_is_not_listened_to_for_long() {
    let _one = one_at_a_time();
    let place = tempfile::tempdir().expect("a directory");
    let node = node_in(place.path());
    let waiter = Waiter::new(&node).expect("a waiter");
    let [own, other] = pair();
    let by_bytes = own.take_line(&node, waiter).expect("a line");
    let by_bits = own.take_line(&node, waiter).expect("a line");
    let (page, bit) = parts(by_bits.want(&own, 5));
    let honest = own.take_line(&node, waiter).expect("a line");
    let (good, _) = parts(honest.want(&own, 5));
    for _ in 0..IN_VAIN {
        assert!(!by_bytes.is_lost(&own) && !by_bits.is_lost(&own));
        other.lines.ring(0);
        by_bytes.empty(&own);
        other.ring(page, bit, false);
        assert!(by_bits.any(&own));
        by_bits.take(&own, |_| false);
    }
    // Each for something, and each arrives after that was seen.
    for _ in 0..3 * IN_VAIN {
        honest.sleeping(&own);
        assert_eq!(other.ring(good, 5, false), Rung::Woken);
        honest.awake(&own, false);
        honest.take(&own, |bit| bit == 5);
        other.lines.ring(2);
        honest.empty(&own);
    }
    other.lines.ring(0);
    by_bytes.empty(&own);
    other.ring(page, bit, false);
    by_bits.take(&own, |_| false);
    assert!(by_bytes.is_lost(&own) && by_bits.is_lost(&own) && !honest.is_lost(&own));
    assert!(!by_bits.any(&own), "whatever is set");
    // Closed when it is given back, by which the other process knows.
    by_bytes.give_back(&own);
    assert!(by_bytes.fd(&own) == -1 && !other.lines.ring(0) && other.lines.ring(2));
    by_bits.give_back(&own);
    honest.give_back(&own);
    assert!(own.rings() && own.take_line(&node, waiter).is_some_and(|ear| !ear.is_lost(&own)));
}

#[test]
fn who_closes_its_ends_is_heard_and_reached_no_more() {
    let _one = one_at_a_time();
    let place = tempfile::tempdir().expect("a directory");
    let node = node_in(place.path());
    let waiter = Waiter::new(&node).expect("a waiter");
    let [own, other] = pair();
    let ear = own.take_line(&node, waiter).expect("a line");
    let (page, bit) = parts(ear.want(&own, 1));
    ear.sleeping(&own);
    // A line is full when nobody reads it: then it was rung.
    assert!((0..10_000).all(|_| other.ring(page, bit, false) == Rung::Woken || {
        ear.sleeping(&own);
        true
    }));
    assert!((0..100_000).all(|_| other.lines.ring(1)));
    other.lines.close();
    assert!(!other.rings());
    ear.awake(&own, false);
    assert_eq!(sys::poll(ear.fd(&own), libc::POLLIN, 10_000) & libc::POLLIN, libc::POLLIN);
    while !ear.is_lost(&own) {
        ear.empty(&own);
    }
    let (page, bit) = parts(ear.want(&own, 1));
    ear.sleeping(&own);
    assert_eq!(other.ring(page, bit, false), Rung::Unreachable, "a token is to wake it");
    assert_eq!(own.ring(page, bit, false), Rung::Unreachable);
}

/// Who left its work by `siglongjmp` holds the lock for ever.
#[test]
fn a_lost_line_is_closed_whoever_holds_its_lock() {
    let _one = one_at_a_time();
    let place = tempfile::tempdir().expect("a directory");
    let node = node_in(place.path());
    let waiter = Waiter::new(&node).expect("a waiter");
    let [own, other] = pair();
    let before = HELD.load(Relaxed);
    let is_open = |fd| sys::fcntl(fd, libc::F_GETFD, 0).is_ok();
    let leave_work = |number: usize| {
        let left = || own.lines.lines[number].lock.with(|| panic!("as by siglongjmp"));
        let _: Option<()> =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(left)).unwrap_or(None);
    };
    let fds: Vec<i32> = own.lines.lines.iter().map(|line| line.fd.load(Relaxed)).collect();
    let [ear, sleeps] = [(); 2].map(|()| own.take_line(&node, waiter).expect("a line"));
    (0..=IN_VAIN).for_each(|_| own.lines.lines[0].count(false));
    (0..=IN_VAIN).for_each(|_| own.lines.lines[1].count(false));
    leave_work(0);
    assert!(ear.is_lost(&own));
    ear.give_back(&own);
    own.lines.tidy(false);
    assert!(is_open(fds[0]), "its holder may be at work");
    own.lines.tidy(false);
    assert!(!is_open(fds[0]) && !other.lines.ring(0) && HELD.load(Relaxed) == before - 1);
    assert!(is_open(fds[1]) && sleeps.is_lost(&own), "its sleeper is to give it back");
    sleeps.give_back(&own);
    assert!(!is_open(fds[1]) && is_open(fds[2]) && is_open(fds[3]));
    // Holders that come and go have not left.
    own.lines.lines[2].lost.store(true, Relaxed);
    for _ in 0..3 {
        own.lines.lines[2].lock.forget();
        leave_work(2);
        own.lines.tidy(false);
    }
    assert!(is_open(fds[2]));
    // At the end of the pair.
    leave_work(3);
    own.lines.close();
    own.lines.tidy(true);
    own.lines.tidy(true);
    assert!(!is_open(fds[2]) && !is_open(fds[3]) && HELD.load(Relaxed) == before - LINES);
}

/// The program's descriptor there is none of ours.
#[test]
fn a_number_that_is_replaced_is_no_lines() {
    let _one = one_at_a_time();
    let place = tempfile::tempdir().expect("a directory");
    let node = node_in(place.path());
    let waiter = Waiter::new(&node).expect("a waiter");
    let [own, other] = pair();
    let (mine, mut beside) = UnixStream::pair().expect("sockets");
    let ear = own.take_line(&node, waiter).expect("a line");
    let number = ear.fd(&own);
    assert!(own.lines.ring(0));
    own.lines.replaced(number);
    assert_eq!(
        sys::poll(number, libc::POLLIN, 0) & libc::POLLIN,
        libc::POLLIN,
        "who sleeps there wakes"
    );
    // SAFETY: both are open.
    assert_eq!(unsafe { libc::dup2(mine.as_raw_fd(), number) }, number);
    assert!(ear.is_lost(&own) && ear.fd(&own) == -1 && !own.lines.ring(0) && !other.lines.ring(0));
    ear.give_back(&own);
    own.lines.tidy(true);
    own.lines.close();
    beside.set_nonblocking(true).expect("a flag");
    assert!(beside.read(&mut [0]).is_err(), "nothing came, and it is open");
    sys::close(number);
}

/// Numbers that the other process may write where a line's is looked for.
#[test]
fn a_number_that_is_no_lines_reaches_nobody() {
    let _one = one_at_a_time();
    let [own, _other] = pair();
    for number in [LINES as u64, u64::MAX, 1 << 32] {
        assert!(!own.lines.ring(number));
    }
}

/// A program may count on its descriptors, and one that has a thousand pairs has few of each.
#[test]
fn of_many_pairs_few_have_lines() {
    let _one = one_at_a_time();
    let before = HELD.load(Relaxed);
    let most = MOST.min(usize::try_from(sys::descriptor_limit() / PART).expect("a number"));
    let sockets = || {
        let (own, other): (Vec<_>, Vec<_>) =
            (0..LINES).map(|_| UnixStream::pair().expect("sockets")).unzip();
        (own.into_iter().map(|end| Fd(end.into_raw_fd())), other)
    };
    let mut kept = Vec::new();
    let mut counts = Vec::new();
    for _ in 0..most {
        let (own, mut other) = sockets();
        let lines = Lines::new(own, |_, _| {});
        let count = lines.lines.iter().filter(|line| line.is_fit()).count();
        // Of the others the other process hears.
        for end in &mut other[count..] {
            assert_eq!(end.read(&mut [0]).expect("closed"), 0);
        }
        for end in &mut other[..count] {
            end.write_all(&[0]).expect("open");
        }
        kept.push(lines);
        counts.push(count);
    }
    assert_eq!(HELD.load(Relaxed), most.max(before));
    assert!(
        counts.is_sorted_by(|one, next| one >= next) && counts.last() == Some(&0),
        "{counts:?}"
    );
    assert!(counts.contains(&1), "{counts:?}");
    drop(kept);
    assert_eq!(HELD.load(Relaxed), before);
}
