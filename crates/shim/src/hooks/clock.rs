//! What is left of a timeout, where a call tells that.
use libc::timespec;

/// `CLOCK_MONOTONIC`.
pub(super) fn now() -> timespec {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable, and the clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now
}

/// What is left at `now` of a `timeout` that began at `start`; never below zero.
pub(super) fn remaining(timeout: timespec, start: timespec, now: timespec) -> timespec {
    const SECOND: i64 = 1_000_000_000;
    let zero = timespec { tv_sec: 0, tv_nsec: 0 };
    let mut seconds = timeout.tv_sec.saturating_sub(now.tv_sec.saturating_sub(start.tv_sec));
    let mut nanoseconds = timeout.tv_nsec - (now.tv_nsec - start.tv_nsec);
    if nanoseconds < 0 {
        (seconds, nanoseconds) = (seconds - 1, nanoseconds + SECOND);
    } else if nanoseconds >= SECOND {
        (seconds, nanoseconds) = (seconds + 1, nanoseconds - SECOND);
    }
    if seconds < 0 { zero } else { timespec { tv_sec: seconds, tv_nsec: nanoseconds } }
}
