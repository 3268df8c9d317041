//! A process's hold on the ledger and on its segment.
//!
//! Files, all in one directory (`GINNEL_DIR`, by default `/dev/shm/ginnel-UID`): `sockets-2` (the ledger; the number is its version, so that programs under an older Ginnel go on beside newer ones), `NAME` (a segment,
//! `default` where none is named), `NAME.wake/` (the FIFOs of its waiters and the lock files of its members).

use crate::ledger::{Ledger, ProcessFlags, Reason};
use crate::place::{self, Known, Place};
use ginnel_region::{Config, Error, Segment, device, sys};
use std::ffi::CString;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Name of the segment that is used where none is named.
pub const DEFAULT_SEGMENT: &str = "default";
/// Name of the ledger in its directory.
pub const LEDGER: &str = "sockets-2";

/// Is it the name of a ledger, of this version or another?
#[must_use]
pub fn is_ledger(name: &str) -> bool {
    name == "sockets" || name.starts_with("sockets-")
}

/// A process that may have fewer descriptors is left alone.
const FEWEST_DESCRIPTORS: u64 = 256;

/// Settings, from the environment or the command line.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of the ledger and of segments given by name.
    pub directory: PathBuf,
    /// The segment's file.
    pub segment: PathBuf,
    /// It was found (the device that a host shares with its virtual machine), not named.
    pub found: bool,
    /// How a segment is made where there is none.
    pub config: Config,
    /// Data operations on a connection before it becomes a candidate.
    pub after: u32,
    /// Use tokens even where FIFOs could be had.
    pub tokens: bool,
    /// How long to spin before sleeping, nanoseconds.
    pub spin_ns: u64,
    /// First size of a ring, bytes.
    pub ring: u64,
    /// Largest size of a ring, bytes.
    pub ring_max: u64,
    /// Testing: (seed, period) of random switches.
    pub chaos: Option<(u64, u64)>,
    /// Say on standard error what happens.
    pub verbose: bool,
}

/// The directory for a user's files: `GINNEL_DIR`, else in `/dev/shm`, else in `XDG_RUNTIME_DIR`, else in `/tmp`.
#[must_use]
pub fn default_directory() -> PathBuf {
    if let Some(directory) = std::env::var_os("GINNEL_DIR") {
        return directory.into();
    }
    // SAFETY: no arguments, cannot fail.
    let name = format!("ginnel-{}", unsafe { libc::geteuid() });
    if Path::new("/dev/shm").is_dir() {
        return Path::new("/dev/shm").join(name);
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from).join(name)
}

impl Settings {
    /// From `GINNEL_*` (see `ginnel run --help`).
    #[must_use]
    pub fn from_environment() -> Self {
        let directory = default_directory();
        let text = |name: &str| std::env::var(name).ok();
        let number = |name: &str| text(name).and_then(|value| value.trim().parse::<u64>().ok());
        let segment = text("GINNEL_SEGMENT").unwrap_or_else(|| DEFAULT_SEGMENT.into());
        let segment = if segment.contains('/') { PathBuf::from(segment) } else { directory.join(segment) };
        let power = |value: u64| value.next_power_of_two().clamp(4096, 1 << 26);
        let ring = power(number("GINNEL_RING").unwrap_or(32 << 10));
        let mut config = Config::default();
        if let Some(size) = number("GINNEL_SIZE") {
            config.size = size;
        }
        Self {
            segment,
            found: text("GINNEL_FOUND").is_some(),
            config,
            after: u32::try_from(number("GINNEL_AFTER").unwrap_or(3)).unwrap_or(u32::MAX),
            tokens: number("GINNEL_TOKENS").is_some_and(|value| value != 0),
            spin_ns: if number("GINNEL_SPIN") == Some(0) {
                0
            } else {
                number("GINNEL_SPIN").filter(|&n| n > 1).unwrap_or(30) * 1000
            },
            ring,
            ring_max: power(number("GINNEL_RING_MAX").unwrap_or(1 << 20)).max(ring),
            chaos: text("GINNEL_CHAOS").and_then(|value| {
                let (seed, period) = value.split_once(':').unwrap_or((&value, "16"));
                Some((seed.parse().ok()?, period.parse::<u64>().ok()?.max(1)))
            }),
            verbose: number("GINNEL_VERBOSE").is_some_and(|value| value != 0),
            directory,
        }
    }
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
    /// The guest driver's device, to ring doorbells with; -1 where there are none.
    device: AtomicI32,
    lock_fd: AtomicI32,
    service_page: AtomicU32,
    pub(crate) peers: crate::waiter::PeerFifos,
}

