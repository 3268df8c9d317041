//! System V shared memory (shmget(2), shmop(2), shmctl(2)).
//!
//! | offset | what stands in its first page |
//! |---|---|
//! | 0x60 | process that made it (bits 0–31), that attached or detached last (32–63) |
//! | 0x68, 0x70 | seconds at which somebody last attached, detached |
//! | 0x78 | 1 once that list was full: others say so in their own pages, see [`crate::presence`] |
//! | the pages behind | the bytes, whole pages |
//! | the last [`RECORD_PAGES`] | who has it attached: for each process a party (bits 0–42) and how often (43–62), then its number |
//!
//! A record counts for as long as its party lives, so whoever is killed has detached by that: the
//! next who counts takes the record away. Each change is one exchange of one word; nobody waits.
//!
//! A segment that was removed while it was attached has no name any more, and can still be attached
//! by its id for as long as any living process has it. That process uses the object until after its
//! record is gone, so it cannot be freed while the record stands.

use super::{Access, Answer, Caller, ELSEWHERE, Get, No, PRIVATE, Perm, Space, id_of, no, now};
use crate::object::{Object, Shape};
use crate::raw::Area;
use crate::{Keep, Kind};
use ginnel_region::{PAGE, Party, Untrusted};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

const PIDS: usize = 0x60;
const ATTACHED: usize = 0x68;
const DETACHED: usize = 0x70;
const OVERFLOWN: usize = 0x78;
const RECORD_PAGES: u64 = 2;
/// So many processes are in the list of one segment.
const RECORDS: usize = (RECORD_PAGES * PAGE) as usize / 16;
const COUNT_AT: u32 = 43;
const COUNT: u64 = (1 << 20) - 1;

/// Bits of the mode that `IPC_STAT` shows: it goes with the last who has it attached; it is locked.
const DEST: u32 = 0o1000;
const LOCKED: u32 = 0o2000;

/// A shared memory segment that this process has a hand on.
pub struct Memory {
    object: Object,
    size: u64,
    bytes: Area,
    records: Area,
}

/// What `IPC_STAT` says.
#[derive(Debug, Clone, Copy)]
pub struct MemoryStatus {
    /// Who may do what.
    pub perm: Perm,
    /// Bytes, as they were asked for.
    pub size: u64,
    /// Seconds at which it was attached, detached, changed.
    pub times: [u64; 3],
    /// Who made it, and who attached or detached it last.
    pub pids: [u32; 2],
    /// How often it is attached.
    pub attached: u64,
}

/// A segment that this process has attached: its record stands until [`Self::end`].
pub struct Attachment {
    memory: Memory,
    /// In the segment's list, and not in this party's own page.
    listed: bool,
}

impl Space {
    /// `shmget(2)`: an id. One with a key that does not fit, or is for the kernel alone
    /// (`SHM_HUGETLB`), leaves its key here, so that all who ask for it ask the kernel.
    ///
    /// # Errors
    /// As there.
    pub fn memory_get(&self, get: Get, size: u64, caller: &Caller) -> Answer<i32> {
        let check = |object: Object| {
            let memory = Memory::of(object)?;
            if size > memory.size {
                return no(libc::EINVAL);
            }
            memory.perm().check_flags(caller, get.flags)?;
            Ok(id_of(memory.object.place()))
        };
        let shape = Shape {
            kind: Kind::SystemVMemory,
            size,
            pages: size.div_ceil(PAGE).saturating_add(RECORD_PAGES),
            numbers: [size, 0, 0],
            keep: Keep::UntilRemoved,
        };
        let make = |name: &str| {
            if size == 0 {
                let what = "a segment has at least 1 byte".to_owned();
                return Err(crate::Error::Invalid { what });
            }
            let fill = |words: Area, _: Option<Area>| {
                Perm::put(words, caller, get.key, get.mode());
                words.word(PIDS).store(u64::from(caller.pid), Relaxed);
            };
            let create = |shape: &Shape| Object::create(self.inner(), name, shape, fill);
            let elsewhere = |error| {
                if get.key != PRIVATE {
                    let numbers = [size, ELSEWHERE, 0];
                    let _ = create(&Shape { size: 0, pages: 0, numbers, ..shape });
                }
                Err(error)
            };
            if get.has(libc::SHM_HUGETLB) {
                return elsewhere(crate::Error::SegmentFull { bytes: size });
            }
            match create(&shape) {
                Err(error @ (crate::Error::SegmentFull { .. } | crate::Error::NoMemory)) => {
                    elsewhere(error)
                }
                made => Ok(id_of(made?.place())),
            }
        };
        self.get(get, ("shm", Kind::SystemVMemory), check, make)
    }

