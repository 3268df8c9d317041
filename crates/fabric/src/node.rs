//! Presence in a segment: which endpoints are there and live, how they are woken, and memory of the
//! dead.
//!
//! This file is all that the crate needs of a neighbourhood, and stands on the segment alone. The
//! segment is one of the crate's own (a file beside the others), since the pages of one that
//! connections use are walked by those who know nothing of endpoints.
//!
//! Whoever lives holds a lock on the byte of the segment's file that has its page's number, through
//! a map that neither a fork child nor the program after an exec has: the kernel lets go of it
//! however the process ends. It tells across pid namespaces, too. Byte 0 is locked by whoever makes
//! or frees groups, so that a group that is half made under a free byte 0 is a dead one's.

mod dead;
mod place;

use crate::Error;
use crate::layout::endpoint::{
    ASLEEP, ENDPOINT, ENTERED, ENTRIES, FIFO, JOB, NONCE, PROCESS, TABLE, TABLE_PAGES,
};
use crate::layout::{EndpointId, head_of, pair, word};
pub use dead::clean;
use dead::{reclaim, remove_if_empty};
use ginnel_region::sys::{self, Fd};
use ginnel_region::{Config, Head, Owner, PAGE, Segment, Use, open};
pub use place::{NAME, default_path, join_default};
use std::collections::HashSet;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

/// How long somebody else may be making or freeing groups, milliseconds.
const PATIENCE: u64 = 10_000;

/// A segment of endpoints, and one's own place in it.
pub struct Node {
    segment: Segment,
    /// The segment's file: byte locks are asked for through it.
    file: Fd,
    /// The directory of FIFOs.
    wakes: Fd,
    path: PathBuf,
    id: EndpointId,
    head: Head,
    table: u64,
    /// The map that holds this endpoint's lock.
    lock: *mut u8,
    fifo: Fd,
}

// SAFETY: `lock` is an address that is only unmapped, once, by `leave`.
unsafe impl Send for Node {}

/// The right to make and free groups; other processes wait for it.
pub struct Guard(#[expect(dead_code, reason = "the open file is the lock")] Fd);

fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::System("segment path", libc::EINVAL))
}

fn system(doing: &'static str) -> impl Fn(i32) -> Error {
    move |errno| Error::System(doing, errno)
}

/// A second open file of the segment, whose locks are its own.
fn reopen(path: &Path, segment: &Segment) -> Result<Option<Fd>, Error> {
    match open::open(path) {
        Ok((fd, _)) => Ok(segment.is_in(fd.0).then_some(fd)),
        Err(libc::ENOENT) => Ok(None),
        Err(errno) => Err(Error::System("open the segment", errno)),
    }
}

/// Waits for byte 0. `None`: the file has no name any more.
fn guard(path: &Path, segment: &Segment) -> Result<Option<Guard>, Error> {
    let Some(fd) = reopen(path, segment)? else { return Ok(None) };
    let until = sys::monotonic_ns() + PATIENCE * 1_000_000;
    while let Err(errno) = sys::lock_byte(fd.0, 0) {
        if errno != libc::EAGAIN && errno != libc::EACCES {
            return Err(Error::System("lock the segment", errno));
        }
        if sys::monotonic_ns() > until {
            return Err(Error::System(
                "wait for another process that makes or frees endpoints",
                libc::ETIMEDOUT,
            ));
        }
        sys::sleep_ms(1);
    }
    let named = sys::fstat(fd.0).is_ok_and(|stat| stat.st_nlink > 0);
    Ok(named.then_some(Guard(fd)))
}

/// `PATH.wake`.
fn wake_directory(path: &Path) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(".wake");
    name.into()
}

fn fifo_name(id: u64) -> CString {
    CString::new(format!("f{id:016x}")).unwrap_or_default()
}

impl Node {
    /// Joins the segment at `path`, which is made where there is none, with an endpoint of its own.
    /// What the dead left there is freed first.
    ///
    /// # Errors
    /// What stood against it.
    pub fn join(path: &Path, config: &Config) -> Result<Self, Error> {
        // Another process may remove the file, with the last endpoint, between any two steps.
        for _ in 0..100 {
            let segment = Segment::open_or_create(path, config)?;
            match guard(path, &segment) {
                Ok(Some(guard)) => return Self::enter(&guard, path, segment),
                Ok(None) => segment.close(),
                Err(error) => {
                    segment.close();
                    return Err(error);
                }
            }
        }
        Err(Error::System("join a segment that is made and removed all the time", libc::EBUSY))
    }

