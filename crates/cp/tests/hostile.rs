//! A peer that keeps to no rule: a client that writes whatever it likes into a server's queues, and
//! a server that does so to a client. Nothing outside is touched, nothing hangs, and the next
//! honest one is served.

mod server;

use crate::stage::{Place, bytes, chance, names};
use ginnel::{Queue, Receiver, Segment, Sender};
use ginnel_cp::wire::{self, Action, Entry, Hello, Message, Meta, Order, Record, VERSION, Want};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(5);

/// This process, at one end.
struct Peer {
    tx: Sender,
    rx: Receiver,
}

impl Peer {
    /// As a client of the server s.
    fn client(segment: &Segment) -> Self {
        let id = 0x1000 + chance(1 << 60);
        let [to, from] = wire::queues("s", id);
        for name in [&to, &from] {
            let queue = Queue::new().message_size(256 << 10).capacity(8).senders(1).loans(2);
            queue.create(segment, name).expect("made");
        }
        let peer = Self {
            tx: Sender::open(segment, &to).expect("ours").of_one_receiver(),
            rx: Receiver::open(segment, &from).expect("ours"),
        };
        knock(segment, id);
        assert!(matches!(peer.hears(), Some(Message::Welcome { .. })), "it is welcome");
        // They go with their last user.
        for name in [&to, &from] {
            segment.remove(name).expect("there");
        }
        peer
    }

    fn says(&self, message: &Message) {
        self.puts(&[], message);
    }

    fn puts(&self, data: &[u8], message: &Message) {
        self.raw(&[data, &wire::encode(message)].concat());
    }

    fn raw(&self, bytes: &[u8]) {
        // A peer that has left or does not take it is as good.
        if let Ok(mut loan) = self.tx.loan_timeout(bytes.len(), WAIT) {
            loan.write(0, bytes);
            let _ = loan.send();
        }
    }

    /// What is said, but where the destination is.
    fn hears(&self) -> Option<Message> {
        loop {
            let bytes = self.rx.recv_timeout(WAIT).ok()?.to_vec();
            let (body, len) = bytes.split_at(bytes.len().checked_sub(4)?);
            let len = u32::from_le_bytes(len.try_into().ok()?) as usize;
            match wire::decode(&body[body.len() - len..])? {
                Message::Base(_) => {}
                other => return Some(other),
            }
        }
    }

    /// What it gives up with.
    fn is_refused(&self) -> String {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            match self.rx.recv_timeout(Duration::from_millis(200)) {
                Ok(message) => {
                    let bytes = message.to_vec();
                    let (body, len) = bytes.split_at(bytes.len() - 4);
                    let len = u32::from_le_bytes(len.try_into().expect("four")) as usize;
                    if let Some(Message::Fail { text, .. }) =
                        wire::decode(&body[body.len() - len..])
                    {
                        return text;
                    }
                }
                Err(ginnel::Error::TimedOut) => {}
                Err(_) => return "it left".into(),
            }
        }
        panic!("it goes on");
    }
}

fn knock(segment: &Segment, id: u64) {
    let hello = Hello { magic: wire::MAGIC, version: VERSION, id };
    let mut bytes = postcard_of(&hello);
    bytes.truncate(64);
    Sender::open(segment, &wire::door("s")).expect("served").send(&bytes).expect("room");
}

fn postcard_of(hello: &Hello) -> Vec<u8> {
    postcard::to_stdvec(hello).expect("small")
}

fn path(text: &[u8]) -> serde_bytes::ByteBuf {
    serde_bytes::ByteBuf::from(text.to_vec())
}

const META: Meta = Meta { mode: 0o6777, mtime: 1, nanos: u32::MAX, uid: 0, gid: 0 };

fn file(name: &[u8], size: u64) -> Entry {
    Entry::File { path: path(name), meta: META, size }
}

fn dir(name: &[u8]) -> Entry {
    Entry::Dir { path: path(name), meta: META }
}

fn link(name: &[u8], target: &[u8]) -> Entry {
    Entry::Link { path: path(name), meta: META, target: path(target) }
}

fn all() -> Order {
    let on = true;
    Order {
        recursive: on,
        links: on,
        perms: on,
        times: on,
        owner: on,
        group: on,
        ..Order::default()
    }
}

/// What is outside of the root, and has to stay so.
fn outside(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in names(place.path("").as_path()) {
        let content = fs::read(place.path(&name)).unwrap_or_default();
        all.insert(name, content);
    }
    all.insert("here".into(), names(&place.path("here")).join(" ").into_bytes());
    all
}

