//! `ginnel-broker`: whom it makes a pair, who gets nothing, and that nobody keeps another waiting.

use crate::askers::{Asker, NOBODY, PATIENCE, become_user, pair, possible};
use ginnel_region::Segment;
use ginnel_tcp::broker::{Heard, Question, Verdict, ask, connect, hear, part};
use ginnel_tests::daemon::Broker;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Both get the same memory, once, and nobody else gets any; further connections meet there.
#[test]
fn two_processes_get_one_memory_and_others_none() {
    if !possible("two_processes_get_one_memory_and_others_none") {
        return;
    }
    let broker = Broker::start("");
    let (first, second, stranger) = (Asker::new(&broker), Asker::new(&broker), Asker::new(&broker));
    let ((client, server), (other_client, _other)) = (pair(), pair());
    first.hand_in(&server, false, 7);
    first.waits();
    // The other end of another connection; and this end, by one who says that it connected.
    stranger.hand_in(&other_client, true, 1);
    stranger.hand_in(&server, true, 2);
    stranger.waits();
    stranger.waits();
    second.hand_in(&client, true, 9);
    let (told, memory) = second.answer();
    let (told_first, memory_first) = first.answer();
    assert_eq!((told.verdict, told_first.verdict), (Verdict::Meet, Verdict::Meet));
    assert_eq!((told_first.number, told.number, told_first.side, told.side), (7, 9, 0, 1));
    assert_eq!((told.pair, told.meeting), (told_first.pair, told_first.meeting));
    let segments = [memory, memory_first]
        .map(|memory| Segment::of_pair(memory.expect("beside it").0).expect("a segment"));
    assert_eq!(segments[0].id(), segments[1].id());
    for verdict in [stranger.verdict(), stranger.verdict()] {
        assert_eq!(verdict, Verdict::Nobody);
    }
    let (client, server) = pair();
    second.hand_in(&client, true, 10);
    second.waits();
    first.hand_in(&server, false, 11);
    let (again, none) = second.answer();
    assert!(none.is_none() && again.pair == told.pair && again.meeting != told.meeting);
    assert!(first.answer().1.is_none());
    // Not the stranger's to end.
    part(stranger.0.0, told.pair);
    part(second.0.0, told.pair);
    for asker in [&first, &second] {
        let (ended, _) = asker.answer();
        assert_eq!((ended.verdict, ended.pair), (Verdict::Ended, told.pair));
    }
    let (client, server) = pair();
    second.hand_in(&client, true, 12);
    second.waits();
    first.hand_in(&server, false, 13);
    let (told, memory) = second.answer();
    assert!(
        memory.is_some() && told.pair != again.pair && first.answer().1.is_some(),
        "a pair anew"
    );
    drop(second);
    let (ended, _) = first.answer();
    assert_eq!((ended.verdict, ended.pair), (Verdict::Ended, told.pair));
}

/// The broker's is another pid namespace, as an agent's on Kubernetes: it sees no number of those
/// who ask, and counts them by their users.
#[test]
fn a_broker_in_a_pid_namespace_of_its_own_makes_pairs() {
    if !possible("a_broker_in_a_pid_namespace_of_its_own_makes_pairs") {
        return;
    }
    let within = ["unshare", "--pid", "--fork", "--kill-child"].map(String::from);
    let broker = Broker::start_within(&within, "");
    let (first, second, (client, server)) = (Asker::new(&broker), Asker::new(&broker), pair());
    first.hand_in(&client, true, 1);
    first.waits();
    second.hand_in(&server, false, 2);
    assert_eq!(
        (first.verdict(), second.verdict()),
        (Verdict::Meet, Verdict::Meet),
        "{}",
        broker.log()
    );
}

/// With the memory each gets its ends of the pair's lines, in one order: what one writes the other
/// reads. The broker keeps none: who closes his is heard.
#[test]
fn both_get_the_ends_of_the_pairs_lines() {
    if !possible("both_get_the_ends_of_the_pairs_lines") {
        return;
    }
    let broker = Broker::start("");
    let (first, second) = (Asker::new(&broker), Asker::new(&broker));
    let (client, server) = pair();
    first.hand_in(&server, false, 1);
    first.waits();
    second.hand_in(&client, true, 2);
    let ends = [&first, &second].map(|asker| {
        let (answer, beside) = asker.whole_answer();
        assert!(answer.verdict == Verdict::Meet && beside.memory.is_some());
        // SAFETY: they came just now, and are nobody else's.
        beside.lines.map(|end| unsafe { UnixStream::from_raw_fd(end.expect("a line").take()) })
    });
    let [ours, theirs] = ends;
    for (number, (mut one, mut other)) in (0..).zip(ours.into_iter().zip(theirs)) {
        for _ in 0..2 {
            one.write_all(&[number]).expect("room");
            let mut byte = [99];
            assert_eq!((other.read(&mut byte).expect("there"), byte[0]), (1, number));
            std::mem::swap(&mut one, &mut other);
        }
        assert_eq!(
            other.read(&mut [0]).map_err(|error| error.kind()),
            Err(std::io::ErrorKind::WouldBlock)
        );
        drop(one);
        assert_eq!(other.read(&mut [0]).expect("its end"), 0);
    }
}

