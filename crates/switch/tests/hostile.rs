//! Guests and front ends that mean harm, are stuck, or die: their own port alone suffers.

use crate::common::{ALL, Lab, PATIENCE, alone, frame, mac, next, talk};
use ginnel_switch::front_end::{FrontEnd, GUEST, Options};
use ginnel_switch::vhost::message::{Head, Request};
use rustix::event::{EventfdFlags, eventfd};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const PORTS: &str = "[port.a]\n[port.b]\n[port.evil]\n";

/// Two guests that mind their own business, and a third.
struct Bystanders {
    lab: Lab,
    a: FrontEnd,
    b: FrontEnd,
}

impl Bystanders {
    fn new() -> Self {
        let lab = Lab::new(PORTS);
        let [a, b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
        let mut all = Self { lab, a, b };
        all.undisturbed();
        all
    }

    fn undisturbed(&mut self) {
        // What the third may have sent before.
        while self.a.receive(0).is_some() {}
        while self.b.receive(0).is_some() {}
        talk((&mut self.a, 1), (&mut self.b, 2));
        talk((&mut self.b, 2), (&mut self.a, 1));
    }

    fn evil(&self) -> FrontEnd {
        self.lab.guest("evil", Options::default())
    }

    /// The third is let go by the switch.
    fn is_let_go(&mut self, evil: &mut FrontEnd, why: &str) {
        let began = Instant::now();
        while evil.socket.read(&mut [0; 512]).is_ok_and(|len| len > 0) {
            assert!(began.elapsed() < PATIENCE);
        }
        let port = self.lab.until("evil", |port| port.state == "waiting");
        let trouble = port.trouble.unwrap_or_default();
        assert!(trouble.contains(why), "{trouble:?} should say {why:?}");
        self.undisturbed();
    }
}

#[test]
fn a_guest_that_breaks_a_rule_breaks_its_own_queue() {
    let mut all = Bystanders::new();
    for (at, flags, next) in [(0, 0, 0), (GUEST, 1, 0), (GUEST, 1, 999), (GUEST, 2, 0)] {
        let mut evil = all.evil();
        assert!(evil.send(1, &frame(ALL, mac(3), 50, 1)));
        evil.describe(1, 0, at, 64, flags, next);
        evil.offer(1, 0);
        evil.kick(1);
        let port = all.lab.until("evil", |port| port.state == "broken");
        assert!(port.trouble.is_some_and(|why| why.starts_with("queue 1")));
        all.undisturbed();
        // Set up again, as by a guest that is booted again, it works.
        evil.question(Request::GetVringBase, &[1, 0, 0, 0, 0, 0, 0, 0]).expect("stopped");
        drop(evil);
        let mut evil = all.evil();
        talk((&mut evil, 3), (&mut all.a, 1));
    }
}

#[test]
fn a_receiver_that_offers_nonsense_breaks_its_own_queue() {
    let mut all = Bystanders::new();
    let mut evil = all.evil();
    talk((&mut evil, 3), (&mut all.a, 1));
    for index in 0..256 {
        evil.describe(0, index, 1, u32::MAX, 2, 0);
    }
    assert!(all.a.send(1, &frame(mac(3), mac(1), 50, 1)));
    let port = all.lab.until("evil", |port| port.state == "broken");
    assert_eq!(port.missed.get("receiver_broken"), Some(&1));
    all.undisturbed();
}

#[test]
fn memory_that_goes_away_takes_its_port_along() {
    let mut all = Bystanders::new();
    for busy in [false, true] {
        let cuttable = Options { sealed: false, ..Options::default() };
        let mut evil = all.lab.guest("evil", cuttable);
        talk((&mut evil, 3), (&mut all.a, 1));
        if busy {
            for n in 0..100 {
                evil.send(1, &frame(ALL, mac(3), 1000, n));
            }
        }
        rustix::fs::ftruncate(&evil.file, 0).expect("cut");
        // A frame for it: the switch writes where there is no memory any more.
        all.b.send(1, &frame(mac(3), mac(2), 50, 1));
        all.is_let_go(&mut evil, "cut short");
    }
}

#[test]
fn eventfds_that_would_block_block_nobody() {
    let mut all = Bystanders::new();
    let mut evil = all.evil();
    // Full, and blocking: whoever writes to it plainly sleeps for ever.
    let full = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).expect("filled");
    let empty = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    for queue in 0..2u64 {
        evil.tell(Request::SetVringCall, &queue.to_le_bytes(), &[&full]).expect("told");
        evil.tell(Request::SetVringErr, &queue.to_le_bytes(), &[&full]).expect("told");
        evil.tell(Request::SetVringKick, &queue.to_le_bytes(), &[&empty]).expect("told");
    }
    evil.number(Request::GetFeatures, &[]).expect("heard");
    rustix::io::write(&empty, &1u64.to_ne_bytes()).expect("kicked");
    for _ in 0..10 {
        assert!(all.a.send(1, &frame(ALL, mac(1), 50, 1)));
        assert!(next(&mut all.b).is_some());
        evil.arm(0);
    }
    all.undisturbed();
    // What is no eventfd is not taken.
    let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
    evil.tell(Request::SetVringKick, &1u64.to_le_bytes(), &[&pipe]).expect("told");
    all.is_let_go(&mut evil, "eventfd");
}

