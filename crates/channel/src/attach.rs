//! A process's hold on the ledger and on its segment.
//!
//! Files, all in one directory (`GINNEL_DIR`, by default `/dev/shm/ginnel-UID`): `sockets-8` (the ledger; the number is its version, so that programs under an older Ginnel go on beside newer ones), `NAME` (a segment,
//! `default` where none is named), `NAME.wake/` (the FIFOs of its waiters and the lock files of its members).

use crate::budget::{Budget, Purpose};
pub use crate::home::default_directory;
use crate::join;
pub use crate::joined::Joined;
use crate::joined::{open, open_again};
use crate::ledger::{Ledger, ProcessFlags, Reason};
use crate::place::{self, Known};
pub use crate::settings::{DEFAULT_SEGMENT, Settings};
pub use crate::waiter::directory::{member_is_shown, sockets, wake_directory};
use crate::{home, renounce};
use ginnel_region::{Error, sys};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Name of the ledger in its directory.
pub const LEDGER: &str = "sockets-8";

/// Is it the name of a ledger, of this version or another?
#[must_use]
pub fn is_ledger(name: &str) -> bool {
    name == "sockets" || name.starts_with("sockets-")
}

/// A process that may have fewer descriptors is left alone.
const FEWEST_DESCRIPTORS: u64 = 256;
/// Likewise one whose address space is limited to less than so many times the segment's size …
const LEAST_SPACE: u64 = 16;
/// … or its private memory to less than this, bytes.
const LEAST_MEMORY: u64 = 256 << 20;

/// Everything a process needs to carry connections. What it has of its segment is another value after each detach: it is reached through the attachment at each use,
/// and stays in memory for threads that are late.
pub struct Attachment {
    /// The ledger.
    pub ledger: Ledger,
    /// Settings.
    pub settings: Settings,
    /// As whom the process was let in: see [`crate::renounce`].
    pub(crate) identity: (u32, u64),
    joined: AtomicPtr<Joined>,
    standing: AtomicU32,
    me: AtomicU32,
    ticket: AtomicU32,
    /// Told of each descriptor that is made (true) or closed (false), so that the program's calls spare it.
    pub(crate) on_descriptor: fn(i32, bool),
    chaos: AtomicU64,
    /// What the cgroup's memory limit leaves for rings.
    pub(crate) budget: Budget,
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

/// Why a process cannot accelerate anything.
#[derive(Debug)]
pub struct Unattached {
    /// The reason, for status.
    pub reason: Reason,
    /// In words.
    pub message: String,
}

impl Unattached {
    fn new(what: &Path, error: &Error) -> Self {
        let reason = match error {
            Error::NoMemory => Reason::NoMemory,
            Error::Limited => Reason::MemoryLimit,
            _ if join::is_socket(what) => Reason::NotServed,
            _ => Reason::NoSegment,
        };
        Self { reason, message: format!("{}: {error}", what.display()) }
    }
}

impl Attachment {
    /// Opens (or makes) ledger and segment and enters this process.
    ///
    /// # Errors
    /// Why not, in words; the program goes on over TCP.
    pub fn new(settings: Settings, on_descriptor: fn(i32, bool)) -> Result<Self, Unattached> {
        if sys::descriptor_limit() < FEWEST_DESCRIPTORS {
            // A program that counts on every descriptor it may have is not to miss those that the shim takes.
            return Err(Unattached {
                reason: Reason::NoSegment,
                message: format!("fewer than {FEWEST_DESCRIPTORS} descriptors allowed (ulimit -n)"),
            });
        }
        let (space, memory) = sys::memory_limits();
        if space < settings.config.size.saturating_mul(LEAST_SPACE) || memory < LEAST_MEMORY {
            return Err(Unattached { reason: Reason::NoSegment, message: "memory limited (ulimit -v or -d)".to_owned() });
        }
        let refused = |message| Unattached { reason: Reason::NoSegment, message };
        home::make_directory(&settings.directory).map_err(refused)?;
        let path = settings.directory.join(LEDGER);
        let ledger = Ledger::open_or_create(&path).map_err(|error| Unattached::new(&path, &error))?;
        let me = ledger
            .enter()
            .ok_or_else(|| Unattached { reason: Reason::NoSegment, message: format!("{}: too many processes", path.display()) })?;
        let ticket = ledger.process(me).ticket(me);
        let refuse = |error: Error| {
            let unattached = Unattached::new(&settings.segment, &error);
            // The entry stays and says why, for as long as the process lives. The memory does not:
            // nobody would give it up if the process became another user's.
            ledger.process(me).reason.store(unattached.reason as u32, Ordering::Relaxed);
            ledger.unlock_entry();
            unattached
        };
        let joined =
            open(&settings).and_then(|opened| Joined::new(opened, &ledger, ticket, &settings, on_descriptor, 0)).map_err(refuse)?;
        let attachment = Self {
            ledger,
            identity: renounce::identity(),
            joined: AtomicPtr::new(Box::into_raw(Box::new(joined))),
            standing: AtomicU32::new(Standing::Here as u32),
            me: AtomicU32::new(me),
            ticket: AtomicU32::new(ticket),
            on_descriptor,
            chaos: AtomicU64::new(settings.chaos.map_or(0, |(seed, _)| seed) ^ u64::from(sys::pid()) << 20 | 1),
            settings,
            budget: Budget::new(),
        };
        attachment.show();
        Ok(attachment)
    }

