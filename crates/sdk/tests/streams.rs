//! Streams by name: bytes both ways between processes, in order and whole; ends that close or die;
//! nobody waits for the dead; nothing stays behind.

use crate::stage::{Part, play, role, segment, until};
use ginnel::{Error, Listener, Memory, Queue, Receiver, Segment, Sender, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

pub const LONG: Duration = Duration::from_secs(60);

fn byte(at: usize) -> u8 {
    (at * 7 + at / 251) as u8
}

/// The names that are left.
pub fn left(segment: &Segment) -> Vec<String> {
    segment.objects().expect("listed").into_iter().map(|object| object.name).collect()
}

/// A peer that writes its part of the queues itself sends what no writer does: pieces of nothing.
#[test]
fn empty_pieces_end_it_rather_than_outlast_a_time_limit() {
    play("streams::empty_pieces_end_it_rather_than_outlast_a_time_limit", |_| {
        let segment = segment();
        let mut listener = Listener::bind(&segment, "empty").expect("bound");
        let queue = Queue::new().capacity(8).message_size(64).senders(1).loans(1);
        queue.create(&segment, "empty>1").expect("made");
        queue.create(&segment, "empty<1").expect("made");
        let read = Receiver::open(&segment, "empty<1").expect("opened");
        let write = Sender::open(&segment, "empty>1").expect("opened");
        let caller = Sender::open(&segment, "empty").expect("opened");
        caller.send(b"1").expect("called");
        let mut stream = listener.accept_timeout(LONG).expect("it comes");
        write.send(b"").expect("sent");
        let got = stream.reader().read_some(&mut [0; 8], Some(LONG));
        assert!(matches!(got, Err(Error::Corrupt { .. })), "{got:?}");
        drop(read);
    });
}

#[test]
fn bytes_go_both_ways_in_order() {
    const LEN: usize = 3_000_000;
    play("streams::bytes_go_both_ways_in_order", |part| {
        let segment = segment();
        if let Part::Role(..) = part {
            let mut stream = Stream::connect_timeout(&segment, "echo", LONG).expect("it listens");
            let mut bytes = vec![0; 10_000];
            loop {
                let n = stream.read(&mut bytes).expect("whole");
                if n == 0 {
                    return;
                }
                stream.write_all(&bytes[..n]).expect("it reads");
            }
        }
        let mut listener = Listener::bind(&segment, "echo").expect("free");
        assert_eq!(listener.try_accept().err(), Some(Error::WouldBlock));
        let other = role("echo", "");
        let (mut read, mut write) = listener.accept_timeout(LONG).expect("it comes").split();
        let writer = std::thread::spawn(move || {
            let bytes: Vec<u8> = (0..LEN).map(byte).collect();
            let mut at = 0;
            // Pieces of all sizes.
            for size in (1..20_000).step_by(137).cycle() {
                let end = LEN.min(at + size);
                write.write_all(&bytes[at..end]).expect("it reads");
                at = end;
                if at == LEN {
                    break;
                }
            }
        });
        let mut back = Vec::new();
        read.read_to_end(&mut back).expect("whole");
        writer.join().expect("whole");
        assert!(back.len() == LEN && back.iter().enumerate().all(|(at, &is)| is == byte(at)));
        assert_eq!(read.read(&mut [0; 1]).expect("at its end"), 0);
        other.ends();
        drop((read, listener));
        until("nothing stays", || left(&segment).is_empty());
        assert!(matches!(Stream::connect(&segment, "echo").err(), Some(Error::NotFound { .. })));
    });
}

#[test]
fn many_connect_at_once() {
    play("streams::many_connect_at_once", |part| {
        let segment = segment();
        if let Part::Role(..) = part {
            let threads: Vec<_> = (0..10u8)
                .map(|number| {
                    let segment = segment.clone();
                    std::thread::spawn(move || {
                        let mut stream =
                            Stream::connect_timeout(&segment, "many", LONG).expect("it listens");
                        stream.write_all(&[number; 100]).expect("it reads");
                        stream.shutdown_write();
                        let mut sum = Vec::new();
                        stream.read_to_end(&mut sum).expect("whole");
                        assert_eq!(sum, (u32::from(number) * 100).to_le_bytes());
                    })
                })
                .collect();
            return threads.into_iter().for_each(|thread| thread.join().expect("served"));
        }
        let mut listener = Listener::bind(&segment, "many").expect("free");
        let others: Vec<_> = (0..4).map(|_| role("connects", "")).collect();
        let threads: Vec<_> = (0..40)
            .map(|_| {
                let mut stream = listener.accept_timeout(LONG).expect("it comes");
                std::thread::spawn(move || {
                    let mut bytes = Vec::new();
                    stream.read_to_end(&mut bytes).expect("whole");
                    let sum: u32 = bytes.iter().map(|&byte| u32::from(byte)).sum();
                    stream.write_all(&sum.to_le_bytes()).expect("it reads");
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("served"));
        others.into_iter().for_each(crate::stage::Guarded::ends);
        drop(listener);
        until("nothing stays", || left(&segment).is_empty());
    });
}

#[test]
fn the_death_of_an_end_is_told() {
    play("streams::the_death_of_an_end_is_told", |part| {
        let segment = segment();
        let ready = || Memory::open_or_create(&segment, "ready", 8).expect("there");
        if let Part::Role(..) = part {
            let mut stream = Stream::connect_timeout(&segment, "dies", LONG).expect("it listens");
            stream.write_all(b"last words").expect("it reads");
            ready().word(0).expect("there").fetch_add(1, Release);
            std::thread::sleep(LONG);
            return;
        }
        let mut listener = Listener::bind(&segment, "dies").expect("free");
        for round in 1..=10 {
            let other = role("dies", "");
            let mut stream = listener.accept_timeout(LONG).expect("it comes");
            until("it has written", || ready().word(0).expect("there").load(Acquire) == round);
            other.kill();
            let mut words = [0; 10];
            stream.read_exact(&mut words).expect("what it wrote");
            assert_eq!(&words, b"last words");
            let error = stream.read(&mut words).expect_err("it died");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            let full = loop {
                match stream.write(&[1; 8192]) {
                    Ok(n) => assert!(n > 0),
                    Err(error) => break error,
                }
            };
            assert_eq!(full.kind(), ErrorKind::BrokenPipe);
        }
        drop(listener);
        until("nothing stays", || left(&segment) == ["ready"]);
    });
}

/// Killed at any moment of connecting: who listens goes on, and the names go.
#[test]
fn killed_while_it_connects() {
    play("streams::killed_while_it_connects", |part| {
        let segment = segment();
        if let Part::Role(..) = part {
            loop {
                let _ = Stream::connect_timeout(&segment, "busy", LONG)
                    .map(|mut stream| stream.write(b"x"));
            }
        }
        let mut listener = Listener::bind(&segment, "busy").expect("free");
        for round in 0..15 {
            let other = role("connects", "");
            let accepted =
                (0..20 + round).filter(|_| listener.accept_timeout(LONG).is_ok()).count();
            assert_eq!(accepted, 20 + round);
            other.kill();
        }
        // One that is not answered is not waited for.
        while listener.accept_timeout(Duration::from_millis(10)).is_ok() {}
        drop(listener);
        until("nothing stays", || left(&segment).is_empty());
    });
}

#[test]
fn who_connects_to_one_that_dies_is_told() {
    play("streams::who_connects_to_one_that_dies_is_told", |part| {
        let segment = segment();
        if let Part::Role(..) = part {
            let _listener = Listener::bind(&segment, "deaf").expect("free");
            Memory::create(&segment, "listens", 8).expect("free");
            std::thread::sleep(LONG);
            return;
        }
        let other = role("deaf", "");
        until("it listens", || Memory::open(&segment, "listens").is_ok());
        let there = segment.clone();
        let client = std::thread::spawn(move || Stream::connect(&there, "deaf").err());
        assert_eq!(
            Stream::connect_timeout(&segment, "deaf", Duration::from_millis(50)).err(),
            Some(Error::TimedOut)
        );
        other.kill();
        assert_eq!(client.join().expect("told"), Some(Error::Ended { died: true }));
        until("the name goes", || left(&segment) == ["listens"]);
        // The name is free again.
        drop(Listener::bind(&segment, "deaf").expect("free"));
    });
}

#[test]
fn descriptors_tell_when_to_try_again() {
    play("streams::descriptors_tell_when_to_try_again", |part| {
        let segment = segment();
        let ready = |fd: &dyn AsFd| {
            let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
            let fd = fd.as_fd();
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).expect("polled");
        };
        if let Part::Role(..) = part {
            let mut stream = Stream::connect_timeout(&segment, "polled", LONG).expect("it listens");
            std::thread::sleep(Duration::from_millis(30));
            let mut bytes = vec![0; 2_000_000];
            stream.read_exact(&mut bytes).expect("whole");
            assert!(bytes.iter().enumerate().all(|(at, &is)| is == byte(at)));
            std::thread::sleep(Duration::from_millis(30));
            stream.write_all(b"done").expect("it reads");
            return;
        }
        let mut listener = Listener::bind(&segment, "polled").expect("free");
        let other = role("polls", "");
        let mut stream = loop {
            match listener.try_accept() {
                Ok(stream) => break stream,
                Err(Error::WouldBlock) => ready(&listener),
                Err(error) => panic!("{error}"),
            }
        };
        stream.set_nonblocking(true);
        let bytes: Vec<u8> = (0..2_000_000).map(byte).collect();
        let (mut at, mut full) = (0, 0);
        while at < bytes.len() {
            match stream.write(&bytes[at..]) {
                Ok(n) => at += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    full += 1;
                    ready(stream.writer().expect("open"));
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(full > 0, "it was full at times");
        let mut answer = Vec::new();
        loop {
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(0) => break,
                Ok(_) => answer.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready(&stream),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(answer, b"done");
        other.ends();
    });
}

/// A name of another object's is refused in words, and no message goes into a queue of others.
#[test]
fn a_stream_is_not_connected_to_something_else() {
    play("streams::a_stream_is_not_connected_to_something_else", |_| {
        let segment = segment();
        Queue::new().message_size(64).create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let refused = Stream::connect_timeout(&segment, "q", LONG).expect_err("a queue");
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
        assert!(refused.to_string().contains("\"q\" is a queue"), "{refused}");
        assert_eq!(receiver.try_recv().err(), Some(Error::WouldBlock), "nothing was sent");
        Memory::create(&segment, "m", 8).expect("free");
        let refused = Stream::connect_timeout(&segment, "m", LONG).expect_err("memory");
        assert!(matches!(refused, Error::WrongKind { .. }), "{refused:?}");
    });
}

/// Whatever somebody writes into the queue of who listens, others are served.
#[test]
fn nonsense_does_not_stop_who_listens() {
    play("streams::nonsense_does_not_stop_who_listens", |part| {
        let segment = segment();
        if let Part::Role(..) = part {
            let sender = ginnel::Sender::open(&segment, "open").expect("it listens");
            for nonsense in [&b""[..], b"../x", b"\xff\xfe", b"1.1", &[b'a'; 32]] {
                sender.send(nonsense).expect("room");
            }
            let mut stream = Stream::connect_timeout(&segment, "open", LONG).expect("it listens");
            stream.write_all(b"here").expect("it reads");
            return;
        }
        let mut listener = Listener::bind(&segment, "open").expect("free");
        assert!(matches!(Listener::bind(&segment, "open").err(), Some(Error::Taken { .. })));
        let other = role("nonsense", "");
        let mut said = String::new();
        let mut stream = listener.accept_timeout(LONG).expect("it comes");
        stream.read_to_string(&mut said).expect("whole");
        assert_eq!(said, "here");
        other.ends();
    });
}
