//! A crowd: more processes with endpoints than processors for them. In one it costs others their
//! time to wait without sleeping.

use super::Node;
use crate::layout::endpoint::PROCESS;
use crate::layout::word;
use crate::neighbour::{Quota, quota};
use ginnel_region::sys;
use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// What this process's cgroup lets it keep busy, as it was when it was first asked for.
fn own_quota() -> Option<Quota> {
    static QUOTA: OnceLock<Option<Quota>> = OnceLock::new();
    *QUOTA.get_or_init(quota)
}

/// The same for all endpoints of a process: process ids mean nothing in another container. Of
/// processes that share a quota the [upper half](group_of) is the same, and of those without one 0.
pub(super) fn process_number() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let group = own_quota().map_or(0, |quota| (quota.group ^ quota.group >> 32) as u32);
        u64::from(group) << 32 | sys::random_u64() & u64::from(u32::MAX)
    })
}

fn group_of(number: u64) -> u64 {
    number >> 32
}

/// Processors that run. A rank that its launcher bound to one of them may still have it for itself.
pub(super) fn online() -> usize {
    // SAFETY: no memory is passed.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1)
}

impl Node {
    /// Have more processes of this machine endpoints here, this one among them, than there are
    /// processors; or more of those that share this one's quota than that has?
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        let all = self.processes();
        let own = group_of(process_number());
        let beside = all.iter().filter(|number| group_of(**number) == own).count() as u64;
        all.len() > online() || own_quota().is_some_and(|quota| beside > quota.processors)
    }

    /// The processes of this machine that have endpoints here, by their numbers.
    fn processes(&self) -> HashSet<u64> {
        let here = self.endpoints().filter(|head| self.hold.is_beside(head.owner().member));
        here.map(|head| word(self.segment(), head.page(), PROCESS).load(Ordering::Relaxed))
            .collect()
    }
}
