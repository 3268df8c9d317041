//! What a process has of the segment that it is joined to.

use crate::join;
use crate::place::{self, Place};
use crate::processes::{Library, Processes};
use crate::settings::Settings;
use crate::wake::directory::{SOCKET, lock_member, open_wake_directory, wake_directory};
use crate::wake::fifo::Cache;
use crate::wake::line::{Lines, OfPair};
use crate::wake::open_device;
use crate::wake::relay::{Bells, replaced};
use ginnel_region::{Error, Segment, device, sys};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// What a process has of the segment that it is joined to.
pub struct Joined {
    /// The segment.
    pub segment: Segment,
    /// Which peer this kernel is, where other kernels have the segment too.
    pub place: Option<Place>,
    /// As which member the processes with the same table and library appear in the segment.
    pub member: u16,
    /// Waiters are to be had: wake-ups by FIFO, or by doorbell where other kernels have the segment
    /// too.
    pub fifos: bool,
    /// How often the process has joined one: what was made under another number belongs to a
    /// segment that was left.
    pub number: u32,
    /// See [`crate::processes::Process::joined`].
    pub(crate) key: u64,
    pub(crate) wake_dir: AtomicI32,
    /// Permissions of what this process makes in the directory of FIFOs.
    pub(crate) wake_mode: u32,
    /// The guest driver's device, to ring doorbells with; -1 where there are none.
    pub(crate) device: AtomicI32,
    /// Where `ginneld` gave the segment: its doorbells.
    pub bells: Option<Bells>,
    /// Of a pair's memory: by what each of its processes wakes the other.
    pub lines: Lines,
    pub(crate) lock_fd: AtomicI32,
    pub(crate) service_page: AtomicU32,
    pub(crate) peers: Cache,
}

pub(crate) fn open(settings: &Settings) -> Result<(Segment, Option<Bells>), Error> {
    if join::is_socket(&settings.segment) {
        return join::open(&settings.segment)
            .map(|(segment, admission)| (segment, Some(Bells::new(admission))));
    }
    Segment::open_or_create(&settings.segment, &settings.config).map(|segment| (segment, None))
}

/// The same, after the process left it: it is not made anew.
pub(crate) fn open_again(settings: &Settings) -> Result<(Segment, Option<Bells>), Error> {
    if join::is_socket(&settings.segment) {
        return open(settings);
    }
    let found = |error| match device::find() {
        Some(found) if settings.found => Segment::open(&found),
        _ => Err(error),
    };
    Segment::open(&settings.segment).or_else(found).map(|segment| (segment, None))
}

/// Tells a process table from those of other users and containers.
fn table_mark(directory: &Path) -> u64 {
    directory.metadata().map_or(0, |meta| meta.ino() ^ meta.dev() << 40)
}

impl Joined {
    pub(crate) fn new(
        (segment, bells): (Segment, Option<Bells>),
        processes: &Processes,
        library: Library,
        ticket: u32,
        settings: &Settings,
        on_descriptor: fn(i32, bool),
        number: u32,
    ) -> Result<Self, Error> {
        let place = Place::of(&segment);
        // Another life of this kernel in the same segment is another member.
        let key = segment.id() ^ place.map_or(0, |place| place.life());
        let mark = table_mark(&settings.directory) ^ u64::from(library.number());
        let holds = |member| place::is_ours(&segment, place, member, mark);
        let Some(member) =
            processes.member_of(key ^ u64::from(library.number()), ticket, holds, || {
                place::choose_member(&segment, place, mark)
            })
        else {
            segment.close();
            return Err(Error::Full);
        };
        let path = if bells.is_some() { &settings.segment } else { segment.path() };
        let (wake_dir, wake_mode) =
            open_wake_directory(&wake_directory(&settings.directory, path), path)
                .map_or_else(|errno| (Err(errno), 0), |(dir, mode)| (Ok(dir), mode));
        if let (Some(_), Ok(dir), Ok(socket)) =
            (&bells, wake_dir, CString::new(path.as_os_str().as_bytes()))
        {
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
            lines: Lines::none(),
            lock_fd: AtomicI32::new(lock),
            service_page: AtomicU32::new(0),
            peers: Cache::new(on_descriptor),
        })
    }

    /// What this process has of the memory of a pair of processes, and of the lines that came with
    /// it: where there are none, there are only tokens. Nobody looks there for members that died:
    /// it goes with the pair.
    ///
    /// # Errors
    /// [`Error::Full`] where the table of members has no room.
    pub fn of_pair(segment: Segment, lines: Lines) -> Result<Self, Error> {
        let Some(member) = place::choose_member(&segment, None, 0) else {
            segment.close();
            return Err(Error::Full);
        };
        let none = || AtomicI32::new(-1);
        Ok(Self {
            key: segment.id(),
            segment,
            place: None,
            member,
            fifos: false,
            number: 0,
            wake_dir: none(),
            wake_mode: 0,
            device: none(),
            bells: None,
            lines,
            lock_fd: none(),
            service_page: AtomicU32::new(0),
            // Nobody has a FIFO there.
            peers: Cache::new(|_, _| {}),
        })
    }

    /// May a sleeper of this process be woken otherwise than by a token?
    #[must_use]
    #[inline]
    pub fn rings(&self) -> bool {
        self.fifos || self.lines.are_there()
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

    /// Is no thread in the middle of ringing a FIFO at the moment?
    #[must_use]
    pub fn rings_nobody(&self) -> bool {
        self.peers.is_free()
    }

    /// The number `from` is about to be the program's (`dup2`): what this process has by it here it
    /// has by its copy `to` from now on. False: it has nothing by it. (Waiters know their own
    /// numbers: [`crate::Waiter::moved`].)
    pub fn moved(&self, from: i32, to: i32) -> bool {
        [&self.wake_dir, &self.device, &self.lock_fd]
            .into_iter()
            .any(|place| replaced(place, from, to))
            || self.bells.as_ref().is_some_and(|bells| bells.moved(from, to))
            || self.peers.moved(from, to)
    }

    /// The peer at which a member of the segment is, where other kernels have the segment too and it
    /// says so.
    #[must_use]
    #[inline]
    pub fn peer_of(&self, member: u16) -> Option<u16> {
        place::peer_at(&self.segment, member)
    }

    /// Page of the service thread's waiter, 0 where there is none.
    #[must_use]
    pub fn service_page(&self) -> u32 {
        self.service_page.load(Ordering::Relaxed)
    }
}

impl OfPair for Joined {
    #[inline]
    fn segment(&self) -> &Segment {
        &self.segment
    }

    #[inline]
    fn lines(&self) -> &Lines {
        &self.lines
    }
}
