//! The ledger: what the processes of one user on one kernel share about their own sockets. A file beside the default segment,
//! never in a segment: a peer must not be able to forge it. Its readers trust each other as threads of one program do.
//!
//! A socket is found by `SO_COOKIE`, which is the same across dup, fork, exec and SCM_RIGHTS.

mod doubt;
mod elsewhere;
mod large;
mod left;
mod lock;
mod process;
mod slot;

pub use lock::{Held, Interrupted, Lock};
pub(crate) use process::Life;
pub use process::{PATIENCE, Process, ProcessFlags};
pub use slot::{Reason, Receive, Send, Slot, Stage, TAKEN, TOLD, Tuple, attention, flag};

use crate::bits::Bits;
use crate::cgroup;
use crate::home::check_ledger;
use doubt::Doubts;
use ginnel_region::{Error, may_make, sys};
use large::{PERMITS, Permit};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"GINLEDGR");
const VERSION: u64 = 8;

/// How many sockets a ledger holds: both ends of 10,000 connections of one user, and a third as many again, so that each finds a place near its own.
pub const SLOTS: u32 = 32768;
/// A bit for each slot.
pub type SlotBits = Bits<{ SLOTS as usize / 64 }>;

/// How many processes a ledger holds.
pub const PROCESSES: u32 = 4096;
/// How far from its hashed place a slot may lie.
const REACH: u32 = 64;
/// The slots in three parts: a socket gets its place in the first, or where there is no room near its place there in the next. So few sockets at a time, though one follows another, use few slots
/// again and again, which stay in the caches.
const PARTS: [Part; 3] =
    [Part { first: 0, count: 256 }, Part { first: 256, count: 3840 }, Part { first: 4096, count: SLOTS - 4096 }];

const TAGS_AT: usize = 12288;
const PROCESSES_AT: usize = TAGS_AT + SLOTS as usize * size_of::<AtomicU16>();
const SLOTS_AT: usize = PROCESSES_AT + PROCESSES as usize * size_of::<Process>();
const SIZE: usize = SLOTS_AT + SLOTS as usize * size_of::<Slot>();

/// Bytes that have memory behind them from the beginning on: all but the slots of later parts.
const AT_FIRST: usize = SLOTS_AT + PARTS[0].count as usize * size_of::<Slot>();

/// Under a limit on memory below this no ledger is made: what a ledger and a segment begin with would be
/// a good part of it, bytes.
pub const LEAST_LIMIT: u64 = 32 << 20;

/// Slots in a page of memory.
const SLOTS_OF_PAGE: u64 = 4096 / size_of::<Slot>() as u64;

const STRIPES: usize = 64;

#[repr(C, align(4096))]
struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    generation: AtomicU64,
    /// Monotonic milliseconds of the last look for the dead.
    reclaimed: AtomicU64,
    large: [Permit; PERMITS],
    stripes: [Lock; STRIPES],
    /// (segment id, member + 1) pairs: as which member of a segment this ledger's processes appear.
    members: [(AtomicU64, AtomicU64); 64],
    members_lock: Lock,
    /// Segments (ids) that this ledger's processes are asked to leave, and not to join again; 0: free.
    detached: [AtomicU64; 32],
    /// Counts changes of [`Slot::registered`].
    registered: AtomicU32,
    /// Into how many of [`PARTS`] sockets have come so far.
    parts: AtomicU32,
    /// A bit for each slot that is in use, and for some that were: see [`Ledger::slots`].
    used: SlotBits,
    doubts: Doubts,
}

const _: () = assert!(size_of::<Header>() == TAGS_AT && PROCESSES_AT.is_multiple_of(4096));

/// The mapped ledger.
pub struct Ledger {
    base: *mut u8,
    /// Its path and what tells the file from others: to ask whether a process lives.
    path: CString,
    identity: (u64, u64),
    writable: bool,
    /// What an observer, who may not write it, has seen of processes of other pid namespaces: as `unlocked` in a [`Process`]. Empty where that can be written.
    seen_unlocked: Vec<AtomicU32>,
}

// SAFETY: everything in the map is atomic; `base` never changes.
unsafe impl std::marker::Send for Ledger {}
// SAFETY: as above.
unsafe impl Sync for Ledger {}

