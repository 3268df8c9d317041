//! Both ends of the protocol over real unix sockets: honest, slow and hostile.
//!
//! Every test holds one lock, so that the descriptors of this process can be counted before and
//! after.

use ginnel_ivshmem::client::{Client, MAX_DOORBELLS};
use ginnel_ivshmem::outbox::{Outbox, Progress};
use ginnel_ivshmem::wire::{MAX_VECTORS, Message};
use ginnel_ivshmem::{Error, doorbell};
use proptest::prelude::*;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Holds the lock, and when dropped looks whether descriptors were left open.
struct NoLeaks {
    before: usize,
    _alone: MutexGuard<'static, ()>,
}

impl NoLeaks {
    fn new() -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        Self { before: open(), _alone: alone }
    }
}

impl Drop for NoLeaks {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(open(), self.before, "descriptors were left open");
        }
    }
}

fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn memory() -> Arc<OwnedFd> {
    Arc::new(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd"))
}

fn doorbells(count: u16) -> Vec<Arc<OwnedFd>> {
    (0..count).map(|_| Arc::new(doorbell::new().expect("eventfd"))).collect()
}

fn inode(fd: impl AsFd) -> u64 {
    rustix::fs::fstat(fd).expect("stat").st_ino
}

fn pair() -> (UnixStream, Client) {
    let (server, peer) = UnixStream::pair().expect("a pair");
    (server, Client::over(peer))
}

/// Sends bytes with any number of descriptors, as a hostile server does.
fn send_raw(socket: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    assert_eq!(
        sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL),
        Ok(bytes.len())
    );
}

