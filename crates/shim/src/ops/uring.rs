//! io_uring: requests that the kernel reads from memory, where no hook is.
//!
//! A program that only reads and writes files by it, as databases do, has nothing to do with
//! sockets there: it keeps its rings. liburing submits requests by a few functions, which the hooks
//! know: before each, what is about to be submitted is looked at. The first request that may touch
//! a connection or an epoll set ends that: from then on nothing in this process is carried, and
//! what was goes back to TCP before the kernel sees the request.
//!
//! A ring that is submitted to in any other way ends it when it is set up or found.

use super::process::hand_over_all;
use crate::fds::{self, Entry};
use crate::runtime;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use ginnel_node::processes::ProcessFlags;
use ginnel_region::sys;
use ginnel_tcp::ledger::Reason;
use libc::c_int;
use std::io::Write;
use syscalls::Sysno;

/// A ring as liburing 2 keeps it (`struct io_uring` in liburing.h, the same since 2.0; a test
/// program asserts the offsets): what is read here, with what lies between.
#[repr(C)]
pub struct Ring {
    /// How many requests the kernel has taken.
    head: *const AtomicU32,
    _tail: *const AtomicU32,
    /// Requests that there is room for, less one.
    mask: *const u32,
    _between: [usize; 4],
    requests: *const Request,
    _taken: u32,
    /// How many requests the program has made.
    made: u32,
    _sizes: [usize; 4],
    _completions: [usize; 11],
    _flags: u32,
    /// The ring's descriptor.
    pub descriptor: c_int,
}

const _: () =
    assert!(core::mem::offset_of!(Ring, requests) == 56 && core::mem::offset_of!(Ring, made) == 68);
const _: () = assert!(core::mem::offset_of!(Ring, descriptor) == 196);

/// A request: 64 bytes, of which these are read (`struct io_uring_sqe`, linux/io_uring.h).
#[repr(C)]
struct Request {
    operation: u8,
    flags: u8,
    _priority: u16,
    descriptor: c_int,
    _rest: [u64; 7],
}

/// Flags of a request that change nothing here (`IOSQE_*`): it takes a buffer of the ring's, and
/// says nothing where it succeeds. Not among them: a number of the ring's own table (1); and those
/// with which the kernel looks a number up when it comes to the request (drain, both links, worker:
/// 2, 4, 8, 16), when it may be another's.
const HARMLESS: u8 = 1 << 5 | 1 << 6;

/// How a ring may be set up (`IORING_SETUP_*`) whose submissions are looked at: polling for
/// completions, sizes, workers, and when completions are worked off. Not among them: a thread of
/// the kernel that takes requests by itself, and other places or sizes of requests.
const SETUP: u32 =
    1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 16;

/// Is a ring that is set up with these flags one whose submissions can be looked at?
pub fn may_watch(flags: u32) -> bool {
    flags & !SETUP == 0 && !runtime::uses_io_uring()
}

/// A ring was set up, and will be submitted to by functions that call [`look`] before.
pub fn watch(ring: &Ring) {
    fds::set(ring.descriptor, Entry::Uring);
}

/// A ring is about to be closed past the hooks.
pub fn forget(ring: &Ring) {
    fds::replace(ring.descriptor, Entry::Uring, Entry::Unknown);
}

/// What was put into `ring` is about to be submitted.
///
/// # Safety
/// liburing made the ring, and it has not been closed.
pub unsafe fn look(ring: &Ring) {
    if runtime::uses_io_uring() {
        return;
    }
    if fds::get(ring.descriptor) != Entry::Uring {
        return used();
    }
    // SAFETY: both point into the mapping that liburing made with the ring.
    let (taken, mask) = unsafe { ((*ring.head).load(Ordering::Acquire), *ring.mask) };
    let count = ring.made.wrapping_sub(taken).min(mask.saturating_add(1));
    for at in 0..count {
        // SAFETY: of as many requests as the mask says, which the program has filled in.
        let request = unsafe { &*ring.requests.add((taken.wrapping_add(at) & mask) as usize) };
        if !request.is_of_a_file() {
            return used();
        }
    }
}