impl Drop for Ledger {
    /// Nobody has the memory any longer: a process that could not join is not to keep its ledger.
    fn drop(&mut self) {
        // SAFETY: the map is this value's, and what borrows from it is gone.
        unsafe { sys::unmap(self.base, SIZE) };
    }
}

impl Ledger {
    /// Opens the ledger at `path`, or makes it where there is none. Memory is taken for few sockets at first, and for more as they come.
    ///
    /// # Errors
    /// As for a segment: a file of another version, foreign, or no memory.
    pub fn open_or_create(path: &Path) -> Result<Self, Error> {
        match Self::open_own(path) {
            Err(Error::System { errno: libc::ENOENT, .. }) => {
                if cgroup::room(0).limit < LEAST_LIMIT {
                    return Err(Error::Limited);
                }
                match Self::create(path) {
                    Ok(()) | Err(Error::System { errno: libc::EEXIST, .. }) => {}
                    Err(error) => return Err(error),
                }
                Self::open_own(path)
            }
            other => other,
        }
    }

    /// Opens the effective user's own ledger, to take part in it: one that is another's, or that
    /// others may write, is refused.
    fn open_own(path: &Path) -> Result<Self, Error> {
        Self::open_checked(path, true, check_ledger)
    }

    /// Opens a ledger that is there, to look on, or to ask its processes for something: root does so
    /// with other users' too.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(path: &Path, writable: bool) -> Result<Self, Error> {
        Self::open_checked(path, writable, |_| Ok(()))
    }

    fn open_checked(path: &Path, writable: bool, check: impl FnOnce(&libc::stat) -> Result<(), Error>) -> Result<Self, Error> {
        let name = c_path(path)?;
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | if writable { libc::O_RDWR } else { libc::O_RDONLY };
        let fd = sys::openat(libc::AT_FDCWD, &name, flags, 0).map_err(|errno| system("open ledger", errno))?;
        let stat = sys::fstat(fd).map_err(|errno| system("look at ledger", errno));
        let opened = stat.and_then(|stat| check(&stat).and_then(|()| Self::map(fd, &stat, name, writable)));
        sys::close(fd);
        opened
    }

    fn map(fd: i32, stat: &libc::stat, path: CString, writable: bool) -> Result<Self, Error> {
        let actual = u64::try_from(stat.st_size).unwrap_or(0);
        let mut head = [0u8; 16];
        if sys::read(fd, &mut head).map_err(|errno| system("read ledger", errno))? != 16 || head[..8] != MAGIC.to_le_bytes() {
            return Err(Error::Foreign);
        }
        let theirs = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if u64::from(theirs) != VERSION {
            return Err(Error::Version { theirs, ours: VERSION as u32 });
        }
        if actual != SIZE as u64 {
            return Err(Error::Truncated { expected: SIZE as u64, actual });
        }
        let base = sys::map_shared(fd, SIZE, writable).map_err(|errno| system("map ledger", errno))?;
        let seen_unlocked = (0..if writable { 0 } else { PROCESSES }).map(|_| AtomicU32::new(0)).collect();
        Ok(Self { base, path, identity: (stat.st_dev, stat.st_ino), writable, seen_unlocked })
    }

    fn create(path: &Path) -> Result<(), Error> {
        may_make(SIZE as u64)?;
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{:x}.new", sys::random_u64()));
        let (draft, name) = (c_path(Path::new(&draft))?, c_path(path)?);
        let fd = sys::openat(libc::AT_FDCWD, &draft, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600)
            .map_err(|errno| system("create ledger", errno))?;
        let made = sys::ftruncate(fd, SIZE as u64)
            .and_then(|()| sys::fallocate(fd, 0, AT_FIRST as u64))
            .and_then(|()| sys::write(fd, &[MAGIC.to_le_bytes(), VERSION.to_le_bytes()].concat()))
            .and_then(|_| sys::link(&draft, &name));
        sys::close(fd);
        let _ = sys::unlinkat(libc::AT_FDCWD, &draft);
        made.map_err(|errno| system("create ledger", errno))
    }

    fn header(&self) -> &Header {
        // SAFETY: the map begins with a header, all atomics.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// The process entry `index`.
    #[must_use]
    pub fn process(&self, index: u32) -> &Process {
        // SAFETY: the remainder keeps it inside the map; all fields are atomics.
        unsafe { &*self.base.add(PROCESSES_AT).cast::<Process>().add((index % PROCESSES) as usize) }
    }

    /// Another open file of the ledger; `None` where it cannot be had, or another file stands in its place by now.
    fn reopen(&self, access: i32) -> Option<i32> {
        let fd = sys::openat(libc::AT_FDCWD, &self.path, access | libc::O_NONBLOCK, 0).ok()?;
        if sys::fstat(fd).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.identity) {
            return Some(fd);
        }
        sys::close(fd);
        None
    }

    /// Could this process open it anew, for reading and writing, under the same name?
    #[must_use]
    pub fn can_be_opened(&self) -> bool {
        self.reopen(libc::O_RDWR).inspect(|&fd| sys::close(fd)).is_some()
    }

    /// Gives back the lock by which others see this process live, and with it a map of the file.
    pub fn unlock_entry(&self) {
        process::unlock_entry();
    }

    /// Gives the memory up: zeroes of this process's own stand in its place from here on, and it no
    /// longer holds the lock by which others see it live.
    pub fn let_go(&self) {
        self.unlock_entry();
        // SAFETY: the map is this value's. All of it are atomics, for which zeroes are valid.
        unsafe { sys::give_up(self.base, SIZE) };
    }

    /// Counts changes of every [`Slot::registered`].
    #[must_use]
    pub fn registered(&self) -> &AtomicU32 {
        &self.header().registered
    }

    /// Where it is mapped.
    #[must_use]
    pub fn memory(&self) -> std::ops::Range<usize> {
        let base = self.base as usize;
        base..base + SIZE
    }

    /// The slot `index`.
    #[must_use]
    #[inline]
    pub fn slot(&self, index: u32) -> &Slot {
        // SAFETY: the remainder keeps it inside the map; all fields are atomics.
        unsafe { &*self.base.add(SLOTS_AT).cast::<Slot>().add((index % SLOTS) as usize) }
    }

    /// A piece of the cookie that slot `index` has, or had last: sockets that are not there are found not to be in two cache lines, instead of in a line of each slot where they could be.
    fn tag(&self, index: u32) -> &AtomicU16 {
        // SAFETY: the remainder keeps it inside the map; all of it are atomics.
        unsafe { &*self.base.add(TAGS_AT).cast::<AtomicU16>().add((index % SLOTS) as usize) }
    }

    /// The number of a slot of this ledger.
    #[must_use]
    pub fn index(&self, slot: &Slot) -> u32 {
        let at = std::ptr::from_ref(slot) as usize - (self.base as usize + SLOTS_AT);
        (at / size_of::<Slot>()) as u32
    }

    /// Every slot in use.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.not_free().filter(|slot| slot.is_in_use())
    }

    /// Every slot that somebody seized who has died since, and the word that stands for that.
    pub fn abandoned(&self) -> impl Iterator<Item = (&Slot, u64)> {
        let seized = self.not_free().map(|slot| (slot, slot.cookie.load(Ordering::Acquire)));
        seized.filter(|(_, cookie)| {
            *cookie >= slot::TAKEN && !self.is_still(u32::try_from(cookie & !slot::TAKEN).unwrap_or(u32::MAX))
        })
    }

    fn not_free(&self) -> impl Iterator<Item = &Slot> {
        self.header().used.ones(0).map(|index| {
            let slot = self.slot(index);
            if self.writable {
                self.unmark(slot, index);
            }
            slot
        })
    }

    /// Finds the slot of a socket.
    #[must_use]
    pub fn find(&self, cookie: u64) -> Option<&Slot> {
        let tag = tag_of(cookie);
        // Acquire pairs with the Release of whoever claimed the slot: who can ask for a socket's slot has seen the socket after that.
        let parts = PARTS.iter().take(self.header().parts.load(Ordering::Acquire) as usize);
        let tagged =
            parts.flat_map(|part| part.near(part.place(cookie))).filter(|&index| self.tag(index).load(Ordering::Acquire) == tag);
        tagged.map(|index| self.slot(index)).find(|slot| slot.cookie.load(Ordering::Acquire) == cookie)
    }

    /// Finds the slot of a socket or takes a free one for it; `true` if it was taken. `me`: this process's ticket. `fill` says of a new one what is known of the socket, before anybody finds it.
    #[must_use]
    pub fn find_or_claim(&self, cookie: u64, me: u32, fill: impl FnOnce(&Slot)) -> Option<(&Slot, bool)> {
        if let Some(slot) = self.find(cookie) {
            return Some((slot, false));
        }
        let stripe = self.header().stripes.get(PARTS[0].place(cookie) as usize % STRIPES)?;
        let _held = stripe.lock_unless_interrupted(self, me).ok()?;
        if let Some(slot) = self.find(cookie) {
            return Some((slot, false));
        }
        let used = &self.header().used;
        for (parts, part) in (1..).zip(&PARTS) {
            for index in self.unmarked(part, part.place(cookie)) {
                let slot = self.slot(index);
                if parts > 1 && !self.make_real(slot) {
                    return None;
                }
                // Before, as who seizes it may die; and after, as [`Self::unmark`] takes back the mark of one that it finds free.
                used.set(index);
                if slot.seize(0, me) {
                    used.set(index);
                    self.header().parts.fetch_max(parts, Ordering::AcqRel);
                    self.tag(index).store(tag_of(cookie), Ordering::Release);
                    slot.clear(self.next_generation());
                    fill(slot);
                    slot.cookie.store(cookie, Ordering::Release);
                    return Some((slot, true));
                }
            }
        }
        None
    }

    /// Makes the page of a slot real before anybody touches it: there may be no memory left for it.
    fn make_real(&self, slot: &Slot) -> bool {
        let page = std::ptr::from_ref(slot) as usize & !4095;
        // SAFETY: a slot's page lies inside the map, which is writable for who claims slots.
        match unsafe { sys::populate(page as *mut u8, 4096) } {
            Err(libc::EINVAL) => {
                // Before Linux 5.14.
                let Some(fd) = self.reopen(libc::O_RDWR) else { return false };
                let done = sys::fallocate(fd, (page - self.base as usize) as u64, 4096).is_ok();
                sys::close(fd);
                done
            }
            done => done.is_ok(),
        }
    }

    /// Slots of a part, from its place `start` on, that are not marked as used: without a look at each.
    fn unmarked(&self, part: &'static Part, start: u32) -> impl Iterator<Item = u32> {
        let word = |place| u128::from(self.header().used.word(part.index(place)));
        let bits = word(start) | word(start + 64) << 64;
        let free = !((bits >> (start % 64)) as u64);
        part.near(start).enumerate().filter(move |(step, _)| free >> step & 1 == 1).map(|(_, index)| index)
    }

    /// Gives a slot back, which the caller has seized.
    pub fn free(&self, slot: &Slot) {
        slot.free();
        self.unmark(slot, self.index(slot));
    }

    /// Takes the mark of a slot back that was found free.
    fn unmark(&self, slot: &Slot, index: u32) {
        self.header().used.unset_if_free(index, || slot.cookie.load(Ordering::SeqCst) == 0);
    }

    /// Is it time to look for the dead again, at most every `pause` milliseconds by whichever process? Only one is told so.
    #[must_use]
    pub fn time_to_reclaim(&self, pause: u64) -> bool {
        let last = &self.header().reclaimed;
        let (before, now) = (last.load(Ordering::Relaxed), sys::monotonic_ns() / 1_000_000);
        // A time that is still to come is of another boot's clock.
        (before == 0 || before > now || now - before >= pause)
            && last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Are the processes asked to leave the segment?
    #[must_use]
    pub fn is_detached(&self, segment: u64) -> bool {
        segment != 0 && self.header().detached.iter().any(|id| id.load(Ordering::SeqCst) == segment)
    }

    /// The segments that processes are asked to leave.
    #[must_use]
    pub fn detached(&self) -> Vec<u64> {
        self.header().detached.iter().map(|id| id.load(Ordering::Relaxed)).filter(|id| *id != 0).collect()
    }

    /// Asks the processes to leave a segment, or lets them join it again. `false`: no room for another.
    #[must_use]
    pub fn set_detached(&self, segment: u64, on: bool) -> bool {
        let ids = &self.header().detached;
        let change = |from, to| ids.iter().any(|id| id.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok());
        if on {
            return self.is_detached(segment) || change(0, segment);
        }
        // As often as it can stand there: whoever writes it anew meanwhile keeps nobody in here.
        for _ in ids {
            if !change(segment, 0) {
                return true;
            }
        }
        !self.is_detached(segment)
    }

    fn next_generation(&self) -> u64 {
        self.header().generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// As which member of a segment this ledger's processes appear, if that was settled and `holds`; else settles it with `choose`.
    pub fn member_of(
        &self,
        segment: u64,
        me: u32,
        holds: impl Fn(u16) -> bool,
        choose: impl FnOnce() -> Option<u16>,
    ) -> Option<u16> {
        let header = self.header();
        let _held = header.members_lock.lock(self, me);
        let known = header.members.iter().find(|(id, _)| id.load(Ordering::Relaxed) == segment);
        if let Some((_, member)) = known {
            let settled = u16::try_from(member.load(Ordering::Relaxed)).ok().filter(|&member| holds(member));
            return settled.or_else(|| choose().inspect(|&chosen| member.store(chosen.into(), Ordering::Relaxed)));
        }
        // Segments that are gone are forgotten when the table is full: their number only matters while they are mapped.
        let (id, member) =
            header.members.iter().find(|(id, _)| id.load(Ordering::Relaxed) == 0).or_else(|| header.members.first())?;
        let chosen = choose()?;
        member.store(u64::from(chosen), Ordering::Relaxed);
        id.store(segment, Ordering::Relaxed);
        Some(chosen)
    }
}

/// Slots that lie together; whole words of [`Header::used`].
struct Part {
    first: u32,
    count: u32,
}

impl Part {
    /// Where a socket's slot is looked for first.
    const fn place(&self, cookie: u64) -> u32 {
        // Cookies count up: spread them, but for neighbours, which are one program's mostly and share a page so.
        let page = mixed(cookie / SLOTS_OF_PAGE) as u32 % (self.count / SLOTS_OF_PAGE as u32);
        page * SLOTS_OF_PAGE as u32 + (cookie % SLOTS_OF_PAGE) as u32
    }

    /// The slots where one may be whose place is `start`.
    fn near(&self, start: u32) -> impl Iterator<Item = u32> {
        (start..start + REACH).map(|place| self.index(place))
    }

    /// The slot at a place, or as far beyond the end.
    const fn index(&self, place: u32) -> u32 {
        self.first + if place >= self.count { place - self.count } else { place }
    }
}

fn tag_of(cookie: u64) -> u16 {
    (mixed(cookie) >> 8) as u16
}

const fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
}

fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| system("ledger path", libc::EINVAL))
}

fn system(doing: &'static str, errno: i32) -> Error {
    if errno == libc::ENOSPC { Error::NoMemory } else { Error::System { doing, errno } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn ledger() -> (Ledger, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("ginnel-ledger-{:x}", sys::random_u64()));
        (Ledger::open_or_create(&path).expect("a ledger"), path)
    }

    /// A cookie whose place begins at `start`.
    fn cookie_at(start: u32, from: u64) -> u64 {
        (from..).find(|cookie| PARTS[0].place(*cookie) == start).expect("one of them")
    }

    #[test]
    fn slots_in_use_are_all_told_and_no_others() {
        let (ledger, path) = ledger();
        let taken: Vec<u32> =
            (1..3000).map(|cookie| ledger.index(ledger.find_or_claim(cookie, 0, |_| {}).expect("room").0)).collect();
        let told = || ledger.slots().map(|slot| ledger.index(slot)).collect::<Vec<_>>();
        let mut expected = taken.clone();
        expected.sort_unstable();
        assert_eq!(told(), expected);
        for index in taken.iter().step_by(3) {
            ledger.free(ledger.slot(*index));
        }
        let again = ledger.find_or_claim(1, 0, |_| {}).expect("room");
        assert!(again.1, "it was freed");
        let mut expected: Vec<u32> = taken.iter().enumerate().filter(|(at, _)| at % 3 != 0).map(|(_, index)| *index).collect();
        expected.push(ledger.index(again.0));
        expected.sort_unstable();
        assert_eq!(told(), expected);
        assert_eq!(told(), expected, "looking changes nothing");
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn as_many_sockets_as_are_promised_have_room_and_are_found() {
        let (ledger, path) = ledger();
        let cookies = 1_000_000..1_020_000;
        let claimed: Vec<u32> =
            cookies.clone().map(|cookie| ledger.index(ledger.find_or_claim(cookie, 0, |_| {}).expect("room").0)).collect();
        for (cookie, index) in cookies.zip(&claimed) {
            assert_eq!(ledger.find(cookie).map(|slot| ledger.index(slot)), Some(*index));
        }
        let mut places = claimed.clone();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), claimed.len(), "each has one of its own");
        // Once they are gone, the first ones serve again.
        for index in claimed {
            ledger.free(ledger.slot(index));
        }
        let again = ledger.find_or_claim(7, 0, |slot| slot.set(flag::SHARED, true)).expect("room").0;
        assert!(ledger.index(again) < PARTS[0].count && again.has(flag::SHARED));
        std::fs::remove_file(path).expect("remove");
    }

    /// A program with few sockets is not to pay for many: whatever it touches counts to its memory limit.
    #[test]
    fn memory_is_taken_as_sockets_come() {
        use std::os::unix::fs::MetadataExt;
        let (ledger, path) = ledger();
        let taken = || path.metadata().expect("there").blocks() * 512;
        assert!(taken() < 2 << 20, "{}", taken());
        let _ = (1..200).filter(|&cookie| ledger.find_or_claim(cookie, 0, |_| {}).is_some()).count();
        assert_eq!(ledger.slots().count(), 199);
        assert!(taken() < 3 << 20, "{}", taken());
        let _ = (200..6000).filter(|&cookie| ledger.find_or_claim(cookie, 0, |_| {}).is_some()).count();
        assert_eq!(ledger.slots().count(), 5999);
        assert!(taken() < 16 << 20, "{}", taken());
        std::fs::remove_file(path).expect("remove");
    }

    /// Each look at a slot is another cache line, and there are 64 where a socket may be.
    #[test]
    fn slots_that_tags_or_marks_rule_out_are_not_looked_at() {
        let (ledger, path) = ledger();
        let first = PARTS[0].index(PARTS[0].place(77));
        ledger.header().parts.store(1, Ordering::Relaxed);
        assert_ne!(tag_of(77), 0, "or it would be that of a slot that nobody had");
        // Whoever looked at this slot would take it for the socket's …
        ledger.slot(first).cookie.store(77, Ordering::Relaxed);
        assert!(ledger.find(77).is_none());
        // … and now for a free one.
        ledger.slot(first).cookie.store(0, Ordering::Relaxed);
        ledger.header().used.set(first);
        let (slot, taken) = ledger.find_or_claim(77, 0, |_| {}).expect("room");
        assert!(taken && ledger.index(slot) != first);
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn a_slot_that_a_dead_process_seized_is_found() {
        let (ledger, path) = ledger();
        let index = ledger.enter().expect("room");
        let me = ledger.process(index).ticket(index);
        // Of the same entry, one program before: the process is there, who seized is not.
        let before = me.wrapping_sub(1 << 16);
        let [living, dead] = [1, 2].map(|cookie| ledger.find_or_claim(cookie, me, |_| {}).expect("room").0);
        assert!(living.seize(1, me) && dead.seize(2, before));
        assert!(ledger.slots().next().is_none() && ledger.find(2).is_none());
        let found: Vec<_> = ledger.abandoned().collect();
        let [(slot, word)] = found[..] else { panic!("{} found", found.len()) };
        assert_eq!(ledger.index(slot), ledger.index(dead));
        assert!(slot.seize(word, me) && !slot.seize(word, me), "one of them has it");
        assert!(ledger.abandoned().next().is_none());
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn sockets_whose_places_overlap_never_share_one() {
        let (ledger, path) = ledger();
        let occupied = cookie_at(100, 1);
        let _ = ledger.find_or_claim(occupied, 0, |_| {}).expect("room");
        // Both come to the same free place, each under the lock of its own stripe.
        let racing = [cookie_at(100, occupied + 1), cookie_at(101, 1)];
        let barrier = &Barrier::new(2);
        let ledger = &ledger;
        for round in 0..20_000 {
            let got = std::thread::scope(|scope| {
                let claim = |cookie| {
                    barrier.wait();
                    ledger.index(ledger.find_or_claim(cookie, 0, |_| {}).expect("room").0)
                };
                let other = scope.spawn(move || claim(racing[1]));
                [claim(racing[0]), other.join().expect("no panic")]
            });
            assert_ne!(got[0], got[1], "round {round}");
            for index in got {
                ledger.free(ledger.slot(index));
            }
        }
        std::fs::remove_file(path).expect("remove");
    }
}
