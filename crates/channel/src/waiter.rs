//! Sleeping and being woken: a page of flags in the segment, and a FIFO beside it, or, where other kernels have the segment too, a doorbell.
//!
//! A waiter is one sleeping thread, or one epoll set. Channels are armed with its page and a bit. A peer that has news sets the bit, then looks
//! whether the waiter sleeps, and only then writes one byte into its FIFO: a waiter that is awake costs no system call.
//!
//! A waiter with a doorbell has an open file of the guest driver's device in place of the FIFO, which is woken by interrupts of one vector that find the page's
//! summary other than zero: several waiters share a vector, and those that are not meant sleep on.
//!
//! On the host, where `ginneld` serves the segment, a waiter has both: a FIFO for this kernel's processes, and a doorbell of peer 0 for the machines, whose rings
//! this process's service thread turns into bytes in the FIFO ([`crate::bells`]).
//!
//! Page: word 0 `sleeping` (0 awake, 1 asleep, 2 asleep and being woken, by somebody who may be killed before that is done: whoever comes meanwhile does it too);
//! word 1 the FIFO's number; word 2 owner (process entry + 1, of the page's member); word 4 the doorbell (bit 32: there is one; bits 16–31 peer, bits 0–15 vector); 0x40 summary, one bit for each line of bits; 0x80 … the bits.

use crate::Attachment;
use crate::attach::{Joined, Standing, find_wake_directory, wake_directory};
use crate::ledger::Slot;
use crate::place::Place;
use ginnel_region::{Error, Head, Owner, PAGE, Segment, Use, device, sys};
use ginnel_ring::park::Want;
use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// How many bits a waiter has.
pub const BITS: u32 = 62 * 512;
/// In word 0 of a waiter's page: it sleeps …
const ASLEEP: u64 = 1;
/// … and somebody is about to wake it.
const CALLED: u64 = 2;
/// Where in its page a waiter's doorbell stands, and the bit that says that it does.
const DOORBELL: u64 = 32;
const BELL: u64 = 1 << 32;
/// Where in its page the word lies that is not zero as long as any bit is set.
const SUMMARY: u64 = 0x40;

/// Bytes of a FIFO that are read in one call …
const EMPTIED_AT_ONCE: usize = 256;
/// … and in all: as many as it holds at most, where whoever opened it enlarged it (`fs.pipe-max-size`).
const LARGEST_FIFO: usize = 1 << 20;

/// A waiter of this process.
#[derive(Debug, Clone, Copy)]
pub struct Waiter {
    page: u32,
    fifo: i32,
}

fn fifo_name(id: u64) -> CString {
    CString::new(format!("w{id:016x}")).unwrap_or_default()
}

fn page_word(segment: &Segment, page: u32, offset: u64) -> &AtomicU64 {
    segment.word(u64::from(page) * PAGE + offset)
}

/// The last of making a waiter: says whose it is, and how it is woken. False where its maker was stopped for so long that it counted as abandoned: the page is another's by now.
fn made(attachment: &Attachment, segment: &Segment, head: Head, fifo: u64, bell: u64) -> bool {
    segment.still(head).is_ok() && {
        let word = |at| page_word(segment, head.page(), at);
        word(8).store(fifo, Ordering::Relaxed);
        word(DOORBELL).store(bell, Ordering::Relaxed);
        word(16).store(u64::from(attachment.me()) + 1, Ordering::Release);
        segment.settle(head).is_some()
    }
}

impl Waiter {
    /// Makes a waiter.
    ///
    /// # Errors
    /// Where there are no FIFOs, no pages or no descriptors left: use tokens.
    pub fn new(attachment: &Attachment) -> Result<Self, Error> {
        Self::new_in(attachment, attachment)
    }

