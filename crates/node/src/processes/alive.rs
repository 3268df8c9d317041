//! Which of a table's processes live.

use super::{PROCESSES, ProcessFlags, Processes};
use ginnel_region::sys;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How long a process's lock must have been seen free until it counts as ended, milliseconds: an
/// exec lets go of it for a moment …
pub const PATIENCE: u64 = 2000;
/// … or for longer, where the shim saw the exec and the new program is slow to load.
const EXEC_PATIENCE: u64 = 60_000;

impl Processes {
    /// Is the process that made this entry still there?
    ///
    /// Its number tells within one pid namespace. In another one only its lock does, which the
    /// kernel takes from it when it ends, however it ends: an open file of the table that a map
    /// alone keeps open, so that no close of a descriptor can lose it. Where that cannot be asked,
    /// it is taken to be there.
    #[must_use]
    pub fn alive(&self, index: u32) -> bool {
        let entry = self.process(index);
        let pid = entry.pid.load(Ordering::Acquire);
        if pid == 0 {
            return false;
        }
        // Acquire pairs with the Release of whoever enters: the time of its start is its own then.
        let namespace = entry.namespace.load(Ordering::Acquire);
        let ours = namespace == pid_namespace() && namespace != UNKNOWN;
        if ours && entry.is_listed(pid) {
            let of_program = entry.has(ProcessFlags::OfProgram) && entry.has(ProcessFlags::Locked);
            return !of_program || self.is_locked(index) != Some(false);
        }
        if !entry.has(ProcessFlags::Locked) {
            return !ours;
        }
        // A zombie's threads may still be in system calls, sending or receiving, and what they hold
        // is theirs: its lock goes when the last of them is gone.
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

    /// Where it is noted that the lock of an entry was seen free: in the entry, or with an observer
    /// who may not write there.
    fn mark(&self, index: u32) -> &AtomicU32 {
        self.seen_unlocked
            .get((index % PROCESSES) as usize)
            .unwrap_or_else(|| &self.process(index).unlocked)
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
        self.alive(index)
            && self.process(index).image.load(Ordering::Relaxed) & 0xffff == ticket >> 16
    }

    /// Is a process seen without its lock, and not known to have ended yet?
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        let doubtful = |index: &u32| self.unlocked_since(*index) != 0 && self.alive(*index);
        (0..PROCESSES)
            .filter(doubtful)
            .any(|index| !self.process(index).has(ProcessFlags::Executing))
    }

    /// Does anybody hold the lock of this entry? `None`: that cannot be asked.
    pub(super) fn is_locked(&self, index: u32) -> Option<bool> {
        let fd = self.table.reopen(libc::O_RDONLY)?;
        let locked = sys::byte_is_shared(fd, u64::from(index % PROCESSES));
        sys::close(fd);
        locked.ok()
    }
}

/// Inode of this process's pid namespace, once it was asked for; 0 before, [`UNKNOWN`] where it
/// cannot be told.
static NAMESPACE: AtomicU64 = AtomicU64::new(0);
pub(super) const UNKNOWN: u64 = 1;

fn pid_namespace() -> u64 {
    let known = NAMESPACE.load(Ordering::Relaxed);
    if known != 0 { known } else { look_up_namespace() }
}

pub(super) fn look_up_namespace() -> u64 {
    let fd = sys::openat(libc::AT_FDCWD, c"/proc/self/ns/pid", libc::O_RDONLY, 0);
    let inode = fd.ok().and_then(|fd| {
        let stat = sys::fstat(fd);
        sys::close(fd);
        stat.ok()
    });
    // Without `/proc` (chroot), a fork child is where its parent was, unless it is the first in
    // another one (unshare, setns): there its parent has no number.
    let before = || {
        Some(NAMESPACE.load(Ordering::Relaxed)).filter(|&known| known != 0 && sys::parent() != 0)
    };
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

pub(super) fn comm() -> [u8; 16] {
    let mut name = [0u8; 16];
    let n = read_file(c"/proc/self/comm", &mut name).unwrap_or(0);
    for byte in name.iter_mut().skip(n.saturating_sub(1)) {
        *byte = 0;
    }
    name
}

/// (start time, is a zombie) of a process, from `/proc/PID/stat` (proc(5), fields 3 and 22).
pub(super) fn stat_of(pid: u32) -> Option<(u64, bool)> {
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
    let parts =
        b"/proc/".iter().copied().chain(digits[..count].iter().rev().copied()).chain(*b"/stat\0");
    for (place, byte) in path.iter_mut().zip(parts) {
        *place = byte;
    }
    let mut text = [0u8; 512];
    let n = read_file(std::ffi::CStr::from_bytes_until_nul(&path).ok()?, &mut text)?;
    // The name (field 2) may hold anything: count from the last parenthesis.
    let end = text[..n].iter().rposition(|&byte| byte == b')')?;
    let mut fields = text[end + 1..n].split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let state = fields.next()?.first().copied()?;
    let started = fields
        .nth(18)?
        .iter()
        .try_fold(0u64, |sum, &byte| Some(sum * 10 + u64::from(byte.checked_sub(b'0')?)))?;
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
