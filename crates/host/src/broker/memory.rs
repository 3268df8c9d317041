//! The memory of a pair, and whether there is room for one more, or for a process that asks.

use crate::memory::SEALS;
use anyhow::{Context, Result, ensure};
use ginnel_node::cgroup;
use ginnel_region::Segment;
use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes that the cgroup's memory limit must leave for one pair more: its page, and what the kernel
/// keeps of it and of its lines: some 2.5 KiB for each end.
const LEAST_ROOM: u64 = 64 << 10;
/// Bytes that a process takes that asks: a thread's stacks and what the kernel keeps of it, a
/// socket.
const OF_PROCESS: u64 = 64 << 10;
/// No process takes the last such part of the limit: what else there is, a node's agent among it,
/// is to grow and not to be killed.
const KEPT: u64 = 4;

/// Does the cgroup's memory limit leave room for one more process that asks, beside `own` ones?
///
/// Brokers of several groups may have one limit together. So each takes one more only while as much
/// as it has itself is free: one group fills none of the others' room, however many processes and
/// users it has.
pub fn has_room_for_process(own: usize) -> bool {
    let room = cgroup::room(0);
    let taken = u64::try_from(own).unwrap_or(u64::MAX).saturating_add(1).saturating_mul(OF_PROCESS);
    room.free.saturating_sub(room.limit / KEPT) >= taken
}

/// The memory of a pair, sealed. Of its pages only the header's is taken.
///
/// That page counts as this process's for as long as anybody keeps the memory: also who has left,
/// and then it is of no pair that the limits count. So what is kept is measured where it counts, as
/// rings are. Beyond its cgroup's limit the broker would be killed, and a node's agent with it.
///
/// # Errors
/// What failed; or there is no room.
pub fn make(size: u64) -> Result<OwnedFd> {
    let room = cgroup::room(u64::MAX);
    ensure!(
        room.rings >= LEAST_ROOM,
        "the memory limit of the cgroup, {} bytes, leaves no room",
        room.limit
    );
    let memory = memfd_create("ginnel-pair", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    Segment::format_pair(memory.as_fd(), size)?;
    fcntl_add_seals(&memory, SEALS).context("seal a pair's memory")?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::resident;
    use rustix::io::Errno;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_pairs_memory_is_sealed_and_takes_next_to_nothing() {
        let memory = make(64 << 20).expect("made");
        assert!(resident(&memory) <= 8192, "{}", resident(&memory));
        assert_eq!(rustix::fs::ftruncate(&memory, 4096), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(&memory, rustix::fs::SealFlags::WRITE), Err(Errno::PERM));
        let segment = Segment::of_pair(memory.as_raw_fd()).expect("a segment");
        assert!(segment.tokens_only() && !segment.is_own() && segment.len() == 64 << 20);
    }
}