/// In a network of its own, a socket with the numbers of somebody else's end: asks with it, and
/// prints what it hears. Repair makes no SYN, which would count as acknowledged at an end that
/// connected.
const FORGER: &str = "import array, socket, sys
path, sent, received = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
REPAIR, QUEUE, SEQ = 19, 20, 21
s = socket.socket()
s.setsockopt(socket.IPPROTO_TCP, REPAIR, 1)
for queue, number in ((2, (sent - 1) % 2**32), (1, received)):
    s.setsockopt(socket.IPPROTO_TCP, QUEUE, queue)
    s.setsockopt(socket.IPPROTO_TCP, SEQ, number.to_bytes(4, sys.byteorder))
s.connect(('127.0.0.1', 7))
# Off, without a window probe, which nobody would answer but with a reset.
s.setsockopt(socket.IPPROTO_TCP, REPAIR, -1)
b = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
b.connect(path)
b.sendmsg([bytes([1, 1]) + bytes(14)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [s.fileno()]))])
WAITS = 9
verdict = WAITS
while verdict == WAITS:
    verdict = b.recv(100)[1]
    print(verdict, flush=True)";

/// Who owns a network of his own can make a socket there with any sequence numbers: the ends of one
/// connection are in networks of one owner.
#[test]
fn a_network_of_ones_own_proves_nothing() {
    const PYTHON: &str = "/usr/bin/python3.11";
    if !possible("a_network_of_ones_own_proves_nothing") || !std::path::Path::new(PYTHON).exists() {
        return;
    }
    let broker = Broker::start("");
    let (client, server) = pair();
    let numbers = ginnel_tcp::proof::repair::numbers(client.as_raw_fd(), true).expect("root may");
    let victim = Asker::new(&broker);
    victim.hand_in(&server, false, 1);
    victim.waits();
    let mut forger = std::process::Command::new("setpriv");
    forger.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "unshare",
        "-Urn",
        "sh",
        "-c",
    ]);
    forger
        .args(["ip link set lo up; exec \"$@\"", "sh", PYTHON, "-c", FORGER])
        .arg(broker.socket());
    forger.args([numbers.sent.to_string(), numbers.received.to_string()]);
    let mut forger = forger.stdout(std::process::Stdio::piped()).spawn().expect("it runs");
    let mut heard = BufReader::new(forger.stdout.take().expect("piped")).lines();
    let mut next = || heard.next().and_then(Result::ok).and_then(|line| line.parse::<u8>().ok());
    // Its numbers are the right ones, and it gets no memory for them: it waits as if they were not.
    assert_eq!(next(), Some(Verdict::Waits as u8));
    // The victim has waited on.
    let other = Asker::new(&broker);
    other.hand_in(&client, true, 4);
    assert_eq!((victim.verdict(), other.verdict()), (Verdict::Meet, Verdict::Meet));
    assert_eq!(next(), Some(Verdict::OtherNetwork as u8));
    assert!(forger.wait().expect("a child").success());
}

