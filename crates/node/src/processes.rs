//! The process table: what the processes of one user on one kernel say about themselves to each
//! other. A file beside the default segment, never in a segment: a peer must not be able to forge
//! it.
//!
//! It has an entry for each process *and library* ([`Library`]), so that two libraries in one
//! process (a preloaded one, and one that the program is linked with) do not take each other's
//! locks for those of a program that was before. A library may keep a table of its own beside it,
//! which names entries of this one ([`Holdings`]).

mod alive;
mod doubt;
mod elsewhere;
mod enter;
mod entry;
pub mod left;
mod lock;

pub use alive::PATIENCE;
pub use entry::{Library, Life, Process, ProcessFlags};
pub use lock::{Held, Interrupted, Lock};

use crate::table::{Kind, Table};
use doubt::Doubts;
use ginnel_region::{Error, sys};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"GINPROCS");
const VERSION: u32 = 1;

/// Name of the process table in its directory. The number is its version: programs under an older
/// Ginnel go on beside newer ones.
pub const PROCESS_TABLE: &str = "processes-1";

/// Is it the name of a process table, of this version or another?
#[must_use]
pub fn is_process_table(name: &str) -> bool {
    name == "processes" || name.starts_with("processes-")
}

/// How many entries a process table has.
pub const PROCESSES: u32 = 4096;

const PROCESSES_AT: usize = size_of::<Header>();
const SIZE: usize = PROCESSES_AT + PROCESSES as usize * size_of::<Process>();
static KIND: Kind =
    Kind { name: "use process table", magic: MAGIC, version: VERSION, size: SIZE, at_first: SIZE };

#[repr(C, align(4096))]
struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    /// (a library's number, monotonic milliseconds): when its processes last looked for the dead.
    reclaimed: [(AtomicU64, AtomicU64); 16],
    /// (a segment's key, member + 1) pairs: as which member of a segment this table's processes
    /// appear.
    members: [(AtomicU64, AtomicU64); 64],
    members_lock: Lock,
    /// Segments (ids) that this table's processes are asked to leave, and not to join again; 0:
    /// free.
    detached: [AtomicU64; 32],
    doubts: Doubts,
}

const _: () = assert!(size_of::<Header>() == 8192);

/// What a library keeps about entries of the process table in a table of its own.
pub trait Holdings {
    /// Does anything there name the entry `index`, whose process has ended? Then the entry is not
    /// given to another process yet.
    fn names(&self, index: u32) -> bool;

    /// The process of the entry `index` runs another program now: what the program before was about
    /// to end has ended.
    fn began_anew(&self, index: u32);
}

/// A library that keeps nothing.
impl Holdings for () {
    fn names(&self, _: u32) -> bool {
        false
    }

    fn began_anew(&self, _: u32) {}
}

/// The mapped process table.
pub struct Processes {
    table: Table,
    /// What an observer, who may not write it, has seen of processes of other pid namespaces: as
    /// `unlocked` in a [`Process`]. Empty where that can be written.
    seen_unlocked: Vec<AtomicU32>,
    /// This process's number and, plus one, the entry whose lock it holds here; 0: none.
    locked: AtomicU64,
    /// The map that keeps that lock; null: there is none.
    lock: AtomicPtr<u8>,
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.unlock_entry();
    }
}

impl Processes {
    /// Opens the process table in `directory`, or makes it where there is none, to take part in it.
    ///
    /// # Errors
    /// As for [`Table::open_or_create`].
    pub fn open_or_create(directory: &Path) -> Result<Self, Error> {
        Table::open_or_create(&directory.join(PROCESS_TABLE), &KIND).map(Self::of)
    }

    /// Opens a process table that is there, to look on, or to ask its processes for something.
    ///
    /// # Errors
    /// As for [`Table::open`].
    pub fn open(directory: &Path, writable: bool) -> Result<Self, Error> {
        Table::open(&directory.join(PROCESS_TABLE), &KIND, writable).map(Self::of)
    }

    fn of(table: Table) -> Self {
        let seen_unlocked = (0..if table.is_writable() { 0 } else { PROCESSES })
            .map(|_| AtomicU32::new(0))
            .collect();
        let lock = AtomicPtr::new(std::ptr::null_mut());
        Self { table, seen_unlocked, locked: AtomicU64::new(0), lock }
    }