/// Everything a process needs to carry connections. What it has of its segment is another value after each detach: it is reached through the attachment at each use,
/// and stays in memory for threads that are late.
pub struct Attachment {
    /// The ledger.
    pub ledger: Ledger,
    /// Settings.
    pub settings: Settings,
    joined: AtomicPtr<Joined>,
    standing: AtomicU32,
    me: AtomicU32,
    ticket: AtomicU32,
    /// Told of each descriptor that is made (true) or closed (false), so that the program's calls spare it.
    pub(crate) on_descriptor: fn(i32, bool),
    chaos: AtomicU64,
}

impl Deref for Attachment {
    type Target = Joined;

    #[inline]
    fn deref(&self) -> &Joined {
        // SAFETY: from a leaked box, from the beginning on.
        unsafe { &*self.joined.load(Ordering::Acquire) }
    }
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
        let reason = if *error == Error::NoMemory { Reason::NoMemory } else { Reason::NoSegment };
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
        make_directory(&settings.directory)?;
        let path = settings.directory.join(LEDGER);
        let ledger = Ledger::open_or_create(&path).map_err(|error| Unattached::new(&path, &error))?;
        let me = ledger
            .enter()
            .ok_or_else(|| Unattached { reason: Reason::NoSegment, message: format!("{}: too many processes", path.display()) })?;
        let ticket = ledger.process(me).ticket(me);
        let refuse = |error: Error| {
            let unattached = Unattached::new(&settings.segment, &error);
            ledger.process(me).reason.store(unattached.reason as u32, Ordering::Relaxed);
            unattached
        };
        let segment = Segment::open_or_create(&settings.segment, &settings.config).map_err(refuse)?;
        let joined = Joined::new(segment, &ledger, ticket, &settings, 0).map_err(refuse)?;
        let attachment = Self {
            ledger,
            joined: AtomicPtr::new(Box::into_raw(Box::new(joined))),
            standing: AtomicU32::new(Standing::Here as u32),
            me: AtomicU32::new(me),
            ticket: AtomicU32::new(ticket),
            on_descriptor,
            chaos: AtomicU64::new(settings.chaos.map_or(0, |(seed, _)| seed ^ u64::from(sys::pid()) << 20 | 1)),
            settings,
        };
        attachment.show();
        Ok(attachment)
    }

    /// Says in the ledger to which segment this process is joined, and takes its descriptors for the shim's own.
    fn show(&self) {
        for fd in [&self.wake_dir, &self.device, &self.lock_fd] {
            self.own(fd.load(Ordering::Relaxed));
        }
        self.enter_joined();
    }

    fn enter_joined(&self) {
        let here = self.standing() != Standing::Away;
        let process = self.ledger.process(self.me());
        process.segment.store(if here { self.segment.id() } else { 0 }, Ordering::Relaxed);
        process.service.store(self.service_page(), Ordering::Relaxed);
        process.set(ProcessFlags::Away, !here);
        process.joined.store(if here { self.key } else { 0 }, Ordering::SeqCst);
    }

    /// How this process stands to its segment.
    #[must_use]
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
        let gone = || self.place.is_some() && self.segment.is_gone();
        self.standing() != Standing::Here || gone() || self.ledger.is_detached(self.segment.id())
    }

    /// Leaves the segment. No connection of this process is in it any more, and its waiters were given back.
    pub fn leave(&self, reason: Reason) {
        self.standing.store(Standing::Away as u32, Ordering::SeqCst);
        self.set_service_page(0);
        self.enter_joined();
        self.ledger.process(self.me()).reason.store(reason as u32, Ordering::Relaxed);
        for fd in [&self.wake_dir, &self.device, &self.lock_fd] {
            self.disown(fd.swap(-1, Ordering::AcqRel));
        }
        self.peers.close(self);
        self.segment.let_go();
    }

    /// Joins the segment again that the settings name, after [`Self::leave`]; one that is detached only if it is `asked` for, and to leave it soon. In a virtual machine, where the host's device was found rather than named, the one that is
    /// found now.
    ///
    /// # Errors
    /// Why not; the process stays away.
    pub fn rejoin(&self, asked: bool) -> Result<(), Error> {
        let again = Segment::open(&self.settings.segment).or_else(|error| match device::find() {
            Some(found) if self.settings.found => Segment::open(&found),
            _ => Err(error),
        })?;
        let detached = self.ledger.is_detached(again.id());
        if detached && !asked {
            again.close();
            return Err(Error::System { doing: "join a segment that was detached", errno: libc::EBUSY });
        }
        let joined = Joined::new(again, &self.ledger, self.ticket(), &self.settings, self.number.wrapping_add(1))?;
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
        self.service_page.store(page, Ordering::Relaxed);
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
        self.peers.forget_lock();
        self.service_page.store(0, Ordering::Relaxed);
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

    /// Does any process of `member` live? Unknown counts as yes.
    #[must_use]
    pub fn member_lives(&self, member: u16) -> bool {
        if member == self.member {
            return true;
        }
        match place::look(&self.segment, self.place, member) {
            Known::Lives => return true,
            Known::Gone => return false,
            Known::Ours => {}
        }
        let Ok(name) = CString::new(format!("m{member}")) else { return true };
        let Ok(fd) = sys::openat(self.wake_dir(), &name, libc::O_RDWR, 0) else { return true };
        let lives = sys::flock(fd, libc::LOCK_EX | libc::LOCK_NB).is_err();
        sys::close(fd);
        lives
    }

    /// Testing: is it time for a random switch? Which (0 … 7), if so.
    #[must_use]
    pub fn chaos(&self) -> Option<u64> {
        let (_, period) = self.settings.chaos?;
        // xorshift64*, shared by the process's threads: a lost update only repeats a number.
        let mut x = self.chaos.load(Ordering::Relaxed);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.chaos.store(x, Ordering::Relaxed);
        let random = x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        random.is_multiple_of(period).then_some((random / period) & 7)
    }
}

