//! Which peer this kernel is, where a segment is shared with other kernels; and the member table,
//! in which a segment's members say so.
//!
//! The first word of a member's entry (64 bytes): 0 free; 1 processes of the one kernel that has
//! the segment; else processes of one of several kernels: bits 0–7 are 2, bits 8–15 the peer's id,
//! bits 16–31 the low bits of its generation in the table of peers ([`ginnel_region::Presence`]),
//! bits 32–63 name one boot of that kernel. The second word tells the members of one kernel apart:
//! by process table, and by library. The host's entries have generation 0: each of its processes
//! joins by itself.
//!
//! A member of another kernel lives as long as the daemon says that its peer is attached in that
//! generation; one of an earlier boot of this kernel is dead. All of it is a hint, as everything
//! that a peer can write: whoever is taken for dead by mistake loses connections, and nothing else
//! suffers.

use ginnel_region::{MAX_PEER, Segment, device::Source, sys};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one entry of a segment's member table.
pub const MEMBER_BYTES: u64 = 64;
/// Processes of the one kernel that has the segment.
const ALONE: u64 = 1;
/// Low byte of the entry of processes of one of several kernels.
const AMONG: u64 = 2;

/// This kernel, among those that share a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its id among the peers.
    pub peer: u16,
    /// Vectors that its waiters can use; 0: no doorbells.
    pub vectors: u16,
    word: u64,
}

impl Place {
    /// Where a segment is shared with other kernels: this one's place.
    #[must_use]
    pub fn of(segment: &Segment) -> Option<Self> {
        let (peer, vectors) = match segment.source() {
            Source::File | Source::Pair => return None,
            Source::Device { peer, vectors } => (peer.min(MAX_PEER + 1), vectors),
            // Where nobody says which peer it is, nobody can say that it is gone.
            Source::Bar { peer } => (peer.unwrap_or(u16::MAX).min(MAX_PEER + 1), 0),
            Source::Host { vectors } => (0, vectors),
        };
        // The host's is that of the process that joined last.
        let generation = if peer == 0 { 0 } else { segment.presence(peer).generation & 0xffff };
        Some(Self {
            peer,
            vectors,
            word: u64::from(boot()) << 32 | generation << 16 | u64::from(peer) << 8 | AMONG,
        })
    }

    /// A number that no other kernel has, nor another boot of this one: to tell apart addresses
    /// that each has for itself.
    #[must_use]
    pub fn kernel(&self) -> u64 {
        self.word & !0xffff_00ff
    }

    /// Names this kernel's hold on the segment, until it is unplugged or the kernel boots again.
    #[must_use]
    pub fn life(&self) -> u64 {
        self.word
    }
}

/// Names this boot of the kernel, in 32 bits; never 0.
fn boot() -> u32 {
    let mut text = [0; 36];
    if let Ok(fd) =
        sys::openat(libc::AT_FDCWD, c"/proc/sys/kernel/random/boot_id", libc::O_RDONLY, 0)
    {
        let _ = sys::read(fd, &mut text);
        sys::close(fd);
    }
    // FNV-1a: it is random already, and only to be made shorter.
    text.iter()
        .fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
        | 1
}

fn word(segment: &Segment, member: u16) -> &AtomicU64 {
    segment.word(segment.members().0 + u64::from(member) * MEMBER_BYTES)
}

fn count(segment: &Segment) -> u16 {
    u16::try_from(segment.members().1 / MEMBER_BYTES).unwrap_or(u16::MAX)
}

/// Which peer a member belongs to, by its entry's first word; `None`: processes of the one kernel
/// that has the segment, or nobody's.
pub(crate) fn peer_of(word: u64) -> Option<u16> {
    (word & 0xff == AMONG).then_some((word >> 8 & 0xff) as u16)
}

/// The same of a member.
pub(crate) fn peer_at(segment: &Segment, member: u16) -> Option<u16> {
    (member < count(segment)).then(|| peer_of(word(segment, member).load(Ordering::Relaxed)))?
}

/// The same with the low bits of that peer's generation: which life of it the member belongs to.
#[must_use]
pub fn life_of(word: u64) -> Option<(u16, u16)> {
    peer_of(word).map(|peer| (peer, (word >> 16 & 0xffff) as u16))
}

/// The second word of a member's entry: tells the members of one kernel apart.
fn mark(segment: &Segment, member: u16) -> &AtomicU64 {
    segment.word(segment.members().0 + u64::from(member) * MEMBER_BYTES + 8)
}

/// Takes a free entry of the member table for the processes with this mark.
pub(crate) fn choose_member(segment: &Segment, place: Option<Place>, mark_of: u64) -> Option<u16> {
    let own = place.map_or(ALONE, |place| place.word);
    let free = |&member: &u16| {
        word(segment, member).compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    (0..count(segment))
        .find(free)
        .inspect(|&member| mark(segment, member).store(mark_of, Ordering::Relaxed))
}

/// Is an entry still of the processes with this mark? The other kernels give the host's back while
/// none of its processes is there, and another may have taken it.
pub(crate) fn is_ours(segment: &Segment, place: Option<Place>, member: u16, mark_of: u64) -> bool {
    let same = |place: Place| {
        (
            word(segment, member).load(Ordering::Relaxed),
            mark(segment, member).load(Ordering::Relaxed),
        ) == (place.word, mark_of)
    };
    place.is_none_or(same)
}

/// What is known of a member without asking this kernel.
pub(crate) enum Known {
    /// It lives.
    Lives,
    /// It is gone.
    Gone,
    /// It is one of this kernel.
    Ours,
}

/// Is a member one of another kernel, and if so, does it live?
pub(crate) fn look(segment: &Segment, place: Option<Place>, member: u16) -> Known {
    let theirs = word(segment, member).load(Ordering::Relaxed);
    let Some(own) = place else { return Known::Ours };
    if theirs == own.word {
        return Known::Ours;
    }
    let Some(peer) = peer_of(theirs) else {
        return if theirs == 0 { Known::Gone } else { Known::Lives };
    };
    let presence = segment.presence(peer);
    if peer == own.peer {
        // An earlier boot, or before an unplug; of those without a number one cannot tell which is
        // which.
        return if peer > MAX_PEER && theirs >> 32 != own.word >> 32 {
            Known::Lives
        } else {
            Known::Gone
        };
    }
    // Of the host's processes each has joined anew; those without a number are never spoken of.
    let same = peer == 0 || presence.generation & 0xffff == theirs >> 16 & 0xffff;
    if peer > MAX_PEER || presence.attached && same { Known::Lives } else { Known::Gone }
}

/// Members of other kernels, or other lives of this one, that are gone.
pub(crate) fn gone(segment: &Segment, place: Option<Place>) -> Vec<(u16, u64)> {
    if place.is_none() {
        return Vec::new();
    }
    (0..count(segment))
        .map(|member| (member, word(segment, member).load(Ordering::Relaxed)))
        .filter(|&(member, word)| word != 0 && matches!(look(segment, place, member), Known::Gone))
        .collect()
}

/// Gives back the entry of a member that was found gone, of which nothing is left.
pub(crate) fn free_member(segment: &Segment, (member, seen): (u16, u64)) {
    let _ = word(segment, member).compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
}
