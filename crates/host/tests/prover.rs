//! `ginnel-prover`: what it reads, whom it answers, and that nobody keeps another waiting.

use ginnel_host::prover::numbers::Reader;
use ginnel_tcp::proof::helper::{ANSWER, Question};
use ginnel_tcp::proof::repair;
use ginnel_tests::daemon::{Daemon, Prover};
use ginnel_tests::{is_root, skip};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, ipproto, recv, sendmsg, socket_with,
};
use rustix::process::{Pid, Signal, Uid, kill_process};
use std::fs;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    (client, listener.accept().expect("accepted").0)
}

/// Root, and a kernel that shows its types; says so where not.
fn possible(test: &str) -> bool {
    if !is_root() || !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        skip(test, "needs root, and a kernel with BPF and its type information");
        return false;
    }
    true
}

/// What it reads of a socket is what the socket's own kernel says under TCP_REPAIR: at rest, and
/// while bytes go both ways. The two ends mirror each other.
#[test]
fn the_numbers_are_those_of_the_kernel() {
    if !possible("the_numbers_are_those_of_the_kernel") {
        return;
    }
    let reader = Reader::new().expect("loaded");
    let (mut client, mut server) = pair();
    let expected = repair::numbers(client.as_raw_fd(), true).expect("root may");
    let read = |stream: &TcpStream, connected| {
        reader.numbers(stream.as_fd(), connected).expect("read").expect("a connection")
    };
    assert_eq!(read(&client, true), expected);
    let echo = std::thread::spawn(move || {
        let mut buffer = vec![0; 30_000];
        while let Ok(len @ 1..) = server.read(&mut buffer) {
            server.write_all(&buffer[..len]).expect("echoed");
        }
        server
    });
    let (mut buffer, mut agreed) = (vec![0; 30_000], 0);
    for round in 0..500 {
        let len = 1 + round * 7919 % buffer.len();
        client.write_all(&buffer[..len]).expect("sent");
        // In the midst of it. That no two readings agreed is an answer, too.
        if let Some(numbers) = reader.numbers(client.as_fd(), true).expect("read") {
            assert_eq!(numbers, expected, "round {round}");
            agreed += 1;
        }
        client.read_exact(&mut buffer[..len]).expect("received");
    }
    assert!(agreed > 0, "never two readings that agree");
    client.shutdown(std::net::Shutdown::Write).expect("shut");
    let server = echo.join().expect("the echo");
    let mirrored = read(&server, false);
    assert_eq!((mirrored.sent, mirrored.received), (expected.received, expected.sent));
}

/// Asks with `socket` beside the question.
fn ask(prover: &Prover, bytes: &[u8], socket: Option<BorrowedFd<'_>>) -> OwnedFd {
    let asker = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("a socket");
    connect(&asker, &SocketAddrUnix::new(&prover.socket).expect("a path")).expect("connected");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let beside = socket.as_slice();
    if !beside.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(beside)));
    }
    sendmsg(&asker, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).expect("asked");
    asker
}

/// The secret that comes, 0 for none; `None` where it hangs up.
fn answer(asker: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; ANSWER];
    match recv(asker, &mut bytes, RecvFlags::empty()).expect("an answer").0 {
        ANSWER => Some(u64::from_le_bytes(bytes)),
        _ => None,
    }
}

const QUESTION: Question = Question { side: 0, connected: true, nonces: [3, 4] };

/// The two ends of a connection get one secret; another connection's, and other nonces, another.
#[test]
fn both_ends_get_one_secret() {
    if !possible("both_ends_get_one_secret") {
        return;
    }
    let daemon = Daemon::start("");
    let prover = daemon.prover();
    let ((client, server), (_other, stranger)) = (pair(), pair());
    let other_side = Question { side: 1, connected: false, ..QUESTION };
    let asked = |question: Question, stream: &TcpStream| {
        answer(&ask(&prover, &question.bytes(), Some(stream.as_fd())))
    };
    let secret = asked(QUESTION, &client).expect("an answer");
    assert_ne!(secret, 0);
    assert_eq!(asked(other_side, &server), Some(secret));
    assert_ne!(asked(other_side, &stranger), Some(secret));
    assert_ne!(asked(Question { nonces: [3, 5], ..QUESTION }, &client), Some(secret));
    assert_ne!(asked(Question { connected: false, ..QUESTION }, &client), Some(secret));
}

