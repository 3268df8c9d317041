//! A server that keeps to no rule, and real clients.

use super::{META, Peer, dir, file, link, outside, path};
use crate::stage::{Guarded, Place, names};
use ginnel::{Queue, Receiver, Sender};
use ginnel_cp::wire::{self, Entry, Hello, Message, Order, Record, VERSION};
use std::fs;
use std::time::{Duration, Instant};

/// Plays a server to a real client, which is started with `args`.
pub(super) fn serve(place: &Place, args: &[&str], play: impl FnOnce(&Peer)) -> crate::stage::Said {
    let segment = place.segment();
    let door = wire::door("s");
    let _ = segment.remove(&door);
    Queue::new()
        .message_size(64)
        .capacity(4)
        .senders(64)
        .loans(1)
        .create(&segment, &door)
        .expect("made");
    let receiver = Receiver::open(&segment, &door).expect("ours");
    let client: Guarded = place.start(args);
    let hello = receiver.recv_timeout(Duration::from_secs(20)).expect("it knocks").to_vec();
    let (hello, _) = postcard::take_from_bytes::<Hello>(&hello).expect("a greeting");
    let [to, from] = wire::queues("s", hello.id);
    let peer = Peer {
        rx: Receiver::open(&segment, &to).expect("made"),
        tx: Sender::open(&segment, &from).expect("made").of_one_receiver(),
    };
    peer.says(&Message::Welcome { version: VERSION, writable: true });
    play(&peer);
    drop(peer);
    client.ends()
}

#[test]
fn a_server_cannot_make_a_client_write_elsewhere() {
    let place = Place::new();
    fs::create_dir(place.here("in")).expect("made");
    fs::write(place.path("secret"), "secret").expect("written");
    fs::write(place.here("kept"), "kept").expect("written");
    let was = outside(&place);
    let given = |entries: Vec<Entry>| {
        let said = serve(&place, &["-a", "s:/asked", "in/"], |peer| {
            peer.says(&Message::Start { single: false });
            let count = u32::try_from(entries.len()).expect("few");
            let deliver = |entry| {
                let begin = Record::Begin { entry, from: 0, size: 4, meta: META };
                vec![begin, Record::Bytes { at: 0, pos: 0, len: 4 }, Record::End]
            };
            peer.says(&Message::List { batch: 0, entries });
            peer.puts(b"evil", &Message::Data((0..count).flat_map(deliver).collect()));
        });
        assert_ne!(said.code, Some(0), "{said:?}");
        assert_eq!(outside(&place), was, "{said:?}");
        said
    };
    // Names that were not asked for, or lead out.
    for name in
        [&b".bashrc"[..], b"../kept", b"/tmp/x", b"asked/../../kept", b"asked/..", b"", b"askedx"]
    {
        let said = given(vec![file(name, 4)]);
        assert!(said.code == Some(12) && said.err.contains("broke"), "{said:?}");
        assert_eq!(names(&place.here("in")), Vec::<String>::new(), "{name:?}");
    }
    // Through links.
    let said = given(vec![link(b"asked", b".."), file(b"asked/kept", 4)]);
    assert!(said.code == Some(12), "{said:?}");
    let said = given(vec![dir(b"asked"), link(b"asked/up", b"../.."), file(b"asked/up/kept", 4)]);
    assert!(said.code == Some(12), "{said:?}");
    fs::remove_dir_all(place.here("in")).expect("removed");
    fs::create_dir(place.here("in")).expect("made");
    // What is asked for by its own name, as another's.
    let said = serve(&place, &["s:/asked", "in/name"], |peer| {
        peer.says(&Message::Start { single: true });
        peer.says(&Message::List { batch: 0, entries: vec![file(b"asked", 4), file(b"asked", 4)] });
    });
    assert_eq!((said.code, names(&place.here("in"))), (Some(12), vec![]), "{said:?}");
}

#[test]
fn a_server_cannot_have_more_deleted_than_was_meant() {
    let place = Place::new();
    fs::create_dir_all(place.here("in/asked")).expect("made");
    fs::write(place.here("in/kept"), "kept").expect("written");
    for listed in [&b""[..], b"asked", b"other"] {
        let said = serve(&place, &["-a", "--delete", "s:/asked", "in"], |peer| {
            peer.says(&Message::Start { single: false });
            peer.says(&Message::List {
                batch: 0,
                entries: vec![Entry::Listed { path: path(listed), whole: true }],
            });
            peer.puts(&[], &Message::Data(vec![Record::BatchEnd]));
        });
        assert_eq!(said.code, Some(12), "{said:?}");
        assert_eq!(names(&place.here("in")), ["asked", "kept"]);
    }
}

#[test]
fn a_server_that_stops_lies_or_floods_ends_the_copy() {
    let place = Place::new();
    let quick = |play: &dyn Fn(&Peer)| {
        let began = Instant::now();
        let said = serve(&place, &["--timeout", "1", "s:/f", "."], play);
        assert!(began.elapsed() < Duration::from_secs(15), "{said:?}");
        assert_eq!(names(&place.path("here")), Vec::<String>::new());
        said
    };
    let said = quick(&|_| std::thread::sleep(Duration::from_secs(2)));
    assert_eq!(said.code, Some(30), "{said:?}");
    let said = quick(&|_| {});
    assert_eq!(said.code, Some(12), "it leaves: {said:?}");
    let said = quick(&|peer| {
        peer.says(&Message::Start { single: true });
        peer.says(&Message::List { batch: 0, entries: vec![file(b"f", 1 << 40)] });
        let begin = Record::Begin { entry: 0, from: 0, size: 1 << 40, meta: META };
        peer.puts(
            &[7; 1000],
            &Message::Data(vec![begin, Record::Bytes { at: 1 << 39, pos: 0, len: 1000 }]),
        );
    });
    assert_eq!(said.code, Some(12), "{said:?}");
    let said = quick(&|peer| {
        for batch in 0..40 {
            peer.says(&Message::List { batch, entries: vec![file(b"f", 1)] });
        }
    });
    assert_eq!(said.code, Some(12), "{said:?}");
    for len in [0u32, 1, 5, 70_000, u32::MAX] {
        let said = quick(&|peer| peer.raw(&[&[6; 80_000][..], &len.to_le_bytes()].concat()));
        assert_eq!(said.code, Some(12), "{said:?}");
    }
    let said =
        quick(&|peer| peer.says(&Message::Fail { code: 99, text: "\u{1b}[2Jgone".repeat(50) }));
    assert!(said.code == Some(12) && !said.err.contains('\u{1b}'), "{said:?}");
    let said = serve(&place, &["-r", "s:/f", "."], |peer| {
        peer.says(&Message::Note(wire::Note::Problem {
            path: path(b"\x1b[2J"),
            text: "\u{7}".into(),
            vanished: false,
        }));
        peer.says(&Message::Start { single: false });
        peer.says(&Message::Finish);
        assert_eq!(
            peer.hears(),
            Some(Message::Get(Order { recursive: true, chunk: u32::MAX, ..Order::default() }))
        );
        while peer.hears().is_some_and(|message| message != Message::Finish) {}
    });
    assert!(
        said.code == Some(23)
            && said.err.chars().all(|letter| letter == '\n' || !letter.is_control()),
        "{said:?}"
    );
}