    /// Makes a waiter in a segment that this process is joined to, and may have left by now.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn new_in(attachment: &Attachment, joined: &Joined) -> Result<Self, Error> {
        let gone = joined.place.is_some() && joined.segment.is_gone();
        if !joined.fifos || gone || attachment.standing() != Standing::Here {
            return Err(Error::Full);
        }
        let segment = &joined.segment;
        let head = segment.claim_head(Owner::new(joined.member, Use::Waiter))?;
        segment.clear(head.page());
        if let (Some(place), None) = (joined.place, &joined.bells) {
            return Self::with_doorbell(attachment, segment, head, place);
        }
        let id = sys::random_u64();
        // Before there is one: if this process is killed meanwhile, whoever frees the page removes it.
        page_word(segment, head.page(), 8).store(id, Ordering::Release);
        let name = fifo_name(id);
        let dir = joined.wake_dir();
        let opened = sys::mkfifoat(dir, &name, 0o600).and_then(|()| sys::openat(dir, &name, libc::O_RDWR | libc::O_NONBLOCK, 0));
        let opened = opened.inspect(|&fifo| {
            let _ = sys::fchmod(fifo, joined.wake_mode);
        });
        match opened {
            Ok(fifo) => {
                let waiter = Self { page: head.page(), fifo: sys::move_high(fifo) };
                attachment.own(waiter.fifo);
                let entered = joined.bells.as_ref().is_none_or(|bells| bells.enter(waiter));
                let bell = joined.bells.as_ref().map_or(0, |bells| BELL | u64::from(bells.vector()));
                if entered && made(attachment, segment, head, id, bell) {
                    return Ok(waiter);
                }
                if let Some(bells) = joined.bells.as_ref().filter(|_| entered) {
                    bells.leave(waiter);
                }
                attachment.disown(waiter.fifo);
                let _ = sys::unlinkat(dir, &name);
                segment.release_head(head);
                Err(Error::Full)
            }
            Err(errno) => {
                let _ = sys::unlinkat(dir, &name);
                segment.release_head(head);
                Err(Error::System { doing: "make FIFO", errno })
            }
        }
    }

    fn with_doorbell(attachment: &Attachment, segment: &Segment, head: Head, place: Place) -> Result<Self, Error> {
        // Vector 0 is also rung for whoever comes and goes. The others are shared out.
        let others = u32::from(place.vectors).saturating_sub(1);
        let vector = if others == 0 { 0 } else { u16::try_from(1 + head.page() % others).unwrap_or(0) };
        let file = crate::attach::open_device(segment.path());
        if let Err(errno) = device::watch(file, u64::from(head.page()) * PAGE + SUMMARY, vector) {
            if file >= 0 {
                sys::close(file);
            }
            segment.release_head(head);
            return Err(Error::System { doing: "wait for doorbells", errno });
        }
        attachment.own(file);
        let bell = BELL | u64::from(place.peer) << 16 | u64::from(vector);
        if !made(attachment, segment, head, 0, bell) {
            attachment.disown(file);
            return Err(Error::Full);
        }
        Ok(Self { page: head.page(), fifo: file })
    }

    /// A waiter that was taken apart before: its page and its FIFO.
    #[must_use]
    pub fn from_parts(page: u32, fifo: i32) -> Self {
        Self { page, fifo }
    }

    /// Wakes it from this process.
    pub fn poke(self) {
        let _ = sys::write(self.fifo, &[0]);
    }

    /// It belongs to a segment that was left: closes its descriptor. Its page went with the segment.
    pub fn abandon(self, attachment: &Attachment) {
        attachment.disown(self.fifo);
    }

    /// Gives the waiter back.
    pub fn retire(self, attachment: &Attachment) {
        self.retire_in(attachment, attachment);
    }

    /// The same, where it was made in a segment that this process may have left by now.
    pub fn retire_in(self, attachment: &Attachment, joined: &Joined) {
        if let Some(bells) = &joined.bells {
            bells.leave(self);
        }
        attachment.disown(self.fifo);
        if let Some(head) = head_of(&joined.segment, self.page).and_then(|head| joined.segment.take(head)) {
            discard(joined, head);
        }
    }

    /// The descriptor that becomes readable when a peer wakes this waiter.
    #[must_use]
    pub fn fifo(self) -> i32 {
        self.fifo
    }

    /// Its page.
    #[must_use]
    pub fn page(self) -> u32 {
        self.page
    }

    /// The wish to be woken by it with `bit`.
    #[must_use]
    pub fn want(self, bit: u16) -> Want {
        Want::Waiter { page: self.page, bit }
    }

    /// About to sleep. The caller looks at everything it waits for again after this, then sleeps with [`Self::fifo`] among its descriptors.
    pub fn sleeping(self, segment: &Segment) {
        page_word(segment, self.page, 0).store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Awake again. Empties the FIFO if somebody may have written into it. `told`: the kernel told the caller of the FIFO, who empties it.
    pub fn awake(self, segment: &Segment, told: bool) {
        let rung = page_word(segment, self.page, 0).swap(0, Ordering::AcqRel) != ASLEEP;
        // An interrupt that was meant for another may have found a bit of ours set: it must not wake us again and again.
        if !told && (rung || page_word(segment, self.page, DOORBELL).load(Ordering::Relaxed) & BELL != 0) {
            self.empty();
        }
    }

    /// Reads the FIFO empty, of all that was in it before: a peer that goes on writing does not hold the caller up. What it writes
    /// meanwhile wakes once more.
    pub fn empty(self) {
        let mut bytes = [0u8; EMPTIED_AT_ONCE];
        for _ in 0..LARGEST_FIFO / EMPTIED_AT_ONCE {
            if !sys::read(self.fifo, &mut bytes).is_ok_and(|n| n == bytes.len()) {
                break;
            }
        }
    }

    /// Is any bit set?
    #[must_use]
    #[inline]
    pub fn any(self, segment: &Segment) -> bool {
        has_news(segment, self.page)
    }

    /// Takes every bit that is set, and calls `each` with it.
    pub fn take(self, segment: &Segment, mut each: impl FnMut(u32)) {
        let summary = page_word(segment, self.page, SUMMARY).swap(0, Ordering::AcqRel);
        for line in (0..62u64).filter(|line| summary >> line & 1 == 1) {
            for word in 0..8u64 {
                let mut bits = page_word(segment, self.page, 0x80 + line * 64 + word * 8).swap(0, Ordering::AcqRel);
                while bits != 0 {
                    let bit = bits.trailing_zeros();
                    bits &= bits - 1;
                    each(u32::try_from(line * 512 + word * 64).unwrap_or(0) + bit);
                }
            }
        }
    }
}

