//! Who calls a listener that has no room, or no descriptor, for one more stream: it waits, and is
//! let in as soon as there is.

use crate::stage::{Part, play, role, segment, until};
use crate::streams::{LONG, left};
use ginnel::{Error, Listener, Memory, Segment, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::os::fd::AsFd;

/// Who accepts and has no room for another stream is told, and who called waits until there is.
#[test]
fn who_called_waits_until_there_is_room() {
    play("callers::who_called_waits_until_there_is_room", |part| {
        let segment = segment();
        let looker = ginnel_region::Segment::open(segment.path()).expect("there");
        if let Part::Role(what, _) = part {
            if what == "fills" {
                return fill(&segment);
            }
            let mut stream = Stream::connect_timeout(&segment, "full", LONG).expect("it listens");
            stream.write_all(b"in").expect("it reads");
            return;
        }
        let mut listener = Listener::bind(&segment, "full").expect("free");
        assert_eq!(listener.try_accept().err(), Some(Error::WouldBlock));
        let connects = role("connects", "");
        until_called(&listener);
        let fills = role("fills", "");
        until("a full segment", || looker.page_counts().0 < 4);
        for _ in 0..2 {
            let error = listener.accept_timeout(LONG).err();
            assert!(matches!(error, Some(Error::SegmentFull { .. })), "{error:?}");
            let error = listener.try_accept().err();
            assert!(matches!(error, Some(Error::SegmentFull { .. })), "{error:?}");
        }
        fills.kill();
        let kept = left(&segment).into_iter().filter(|name| name.starts_with("kept"));
        kept.for_each(|name| segment.remove(&name).expect("there"));
        assert_gets_in(&mut listener);
        connects.ends();
    });
}

/// The same where it has no descriptor left, and needs one for another stream.
#[test]
fn who_called_waits_until_there_is_a_descriptor() {
    play("callers::who_called_waits_until_there_is_a_descriptor", |part| {
        let segment = segment();
        if let Part::Role(..) = part {
            let mut stream = Stream::connect_timeout(&segment, "few", LONG).expect("it listens");
            stream.write_all(b"in").expect("it reads");
            return;
        }
        let mut listener = Listener::bind(&segment, "few").expect("free");
        assert_eq!(listener.try_accept().err(), Some(Error::WouldBlock));
        let connects = role("connects", "");
        until_called(&listener);
        let few = libc::rlimit { rlim_cur: 64, rlim_max: 1024 };
        // SAFETY: a limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
        let all: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        // So many objects that the next one needs a further page, and that a descriptor.
        let mut kept = Vec::new();
        let error = loop {
            match Memory::create(&segment, &format!("kept {}", kept.len()), 8) {
                Ok(memory) => kept.push(memory),
                Err(error) => break error,
            }
        };
        let is_it = |error: &Error| matches!(error, Error::System { errno: libc::EMFILE, .. });
        assert!(is_it(&error), "{error:?}");
        for _ in 0..2 {
            let error = listener.try_accept().expect_err("no descriptor");
            assert!(is_it(&error), "{error:?}");
        }
        drop(all);
        assert_gets_in(&mut listener);
        connects.ends();
    });
}

/// Waits until somebody has called.
fn until_called(listener: &Listener) {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    until("a call", || {
        let call = PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN);
        poll(&mut [call], Some(&now)).is_ok_and(|ready| ready == 1)
    });
}

/// Who called waits, and says "in".
fn assert_gets_in(listener: &mut Listener) {
    let mut stream = listener.accept_timeout(LONG).expect("it waits");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("whole");
    assert_eq!(bytes, b"in");
}

/// Takes all memory of the segment, until it is ended.
fn fill(segment: &Segment) {
    let mut kept = Vec::new();
    let mut size = 32 << 20;
    while size >= 8 {
        match Memory::create(segment, &format!("kept {}", kept.len()), size) {
            Ok(memory) => kept.push(memory),
            Err(_) => size /= 2,
        }
    }
    loop {
        std::thread::park();
    }
}
