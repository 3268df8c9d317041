//! A process's hold on the ledger and on its segment.
//!
//! Files, all in one directory (`GINNEL_DIR`, by default `/dev/shm/ginnel-UID`): `sockets-8` (the ledger; the number is its version, so that programs under an older Ginnel go on beside newer ones), `NAME` (a segment,
//! `default` where none is named), `NAME.wake/` (the FIFOs of its waiters and the lock files of its members).

use crate::budget::{Budget, Purpose};
pub use crate::home::default_directory;
use crate::join;
use crate::ledger::{Ledger, ProcessFlags, Reason};
use crate::place::{self, Known, Place};
use crate::policy::{Policy, program_names};
use crate::proof::Prover;
use crate::waiter::relay::Bells;
use crate::waiter::{Cache, open_device};
use crate::{home, renounce};
use ginnel_region::{Config, Error, Segment, device, sys};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Name of the segment that is used where none is named.
pub const DEFAULT_SEGMENT: &str = "default";
/// Name of the ledger in its directory.
pub const LEDGER: &str = "sockets-8";

/// Is it the name of a ledger, of this version or another?
#[must_use]
pub fn is_ledger(name: &str) -> bool {
    name == "sockets" || name.starts_with("sockets-")
}

/// In the directory of wake-ups of a segment of `ginneld`: a link to the socket, by which the segment is found again.
const SOCKET: &CStr = c"socket";

/// The sockets of `ginneld` at which processes of this user have joined.
#[must_use]
pub fn sockets(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_name().as_bytes().starts_with(b".ginneld-"));
    dirs.filter_map(|entry| std::fs::read_link(entry.path().join(OsStr::from_bytes(SOCKET.to_bytes()))).ok()).collect()
}

/// A process that may have fewer descriptors is left alone.
const FEWEST_DESCRIPTORS: u64 = 256;
/// Likewise one whose address space is limited to less than so many times the segment's size …
const LEAST_SPACE: u64 = 16;
/// … or its private memory to less than this, bytes.
const LEAST_MEMORY: u64 = 256 << 20;

/// Settings, from the environment or the command line.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of the ledger and of segments given by name.
    pub directory: PathBuf,
    /// The directory was named, and is not the effective user's own.
    pub directory_is_named: bool,
    /// As the segment was named: a path, or a name in the directory.
    pub segment_name: String,
    /// The segment's file, the driver's device, or the socket at which `ginneld` lets processes of the host join.
    pub segment: PathBuf,
    /// It was found (the device that a host shares with its virtual machine), not named.
    pub found: bool,
    /// How a segment is made where there is none.
    pub config: Config,
    /// Data operations on a connection before it becomes a candidate.
    pub after: u32,
    /// Use tokens even where FIFOs could be had.
    pub tokens: bool,
    /// How long to spin before sleeping, nanoseconds; `None`: see [`Attachment::spin_ns`].
    pub spin_ns: Option<u64>,
    /// First size of a ring, bytes.
    pub ring: u64,
    /// Largest size of a ring, bytes.
    pub ring_max: u64,
    /// Testing: (seed, period) of random switches.
    pub chaos: Option<(u64, u64)>,
    /// Testing: one wake-up in so many finds its waiter out of reach; 0 none.
    pub deaf: u64,
    /// Say on standard error what happens.
    pub verbose: bool,
    /// What of it may be carried.
    pub policy: Policy,
}