    fn enter(guard: &Guard, path: &Path, segment: Segment) -> Result<Self, Error> {
        let parts = reopen(path, &segment).and_then(|file| {
            let directory = wake_directory(path);
            match sys::mkdir(&c_path(&directory)?, 0o700) {
                Ok(()) | Err(libc::EEXIST) => {}
                Err(errno) => return Err(Error::System("make the directory of FIFOs", errno)),
            }
            let flags = libc::O_DIRECTORY | libc::O_RDONLY | libc::O_NOFOLLOW;
            let wakes = sys::openat(libc::AT_FDCWD, &c_path(&directory)?, flags, 0).map(Fd);
            let wakes = wakes.map_err(system("open the directory of FIFOs"))?;
            let mine = sys::fstat(wakes.0)
                .is_ok_and(|stat| [0, sys::effective_ids().0].contains(&stat.st_uid));
            if !mine {
                return Err(Error::System(
                    "use a directory of FIFOs of another user's",
                    libc::EPERM,
                ));
            }
            Ok((file.ok_or(Error::System("open the segment", libc::ENOENT))?, wakes))
        });
        let made = parts.and_then(|(file, wakes)| {
            reclaim(&segment, &file, &wakes);
            let (id, head, table, lock, fifo) = present(guard, path, &segment, &wakes)?;
            Ok((file, wakes, id, head, table, lock, fifo))
        });
        match made {
            Ok((file, wakes, id, head, table, lock, fifo)) => {
                let high = |mut fd: Fd| Fd(sys::move_high(std::mem::replace(&mut fd.0, -1)));
                let (file, wakes, fifo) = (high(file), high(wakes), high(fifo));
                Ok(Self {
                    segment,
                    file,
                    wakes,
                    path: path.to_owned(),
                    id,
                    head,
                    table,
                    lock,
                    fifo,
                })
            }
            Err(error) => {
                segment.close();
                Err(error)
            }
        }
    }

