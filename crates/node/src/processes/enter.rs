//! How a process enters the table, shows there that it lives, and gives entries back.

use super::alive::{UNKNOWN, comm, look_up_namespace, stat_of};
use super::entry::Lasts;
use super::{Holdings, Library, PROCESSES, Process, ProcessFlags, Processes};
use crate::life::forks;
use ginnel_region::{PAGE, sys};
use std::sync::atomic::{AtomicU32, Ordering};

impl Processes {
    /// Takes the lock of an entry for this process. It lasts as long as this process's memory:
    /// neither a fork child has it, nor the program after an exec.
    fn lock_entry(&self, index: u32) -> Shown {
        if self.holds_lock(index) {
            return Shown::Here;
        }
        // A child that another thread forks meanwhile would have the open file, and with it the
        // lock.
        forks::without(|| self.lock_new_entry(index))
    }

    /// [`Self::lock_entry`] by a file that is opened for it, and closed again: the map keeps what
    /// was opened.
    fn lock_new_entry(&self, index: u32) -> Shown {
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
                && (library.lasts == Lasts::Process
                    || entry.program.load(Ordering::Relaxed) == program())
        };
        let start = pid % PROCESSES;
        let order = || (0..PROCESSES).map(move |step| (start + step) % PROCESSES);
        let before = order().take(64).find(|&index| own(self.process(index)));
        let taken = before
            .is_none()
            .then(|| order().find(|&index| self.take_over(index, pid, library, holdings)));
        let index = before.or(taken.flatten())?;
        let entry = self.process(index);
        // The namespace last: until it is there, nobody asks when the process started.
        entry.started.store(started, Ordering::Relaxed);
        entry.namespace.store(namespace, Ordering::Release);
        entry.library.store(library.number, Ordering::Relaxed);
        let same_program =
            before.is_some() && entry.program.swap(program(), Ordering::Relaxed) == program();
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
    /// Entries are not given up at death: what a library keeps may still name them. So only a
    /// process with the same library, which can look there, takes one over.
    fn take_over(&self, index: u32, pid: u32, library: Library, holdings: &impl Holdings) -> bool {
        let entry = self.process(index);
        let seen = entry.pid.load(Ordering::Acquire);
        let free =
            seen == 0 || entry.is_of(library) && !self.alive(index) && !holdings.names(index);
        if !free {
            return false;
        }
        // Of two who come at once one has the lock. Where there are no locks, the exchange below
        // decides alone.
        if self.lock_entry(index) == Shown::ByAnother {
            return false;
        }
        // Until all of the entry is written, what it says of the one before, of its lock and of
        // when and where it began, is not to be taken for the new process's, which would count as
        // ended.
        entry.namespace.store(UNKNOWN, Ordering::Relaxed);
        entry.flags.store(0, Ordering::SeqCst);
        let taken =
            entry.pid.compare_exchange(seen, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !taken {
            self.unlock_entry();
        }
        taken
    }

    /// Frees the entries of this library whose processes have ended and which nothing names any
    /// more: other libraries' processes can have them then.
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

/// A number of this program and this copy of the library: drawn at random once, and gone at an
/// exec.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::forks::tests::{beside_forks, is_alone};

    const LIBRARY: Library = Library::of_process("test");

    /// A process whose children live on has ended when it has, however many of them another thread
    /// has forked while it entered.
    #[test]
    fn what_is_forked_meanwhile_does_not_show_it_alive() {
        if !is_alone("processes::enter::tests::what_is_forked_meanwhile_does_not_show_it_alive") {
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        let open = || Processes::open_or_create(place.path()).expect("a table");
        let processes = open();
        let index = processes.enter(LIBRARY, &()).expect("room");
        let enter = || {
            processes.unlock_entry();
            assert_eq!(processes.enter(LIBRARY, &()), Some(index));
        };
        let held = beside_forks(enter, || {
            processes.unlock_entry();
            open().is_locked(index)
        });
        assert_eq!(held, Some(false), "a child has the lock of its parent's entry");
    }

    /// A process that is half way into the entry of one that has ended is not taken for that one by
    /// whoever looks for the dead just then.
    #[test]
    fn who_takes_an_entry_over_lives_from_the_first_moment() {
        let place = tempfile::tempdir().expect("a directory");
        let processes = Processes::open_or_create(place.path()).expect("a table");
        let index = processes.enter(LIBRARY, &()).expect("room");
        processes.unlock_entry();
        let entry = processes.process(index);
        for freed in [false, true] {
            // A number that no process has, and another time of its start.
            entry.namespace.store(look_up_namespace(), Ordering::Relaxed);
            entry.pid.store(u32::MAX / 2, Ordering::Relaxed);
            entry.started.store(1, Ordering::Relaxed);
            entry.flags.store(ProcessFlags::Locked as u32, Ordering::Relaxed);
            assert!(!processes.alive(index), "it has ended");
            if freed {
                processes.free_ended(LIBRARY, &());
            }
            assert!(processes.take_over(index, sys::pid(), LIBRARY, &()));
            let another = Processes::open_or_create(place.path()).expect("a table");
            assert!(another.alive(index));
            another.free_ended(LIBRARY, &());
            assert_eq!(entry.pid.load(Ordering::Relaxed), sys::pid());
            processes.unlock_entry();
        }
    }
}