impl Settings {
    /// From `GINNEL_*` (see `ginnel run --help`).
    #[must_use]
    pub fn from_environment() -> Self {
        let directory = default_directory();
        let text = |name: &str| std::env::var(name).ok();
        let number = |name: &str| text(name).and_then(|value| value.trim().parse::<u64>().ok());
        let segment_name = text("GINNEL_SEGMENT").unwrap_or_else(|| DEFAULT_SEGMENT.into());
        let segment = segment_of(&directory, &segment_name);
        let power = |value: u64| value.next_power_of_two().clamp(4096, 1 << 26);
        let ring = power(number("GINNEL_RING").unwrap_or(32 << 10));
        let mut config = Config::default();
        if let Some(size) = number("GINNEL_SIZE") {
            config.size = size;
        }
        Self {
            directory_is_named: std::env::var_os("GINNEL_DIR").is_some(),
            segment_name,
            segment,
            found: text("GINNEL_FOUND").is_some(),
            config,
            after: u32::try_from(number("GINNEL_AFTER").unwrap_or(8)).unwrap_or(u32::MAX),
            tokens: number("GINNEL_TOKENS").is_some_and(|value| value != 0),
            spin_ns: number("GINNEL_SPIN").map(|micros| micros.saturating_mul(1000)),
            ring,
            ring_max: power(number("GINNEL_RING_MAX").unwrap_or(4 << 20)).max(ring),
            chaos: text("GINNEL_CHAOS").and_then(|value| {
                let (seed, period) = value.split_once(':').unwrap_or((&value, "16"));
                Some((seed.parse().ok()?, period.parse::<u64>().ok()?.max(1)))
            }),
            deaf: number("GINNEL_DEAF").unwrap_or(0),
            verbose: number("GINNEL_VERBOSE").is_some_and(|value| value != 0),
            // `ginnel run` has checked it. What cannot be understood all the same may have meant to deny something.
            policy: std::env::var_os("GINNEL_POLICY").map_or_else(Policy::default, |rules| {
                let rules = rules.to_str().and_then(|rules| Policy::parse(rules).ok());
                rules.map_or_else(Policy::nothing, |policy| policy.of_program(&program_names()))
            }),
            directory,
        }
    }
}

impl Settings {
    /// Returns the same for the user that the process has become. The environment is not read again:
    /// programs write their titles over it.
    #[must_use]
    pub fn of_present_user(&self) -> Self {
        let mut settings = self.clone();
        if !settings.directory_is_named {
            settings.directory = home::own_directory();
            settings.segment = segment_of(&settings.directory, &settings.segment_name);
        }
        settings
    }
}

fn segment_of(directory: &Path, name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { directory.join(name) }
}

/// What a process has of the segment that it is joined to.
pub struct Joined {
    /// The segment.
    pub segment: Segment,
    /// Which peer this kernel is, where other kernels have the segment too.
    pub place: Option<Place>,
    /// As which member the ledger's processes appear in the segment.
    pub member: u16,
    /// Waiters are to be had: wake-ups by FIFO, or by doorbell where other kernels have the segment too.
    pub fifos: bool,
    /// How often the process has joined one: what was made under another number belongs to a segment that was left.
    pub number: u32,
    /// See [`crate::ledger::Process::joined`].
    key: u64,
    wake_dir: AtomicI32,
    /// Permissions of what this process makes in the directory of FIFOs.
    pub(crate) wake_mode: u32,
    /// The guest driver's device, to ring doorbells with; -1 where there are none.
    device: AtomicI32,
    /// Where `ginneld` gave the segment: its doorbells.
    pub bells: Option<Bells>,
    lock_fd: AtomicI32,
    service_page: AtomicU32,
    pub(crate) peers: Cache,
}

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
        let Ok(name) = CString::new(format!("m{member}")) else { return true };
        let Ok(fd) = sys::openat(joined.wake_dir(), &name, LOCK_FILE, 0) else { return true };
        let lives = sys::flock(fd, libc::LOCK_EX | libc::LOCK_NB).is_err();
        sys::close(fd);
        lives
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

fn open(settings: &Settings) -> Result<(Segment, Option<Bells>), Error> {
    if join::is_socket(&settings.segment) {
        return join::open(&settings.segment).map(|(segment, admission)| (segment, Some(Bells::new(admission))));
    }
    Segment::open_or_create(&settings.segment, &settings.config).map(|segment| (segment, None))
}

/// The same, after the process left it: it is not made anew.
fn open_again(settings: &Settings) -> Result<(Segment, Option<Bells>), Error> {
    if join::is_socket(&settings.segment) {
        return open(settings);
    }
    let found = |error| match device::find() {
        Some(found) if settings.found => Segment::open(&found),
        _ => Err(error),
    };
    Segment::open(&settings.segment).or_else(found).map(|segment| (segment, None))
}

/// Tells a ledger from those of other users and containers.
fn ledger_mark(directory: &Path) -> u64 {
    directory.metadata().map_or(0, |meta| meta.ino() ^ meta.dev() << 40)
}

