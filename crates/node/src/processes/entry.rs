//! One entry of the process table.

use super::alive::stat_of;
use ginnel_region::sys;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Which library an entry of the process table belongs to: each in a process has one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Library {
    pub(super) number: u32,
    pub(super) lasts: Lasts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasts {
    Process,
    Program,
}

impl Library {
    /// A library whose entry lasts as long as the process: after an exec the same library in the
    /// next program goes on with it, and with what is noted under it. There is one copy in a
    /// process.
    ///
    /// `name` should end in the version of what the library keeps beside the process table
    /// ([`super::Holdings`]): entries are only given from one process to another of the same name.
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
    /// It holds a lock on its byte of the table while it runs ([`super::Processes::alive`]).
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
    /// When it started, in the kernel's ticks (field 22 of `/proc/PID/stat`); 0 unknown. Pid and
    /// start time together never come twice.
    pub started: AtomicU64,
    /// Inode of its pid namespace: numbers of another namespace say nothing here.
    pub namespace: AtomicU64,
    /// Segment that it uses (id), 0 none.
    pub segment: AtomicU64,
    /// Its name (`/proc/PID/comm`), zero-padded.
    pub name: [AtomicU64; 2],
    /// Why it is in no segment: a [`crate::Refusal`] or a number of its library's; 0: it is in one.
    pub reason: AtomicU32,
    /// Counts the programs that ran in the process: after an exec, locks of the program before are
    /// nobody's.
    pub image: AtomicU32,
    /// What it is joined to, 0 nothing: processes with the same number have the same memory mapped.
    /// Another number after an unplug than before.
    pub joined: AtomicU64,
    /// Page of its service thread's waiter in that segment, 0 none.
    pub service: AtomicU32,
    /// Since when its lock was seen free by processes of other pid namespaces that may write here,
    /// in units of 2^20 ns; 0: it was not.
    pub(super) unlocked: AtomicU32,
    /// See [`Library`].
    pub(super) library: AtomicU32,
    /// Which program of the process made the entry, and which copy of the library in it:
    /// [`program`].
    pub(super) program: AtomicU32,
}

const _: () = assert!(size_of::<Process>() == 128);

/// One program of one process: what has ended does not come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    pid: u32,
    started: u64,
    image: u32,
}

impl Process {
    /// By what is known of process numbers in this pid namespace: is the process there?
    pub(super) fn is_listed(&self, pid: u32) -> bool {
        if !sys::pid_exists(pid) {
            return false;
        }
        let recorded = self.started.load(Ordering::Relaxed);
        match stat_of(pid) {
            Some((started, zombie)) => {
                !zombie && (recorded == 0 || started == 0 || started == recorded)
            }
            None => sys::pid_exists(pid),
        }
    }

    /// Which program of which process it is.
    #[must_use]
    pub fn life(&self) -> Life {
        let pid = self.pid.load(Ordering::Acquire);
        Life {
            pid,
            started: self.started.load(Ordering::Relaxed),
            image: self.image.load(Ordering::Relaxed),
        }
    }

    /// What stands in a lock that this process holds: its entry and, above, its image. `index`: the
    /// entry's number.
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
        let bytes: Vec<u8> = self
            .name
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .take_while(|&b| b != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
