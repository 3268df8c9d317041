//! How much memory the limits of this process's cgroup leave for rings, and how many processors it
//! may keep busy ([`quota`]). (cgroups(7); the kernel's `admin-guide/cgroup-v1/memory.rst` and
//! `cgroup-v2.rst`.)
//!
//! A page of a segment counts to the cgroup of whoever touches it first, until the segment is
//! removed. Who goes beyond its limit is killed, where TCP would only have become slower. Rings
//! therefore take a part of what the limit leaves, and connections stay on TCP where that is spent.
//!
//! Takes no memory from an allocator: a ring may grow in a signal handler.

mod processors;

use ginnel_region::sys;
pub use processors::{Quota, quota};
use std::ffi::CStr;

/// Rings take at most such a part of a limit …
const PART: u64 = 4;
/// … and no more than such a part of what is free of it: the program will want the rest.
const PART_OF_FREE: u64 = 2;
/// Rings that grow leave such a part of that to connections to come.
const PART_OF_GROWTH: u64 = 2;

/// From here on a limit is none: what version 1 says where there is none is just below 2^63.
const UNLIMITED: u64 = 1 << 62;

/// Bytes that may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The strictest limit; [`u64::MAX`] where there is none.
    pub limit: u64,
    /// What is not taken of it. (Of several limits each has its own least.)
    pub free: u64,
    /// For the rings of another connection.
    pub rings: u64,
    /// For rings that grow.
    pub growth: u64,
}

impl Room {
    const ENDLESS: Self =
        Self { limit: u64::MAX, free: u64::MAX, rings: u64::MAX, growth: u64::MAX };

    /// The lesser of both, of each.
    fn and(self, other: Self) -> Self {
        Self {
            limit: self.limit.min(other.limit),
            free: self.free.min(other.free),
            rings: self.rings.min(other.rings),
            growth: self.growth.min(other.growth),
        }
    }

