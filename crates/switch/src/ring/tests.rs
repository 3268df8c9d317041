use super::*;
use crate::front_end::{BUFFER, FrontEnd, GUEST, Options, USER};
use crate::vhost::message::{Head, Request};
use crate::wire::HEADER;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

const SIZE: u16 = 8;

/// A guest's queue, and the switch's side of it.
struct Queue {
    guest: FrontEnd,
    memory: Memory,
    ring: Ring,
    /// Its number: 0 receives, 1 sends.
    number: usize,
}

fn layout(guest: &FrontEnd, number: usize) -> Layout {
    let [descriptors, available, used] = guest.queues[number].places().map(|at| at - GUEST + USER);
    Layout {
        size: SIZE,
        descriptors,
        available,
        used,
        used_log: None,
        base: 0,
        event_idx: true,
        indirect: true,
    }
}

fn queue_with(number: usize, change: impl Fn(&mut Layout)) -> Queue {
    let (socket, _) = UnixStream::pair().expect("a pair");
    // Some cut it short.
    let options = Options { size: SIZE, sealed: false, ..Options::default() };
    let guest = FrontEnd::prepare(socket, options).expect("a guest");
    let bytes = rustix::fs::fstat(&guest.file).expect("a file").st_size as u64;
    let region = Region::new(&guest.file, 0, GUEST, bytes, USER).expect("mapped");
    let memory = Memory::new(vec![Arc::new(region)], None);
    let mut layout = layout(&guest, number);
    change(&mut layout);
    let ring = Ring::new(&memory, layout).expect("a ring");
    Queue { guest, memory, ring, number }
}

fn queue(number: usize) -> Queue {
    queue_with(number, |_| {})
}

impl Queue {
    /// Takes the next chain: its bytes.
    fn take(&mut self) -> Result<Option<(u16, Vec<u8>)>, Broken> {
        let mut chain = Slices::new();
        let head = self.ring.take(&self.memory, &mut chain)?;
        let mut bytes = Vec::new();
        chain.append_to(&mut bytes);
        Ok(head.map(|head| (head, bytes)))
    }

    fn deliver(&mut self, frame: &[u8]) -> Result<(), Refused> {
        let front = [&crate::wire::Offload::default().header()[..], frame].concat();
        let rest = Slices::new();
        self.ring.deliver(&self.memory, &front, &rest, HEADER, true)
    }

    /// Makes one descriptor available, whose words are these.
    fn offer(&mut self, at: u64, len: u32, flags: u16, next: u16) {
        self.guest.describe(self.number, 0, at, len, flags, next);
        self.guest.offer(self.number, 0);
    }
}

#[test]
fn what_is_sent_is_taken_in_order_and_given_back() {
    let mut queue = queue(1);
    assert_eq!(queue.take(), Ok(None));
    for n in 0..100u8 {
        let frame = vec![n; usize::from(n) * 60 + 1];
        assert!(queue.guest.send(1, &frame), "frame {n}");
        let (head, bytes) = queue.take().expect("good").expect("a chain");
        assert_eq!(bytes[HEADER..], frame);
        queue.ring.complete(&queue.memory, head, 0);
        assert!(queue.guest.used(1).is_none(), "not before it is published");
        let _ = queue.ring.publish(&queue.memory);
        // `send` takes it back.
    }
    assert_eq!(queue.ring.base(), 100);
}

#[test]
fn a_table_of_indirect_descriptors() {
    let mut queue = queue(1);
    let (table, data) = (GUEST + 0x8000, GUEST + 0x9000);
    queue.guest.write(data, b"one two three");
    let entry = |at: u64, len: u32, flags: u16, next: u16| {
        [&at.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()]
            .concat()
    };
    let entries = [entry(data, 4, 1, 2), vec![0; 16], entry(data + 4, 9, 0, 0)].concat();
    queue.guest.write(table, &entries);
    queue.offer(table, 48, 4, 0);
    assert_eq!(queue.take(), Ok(Some((0, b"one two three".to_vec()))));
    let cases = [
        (entry(data, 4, 1, 3), 48, Broken::Descriptor(3)),
        (entry(data, 4, 1, 0), 48, Broken::Endless),
        (entry(data, 4, 4, 0), 48, Broken::Indirect),
        (entry(data, 4, 2, 0), 48, Broken::Direction),
        (entry(1, 4, 0, 0), 48, Broken::Address(1, 4)),
        (entry(data, 4, 0, 0), 47, Broken::Indirect),
        (entry(data, 4, 0, 0), 0, Broken::Indirect),
        (entry(data, 4, 0, 0), 16 * 40000, Broken::Indirect),
    ];
    for (first, len, broken) in cases {
        queue.guest.write(table, &first);
        queue.offer(table, len, 4, 0);
        assert_eq!(queue.take(), Err(broken), "{len} bytes");
        queue = self::queue(1);
    }
    queue.offer(table, 16, 5, 0);
    assert_eq!(queue.take(), Err(Broken::Indirect), "another descriptor behind it");
    let mut queue = queue_with(1, |layout| layout.indirect = false);
    queue.offer(table, 16, 4, 0);
    assert_eq!(queue.take(), Err(Broken::Indirect), "not agreed on");
}