    /// Says in the ledger to which segment this process is joined, and takes its descriptors for the shim's own.
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

    /// May this process take so much memory more for a segment's pages?
    pub(crate) fn may_take(&self, bytes: u64, purpose: Purpose) -> bool {
        self.budget.take(bytes, purpose, || self.joined().segment.bytes_taken())
    }

    fn enter_joined(&self) {
        let (here, joined) = (self.standing() != Standing::Away, self.joined());
        let process = self.ledger.process(self.me());
        process.segment.store(if here { joined.segment.id() } else { 0 }, Ordering::Relaxed);
        process.service.store(joined.service_page(), Ordering::Relaxed);
        process.set(ProcessFlags::Away, !here);
        process.joined.store(if here { joined.key } else { 0 }, Ordering::SeqCst);
    }

    /// How long to spin before sleeping, nanoseconds: about what it costs to be woken. Between machines that is an interrupt of a virtual processor which may itself
    /// be asleep, so as long as KVM and its guests poll before they let a processor sleep (Linux, `halt_poll_ns` and `guest_halt_poll_ns`);
    /// under emulation all of that takes longer.
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
        self.standing.store(if on { Standing::Leaving } else { Standing::Here } as u32, Ordering::SeqCst);
    }

    /// Must nothing be begun in the segment?
    #[must_use]
    pub fn is_away(&self) -> bool {
        let gone = || self.joined().place.is_some() && self.joined().segment.is_gone();
        self.standing() != Standing::Here || gone() || self.ledger.is_detached(self.joined().segment.id())
    }

    /// Leaves the segment. No connection of this process is in it any more, and its waiters were given back.
    pub fn leave(&self, reason: Reason) {
        self.standing.store(Standing::Away as u32, Ordering::SeqCst);
        self.set_service_page(0);
        self.enter_joined();
        self.ledger.process(self.me()).reason.store(reason as u32, Ordering::Relaxed);
        self.let_go_of_segment();
    }

    /// Closes and gives up what the process has of its segment, and says nothing to anybody.
    pub(crate) fn let_go_of_segment(&self) {
        self.standing.store(Standing::Away as u32, Ordering::SeqCst);
        let joined = self.joined();
        for fd in [&joined.wake_dir, &joined.device, &joined.lock_fd] {
            self.disown(fd.swap(-1, Ordering::AcqRel));
        }
        if let Some(bells) = &joined.bells {
            bells.close(|fd| self.disown(fd));
        }
        joined.peers.close();
        joined.segment.let_go();
    }

    /// Joins the segment again that the settings name, after [`Self::leave`]; one that is detached only if it is `asked` for, and to leave it soon. In a virtual machine, where the host's device was found rather than named, the one that is
    /// found now.
    ///
    /// # Errors
    /// Why not; the process stays away.
    pub fn rejoin(&self, asked: bool) -> Result<(), Error> {
        let (again, bells) = open_again(&self.settings)?;
        let detached = self.ledger.is_detached(again.id());
        if detached && !asked {
            again.close();
            return Err(Error::System { doing: "join a segment that was detached", errno: libc::EBUSY });
        }
        let (ledger, number) = (&self.ledger, self.joined().number.wrapping_add(1));
        let joined = Joined::new((again, bells), ledger, self.ticket(), &self.settings, self.on_descriptor, number)?;
        self.joined.store(Box::into_raw(Box::new(joined)), Ordering::Release);
        self.ledger.process(self.me()).reason.store(0, Ordering::Relaxed);
        self.set_leaving(detached);
        self.show();
        Ok(())
    }

