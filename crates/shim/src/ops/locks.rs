//! `mlockall`: the program's memory is locked, and what the shim has mapped is not. A segment is
//! much larger than what is used of it, as is the table of descriptors, and locking them would take
//! all of that memory, or more than the program may lock.

use super::{Outcome, limits};
use crate::{maps, next, service};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use ginnel_region::sys;
use libc::c_int;
use syscalls::Sysno;

/// MCL_FUTURE was asked for.
static FUTURE: AtomicBool = AtomicBool::new(false);
/// What else of the shim's is counted with the program's own: its code, its service thread, bytes.
const BESIDE: u64 = 2 << 20;
/// capabilities(7): may lock as much as it likes.
const CAP_IPC_LOCK: u32 = 14;

/// `mlockall(flags)`: where that means what is mapped now, each map by itself, as the kernel does
/// (it does not mind those that cannot be locked).
pub fn lock_all(flags: c_int) -> Outcome<c_int> {
    let known = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    if flags & libc::MCL_FUTURE != 0 {
        maps::note_future();
    }
    let mut ours = maps::all();
    if ours.is_empty() || flags & libc::MCL_CURRENT == 0 || flags & !known != 0 {
        return Outcome::Libc;
    }
    let text = sys::read_file(c"/proc/thread-self/maps");
    let text = String::from_utf8_lossy(&text);
    ours.extend(reserve_of(&text, service::heap()));
    let maps: Vec<Range<usize>> = text
        .lines()
        .filter_map(lockable)
        .flat_map(|map| {
            ours.iter().fold(vec![map], |pieces, ours| {
                pieces.into_iter().flat_map(|piece| without(piece, ours)).collect()
            })
        })
        .collect();
    if maps.is_empty() {
        return Outcome::Libc;
    }
    if !may_lock_anything() {
        let limit = limits::present(libc::RLIMIT_MEMLOCK as _);
        let all: u64 = maps.iter().map(|map| map.len() as u64).sum();
        if limit == 0 {
            return Outcome::Failed(libc::EPERM);
        }
        if all.saturating_sub(BESIDE) > limit {
            return Outcome::Failed(libc::ENOMEM);
        }
    }
    if FUTURE.swap(false, Ordering::Relaxed) {
        // Each call says anew what becomes of later maps.
        // SAFETY: what was locked is locked again below.
        let _ = unsafe { sys::raw(Sysno::munlockall, [0; 6]) };
    }
    let how = if flags & libc::MCL_ONFAULT == 0 { 0 } else { libc::MLOCK_ONFAULT as usize };
    for map in maps {
        // SAFETY: changes nothing but where the memory is kept.
        let _ = unsafe { sys::raw(Sysno::mlock2, [map.start, map.len(), how, 0, 0, 0]) };
    }
    if flags & libc::MCL_FUTURE == 0 {
        return Outcome::Done(0);
    }
    FUTURE.store(true, Ordering::Relaxed);
    // SAFETY: as above.
    match unsafe { next::mlockall(flags & !libc::MCL_CURRENT) } {
        0 => Outcome::Done(0),
        _ => Outcome::Failed(next::errno()),
    }
}

/// The addresses of a line of `/proc/self/maps` (proc(5)). What is not accessible is locked too: it
/// is kept in memory once it is (the C library so makes room for a thread's memory). The gate page
/// at the top is the kernel's.
fn lockable(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
    (range.end <= isize::MAX as usize).then_some(range)
}

/// What the C library keeps for the heap on which `address` lies, and has not made accessible: it
/// lies behind what is, and is larger than most programs may lock. (Main's heap grows without one.)
fn reserve_of(maps: &str, address: usize) -> Option<Range<usize>> {
    let mut lines = maps.lines();
    let heap = lines.by_ref().filter_map(lockable).find(|map| map.contains(&address))?;
    let next = lines.next().filter(|line| line.split_whitespace().nth(1) == Some("---p"))?;
    lockable(next).filter(|map| map.start == heap.end)
}

/// What is left of a piece: the kernel joins private maps that lie side by side, whoever made them.
fn without(piece: Range<usize>, ours: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let (before, behind) =
        (piece.start..piece.end.min(ours.start), piece.start.max(ours.end)..piece.end);
    [before, behind].into_iter().filter(|piece| !piece.is_empty())
}

fn may_lock_anything() -> bool {
    // capget(2), version 3: a header, and 64 bits of each set in two halves.
    let header = [0x2008_0522u32, 0];
    let mut sets = [0u32; 6];
    // SAFETY: both have the kernel's shape.
    let asked = unsafe {
        sys::raw(Sysno::capget, [header.as_ptr() as usize, sets.as_mut_ptr() as usize, 0, 0, 0, 0])
    };
    asked.is_ok() && sets[0] >> CAP_IPC_LOCK & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_without_ours() {
        let left = |piece, ours: Range<usize>| {
            without(piece, &ours).map(|left| (left.start, left.end)).collect::<Vec<_>>()
        };
        assert_eq!(left(10..20, 30..40), [(10, 20)]);
        assert_eq!(left(10..20, 0..5), [(10, 20)]);
        assert_eq!(left(10..20, 12..15), [(10, 12), (15, 20)]);
        assert_eq!(left(10..20, 10..20), []);
        assert_eq!(left(10..20, 5..12), [(12, 20)]);
        assert_eq!(left(10..20, 15..25), [(10, 15)]);
    }

    #[test]
    fn the_reserve_of_a_heap() {
        let maps =
            "1000-3000 rw-p 0 00:00 0 [heap]\n8000-9000 rw-p 0 00:00 0\n9000-f000 ---p 0 00:00 0\n";
        assert_eq!(reserve_of(maps, 0x8010), Some(0x9000..0xf000));
        assert_eq!(reserve_of(maps, 0x1010), None, "what lies behind is not next to it");
        assert_eq!(reserve_of(maps, 0x9010), None);
        assert_eq!(reserve_of(maps, 0), None);
    }

    #[test]
    fn lines_of_maps() {
        assert_eq!(lockable("1000-3000 rw-p 00000000 00:00 0   [heap]"), Some(0x1000..0x3000));
        assert_eq!(lockable("1000-3000 ---p 00000000 00:00 0"), Some(0x1000..0x3000));
        assert_eq!(
            lockable("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]"),
            None
        );
        assert_eq!(lockable(""), None);
    }
}