#[test]
fn front_ends_that_talk_nonsense_are_let_go() {
    let mut all = Bystanders::new();
    let word = |number: u64| number.to_le_bytes().to_vec();
    let table = |regions: &[[u64; 4]]| {
        let words = regions.iter().flatten().flat_map(|word| word.to_le_bytes());
        word(regions.len() as u64).into_iter().chain(words).collect::<Vec<u8>>()
    };
    let cases: [(Request, Vec<u8>, usize, &str); 15] = [
        (Request::SetFeatures, word(1 << 63), 0, "not offered"),
        (Request::SetProtocolFeatures, word(1 << 60), 0, "not offered"),
        (Request::SetFeatures, vec![0; 7], 0, "payload"),
        (Request::SetVringNum, vec![9, 0, 0, 0, 1, 0, 0, 0], 0, "no queue 9"),
        (Request::SetVringErr, word(200 | 1 << 8), 0, "no queue 200"),
        (Request::SetVringKick, word(1 | 1 << 8), 0, "without an eventfd"),
        (Request::SetVringCall, word(1), 0, "descriptors"),
        (Request::SetOwner, vec![], 1, "descriptors"),
        (Request::SetMemTable, table(&[[0, 4096, 0, 0]]), 0, "descriptors"),
        (Request::SetMemTable, table(&[[0, 1 << 30, 0, 0]]), 1, "shorter"),
        (Request::SetMemTable, table(&[[0, 1 << 60, 0, 0]]), 1, "raise its `memory`"),
        (Request::SetMemTable, table(&[[0, 4096, 0, u64::MAX]]), 1, "makes no sense"),
        (Request::SetMemTable, table(&[[0, 4096, 0, 0], [100, 4096, 1 << 20, 0]]), 2, "overlap"),
        (Request::RemMemReg, vec![0; 40], 0, "no such region"),
        (Request::NetSetMtu, word(67), 0, "MTU"),
    ];
    for (request, payload, descriptors, why) in cases {
        let mut evil = all.evil();
        let file = evil.file.try_clone().expect("a copy");
        let beside: Vec<&OwnedFd> = vec![&file; descriptors];
        evil.tell(request, &payload, &beside).expect("told");
        all.is_let_go(&mut evil, why);
    }
    for bytes in [vec![0; 12], vec![255; 12], b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let mut evil = all.evil();
        evil.raw(&bytes, &[]).expect("told");
        all.is_let_go(&mut evil, "flags");
    }
}