    fn header(&self) -> &Header {
        // SAFETY: the map begins with a header, all atomics.
        unsafe { &*self.table.base().cast::<Header>() }
    }

    /// The process entry `index`.
    #[must_use]
    pub fn process(&self, index: u32) -> &Process {
        // SAFETY: the remainder keeps it inside the map; all fields are atomics.
        unsafe {
            &*self
                .table
                .base()
                .add(PROCESSES_AT)
                .cast::<Process>()
                .add((index % PROCESSES) as usize)
        }
    }

    /// Every entry whose process lives, whatever its library, with its number.
    pub fn living(&self) -> impl Iterator<Item = (u32, &Process)> {
        (0..PROCESSES)
            .map(|index| (index, self.process(index)))
            .filter(|(index, _)| self.alive(*index))
    }

    /// Could this process open it anew, for reading and writing, under the same name?
    #[must_use]
    pub fn can_be_opened(&self) -> bool {
        self.table.can_be_opened()
    }

    /// Gives the memory up: zeroes of this process's own stand in its place from here on, and it no
    /// longer holds the lock by which others see it live.
    pub fn let_go(&self) {
        self.unlock_entry();
        self.table.let_go();
    }

    /// Where it is mapped.
    #[must_use]
    pub fn memory(&self) -> std::ops::Range<usize> {
        self.table.memory()
    }

    /// Is it time for `library` to look for the dead again, at most every `pause` milliseconds by
    /// whichever process? Only one is told so.
    #[must_use]
    pub fn time_to_reclaim(&self, library: Library, pause: u64) -> bool {
        let number = u64::from(library.number());
        let is_ours = |(of, _): &&(AtomicU64, AtomicU64)| {
            let known = of.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
            known.is_ok() || known == Err(number)
        };
        // With more libraries than there is room for, some look more often than they need.
        let Some((_, last)) = self.header().reclaimed.iter().find(is_ours) else { return true };
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
        self.header()
            .detached
            .iter()
            .map(|id| id.load(Ordering::Relaxed))
            .filter(|id| *id != 0)
            .collect()
    }

    /// Asks the processes to leave a segment, or lets them join it again. `false`: no room for
    /// another.
    #[must_use]
    pub fn set_detached(&self, segment: u64, on: bool) -> bool {
        let ids = &self.header().detached;
        let change = |from, to| {
            ids.iter().any(|id| {
                id.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            })
        };
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

    /// As which member of a segment this table's processes appear, if that was settled and `holds`;
    /// else settles it with `choose`.
    pub(crate) fn member_of(
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
            let settled =
                u16::try_from(member.load(Ordering::Relaxed)).ok().filter(|&member| holds(member));
            return settled.or_else(|| {
                choose().inspect(|&chosen| member.store(chosen.into(), Ordering::Relaxed))
            });
        }
        // Segments that are gone are forgotten when the table is full: their number only matters
        // while they are mapped.
        let (id, member) = header
            .members
            .iter()
            .find(|(id, _)| id.load(Ordering::Relaxed) == 0)
            .or_else(|| header.members.first())?;
        let chosen = choose()?;
        member.store(u64::from(chosen), Ordering::Relaxed);
        id.store(segment, Ordering::Relaxed);
        Some(chosen)
    }