    /// This process's entry in the ledger.
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
        self.ledger.process(self.me()).service.store(page, Ordering::Relaxed);
    }

    /// Remembers a descriptor as the shim's own.
    pub fn own(&self, fd: i32) {
        if fd >= 0 {
            (self.on_descriptor)(fd, true);
        }
    }

    /// Closes one of the shim's own descriptors.
    pub fn disown(&self, fd: i32) {
        if fd >= 0 {
            (self.on_descriptor)(fd, false);
            sys::close(fd);
        }
    }

    /// In a fork child: enters the new process. `false`: the ledger has no room, and nothing may be carried.
    pub fn reenter(&self) -> bool {
        self.forget_parent();
        match self.ledger.enter() {
            Some(me) => {
                self.me.store(me, Ordering::Relaxed);
                self.ticket.store(self.ledger.process(me).ticket(me), Ordering::Relaxed);
                self.enter_joined();
                true
            }
            None => false,
        }
    }

    /// In a fork child: its parent's locks, waiters and service thread are not its own.
    pub(crate) fn forget_parent(&self) {
        self.joined().peers.forget_lock();
        self.joined().service_page.store(0, Ordering::Relaxed);
        if let Some(bells) = &self.joined().bells {
            bells.forget_parent();
        }
        self.ledger.forget_parent();
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

    /// Testing: is it time for a random switch? Which (0 … 7), if so.
    #[must_use]
    pub fn chaos(&self) -> Option<u64> {
        let (_, period) = self.settings.chaos?;
        let random = self.random();
        random.is_multiple_of(period).then_some((random / period) & 7)
    }

    /// Testing: is this waiter to be taken for one that cannot be rung from here?
    pub(crate) fn is_deaf(&self) -> bool {
        self.settings.deaf != 0 && self.random().is_multiple_of(self.settings.deaf)
    }

    fn random(&self) -> u64 {
        // xorshift64*, shared by the process's threads: a lost update only repeats a number.
        let mut x = self.chaos.load(Ordering::Relaxed);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.chaos.store(x, Ordering::Relaxed);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::proof::Prover;
    use crate::waiter::directory::find_wake_directory;
    use std::os::unix::fs::PermissionsExt;

    /// This process's hold on a ledger and a segment that nobody else has.
    pub(crate) fn attached(directory: &Path) -> Attachment {
        let given = Settings::from_environment();
        // Made by whoever attaches, and so that user's alone.
        let directory = &directory.join("own");
        let mut settings = Settings { directory: directory.clone(), tokens: false, chaos: None, deaf: 0, ..given };
        settings.segment = directory.join(DEFAULT_SEGMENT);
        settings.config.size = 16 << 20;
        Attachment::new(settings, |_, _| {}).expect("attached")
    }

    /// In a directory that everybody may write into, somebody without any right to the segment may have been first.
    #[test]
    fn wake_ups_do_not_go_through_a_directory_that_a_stranger_made() {
        // SAFETY: no arguments, cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        let own = place.path().join("own");
        home::make_directory(&own).expect("made");
        let segment = own.join(DEFAULT_SEGMENT);
        let wakes = wake_directory(&own, &segment);
        let give = |path: &Path, user| std::os::unix::fs::chown(path, Some(user), None).expect("given");
        std::fs::create_dir(&wakes).expect("made");
        give(&wakes, 65534);
        let attachment = attached(place.path());
        assert!(!attachment.joined().fifos && attachment.joined().wake_dir() == -1, "tokens do without it");
        assert!(crate::waiter::Waiter::new(&attachment).is_err());
        // Of the segment's owner it is as good as one's own.
        give(&segment, 65534);
        let dir = find_wake_directory(&wakes, &segment).expect("its owner's");
        sys::close(dir);
        give(&segment, 65533);
        assert_eq!(find_wake_directory(&wakes, &segment), Err(libc::EPERM));
        give(&wakes, 0);
        sys::close(find_wake_directory(&wakes, &segment).expect("root's"));
    }

    /// Nobody would give it up when the process becomes another user.
    #[test]
    fn who_cannot_join_keeps_no_ledger() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("own");
        let segment = place.path().join("none");
        std::fs::write(&segment, "none").expect("written");
        let settings = Settings { directory: directory.clone(), segment, ..Settings::from_environment() };
        let refused = Attachment::new(settings, |_, _| {}).err().expect("it is no segment");
        assert_eq!(refused.reason, Reason::NoSegment);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("read");
        assert!(directory.join(LEDGER).exists() && !maps.contains(directory.to_str().expect("UTF-8")), "{maps}");
        // For those who ask, the entry says why.
        let ledger = Ledger::open(&directory.join(LEDGER), false).expect("it is there");
        let said = |index: &u32| ledger.process(*index).pid.load(Ordering::Relaxed) == sys::pid();
        let index = (0..crate::ledger::PROCESSES).find(said).expect("an entry");
        assert_eq!(ledger.process(index).reason.load(Ordering::Relaxed), Reason::NoSegment as u32);
        assert!(ledger.alive(index));
    }

    #[test]
    fn a_segment_that_is_opened_to_others_is_no_longer_ones_own() {
        let place = tempfile::tempdir().expect("a directory");
        let attachment = attached(place.path());
        assert_eq!(attachment.joined().prover(), Prover::Nobody);
        let mode = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(attachment.joined().segment.path(), permissions).expect("it is ours");
        };
        mode(0o660);
        assert_eq!(attachment.joined().prover(), Prover::Nothing);
        mode(0o600);
        assert_eq!(attachment.joined().prover(), Prover::Nobody);
    }
}
