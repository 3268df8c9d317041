//! Calls that lead nowhere, more than a listener can answer: who accepts goes home in the time that
//! it gave, and a stream that was called for in earnest comes all the same.

use crate::stage::{play, segment, until};
use ginnel::{Error, Listener, Segment, Sender, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
/// One that is no number, and one of which no queues are there.
const CALLS: [&[u8]; 2] = [b"no number", b"1234.56"];

/// So many that call.
const SENDERS: usize = 60;
/// So many calls of each are there at a time.
const EACH: usize = 4;

/// Senders whose lanes are full of calls.
fn flood(segment: &Segment) -> Vec<Sender> {
    let open = |_| Sender::open(segment, "listens").expect("a lane");
    let senders: Vec<Sender> = (0..SENDERS).map(open).collect();
    assert_eq!(fill(&senders), SENDERS * EACH);
    senders
}

/// Fills the lanes again. Returns how many calls were taken from them.
fn fill(senders: &[Sender]) -> usize {
    let fill = |(sender, call): (&Sender, &&[u8])| {
        std::iter::repeat_with(|| sender.try_send(call)).take_while(Result::is_ok).count()
    };
    senders.iter().zip(CALLS.iter().cycle()).map(fill).sum()
}

fn is_ready(listener: &Listener) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 60, tv_nsec: 0 })).expect("polled") > 0
}

#[test]
fn who_looks_or_has_no_time_is_let_go() {
    play("floods::who_looks_or_has_no_time_is_let_go", |_| {
        let segment = segment();
        let mut listener = Listener::bind(&segment, "listens").expect("free");
        listener.as_fd();
        let senders = flood(&segment);
        assert_eq!(listener.try_accept().err(), Some(Error::WouldBlock));
        // An event loop comes back at once, and nobody has to call.
        assert!(is_ready(&listener));
        let taken = fill(&senders);
        assert!(taken < SENDERS * EACH, "it took all of them");
        assert_eq!(listener.accept_timeout(Duration::ZERO).err(), Some(Error::TimedOut));
        let taken = fill(&senders);
        assert!(taken < SENDERS * EACH, "it took all of them");
    });
}

/// Each time that there is room the flood comes anew.
#[test]
fn who_calls_in_earnest_is_heard() {
    play("floods::who_calls_in_earnest_is_heard", |_| {
        let segment = segment();
        let mut listener = Listener::bind(&segment, "listens").expect("free");
        let senders = flood(&segment);
        let there = segment.clone();
        let calls = std::thread::spawn(move || Stream::connect_timeout(&there, "listens", LONG));
        let mut stream = None;
        until("a stream", || {
            fill(&senders);
            stream = listener.accept_timeout(Duration::from_millis(1)).ok();
            stream.is_some()
        });
        calls.join().expect("no panic").expect("heard");
    });
}