fn still_serves(place: &Place) {
    fs::write(place.here("honest"), "honest").expect("written");
    place.copies(&["-I", "honest", "s:honest"]);
    assert_eq!(fs::read_to_string(place.root("honest")).expect("there"), "honest");
}

#[test]
fn a_client_that_writes_what_it_likes_stays_inside() {
    let place = Place::new();
    let _server = place.serve(&["--writable", "--timeout", "3"]);
    let segment = place.segment();
    fs::write(place.path("secret"), "secret").expect("written");
    still_serves(&place);
    let was = outside(&place);
    let put = |to: &[u8]| {
        let peer = Peer::client(&segment);
        peer.says(&Message::Put { order: all(), to: path(to) });
        peer.says(&Message::Start { single: false });
        peer
    };
    let list = |entries: Vec<Entry>| Message::List { batch: 0, entries };
    for to in ["../", "/../x/", "a/../../x/", "x\0y", "/"] {
        let peer = put(to.as_bytes());
        if to == "/" {
            peer.says(&Message::List { batch: 1, entries: vec![] });
        }
        peer.is_refused();
    }
    let long = vec![b'x'; 300];
    for name in [&b".."[..], b"../x", b"/x", b"a/../../x", b"a//b", b"a\0b", b".", &long] {
        for entry in [
            file(name, 1),
            dir(name),
            link(name, b"x"),
            Entry::Left { path: path(name), meta: META },
        ] {
            let peer = put(b"");
            peer.says(&list(vec![entry]));
            assert!(peer.is_refused().contains("broke"), "{name:?}");
        }
    }
    // Through a link that it makes itself.
    let peer = put(b"");
    peer.says(&list(vec![
        link(b"up", b".."),
        dir(b"d"),
        link(b"d/in", b"../.."),
        file(b"up/x", 1),
        dir(b"up/made"),
        Entry::Left { path: path(b"up"), meta: META },
    ]));
    let mut wants = None;
    while wants.is_none() {
        match peer.hears().expect("an answer") {
            Message::Wants { wants: its, .. } => wants = Some(its),
            Message::Note(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(wants.expect("heard").iter().all(|want| *want == Want::Nothing));
    drop(peer);
    assert_eq!(outside(&place), was);
    assert!(fs::symlink_metadata(place.root("up")).is_err(), "links that lead out are not taken");
    still_serves(&place);
}

#[test]
fn data_that_does_not_fit_is_refused() {
    let place = Place::new();
    let _server = place.serve(&["--writable", "--timeout", "3"]);
    let segment = place.segment();
    fs::write(place.root("f"), "old").expect("written");
    let begin = |entry, from, size| Record::Begin { entry, from, size, meta: META };
    let piece = |at, pos, len| Record::Bytes { at, pos, len };
    let attacks: Vec<Vec<Record>> = vec![
        vec![Record::BatchEnd],
        vec![Record::End],
        vec![piece(0, 0, 1)],
        vec![begin(7, 0, 10)],
        vec![begin(u32::MAX, 0, 10)],
        vec![begin(1, 0, 10)],
        vec![begin(0, 1, 10)],
        vec![begin(0, 0, u64::MAX)],
        vec![begin(0, 0, 10), piece(0, 0, 11)],
        vec![begin(0, 0, 10), piece(u64::MAX, 0, 1)],
        vec![begin(0, 0, 10), piece(5, 0, 5), piece(0, 0, 5)],
        vec![begin(0, 0, 1 << 40), piece(0, 0, 101)],
        vec![begin(0, 0, 1 << 40), piece(0, u32::MAX, 1)],
        vec![begin(0, 0, 1 << 40), piece(0, 99, u32::MAX)],
        vec![begin(0, 0, 10), Record::BatchEnd],
        vec![Record::Drop { entry: 9 }],
        vec![Record::Drop { entry: 0 }, begin(0, 0, 1)],
    ];
    for attack in attacks {
        let peer = Peer::client(&segment);
        peer.says(&Message::Put { order: all(), to: path(b"") });
        peer.says(&Message::Start { single: false });
        peer.says(&Message::List { batch: 0, entries: vec![file(b"f", 10), dir(b"d")] });
        peer.puts(&[b'x'; 100], &Message::Data(attack.clone()));
        let text = peer.is_refused();
        assert!(text.contains("broke") || text.contains("writing it"), "{attack:?}: {text}");
        assert_eq!(fs::read_to_string(place.root("f")).expect("there"), "old", "{attack:?}");
    }
    let mut left = names(&place.path("root"));
    left.retain(|name| name != "d");
    assert_eq!(left, ["f"], "nothing half written is left");
    still_serves(&place);
}

fn garbage(rounds: u64) {
    let place = Place::new();
    let server = place.serve(&["--writable", "--timeout", "3"]);
    let segment = place.segment();
    fs::write(place.path("secret"), "secret").expect("written");
    still_serves(&place);
    let was = outside(&place);
    for round in 0..rounds {
        let seed = chance(u64::MAX);
        let noise = bytes(seed, 4096);
        // At the door.
        let len = noise[0] as usize % 64;
        let door = Sender::open(&segment, &wire::door("s")).expect("served");
        let _ = door.loan_timeout(len, WAIT).map(|mut loan| {
            loan.write(0, &noise[..len]);
            let _ = loan.send();
        });
        drop(door);
        knock(&segment, seed);
        let peer = Peer::client(&segment);
        if round % 2 == 0 {
            peer.says(&Message::Put { order: all(), to: path(b"") });
        } else {
            peer.says(&Message::Get(all()));
            peer.says(&Message::Source(path(&noise[..len])));
            peer.says(&Message::Go);
        }
        for part in noise.chunks(512) {
            // Bytes that are none, lengths that lie, and words out of turn.
            let mut spoilt =
                wire::encode(&Message::List { batch: 0, entries: vec![file(b"x", 3), dir(b"y")] });
            let at = part[0] as usize % spoilt.len();
            spoilt[at] ^= part[1] | 1;
            match part[2] % 6 {
                0 => peer.raw(part),
                1 => peer.raw(&part[..usize::from(part[3]) % 8]),
                2 => peer.raw(&spoilt),
                3 => peer.says(&Message::Wants {
                    batch: part[3].into(),
                    wants: vec![Want::Whole; part[4].into()],
                }),
                4 => peer
                    .says(&Message::Done { batch: 0, actions: vec![Action::Same; part[4].into()] }),
                _ => peer.says(&Message::Start { single: part[3] % 2 == 0 }),
            }
        }
        peer.is_refused();
    }
    assert_eq!(outside(&place), was);
    still_serves(&place);
    let rss = fs::read_to_string(format!("/proc/{}/status", server.0.0.id())).expect("it lives");
    let peak = rss.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kilobytes < 200_000, "{kilobytes} kB");
}

#[test]
fn a_client_that_sends_garbage_costs_the_server_nothing() {
    garbage(30);
}

#[test]
#[ignore = "test-all: as above, thousands of times"]
fn a_client_that_sends_garbage_for_long_costs_the_server_nothing() {
    garbage(3000);
}

#[test]
fn clients_that_say_nothing_are_left() {
    let place = Place::new();
    let _server = place.serve(&["--timeout", "1", "--sessions", "4"]);
    let segment = place.segment();
    fs::write(place.root("f"), "f").expect("written");
    let silent: Vec<Peer> = (0..4).map(|_| Peer::client(&segment)).collect();
    let said = place.cp(&["s:f", "."]);
    assert!(said.code == Some(5) && said.err.contains("too many"), "{said:?}");
    for peer in &silent {
        assert!(peer.is_refused().contains("silent"));
    }
    crate::stage::until("there is room", || place.cp(&["s:f", "."]).code == Some(0));
}

/// Names that it has the server remember are as many bytes as they are, not only as many.
#[test]
#[ignore = "test-all: half a gigabyte of names"]
fn a_client_cannot_fill_the_servers_memory_with_names() {
    let place = Place::new();
    let server = place.serve(&["--writable", "--timeout", "20"]);
    let segment = place.segment();
    still_serves(&place);
    let peer = Peer::client(&segment);
    peer.says(&Message::Put { order: Order { delete: true, ..all() }, to: path(b"") });
    peer.says(&Message::Start { single: false });
    let long = |number: u32| {
        let mut name = format!("{number:08}").into_bytes();
        name.extend(b"/y".repeat(2000));
        dir(&name)
    };
    let mut refused = None;
    for batch in 0..12_000u32 {
        let entries = (0..15).map(|at| long(batch * 15 + at)).collect();
        peer.says(&Message::List { batch, entries });
        peer.says(&Message::Data(vec![Record::BatchEnd]));
        loop {
            match peer.hears() {
                Some(Message::Done { .. }) => break,
                Some(Message::Fail { text, .. }) => refused = Some(text),
                Some(_) => {}
                None => refused = refused.or(Some("it left".into())),
            }
            if refused.is_some() {
                break;
            }
        }
        if refused.is_some() {
            break;
        }
    }
    let text = refused.expect("700 MB of names are remembered");
    assert!(text.contains("more names than there is room for"), "{text}");
    drop(peer);
    still_serves(&place);
    drop(server);
}
