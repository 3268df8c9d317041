//! What a process needs to carry connections: its node in a segment, and the ledger of its sockets.

use crate::ledger::{LEDGER, Ledger, Reason, Slot, flag};
use crate::pairs::{Pair, Pairs};
use crate::settings::Settings;
use ginnel_node::joined::Joined;
use ginnel_node::processes::{Library, PROCESS_TABLE, Processes};
use ginnel_node::{Node, Refusal, Unattached};
use ginnel_region::{Error, sys};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Under which name processes that carry connections stand in the process table. Entries name
/// holders in a ledger of this version, so that no other library, nor another version, may give
/// them to others.
pub const LIBRARY: Library = Library::of_process(LEDGER);

/// The tables of one user, for one who looks on or asks their processes for something: who is
/// there, and which sockets they hold.
pub struct Tables {
    /// The process table.
    pub processes: Processes,
    /// The ledger of sockets.
    pub ledger: Ledger,
}

impl Tables {
    /// Opens those in `directory`.
    ///
    /// # Errors
    /// The path of the one that could not be opened, and why not.
    pub fn open(directory: &Path, writable: bool) -> Result<Self, (PathBuf, Error)> {
        let ledger =
            Ledger::open(directory, writable).map_err(|error| (directory.join(LEDGER), error))?;
        let processes = Processes::open(directory, writable)
            .map_err(|error| (directory.join(PROCESS_TABLE), error))?;
        Ok(Self { processes, ledger })
    }
}

/// Everything a process needs to carry connections.
pub struct Attachment {
    /// This process in its segment.
    pub node: Node,
    /// The ledger of sockets.
    pub ledger: Ledger,
    /// Settings.
    pub settings: Settings,
    /// Memory that this process shares with one other process each.
    pub pairs: Pairs,
    chaos: AtomicU64,
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoMemory => Self::NoMemory,
            Refusal::NoSegment => Self::NoSegment,
            Refusal::NotServed => Self::NotServed,
            Refusal::MemoryLimit => Self::MemoryLimit,
        }
    }
}

// In a process's entry both are numbers of one kind.
const _: () = {
    assert!(Refusal::NoMemory as u32 == Reason::NoMemory as u32);
    assert!(Refusal::NoSegment as u32 == Reason::NoSegment as u32);
    assert!(Refusal::NotServed as u32 == Reason::NotServed as u32);
    assert!(Refusal::MemoryLimit as u32 == Reason::MemoryLimit as u32);
};

impl Attachment {
    /// Opens (or makes) the tables and the segment and enters this process.
    ///
    /// # Errors
    /// Why not, in words; the program goes on over TCP.
    pub fn new(settings: Settings, on_descriptor: fn(i32, bool)) -> Result<Self, Unattached> {
        let open = |directory: &Path| {
            Ledger::open_or_create(directory).map_err(|error| (directory.join(LEDGER), error))
        };
        let (node, ledger) = Node::new(settings.node.clone(), LIBRARY, open, on_descriptor)?;
        let chaos = settings.chaos.map_or(0, |(seed, _)| seed) ^ u64::from(sys::pid()) << 20 | 1;
        Ok(Self { node, ledger, settings, pairs: Pairs::default(), chaos: AtomicU64::new(chaos) })
    }

    /// What this process has of the segment in which a slot's connection is, or may come to be.
    /// `None`: it is in the memory of a pair that this process is not in.
    #[must_use]
    #[inline]
    pub fn joined_of(&self, slot: &Slot) -> Option<&Joined> {
        if slot.has(flag::PAIR) { self.joined_of_pair(slot) } else { Some(self.node.joined()) }
    }

    #[cold]
    fn joined_of_pair(&self, slot: &Slot) -> Option<&Joined> {
        self.pair_of(slot).map(|pair| &pair.joined)
    }

    /// The pair in whose memory a slot's connection is to be; `None`: it is in the own segment.
    #[must_use]
    pub fn pair_of(&self, slot: &Slot) -> Option<&Pair> {
        if !slot.has(flag::PAIR) {
            return None;
        }
        self.pairs.of(self.ledger.index(slot), slot).map(|(pair, _)| pair)
    }

    /// Is a slot's connection in the memory of a pair that this process is not in?
    #[must_use]
    pub fn is_of_foreign_pair(&self, slot: &Slot) -> bool {
        // (One that it gave up holds zeroes: the process had no descriptor of the socket then.)
        slot.has(flag::PAIR) && self.pair_of(slot).is_none_or(|pair| pair.is_given_up())
    }

    /// Testing: is it time for a random switch? Which (0 … 7), if so.
    #[must_use]
    pub fn chaos(&self) -> Option<u64> {
        let (_, period) = self.settings.chaos?;
        let random = self.random();
        random.is_multiple_of(period).then_some((random / period) & 7)
    }

    /// Testing: is this waiter to be taken for one that cannot be rung from here?
    pub(crate) fn is_deaf(&self) -> bool {
        self.settings.deaf != 0 && self.random().is_multiple_of(self.settings.deaf)
    }

    fn random(&self) -> u64 {
        // xorshift64*, shared by the process's threads: a lost update only repeats a number.
        let mut x = self.chaos.load(Ordering::Relaxed);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.chaos.store(x, Ordering::Relaxed);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::proof::Prover;
    use ginnel_node::settings::{DEFAULT_SEGMENT, Settings as NodeSettings};
    use std::os::unix::fs::PermissionsExt;

    /// This process's hold on a ledger and a segment that nobody else has.
    pub(crate) fn attached(directory: &Path) -> Attachment {
        let given = Settings::from_environment();
        // Made by whoever attaches, and so that user's alone.
        let directory = &directory.join("own");
        let mut node =
            NodeSettings { directory: directory.clone(), tokens: false, ..given.node.clone() };
        node.segment = directory.join(DEFAULT_SEGMENT);
        node.config.size = 16 << 20;
        let settings = Settings { node, chaos: None, deaf: 0, ..given };
        Attachment::new(settings, |_, _| {}).expect("attached")
    }

    #[test]
    fn a_segment_that_is_opened_to_others_is_no_longer_ones_own() {
        let place = tempfile::tempdir().expect("a directory");
        let attachment = attached(place.path());
        assert_eq!(Prover::in_segment(attachment.node.joined()), Prover::Nobody);
        let mode = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(attachment.node.joined().segment.path(), permissions)
                .expect("it is ours");
        };
        mode(0o660);
        assert_eq!(Prover::in_segment(attachment.node.joined()), Prover::Nothing);
        mode(0o600);
        assert_eq!(Prover::in_segment(attachment.node.joined()), Prover::Nobody);
    }

    /// Nobody would give it up when the process becomes another user.
    #[test]
    fn who_cannot_join_keeps_no_ledger() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("own");
        let segment = place.path().join("none");
        std::fs::write(&segment, "none").expect("written");
        let given = Settings::from_environment();
        let node = NodeSettings { directory: directory.clone(), segment, ..given.node.clone() };
        let refused =
            Attachment::new(Settings { node, ..given }, |_, _| {}).err().expect("it is no segment");
        assert_eq!(Reason::from(refused.refusal), Reason::NoSegment);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("read");
        assert!(
            directory.join(LEDGER).exists() && !maps.contains(directory.to_str().expect("UTF-8")),
            "{maps}"
        );
    }
}
