//! How many wait at an object, for `ginnel ls`: wishes to be woken whose waiter is there.

use crate::presence::Presence;
use crate::raw::Area;
use crate::waitlist::Waitlist;
use crate::{Kind, queue, sysv};
use ginnel_region::{Entry, PAGE, Use};
use ginnel_ring::park::Want;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How many wait at the object of an entry at the moment. What a hostile process wrote there gives
/// another number, and nothing worse.
pub(crate) fn waiting(presence: &Presence, entry: &Entry) -> u32 {
    let segment = presence.segment();
    let Some(page) = Area::new(segment, u64::from(entry.page) * PAGE, PAGE) else { return 0 };
    let is_there = |word: &&AtomicU64| {
        let wish = Want::of(word.load(Relaxed));
        let owner = |page| segment.head(page).map(|head| head.owner().kind);
        matches!(wish, Want::Waiter { page, .. } if owner(page) == Some(Use::Waiter))
    };
    let count = |words: &mut dyn Iterator<Item = &'static AtomicU64>| {
        u32::try_from(words.filter(is_there).count()).unwrap_or(u32::MAX)
    };
    let first = || Waitlist::new(page).places();
    match Kind::of(entry.kind) {
        Kind::Mutex | Kind::Semaphore | Kind::Event | Kind::Barrier => count(&mut first()),
        Kind::RwLock => count(&mut first().chain(Waitlist::second(page).places())),
        Kind::Queue => count(&mut queue::wishes(page)),
        Kind::SystemVSemaphores => count(&mut sysv::wishes(segment, entry.page, page)),
        Kind::Memory | Kind::SystemVMemory | Kind::Iceoryx2 | Kind::Unknown => 0,
    }
}
