//! Limits that a program sets for itself. On memory: what the shim has mapped is not the program's,
//! so a limit is set so much higher, and told so much lower. On processes: the service thread
//! counts among them, so it begins before none may.
use crate::{next, runtime, service};
use libc::{c_int, rlimit64};
use std::sync::atomic::{AtomicU64, Ordering};

/// The ledger, the service thread's stack, the library itself, and what the C library keeps for a
/// thread.
const BESIDE: u64 = 64 << 20;
/// Private memory of the shim's.
const PRIVATE: u64 = 16 << 20;

/// How much higher than the program said its limits on address space and private memory are; 0: as
/// it said, or none were set.
static RAISED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The limit that holds for a resource now; 0 where it cannot be told.
#[must_use]
pub fn present(resource: c_int) -> u64 {
    let mut limit = rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    let asked = unsafe { next::getrlimit(resource, &raw mut limit) };
    if asked == 0 { limit.rlim_cur } else { 0 }
}

/// Does the shim take any of a resource?
#[must_use]
pub fn concerns(resource: c_int) -> bool {
    share(resource).is_some()
}

/// What the shim takes of a resource, and where it is noted; `None` where it is none of these.
fn share(resource: c_int) -> Option<(u64, &'static AtomicU64)> {
    let [space, private] = &RAISED;
    /// Their type hangs on the C library.
    const SPACE: c_int = libc::RLIMIT_AS as c_int;
    const DATA: c_int = libc::RLIMIT_DATA as c_int;
    match resource {
        SPACE => {
            let attachment = runtime::attachment()?;
            Some((
                attachment.node.joined().segment.len() + attachment.pairs.bytes() + BESIDE,
                space,
            ))
        }
        DATA => runtime::attachment().map(|_| (PRIVATE, private)),
        _ => None,
    }
}

/// The program is about to set a limit of its own.
///
/// Where it lets no more threads begin, the service thread begins now. HAProxy forbids itself new
/// threads and processes once its own run: all of its connections stayed on TCP.
pub fn before(resource: c_int, limit: rlimit64) {
    /// Its type hangs on the C library.
    const PROCESSES: c_int = libc::RLIMIT_NPROC as c_int;
    // The process itself is one already.
    if resource == PROCESSES
        && limit.rlim_cur <= 1
        && let Some(attachment) = runtime::attachment()
    {
        service::begin(attachment);
    }
}

/// The program sets a limit of its own: what to set instead. `hard`: the hard limit as it is.
/// [`keep`] is to be told whether it was set.
#[must_use]
pub fn raise(resource: c_int, limit: rlimit64, hard: u64) -> Option<rlimit64> {
    let (share, _) = share(resource)?;
    // A hard limit that is finite can be raised by nobody but root.
    let more = |value: u64| {
        if value == libc::RLIM64_INFINITY {
            value
        } else {
            value.saturating_add(share).min(hard.max(value))
        }
    };
    Some(rlimit64 { rlim_cur: more(limit.rlim_cur), rlim_max: more(limit.rlim_max) })
}

/// Such a limit was set.
pub fn keep(resource: c_int, raised: bool) {
    if let Some((share, noted)) = share(resource) {
        noted.store(if raised { share } else { 0 }, Ordering::Relaxed);
    }
}

/// What the program is to be told of a limit of its own.
pub fn told(resource: c_int, limit: &mut rlimit64) {
    let Some((_, noted)) = share(resource) else { return };
    let raised = noted.load(Ordering::Relaxed);
    for value in [&mut limit.rlim_cur, &mut limit.rlim_max] {
        if *value != libc::RLIM64_INFINITY {
            *value = value.saturating_sub(raised);
        }
    }
}