#[test]
fn whatever_breaks_a_rule_is_named() {
    let end = GUEST + rustix::fs::fstat(&queue(1).guest.file).expect("a file").st_size as u64;
    let offers: [((u64, u32, u16, u16), Broken); 8] = [
        ((GUEST, 4, 1, SIZE), Broken::Descriptor(SIZE)),
        ((GUEST, 4, 1, 0), Broken::Endless),
        ((GUEST, 4, 2, 0), Broken::Direction),
        ((0, 4, 0, 0), Broken::Address(0, 4)),
        ((GUEST - 1, 4, 0, 0), Broken::Address(GUEST - 1, 4)),
        ((end - 3, 4, 0, 0), Broken::Address(end - 3, 4)),
        ((u64::MAX, u32::MAX, 0, 0), Broken::Address(u64::MAX, u32::MAX)),
        ((GUEST, u32::MAX, 0, 0), Broken::Address(GUEST, u32::MAX)),
    ];
    for ((at, len, flags, next), broken) in offers {
        let mut queue = queue(1);
        queue.offer(at, len, flags, next);
        assert_eq!(queue.take(), Err(broken));
    }
    let mut queue = queue(1);
    queue.offer(end - 4, 4, 0, 0);
    assert!(queue.take().is_ok(), "the last bytes are the guest's");
    let available = queue.guest.queues[1].places()[1];
    queue.guest.write(available + 4 + 2, &SIZE.to_le_bytes());
    queue.guest.write(available + 2, &2u16.to_le_bytes());
    assert_eq!(queue.take(), Err(Broken::Descriptor(SIZE)), "a head outside the table");
    let mut queue = self::queue(1);
    queue.guest.write(available + 2, &(SIZE + 1).to_le_bytes());
    assert_eq!(queue.take(), Err(Broken::AvailableIndex(SIZE + 1, 0)));
    assert_eq!(queue.ring.arm(&queue.memory), Err(Broken::AvailableIndex(SIZE + 1, 0)));
}

#[test]
fn a_queue_must_lie_in_memory() {
    let Queue { guest, memory, .. } = queue(0);
    let good = layout(&guest, 0);
    let refused = |layout: Layout| Ring::new(&memory, layout).map(drop);
    assert_eq!(refused(good), Ok(()));
    for size in [0, 3, SIZE + 1, u16::MAX] {
        assert_eq!(refused(Layout { size, ..good }), Err(Broken::Size(size)));
    }
    for at in [0, USER - 16, good.descriptors + 1, u64::MAX, u64::MAX - 127] {
        assert_eq!(refused(Layout { descriptors: at, ..good }), Err(Broken::Place(at)));
        assert_eq!(refused(Layout { used: at, ..good }), Err(Broken::Place(at)));
    }
    assert_eq!(
        refused(Layout { available: good.available + 1, ..good }),
        Err(Broken::Place(good.available + 1))
    );
    let end = USER + memory.regions()[0].size;
    assert_eq!(
        refused(Layout { used: end - 64, ..good }),
        Err(Broken::Place(end - 64)),
        "its last word does not fit"
    );
}

#[test]
fn a_frame_is_put_into_as_many_buffers_as_it_takes_or_none() {
    let mut queue = queue(0);
    assert_eq!(queue.deliver(&[1; 60]), Err(Refused::Full));
    queue.guest.fill(0);
    let most = usize::from(SIZE) * BUFFER as usize - HEADER;
    let lengths = [0, 1, 60, BUFFER as usize - HEADER, BUFFER as usize - HEADER + 1, 9000, most];
    for len in lengths {
        let frame: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        assert_eq!(queue.deliver(&frame), Ok(()), "{len} bytes");
        assert!(queue.ring.publish(&queue.memory) || len > 0);
        assert_eq!(queue.guest.receive(0).as_deref(), Some(&frame[..]), "{len} bytes");
    }
    let base = queue.ring.base();
    assert_eq!(queue.deliver(&vec![1; most + 1]), Err(Refused::Full));
    assert_eq!(queue.ring.base(), base, "nothing was taken");
    assert!(!queue.ring.publish(&queue.memory), "and nothing is told");
    let front = vec![0; BUFFER as usize + 1];
    let alone = queue.ring.deliver(&queue.memory, &front, &Slices::new(), HEADER, false);
    assert_eq!(alone, Err(Refused::TooLong), "in several only where that was agreed on");
}

