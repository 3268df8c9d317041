//! What is known of a slot's registrations in this process: some bits for each slot.

use core::sync::atomic::{AtomicU8, Ordering};
use ginnel_tcp::ledger::SLOTS;

/// Registered in some set.
pub const REGISTERED: u8 = 1;
/// Looked at in every wait.
pub const HOT: u8 = 2;
/// A registration wants EPOLLOUT.
pub const WRITES: u8 = 4;

/// The bits of each slot.
pub(super) static LOCAL: [AtomicU8; SLOTS as usize] = [const { AtomicU8::new(0) }; SLOTS as usize];

pub(super) fn local_bits(slot: u32, set: u8, clear: u8) {
    if let Some(local) = LOCAL.get(slot as usize) {
        local.fetch_or(set, Ordering::AcqRel);
        local.fetch_and(!clear, Ordering::AcqRel);
    }
}

#[inline]
pub(super) fn local_of(slot: u32) -> u8 {
    LOCAL.get(slot as usize).map_or(0, |local| local.load(Ordering::Acquire))
}

/// Is the slot's socket registered in a set of this process?
#[inline]
pub fn registered(slot: u32) -> bool {
    local_of(slot) & REGISTERED != 0
}

/// A slot begins anew: nothing is registered under its number.
pub fn fresh(slot: u32) {
    local_bits(slot, 0, u8::MAX);
}