impl Joined {
    fn new(segment: Segment, ledger: &Ledger, ticket: u32, settings: &Settings, number: u32) -> Result<Self, Error> {
        let place = Place::of(&segment);
        // Another life of this kernel in the same segment is another member.
        let key = segment.id() ^ place.map_or(0, |place| place.life());
        let Some(member) = ledger.member_of(key, ticket, || place::choose_member(&segment, place)) else {
            segment.close();
            return Err(Error::Full);
        };
        let wake_dir = open_wake_directory(&wake_directory(&settings.directory, segment.path()));
        let tokens = settings.tokens || segment.tokens_only();
        // FIFOs reach nobody in another kernel, doorbells everybody.
        let device = if place.is_some() && !tokens { open_device(segment.path()) } else { -1 };
        let fifos = !tokens && if place.is_some() { device >= 0 } else { wake_dir.is_ok() };
        let wake_dir = wake_dir.unwrap_or(-1);
        Ok(Self {
            segment,
            place,
            member,
            fifos,
            number,
            key,
            wake_dir: AtomicI32::new(wake_dir),
            device: AtomicI32::new(device),
            lock_fd: AtomicI32::new(lock_member(wake_dir, member)),
            service_page: AtomicU32::new(0),
            peers: crate::waiter::PeerFifos::new(),
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

    /// Page of the service thread's waiter, 0 where there is none.
    #[must_use]
    pub fn service_page(&self) -> u32 {
        self.service_page.load(Ordering::Relaxed)
    }
}

/// Shows that this ledger's processes live: a shared lock on the member's file, gone when the last of them is. -1 where it cannot be had.
fn lock_member(wake_dir: i32, member: u16) -> i32 {
    let Ok(name) = CString::new(format!("m{member}")) else { return -1 };
    let Ok(fd) = sys::openat(wake_dir, &name, libc::O_RDWR | libc::O_CREAT, 0o666) else { return -1 };
    let fd = sys::move_high(fd);
    if sys::flock(fd, libc::LOCK_SH | libc::LOCK_NB).is_ok() {
        return fd;
    }
    sys::close(fd);
    -1
}

fn make_directory(directory: &Path) -> Result<(), Unattached> {
    let unattached = |errno| Unattached::new(directory, &Error::System { doing: "make directory", errno });
    let path = CString::new(directory.as_os_str().as_bytes()).map_err(|_| unattached(libc::EINVAL))?;
    match sys::mkdir(&path, 0o700) {
        Ok(()) | Err(libc::EEXIST) => Ok(()),
        Err(errno) => Err(unattached(errno)),
    }?;
    // In a world-writable directory somebody else may have been there first.
    let fd = sys::openat(libc::AT_FDCWD, &path, libc::O_DIRECTORY | libc::O_RDONLY, 0).map_err(unattached)?;
    let stat = sys::fstat(fd).map_err(unattached);
    sys::close(fd);
    // SAFETY: no arguments, cannot fail.
    let me = unsafe { libc::geteuid() };
    if stat?.st_uid != me && me != 0 {
        return Err(unattached(libc::EPERM));
    }
    Ok(())
}

/// `SEGMENT.wake`: beside a file, and in `directory` for a device, beside which nothing can lie.
#[must_use]
pub fn wake_directory(directory: &Path, segment: &Path) -> PathBuf {
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

/// A descriptor of the guest driver's device, out of the program's way; -1 where it cannot be had.
pub(crate) fn open_device(path: &Path) -> i32 {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return -1 };
    sys::openat(libc::AT_FDCWD, &path, libc::O_RDWR | libc::O_NONBLOCK, 0).map_or(-1, sys::move_high)
}

fn open_wake_directory(directory: &Path) -> Result<i32, i32> {
    let path = CString::new(directory.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
    match sys::mkdir(&path, 0o700) {
        Ok(()) | Err(libc::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    sys::openat(libc::AT_FDCWD, &path, libc::O_DIRECTORY | libc::O_RDONLY, 0).map(sys::move_high)
}