#[test]
fn buffers_that_are_no_good_break_the_queue() {
    for (len, flags, broken) in
        [(11, 2, Broken::Tiny(11)), (0, 2, Broken::Tiny(0)), (2048, 0, Broken::Direction)]
    {
        let mut queue = queue(0);
        queue.offer(GUEST, len, flags, 0);
        assert_eq!(queue.deliver(&[0; 60]), Err(Refused::Broken(broken)));
    }
}

/// Offers a table of so many buffers: of the first one's length, and of the others'.
fn offer_table(queue: &mut Queue, [first, others]: [u64; 2], count: u64) {
    let table = GUEST + 0x20000;
    for n in 0..count {
        let (flags, next) = if n + 1 < count { (3u64, n + 1) } else { (2, 0) };
        let len = if n == 0 { first } else { others };
        let words = [GUEST, len | flags << 32 | next << 48].map(u64::to_le_bytes);
        queue.guest.write(table + 16 * n, &words.concat());
    }
    queue.offer(table, 16 * count as u32, 4, 0);
}

#[test]
fn crumbs_do_not_take_everybodys_time() {
    let mut queue = queue(0);
    offer_table(&mut queue, [12, 1], 1000);
    assert_eq!(queue.deliver(&[0; 2000]), Err(Refused::Broken(Broken::Endless)));
}

#[test]
fn empty_buffers_take_time_too() {
    let mut queue = queue(0);
    offer_table(&mut queue, [100, 0], 600);
    assert_eq!(queue.deliver(&[0; 2000]), Err(Refused::Broken(Broken::Endless)));
    let mut buffers = Slices::new();
    let looked = queue.ring.peek(&queue.memory, &mut buffers);
    assert_eq!(looked, Err(Broken::Endless));
}

/// A hundred short frames are one turn of a sender.
#[test]
fn a_short_frame_goes_into_few_pieces() {
    let endless = Err(Refused::Broken(Broken::Endless));
    for (pieces, len, done) in [(64, 60, Ok(())), (65, 60, endless), (500, 65_000, Ok(()))] {
        let mut queue = queue(0);
        offer_table(&mut queue, [66_000, 0], pieces);
        assert_eq!(queue.deliver(&vec![0; len]), done, "{pieces} for {len}");
    }
}

#[test]
fn interrupts_come_where_the_guest_wants_them() {
    let mut queue = queue(1);
    let send = |queue: &mut Queue| {
        assert!(queue.guest.send(1, &[0; 60]));
        let (head, _) = queue.take().expect("good").expect("a chain");
        queue.ring.complete(&queue.memory, head, 0);
        queue.ring.publish(&queue.memory)
    };
    assert!(send(&mut queue), "used_event is 0, and this is entry 0");
    assert!(!send(&mut queue), "the guest has not asked again");
    while queue.guest.used(1).is_some() {}
    queue.guest.arm(1);
    assert!(send(&mut queue));
    let mut plain = queue_with(1, |layout| layout.event_idx = false);
    assert!(send(&mut plain));
    let available = plain.guest.queues[1].places()[1];
    plain.guest.write(available, &1u16.to_le_bytes());
    assert!(!send(&mut plain), "VRING_AVAIL_F_NO_INTERRUPT");
}

#[test]
fn nothing_is_overlooked_between_arming_and_sleeping() {
    let mut queue = queue(1);
    assert_eq!(queue.ring.arm(&queue.memory), Ok(false));
    let count = |queue: &Queue| {
        let mut bytes = [0; 8];
        rustix::io::read(&queue.guest.queues[1].kick, &mut bytes)
            .map_or(0, |_| u64::from_ne_bytes(bytes))
    };
    assert!(queue.guest.send(1, &[0; 60]));
    assert_eq!(count(&queue), 1, "armed, so it kicks");
    assert_eq!(queue.ring.arm(&queue.memory), Ok(true), "what waits is seen, kicked or not");
    let _ = queue.take().expect("good").expect("a chain");
    queue.ring.mute(&queue.memory);
    assert!(queue.guest.send(1, &[0; 60]));
    assert_eq!(count(&queue), 0, "muted, so it does not");
}

