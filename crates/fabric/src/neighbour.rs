//! This process among its neighbours, as `ginnel-node` has it: joining a segment, waiters, who of
//! other members lives. All that this crate takes from there comes through this file.
//!
//! A process joins a segment with its first endpoint in it, and leaves it with the last. What keeps
//! its place in the process table stays: others of its endpoints' waiters are known by it.

use crate::Error;
pub(crate) use ginnel_node::cgroup::{Quota, quota};
use ginnel_node::life::open_lives;
use ginnel_node::{Joined, Library, LifeLock, Look, Node, Reach, Settings, Waiter, join};
use ginnel_region::sys::{self, Fd};
use ginnel_region::{Config, Head, Segment, Use, open};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// As whom the processes that have endpoints stand in the process table.
const LIBRARY: Library = Library::of_program("mpi-1");
/// The file of locks by which endpoints are known to live. The whole of it is locked (flock(2)) by
/// whoever makes or frees groups, so that one that is half made while it is free is a dead one's.
const LIVES: &std::ffi::CStr = c"endpoints";

/// How long whoever waits for that lock lets others run before it sleeps, nanoseconds.
const BRIEF: u64 = 1_000_000;

/// Why nobody can be woken; or the directory was removed just when it was to be opened.
pub(crate) const UNREACHABLE: Error = Error::Refused(
    "nobody can be woken in this segment; in a virtual machine install the driver ginnel.ko, else \
     see whether the directory SEGMENT.wake is this user's",
);