/// Whatever is sent that is no connection: a clear word, and the next question is answered.
#[test]
fn what_is_no_connection_is_said_to_be_none() {
    if !possible("what_is_no_connection_is_said_to_be_none") {
        return;
    }
    let broker = Broker::start("");
    let asker = Asker::new(&broker);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (unix, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let file = std::fs::File::open("/dev/null").expect("there");
    for fd in [listener.as_raw_fd(), unix.as_raw_fd(), file.as_raw_fd()] {
        ask(asker.0.0, &Question { connected: false, number: 1 }, fd).expect("asked");
        assert_eq!(asker.verdict(), Verdict::Unreadable);
    }
    let (client, server) = pair();
    asker.hand_in(&client, true, 2);
    asker.hand_in(&server, false, 3);
    assert_eq!(asker.verdict(), Verdict::OneProcess);
}

/// Limits are told, and are each user's own.
#[test]
fn limits_are_told_and_are_each_users_own() {
    if !possible("limits_are_told_and_are_each_users_own") {
        return;
    }
    let broker = Broker::start("[broker]\npairs = 1\nmemory = \"16M\"\n");
    let (client, servers) = (Asker::new(&broker), [Asker::new(&broker), Asker::new(&broker)]);
    let meet = |client: &Asker, server: &Asker| {
        let (connects, accepts) = pair();
        server.hand_in(&accepts, false, 1);
        server.waits();
        client.hand_in(&connects, true, 2);
        client.verdict()
    };
    assert_eq!(meet(&client, &servers[0]), Verdict::Meet);
    assert_eq!(meet(&client, &servers[1]), Verdict::TooManyPairs);
    assert_eq!(servers[1].verdict(), Verdict::TooManyPairs, "both ends hear of it");
    let path = broker.socket();
    let (connects, accepts) = pair();
    servers[1].hand_in(&accepts, false, 1);
    servers[1].waits();
    let as_nobody = std::thread::spawn(move || {
        become_user(NOBODY);
        let other = Asker(connect(&path).expect("it listens"));
        other.hand_in(&connects, true, 3);
        other.verdict()
    });
    assert_eq!(
        as_nobody.join().expect("it asked"),
        Verdict::Meet,
        "another user has pairs of his own"
    );
    // So many of one user's processes; the next is told so.
    let mut many: Vec<Asker> = Vec::new();
    while many.len() < 300 {
        let asker = Asker::new(&broker);
        let (connects, _accepts) = pair();
        if ask(asker.0.0, &Question { connected: true, number: 1 }, connects.as_raw_fd()).is_err() {
            break;
        }
        let until = Instant::now() + PATIENCE;
        let answer = loop {
            match hear(asker.0.0) {
                Heard::Answer(answer, _) => break answer.verdict,
                Heard::Nothing => assert!(Instant::now() < until, "no answer"),
                Heard::Gone => break Verdict::TooMany,
            }
        };
        if answer == Verdict::TooMany {
            break;
        }
        many.push(asker);
    }
    assert!((200..300).contains(&many.len()), "{}", many.len());
}

/// A socket that makes its last close wait, and a process that says nothing, keep nobody waiting.
#[test]
fn nobody_waits_for_anothers_close() {
    if !possible("nobody_waits_for_anothers_close") {
        return;
    }
    let broker = Broker::start("");
    let _silent: Vec<Asker> = (0..8).map(|_| Asker::new(&broker)).collect();
    let mut kept = Vec::new();
    for _ in 0..8 {
        let (client, server) = pair();
        rustix::net::sockopt::set_socket_linger(&client, Some(Duration::from_secs(30)))
            .expect("set");
        client.set_nonblocking(true).expect("set");
        while (&client).write(&[0; 65536]).is_ok() {}
        let asker = Asker::new(&broker);
        asker.hand_in(&client, true, 1);
        kept.push((asker, server));
        // The broker has the last descriptor of it.
        drop(std::thread::spawn(move || drop(client)));
    }
    let (first, second, (client, server)) = (Asker::new(&broker), Asker::new(&broker), pair());
    let begun = Instant::now();
    first.hand_in(&client, true, 1);
    // (Who has not read all that was said is given no memory.)
    first.waits();
    second.hand_in(&server, false, 2);
    assert_eq!((first.verdict(), second.verdict()), (Verdict::Meet, Verdict::Meet));
    assert!(begun.elapsed() < Duration::from_secs(10), "it waited for the sockets that linger");
}

/// Memory is given to who has read all before. Who has not hears that there is none, once it reads,
/// and may ask again: the first end of the two, and the second.
#[test]
fn who_has_not_read_all_hears_once_it_has() {
    if !possible("who_has_not_read_all_hears_once_it_has") {
        return;
    }
    let broker = Broker::start("");
    let (first, second, (client, server)) = (Asker::new(&broker), Asker::new(&broker), pair());
    first.hand_in(&client, true, 1);
    // It does not read what the broker has said to that; the second one waits until it has.
    first.is_answered();
    second.hand_in(&server, false, 2);
    second.waits();
    assert_eq!(first.verdict(), Verdict::Nobody);
    first.hand_in(&client, true, 3);
    assert_eq!((first.verdict(), second.verdict()), (Verdict::Meet, Verdict::Meet));
    // Two others: the second one has not read the answer to an earlier question.
    let (first, second, (client, server)) = (Asker::new(&broker), Asker::new(&broker), pair());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    ask(second.0.0, &Question { connected: true, number: 4 }, listener.as_raw_fd()).expect("asked");
    second.is_answered();
    first.hand_in(&client, true, 3);
    first.waits();
    second.hand_in(&server, false, 5);
    let (told, memory) = first.answer();
    assert_eq!((told.verdict, memory.is_some()), (Verdict::Meet, true));
    let (ended, _) = first.answer();
    assert_eq!((ended.verdict, ended.pair), (Verdict::Ended, told.pair));
    let heard = [second.answer().0, second.answer().0];
    assert_eq!(
        heard.map(|answer| (answer.number, answer.verdict)),
        [(4, Verdict::Unreadable), (5, Verdict::Nobody)]
    );
}

/// Nothing is left to whoever takes the process over.
#[test]
fn its_rights_are_given_up() {
    if !possible("its_rights_are_given_up") {
        return;
    }
    let broker = Broker::start("");
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", broker.pid())).expect("it runs");
    for name in ["CapPrm:", "CapEff:", "CapInh:"] {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line").trim();
        assert_eq!(u64::from_str_radix(line, 16), Ok(0), "{name} {status}");
    }
}