    /// The segment of an id.
    ///
    /// # Errors
    /// EINVAL where there is none.
    pub fn memory(&self, id: i32) -> Answer<Memory> {
        let entry = self.entry(id)?;
        let is_attached = |object: &Object| {
            Memory::parts(object).is_some_and(|(_, records)| living(object, records) > 0)
        };
        let open =
            || Object::open_at(self.inner(), entry.clone(), Kind::SystemVMemory, is_attached);
        Memory::of(self.opened(open)?)
    }
}

/// The words of each record.
fn words(records: Area) -> impl Iterator<Item = (&'static AtomicU64, &'static AtomicU64)> {
    (0..RECORDS).map(move |at| (records.word(at * 16), records.word(at * 16 + 8)))
}

/// How often the processes that live have it attached.
fn living(object: &Object, records: Area) -> u64 {
    let lives = |word: u64| Party::of(word).is_some_and(|party| object.presence().lives(party));
    let count = |word: u64| word >> COUNT_AT & COUNT;
    let listed: u64 = words(records)
        .map(|(word, _)| word.load(Relaxed))
        .filter(|&word| word != 0 && lives(word))
        .map(count)
        .sum();
    let beyond = object.words.word(OVERFLOWN).load(Relaxed) != 0;
    listed + if beyond { object.presence().attached(object.place()) } else { 0 }
}

impl Memory {
    fn parts(object: &Object) -> Option<(Area, Area)> {
        let size =
            Untrusted::new(object.numbers[0]).within(1, object.presence().segment().len()).ok()?;
        let pages = usize::try_from(size.div_ceil(PAGE) * PAGE).ok()?;
        let body = object.body()?;
        Some((body.part(0, pages)?, body.part(pages, RECORDS * 16)?))
    }

    fn of(object: Object) -> Answer<Self> {
        let Some((bytes, records)) = Self::parts(&object) else { return no(libc::EINVAL) };
        let size = object.numbers[0].min(bytes.len() as u64);
        Ok(Self { object, size, bytes, records })
    }

    /// Who may do what.
    #[must_use]
    pub fn perm(&self) -> Perm {
        Perm::of(self.object.words)
    }

    /// `IPC_STAT`.
    #[must_use]
    pub fn status(&self) -> MemoryStatus {
        let attached = self.count();
        let word = |at| self.object.words.word(at).load(Relaxed);
        MemoryStatus {
            perm: self.perm(),
            size: self.size,
            times: [word(ATTACHED), word(DETACHED), Perm::changed(self.object.words)],
            pids: [word(PIDS) as u32, (word(PIDS) >> 32) as u32],
            attached,
        }
    }

    /// How often it is attached. Who died has detached by that.
    fn count(&self) -> u64 {
        for (word, pid) in words(self.records) {
            let seen = word.load(Relaxed);
            let dead = Party::of(seen).is_some_and(|party| !self.object.presence().lives(party));
            let pid = pid.load(Relaxed) as u32;
            if dead && word.compare_exchange(seen, 0, AcqRel, Relaxed).is_ok() {
                self.note(pid, DETACHED);
            }
        }
        living(&self.object, self.records)
    }

    /// This process did something at this moment.
    fn note(&self, pid: u32, when: usize) {
        let pids = self.object.words.word(PIDS);
        let made = pids.load(Relaxed) & u64::from(u32::MAX);
        pids.store(u64::from(pid) << 32 | made, Relaxed);
        self.object.words.word(when).store(now(), Relaxed);
    }