    /// Returns as which member of the segment (its id) this table's processes appear with
    /// `library`, for who only looks: it takes no lock, and a change under way may mislead it.
    #[must_use]
    pub fn seen_as(&self, segment: u64, library: Library) -> Option<u16> {
        let key = segment ^ u64::from(library.number());
        let (_, member) =
            self.header().members.iter().find(|(id, _)| id.load(Ordering::Relaxed) == key)?;
        u16::try_from(member.load(Ordering::Relaxed)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// As the preloaded library does …
    const LASTING: Library = Library::of_process("sockets");
    /// … and one that a program is linked with.
    const LINKED: Library = Library::of_program("linked");

    /// One process's part in a table, as one library.
    struct Part {
        processes: Processes,
        index: u32,
        ticket: u32,
    }

    fn enter(directory: &Path, library: Library) -> Part {
        let processes = Processes::open_or_create(directory).expect("a table");
        let index = processes.enter(library, &()).expect("room");
        let ticket = processes.process(index).ticket(index);
        Part { processes, index, ticket }
    }

    #[test]
    fn two_libraries_of_one_process_leave_each_others_locks_alone() {
        let place = tempfile::tempdir().expect("a directory");
        let first = enter(place.path(), LASTING);
        let held = first.processes.header().members_lock.lock(&first.processes, first.ticket);
        let second = enter(place.path(), LINKED);
        assert_ne!(first.index, second.index);
        assert!(!first.processes.header().members_lock.is_orphan(&second.processes));
        drop(held);
        let held = second.processes.header().members_lock.lock(&second.processes, second.ticket);
        // Another node of the first library, as of a program that looks at several segments.
        let again = enter(place.path(), LASTING);
        assert_eq!((again.index, again.ticket), (first.index, first.ticket));
        assert!(!second.processes.header().members_lock.is_orphan(&again.processes));
        drop(held);
        // SAFETY: the child makes system calls only, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let both = [(&first, LASTING), (&second, LINKED)].map(|(part, library)| {
                part.processes.forget_parent();
                part.processes.enter(library, &())
            });
            // SAFETY: ends the child.
            let [Some(one), Some(two)] = both else { unsafe { libc::_exit(1) } };
            let parents = [first.index, second.index];
            let apart = one != two && !parents.contains(&one) && !parents.contains(&two);
            let live =
                first.processes.is_still(first.ticket) && first.processes.is_still(second.ticket);
            // SAFETY: ends the child.
            unsafe {
                libc::_exit(
                    if apart && live && first.processes.alive(one) && first.processes.alive(two) {
                        0
                    } else {
                        2
                    },
                )
            };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "in the child");
    }

    /// In a process of its own, which becomes itself again by exec.
    #[test]
    fn after_an_exec_one_library_goes_on_and_the_other_has_ended() {
        const BEFORE: &str = "GINNEL_TEST_BEFORE";
        const PLACE: &str = "GINNEL_TEST_PLACE";
        let name = "processes::tests::after_an_exec_one_library_goes_on_and_the_other_has_ended";
        let own = std::env::current_exe().expect("a test is a program");
        let Some(directory) = std::env::var_os(PLACE) else {
            let place = tempfile::tempdir().expect("a directory");
            let ran = Command::new(own)
                .args(["--exact", name])
                .env(PLACE, place.path())
                .output()
                .expect("it starts");
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && said.contains("1 passed"), "{said}");
            return;
        };
        let directory = Path::new(&directory);
        let Ok(before) = std::env::var(BEFORE) else {
            let [lasting, linked] = [LASTING, LINKED].map(|library| enter(directory, library));
            let before = format!("{} {} {}", lasting.index, lasting.ticket, linked.ticket);
            panic!("{}", Command::new(own).args(["--exact", name]).env(BEFORE, before).exec());
        };
        let before: Vec<u32> =
            before.split(' ').map(|number| number.parse().expect("a number")).collect();
        let [index, ticket, linked_before] = before[..] else { panic!("three numbers") };
        let lasting = enter(directory, LASTING);
        assert_eq!(lasting.index, index, "it goes on with its entry");
        assert!(lasting.processes.is_still(lasting.ticket) && !lasting.processes.is_still(ticket));
        let ended = linked_before & 0xffff;
        assert!(!lasting.processes.alive(ended), "the program ended, though its process did not");
        lasting.processes.free_ended(LASTING, &());
        assert_ne!(
            lasting.processes.process(ended).pid.load(Ordering::Relaxed),
            0,
            "another library's"
        );
        lasting.processes.free_ended(LINKED, &());
        assert_eq!(lasting.processes.process(ended).pid.load(Ordering::Relaxed), 0);
        let linked = enter(directory, LINKED);
        assert!(
            linked.processes.is_still(linked.ticket) && !linked.processes.is_still(linked_before)
        );
        assert_eq!(lasting.processes.living().count(), 2);
    }
}
