//! Doorbells are eventfds. Whoever holds one can clear its `O_NONBLOCK` (a flag of the open file,
//! which all holders share) and fill or empty its counter, and so make a plain `write` or `read` of
//! any other holder sleep for ever. So an eventfd that a stranger holds is never written or read
//! plainly here:
//!
//! - [`drain`] reads with `RWF_NOWAIT`, which the kernel obeys whatever the flag says (Linux 5.12);
//! - [`Ringer`] has the kernel ring, as the completion of an asynchronous operation
//!   (`IOCB_FLAG_RESFD`, io_submit(2)): `eventfd_signal` never sleeps, and saturates a full
//!   counter.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A new doorbell.
///
/// # Errors
/// The `errno` of eventfd(2).
pub fn new() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Takes all rings that are there and says whether there were any. Never sleeps.
///
/// # Errors
/// The `errno` of preadv2(2); EOPNOTSUPP before Linux 5.12.
pub fn drain(doorbell: impl AsFd) -> Result<bool, Errno> {
    let mut count = [0u8; 8];
    loop {
        // Offset −1: the file's own position, as for read(2).
        match preadv2(
            doorbell.as_fd(),
            &mut [IoSliceMut::new(&mut count)],
            u64::MAX,
            ReadWriteFlags::NOWAIT,
        ) {
            Ok(_) => return Ok(u64::from_ne_bytes(count) != 0),
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Rings a doorbell that nobody hostile holds. A counter that is full has rung already.
///
/// # Errors
/// The `errno` of write(2).
pub fn ring(doorbell: impl AsFd) -> Result<(), Errno> {
    loop {
        match rustix::io::write(doorbell.as_fd(), &1u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Rings doorbells that others hold too, and never sleeps over it.
#[derive(Debug)]
pub struct Ringer {
    way: Way,
}

#[derive(Debug)]
enum Way {
    Aio {
        context: libc::c_ulong,
        /// What the asynchronous operation reads: nothing, from an empty file.
        source: OwnedFd,
    },
    /// Poll first, then write. A holder that fills the counter between the two, having cleared
    /// `O_NONBLOCK`, makes this sleep.
    Poll,
}

/// `struct iocb` of linux/aio_abi.h, little-endian.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_descriptor: u32,
}

const _: () = assert!(size_of::<Iocb>() == 64);
#[cfg(not(target_endian = "little"))]
compile_error!("`key` and `rw_flags` of struct iocb change places on big-endian machines");

/// `IOCB_CMD_PREAD` and `IOCB_FLAG_RESFD`.
const PREAD: u16 = 0;
const RESULT_TO_EVENTFD: u32 = 1;

impl Ringer {
    /// The way that never sleeps, or, where the kernel refuses it (built without CONFIG_AIO, or
    /// `fs.aio-max-nr` used up), the way that polls.
    #[must_use]
    pub fn new() -> Self {
        Self { way: Self::aio().unwrap_or(Way::Poll) }
    }

    /// The way that polls.
    #[must_use]
    pub fn polling() -> Self {
        Self { way: Way::Poll }
    }

    /// Is this the way that never sleeps?
    #[must_use]
    pub fn never_sleeps(&self) -> bool {
        matches!(self.way, Way::Aio { .. })
    }

    fn aio() -> Option<Way> {
        let source =
            rustix::fs::memfd_create("ginnel-ringer", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: `context` is writable and zero, as io_setup(2) wants it.
        let made =
            unsafe { libc::syscall(libc::SYS_io_setup, 1 as libc::c_long, &raw mut context) };
        (made == 0).then_some(Way::Aio { context, source })
    }

    /// Rings. Returns false where the counter is full: it has rung already, and nobody reads it.
    ///
    /// # Errors
    /// The `errno`; EINVAL if it is no eventfd.
    pub fn ring(&self, doorbell: impl AsFd) -> Result<bool, Errno> {
        match &self.way {
            Way::Aio { context, source } => {
                submit(*context, source.as_fd(), doorbell.as_fd()).map(|()| true)
            }
            Way::Poll => {
                let writable = poll(
                    &mut [PollFd::new(&doorbell, PollFlags::OUT)],
                    Some(&Timespec::default()),
                )? > 0;
                if writable { ring(doorbell).map(|()| true) } else { Ok(false) }
            }
        }
    }
}

impl Default for Ringer {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads nothing from `source` and has `doorbell` signalled when that is done, which it is when
/// this returns.
fn submit(
    context: libc::c_ulong,
    source: BorrowedFd<'_>,
    doorbell: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let number = |fd: BorrowedFd<'_>| u32::try_from(fd.as_raw_fd()).unwrap_or(u32::MAX);
    let mut control = Iocb {
        opcode: PREAD,
        descriptor: number(source),
        flags: RESULT_TO_EVENTFD,
        result_descriptor: number(doorbell),
        ..Iocb::default()
    };
    let mut list = [&raw mut control];
    let mut event = [0u64; 4];
    // SAFETY: `list` holds one pointer to a filled control block, which the kernel copies; it reads
    // into no buffer, as `bytes` is 0.
    let submitted = unsafe {
        libc::syscall(libc::SYS_io_submit, context, 1 as libc::c_long, list.as_mut_ptr())
    };
    let failed = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    if submitted != 1 {
        return Err(failed());
    }
    let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `event` has room for the one `struct io_event` (32 bytes) that is asked for.
    let got = unsafe {
        libc::syscall(
            libc::SYS_io_getevents,
            context,
            0 as libc::c_long,
            1 as libc::c_long,
            event.as_mut_ptr(),
            &raw const no_time,
        )
    };
    if got < 0 { Err(failed()) } else { Ok(()) }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        if let Way::Aio { context, .. } = self.way {
            // SAFETY: the context is this value's own and nothing is under way in it.
            unsafe { libc::syscall(libc::SYS_io_destroy, context) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{OFlags, fcntl_setfl};

    #[test]
    fn rings_arrive_once() {
        for ringer in [Ringer::new(), Ringer::polling()] {
            let doorbell = new().expect("eventfd");
            assert_eq!(drain(&doorbell), Ok(false));
            for _ in 0..1000 {
                assert_eq!(ringer.ring(&doorbell), Ok(true));
            }
            assert_eq!(drain(&doorbell), Ok(true));
            assert_eq!(drain(&doorbell), Ok(false));
        }
    }

    /// facts.md: a holder can clear O_NONBLOCK and fill the counter; a plain write then sleeps for
    /// ever.
    #[test]
    fn a_filled_blocking_eventfd_stops_nobody() {
        let ringer = Ringer::new();
        assert!(
            ringer.never_sleeps(),
            "this kernel has no AIO: the test cannot show what it is for"
        );
        let doorbell = new().expect("eventfd");
        rustix::io::write(&doorbell, &(u64::MAX - 1).to_ne_bytes()).expect("filled");
        fcntl_setfl(&doorbell, OFlags::empty()).expect("blocking");
        assert_eq!(Ringer::polling().ring(&doorbell), Ok(false));
        for _ in 0..10 {
            assert!(ringer.ring(&doorbell).is_ok());
        }
        assert_eq!(drain(&doorbell), Ok(true), "it was full");
        assert_eq!(drain(&doorbell), Ok(false), "and a blocking read would sleep here");
    }

    #[test]
    fn something_else_is_no_doorbell() {
        let (pipe, _end) = std::io::pipe().expect("a pipe");
        assert_eq!(Ringer::new().ring(&pipe), Err(Errno::INVAL));
    }
}