impl Request {
    /// Has this nothing to do with connections and epoll sets?
    fn is_of_a_file(&self) -> bool {
        /// NOP, TIMEOUT and its removal, ASYNC_CANCEL, LINK_TIMEOUT, MADVISE.
        const OF_NOTHING: [u8; 6] = [0, 11, 12, 14, 15, 25];
        /// READV, WRITEV, FSYNC, READ_FIXED, WRITE_FIXED, SYNC_FILE_RANGE, FALLOCATE, READ, WRITE,
        /// FADVISE.
        const OF_A_DESCRIPTOR: [u8; 10] = [1, 2, 3, 4, 5, 8, 17, 22, 23, 24];
        let of_a_file = || {
            OF_A_DESCRIPTOR.contains(&self.operation)
                && runtime::classify(self.descriptor) == Entry::Plain
        };
        self.flags & !HARMLESS == 0 && (OF_NOTHING.contains(&self.operation) || of_a_file())
    }
}

/// Does this operation of `io_uring_register` give a ring descriptors? It holds them, also when the
/// program has closed its numbers, and they are used by numbers of the ring's own.
pub fn registers_files(operation: u32) -> bool {
    // FILES, FILES_UPDATE, FILES2 and FILES_UPDATE2; `USE_REGISTERED_RING` may be set beside.
    matches!(operation & !(1 << 31), 2 | 6 | 13 | 14)
}

/// A ring is used of which the requests are not seen: nothing is upgraded in this process from
/// here on, and what was is handed over.
pub fn used() {
    runtime::note_io_uring();
    let Some(attachment) = runtime::attachment() else { return };
    attachment
        .node
        .processes
        .process(attachment.node.me())
        .flags
        .fetch_or(ProcessFlags::IoUring as u32, Ordering::Relaxed);
    hand_over_all(Reason::IoUring);
}

/// How long after a look for a ring past the hooks the next one is, at the least, nanoseconds.
const LOOK_EVERY: u64 = 1_000_000_000;
/// So many numbers beyond the highest that the hooks have seen are looked at too.
const BEYOND: c_int = 16;

/// Before a connection is shown to the other end: a program that has liburing in itself sets up its
/// ring past the hooks, and is known by the descriptor. Looked for before the first connection, and
/// then once a second at most.
pub fn look_for_rings() {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let (now, last) = (sys::monotonic_ns(), LAST.load(Ordering::Relaxed));
    if runtime::uses_io_uring() || last != 0 && now.saturating_sub(last) < LOOK_EVERY {
        return;
    }
    LAST.store(now, Ordering::Relaxed);
    // Sockets and sets, of which a program may have many, are known by now; the others are asked
    // one by one, which takes no descriptor. (The shim's own lie far up.)
    let highest =
        fds::all().filter(|(_, entry)| *entry != Entry::Own).map(|(fd, _)| fd).max().unwrap_or(0);
    if (0..=highest.saturating_add(BEYOND))
        .any(|fd| matches!(fds::get(fd), Entry::Unknown | Entry::Plain) && is_ring(fd))
    {
        used();
    }
}

fn is_ring(fd: c_int) -> bool {
    const NAME: &[u8] = b"anon_inode:[io_uring]";
    let mut path = [0_u8; 32];
    // The last byte stays 0.
    let written = path
        .split_last_mut()
        .is_some_and(|(_, mut room)| write!(room, "/proc/thread-self/fd/{fd}").is_ok());
    let mut name = [0_u8; NAME.len() + 1];
    let here = libc::AT_FDCWD as usize;
    // SAFETY: a terminated path, and a buffer that is writable for its length.
    let got = unsafe {
        sys::raw(
            Sysno::readlinkat,
            [here, path.as_ptr() as usize, name.as_mut_ptr() as usize, name.len(), 0, 0],
        )
    };
    written && got.is_ok_and(|got| name.get(..got) == Some(NAME))
}
