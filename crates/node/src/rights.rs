//! What a process may open as it is now. It keeps what it has mapped whatever it becomes, so a
//! change of its user, its groups, its rights or its root directory asks anew.

use ginnel_region::{Segment, sys};

/// Returns (effective user, a mark of the groups and rights) of this process.
pub(crate) fn identity() -> (u32, u64) {
    let (user, group) = sys::effective_ids();
    let mut groups = [0u32; 256];
    // SAFETY: room for so many numbers.
    let count = unsafe {
        sys::raw(
            syscalls::Sysno::getgroups,
            [groups.len(), groups.as_mut_ptr() as usize, 0, 0, 0, 0],
        )
    };
    // FNV-1a. With more groups than that, each change is one.
    let known = count.unwrap_or(0);
    let seed = 0xcbf2_9ce4_8422_2325 ^ if count.is_err() { sys::random_u64() } else { 0 };
    let numbers = groups.iter().take(known).chain(std::iter::once(&group));
    (
        user,
        numbers.fold(seed, |hash: u64, id| (hash ^ u64::from(*id)).wrapping_mul(0x100_0000_01b3)),
    )
}

/// Could this process open the segment's file, and is it the same?
pub(crate) fn can_be_opened(segment: &Segment) -> bool {
    let Ok(again) = Segment::open(segment.path()) else { return false };
    let same = again.id() == segment.id();
    again.close();
    same
}