    /// Enters this process's record: once more attached. [`Attachment::begun`] is due once it is.
    ///
    /// # Errors
    /// ENOMEM where this process has more objects than there is room for.
    pub fn attach(self, caller: &Caller) -> Answer<Attachment> {
        let mine = self.object.presence().party().bits();
        let is_mine = |word: u64| Party::of(word).is_some_and(|party| party.bits() == mine);
        let lives =
            |word: u64| Party::of(word).is_some_and(|party| self.object.presence().lives(party));
        let taken = |(word, number): (&AtomicU64, &AtomicU64), is_it: &dyn Fn(u64) -> bool| {
            let seen = word.load(Relaxed);
            let next = if is_mine(seen) { seen + (1 << COUNT_AT) } else { 1 << COUNT_AT | mine };
            let done = is_it(seen) && word.compare_exchange(seen, next, AcqRel, Relaxed).is_ok();
            if done {
                number.store(caller.pid.into(), Relaxed);
            }
            done
        };
        let ways: [&dyn Fn(u64) -> bool; 3] = [&is_mine, &|word| word == 0, &|word| !lives(word)];
        let listed = ways.iter().any(|way| words(self.records).any(|record| taken(record, way)));
        if !listed {
            // The flag first: who counts looks at it.
            self.object.words.word(OVERFLOWN).store(1, SeqCst);
            self.object.presence().attach(self.object.place())?;
        }
        Ok(Attachment { memory: self, listed })
    }

    /// `IPC_SET`.
    ///
    /// # Errors
    /// EPERM.
    pub fn set(&self, caller: &Caller, uid: u32, gid: u32, mode: u32) -> Answer<()> {
        self.perm().check_owner(caller)?;
        Perm::set(self.object.words, uid, gid, mode);
        Ok(())
    }

    /// `SHM_LOCK` and `SHM_UNLOCK`: shown, and nothing else.
    pub fn lock(&self, on: bool) {
        Perm::change_mode(
            self.object.words,
            |mode| if on { mode | LOCKED } else { mode & !LOCKED },
        );
    }

    /// `IPC_RMID`: it goes with the last who has it attached.
    ///
    /// # Errors
    /// EPERM.
    pub fn remove(&self, caller: &Caller) -> Answer<()> {
        self.perm().check_owner(caller)?;
        Perm::forget_key(self.object.words, DEST);
        self.object.remove();
        Ok(())
    }

    /// EACCES unless the caller may.
    ///
    /// # Errors
    /// As said.
    pub fn check(&self, caller: &Caller, access: Access) -> Result<(), No> {
        self.perm().check(caller, access)
    }
}

impl Attachment {
    /// Where the bytes lie in the segment's own map, and how many there are: whole pages.
    #[must_use]
    pub fn place(&self) -> (*mut u8, usize) {
        (self.memory.bytes.as_ptr(), self.memory.bytes.len())
    }

    /// Where they begin in the segment, bytes from its start.
    #[must_use]
    pub fn offset(&self) -> u64 {
        (u64::from(self.memory.object.head.page()) + 1) * PAGE
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> i32 {
        id_of(self.memory.object.place())
    }

    /// It lies somewhere now: `pid` did it.
    pub fn begun(&self, pid: u32) {
        self.memory.note(pid, ATTACHED);
    }

    /// It is attached once less.
    pub fn end(self, caller: &Caller) {
        self.take_back();
        if self.memory.object.presence().check_all().is_ok() {
            self.memory.note(caller.pid, DETACHED);
        }
    }

    /// Its bytes stay for as long as this process, whatever else becomes of them: a child has them
    /// that could not say so.
    pub fn keep(&self) {
        let object = &self.memory.object;
        object.presence().keep_using(object.place());
    }

    /// It came to nothing.
    pub fn withdraw(self) {
        self.take_back();
    }

    fn take_back(&self) {
        let memory = &self.memory;
        if memory.object.presence().check_all().is_err() {
            return;
        }
        if !self.listed {
            return memory.object.presence().detach(memory.object.place());
        }
        let mine = memory.object.presence().party().bits();
        for (word, _) in words(memory.records) {
            let seen = word.load(Relaxed);
            if Party::of(seen).is_none_or(|party| party.bits() != mine) {
                continue;
            }
            let next = if seen >> COUNT_AT & COUNT > 1 { seen - (1 << COUNT_AT) } else { 0 };
            if word.compare_exchange(seen, next, AcqRel, Relaxed).is_ok() {
                break;
            }
        }
    }
}
