//! One shared mapping of a file that somebody else may cut short at any time.

use super::room::Taken;
use crate::closer::Closer;
use rustix::fs::{FallocateFlags, FileType, MemfdFlags, SealFlags, fallocate, memfd_create};
use rustix::fs::{fcntl_get_seals, fstat, fstatfs, ftruncate};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Mappings of one process at once: what a thousand ports may have, and those of one more whose
/// memory is replaced. (The kernel's own limit, `vm.max_map_count`, is 65530.)
const SLOTS: usize = 40_000;
const FREE: u8 = 0;
const TAKING: u8 = 1;
const USED: u8 = 2;
const CUT: u8 = 3;

/// `f_type` of tmpfs (memfds among it) and of hugetlbfs (linux/magic.h).
const TMPFS: i64 = 0x0102_1994;
const HUGETLBFS: i64 = 0x9584_58f6;

/// What the handler of SIGBUS knows of one mapping.
struct Slot {
    state: AtomicU8,
    at: AtomicUsize,
    len: AtomicUsize,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot { state: AtomicU8::new(FREE), at: AtomicUsize::new(0), len: AtomicUsize::new(0) }
}; SLOTS];
static CUTS: AtomicUsize = AtomicUsize::new(0);

/// How many mappings were cut short under this process so far. Whoever sees it change asks each
/// mapping.
#[must_use]
pub fn cuts() -> usize {
    CUTS.load(Ordering::Relaxed)
}

/// Why a file cannot be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapError {
    /// It is in neither tmpfs nor hugetlbfs. A page of another file may have to come from a disk,
    /// a network, or a program that never answers (FUSE), and the switch would wait for it.
    NotMemory,
    /// It ends before the part that is to be mapped does.
    TooShort,
    /// The part is empty, or longer than an address space.
    Size,
    /// This process has no room for another mapping.
    TooMany,
    /// The kernel's word.
    Kernel(Errno),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMemory => f.write_str(
                "the memory is in neither tmpfs nor hugetlbfs; give QEMU memory-backend-memfd, \
                 or memory-backend-file below /dev/shm, with share=on",
            ),
            Self::TooShort => f.write_str("the memory's file is shorter than the front end says"),
            Self::Size => f.write_str("the memory's size makes no sense"),
            Self::TooMany => f.write_str("too many pieces of memory are mapped already"),
            Self::Kernel(errno) => write!(f, "mmap: {errno}"),
        }
    }
}

impl From<Errno> for MapError {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

/// A part of a file, mapped shared, readable and writable. Unmapped when it is dropped.
#[derive(Debug)]
pub struct Mapping {
    /// Where the part begins that was asked for.
    start: NonNull<u8>,
    /// Of ordinary pages, and sealed against being cut short.
    steady: bool,
    slot: &'static Slot,
    /// Always there, until this is dropped.
    whole: Option<Whole>,
    /// Whose thread unmaps it, and what it takes of the room for all until then.
    until: Option<(Arc<Closer>, Taken)>,
}

/// The whole mapping, page by page. Unmapped when it is dropped.
#[derive(Debug)]
struct Whole {
    at: NonNull<u8>,
    len: usize,
    slot: &'static Slot,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({})", self.state.load(Ordering::Relaxed))
    }
}

// SAFETY: the mapping is shared memory that strangers write at any time; another thread of this
// process is one more of them. The pointer belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}
// SAFETY: as above.
unsafe impl Send for Whole {}

