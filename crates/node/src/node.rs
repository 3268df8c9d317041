//! One process's presence in one segment: its entry in the process table, its member, its waiters.
//!
//! Files, all in one directory (`GINNEL_DIR`, by default `/dev/shm/ginnel-UID`): `processes-1` (the
//! process table; the number is its version, so that programs under an older Ginnel go on beside
//! newer ones), `NAME` (a segment, `default` where none is named), `NAME.wake/` (the FIFOs of its
//! waiters and the lock files of its members).

use crate::budget::{Budget, Purpose};
use crate::joined::{Joined, open, open_again};
use crate::place::{self, Known};
use crate::processes::{Holdings, Library, PROCESS_TABLE, ProcessFlags, Processes};
use crate::refusal::Unattached;
use crate::settings::Settings;
use crate::wake::directory::member_is_shown;
use crate::{home, rights};
use ginnel_region::{Error, sys};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// A process that may have fewer descriptors is left alone.
const FEWEST_DESCRIPTORS: u64 = 256;
/// Likewise one whose address space is limited to less than so many times the segment's size …
const LEAST_SPACE: u64 = 16;
/// … or its private memory to less than this, bytes.
const LEAST_MEMORY: u64 = 256 << 20;

/// One process's presence in one segment. What it has of the segment is another value after each
/// time that it left and came back: it is reached through the node at each use, and stays in memory
/// for threads that are late.
pub struct Node {
    /// The process table.
    pub processes: Processes,
    /// Settings.
    pub settings: Settings,
    /// Which library's it is.
    library: Library,
    /// As whom the process was let in: see [`crate::rights`].
    identity: (u32, u64),
    joined: AtomicPtr<Joined>,
    standing: AtomicU32,
    me: AtomicU32,
    ticket: AtomicU32,
    /// Told of each descriptor that is made (true) or closed (false), so that the program's calls
    /// spare it.
    on_descriptor: fn(i32, bool),
    /// What the cgroup's memory limit leaves for this process to take of the segment.
    pub budget: Budget,
}

/// How a process stands to its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Joined.
    Here,
    /// Its connections are on their way back to TCP, and none goes the other way.
    Leaving,
    /// It has left: nothing of the segment is used.
    Away,
}

impl Node {
    /// Opens (or makes) process table and segment and enters this process, as `library`.
    ///
    /// `open` opens what the library keeps beside the process table, given the directory, or says
    /// which file could not be opened and why; `|_| Ok(())` where it keeps nothing. `on_descriptor`
    /// is told of each descriptor that the node makes (true) or is about to close (false).
    ///
    /// # Errors
    /// Why not, in words.
    pub fn new<H: Holdings>(
        settings: Settings,
        library: Library,
        open_own: impl FnOnce(&Path) -> Result<H, (PathBuf, Error)>,
        on_descriptor: fn(i32, bool),
    ) -> Result<(Self, H), Unattached> {
        if sys::descriptor_limit() < FEWEST_DESCRIPTORS {
            // A program that counts on every descriptor it may have is not to miss those that are
            // taken here.
            return Err(Unattached::because(format!(
                "fewer than {FEWEST_DESCRIPTORS} descriptors allowed (ulimit -n)"
            )));
        }
        let (space, memory) = sys::memory_limits();
        if space < settings.config.size.saturating_mul(LEAST_SPACE) || memory < LEAST_MEMORY {
            return Err(Unattached::because("memory limited (ulimit -v or -d)".to_owned()));
        }
        home::make_directory(&settings.directory).map_err(Unattached::because)?;
        let own = open_own(&settings.directory)
            .map_err(|(path, error)| Unattached::new(&path, &error))?;
        let path = settings.directory.join(PROCESS_TABLE);
        let processes = Processes::open_or_create(&settings.directory)
            .map_err(|error| Unattached::new(&path, &error))?;
        let me = processes.enter(library, &own).ok_or_else(|| {
            Unattached::because(format!("{}: too many processes", path.display()))
        })?;
        let ticket = processes.process(me).ticket(me);
        let refuse = |error: Error| {
            let unattached = Unattached::new(&settings.segment, &error);
            // The entry stays and says why, for as long as the process lives. The memory does not:
            // nobody would give it up if the process became another user's.
            processes.process(me).reason.store(unattached.refusal as u32, Ordering::Relaxed);
            unattached
        };
        let joined = open(&settings)
            .and_then(|opened| {
                Joined::new(opened, &processes, library, ticket, &settings, on_descriptor, 0)
            })
            .map_err(refuse)?;
        let node = Self {
            processes,
            library,
            identity: rights::identity(),
            joined: AtomicPtr::new(Box::into_raw(Box::new(joined))),
            standing: AtomicU32::new(Standing::Here as u32),
            me: AtomicU32::new(me),
            ticket: AtomicU32::new(ticket),
            on_descriptor,
            settings,
            budget: Budget::new(),
        };
        node.show();
        Ok((node, own))
    }