/// The head of a page that is a waiter's.
fn head_of(segment: &Segment, page: u32) -> Option<Head> {
    segment.head(page).filter(|head| head.owner().kind == Use::Waiter)
}

/// Is any bit of the waiter with this page set?
#[inline]
pub(crate) fn has_news(segment: &Segment, page: u32) -> bool {
    page_word(segment, page, SUMMARY).load(Ordering::Acquire) != 0
}

/// The process (ledger entry) that a waiter of this ledger's member belongs to; `None` where the page is no waiter.
#[must_use]
pub fn owner(segment: &Segment, page: u32) -> Option<u32> {
    head_of(segment, page)?;
    u32::try_from(page_word(segment, page, 16).load(Ordering::Relaxed)).ok()?.checked_sub(1)
}

/// Frees a waiter's page, whose head this process has taken, and removes its FIFO.
pub(crate) fn discard(joined: &Joined, head: Head) {
    if joined.place.is_none() || joined.bells.is_some() {
        let id = page_word(&joined.segment, head.page(), 8).load(Ordering::Acquire);
        // As long as the page was this process's, so was what stood there.
        if joined.segment.head(head.page()) == Some(head) {
            let _ = sys::unlinkat(joined.wake_dir(), &fifo_name(id));
        }
    }
    joined.segment.release_head(head);
}

/// What wakes a waiter that sleeps.
enum Call {
    /// A doorbell: peer and vector.
    Bell(u16, u16),
    /// A byte in the FIFO of this number.
    Fifo(u64),
}

/// Sets a waiter's bit. Returns what wakes it, where it sleeps: the caller does that, and says so ([`raised`]).
fn raise(segment: &Segment, page: u32, bit: u16) -> Option<Call> {
    if u32::from(bit) >= BITS || head_of(segment, page).is_none() {
        return None;
    }
    let line = u64::from(bit) / 512;
    let word = u64::from(bit) / 64 * 8;
    page_word(segment, page, 0x80 + word).fetch_or(1 << (bit % 64), Ordering::AcqRel);
    page_word(segment, page, SUMMARY).fetch_or(1 << line, Ordering::AcqRel);
    // Pairs with the fence in `sleeping`: either it sees the bit, or we see that it sleeps.
    fence(Ordering::SeqCst);
    let sleeping = page_word(segment, page, 0);
    if sleeping.load(Ordering::Relaxed) == 0
        || sleeping.compare_exchange(ASLEEP, CALLED, Ordering::AcqRel, Ordering::Relaxed) == Err(0)
    {
        return None;
    }
    let bell = page_word(segment, page, DOORBELL).load(Ordering::Acquire);
    // Whatever a peer wrote there: to ring somebody in vain is all that can come of it.
    Some(if bell & BELL != 0 {
        Call::Bell((bell >> 16) as u16, bell as u16)
    } else {
        Call::Fifo(page_word(segment, page, 8).load(Ordering::Acquire))
    })
}

