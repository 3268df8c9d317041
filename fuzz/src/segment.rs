//! A segment's header and tables, as whoever opens it finds them.

use crate::Bytes;
use ginnel_region::{Config, Owner, PAGE, Segment, Use};
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
        let segment = Segment::create(&path, &Config { size: SIZE, ..Config::default() }).expect("a segment can be made");
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
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("a file can be made");
    // As it should be, and then one field or two wrong.
    let size = if bytes.one_in(4) { bytes.value(SIZE) % (64 << 20) } else { SIZE };
    file.set_len(size).expect("memory");
    let mut words = [ginnel_region::MAGIC, u64::from(ginnel_region::VERSION) | 40 << 32, SIZE, 0, 7];
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

fn tables(bytes: &mut Bytes<'_>) {
    let (segment, file) = good();
    let pages = u32::try_from(SIZE / PAGE).expect("few");
    let (rendezvous, members) = (segment.rendezvous(), segment.members());
    let owners = members.0 + members.1;
    let (mut label, tuple) = (0, |label, port| Tuple { label, local: [1; 16], local_port: port, remote: [2; 16], remote_port: 9 });
    while !bytes.is_empty() {
        match bytes.byte() % 8 {
            0 => {
                let at = bytes.below(PAGE / 8) * 8;
                segment.word(at).store(bytes.value(segment.word(at).load(Relaxed)), Relaxed);
            }
            1 => {
                let at = owners + bytes.below(u64::from(pages)) * 8;
                let owner = u64::from(bytes.byte() % 8) << 61
                    | u64::from(bytes.byte() % 4) << 59
                    | bytes.below(4) << 28
                    | bytes.below(u64::from(pages));
                segment.word(at).store(bytes.value(owner), Relaxed);
            }
            2 => {
                // The entries that the next meetings look at, most of them.
                let used: Vec<u32> = rendezvous::entries(segment).take(40).map(rendezvous::Entry::index).collect();
                let index = used.get(bytes.below(40) as usize).copied().unwrap_or_else(|| bytes.below(16384) as u32);
                let at = rendezvous.0 + u64::from(index) * 128 + bytes.below(13) * 8;
                segment.word(at).store(bytes.value(segment.word(at).load(Relaxed)), Relaxed);
            }
            3 => {
                label = u64::from(bytes.byte() % 3);
                match rendezvous::meet(segment, &tuple(label, bytes.below(4) as u16), bytes.word(), (0, 1, 1)) {
                    Found::Mate(entry) | Found::Published(entry) | Found::Same(entry) => {
                        let _ = (entry.owner(), entry.offer(), entry.nonce(), entry.state());
                    }
                    Found::Full => {}
                }
            }
            4 => {
                let owner = Owner::new(bytes.below(3) as u16, if bytes.one_in(2) { Use::Ring } else { Use::Channel });
                if let Ok(extent) = segment.claim(1 + u32::from(bytes.byte() % 32), owner) {
                    assert!(segment.holds(extent.offset(), u64::from(extent.pages) * PAGE), "{extent:?} lies outside");
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
                let head = segment.head(bytes.value(700) as u32).and_then(|head| segment.take(head));
                let _ = segment.release_groups(head.as_slice());
            }
            6 => {
                segment.release_if_tagged(bytes.value(700) as u32, bytes.value(8) as u32, bytes.value(700) as u32);
                segment.fault_in(bytes.value(SIZE), bytes.value(PAGE));
                let page = bytes.value(600) as u32;
                segment.release_orphan(700);
                if let Some(owner) = segment.owner(page) {
                    assert!(page < pages && owner.tag.is_some());
                }
            }
            _ => {
                let (free, all) = segment.page_counts();
                assert!(free <= all && all < pages);
                if bytes.one_in(8) {
                    let census = census(file.as_fd(), SIZE).expect("readable");
                    assert!(census.connections < all.into() && census.carried <= census.carried_ever && !census.partial);
                    assert!(census.by_peer.keys().all(|&(peer, _)| peer < 256));
                }
                let _ = (segment.geometry(), segment.presence(bytes.below(65536) as u16), label);
            }
        }
    }
}
