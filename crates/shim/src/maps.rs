//! What the library has mapped, and what it has given up of that: memory that is not the program's,
//! and is not to be locked with the program's own.

use crate::{fds, runtime};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use ginnel_tcp::Attachment;

/// MCL_FUTURE was ever asked for, also without MCL_CURRENT.
static EVER_FUTURE: AtomicBool = AtomicBool::new(false);

/// Where the segment and the tables lie.
fn maps_of(attachment: &Attachment) -> [Range<usize>; 3] {
    let base = attachment.node.joined().segment.base() as usize;
    [
        base..base + attachment.node.joined().segment.len() as usize,
        attachment.node.processes.memory(),
        attachment.ledger.memory(),
    ]
}

/// First and last address of each map that was given up: zeroes stand there, which are not the
/// program's to lock either. Three for each change of the user.
static GIVEN_UP: [[AtomicUsize; 2]; 3 * CHANGES] =
    [const { [const { AtomicUsize::new(0) }; 2] }; 3 * CHANGES];
/// So many changes of the user are remembered.
const CHANGES: usize = 20;

/// Of whom the pairs were given up: zeroes stand there, too.
static PAST: [AtomicPtr<Attachment>; CHANGES] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; CHANGES];

/// What `attachment` has mapped is about to be given up.
pub fn give_up(attachment: &'static Attachment) {
    let (none, past) = (core::ptr::null_mut(), core::ptr::from_ref(attachment).cast_mut());
    let take = |place: &&AtomicPtr<Attachment>| {
        place.compare_exchange(none, past, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let _ = PAST.iter().find(take);
    for map in maps_of(attachment) {
        let free = GIVEN_UP.iter().find(|[start, _]| start.load(Ordering::Relaxed) == 0);
        if let Some([start, end]) = free {
            end.store(map.end, Ordering::Relaxed);
            start.store(map.start, Ordering::Relaxed);
        }
    }
}

fn given_up() -> impl Iterator<Item = Range<usize>> {
    let all = GIVEN_UP
        .iter()
        .map(|[start, end]| start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed));
    // SAFETY: null, or from a reference that lasts.
    let past = PAST.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() });
    all.take_while(|map| map.start != 0)
        .chain(past.flat_map(|attachment| attachment.pairs.ranges()))
}

/// May the kernel lock all of a map that is made now? A segment would take all of its memory then.
pub fn may_lock_later_maps() -> bool {
    EVER_FUTURE.load(Ordering::Relaxed)
}

/// The program has the kernel lock maps that are made later.
pub fn note_future() {
    EVER_FUTURE.store(true, Ordering::Relaxed);
}

/// All that is not the program's.
#[must_use]
pub fn all() -> Vec<Range<usize>> {
    let mut ours: Vec<Range<usize>> = given_up().collect();
    ours.extend(runtime::attachment().into_iter().flat_map(maps_of));
    ours.extend(runtime::attachment().into_iter().flat_map(|attachment| attachment.pairs.ranges()));
    // It is there also where nothing is carried.
    ours.extend(Some(fds::memory()).filter(|table| table.start != 0));
    ours
}