#[test]
fn writes_are_logged_and_only_they() {
    let mut queue = queue(0);
    let file = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
    rustix::fs::ftruncate(&file, 1 << 20).expect("long");
    let log = Arc::new(Log::new(&file, 0, (GUEST >> 15) + 64).expect("mapped"));
    queue.memory = Memory::new(queue.memory.regions().to_vec(), Some(log));
    queue.ring.set_used_log(Some(queue.guest.queues[0].places()[2]));
    let dirty = || {
        let mut bits = vec![0; 1 << 20];
        rustix::io::pread(&file, &mut bits[..], 0).expect("read");
        let pages = (0..8u64 << 20).filter(|page| bits[*page as usize / 8] & 1 << (page % 8) != 0);
        pages.map(|page| (page << 12) - GUEST).collect::<Vec<_>>()
    };
    queue.guest.fill(0);
    assert_eq!(dirty(), [0; 0], "what the guest itself writes is not the switch's to log");
    queue.deliver(&[7; 60]).expect("room");
    assert_eq!(dirty(), [40 << 10, 64 << 10], "an entry of the used ring, and the first buffer");
    queue.deliver(&[7; 3000]).expect("room");
    let _ = queue.ring.publish(&queue.memory);
    // The used ring, and three buffers of 2 KiB on two pages.
    assert_eq!(dirty(), [40 << 10, 64 << 10, 68 << 10]);
    queue.memory.mark(u64::MAX - 5, 6);
    queue.memory.mark(GUEST, 0);
    assert_eq!(dirty().len(), 3, "beyond the log's end, and nothing at all");
}

#[test]
fn a_buffer_may_cross_into_the_next_region() {
    let queue = queue(1);
    let half = |n: u64| {
        let region =
            Region::new(&queue.guest.file, 4096 * n, GUEST + 4096 * n, 4096, USER + 4096 * n);
        Arc::new(region.expect("mapped"))
    };
    let memory = Memory::new(vec![half(1), half(0)], None);
    queue.guest.write(GUEST + 4090, b"across two regions");
    let mut pieces = Slices::new();
    assert!(memory.append(GUEST + 4090, 18, &mut pieces));
    let mut bytes = Vec::new();
    pieces.append_to(&mut bytes);
    assert_eq!((pieces.last(9).count(), bytes.as_slice()), (2, &b"across two regions"[..]));
    assert!(!memory.append(GUEST + 8190, 3, &mut Slices::new()), "and not out of the last one");
    assert!(memory.slice(GUEST + 4090, 18).is_none());
}

#[test]
fn taking_the_front_off_leaves_the_rest() {
    let queue = queue(1);
    queue.guest.write(GUEST, b"abcdefghij");
    let mut pieces = Slices::new();
    for (at, len) in [(0, 3), (3, 4), (7, 3)] {
        assert!(queue.memory.append(GUEST + at, len, &mut pieces));
    }
    let mut front = [0; 5];
    assert_eq!((pieces.take_front(&mut front), &front), (5, b"abcde"));
    assert_eq!((pieces.len(), pieces.last(9).count()), (5, 2));
    assert_eq!((pieces.take_front(&mut [0; 100]), pieces.len(), pieces.last(9).count()), (5, 0, 0));
}

#[test]
fn a_file_that_is_cut_short_is_zeroes_and_noted() {
    let mut queue = queue(1);
    assert!(queue.guest.send(1, &[9; 60]));
    let before = cuts();
    rustix::fs::ftruncate(&queue.guest.file, 0).expect("cut");
    let taken = queue.take();
    assert!(matches!(taken, Ok(None) | Err(_)), "{taken:?}");
    assert!(queue.memory.is_cut() && cuts() > before);
    // Another mapping of the same process is none the worse.
    let mut other = self::queue(1);
    assert!(other.guest.send(1, &[9; 60]));
    assert!(other.take().expect("good").is_some());
    assert!(!other.memory.is_cut());
}

#[test]
fn only_memory_is_mapped() {
    let file = std::fs::File::options().read(true).write(true).open("/dev/zero").expect("a device");
    let refused = Mapping::new(&file, 0, 4096).map(drop);
    assert_eq!(refused, Err(MapError::NotMemory));
    let file = queue(0).guest.file;
    let bytes = rustix::fs::fstat(&file).expect("a file").st_size as u64;
    for (offset, len, why) in [
        (0, bytes + 1, MapError::TooShort),
        (bytes, 1, MapError::TooShort),
        (0, 0, MapError::Size),
        (u64::MAX, 2, MapError::Size),
    ] {
        assert_eq!(Mapping::new(&file, offset, len).map(drop), Err(why));
    }
    assert!(Region::new(&file, 0, u64::MAX, 4096, 0).is_err());
    let head = Head { request: Request::SetOwner, need_reply: false, size: 0 };
    assert_eq!(Head::parse(head.bytes()), Ok(head));
}
