//! The processes that use a ledger.

use super::{Ledger, PROCESSES, flag};
use ginnel_region::{PAGE, sys};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

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
    /// It holds a lock on its byte of the ledger while it runs ([`Ledger::alive`]).
    Locked = 8,
    /// It is about to become another program, which takes the lock anew.
    Executing = 16,
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
    /// Why it cannot accelerate anything (a [`super::Reason`]), 0: it can.
    pub reason: AtomicU32,
    /// Counts the programs that ran in the process: after an exec, locks of the program before are nobody's.
    pub image: AtomicU32,
    /// What it is joined to, 0 nothing: processes with the same number have the same memory mapped. Another number after an unplug than before.
    pub joined: AtomicU64,
    /// Page of its service thread's waiter in that segment, 0 none.
    pub service: AtomicU32,
    /// Since when its lock was seen free by processes of other pid namespaces that may write here, in units of 2^20 ns; 0: it was not.
    unlocked: AtomicU32,
}

const _: () = assert!(size_of::<Process>() == 128);

/// One program of one process: what has ended does not come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
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
    pub(crate) fn life(&self) -> Life {
        let pid = self.pid.load(Ordering::Acquire);
        Life { pid, started: self.started.load(Ordering::Relaxed), image: self.image.load(Ordering::Relaxed) }
    }

    /// What stands in a lock that this process holds: its entry and, above, its image. `index`: the entry's number.
    #[must_use]
    pub fn ticket(&self, index: u32) -> u32 {
        (self.image.load(Ordering::Relaxed) & 0xffff) << 16 | index
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

impl Ledger {
    /// Is the process that made this entry still there?
    ///
    /// Its number tells within one pid namespace. In another one only its lock does, which the kernel takes from it when it ends, however it ends: an open file of the ledger that a map alone keeps
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
            return true;
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
    pub(crate) fn is_still(&self, ticket: u32) -> bool {
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
        let fd = self.reopen(libc::O_RDONLY)?;
        let locked = sys::byte_is_shared(fd, u64::from(index % PROCESSES));
        sys::close(fd);
        locked.ok()
    }

    /// Takes the lock of this process's entry. It lasts as long as this process's memory: neither a fork child has it, nor the program after an exec.
    fn lock_entry(&self, index: u32) -> bool {
        if has_entered(index) {
            return true;
        }
        let Some(fd) = self.reopen(libc::O_RDWR) else { return false };
        let map = sys::map_shared(fd, PAGE as usize, false);
        let locked = map.is_ok_and(|at| {
            let locked = sys::keep_from_children(at, PAGE as usize).is_ok() && sys::lock_byte(fd, u64::from(index)).is_ok();
            if !locked {
                // SAFETY: nobody else knows of it.
                unsafe { sys::unmap(at, PAGE as usize) };
            }
            locked
        });
        sys::close(fd);
        if locked {
            LOCK.store(map.unwrap_or(std::ptr::null_mut()), Ordering::Relaxed);
            LOCKED.store(mark(index), Ordering::Relaxed);
        }
        locked
    }

    /// In a fork child: the lock is the parent's, and so is the map by which it is held.
    pub fn forget_parent(&self) {
        LOCK.store(std::ptr::null_mut(), Ordering::Relaxed);
        LOCKED.store(0, Ordering::Relaxed);
    }

    /// Enters this process (again after fork; the same entry again after exec). `None`: the ledger has no room.
    #[must_use]
    pub fn enter(&self) -> Option<u32> {
        let (pid, namespace) = (sys::pid(), look_up_namespace());
        let started = stat_of(pid).map_or(0, |(started, _)| started);
        let own = |entry: &Process| {
            entry.pid.load(Ordering::Acquire) == pid
                && entry.namespace.load(Ordering::Relaxed) == namespace
                && entry.started.load(Ordering::Relaxed) == started
        };
        let start = pid % PROCESSES;
        let order = || (0..PROCESSES).map(move |step| (start + step) % PROCESSES);
        let before = order().take(64).find(|&index| own(self.process(index)));
        let index = before.or_else(|| {
            order().find(|&index| {
                let entry = self.process(index);
                let seen = entry.pid.load(Ordering::Acquire);
                // Entries are not given up at death: slots may still name them. They are taken over when nothing is alive behind them.
                let free = seen == 0 || (!self.alive(index) && !self.names_holder(index));
                if free && seen != 0 {
                    // Until all of the entry is written, what it says of its lock is not to be taken for the new process's.
                    entry.flags.store(0, Ordering::SeqCst);
                }
                free && entry.pid.compare_exchange(seen, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            })
        })?;
        let again = has_entered(index);
        let entry = self.process(index);
        entry.namespace.store(namespace, Ordering::Relaxed);
        entry.started.store(started, Ordering::Relaxed);
        entry.flags.store(0, Ordering::SeqCst);
        entry.unlocked.store(0, Ordering::Relaxed);
        entry.set(ProcessFlags::Locked, self.lock_entry(index));
        entry.joined.store(0, Ordering::Relaxed);
        entry.service.store(0, Ordering::Relaxed);
        if !again {
            entry.image.fetch_add(1, Ordering::Relaxed);
        }
        if !again && before.is_some() {
            // What the program before was about to end when it became this one.
            for slot in self.slots().filter(|slot| slot.has(flag::ENDING)) {
                slot.let_go(index);
            }
        }
        entry.reason.store(0, Ordering::Relaxed);
        let name = comm();
        for (word, bytes) in entry.name.iter().zip(name.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().unwrap_or([0; 8])), Ordering::Relaxed);
        }
        Some(index)
    }

    fn names_holder(&self, index: u32) -> bool {
        self.slots().any(|slot| slot.holders.iter().any(|holder| holder.load(Ordering::Relaxed) == index + 1))
    }
}

/// Gives the lock of this process's entry back, if it has it.
pub(super) fn unlock_entry() {
    LOCKED.store(0, Ordering::Relaxed);
    let at = LOCK.swap(std::ptr::null_mut(), Ordering::Relaxed);
    if !at.is_null() {
        // SAFETY: the map is this process's, and nobody looks into it.
        unsafe { sys::unmap(at, PAGE as usize) };
    }
}

/// What [`LOCKED`] is where this process holds the lock of that entry.
fn mark(index: u32) -> u64 {
    u64::from(sys::pid()) << 32 | (u64::from(index) + 1)
}

/// Did this process enter before, for another segment?
fn has_entered(index: u32) -> bool {
    LOCKED.load(Ordering::Relaxed) == mark(index)
}

/// This process's number and, plus one, the entry whose lock it holds; 0: none.
static LOCKED: AtomicU64 = AtomicU64::new(0);
/// The map that keeps that lock; null: there is none.
static LOCK: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
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