impl Joined {
    fn new(
        (segment, bells): (Segment, Option<Bells>),
        ledger: &Ledger,
        ticket: u32,
        settings: &Settings,
        on_descriptor: fn(i32, bool),
        number: u32,
    ) -> Result<Self, Error> {
        let place = Place::of(&segment);
        // Another life of this kernel in the same segment is another member.
        let key = segment.id() ^ place.map_or(0, |place| place.life());
        let mark = ledger_mark(&settings.directory);
        let holds = |member| place::is_ours(&segment, place, member, mark);
        let Some(member) = ledger.member_of(key, ticket, holds, || place::choose_member(&segment, place, mark)) else {
            segment.close();
            return Err(Error::Full);
        };
        let path = if bells.is_some() { &settings.segment } else { segment.path() };
        let (wake_dir, wake_mode) = open_wake_directory(&wake_directory(&settings.directory, path), path)
            .map_or_else(|errno| (Err(errno), 0), |(dir, mode)| (Ok(dir), mode));
        if let (Some(_), Ok(dir), Ok(socket)) = (&bells, wake_dir, CString::new(path.as_os_str().as_bytes())) {
            let _ = sys::symlinkat(&socket, dir, SOCKET);
        }
        let tokens = settings.tokens || segment.tokens_only();
        // FIFOs reach nobody in another kernel, doorbells everybody.
        let in_guest = place.is_some() && bells.is_none();
        let device = if in_guest && !tokens { open_device(segment.path()) } else { -1 };
        let fifos = !tokens && if in_guest { device >= 0 } else { wake_dir.is_ok() };
        let wake_dir = wake_dir.unwrap_or(-1);
        let lock = match &bells {
            Some(bells) => {
                bells.show(member);
                -1
            }
            None => lock_member(wake_dir, wake_mode, member),
        };
        Ok(Self {
            segment,
            place,
            member,
            fifos,
            number,
            key,
            wake_dir: AtomicI32::new(wake_dir),
            wake_mode,
            device: AtomicI32::new(device),
            bells,
            lock_fd: AtomicI32::new(lock),
            service_page: AtomicU32::new(0),
            peers: Cache::new(on_descriptor),
        })
    }

    /// The directory of FIFOs, -1 where there is none.
    #[must_use]
    pub fn wake_dir(&self) -> i32 {
        self.wake_dir.load(Ordering::Relaxed)
    }

    /// The guest driver's device, to ring doorbells with; -1 where there are none.
    #[must_use]
    pub fn device(&self) -> i32 {
        self.device.load(Ordering::Relaxed)
    }

    /// Who proves that this process holds a connection. Whether the segment is this user's alone is
    /// asked anew: others may have been given rights to its file since it was opened.
    #[must_use]
    pub fn prover(&self) -> Prover<'_> {
        let is_own = self.segment.is_own() && !is_open_to_others(self.segment.path());
        Prover::of(is_own, self.segment.source(), self.device(), self.segment.path())
    }

    /// Page of the service thread's waiter, 0 where there is none.
    #[must_use]
    pub fn service_page(&self) -> u32 {
        self.service_page.load(Ordering::Relaxed)
    }
}

/// Has anybody but its owner rights to this file by now? False where it is not there any more.
fn is_open_to_others(path: &Path) -> bool {
    let path = CString::new(path.as_os_str().as_bytes());
    path.is_ok_and(|path| sys::stat(&path).is_ok_and(|stat| stat.st_mode & 0o077 != 0))
}

/// Shows that this ledger's processes live: a shared lock on the member's file, gone when the last of them is (on the host, where `ginneld` serves the segment, on a byte
/// of the memory). -1 where it cannot be had.
fn lock_member(wake_dir: i32, mode: u32, member: u16) -> i32 {
    let Ok(name) = CString::new(format!("m{member}")) else { return -1 };
    let open = |flags| sys::openat(wake_dir, &name, flags | LOCK_FILE, 0o600);
    let made = || {
        open(libc::O_CREAT | libc::O_EXCL).inspect(|&fd| {
            let _ = sys::fchmod(fd, mode);
        })
    };
    let Ok(fd) = open(0).or_else(|_| made()).or_else(|_| open(0)) else { return -1 };
    let fd = sys::move_high(fd);
    if sys::flock(fd, libc::LOCK_SH | libc::LOCK_NB).is_ok() {
        return fd;
    }
    sys::close(fd);
    -1
}

