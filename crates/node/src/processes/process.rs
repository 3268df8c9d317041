//! Entries of the process table: who is here, and who of them lives.

use super::{Holdings, PROCESSES, Processes};
use ginnel_region::{PAGE, sys};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Which library an entry of the process table belongs to: each in a process has one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Library {
    number: u32,
    lasts: Lasts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lasts {
    Process,
    Program,
}

impl Library {
    /// A library whose entry lasts as long as the process: after an exec the same library in the next
    /// program goes on with it, and with what is noted under it. There is one copy in a process.
    ///
    /// `name` should end in the version of what the library keeps beside the process table
    /// ([`Holdings`]): entries are only given from one process to another of the same name.
    #[must_use]
    pub const fn of_process(name: &str) -> Self {
        Self { number: hash(name), lasts: Lasts::Process }
    }

    /// A library whose entry ends with the program: after an exec its process counts as ended here.
    /// Each copy of it in a process has an entry of its own.
    #[must_use]
    pub const fn of_program(name: &str) -> Self {
        Self { number: hash(name), lasts: Lasts::Program }
    }

    /// The number that stands in the table.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }
}

/// FNV-1a; not 0.
const fn hash(name: &str) -> u32 {
    let (bytes, mut hash, mut at) = (name.as_bytes(), 0x811c_9dc5u32, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash | 1
}

/// What is known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ProcessFlags {
    /// It set up an io_uring: its sockets stay on TCP.
    IoUring = 1,
    /// It has a service thread, which answers for it.
    Serves = 2,
    /// It left its segment, and will join it again.
    Away = 4,
    /// It holds a lock on its byte of the table while it runs ([`Processes::alive`]).
    Locked = 8,
    /// It is about to become another program, which takes the lock anew.
    Executing = 16,
    /// Its entry ends with the program ([`Library::of_program`]).
    OfProgram = 32,
}

/// One process's entry.
#[repr(C, align(128))]
pub struct Process {
    /// Process number; 0: the entry is free.
    pub pid: AtomicU32,
    /// See [`ProcessFlags`].
    pub flags: AtomicU32,
    /// When it started, in the kernel's ticks (field 22 of `/proc/PID/stat`); 0 unknown. Pid and start time together never come twice.
    pub started: AtomicU64,
    /// Inode of its pid namespace: numbers of another namespace say nothing here.
    pub namespace: AtomicU64,
    /// Segment that it uses (id), 0 none.
    pub segment: AtomicU64,
    /// Its name (`/proc/PID/comm`), zero-padded.
    pub name: [AtomicU64; 2],
    /// Why it is in no segment (an [`crate::node::Absence`]), 0: it is in one.
    pub reason: AtomicU32,
    /// Counts the programs that ran in the process: after an exec, locks of the program before are nobody's.
    pub image: AtomicU32,
    /// What it is joined to, 0 nothing: processes with the same number have the same memory mapped. Another number after an unplug than before.
    pub joined: AtomicU64,
    /// Page of its service thread's waiter in that segment, 0 none.
    pub service: AtomicU32,
    /// Since when its lock was seen free by processes of other pid namespaces that may write here, in units of 2^20 ns; 0: it was not.
    unlocked: AtomicU32,
    /// See [`Library`].
    library: AtomicU32,
    /// Which program of the process made the entry, and which copy of the library in it: [`program`].
    program: AtomicU32,
}

const _: () = assert!(size_of::<Process>() == 128);

/// One program of one process: what has ended does not come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    pid: u32,
    started: u64,
    image: u32,
}

/// How long a process's lock must have been seen free until it counts as ended, milliseconds: an exec lets go of it for a moment …
pub const PATIENCE: u64 = 2000;
/// … or for longer, where the shim saw the exec and the new program is slow to load.
const EXEC_PATIENCE: u64 = 60_000;

impl Process {
    /// By what is known of process numbers in this pid namespace: is the process there?
    fn is_listed(&self, pid: u32) -> bool {
        if !sys::pid_exists(pid) {
            return false;
        }
        let recorded = self.started.load(Ordering::Relaxed);
        match stat_of(pid) {
            Some((started, zombie)) => !zombie && (recorded == 0 || started == 0 || started == recorded),
            None => sys::pid_exists(pid),
        }
    }

    /// Which program of which process it is.
    #[must_use]
    pub fn life(&self) -> Life {
        let pid = self.pid.load(Ordering::Acquire);
        Life { pid, started: self.started.load(Ordering::Relaxed), image: self.image.load(Ordering::Relaxed) }
    }

    /// What stands in a lock that this process holds: its entry and, above, its image. `index`: the entry's number.
    #[must_use]
    pub fn ticket(&self, index: u32) -> u32 {
        (self.image.load(Ordering::Relaxed) & 0xffff) << 16 | index
    }

