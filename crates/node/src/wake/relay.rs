//! Wake-ups between a process of the host and the virtual machines of its segment: eventfds that
//! `ginneld` passes on.
//!
//! *Out:* the process has one for each vector of each machine. *In:* a machine rings the host, and
//! the daemon rings every process of the host, whichever is meant. In each the service thread then
//! does what the driver does in a machine: it looks at the pages of this process's waiters, and
//! writes to the FIFOs of those that have a bit set.
//!
//! Without the daemon memory and connections stay as they are. While it is away the service thread
//! looks at the waiters every few milliseconds by itself, machines are woken by tokens, and it
//! tries to join again.

use super::page;
use crate::join::{self, Admission};
use ginnel_region::Segment;
use ginnel_region::sys::{self, Fd};
use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// How many waiters one process can have; those beyond are left to tokens.
const WAITERS: usize = 1024;
/// In a waiter's entry: the service thread is writing to its FIFO.
const BUSY: u64 = 1 << 63;
/// How long the daemon may take to answer one who joins again, nanoseconds.
const PATIENCE: u64 = 300_000_000;

/// A process's doorbells. A child of fork uses its parent's.
pub struct Bells {
    socket: AtomicI32,
    /// The one own doorbell that is listened to.
    own: AtomicI32,
    vector: u16,
    vectors: u16,
    machines: Vec<AtomicI32>,
    /// The memory, opened anew: for locks.
    memory: AtomicI32,
    /// The daemon is there.
    up: AtomicBool,
    /// It came back with another memory: there is nothing to be had from it.
    another: AtomicBool,
    /// Waiters of this process: page << 32 | FIFO, or 0.
    waiters: Box<[AtomicU64]>,
    /// Those behind the first so many were never used.
    used: AtomicUsize,
}

impl Bells {
    pub(crate) fn new(joined: Admission) -> Self {
        let vectors = u16::try_from(joined.own.len()).unwrap_or(0);
        // Vector 0 is also rung for whoever comes and goes.
        let vector = u16::from(vectors > 1);
        let own = joined.own.into_iter().nth(vector.into()).map_or(-1, Fd::take);
        // What came from the daemon is one open file for all, and so would be its locks.
        let name = CString::new(format!("/proc/self/fd/{}", joined.memory.0)).unwrap_or_default();
        let memory = sys::openat(libc::AT_FDCWD, &name, libc::O_RDWR, 0).map_or(-1, sys::move_high);
        Self {
            socket: AtomicI32::new(joined.socket.take()),
            own: AtomicI32::new(own),
            vector,
            vectors,
            machines: joined.machines.into_iter().map(|fd| AtomicI32::new(fd.take())).collect(),
            memory: AtomicI32::new(memory),
            up: AtomicBool::new(true),
            another: AtomicBool::new(false),
            waiters: (0..WAITERS).map(|_| AtomicU64::new(0)).collect(),
            used: AtomicUsize::new(0),
        }
    }

    fn descriptors(&self) -> impl Iterator<Item = &AtomicI32> {
        self.machines.iter().chain([&self.socket, &self.own, &self.memory])
    }

    /// Tells of every descriptor.
    pub(crate) fn each(&self, tell: impl FnMut(i32)) {
        self.descriptors()
            .map(|fd| fd.load(Ordering::Relaxed))
            .filter(|&fd| fd >= 0)
            .for_each(tell);
    }

    /// The process leaves the segment: nobody is rung, or rings, from here on.
    pub(crate) fn close(&self, mut close: impl FnMut(i32)) {
        self.up.store(false, Ordering::SeqCst);
        self.another.store(true, Ordering::Relaxed);
        for fd in self.descriptors() {
            close(fd.swap(-1, Ordering::AcqRel));
        }
    }

    /// The connection to the daemon: it hangs up when that is gone.
    #[must_use]
    pub fn socket(&self) -> i32 {
        self.socket.load(Ordering::Relaxed)
    }

    /// Rung for this process's waiters. Children of fork have it too: it is never read, only waited
    /// for anew (EPOLLET).
    #[must_use]
    pub fn own(&self) -> i32 {
        self.own.load(Ordering::Relaxed)
    }

    /// Shows that processes of `member` live, to all of this host, whoever they are: a lock on a
    /// byte of the memory, gone when the last of them is.
    pub(crate) fn show(&self, member: u16) {
        let _ = sys::share_byte(self.memory.load(Ordering::Relaxed), member.into());
    }

    /// Does any process of another member of this host live? Unknown counts as yes.
    pub(crate) fn shows(&self, member: u16) -> bool {
        sys::byte_is_shared(self.memory.load(Ordering::Relaxed), member.into()).unwrap_or(true)
    }

    /// The vector that this process listens to.
    pub(crate) fn vector(&self) -> u16 {
        self.vector
    }

    /// Is the daemon there?
    #[must_use]
    pub fn up(&self) -> bool {
        self.up.load(Ordering::SeqCst)
    }