/// Whatever is sent that is no question about a connection: there is no secret, and the next one is
/// answered.
#[test]
fn what_is_no_question_gets_no_secret() {
    if !possible("what_is_no_question_gets_no_secret") {
        return;
    }
    let daemon = Daemon::start("");
    let prover = daemon.prover();
    let (client, server) = pair();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (udp, unix) =
        (UdpSocket::bind("127.0.0.1:0").expect("a port"), UnixStream::pair().expect("a pair"));
    let file = std::fs::File::open("/dev/null").expect("it is there");
    let ended = pair().0;
    // Of TCP by its protocol, to whoever may make one in a network namespace of his own.
    let raw =
        socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::TCP))
            .expect("root may");
    connect(&raw, &server.local_addr().expect("bound")).expect("it has no connections");
    udp.connect(server.local_addr().expect("bound")).expect("nor has this");
    let others =
        [listener.as_fd(), udp.as_fd(), unix.0.as_fd(), file.as_fd(), ended.as_fd(), raw.as_fd()];
    for (at, other) in others.into_iter().enumerate() {
        let secret = answer(&ask(&prover, &QUESTION.bytes(), Some(other)));
        assert!(matches!(secret, Some(0)) || at == 4, "number {at}: {secret:?}");
    }
    let mut longer = QUESTION.bytes().to_vec();
    longer.push(0);
    for bytes in [&[][..], &[1], &[0xff; 24], &longer] {
        assert_eq!(answer(&ask(&prover, bytes, Some(client.as_fd()))), None, "{bytes:?}");
    }
    assert_eq!(answer(&ask(&prover, &QUESTION.bytes(), None)), None, "no socket beside it");
    assert_ne!(answer(&ask(&prover, &QUESTION.bytes(), Some(client.as_fd()))), Some(0));
    drop(server);
    assert!(!prover.log().contains("level=error"), "{}", prover.log());
}

/// Sockets that make their last close wait (SO_LINGER), and askers who say nothing, keep nobody
/// else waiting: not even others of the same user, as long as they are few.
#[test]
fn nobody_waits_for_a_socket_that_lingers() {
    if !possible("nobody_waits_for_a_socket_that_lingers") {
        return;
    }
    let daemon = Daemon::start("");
    let prover = daemon.prover();
    let _silent: Vec<OwnedFd> = (0..4)
        .map(|_| {
            let asker =
                socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                    .expect("a socket");
            connect(&asker, &SocketAddrUnix::new(&prover.socket).expect("a path"))
                .expect("connected");
            asker
        })
        .collect();
    let mut full = Vec::new();
    for _ in 0..4 {
        let (client, server) = lingering();
        full.push((ask(&prover, &QUESTION.bytes(), Some(client.as_fd())), server));
        // The prover has the last descriptor of it.
        drop(std::thread::spawn(move || drop(client)));
    }
    let (client, _server) = pair();
    let begun = Instant::now();
    assert_ne!(answer(&ask(&prover, &QUESTION.bytes(), Some(client.as_fd()))), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(20), "it waited for the sockets that linger");
}

/// A connection that is full in one direction, whose last close waits for half a minute; and its
/// other end.
fn lingering() -> (TcpStream, TcpStream) {
    let (client, server) = pair();
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::from_secs(30))).expect("set");
    client.set_nonblocking(true).expect("set");
    while (&client).write(&[0; 65536]).is_ok() {}
    (client, server)
}

/// A user who has all his places, and whose further askers have sent what makes a last close wait
/// before they were turned away: other users are answered, and he again once a place is free.
#[test]
fn who_is_turned_away_keeps_nobody_waiting() {
    const NOBODY: u32 = 65534;
    if !possible("who_is_turned_away_keeps_nobody_waiting") {
        return;
    }
    let daemon = Daemon::start("");
    let prover = daemon.prover();
    for directory in prover.socket.ancestors().skip(1).take(2) {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    // It stands still until it has the last descriptors.
    let pid = Pid::from_raw(prover.pid().cast_signed()).expect("a process");
    kill_process(pid, Signal::STOP).expect("it is ours");
    let ask_and_leave = |_| {
        let (client, server) = lingering();
        (ask(&prover, &QUESTION.bytes(), Some(client.as_fd())), server)
    };
    let _kept: Vec<_> = (0..48).map(ask_and_leave).collect();
    kill_process(pid, Signal::CONT).expect("it is ours");
    let until = Instant::now() + Duration::from_secs(10);
    while !prover.log().contains("event=too_many_questions") {
        assert!(Instant::now() < until, "nobody was turned away: {}", prover.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    let (client, _server) = pair();
    let begun = Instant::now();
    let secret = std::thread::scope(|scope| {
        let ask_as_nobody = || {
            rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::from_raw(NOBODY), Uid::ROOT)
                .expect("this thread's alone");
            answer(&ask(&prover, &QUESTION.bytes(), Some(client.as_fd())))
        };
        scope.spawn(ask_as_nobody).join().expect("it asked")
    });
    assert!(begun.elapsed() < Duration::from_secs(5), "another user waited {:?}", begun.elapsed());
    assert_ne!(secret.expect("an answer"), 0);
    assert!(
        prover.log().matches("event=too_many_questions").count() < 8,
        "a line a second: {}",
        prover.log()
    );
}

/// Nothing is left to whoever takes the process over.
#[test]
fn its_rights_are_given_up() {
    if !possible("its_rights_are_given_up") {
        return;
    }
    let daemon = Daemon::start("");
    let prover = daemon.prover();
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", prover.pid())).expect("it runs");
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line").trim();
        u64::from_str_radix(line, 16).expect("a number")
    };
    for name in ["CapPrm:", "CapEff:", "CapInh:"] {
        assert_eq!(set(name), 0, "{name} {status}");
    }
}
