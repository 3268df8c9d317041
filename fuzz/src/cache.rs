//! ginnel-cache: what clients send, and what a server writes into the memory that neighbours read.

use crate::Bytes;
use ginnel_cache::layout::{Item, Slot};
use ginnel_cache::protocol::{Connections, Context, Session, Settings};
use ginnel_cache::reader::{Look, Reader};
use ginnel_cache::store::{Limits, Put, Store};

/// Pieces of which commands are made.
const PIECES: [&str; 40] = [
    "get ",
    "gets ",
    "set ",
    "add ",
    "append ",
    "cas ",
    "incr ",
    "delete ",
    "touch ",
    "mg ",
    "ms ",
    "md ",
    "ma ",
    "me ",
    "mn",
    "stats",
    "stats items",
    "flush_all",
    "version",
    "noreply",
    "k1",
    "k2",
    " ",
    " ",
    "\r\n",
    "\r\n",
    " 0 0 1\r\nx\r\n",
    " 0 -1 3\r\n",
    " v",
    " t",
    " b",
    " N30",
    " C1",
    " MA",
    " I",
    " q",
    "0",
    "99999999999999999999",
    "1000",
    "\n",
];

fn limits() -> Limits {
    Limits { memory: 256 << 10, max_item: 4 << 10, index: Some(1 << 10), ..Limits::default() }
}

/// Commands out of these pieces, single bytes and binary heads, in pieces of any length.
pub fn session(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let mut text = Vec::new();
    while !bytes.is_empty() {
        match bytes.byte() {
            piece @ 0..192 => {
                text.extend_from_slice(PIECES[usize::from(piece) % PIECES.len()].as_bytes())
            }
            192..208 => text.extend([
                0x80,
                bytes.byte() & 0x3f,
                0,
                2,
                bytes.byte() & 24,
                0,
                0,
                0,
                0,
                0,
                0,
                bytes.byte(),
            ]),
            byte => text.push(byte.wrapping_add(bytes.byte())),
        }
    }
    let mut store = Store::private(&limits()).expect("memory");
    let (settings, connections, mut session) =
        (Settings::default(), Connections::default(), Session::default());
    for piece in text.chunks(1 + text.len() / 3) {
        let mut context =
            Context { store: &mut store, settings: &settings, connections: &connections };
        session.receive(piece, &mut context);
        assert!(session.output.len() < ginnel_cache::protocol::OUTPUT + (16 << 10), "{text:?}");
        let written = session.output.len();
        session.written(written);
    }
    store.tick(store.now() + 100);
}

/// An honest server's memory in which words were written that no honest server writes.
pub fn reader(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let mut store = Store::private(&limits()).expect("memory");
    let keys: Vec<String> = (0..8).map(|at| format!("key-{at}")).collect();
    keys.iter().for_each(|key| _ = store.put(&Put::set(key.as_bytes(), &[7; 50])));
    let mut reader = Reader::new(store.view()).expect("an honest header");
    let words = store.view().len() as u64;
    let number =
        |bytes: &mut Bytes<'_>| (0..4).fold(0, |number, _| number << 8 | u64::from(bytes.byte()));
    while !bytes.is_empty() {
        let key = &keys[usize::from(bytes.byte()) % keys.len()];
        let at = number(&mut bytes) % words;
        let value = match bytes.byte() % 4 {
            0 => number(&mut bytes) << 32 | number(&mut bytes),
            1 => Slot {
                tag: (reader.hash(key.as_bytes()) >> 48) as u16,
                place: number(&mut bytes) % (words + 9),
            }
            .to_word(),
            2 => {
                let item =
                    Item { key_len: 5, value_len: number(&mut bytes) as u32, ..Item::default() };
                item.to_words()[2]
            }
            _ => u64::from(bytes.byte()),
        };
        // Half of them where the key is looked for.
        let at = if bytes.byte() & 1 == 0 { at } else { 64 + at % 128 };
        store.forge(at as usize, value);
        if let Look::Hit(item) = reader.look(key.as_bytes()) {
            assert!(
                reader.value().len() <= 8 << 10 && reader.value().len() == item.value_len as usize
            );
        }
    }
}
