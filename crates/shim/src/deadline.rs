//! Time limits of calls that wait, and the signals that those let in which do not.

use crate::next;
use ginnel_region::sys;
use libc::{c_int, timespec};

/// A point in time, monotonic nanoseconds; `None`: never.
pub type Deadline = Option<u64>;

/// The deadline that a time limit sets, from now.
#[must_use]
pub fn after(limit: Option<timespec>) -> Deadline {
    limit.map(|limit| sys::monotonic_ns().saturating_add(nanoseconds(limit)))
}

fn nanoseconds(limit: timespec) -> u64 {
    let whole = u64::try_from(limit.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    whole.saturating_add(u64::try_from(limit.tv_nsec).unwrap_or(0))
}

/// The same or, where the limit is a second or more, up to a tenth of a second later: by the clock
/// for which the hardware is not asked.
#[must_use]
pub fn roughly_after(limit: Option<timespec>) -> Deadline {
    /// That clock goes on at least a hundred times a second (the least `CONFIG_HZ`), unless the
    /// processor that sees to it is not run by its host: it may be late.
    const LATE: u64 = 100_000_000;
    match limit {
        Some(limit) if limit.tv_sec > 0 => {
            Some(sys::coarse_monotonic_ns().saturating_add(LATE).saturating_add(nanoseconds(limit)))
        }
        _ => after(limit),
    }
}

/// What remains until a deadline.
#[must_use]
pub fn remaining(deadline: Deadline) -> Option<timespec> {
    deadline.map(|end| {
        let ns = end.saturating_sub(sys::monotonic_ns());
        timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
    })
}

/// Is a time limit's end reached?
#[must_use]
pub fn is_over(end: Deadline) -> bool {
    end.is_some_and(|end| end <= sys::monotonic_ns())
}

/// What is left of a limit, or `most` where that is sooner.
#[must_use]
pub fn sooner(left: Option<timespec>, most: timespec) -> timespec {
    left.filter(|left| (left.tv_sec, left.tv_nsec) < (most.tv_sec, most.tv_nsec)).unwrap_or(most)
}

/// A call that does not wait found nothing: signals that its mask lets in end it now.
///
/// # Errors
/// EINTR.
///
/// # Safety
/// `mask` is null or a signal mask.
pub unsafe fn let_signals_in(mask: *const libc::sigset_t) -> Result<(), c_int> {
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: no descriptors; the caller's promise about `mask`.
    let interrupted = !mask.is_null()
        && unsafe { next::ppoll(core::ptr::null_mut(), 0, &raw const now, mask) } < 0;
    if interrupted { Err(next::errno()) } else { Ok(()) }
}