impl Mapping {
    /// Maps `len` bytes from `offset` on.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn new(file: impl AsFd, offset: u64, len: u64) -> Result<Self, MapError> {
        expect_cuts();
        // Only these two have seals, and the kernel looks itself: a filesystem that never answers
        // (FUSE) is not asked for anything.
        let seals = fcntl_get_seals(&file).map_err(|_| MapError::NotMemory)?;
        let kind = fstatfs(&file)?;
        #[allow(clippy::unnecessary_cast, reason = "its width differs between architectures")]
        let of = kind.f_type as i64;
        let page = match of {
            TMPFS => 4096,
            HUGETLBFS => u64::try_from(kind.f_bsize).map_err(|_| MapError::Size)?.max(4096),
            _ => return Err(MapError::NotMemory),
        };
        // A seal is never taken off again.
        let steady = of == TMPFS && seals.contains(SealFlags::SHRINK);
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or(MapError::Size)?;
        let stat = fstat(&file)?;
        // /dev is a tmpfs as well, and what lies there are devices.
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(MapError::NotMemory);
        }
        if u64::try_from(stat.st_size).unwrap_or(0) < end {
            return Err(MapError::TooShort);
        }
        let skip = offset % page;
        let whole = (skip + len).checked_next_multiple_of(page).ok_or(MapError::Size)?;
        let whole = usize::try_from(whole).map_err(|_| MapError::Size)?;
        let slot = TABLE
            .iter()
            .find(|slot| {
                let take = (Ordering::Acquire, Ordering::Relaxed);
                slot.state.compare_exchange(FREE, TAKING, take.0, take.1).is_ok()
            })
            .ok_or(MapError::TooMany)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without MAP_FIXED the kernel chooses addresses that nobody has.
        let mapped = unsafe {
            let none = std::ptr::null_mut();
            mmap(none, whole, protection, MapFlags::SHARED, &file, offset - skip)
        };
        let at = match mapped.map(|at| NonNull::new(at.cast::<u8>())) {
            Ok(Some(at)) => at,
            other => {
                slot.state.store(FREE, Ordering::Release);
                return Err(MapError::Kernel(other.err().unwrap_or(Errno::NOMEM)));
            }
        };
        // A core dump of the switch is not to hold its guests' memory. Where that cannot be had,
        // nothing else changes.
        // SAFETY: the range is this mapping's, and the advice changes no content.
        let _ = unsafe { madvise(at.as_ptr().cast(), whole, Advice::LinuxDontDump) };
        slot.at.store(at.as_ptr() as usize, Ordering::Relaxed);
        slot.len.store(whole, Ordering::Relaxed);
        slot.state.store(USED, Ordering::Release);
        // SAFETY: `skip` is less than a page, and the mapping holds that page.
        let start = unsafe { at.add(usize::try_from(skip).unwrap_or(0)) };
        let whole = Some(Whole { at, len: whole, slot });
        Ok(Self { start, steady, slot, whole, until: None })
    }

    /// It holds this part of a room for as long as it is mapped, and is unmapped by the thread of
    /// `closer`, wherever it is dropped: if nobody else has the file any more, all its pages are
    /// freed then, which takes as long as the file is large.
    pub(super) fn until_closed(&mut self, closer: &Arc<Closer>, room: Taken) {
        self.until = Some((Arc::clone(closer), room));
    }

    /// Where the part begins that was asked for; it is as long as was asked.
    #[inline(always)]
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// See [`super::Region::is_steady`].
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.steady
    }

    /// Was the file cut short, so that there are zeroes in its place now?
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.slot.state.load(Ordering::Relaxed) == CUT
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some((closer, room)) = self.until.take() {
            closer.close((self.whole.take(), room));
        }
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // First out of the handler's sight: the kernel may give the addresses to another mapping
        // at once.
        let state = self.slot.state.swap(FREE, Ordering::AcqRel);
        if let Some(zeroes) = zeroes().filter(|_| state == CUT) {
            // What was written there since is nobody's. (Were it left, it would be memory lost,
            // and the next file to be cut short at these addresses would have it.)
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(zeroes, hole, self.at.addr().get() as u64, self.len as u64);
        }
        // SAFETY: the range is this mapping's, and nothing points into it any more: whoever does
        // holds a reference to it.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// From now on a file that is cut short ends nobody: done by whoever maps one, or, before that, by
/// whoever looks after the handlers of signals.
pub fn expect_cuts() {
    zeroes();
}

/// A file that is as long as addresses go, and all zeroes: in the place of a mapping that was cut
/// short comes its part of the same addresses. Memory of no file would do, but for a host that
/// promises no more than it has (vm.overcommit_memory=2), or a limit of the process's own data:
/// both count how much could be written of it, and the handler would have nothing to put there.
/// `None` where there is none: then it is memory of no file.
fn zeroes() -> Option<&'static OwnedFd> {
    static ZEROES: OnceLock<Option<OwnedFd>> = OnceLock::new();
    const LENGTH: u64 = 1 << 62;
    let file = ZEROES.get_or_init(|| {
        let made = memfd_create("zeroes", MemfdFlags::CLOEXEC).and_then(|file| {
            // Where files have a limit, more than that ends the process (setrlimit(2), SIGXFSZ).
            let limited = getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < LENGTH);
            if limited { Err(Errno::FBIG) } else { ftruncate(&file, LENGTH).map(|()| file) }
        });
        let number = made.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        NUMBER.store(number, Ordering::Release);
        install();
        made.ok()
    });
    file.as_ref()
}

/// Its descriptor, for the handler; -1: there is none.
static NUMBER: AtomicI32 = AtomicI32::new(-1);

/// Has [`put_zeroes`] handle SIGBUS.
fn install() {
    // SAFETY: all zeroes is a valid action; the handler has the shape that SA_SIGINFO asks for,
    // and is async-signal-safe: it reads atomics and makes one system call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        action.sa_sigaction = put_zeroes as *const () as usize;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn put_zeroes(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid record.
    let fault = unsafe { (*info).si_addr() as usize };
    let found = TABLE.iter().find(|slot| {
        let at = slot.at.load(Ordering::Relaxed);
        slot.state.load(Ordering::Acquire) == USED
            && fault.wrapping_sub(at) < slot.len.load(Ordering::Relaxed)
    });
    if let Some(slot) = found {
        let at = slot.at.load(Ordering::Relaxed) as *mut libc::c_void;
        let len = slot.len.load(Ordering::Relaxed);
        let file = NUMBER.load(Ordering::Acquire);
        let (flags, from) = if file < 0 {
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, 0)
        } else {
            (libc::MAP_SHARED, at as libc::off_t)
        };
        let (flags, protection) = (flags | libc::MAP_FIXED, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the range is one of our mappings', whose owner is the code that faulted in it.
        // It keeps its addresses; what was in it is somebody else's file, which loses nothing.
        let put = unsafe { libc::mmap(at, len, protection, flags, file, from) };
        if put != libc::MAP_FAILED {
            slot.state.store(CUT, Ordering::Relaxed);
            CUTS.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    // Something else: it ends the process when the instruction is tried again.
    // SAFETY: the default action.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}
