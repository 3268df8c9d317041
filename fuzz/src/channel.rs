//! A channel: two honest ends that put and take bytes through it, while a third party writes into
//! every word of it, and into the connection below.

use crate::Bytes;
use ginnel_node::settings::Settings as NodeSettings;
use ginnel_node::waiter::{self, Waiter};
use ginnel_region::{Config, PAGE};
use ginnel_ring::park::Want;
use ginnel_tcp::Attachment;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::{Reason, Slot, Stage, flag};
use ginnel_tcp::rx::Sink;
use ginnel_tcp::settings::Settings;
use ginnel_tcp::{kernel, lifetime, reclaim};
use libc::iovec;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

const SIZE: u64 = 16 << 20;
/// Between the pages that belong to no channel and the end, all may be claimed.
const BUFFER: usize = 100_000;

/// What all runs share: a process has one attachment.
struct Scene {
    attachment: Attachment,
    listener: TcpListener,
    waiters: [Waiter; 2],
    /// The tables as they were before the first run.
    tables: Vec<u64>,
}

fn tables(attachment: &Attachment) -> u64 {
    let (members, bytes) = attachment.node.joined().segment.members();
    members + bytes + SIZE / PAGE * 8
}

fn stage() -> &'static Scene {
    static STAGE: OnceLock<Scene> = OnceLock::new();
    STAGE.get_or_init(|| {
        let directory = crate::place("channel");
        let settings = Settings {
            node: NodeSettings {
                found: false,
                directory: directory.clone(),
                directory_is_named: true,
                segment_name: "default".into(),
                segment: directory.join("default"),
                config: Config { size: SIZE, ..Config::default() },
                tokens: false,
                spin_ns: Some(0),
            },
            after: 0,
            policy: Default::default(),
            broker: None,
            ring: PAGE,
            ring_max: 4 * PAGE,
            chaos: None,
            deaf: 0,
            verbose: false,
        };
        let attachment = Attachment::new(settings, |_, _| {}).expect("shared memory can be had");
        let waiters = [0, 1].map(|_| Waiter::new(&attachment.node).expect("a waiter can be had"));
        // Everything is open: the directory need not be found again.
        let _ = std::fs::remove_dir_all(directory);
        let tables = (0..tables(&attachment) / 8)
            .map(|i| attachment.node.joined().segment.word(i * 8).load(Relaxed))
            .collect();
        Scene {
            attachment,
            listener: TcpListener::bind("127.0.0.1:0").expect("loopback"),
            waiters,
            tables,
        }
    })
}

impl Scene {
    /// All tables as they were.
    fn clean(&self) {
        for (value, i) in self.tables.iter().zip(0..) {
            self.attachment.node.joined().segment.word(i * 8).store(*value, Relaxed);
        }
    }

    fn endpoint(&'static self, socket: &TcpStream, connected: bool) -> Option<Endpoint<'static>> {
        let fd = socket.as_raw_fd();
        let ledger = &self.attachment.ledger;
        let (slot, _) = ledger.find_or_claim(
            &self.attachment.node.processes,
            kernel::cookie(fd).ok()?,
            self.attachment.node.me(),
            |_| {},
        )?;
        slot.hold(self.attachment.node.me());
        slot.set(flag::CONNECTED, connected);
        Some(Endpoint::new(&self.attachment, self.attachment.ledger.index(slot), fd))
    }

    /// Two ends of one connection, which have agreed.
    fn pair(&'static self) -> Option<([TcpStream; 2], [Endpoint<'static>; 2])> {
        let mut a = TcpStream::connect(self.listener.local_addr().ok()?).ok()?;
        let (mut b, _) = self.listener.accept().ok()?;
        let mut text = [0; 4];
        a.write_all(b"ping").ok()?;
        b.read_exact(&mut text).ok()?;
        b.write_all(b"pong").ok()?;
        a.read_exact(&mut text).ok()?;
        let ends = [self.endpoint(&a, true)?, self.endpoint(&b, false)?];
        for _ in 0..64 {
            for end in ends {
                end.progress(false);
            }
        }
        Some(([a, b], ends))
    }
}