    /// Is it an entry of this library's, whichever copy of it?
    #[must_use]
    pub fn is_of(&self, library: Library) -> bool {
        self.library.load(Ordering::Relaxed) == library.number
    }

    /// Sets or clears a flag.
    pub fn set(&self, flag: ProcessFlags, on: bool) {
        if on {
            self.flags.fetch_or(flag as u32, Ordering::SeqCst);
        } else {
            self.flags.fetch_and(!(flag as u32), Ordering::SeqCst);
        }
    }

    /// Is a flag set?
    #[must_use]
    pub fn has(&self, flag: ProcessFlags) -> bool {
        self.flags.load(Ordering::SeqCst) & flag as u32 != 0
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        let bytes: Vec<u8> =
            self.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).take_while(|&b| b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Processes {
    /// Is the process that made this entry still there?
    ///
    /// Its number tells within one pid namespace. In another one only its lock does, which the kernel takes from it when it ends, however it ends: an open file of the table that a map alone keeps
    /// open, so that no close of a descriptor can lose it. Where that cannot be asked, it is taken to be there.
    #[must_use]
    pub fn alive(&self, index: u32) -> bool {
        let entry = self.process(index);
        let pid = entry.pid.load(Ordering::Acquire);
        if pid == 0 {
            return false;
        }
        let namespace = entry.namespace.load(Ordering::Relaxed);
        let ours = namespace == pid_namespace() && namespace != UNKNOWN;
        if ours && entry.is_listed(pid) {
            let of_program = entry.has(ProcessFlags::OfProgram) && entry.has(ProcessFlags::Locked);
            return !of_program || self.is_locked(index) != Some(false);
        }
        if !entry.has(ProcessFlags::Locked) {
            return !ours;
        }
        // A zombie's threads may still be in system calls, sending or receiving, and what they hold is theirs: its lock goes when the last of them is gone.
        let mark = self.mark(index);
        if self.is_locked(index) != Some(false) {
            if mark.load(Ordering::Relaxed) != 0 {
                mark.store(0, Ordering::Relaxed);
            }
            return true;
        }
        if ours {
            return false;
        }
        let now = ((sys::monotonic_ns() >> 20) as u32).max(1);
        let patience = if entry.has(ProcessFlags::Executing) { EXEC_PATIENCE } else { PATIENCE };
        match self.unlocked_since(index) {
            0 => {
                mark.store(now, Ordering::Relaxed);
                true
            }
            since => u64::from(now.wrapping_sub(since)) << 20 < patience * 1_000_000,
        }
    }

    /// Where it is noted that the lock of an entry was seen free: in the entry, or with an observer who may not write there.
    fn mark(&self, index: u32) -> &AtomicU32 {
        self.seen_unlocked.get((index % PROCESSES) as usize).unwrap_or_else(|| &self.process(index).unlocked)
    }

    /// Since when the lock of an entry was seen free, by whomever; 0: it was not.
    fn unlocked_since(&self, index: u32) -> u32 {
        match self.process(index).unlocked.load(Ordering::Relaxed) {
            0 => self.mark(index).load(Ordering::Relaxed),
            since => since,
        }
    }

    /// Is the program still there whose ticket this is?
    #[must_use]
    pub fn is_still(&self, ticket: u32) -> bool {
        let index = ticket & 0xffff;
        self.alive(index) && self.process(index).image.load(Ordering::Relaxed) & 0xffff == ticket >> 16
    }

    /// Is a process seen without its lock, and not known to have ended yet?
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        let doubtful = |index: &u32| self.unlocked_since(*index) != 0 && self.alive(*index);
        (0..PROCESSES).filter(doubtful).any(|index| !self.process(index).has(ProcessFlags::Executing))
    }

    /// Does anybody hold the lock of this entry? `None`: that cannot be asked.
    fn is_locked(&self, index: u32) -> Option<bool> {
        let fd = self.table.reopen(libc::O_RDONLY)?;
        let locked = sys::byte_is_shared(fd, u64::from(index % PROCESSES));
        sys::close(fd);
        locked.ok()
    }

    /// Takes the lock of an entry for this process. It lasts as long as this process's memory: neither a fork child has it, nor the program after an exec.
    fn lock_entry(&self, index: u32) -> Shown {
        if self.holds_lock(index) {
            return Shown::Here;
        }
        let Some(fd) = self.table.reopen(libc::O_RDWR) else { return Shown::Nowhere };
        let shown = match sys::map_shared(fd, PAGE as usize, false) {
            Ok(at) => {
                let kept = sys::keep_from_children(at, PAGE as usize);
                let shown = match kept.and_then(|()| sys::lock_byte(fd, u64::from(index))) {
                    Ok(()) => Shown::Here,
                    Err(libc::EAGAIN | libc::EACCES) => Shown::ByAnother,
                    Err(_) => Shown::Nowhere,
                };
                if shown == Shown::Here {
                    self.unlock_entry();
                    self.lock.store(at, Ordering::Relaxed);
                    self.locked.store(mark(index), Ordering::Relaxed);
                } else {
                    // SAFETY: nobody else knows of it.
                    unsafe { sys::unmap(at, PAGE as usize) };
                }
                shown
            }
            Err(_) => Shown::Nowhere,
        };
        sys::close(fd);
        shown
    }

    /// Gives back the lock by which others see this process live, and with it a map of the file.
    pub fn unlock_entry(&self) {
        self.locked.store(0, Ordering::Relaxed);
        let at = self.lock.swap(std::ptr::null_mut(), Ordering::Relaxed);
        if !at.is_null() {
            // SAFETY: the map is this process's, and nobody looks into it.
            unsafe { sys::unmap(at, PAGE as usize) };
        }
    }

    /// In a fork child: the lock is the parent's, and so is the map by which it is held.
    pub fn forget_parent(&self) {
        self.lock.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.locked.store(0, Ordering::Relaxed);
    }

    /// Does this process hold the lock of this entry here?
    fn holds_lock(&self, index: u32) -> bool {
        self.locked.load(Ordering::Relaxed) == mark(index)
    }

    /// Enters this process for `library` (again after fork; the same entry again after exec, for a
    /// library [of the process](Library::of_process)). `None`: the table has no room.
    #[must_use]
    pub fn enter(&self, library: Library, holdings: &impl Holdings) -> Option<u32> {
        let (pid, namespace) = (sys::pid(), look_up_namespace());
        let started = stat_of(pid).map_or(0, |(started, _)| started);
        let own = |entry: &Process| {
            entry.pid.load(Ordering::Acquire) == pid
                && entry.namespace.load(Ordering::Relaxed) == namespace
                && entry.started.load(Ordering::Relaxed) == started
                && entry.is_of(library)
                && (library.lasts == Lasts::Process || entry.program.load(Ordering::Relaxed) == program())
        };
        let start = pid % PROCESSES;
        let order = || (0..PROCESSES).map(move |step| (start + step) % PROCESSES);
        let before = order().take(64).find(|&index| own(self.process(index)));
        let taken = before.is_none().then(|| order().find(|&index| self.take_over(index, pid, library, holdings)));
        let index = before.or(taken.flatten())?;
        let entry = self.process(index);
        entry.namespace.store(namespace, Ordering::Relaxed);
        entry.started.store(started, Ordering::Relaxed);
        entry.library.store(library.number, Ordering::Relaxed);
        let same_program = before.is_some() && entry.program.swap(program(), Ordering::Relaxed) == program();
        let had_lock = self.holds_lock(index);
        let shown = self.lock_entry(index);
        // Also by another node of this program, where it has several: they have one image.
        let again = same_program && (had_lock || shown == Shown::ByAnother);
        entry.program.store(program(), Ordering::Relaxed);
        entry.flags.store(0, Ordering::SeqCst);
        entry.unlocked.store(0, Ordering::Relaxed);
        entry.set(ProcessFlags::OfProgram, library.lasts == Lasts::Program);
        entry.set(ProcessFlags::Locked, shown == Shown::Here || again);
        entry.joined.store(0, Ordering::Relaxed);
        entry.service.store(0, Ordering::Relaxed);
        if !again {
            entry.image.fetch_add(1, Ordering::Relaxed);
        }
        if !again && before.is_some() {
            holdings.began_anew(index);
        }
        entry.reason.store(0, Ordering::Relaxed);
        let name = comm();
        for (word, bytes) in entry.name.iter().zip(name.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().unwrap_or([0; 8])), Ordering::Relaxed);
        }
        Some(index)
    }

    /// Takes an entry that is free, or whose process has ended, for the process `pid`.
    ///
    /// Entries are not given up at death: what a library keeps may still name them. So only a process
    /// with the same library, which can look there, takes one over.
    fn take_over(&self, index: u32, pid: u32, library: Library, holdings: &impl Holdings) -> bool {
        let entry = self.process(index);
        let seen = entry.pid.load(Ordering::Acquire);
        let free = seen == 0 || entry.is_of(library) && !self.alive(index) && !holdings.names(index);
        if !free {
            return false;
        }
        // Of two who come at once one has the lock. Where there are no locks, the exchange below decides alone.
        if self.lock_entry(index) == Shown::ByAnother {
            return false;
        }
        // Until all of the entry is written, what it says of its lock is not to be taken for the new process's.
        entry.flags.store(0, Ordering::SeqCst);
        let taken = entry.pid.compare_exchange(seen, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !taken {
            self.unlock_entry();
        }
        taken
    }

    /// Frees the entries of this library whose processes have ended and which nothing names any more:
    /// other libraries' processes can have them then.
    pub fn free_ended(&self, library: Library, holdings: &impl Holdings) {
        for index in 0..PROCESSES {
            let entry = self.process(index);
            let seen = entry.pid.load(Ordering::Acquire);
            if seen != 0 && entry.is_of(library) && !self.alive(index) && !holdings.names(index) {
                let _ = entry.pid.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

/// How a process is shown to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// By the lock of its entry.
    Here,
    /// Another open file, of this process or another, has the lock of that entry.
    ByAnother,
    /// There is no lock to be had.
    Nowhere,
}

/// A number of this program and this copy of the library: drawn at random once, and gone at an exec.
fn program() -> u32 {
    static PROGRAM: AtomicU32 = AtomicU32::new(0);
    let known = PROGRAM.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let drawn = (sys::random_u64() as u32).max(1);
    match PROGRAM.compare_exchange(0, drawn, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => drawn,
        Err(known) => known,
    }
}

/// What [`Processes::locked`] is where this process holds the lock of that entry.
fn mark(index: u32) -> u64 {
    u64::from(sys::pid()) << 32 | (u64::from(index) + 1)
}

/// Inode of this process's pid namespace, once it was asked for; 0 before, [`UNKNOWN`] where it cannot be told.
static NAMESPACE: AtomicU64 = AtomicU64::new(0);
const UNKNOWN: u64 = 1;

fn pid_namespace() -> u64 {
    let known = NAMESPACE.load(Ordering::Relaxed);
    if known != 0 { known } else { look_up_namespace() }
}

fn look_up_namespace() -> u64 {
    let fd = sys::openat(libc::AT_FDCWD, c"/proc/self/ns/pid", libc::O_RDONLY, 0);
    let inode = fd.ok().and_then(|fd| {
        let stat = sys::fstat(fd);
        sys::close(fd);
        stat.ok()
    });
    // Without `/proc` (chroot), a fork child is where its parent was, unless it is the first in another one (unshare, setns): there its parent has no number.
    let before = || Some(NAMESPACE.load(Ordering::Relaxed)).filter(|&known| known != 0 && sys::parent() != 0);
    let inode = inode.map(|stat| stat.st_ino).or_else(before).unwrap_or(UNKNOWN);
    NAMESPACE.store(inode, Ordering::Relaxed);
    inode
}

fn read_file(path: &std::ffi::CStr, buffer: &mut [u8]) -> Option<usize> {
    let fd = sys::openat(libc::AT_FDCWD, path, libc::O_RDONLY, 0).ok()?;
    let n = sys::read(fd, buffer).ok();
    sys::close(fd);
    n
}

fn comm() -> [u8; 16] {
    let mut name = [0u8; 16];
    let n = read_file(c"/proc/self/comm", &mut name).unwrap_or(0);
    for byte in name.iter_mut().skip(n.saturating_sub(1)) {
        *byte = 0;
    }
    name
}

/// (start time, is a zombie) of a process, from `/proc/PID/stat` (proc(5), fields 3 and 22).
fn stat_of(pid: u32) -> Option<(u64, bool)> {
    // Written by hand: this runs in a fork child, where allocating is not safe.
    let mut path = [0u8; 32];
    let mut digits = [0u8; 10];
    let mut count = 0;
    let mut rest = pid;
    while count < digits.len() {
        digits[count] = b'0' + u8::try_from(rest % 10).ok()?;
        count += 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let parts = b"/proc/".iter().copied().chain(digits[..count].iter().rev().copied()).chain(*b"/stat\0");
    for (place, byte) in path.iter_mut().zip(parts) {
        *place = byte;
    }
    let mut text = [0u8; 512];
    let n = read_file(std::ffi::CStr::from_bytes_until_nul(&path).ok()?, &mut text)?;
    // The name (field 2) may hold anything: count from the last parenthesis.
    let end = text[..n].iter().rposition(|&byte| byte == b')')?;
    let mut fields = text[end + 1..n].split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let state = fields.next()?.first().copied()?;
    let started = fields.nth(18)?.iter().try_fold(0u64, |sum, &byte| Some(sum * 10 + u64::from(byte.checked_sub(b'0')?)))?;
    Some((started, state == b'Z' || state == b'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_start_time_and_lives() {
        let (started, zombie) = stat_of(sys::pid()).expect("own stat");
        assert!(started > 0 && !zombie);
        assert!(stat_of(u32::MAX / 2).is_none());
    }
}