/// What came of that: where the waiter was `woken`, nobody else need do it, unless it sleeps again by now. Else it sleeps on, as far as is known here, and who can wake it is to do so.
fn raised(segment: &Segment, page: u32, woken: bool) {
    // Not what a page holds that has come to be something else meanwhile.
    if head_of(segment, page).is_some() {
        let now = if woken { 0 } else { ASLEEP };
        let _ = page_word(segment, page, 0).compare_exchange(CALLED, now, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Sets a waiter's bit, and wakes it if it sleeps. `page` and `bit` came from a peer: a page that is no waiter is left alone. False: it sleeps, in another kernel or as
/// another user's, and there is no way from here to wake it.
pub fn ring(attachment: &Attachment, page: u32, bit: u16, slot: Option<&Slot>) -> bool {
    let joined: &Joined = attachment;
    let woken = match (raise(&joined.segment, page, bit), &joined.bells) {
        (None, _) => return true,
        // A test's pretence, where a token can be sent instead.
        (Some(_), _) if slot.is_some() && attachment.is_deaf() => false,
        (Some(Call::Bell(peer @ 1.., vector)), Some(bells)) => bells.ring(peer, vector),
        (Some(Call::Bell(..)), Some(_)) => {
            let id = page_word(&joined.segment, page, 8).load(Ordering::Acquire);
            by_fifo(attachment, page, id)
        }
        (Some(Call::Bell(peer, vector)), None) => device::ring(joined.device(), peer, vector).is_ok(),
        (Some(Call::Fifo(id)), _) => by_fifo(attachment, page, id),
    };
    raised(&joined.segment, page, woken);
    if !woken {
        return false;
    }
    if let Some(slot) = slot {
        slot.wakes.fetch_add(1, Ordering::Relaxed);
    }
    true
}

/// Wakes a waiter by its FIFO, or finds that it is no more: nobody sleeps there then. False: it sleeps, and cannot be reached.
fn by_fifo(attachment: &Attachment, page: u32, id: u64) -> bool {
    let segment = &attachment.segment;
    // A waiter is taken before its FIFO goes. One that is not has lost it to somebody who emptied the directory.
    let is_live =
        || head_of(segment, page).is_some_and(|head| !head.is_busy()) && page_word(segment, page, 8).load(Ordering::Acquire) == id;
    match attachment.peers.write(attachment, id) {
        Ok(()) => true,
        Err(libc::ENOENT) => !is_live(),
        Err(_) => false,
    }
}

/// Wakes a waiter from a process that is not attached. `directory`: of its ledger. Nothing where it cannot be reached: service threads look now and then by themselves.
pub fn call(directory: &Path, segment: &Segment, page: u32) {
    let (file, byte): (_, &[u8]) = match raise(segment, page, 0) {
        Some(Call::Bell(peer, vector)) => {
            let device = crate::attach::open_device(segment.path());
            let _ = device::ring(device, peer, vector);
            (device, &[])
        }
        Some(Call::Fifo(id)) => {
            let file = find_wake_directory(&wake_directory(directory, segment.path()), segment.path()).map_or(-1, |dir| {
                let file = open_fifo(dir, id).unwrap_or(-1);
                sys::close(dir);
                file
            });
            (file, &[0])
        }
        None => return,
    };
    if file >= 0 {
        let _ = sys::write(file, byte);
        sys::close(file);
    }
    raised(segment, page, true);
}

const CACHED: usize = 128;

/// Open FIFOs of other waiters, so that waking one is one system call.
pub(crate) struct PeerFifos {
    locked: AtomicBool,
    entries: std::cell::UnsafeCell<([(u64, i32); CACHED], usize)>,
}

// SAFETY: `entries` is only touched under `locked`.
unsafe impl Sync for PeerFifos {}
// SAFETY: plain numbers.
unsafe impl Send for PeerFifos {}

impl PeerFifos {
    pub(crate) fn new() -> Self {
        Self { locked: AtomicBool::new(false), entries: std::cell::UnsafeCell::new(([(0, -1); CACHED], 0)) }
    }

    /// In a fork child: another thread of the parent may have held the lock.
    pub(crate) fn forget_lock(&self) {
        self.locked.store(false, Ordering::Release);
    }

    /// Does no thread hold the lock at the moment?
    pub(crate) fn is_free(&self) -> bool {
        !self.locked.load(Ordering::Relaxed)
    }

    /// False: it is not to be had. A thread that left its work here by `siglongjmp` never gives it back.
    fn lock(&self) -> bool {
        for round in 0..10_000u32 {
            if !self.locked.swap(true, Ordering::Acquire) {
                return true;
            }
            if round % 64 == 63 { sys::yield_now() } else { std::hint::spin_loop() }
        }
        false
    }

    /// Closes what is open.
    pub(crate) fn close(&self, attachment: &Attachment) {
        if !self.lock() {
            return;
        }
        // SAFETY: under the lock.
        for entry in &mut unsafe { &mut *self.entries.get() }.0 {
            attachment.disown(std::mem::replace(entry, (0, -1)).1);
        }
        self.locked.store(false, Ordering::Release);
    }

    /// Writes into the FIFO of this number.
    fn write(&self, attachment: &Attachment, id: u64) -> sys::Result<()> {
        if !self.lock() {
            let fd = open_fifo(attachment.wake_dir(), id)?;
            let written = wake_by(fd);
            sys::close(fd);
            return written;
        }
        // SAFETY: under the lock.
        let (entries, next) = unsafe { &mut *self.entries.get() };
        let place = (id as usize) % CACHED;
        let known = entries.iter().cycle().skip(place).take(4).find(|(known, fd)| *known == id && *fd >= 0);
        let opened = match known {
            Some((_, fd)) => Ok(*fd),
            None => open_fifo(attachment.wake_dir(), id).map(|fd| {
                let fd = sys::move_high(fd);
                *next = next.wrapping_add(1);
                if let Some(victim) = entries.get_mut((place + *next % 4) % CACHED) {
                    attachment.disown(victim.1);
                    attachment.own(fd);
                    *victim = (id, fd);
                }
                fd
            }),
        };
        let written = opened.and_then(wake_by);
        self.locked.store(false, Ordering::Release);
        written
    }
}

/// Writes a byte. A FIFO that is full has been written to.
fn wake_by(fifo: i32) -> sys::Result<()> {
    match sys::write(fifo, &[0]) {
        Ok(_) | Err(libc::EAGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Opens a waiter's FIFO. Where several users share the directory, anything may stand under that name.
fn open_fifo(dir: i32, id: u64) -> sys::Result<i32> {
    let fd = sys::openat(dir, &fifo_name(id), libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOFOLLOW, 0)?;
    match sys::fstat(fd) {
        Ok(stat) if stat.st_mode & libc::S_IFMT == libc::S_IFIFO => Ok(fd),
        _ => {
            sys::close(fd);
            Err(libc::EINVAL)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_region::Config;

    /// A peer that writes as fast as it is read, for ever: what is emptied here never runs out.
    #[test]
    fn emptying_a_fifo_ends_while_somebody_goes_on_writing() {
        use std::os::fd::IntoRawFd;
        let endless = std::fs::File::open("/dev/zero").expect("there").into_raw_fd();
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            Waiter::from_parts(1, endless).empty();
            let _ = done.send(());
        });
        ended.recv_timeout(std::time::Duration::from_secs(20)).expect("it reads for as long as somebody writes");
        sys::close(endless);
    }

    #[test]
    fn whoever_dies_before_it_wakes_leaves_that_to_the_next() {
        let path = std::env::temp_dir().join(format!("ginnel-waiter-{:x}", sys::random_u64()));
        let segment = Segment::create(&path, &Config { size: 16 << 20, ..Config::default() }).expect("create");
        let head = segment.claim_head(Owner::new(0, Use::Waiter)).expect("a page");
        segment.clear(head.page());
        segment.settle(head).expect("made");
        let waiter = Waiter::from_parts(head.page(), -1);
        let calls = || raise(&segment, head.page(), 7).is_some();

        assert!(!calls(), "it is awake");
        assert!(waiter.any(&segment));
        waiter.sleeping(&segment);
        // The first of these is killed here.
        assert!(calls() && calls());
        raised(&segment, head.page(), true);
        assert!(!calls(), "it was woken");
        // It sleeps again before the killed one's place is taken: that one's word is not the new sleep's.
        waiter.sleeping(&segment);
        raised(&segment, head.page(), true);
        assert!(calls());
        raised(&segment, head.page(), false);
        assert!(calls(), "it could not be woken");
        waiter.awake(&segment, true);
        assert!(!calls());
        std::fs::remove_file(&path).expect("there");
    }
}