    /// Rings a machine. False where that cannot be done.
    pub(crate) fn ring(&self, peer: u16, vector: u16) -> bool {
        let place = usize::from(peer)
            .wrapping_sub(1)
            .wrapping_mul(self.vectors.into())
            .wrapping_add(vector.into());
        let bell = if vector < self.vectors { self.machines.get(place) } else { None };
        let fd = bell.map_or(-1, |fd| fd.load(Ordering::Relaxed));
        // A counter that is full has rung already.
        fd >= 0
            && self.up()
            && matches!(sys::write(fd, &1u64.to_ne_bytes()), Ok(_) | Err(libc::EAGAIN))
    }

    /// A new waiter of this process. False where there is no room.
    pub(crate) fn enter(&self, page: u32, fifo: i32) -> bool {
        let word = word(page, fifo);
        let free = |place: &AtomicU64| {
            place.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let place = self.waiters.iter().position(free);
        self.used.fetch_max(place.map_or(0, |place| place + 1), Ordering::Release);
        place.is_some()
    }

    /// The FIFO of the waiter with this page is about to be closed.
    pub(crate) fn leave(&self, page: u32) {
        self.exchange(|word| (word >> 32) as u32 == page, |_| 0);
    }

    /// See [`crate::joined::Joined::moved`].
    pub(crate) fn moved(&self, from: i32, to: i32) -> bool {
        self.descriptors().any(|place| replaced(place, from, to))
            || self.exchange(|own| own as u32 as i32 == from, |own| word((own >> 32) as u32, to))
    }

    /// Puts another word in the place of a waiter's. False: there is no such waiter.
    fn exchange(&self, which: impl Fn(u64) -> bool, other: impl Fn(u64) -> u64) -> bool {
        let exchange = |place: &AtomicU64| {
            loop {
                let own = place.load(Ordering::Relaxed) & !BUSY;
                if own == 0 || !which(own) {
                    return false;
                }
                let put =
                    place.compare_exchange(own, other(own), Ordering::AcqRel, Ordering::Relaxed);
                if put.is_ok() {
                    return true;
                }
                // The service thread, whose signals are blocked, is at it for one system call.
                std::hint::spin_loop();
            }
        };
        self.waiters.iter().take(self.used.load(Ordering::Acquire)).any(exchange)
    }

    /// In a fork child: the waiters are the parent's.
    pub(crate) fn forget_parent(&self) {
        for place in &self.waiters {
            place.store(0, Ordering::Relaxed);
        }
    }

    /// Wakes the waiters of this process that have a bit set, whoever rang. For the service thread
    /// alone.
    pub fn deliver(&self, segment: &Segment) {
        for place in self.waiters.iter().take(self.used.load(Ordering::Acquire)) {
            let word = place.load(Ordering::Relaxed);
            if word != 0
                && page::has_news(segment, (word >> 32) as u32)
                && place
                    .compare_exchange(word, word | BUSY, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                let _ = sys::write(word as u32 as i32, &[0]);
                place.store(word, Ordering::Release);
            }
        }
    }

    /// Has the daemon gone since it was last seen? Then nobody is rung from here on.
    #[must_use]
    pub fn lost(&self) -> bool {
        const GONE: i16 = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        self.up()
            && sys::poll(self.socket(), GONE, 0) & GONE != 0
            && self.up.swap(false, Ordering::SeqCst)
    }

    /// Joins again at `path`. False where that failed, or where the daemon has another memory by
    /// now, whose machines are not ours. For the service thread alone.
    pub fn rejoin(&self, path: &Path, segment: &Segment) -> bool {
        if self.another.load(Ordering::Relaxed) {
            return false;
        }
        let joined = join::join(path, sys::monotonic_ns() + PATIENCE, || self.deliver(segment));
        // One who is refused, since all places are taken, has no doorbells.
        let Some(joined) = joined.ok().filter(|joined| !joined.own.is_empty()) else {
            return false;
        };
        let same = joined.machines.len() == self.machines.len()
            && joined.own.len() == usize::from(self.vectors);
        if !same || !segment.is_in(joined.memory.0) {
            self.another.store(true, Ordering::Relaxed);
            return false;
        }
        // Each at the number that its predecessor had: another thread may be about to use it.
        let put = |place: &AtomicI32, new: Fd| {
            let old = place.load(Ordering::Relaxed);
            if old >= 0 && new.0 >= 0 {
                sys::replace(new.take(), old);
            }
        };
        for (place, new) in self.machines.iter().zip(joined.machines) {
            put(place, new);
        }
        if let Some(own) = joined.own.into_iter().nth(self.vector.into()) {
            put(&self.own, own);
        }
        put(&self.socket, joined.socket);
        self.up.store(true, Ordering::SeqCst);
        // Whoever could not be rung meanwhile, and sleeps: each machine's driver looks whom it is
        // for.
        for place in &self.machines {
            let _ = sys::write(place.load(Ordering::Relaxed), &1u64.to_ne_bytes());
        }
        true
    }
}

/// Puts the number `to` in place of `from`. False: it was another.
pub(crate) fn replaced(place: &AtomicI32, from: i32, to: i32) -> bool {
    place.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

impl Drop for Bells {
    fn drop(&mut self) {
        self.each(sys::close);
    }
}

fn word(page: u32, fifo: i32) -> u64 {
    u64::from(page) << 32 | u64::from(fifo.unsigned_abs())
}
