//! How many processors the limits of this process's cgroup let it keep busy: its quota of their
//! time. Whoever goes beyond it does not run until the next period begins (sched-bwc.rst of the
//! kernel), usually tens of milliseconds.

use super::{Directory, Version, each_line, number};
use ginnel_region::sys;
use std::ffi::CStr;

/// The strictest of a process's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// So many processors, whole ones, may be kept busy: 0 where it is less than one.
    pub processors: u64,
    /// Of the cgroup that has the limit: processes with the same number share it, in whatever
    /// container they are.
    pub group: u64,
}

/// The quota of this process, if it has one.
#[must_use]
pub fn quota() -> Option<Quota> {
    quota_by(c"/proc/self/cgroup", c"/proc/self/mountinfo")
}

pub(super) fn quota_by(cgroup: &CStr, mounts: &CStr) -> Option<Quota> {
    let (mut directory, version, mounted) = Directory::find(cgroup, mounts, b"cpu")?;
    let mut strictest: Option<(Limit, u64)> = None;
    // From the process's own cgroup up to the highest that is to be seen here.
    loop {
        if let Some(limit) = version.time(&mut directory)
            && strictest.is_none_or(|(other, _)| limit.is_less(other))
            && let Some(group) = directory.group()
        {
            strictest = Some((limit, group));
        }
        if !directory.up(mounted) {
            break;
        }
    }
    strictest.map(|(limit, group)| Quota { processors: limit.time / limit.period, group })
}

/// So much time of processors in each period, microseconds.
#[derive(Clone, Copy)]
struct Limit {
    time: u64,
    period: u64,
}

impl Limit {
    fn new(time: Option<u64>, period: Option<u64>) -> Option<Self> {
        Some(Self { time: time?, period: period.filter(|period| *period > 0)? })
    }

    fn is_less(self, other: Self) -> bool {
        u128::from(self.time) * u128::from(other.period)
            < u128::from(other.time) * u128::from(self.period)
    }
}

impl Version {
    fn time(self, directory: &mut Directory) -> Option<Limit> {
        match self {
            // Without a limit the first one says -1, which is no such number.
            Self::One => {
                let time = directory.number(b"cpu.cfs_quota_us");
                Limit::new(time, directory.number(b"cpu.cfs_period_us"))
            }
            Self::Two => {
                let mut limit = None;
                each_line(directory.file(b"cpu.max")?, |line| {
                    let mut words = line.split(|byte| *byte == b' ').map(number);
                    limit = Limit::new(words.next().flatten(), words.next().flatten());
                });
                limit
            }
        }
    }
}

impl Directory {
    /// The cgroup's number, by its directory, which is one in every container.
    fn group(&mut self) -> Option<u64> {
        let stat = sys::stat(self.file(b"cgroup.procs")?).ok()?;
        Some(stat.st_dev.rotate_left(40) ^ stat.st_ino)
    }
}