    fn under(limit: u64, usage: Usage, segment: u64) -> Self {
        // Pages of files are given up before anybody is killed; those of a segment are among
        // `shared`.
        let free = limit.saturating_sub(usage.all.saturating_sub(usage.files));
        let (share, taken) = (limit / PART, usage.shared.min(segment));
        Self {
            limit,
            free,
            rings: share.saturating_sub(taken).min(free / PART_OF_FREE),
            growth: (share / PART_OF_GROWTH)
                .saturating_sub(taken)
                .min(free / PART_OF_FREE / PART_OF_GROWTH),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    all: u64,
    /// Of files that are on a disk.
    files: u64,
    /// Of shared memory.
    shared: u64,
}

/// What the cgroup of this process leaves, where `segment` bytes of the segment are taken by
/// anybody.
#[must_use]
pub fn room(segment: u64) -> Room {
    room_by(c"/proc/self/cgroup", c"/proc/self/mountinfo", segment)
}

fn room_by(cgroup: &CStr, mounts: &CStr, segment: u64) -> Room {
    let Some((mut directory, version, mounted)) = Directory::find(cgroup, mounts, b"memory") else {
        return Room::ENDLESS;
    };
    let mut room = Room::ENDLESS;
    // From the process's own cgroup up to the highest that is to be seen here.
    loop {
        if let Some(limit) = version.limit(&mut directory) {
            room = room.and(Room::under(limit, version.usage(&mut directory), segment));
        }
        if !directory.up(mounted) {
            return room;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    fn limit(self, directory: &mut Directory) -> Option<u64> {
        let mut least =
            |names: &[&[u8]]| names.iter().filter_map(|name| directory.number(name)).min();
        let limit = match self {
            Self::One => least(&[b"memory.limit_in_bytes"]),
            // Beyond `high` nobody is killed, but hardly anything runs.
            Self::Two => least(&[b"memory.max", b"memory.high"]),
        };
        limit.filter(|limit| *limit < UNLIMITED)
    }

    fn usage(self, directory: &mut Directory) -> Usage {
        let current: &[u8] =
            if self == Self::One { b"memory.usage_in_bytes" } else { b"memory.current" };
        let mut usage = Usage { all: directory.number(current).unwrap_or(0), ..Usage::default() };
        let Some(path) = directory.file(b"memory.stat") else { return usage };
        each_line(path, |line| {
            let mut words = line.split(|byte| *byte == b' ');
            let (Some(mut name), Some(value)) = (words.next(), words.next().and_then(number))
            else {
                return;
            };
            if self == Self::One {
                // Those without it are of the cgroup alone, without its children.
                let Some(total) = name.strip_prefix(b"total_") else { return };
                name = total;
            }
            match name {
                b"inactive_file" | b"active_file" => {
                    usage.files = usage.files.saturating_add(value)
                }
                b"shmem" => usage.shared = value,
                _ => {}
            }
        });
        usage
    }
}

/// The path of a cgroup's directory, with room for the name of a file in it.
struct Directory {
    path: [u8; 1024],
    len: usize,
}

/// Longest name of a file that is read there, with what is around it.
const NAME: usize = 32;

impl Directory {
    /// That of this process for a controller, whose version it is, and how much of it leads to where
    /// it is mounted.
    fn find(cgroup: &CStr, mounts: &CStr, controller: &[u8]) -> Option<(Self, Version, usize)> {
        let mut found = None;
        for version in [Version::One, Version::Two] {
            let mut own = Self::empty();
            each_line(cgroup, |line| {
                let mut fields = line.splitn(3, |byte| *byte == b':');
                let (Some(_), Some(controllers), Some(path)) =
                    (fields.next(), fields.next(), fields.next())
                else {
                    return;
                };
                let is_it = match version {
                    Version::One => {
                        controllers.split(|byte| *byte == b',').any(|name| name == controller)
                    }
                    Version::Two => controllers.is_empty(),
                };
                if is_it {
                    own.set(&[path]);
                }
            });
            if own.len > 0 {
                found = found.or_else(|| Self::mounted(&own, version, mounts, controller));
            }
        }
        found
    }

    /// Where the cgroup `own` is, if its hierarchy is mounted.
    fn mounted(
        own: &Self,
        version: Version,
        mounts: &CStr,
        controller: &[u8],
    ) -> Option<(Self, Version, usize)> {
        let mut found = None;
        each_line(mounts, |line| {
            if found.is_none()
                && let Some((root, point)) = mount(line, version, controller)
            {
                let path = own.path.get(..own.len).unwrap_or_default();
                // Of a cgroup outside of what is mounted here nothing is to be seen but what is
                // above both.
                let within = path
                    .strip_prefix(if root == b"/" { b"".as_slice() } else { root })
                    .unwrap_or_default();
                let outside = within.windows(3).any(|part| part == b"/..");
                let mut directory = Self::empty();
                if directory
                    .set(&[point, if outside || within == b"/" { b"".as_slice() } else { within }])
                {
                    found = Some((directory, version, point.len()));
                }
            }
        });
        found
    }

    const fn empty() -> Self {
        Self { path: [0; 1024], len: 0 }
    }

    /// False where it is too long.
    fn set(&mut self, parts: &[&[u8]]) -> bool {
        let mut len = 0;
        for part in parts {
            let end = len + part.len();
            let place = self.path.get_mut(len..end).filter(|_| end + NAME < 1024);
            let Some(place) = place else { return false };
            place.copy_from_slice(part);
            len = end;
        }
        self.len = len;
        true
    }

    /// To the cgroup above, where that is not above `mounted`.
    fn up(&mut self, mounted: usize) -> bool {
        let within = self.path.get(mounted..self.len).unwrap_or_default();
        let cut = within.iter().rposition(|byte| *byte == b'/');
        self.len = mounted + cut.unwrap_or(0);
        cut.is_some()
    }

    /// The path of a file in it.
    fn file(&mut self, name: &[u8]) -> Option<&CStr> {
        let rest = self.path.get_mut(self.len..)?;
        *rest.first_mut()? = b'/';
        rest.get_mut(1..=name.len())?.copy_from_slice(name);
        *rest.get_mut(name.len() + 1)? = 0;
        CStr::from_bytes_until_nul(&self.path).ok()
    }

    fn number(&mut self, name: &[u8]) -> Option<u64> {
        let mut found = None;
        each_line(self.file(name)?, |line| found = found.or(number(line)));
        found
    }
}

/// Root and mount point, if a line of mountinfo (proc(5)) is of the controller's hierarchy.
fn mount<'a>(line: &'a [u8], version: Version, controller: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (root, point) = (fields.nth(3)?, fields.next()?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    let is_it = match version {
        Version::One => {
            kind == b"cgroup"
                && options.split(|byte| *byte == b',').any(|option| option == controller)
        }
        Version::Two => kind == b"cgroup2",
    };
    // Names with spaces are written otherwise, and not looked for.
    (is_it && !point.contains(&b'\\')).then_some((root, point))
}

/// A whole number; `None` for `max`, say.
fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Calls `each` with every line of a file; one of more than a page is passed over.
fn each_line(path: &CStr, mut each: impl FnMut(&[u8])) {
    let Ok(fd) = sys::openat(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_NONBLOCK, 0) else {
        return;
    };
    let (mut buffer, mut held, mut passing) = ([0; 4096], 0, false);
    while let Some(room) = buffer.get_mut(held..)
        && let Ok(got @ 1..) = sys::read(fd, room)
    {
        let end = held + got;
        let mut start = 0;
        while let Some(rest) = buffer.get(start..end)
            && let Some(len) = rest.iter().position(|byte| *byte == b'\n')
        {
            if !std::mem::take(&mut passing) {
                each(rest.get(..len).unwrap_or_default());
            }
            start += len + 1;
        }
        if start == 0 && end == buffer.len() {
            // What follows is of a line whose beginning is lost.
            (held, passing) = (0, true);
        } else {
            buffer.copy_within(start..end, 0);
            held = end - start;
        }
    }
    sys::close(fd);
}

#[cfg(test)]
#[path = "cgroup/tests.rs"]
mod tests;