    /// This endpoint's name.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        self.id
    }

    /// The segment.
    #[must_use]
    #[inline]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The descriptor that becomes readable when this endpoint is woken.
    #[must_use]
    pub fn fifo(&self) -> i32 {
        self.fifo.0
    }

    /// How many endpoints there are, this one among them.
    #[must_use]
    pub fn count(&self) -> usize {
        let is_one = |head: &Head| head_of(&self.segment, head.page(), ENDPOINT).is_some();
        self.segment.heads_within_reach().filter(is_one).count()
    }

    /// How many processes have endpoints here, this one among them.
    #[must_use]
    pub fn processes(&self) -> usize {
        let heads = self.segment.heads_within_reach().map(Head::page);
        let ends = heads.filter(|page| head_of(&self.segment, *page, ENDPOINT).is_some());
        let numbers: HashSet<u64> =
            ends.map(|page| word(&self.segment, page, PROCESS).load(Ordering::Relaxed)).collect();
        numbers.len()
    }

    /// Says which job it belongs to.
    pub(crate) fn set_job(&self, job: u64) {
        word(&self.segment, self.id.page(), JOB).store(job, Ordering::Relaxed);
    }

    /// Lets go of its lock and of nothing else, as the kernel does for a process that is killed.
    #[cfg(test)]
    pub(crate) fn die(self) {
        // SAFETY: the map is this value's, and nobody looks into it.
        unsafe { sys::unmap(self.lock, PAGE as usize) };
    }

    /// Waits for the right to make and free groups.
    ///
    /// # Errors
    /// Where it is not to be had.
    pub fn guard(&self) -> Result<Guard, Error> {
        guard(&self.path, &self.segment)?
            .ok_or(Error::System("find the segment's file, which was removed", libc::ENOENT))
    }

    /// Does that endpoint live?
    #[must_use]
    pub fn lives(&self, id: EndpointId) -> bool {
        lives(&self.segment, &self.file, id)
    }

    /// Enters a pair in the table of the endpoint that is to read it. False: there is no room, or
    /// no such endpoint.
    pub(crate) fn enter_pair(&self, reader: EndpointId, pair: u32) -> bool {
        let Some(table) = table_of(&self.segment, reader.page()) else { return false };
        let free = |at: &u64| {
            let entry = self.segment.word(table + at * 8);
            entry.compare_exchange(0, pair.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let found = (0..ENTRIES).any(|at| free(&at));
        if found {
            word(&self.segment, reader.page(), ENTERED).fetch_add(1, Ordering::AcqRel);
        }
        found
    }

    /// How often a pair was entered in this endpoint's table.
    #[inline]
    pub(crate) fn entered(&self) -> u64 {
        word(&self.segment, self.id.page(), ENTERED).load(Ordering::Acquire)
    }

    /// This endpoint's table of incoming pairs: (entry, page).
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, u32)> {
        let entry = |at| self.segment.word(self.table + at * 8).load(Ordering::Acquire);
        (0..ENTRIES).filter_map(move |at| {
            Some((at, u32::try_from(entry(at)).ok().filter(|page| *page != 0)?))
        })
    }

    /// Frees an entry of this endpoint's table, if it still names this pair.
    pub(crate) fn forget_entry(&self, at: u64, pair: u32) {
        let entry = self.segment.word(self.table + at * 8);
        let _ = entry.compare_exchange(pair.into(), 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// About to sleep: whoever has news from here on wakes this endpoint. The caller looks at
    /// everything it waits for again after this.
    pub fn sleeping(&self) {
        word(&self.segment, self.id.page(), ASLEEP).store(1, Ordering::Relaxed);
        // Pairs with the fence in `wake`: either it sees that this endpoint sleeps, or this one its
        // news.
        fence(Ordering::SeqCst);
    }

    /// Awake again; empties the FIFO.
    pub fn awake(&self) {
        word(&self.segment, self.id.page(), ASLEEP).store(0, Ordering::Release);
        // Also where nobody is known to have written to it: whoever found this endpoint asleep the
        // last time may have been late, and what it wrote would end every sleep from now on.
        let _ = sys::read(self.fifo.0, &mut [0; 64]);
    }

    /// Wakes this endpoint itself, where another of its threads sleeps.
    pub fn wake_own(&self) {
        self.wake(self.id, &mut None);
    }

    /// News for that endpoint were published: wakes it if it sleeps. `cache`: its FIFO, once it was
    /// opened.
    #[inline]
    pub(crate) fn wake(&self, id: EndpointId, cache: &mut Option<Fd>) {
        fence(Ordering::SeqCst);
        if word(&self.segment, id.page(), ASLEEP).load(Ordering::Relaxed) == 1 {
            self.rouse(id, cache);
        }
    }

    #[cold]
    fn rouse(&self, id: EndpointId, cache: &mut Option<Fd>) {
        if word(&self.segment, id.page(), ASLEEP)
            .compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        if cache.is_none() {
            let number = word(&self.segment, id.page(), FIFO).load(Ordering::Acquire);
            *cache = open_fifo(&self.wakes, number)
                .map(|mut fd| Fd(sys::move_high(std::mem::replace(&mut fd.0, -1))));
        }
        if let Some(fifo) = cache {
            let _ = sys::write(fifo.0, &[0]);
        }
    }

    /// Leaves: frees this endpoint and every pair whose other end is gone, too. The last to leave
    /// removes the segment.
    pub fn leave(self) {
        let guard = self.guard();
        if guard.is_ok() {
            pair::release_all(&self.segment, self.id);
        }
        let name = fifo_name(word(&self.segment, self.id.page(), FIFO).load(Ordering::Relaxed));
        let _ = sys::unlinkat(self.wakes.0, &name);
        // SAFETY: the map is this value's, and nobody looks into it. The lock goes with it.
        unsafe { sys::unmap(self.lock, PAGE as usize) };
        if guard.is_ok() {
            if let Some(head) = self.segment.take(self.head) {
                self.segment.release_groups(&[head]);
            }
            reclaim(&self.segment, &self.file, &self.wakes);
            remove_if_empty(&self.segment, &self.path);
        }
        self.segment.close();
    }
}

type Present = (EndpointId, Head, u64, *mut u8, Fd);

/// Makes this endpoint's page, lock and FIFO.
fn present(_guard: &Guard, path: &Path, segment: &Segment, wakes: &Fd) -> Result<Present, Error> {
    let head = segment.claim_head(Owner::new(0, Use::Channel))?;
    let free = |error| {
        segment.release_groups(&[head]);
        error
    };
    let page = head.page();
    segment.clear(page);
    let table = segment.claim(TABLE_PAGES, Owner { tag: Some(page), ..Owner::new(0, Use::Ring) });
    let table = table.map_err(|error| free(error.into()))?;
    (table.page..table.page + table.pages).for_each(|page| segment.clear(page));
    let lock = hold(path, segment, page).map_err(free)?;
    let number = sys::random_u64();
    let name = fifo_name(number);
    let fifo = sys::mkfifoat(wakes.0, &name, 0o600)
        .and_then(|()| open_fifo(wakes, number).ok_or(libc::EIO));
    let fifo = fifo.map_err(|errno| {
        // SAFETY: nobody else knows of it.
        unsafe { sys::unmap(lock, PAGE as usize) };
        free(Error::System("make a FIFO", errno))
    })?;
    let nonce = (sys::random_u64() & 0xffff_ffff).max(1);
    word(segment, page, NONCE).store(nonce, Ordering::Relaxed);
    word(segment, page, FIFO).store(number, Ordering::Relaxed);
    word(segment, page, TABLE).store(table.offset(), Ordering::Relaxed);
    word(segment, page, PROCESS).store(process_number(), Ordering::Relaxed);
    // Release pairs with the Acquire in `head_of`: whoever finds an endpoint finds it whole.
    word(segment, page, 0).store(ENDPOINT, Ordering::Release);
    match segment.settle(head) {
        Some(head) => {
            Ok((EndpointId(u64::from(page) << 32 | nonce), head, table.offset(), lock, fifo))
        }
        None => Err(Error::System(
            "make an endpoint in a segment that somebody else overwrites",
            libc::EIO,
        )),
    }
}

/// The same for all endpoints of a process: process ids mean nothing in another container.
fn process_number() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(sys::random_u64)
}

/// Locks the byte of this page, through a map that this process alone has.
fn hold(path: &Path, segment: &Segment, page: u32) -> Result<*mut u8, Error> {
    let Some(fd) = reopen(path, segment)? else {
        return Err(Error::System("open the segment", libc::ENOENT));
    };
    let at = sys::map_shared(fd.0, PAGE as usize, false).map_err(system("map the segment"))?;
    let held =
        sys::keep_from_children(at, PAGE as usize).and_then(|()| sys::lock_byte(fd.0, page.into()));
    held.map(|()| at).map_err(|errno| {
        // SAFETY: nobody else knows of it.
        unsafe { sys::unmap(at, PAGE as usize) };
        Error::System("lock an endpoint's byte", errno)
    })
}

fn open_fifo(wakes: &Fd, number: u64) -> Option<Fd> {
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let fd = sys::openat(wakes.0, &fifo_name(number), flags, 0).map(Fd).ok()?;
    let stat = sys::fstat(fd.0).ok()?;
    (stat.st_mode & libc::S_IFMT == libc::S_IFIFO).then_some(fd)
}

fn table_of(segment: &Segment, page: u32) -> Option<u64> {
    head_of(segment, page, ENDPOINT)?;
    let table = word(segment, page, TABLE).load(Ordering::Acquire);
    (table.is_multiple_of(PAGE) && segment.holds(table, ENTRIES * 8)).then_some(table)
}

pub(crate) fn lives(segment: &Segment, file: &Fd, id: EndpointId) -> bool {
    head_of(segment, id.page(), ENDPOINT).is_some()
        && word(segment, id.page(), NONCE).load(Ordering::Relaxed) == id.nonce()
        // Where it cannot be asked, it is taken to be there.
        && sys::byte_is_shared(file.0, id.page().into()).unwrap_or(true)
}