#[test]
fn half_a_message_holds_up_nobody() {
    let mut all = Bystanders::new();
    let evil = all.evil();
    let whole =
        [&Head { request: Request::SetVringNum, need_reply: false, size: 8 }.bytes()[..], &[0; 8]]
            .concat();
    for byte in &whole[..whole.len() - 1] {
        evil.raw(&[*byte], &[]).expect("told");
        std::thread::sleep(Duration::from_millis(1));
    }
    all.undisturbed();
    assert_eq!(all.lab.port("evil").state, "up");
}

#[test]
fn answers_that_nobody_reads_end_a_connection() {
    let mut all = Bystanders::new();
    let mut evil = all.evil();
    let question = Head { request: Request::GetFeatures, need_reply: false, size: 0 }.bytes();
    let began = Instant::now();
    while evil.raw(&question, &[]).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it is never let go");
    }
    all.is_let_go(&mut evil, "does not read");
}

#[test]
fn one_front_end_has_a_port_and_another_has_it_after() {
    let mut all = Bystanders::new();
    let mut evil = all.evil();
    let mut second = UnixStream::connect(all.lab.socket("evil")).expect("connected");
    assert_eq!(second.read(&mut [0; 8]).expect("closed"), 0);
    talk((&mut evil, 3), (&mut all.a, 1));
    // One that dies is followed at once: its end is seen when the next one comes.
    for _ in 0..20 {
        drop(evil);
        evil = all.evil();
    }
    while all.b.receive(0).is_some() {}
    talk((&mut evil, 3), (&mut all.a, 1));
    all.undisturbed();
}

#[test]
fn kicks_without_end_keep_others_from_nothing() {
    let mut all = Bystanders::new();
    let evil = all.evil();
    let kick = evil.queues[1].kick.try_clone().expect("a copy");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let none = std::sync::mpsc::TryRecvError::Empty;
        while stopped.try_recv() == Err(none) {
            let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        }
    });
    for _ in 0..20 {
        all.undisturbed();
    }
    drop(stop);
    thread.join().expect("no panic");
}

#[test]
fn a_flood_leaves_others_their_turns() {
    let mut all = Bystanders::new();
    let mut evil = all.evil();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let none = std::sync::mpsc::TryRecvError::Empty;
        while stopped.try_recv() == Err(none) {
            // To somebody who is not there, so that it goes to all.
            evil.send(1, &frame(mac(9), mac(3), 60, 1));
        }
    });
    // Their buffers are full of it: what one of them sends comes through between.
    let (began, wanted) = (Instant::now(), frame(mac(2), mac(1), 50, 77));
    let mut got = 0;
    while got < 20 {
        assert!(began.elapsed() < PATIENCE, "{got}");
        all.a.send(1, &wanted);
        while let Some(frame) = all.b.receive(0) {
            got += u32::from(frame == wanted);
        }
        while all.a.receive(0).is_some() {}
    }
    drop(stop);
    thread.join().expect("no panic");
}