    /// Which library's it is.
    #[must_use]
    pub fn library(&self) -> Library {
        self.library
    }

    /// Says in the process table to which segment this process is joined, and takes its descriptors
    /// for the library's own.
    fn show(&self) {
        let joined = self.joined();
        for fd in [&joined.wake_dir, &joined.device, &joined.lock_fd] {
            self.own(fd.load(Ordering::Relaxed));
        }
        if let Some(bells) = &joined.bells {
            bells.each(|fd| self.own(fd));
        }
        self.enter_joined();
    }

    /// May this process take so many bytes more of memory for the segment's pages?
    #[must_use]
    pub fn may_take(&self, bytes: u64, purpose: Purpose) -> bool {
        self.budget.take(bytes, purpose, || self.joined().segment.bytes_taken())
    }

    fn enter_joined(&self) {
        let (here, joined) = (self.standing() != Standing::Away, self.joined());
        let process = self.processes.process(self.me());
        process.segment.store(if here { joined.segment.id() } else { 0 }, Ordering::Relaxed);
        process.service.store(joined.service_page(), Ordering::Relaxed);
        process.set(ProcessFlags::Away, !here);
        process.joined.store(if here { joined.key } else { 0 }, Ordering::SeqCst);
    }

    /// How long to spin before sleeping, nanoseconds: about what it costs to be woken. Between
    /// machines that is an interrupt of a virtual processor which may itself be asleep, so as long
    /// as KVM and its guests poll before they let a processor sleep (Linux, `halt_poll_ns` and
    /// `guest_halt_poll_ns`); under emulation all of that takes longer.
    #[must_use]
    pub fn spin_ns(&self) -> u64 {
        self.settings.spin_ns.unwrap_or_else(|| match self.joined().place {
            Some(_) if sys::is_emulated() => 1_000_000,
            Some(_) => 200_000,
            None => 30_000,
        })
    }

    /// What this process has of its segment: of the one that it left, where it has left it. Another
    /// value after each [`Self::rejoin`].
    #[must_use]
    #[inline]
    pub fn joined(&self) -> &Joined {
        // SAFETY: from a leaked box, from the beginning on.
        unsafe { &*self.joined.load(Ordering::Acquire) }
    }

    /// How this process stands to its segment.
    #[must_use]
    #[inline]
    pub fn standing(&self) -> Standing {
        match self.standing.load(Ordering::Acquire) {
            0 => Standing::Here,
            1 => Standing::Leaving,
            _ => Standing::Away,
        }
    }

    /// Begins to leave the segment, or stays after all.
    pub fn set_leaving(&self, on: bool) {
        self.standing
            .store(if on { Standing::Leaving } else { Standing::Here } as u32, Ordering::SeqCst);
    }

    /// Must nothing be begun in the segment?
    #[must_use]
    pub fn is_away(&self) -> bool {
        let gone = || self.joined().place.is_some() && self.joined().segment.is_gone();
        self.standing() != Standing::Here
            || gone()
            || self.processes.is_detached(self.joined().segment.id())
    }

    /// Leaves the segment. Nothing of this process is in it any more, and its waiters were given
    /// back. `reason`: why, a number of the library's for its entry
    /// ([`crate::processes::Process::reason`]).
    pub fn leave(&self, reason: u32) {
        self.standing.store(Standing::Away as u32, Ordering::SeqCst);
        self.set_service_page(0);
        self.enter_joined();
        self.processes.process(self.me()).reason.store(reason, Ordering::Relaxed);
        self.let_go_of_segment();
    }

    /// Closes and gives up what the process has of its segment, and says nothing to anybody.
    fn let_go_of_segment(&self) {
        self.standing.store(Standing::Away as u32, Ordering::SeqCst);
        let joined = self.joined();
        for fd in [&joined.wake_dir, &joined.device, &joined.lock_fd] {
            self.disown(fd.swap(-1, Ordering::AcqRel));
        }
        if let Some(bells) = &joined.bells {
            bells.close(|fd| self.disown(fd));
        }
        joined.peers.close();
        let _ = joined.segment.let_go();
    }