/// `SEGMENT.wake`: beside a file, and in `directory` for a device or `ginneld`'s socket, beside which nothing can lie.
#[must_use]
pub fn wake_directory(directory: &Path, segment: &Path) -> PathBuf {
    if join::is_socket(segment) {
        // One name for each path. FNV-1a: nobody gains by two paths with one name.
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let hash = segment.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, hash);
        return directory.join(format!(".ginneld-{hash:016x}.wake"));
    }
    let device = segment.starts_with("/dev") && !segment.starts_with("/dev/shm");
    if device || segment.starts_with("/sys") {
        // The memory of a PCI device, .../0000:01:00.0/resource2, is called after the device.
        let bar = segment.ends_with("resource2");
        let named = if bar { segment.parent().unwrap_or(segment) } else { segment };
        let mut name = named.file_name().unwrap_or(segment.as_os_str()).to_owned();
        name.push(".wake");
        return directory.join(name);
    }
    let mut name = segment.as_os_str().to_owned();
    name.push(".wake");
    name.into()
}

/// How a member's lock file is opened: anything may stand under its name where several users share the directory.
const LOCK_FILE: i32 = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOFOLLOW;

/// Makes the directory of FIFOs where it is missing. Gives it with the permissions that files in it are to have.
///
/// Who may use the segment may wake its users: the directory has the segment's permissions. In a directory that nobody else can enter it is open to all: who has it
/// there inherited it, and may have become another user since (a server's workers, say).
fn open_wake_directory(directory: &Path, segment: &Path) -> Result<(i32, u32), i32> {
    let path = CString::new(directory.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
    let mode_of = |path: &Path| std::fs::metadata(path).map_or(0o600, |meta| meta.permissions().mode());
    let private = directory.parent().is_some_and(|parent| mode_of(parent) & 0o077 == 0);
    let mode = if private { 0o666 } else { mode_of(segment) & 0o666 };
    match sys::mkdir(&path, 0o700) {
        Ok(()) | Err(libc::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    let fd = find_wake_directory(directory, segment).map(sys::move_high)?;
    // Who may read may enter. One user's files are not another's to remove, but for those who inherited the directory.
    let sticky = if private { 0 } else { 0o1000 };
    let wanted = sticky | mode | (mode & 0o444) >> 2;
    // SAFETY: no arguments, cannot fail.
    let me = unsafe { libc::geteuid() };
    if sys::fstat(fd).is_ok_and(|stat| stat.st_uid == me && stat.st_mode & 0o7777 != wanted) {
        let _ = sys::fchmod(fd, wanted);
    }
    Ok((fd, mode))
}

/// Opens the directory of FIFOs, if it belongs to the segment's owner, to this user or to root. Beside a segment in a directory that everybody
/// may write into, anybody could have made it first, to read the wake-ups away: without it, they go over TCP.
pub(crate) fn find_wake_directory(directory: &Path, segment: &Path) -> Result<i32, i32> {
    let path = CString::new(directory.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
    let fd = sys::openat(libc::AT_FDCWD, &path, libc::O_DIRECTORY | libc::O_RDONLY | libc::O_NOFOLLOW, 0)?;
    // SAFETY: no arguments, cannot fail.
    let me = unsafe { libc::geteuid() };
    let owner = sys::fstat(fd).map(|stat| stat.st_uid);
    let trusted = owner.is_ok_and(|uid| uid == 0 || uid == me || std::fs::metadata(segment).is_ok_and(|meta| meta.uid() == uid));
    if trusted {
        return Ok(fd);
    }
    sys::close(fd);
    Err(libc::EPERM)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::process::Command;

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

    /// In a process of its own for each value: the environment is all threads'.
    #[test]
    fn every_number_of_microseconds_to_spin_is_a_setting() {
        const EXPECTED: &str = "GINNEL_TEST_EXPECTED";
        if let Ok(expected) = std::env::var(EXPECTED) {
            return assert_eq!(format!("{:?}", Settings::from_environment().spin_ns), expected);
        }
        let own = std::env::current_exe().expect("a test is a program");
        for (value, expected) in [("0", Some(0)), ("1", Some(1000)), ("30", Some(30_000)), ("", None), ("many", None)] {
            let mut again = Command::new(&own);
            again.args(["--exact", "attach::tests::every_number_of_microseconds_to_spin_is_a_setting"]);
            let ran = again.env("GINNEL_SPIN", value).env(EXPECTED, format!("{expected:?}")).output().expect("it starts");
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && said.contains("1 passed"), "GINNEL_SPIN={value}: {said}");
        }
    }
}
