//! A segment's header and tables, as whoever opens it finds them.

use crate::Bytes;
use ginnel_region::{Config, Owner, PAGE, Party, Segment, Use};
use ginnel_tcp::census::census;
use ginnel_tcp::layout::{Channel, MAGIC};
use ginnel_tcp::ledger::Tuple;
use ginnel_tcp::rendezvous::{self, Found};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

const SIZE: u64 = 16 << 20;

/// A segment that opens, for what comes behind the header: its map lives as long as the process.
fn good() -> &'static (Segment, File) {
    static GOOD: OnceLock<(Segment, File)> = OnceLock::new();
    GOOD.get_or_init(|| {
        let path = crate::place("segment");
        let segment = Segment::create(&path, &Config { size: SIZE, ..Config::default() })
            .expect("a segment can be made");
        let file = File::open(&path).expect("just made");
        std::fs::remove_file(path).expect("an own file");
        (segment, file)
    })
}

/// First a header of garbage, which is opened; then the tables of a segment with garbage in them.
///
/// # Panics
/// When a file cannot be made, or what is told of garbage lies outside the segment.
pub fn target(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    if bytes.one_in(4) { header(&mut bytes) } else { tables(&mut bytes) }
}

fn header(bytes: &mut Bytes<'_>) {
    let path = crate::place("header");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .expect("a file can be made");
    // As it should be, and then one field or two wrong.
    let size = if bytes.one_in(4) { bytes.value(SIZE) % (64 << 20) } else { SIZE };
    file.set_len(size).expect("memory");
    let mut words =
        [ginnel_region::MAGIC, u64::from(ginnel_region::VERSION) | 40 << 32, SIZE, 0, 7];
    let wrong = usize::from(bytes.byte() % 3);
    for _ in 0..wrong {
        let word = bytes.below(5) as usize;
        words[word] = bytes.value(words[word]);
    }
    for (word, at) in words.iter().zip(0..) {
        file.write_all_at(&word.to_le_bytes(), at * 8).expect("memory");
    }
    // What is refused is refused in words; what is opened is as large as it says.
    match Segment::open(&path) {
        Ok(segment) => assert_eq!(segment.len(), size),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    std::fs::remove_file(path).expect("an own file");
}

#[allow(clippy::too_many_lines, reason = "one match: what may be done with a segment")]
fn tables(bytes: &mut Bytes<'_>) {
    let (segment, file) = good();
    let pages = u32::try_from(SIZE / PAGE).expect("few");
    let (rendezvous, members) = (segment.rendezvous(), segment.members());
    let owners = members.0 + members.1;
    let (mut label, tuple) = (0, |label, port| Tuple {
        label,
        local: [1; 16],
        local_port: port,
        remote: [2; 16],
        remote_port: 9,
    });
    while !bytes.is_empty() {
        match bytes.byte() % 10 {
            0 => {
                let at = bytes.below(PAGE / 8) * 8;
                segment.word(at).store(bytes.value(segment.word(at).load(Relaxed)), Relaxed);
            }
            1 => {
                let at = owners + bytes.below(u64::from(pages)) * 8;
                let owner = u64::from(bytes.byte() % 8) << 61
                    | u64::from(bytes.byte() % 16) << 57
                    | bytes.below(4) << 28
                    | bytes.below(u64::from(pages));
                segment.word(at).store(bytes.value(owner), Relaxed);
            }
            2 => {
                // The entries that the next meetings look at, most of them.
                let used: Vec<u32> =
                    rendezvous::entries(segment).take(40).map(rendezvous::Entry::index).collect();
                let index = used
                    .get(bytes.below(40) as usize)
                    .copied()
                    .unwrap_or_else(|| bytes.below(16384) as u32);
                let at = rendezvous.0 + u64::from(index) * 128 + bytes.below(13) * 8;
                segment.word(at).store(bytes.value(segment.word(at).load(Relaxed)), Relaxed);
            }
            3 => {
                label = u64::from(bytes.byte() % 3);
                match rendezvous::meet(
                    segment,
                    &tuple(label, bytes.below(4) as u16),
                    bytes.word(),
                    (0, 1, 1),
                ) {
                    Found::Mate(entry) | Found::Published(entry) | Found::Same(entry) => {
                        let _ = (entry.owner(), entry.offer(), entry.nonce(), entry.state());
                    }
                    Found::Full => {}
                }
            }
            4 => {
                let owner = Owner::new(
                    bytes.below(3) as u16,
                    if bytes.one_in(2) { Use::Ring } else { Use::Channel },
                );
                if let Ok(extent) = segment.claim(1 + u32::from(bytes.byte() % 32), owner) {
                    assert!(
                        segment.holds(extent.offset(), u64::from(extent.pages) * PAGE),
                        "{extent:?} lies outside"
                    );
                    segment.clear(extent.page);
                    let channel = Channel::at(segment, extent.page);
                    channel.magic().store(bytes.value(MAGIC), Relaxed);
                    for side in [0, 1] {
                        channel.agreed(side).store(bytes.value(1), Relaxed);
                        channel.owner(side).store(bytes.value(0), Relaxed);
                        channel.direction(side).tail().store(bytes.word(), Relaxed);
                    }
                }
            }
            5 => {
                let head =
                    segment.head(bytes.value(700) as u32).and_then(|head| segment.take(head));
                let _ = segment.release_groups(head.as_slice());
            }
            6 => {
                segment.release_if_tagged(
                    bytes.value(700) as u32,
                    bytes.value(8) as u32,
                    bytes.value(700) as u32,
                );
                segment.fault_in(bytes.value(SIZE), bytes.value(PAGE));
                let page = bytes.value(600) as u32;
                segment.release_orphan(700);
                if let Some(owner) = segment.owner(page) {
                    assert!(page < pages && owner.tag.is_some());
                }
            }
            7 => spoil_names(segment, bytes),
            8 => use_names(segment, bytes),
            _ => {
                let (free, all) = segment.page_counts();
                assert!(free <= all && all < pages);
                if bytes.one_in(8) {
                    let census = census(file.as_fd(), SIZE).expect("readable");
                    assert!(
                        census.connections < all.into()
                            && census.carried <= census.carried_ever
                            && !census.partial
                    );
                    assert!(census.by_peer.keys().all(|&(peer, _)| peer < 256));
                }
                let _ = (segment.geometry(), segment.presence(bytes.below(65536) as u16), label);
            }
        }
    }
}

/// Bytes of the names table, which ends where the pages begin that can be claimed.
const NAMES: u64 = 2048 * (8 + 128);

/// Garbage in an entry of the names table: its word, mostly, or what belongs to it.
fn spoil_names(segment: &Segment, bytes: &mut Bytes<'_>) {
    let at = names(segment);
    let index = bytes.below(4);
    let at = if bytes.one_in(3) {
        at + 2048 * 8 + index * 128 + bytes.below(16) * 8
    } else {
        at + index * 8
    };
    let value = if bytes.one_in(2) {
        u64::from(bytes.byte() % 8) << 61 | bytes.word() >> 3
    } else {
        // Near to what an honest party wrote there.
        bytes.value(segment.word(at).load(Relaxed))
    };
    segment.word(at).store(value, Relaxed);
}

fn names(segment: &Segment) -> u64 {
    let (members, bytes) = segment.members();
    (members + bytes + segment.len() / PAGE * 8).next_multiple_of(PAGE)
}

/// What an honest party does with the table, whatever stands in it. Nobody else lives.
fn use_names(segment: &Segment, bytes: &mut Bytes<'_>) {
    let (table, me) = (segment.names(), Party::new(600, 1));
    let name = [b'n', bytes.byte() % 4];
    let lives = |party| party == me;
    if bytes.one_in(2) {
        match table.claim(&name, me, lives) {
            Ok(claim) if bytes.one_in(2) => {
                _ = table.publish(claim, 1, bytes.word() as u32, bytes.word(), Some(me))
            }
            Ok(claim) => table.withdraw(claim),
            Err(_) => {}
        }
    }
    for entry in table.find(&name).into_iter().chain(table.entries().take(4)) {
        assert!(entry.index < 2048 && entry.name.len() <= 96);
        let _ = (
            segment.head(entry.page),
            table.is_live(&entry),
            table.stands_for(entry.index, entry.generation, lives),
        );
        if bytes.one_in(2) {
            let _ = (table.remove(&entry), table.free(&entry));
        }
    }
    if bytes.one_in(4) {
        table.bury(lives);
    }
    assert!(names(segment) + NAMES <= segment.len());
}