/// A file of holes: it costs nothing but addresses.
fn holes(bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("holes", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
    rustix::fs::ftruncate(&file, bytes).expect("long");
    file
}

#[test]
fn memory_without_end_is_not_mapped() {
    let mut all = Bystanders::new();
    // More than the addresses that this process has, in pieces that it would still find.
    let file = holes(1 << 43);
    for size in [1 << 42, 1 << 38] {
        let mut evil = all.evil();
        for n in 1..64u64 {
            let at = n * size;
            let words = [0, at, size, at, 0].map(u64::to_le_bytes).concat();
            if evil.tell(Request::AddMemReg, &words, &[&file]).is_err() {
                break;
            }
        }
        all.is_let_go(&mut evil, "raise its `memory`");
    }
    // What one may have is not what others have taken.
    let lab = Lab::new("memory = \"96M\"\n[port.a]\n[port.b]\n[port.c]\nmemory = \"64M\"\n");
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    let share = |guest: &FrontEnd, size: u64| {
        let words = [0, 1 << 40, size, 1 << 40, 0].map(u64::to_le_bytes).concat();
        guest.tell(Request::AddMemReg, &words, &[&holes(size)]).expect("told");
    };
    share(&a, 33 << 20);
    lab.until("a", |port| port.trouble.as_ref().is_some_and(|why| why.contains("than the 32 MiB")));
    let [c, d] = ["c", "a"].map(|name| lab.guest(name, Options::default()));
    share(&c, 60 << 20);
    lab.until("c", |port| port.state == "up" && port.trouble.is_none());
    share(&b, 30 << 20);
    share(&d, 30 << 20);
    lab.until("b", |port| port.state == "waiting" || lab.port("a").state == "waiting");
    let trouble = [lab.port("a").trouble, lab.port("b").trouble];
    assert!(
        trouble.iter().flatten().any(|why| why.contains("all machines together")),
        "{trouble:?}"
    );
}

/// A socket whose last close waits for so long: its peer does not take what it sent.
pub fn lingering(seconds: u64) -> OwnedFd {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let socket = std::net::TcpStream::connect(address).expect("connected");
    // Never read, and never closed.
    std::mem::forget((listener.accept().expect("accepted"), listener));
    socket.set_nonblocking(true).expect("set");
    while std::io::Write::write(&mut &socket, &[0; 65536]).is_ok() {}
    let long = Duration::from_secs(seconds);
    rustix::net::sockopt::set_socket_linger(&socket, Some(long)).expect("set");
    socket.into()
}

#[test]
fn a_close_that_waits_holds_up_its_port_alone() {
    if !alone("hostile::a_close_that_waits_holds_up_its_port_alone") {
        return;
    }
    let mut all = Bystanders::new();
    let mut evil = all.evil();
    let began = Instant::now();
    // Beside a message that is heard. It comes in two parts, so that the switch has the last copy.
    let wrong = [255; 12];
    let waits = 3;
    evil.raw(&wrong[..11], &[&lingering(waits)]).expect("told");
    evil.raw(&wrong[11..], &[]).expect("told");
    all.is_let_go(&mut evil, "flags");
    // The next front end waits until that is closed. Then the switch lets it go, too, with what it
    // never heard.
    let next = UnixStream::connect(all.lab.socket("evil")).expect("connected");
    let next = FrontEnd::prepare(next, Options::default()).expect("made");
    next.raw(&wrong, &[]).expect("told");
    next.raw(&wrong, &[&lingering(120)]).expect("told");
    all.undisturbed();
    // On a busy machine it may be over by now.
    let heard = all.lab.port("evil").connections;
    assert!(heard == 1 || began.elapsed() >= Duration::from_secs(waits), "{heard}");
    all.lab.until("evil", |port| port.connections == 2 && port.state == "waiting");
    all.undisturbed();
    assert!(began.elapsed() < Duration::from_secs(60), "the switch waited for it");
}

#[test]
fn a_file_of_a_filesystem_that_never_answers_is_not_asked() {
    if !alone("hostile::a_file_of_a_filesystem_that_never_answers_is_not_asked") {
        return;
    }
    let Some(deaf) = crate::common::fuse::Deaf::mount() else {
        eprintln!("skipped: needs root and /dev/fuse");
        return;
    };
    let mut all = Bystanders::new();
    let table = [1, 0, 4096, 0, 0].map(u64::to_le_bytes).concat();
    let index = 1u64.to_le_bytes();
    for (request, payload, why) in [
        (Request::SetMemTable, &table[..], "neither tmpfs nor hugetlbfs"),
        (Request::SetVringKick, &index, "eventfd"),
    ] {
        let mut evil = all.evil();
        evil.tell(request, payload, &[deaf.file()]).expect("told");
        all.is_let_go(&mut evil, why);
        if request == Request::SetMemTable {
            // The port waits for the first file to be closed.
            all = Bystanders::new();
        }
    }
}