/// What the two ends do, and what is done to them.
///
/// # Panics
/// When more is received than fits.
pub fn target(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let stage = stage();
    stage.clean();
    let Some((mut sockets, ends)) = stage.pair() else { return };
    let channel = u64::from(ends[0].slot().channel.load(Relaxed)) * PAGE;
    while !bytes.is_empty() {
        let side = usize::from(bytes.byte() & 1);
        if bytes.one_in(3) {
            spoil(stage, channel, &mut bytes, &mut sockets[side]);
        } else {
            act(stage, ends[side], stage.waiters[side], &mut bytes);
        }
    }
    for (end, waiter) in ends.iter().zip(stage.waiters) {
        waiter.take(&stage.attachment.node.joined().segment, |bit| assert!(bit < waiter::BITS));
        if end.slot().stage() <= Stage::Active {
            // A close waits half a second for tokens that never come: not every time.
            if bytes.byte() == 0 && end.slot().rx.armed.load(Relaxed) == 0 {
                end.finish();
            }
        }
    }
    drop(sockets);
    for end in ends {
        lifetime::forget(&stage.attachment, end.slot(), end.slot().cookie.load(Relaxed));
    }
}

/// One call of one end.
#[allow(clippy::too_many_lines, reason = "one match: every call of an end")]
fn act(stage: &Scene, end: Endpoint<'_>, waiter: Waiter, bytes: &mut Bytes<'_>) {
    static ZEROES: [u8; BUFFER] = [0; BUFFER];
    let mut room = vec![0u8; 1 + bytes.below(65536) as usize];
    let live = matches!(end.slot().stage(), Stage::Settling | Stage::Active);
    if !live {
        return;
    }
    let active = end.slot().stage() == Stage::Active;
    let piece = [iovec {
        iov_base: ZEROES.as_ptr().cast_mut().cast(),
        iov_len: 1 + bytes.below(20_000) as usize,
    }];
    let into = [iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }];
    match bytes.byte() % 20 {
        0..4 => {
            // SAFETY: the piece lies in `ZEROES`, which is larger.
            let _ = unsafe { end.put(&piece, 0) };
        }
        4..8 => {
            let mut sink = Sink::new(&into, false);
            // SAFETY: `room` is writable.
            let _ = unsafe { end.take(&mut sink, bytes.one_in(4)) };
            assert!(sink.filled() <= room.len());
        }
        8 if active => {
            assert!(
                // SAFETY: `room` is writable.
                unsafe { end.take_quick(into[0].iov_base.cast(), into[0].iov_len) }
                    <= into[0].iov_len
            );
        }
        9 if active => {
            // SAFETY: as for `put`.
            let _ = unsafe { end.put_quick(&piece, piece[0].iov_len) };
        }
        10 => drop(end.tidy()),
        11 => {
            let want = if bytes.one_in(2) { Want::Token } else { waiter.want(3) };
            let _ = end.arm_data(want);
            end.disarm_data(want);
        }
        12 => {
            let want = if bytes.one_in(2) { Want::Token } else { waiter.want(4) };
            let _ = end.arm_space(want);
            end.disarm_space(want);
        }
        13 => {
            end.serve_tx();
            let _ = (
                end.pending_bytes(),
                end.unread_bytes(),
                end.writable(),
                end.readable(),
                end.is_surely_empty(),
            );
        }
        14 => end.request_downgrade(),
        15 => end.spill(),
        16 => {
            let _ = (
                end.reader_died(),
                end.reset_is_end(),
                end.wants_service(),
                end.is_switching(),
                end.check_path(true, &mut 8),
            );
        }
        17 if bytes.byte() < 8 => drop(end.detach(Reason::Detached, 1_000_000)),
        18 if bytes.byte() < 16 => {
            let _ = reclaim::reclaim(&stage.attachment);
        }
        _ => {
            waiter.take(&stage.attachment.node.joined().segment, |bit| assert!(bit < waiter::BITS))
        }
    }
    let slot: &Slot = end.slot();
    assert!(
        stage
            .attachment
            .node
            .joined()
            .segment
            .holds(slot.tx.ring_offset.load(Relaxed), slot.tx.ring_size.load(Relaxed))
    );
    assert!(
        stage
            .attachment
            .node
            .joined()
            .segment
            .holds(slot.rx.ring_offset.load(Relaxed), slot.rx.ring_size.load(Relaxed))
    );
}