/// What a client says of a server that sent exactly this, in raw messages, and closed.
fn verdict(messages: &[(i64, bool)]) -> Error {
    let (server, mut client) = pair();
    let descriptor = memory();
    for &(number, with) in messages {
        let descriptors = [descriptor.as_fd()];
        send_raw(&server, &number.to_le_bytes(), if with { &descriptors } else { &[] });
    }
    drop(server);
    loop {
        match client.receive() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a closed socket is not silent"),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_peer_gets_its_id_the_memory_and_all_doorbells() {
    let _leaks = NoLeaks::new();
    let (server, mut client) = pair();
    let (memory, own, other) = (memory(), doorbells(3), doorbells(3));
    let mut outbox = Outbox::welcome(5, &memory, [(9, &other[..])], &own);
    assert_eq!(outbox.len(), 3 + 6);
    assert_eq!(outbox.flush(&server), Ok(Progress::Done));
    client.settle(3, soon()).expect("a setup");
    assert_eq!(client.id(), Some(5));
    assert_eq!(inode(client.memory().expect("memory")), inode(&memory));
    assert_eq!(client.peers().collect::<Vec<_>>(), [5, 9]);
    client.ring(9, 2).expect("rung");
    assert_eq!(doorbell::drain(&other[2]), Ok(true), "vectors keep their order");
    assert_eq!(doorbell::drain(&other[1]), Ok(false));
    assert_eq!(client.ring(9, 3), Err(Error::NoDoorbell { peer: 9, vector: 3 }));
    assert_eq!(client.ring(8, 0), Err(Error::NoDoorbell { peer: 8, vector: 0 }));
}

/// Sources: QEMU's ivshmem-spec ("sends ... in this order"), and hw/misc/ivshmem.c, which waits for
/// the memory without serving anything else.
#[test]
fn the_memory_is_the_third_message_and_the_own_doorbells_come_last() {
    let _leaks = NoLeaks::new();
    let (server, mut client) = pair();
    let (memory, own, other) = (memory(), doorbells(2), doorbells(2));
    Outbox::welcome(1, &memory, [(0, &other[..]), (2, &other[..])], &own)
        .flush(&server)
        .expect("sent");
    drop(server);
    let mut order = Vec::new();
    let end = loop {
        match client.receive() {
            Ok(Some(message)) => order.push(message),
            Ok(None) => panic!("silent"),
            Err(error) => break error,
        }
    };
    let bell = Message::Doorbell;
    assert_eq!(
        order,
        [
            Message::Version,
            Message::Id(1),
            Message::Memory,
            bell(0),
            bell(0),
            bell(2),
            bell(2),
            bell(1),
            bell(1)
        ]
    );
    assert_eq!(end, Error::Closed, "what was sent before the server closed is all there");
}

#[test]
fn what_no_server_sends_is_a_named_error() {
    let _leaks = NoLeaks::new();
    assert_eq!(verdict(&[]), Error::Closed);
    assert_eq!(verdict(&[(1, false)]), Error::Version { theirs: 1 });
    assert_eq!(verdict(&[(0, true)]), Error::StrayDescriptor);
    assert_eq!(verdict(&[(0, false), (3, true)]), Error::StrayDescriptor);
    assert_eq!(verdict(&[(0, false), (-1, false)]), Error::Number { value: -1 });
    assert_eq!(verdict(&[(0, false), (65536, false)]), Error::Number { value: 65536 });
    assert_eq!(verdict(&[(0, false), (3, false), (-1, false)]), Error::NoMemory);
    assert_eq!(verdict(&[(0, false), (3, false), (-1, true), (-1, true)]), Error::SecondMemory);
    assert_eq!(
        verdict(&[(0, false), (3, false), (i64::MIN, true)]),
        Error::Number { value: i64::MIN }
    );
    assert_eq!(verdict(&[(0, false), (3, false), (3, false)]), Error::OwnDeparture);
}

#[test]
fn a_message_cut_short_says_so() {
    let _leaks = NoLeaks::new();
    let (mut server, mut client) = pair();
    server.write_all(&[0, 0, 0]).expect("written");
    assert_eq!(client.receive(), Ok(None));
    drop(server);
    assert_eq!(client.receive(), Err(Error::Truncated { bytes: 3 }));
}

#[test]
fn descriptors_in_excess_are_refused_and_closed() {
    let _leaks = NoLeaks::new();
    for count in [2, 3, 253] {
        let (server, mut client) = pair();
        let memory = memory();
        send_raw(&server, &0i64.to_le_bytes(), &vec![memory.as_fd(); count]);
        assert_eq!(client.receive(), Err(Error::ManyDescriptors), "{count}");
    }
    // One with each half of a message.
    let (server, mut client) = pair();
    let memory = memory();
    send_raw(&server, &[0; 4], &[memory.as_fd()]);
    send_raw(&server, &[0; 4], &[memory.as_fd()]);
    assert_eq!(client.receive(), Err(Error::ManyDescriptors));
}

#[test]
fn a_server_cannot_use_up_our_descriptors() {
    let _leaks = NoLeaks::new();
    let sent_until_refused = |peer: &dyn Fn(usize) -> u16| {
        let (server, mut client) = pair();
        let (memory, bell) = (memory(), doorbells(1));
        Outbox::welcome(0, &memory, [], &bell).flush(&server).expect("sent");
        client.settle(1, soon()).expect("a setup");
        for n in 1.. {
            let mut one = Outbox::new(1);
            one.push(Message::Doorbell(peer(n)), Some(bell[0].clone())).expect("room");
            one.flush(&server).expect("sent");
            if client.receive().is_err_and(|error| error == Error::ManyDoorbells) {
                return n;
            }
        }
        unreachable!()
    };
    assert_eq!(sent_until_refused(&|_| 7), usize::from(MAX_VECTORS) + 1);
    // The limit of descriptors may be lower here than what a client would keep.
    if rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .is_none_or(|most| most > 2 * MAX_DOORBELLS as u64)
    {
        assert_eq!(sent_until_refused(&|n| (n / 100) as u16), MAX_DOORBELLS);
    }
}

/// The rule for ids that are given again: a departed peer's doorbells are gone, and its successor's
/// begin with vector 0.
#[test]
fn an_id_that_is_used_again_has_the_new_doorbells() {
    let _leaks = NoLeaks::new();
    let (server, mut client) = pair();
    let (memory, own, first, second) = (memory(), doorbells(2), doorbells(2), doorbells(2));
    Outbox::welcome(0, &memory, [(1, &first[..])], &own).flush(&server).expect("sent");
    client.settle(2, soon()).expect("a setup");
    let mut later = Outbox::new(3);
    later.push(Message::Left(1), None).expect("room");
    for bell in &second {
        later.push(Message::Doorbell(1), Some(bell.clone())).expect("room");
    }
    assert_eq!(later.push(Message::Left(1), None), Err(Error::Overflow), "the queue is bounded");
    later.flush(&server).expect("sent");
    assert_eq!(client.receive(), Ok(Some(Message::Left(1))));
    assert_eq!(client.ring(1, 0), Err(Error::NoDoorbell { peer: 1, vector: 0 }));
    while client.receive().expect("honest").is_some() {}
    client.ring(1, 1).expect("rung");
    assert_eq!(doorbell::drain(&first[1]), Ok(false));
    assert_eq!(doorbell::drain(&second[1]), Ok(true));
}

#[test]
fn a_message_and_its_descriptor_go_together() {
    let _leaks = NoLeaks::new();
    let mut outbox = Outbox::new(9);
    assert_eq!(outbox.push(Message::Memory, None), Err(Error::NoMemory));
    assert_eq!(outbox.push(Message::Doorbell(1), None), Err(Error::NoMemory));
    assert_eq!(outbox.push(Message::Left(1), Some(memory())), Err(Error::StrayDescriptor));
    assert!(outbox.is_empty());
}

/// A joiner that reads nothing: sending stops, does not wait, and goes on where it stopped when the
/// joiner reads.
#[test]
fn a_joiner_that_does_not_read_is_never_waited_for() {
    let _leaks = NoLeaks::new();
    let (server, mut client) = pair();
    let (memory, many) = (memory(), doorbells(256));
    rustix::net::sockopt::set_socket_send_buffer_size(&server, 1).expect("set");
    let others: Vec<(u16, &[Arc<OwnedFd>])> = (1..=2).map(|peer| (peer, &many[..])).collect();
    let mut outbox = Outbox::welcome(0, &memory, others, &many[..2]);
    let (before, whole) = (Instant::now(), outbox.len());
    while outbox.flush(&server) == Ok(Progress::Full)
        && before.elapsed() < Duration::from_millis(50)
    {}
    let left = outbox.len();
    assert!(left > 0 && left < whole, "{left} of {whole}: the socket took some and not all");
    let reader = std::thread::spawn(move || client.settle(2, soon()).map(|()| client));
    while outbox.flush(&server).expect("a reader") != Progress::Done {
        std::thread::sleep(Duration::from_millis(1));
    }
    let client = reader.join().expect("no panic").expect("a setup");
    assert_eq!((client.doorbells(1).len(), client.doorbells(2).len()), (256, 256));
}

#[test]
fn a_joiner_that_is_gone_is_an_error_and_no_signal() {
    let _leaks = NoLeaks::new();
    let (server, client) = pair();
    drop(client);
    assert_eq!(Outbox::welcome(0, &memory(), [], &[]).flush(&server), Err(Error::Closed));
}

#[test]
fn a_silent_server_is_left_at_the_deadline() {
    let _leaks = NoLeaks::new();
    let (_server, mut client) = pair();
    assert_eq!(client.settle(1, Instant::now() + Duration::from_millis(20)), Err(Error::Timeout));
}

#[test]
fn a_refused_joiner_gets_a_whole_setup_with_another_memory() {
    let _leaks = NoLeaks::new();
    let (server, mut client) = pair();
    let dummy = memory();
    assert_eq!(Outbox::refusal(4, &dummy).flush(&server), Ok(Progress::Done));
    client.settle(0, soon()).expect("a setup");
    assert_eq!((client.id(), client.peers().count()), (Some(4), 0));
    assert_eq!(inode(client.memory().expect("memory")), inode(&dummy));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// However the bytes are cut into pieces, and wherever in its message a descriptor travels, the
    /// client understands the same.
    #[test]
    fn pieces_of_any_size_give_the_same_setup(cuts in prop::collection::vec(1..9usize, 1..64), late: bool) {
        let _leaks = NoLeaks::new();
        let (server, mut client) = pair();
        let (memory, bell) = (memory(), doorbells(1));
        let sent: [(i64, Option<&Arc<OwnedFd>>); 6] =
            [(0, None), (2, None), (-1, Some(&memory)), (7, Some(&bell[0])), (7, None), (2, Some(&bell[0]))];
        let mut cuts = cuts.into_iter().cycle();
        for (number, descriptor) in sent {
            let bytes = number.to_le_bytes();
            let mut at = 0;
            while at < 8 {
                let end = (at + cuts.next().expect("cycles")).min(8);
                // With the first piece, or with the last.
                let with = descriptor.filter(|_| if late { end == 8 } else { at == 0 });
                let descriptors: Vec<BorrowedFd<'_>> = with.iter().map(|fd| fd.as_fd()).collect();
                send_raw(&server, &bytes[at..end], &descriptors);
                if end < 8 {
                    prop_assert_eq!(client.receive(), Ok(None));
                }
                at = end;
            }
            prop_assert!(client.receive().expect("honest").is_some());
        }
        prop_assert_eq!(client.id(), Some(2));
        prop_assert!(client.memory().is_some());
        prop_assert_eq!(client.peers().collect::<Vec<_>>(), [2]);
    }

    /// Whatever a hostile server sends, the client says an error or understands, keeps nothing
    /// open, and never waits.
    #[test]
    fn garbage_is_refused_and_leaves_nothing_open(pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..20), 0..4usize), 0..20), honest_start: bool) {
        let _leaks = NoLeaks::new();
        let (server, mut client) = pair();
        let memory = memory();
        if honest_start {
            Outbox::welcome(1, &memory, [], &[]).flush(&server).expect("sent");
        }
        for (bytes, descriptors) in &pieces {
            send_raw(&server, bytes, &vec![memory.as_fd(); *descriptors]);
        }
        drop(server);
        let most = 3 + pieces.iter().map(|(bytes, _)| bytes.len()).sum::<usize>() / 8 + 1;
        let mut received = 0;
        while client.receive().is_ok_and(|message| message.is_some()) {
            received += 1;
        }
        prop_assert!(received <= most);
    }
}