/// The segments of this process's endpoints, each with how many it has there. A child of fork
/// begins with none, and with a lock of its own: another thread of its parent may have held that
/// one.
struct Registry {
    pid: u32,
    joined: Mutex<Vec<(&'static Neighbour, usize)>>,
}

fn registry() -> MutexGuard<'static, Vec<(&'static Neighbour, usize)>> {
    static REGISTRY: AtomicPtr<Registry> = AtomicPtr::new(std::ptr::null_mut());
    let pid = sys::pid();
    loop {
        let present = REGISTRY.load(Ordering::Acquire);
        // SAFETY: registries are never freed.
        if let Some(registry) = unsafe { present.as_ref() }.filter(|registry| registry.pid == pid) {
            return registry.joined.lock().unwrap_or_else(PoisonError::into_inner);
        }
        let new = Box::into_raw(Box::new(Registry { pid, joined: Mutex::default() }));
        let _ = REGISTRY.compare_exchange(present, new, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// What all endpoints of a process in one segment share; it stays in memory.
struct Neighbour {
    node: Node,
    path: PathBuf,
    /// Whose it is: a child of fork has none of it.
    pid: u32,
}

/// An endpoint's hold on its segment.
pub(crate) struct Hold {
    neighbour: &'static Neighbour,
    joined: &'static Joined,
    /// To ask about others' locks.
    lives: Fd,
}

/// The right to make and free groups; other processes wait for it.
pub struct Guard(Fd);

impl Drop for Guard {
    /// To close the file does not do: a child that another thread forked meanwhile has it, too.
    fn drop(&mut self) {
        let _ = sys::flock(self.0.0, libc::LOCK_UN);
    }
}

fn system(doing: &'static str) -> impl Fn(i32) -> Error {
    move |errno| Error::System(doing, errno)
}

impl Neighbour {
    fn new(path: &Path, config: &Config) -> Result<Self, Error> {
        let mut settings = Settings::from_environment();
        if cfg!(test) {
            settings.directory = path.with_file_name("table");
        }
        settings.segment = path.to_owned();
        settings.found = false;
        settings.config = config.clone();
        settings.tokens = false;
        let node = Node::new(settings, LIBRARY, |_| Ok(()), |_, _| {});
        let (node, ()) = node.map_err(|refused| Error::Refused(refused.message.leak()))?;
        Ok(Self { node, path: path.to_owned(), pid: sys::pid() })
    }

    /// Joins the segment again, where it was left.
    fn come_back(&self, config: &Config) -> Result<(), Error> {
        if !self.node.is_away() {
            return Ok(());
        }
        // Another process may remove the file, with its last endpoint, between the two steps.
        for _ in 0..100 {
            let made = if join::is_socket(&self.path) {
                Ok(())
            } else {
                Segment::open_or_create(&self.path, config).map(Segment::close)
            };
            match made.and_then(|()| self.node.rejoin(true)) {
                Err(ginnel_region::Error::System { errno: libc::ENOENT, .. }) => {}
                joined => return Ok(joined?),
            }
        }
        Err(Error::System("join a segment that is made and removed all the time", libc::EBUSY))
    }

    /// [`Error::Again`]: the segment was removed meanwhile.
    fn hold(&'static self) -> Result<Hold, Error> {
        let joined = self.node.joined();
        if !joined.fifos || joined.wake_dir() < 0 {
            return Err(UNREACHABLE);
        }
        let lives =
            self.lives().map_err(|error| if self.is_there() { error } else { Error::Again })?;
        Ok(Hold { neighbour: self, joined, lives: Fd(sys::move_high(lives.take())) })
    }

    /// Opens the file of locks.
    fn lives(&self) -> Result<Fd, Error> {
        open_lives(self.node.joined().wake_dir(), LIVES)
            .map_err(system("open the list of endpoints beside the segment"))
    }

    /// Is its segment there, still, with what lies beside it?
    fn is_there(&self) -> bool {
        let joined = self.node.joined();
        let is_beside = || {
            let own = sys::fstat(joined.wake_dir());
            let named = std::fs::metadata(beside(&self.path, ".wake"));
            named.is_ok_and(|named| {
                own.is_ok_and(|own| (own.st_dev, own.st_ino) == (named.dev(), named.ino()))
            })
        };
        self.is_named() && (joined.place.is_some() || is_beside())
    }

    /// Is its segment what the path names, still?
    fn is_named(&self) -> bool {
        let joined = self.node.joined();
        if joined.place.is_some() {
            return !joined.segment.is_gone();
        }
        open::open(&self.path).is_ok_and(|(fd, _)| joined.segment.is_in(fd.0))
    }
}

/// What lies beside a segment's file, under the same name with more behind it.
pub(crate) fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(more);
    name.into()
}

/// The one path of a segment: what lies beside it has the path's name, and the process may go to
/// another directory. A socket keeps its own, of which the length is limited.
fn resolved(path: &Path) -> PathBuf {
    let absolute = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if join::is_socket(path) {
        return absolute();
    }
    let in_parent = || {
        let path = absolute();
        Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(in_parent).unwrap_or_else(absolute)
}

impl Hold {
    /// Joins the segment at `path`: a file, which is made where there is none, a machine's device,
    /// or a socket of `ginneld`.
    pub fn join(path: &Path, config: &Config) -> Result<Self, Error> {
        let path = resolved(path);
        let mut all = registry();
        let is_it = |neighbour: &Neighbour| neighbour.path == path;
        let place = all.iter().position(|&(it, ends)| is_it(it) && ends > 0 && it.is_named());
        let place =
            match place.or_else(|| all.iter().position(|&(it, ends)| is_it(it) && ends == 0)) {
                Some(place) => place,
                None => {
                    all.push((Box::leak(Box::new(Neighbour::new(&path, config)?)), 0));
                    all.len() - 1
                }
            };
        let (neighbour, ends) = &mut all[place];
        let neighbour: &'static Neighbour = neighbour;
        let held = neighbour.come_back(config).and_then(|()| neighbour.hold());
        if held.is_ok() {
            *ends += 1;
        } else if *ends == 0 {
            neighbour.node.leave(0);
        }
        held
    }

    /// Is the segment there, still?
    pub fn is_there(&self) -> bool {
        self.neighbour.is_there()
    }

    /// Is it this process's? A child of fork has its parent's.
    pub fn is_own(&self) -> bool {
        self.neighbour.pid == sys::pid()
    }

    /// Gives the hold up; with a process's last one goes what it has of the segment.
    pub fn leave(self) {
        let mut all = registry();
        let own = |(it, _): &&mut (&'static Neighbour, usize)| std::ptr::eq(*it, self.neighbour);
        if let Some((neighbour, ends)) = all.iter_mut().find(own) {
            *ends -= 1;
            if *ends == 0 {
                neighbour.node.leave(0);
            }
        }
    }

    #[inline]
    pub fn segment(&self) -> &'static Segment {
        &self.joined.segment
    }

    pub fn member(&self) -> u16 {
        self.joined.member
    }

    pub fn path(&self) -> &Path {
        &self.neighbour.path
    }

    /// Is the segment a file, which goes with the last endpoint, and not shared with machines?
    pub fn is_file(&self) -> bool {
        self.joined.place.is_none()
    }

    /// Are processes of that member on this kernel, with their locks where this one has its own?
    pub fn is_beside(&self, member: u16) -> bool {
        member == self.member() || self.neighbour.node.member_is_beside(member)
    }

    /// Have processes joined the segment's file that are not there for endpoints: under the shim,
    /// say? They may have no pages at the moment.
    pub fn is_others(&self) -> bool {
        let entries =
            std::fs::read_dir(beside(self.path(), ".wake")).into_iter().flatten().flatten();
        let member = |name: OsString| name.to_str()?.strip_prefix('m')?.parse().ok();
        let mut members = entries.filter_map(|entry| member(entry.file_name()));
        members.any(|member| member != self.member() && self.is_beside(member))
    }

    /// Does an endpoint live whose page this is?
    pub fn lives(&self, head: Head) -> bool {
        let member = head.owner().member;
        if self.is_beside(member) {
            // Where it cannot be asked, it is taken to be there.
            return sys::byte_is_shared(self.lives.0, head.page().into()).unwrap_or(true);
        }
        self.neighbour.node.member_lives(member)
    }

    /// Does any process of another member live? Unknown counts as yes.
    pub fn member_lives(&self, member: u16) -> bool {
        self.neighbour.node.member_lives(member)
    }

    /// A lock by which others know that the endpoint of this page lives.
    pub fn live(&self, page: u32) -> Result<LifeLock, Error> {
        LifeLock::new(self.joined.wake_dir(), LIVES, page.into())
            .map_err(system("lock an endpoint's byte"))
    }

    /// Waits for the lock of the whole file, for `patience` milliseconds at most, of which those
    /// count in which this process runs: whoever stops a job stops those that wait with whom they
    /// wait for. `None`: the segment was removed.
    pub fn guard(&self, patience: u64) -> Result<Option<Guard>, Error> {
        let fd = self.neighbour.lives()?;
        let (began, mut naps) = (sys::monotonic_ns(), 0);
        while let Err(errno) = sys::flock(fd.0, libc::LOCK_EX | libc::LOCK_NB) {
            if errno != libc::EWOULDBLOCK {
                return Err(Error::System("lock the segment", errno));
            }
            if naps > patience {
                return Err(Error::System(
                    "wait for another process that makes or frees endpoints",
                    libc::ETIMEDOUT,
                ));
            }
            // Ranks make and free windows at one moment, and have the lock for microseconds.
            if naps == 0 && sys::monotonic_ns() - began < BRIEF {
                sys::yield_now();
            } else {
                sys::sleep_ms(1);
                naps += 1;
            }
        }
        let guard = Guard(fd);
        let named = sys::fstat(guard.0.0).is_ok_and(|stat| stat.st_nlink > 0);
        Ok((named && self.is_there()).then_some(guard))
    }

    /// Where the daemon rings for machines, on a host where it serves the segment.
    pub fn relayed(&self) -> Option<i32> {
        self.joined.bells.as_ref().map(|bells| bells.own()).filter(|&fd| fd >= 0)
    }

    pub fn waiter(&self) -> Result<Waiter, Error> {
        Ok(Waiter::new(&self.neighbour.node)?)
    }

    pub fn retire(&self, waiter: Waiter) {
        waiter.retire(&self.neighbour.node);
    }

    /// Wakes whoever waits with this page, a peer's number.
    pub fn ring(&self, page: u32) {
        let _ = self.neighbour.node.ring(page, 0);
    }

    /// Frees waiters of the dead, and gives back the entries of processes and members that are
    /// gone. Their endpoints are freed before.
    pub fn reclaim(&self, _guard: &Guard) {
        // Whoever makes or frees one of them has the guard, which the caller has.
        let is_left = |head: &Head| {
            let owner = head.owner();
            owner.kind == Use::Waiter && owner.member == self.member() && head.is_busy()
        };
        for head in self.segment().heads_within_reach().filter(is_left) {
            self.retire(Waiter::from_parts(head.page(), -1));
        }
        let mut look = Look::begin(&self.neighbour.node, Reach::All);
        look.pages(&mut [(Use::Endpoint, &mut |_, _| None)]);
        look.end(&());
    }
}