    /// Joins the segment again that the settings name, after [`Self::leave`]; one that is detached
    /// only if it is `asked` for, and to leave it soon. In a virtual machine, where the host's
    /// device was found rather than named, the one that is found now.
    ///
    /// # Errors
    /// Why not; the process stays away.
    pub fn rejoin(&self, asked: bool) -> Result<(), Error> {
        let (again, bells) = open_again(&self.settings)?;
        let detached = self.processes.is_detached(again.id());
        if detached && !asked {
            again.close();
            return Err(Error::System {
                doing: "join a segment that was detached",
                errno: libc::EBUSY,
            });
        }
        let number = self.joined().number.wrapping_add(1);
        let opened = (again, bells);
        let joined = Joined::new(
            opened,
            &self.processes,
            self.library,
            self.ticket(),
            &self.settings,
            self.on_descriptor,
            number,
        )?;
        self.joined.store(Box::into_raw(Box::new(joined)), Ordering::Release);
        self.processes.process(self.me()).reason.store(0, Ordering::Relaxed);
        self.set_leaving(detached);
        self.show();
        Ok(())
    }

    /// This process's entry in the process table.
    #[must_use]
    #[inline]
    pub fn me(&self) -> u32 {
        self.me.load(Ordering::Relaxed)
    }

    /// What stands in a lock that this process holds.
    #[must_use]
    #[inline]
    pub fn ticket(&self) -> u32 {
        self.ticket.load(Ordering::Relaxed)
    }

    /// Names the service thread's waiter: it is written into each channel from now on.
    pub fn set_service_page(&self, page: u32) {
        self.joined().service_page.store(page, Ordering::Relaxed);
        self.processes.process(self.me()).service.store(page, Ordering::Relaxed);
    }

    /// Who is told of each descriptor that is the library's own (true) or is about to be closed
    /// (false).
    #[must_use]
    pub fn tells_of_descriptors(&self) -> fn(i32, bool) {
        self.on_descriptor
    }

    /// Remembers a descriptor as the library's own.
    pub fn own(&self, fd: i32) {
        if fd >= 0 {
            (self.on_descriptor)(fd, true);
        }
    }

    /// Closes one of the library's own descriptors.
    pub fn disown(&self, fd: i32) {
        if fd >= 0 {
            (self.on_descriptor)(fd, false);
            sys::close(fd);
        }
    }

    /// In a fork child: enters the new process. `false`: the table has no room, and the node is of
    /// no use. `holdings`: as at [`Self::new`].
    pub fn reenter(&self, holdings: &impl Holdings) -> bool {
        self.forget_parent();
        match self.processes.enter(self.library, holdings) {
            Some(me) => {
                self.me.store(me, Ordering::Relaxed);
                self.ticket.store(self.processes.process(me).ticket(me), Ordering::Relaxed);
                self.enter_joined();
                true
            }
            None => false,
        }
    }

    /// In a fork child: its parent's locks, waiters and service thread are not its own.
    fn forget_parent(&self) {
        self.joined().peers.forget_lock();
        self.joined().service_page.store(0, Ordering::Relaxed);
        if let Some(bells) = &self.joined().bells {
            bells.forget_parent();
        }
        self.processes.forget_parent();
    }

    /// Does any process of `member` live? Unknown counts as yes.
    #[must_use]
    pub fn member_lives(&self, member: u16) -> bool {
        let joined = self.joined();
        if member == joined.member {
            return true;
        }
        match place::look(&joined.segment, joined.place, member) {
            Known::Lives => return true,
            Known::Gone => return false,
            Known::Ours => {}
        }
        if let Some(bells) = &joined.bells {
            return bells.shows(member);
        }
        member_is_shown(joined.wake_dir(), member).unwrap_or(true)
    }

    /// Does any process of `member` live that has its locks in this process's own directory of
    /// wake-ups? So it is with another user's in a file that both open, and with none on another
    /// kernel.
    #[must_use]
    pub fn member_is_beside(&self, member: u16) -> bool {
        let joined = self.joined();
        joined.bells.is_none() && member_is_shown(joined.wake_dir(), member) == Ok(true)
    }

    /// Could this process, as it is now, open by itself what it has of process table and segment?
    #[must_use]
    pub fn is_still_own(&self) -> bool {
        let (user, groups) = self.identity;
        let segment = &self.joined().segment;
        user == sys::effective_ids().0
            && self.processes.can_be_opened()
            // ginneld has judged by who the process was when it came.
            && if self.joined().bells.is_some() { groups == rights::identity().1 } else { rights::can_be_opened(segment) }
    }

    /// Leaves the segment ([`Self::leave`]) and gives the process table up. Nothing here is reached
    /// by this value any more, but by threads that are late: they find zeroes.
    pub fn renounce(&self, reason: u32) {
        self.leave(reason);
        self.processes.let_go();
    }

    /// In a fork child that does not enter the process table, whose entry is its parent's there:
    /// gives both maps and all descriptors up, and says nothing in either.
    pub fn abandon(&self) {
        self.forget_parent();
        self.let_go_of_segment();
        self.processes.let_go();
    }
}

#[cfg(test)]
pub(crate) mod tests;