/// One thing that a third party does.
#[allow(clippy::too_many_lines, reason = "one match: everything that a third party does")]
fn spoil(stage: &Scene, channel: u64, bytes: &mut Bytes<'_>, socket: &mut TcpStream) {
    let segment = &stage.attachment.node.joined().segment;
    let put = |at: u64, bytes: &mut Bytes<'_>| {
        let word = segment.word(at & !7);
        word.store(bytes.value(word.load(Relaxed)), Relaxed);
    };
    let direction = channel + if bytes.byte() & 1 == 0 { 0x200 } else { 0x400 };
    match bytes.byte() % 12 {
        0..4 => put(direction + bytes.below(0x40) * 8, bytes),
        4 => put(channel + bytes.below(0x40) * 8, bytes),
        5 => {
            // A switch.
            let epoch = segment.word(direction + 8).load(Relaxed).wrapping_add(1);
            let record = direction + if epoch & 1 == 1 { 0x40 } else { 0x58 };
            segment.word(record).store(epoch, Relaxed);
            let (received, tail) = (
                segment.word(direction + 0x170).load(Relaxed),
                segment.word(direction).load(Relaxed),
            );
            segment.word(record + 8).store(
                if bytes.one_in(2) {
                    received.wrapping_add(u64::from(bytes.byte() % 4))
                } else {
                    bytes.value(received)
                },
                Relaxed,
            );
            segment
                .word(record + 16)
                .store(if bytes.one_in(2) { tail } else { bytes.value(tail) }, Relaxed);
            segment.word(direction + 8).store(epoch, Relaxed);
        }
        6 => {
            // Another ring, at the very end perhaps.
            let grown = segment.word(direction + 0x10).load(Relaxed).wrapping_add(1);
            let (ring, size) = (direction + 0x80 + (grown & 1) * 24, PAGE << bytes.below(8));
            let (head, tail) = (
                segment.word(direction + 0x100).load(Relaxed),
                segment.word(direction).load(Relaxed),
            );
            let start =
                [tail, head, head.wrapping_sub(bytes.below(65536))][bytes.below(3) as usize];
            for (value, i) in [start, SIZE - size, size].into_iter().zip(0..) {
                segment
                    .word(ring + i * 8)
                    .store(if bytes.one_in(8) { bytes.value(value) } else { value }, Relaxed);
            }
            segment.word(direction + 0x10).store(grown, Relaxed);
            segment.word(direction).store(tail.wrapping_add(bytes.below(20_000)), Relaxed);
        }
        7 => {
            // A freeze.
            let (epoch, tail) =
                (segment.word(direction + 8).load(Relaxed), segment.word(direction).load(Relaxed));
            segment.word(direction + 0x158).store(tail.wrapping_sub(bytes.below(9000)), Relaxed);
            segment.word(direction + 0x150).store(epoch, Relaxed);
        }
        8 => put(
            u64::from(stage.waiters[usize::from(bytes.byte() & 1)].page()) * PAGE
                + bytes.below(512) * 8,
            bytes,
        ),
        9 => put(PAGE + bytes.below(65536) * 32, bytes),
        10 => {
            let wish = Want::Waiter {
                page: bytes.value(stage.waiters[0].page().into()) as u32,
                bit: bytes.below(65536) as u16,
            };
            segment
                .word(direction + if bytes.byte() & 1 == 0 { 0xc0 } else { 0x140 })
                .store(wish.word(), Relaxed);
        }
        _ => {
            // Past the ends, over TCP, urgent now and then.
            let urgent = if bytes.one_in(4) { libc::MSG_OOB } else { 0 };
            let text = bytes.take(3);
            // SAFETY: the bytes are readable; the socket is open.
            unsafe {
                libc::send(
                    socket.as_raw_fd(),
                    text.as_ptr().cast(),
                    text.len(),
                    urgent | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
                )
            };
        }
    }
}
