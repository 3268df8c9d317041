//! Waking by a FIFO, between processes of one kernel: a file in `SEGMENT.wake/`, called after a
//! number that stands in the waiter's page.

use super::lock::Lock;
use ginnel_region::sys;
use std::ffi::CString;

/// Bytes of a FIFO that are read in one call …
const EMPTIED_AT_ONCE: usize = 256;
/// … and in all: as many as it holds at most, where whoever opened it enlarged it
/// (`fs.pipe-max-size`).
const LARGEST: usize = 1 << 20;

/// The file's name.
pub(crate) fn name(id: u64) -> CString {
    CString::new(format!("w{id:016x}")).unwrap_or_default()
}

/// Reads a FIFO empty, of all that was in it before: a peer that goes on writing does not hold the
/// caller up. What it writes meanwhile wakes once more.
pub(crate) fn empty(fifo: i32) {
    let mut bytes = [0u8; EMPTIED_AT_ONCE];
    for _ in 0..LARGEST / EMPTIED_AT_ONCE {
        if !sys::read(fifo, &mut bytes).is_ok_and(|n| n == bytes.len()) {
            break;
        }
    }
}

const CACHED: usize = 128;

/// Open FIFOs of other waiters, so that waking one is one system call.
pub(crate) struct Cache {
    lock: Lock,
    /// Told of each descriptor that is made (true) or is about to be closed (false).
    on_descriptor: fn(i32, bool),
    entries: std::cell::UnsafeCell<([(u64, i32); CACHED], usize)>,
}

// SAFETY: `entries` is only touched under `lock`.
unsafe impl Sync for Cache {}
// SAFETY: plain numbers.
unsafe impl Send for Cache {}

impl Cache {
    pub(crate) fn new(on_descriptor: fn(i32, bool)) -> Self {
        let entries = std::cell::UnsafeCell::new(([(0, -1); CACHED], 0));
        Self { lock: Lock::new(), on_descriptor, entries }
    }

    fn disown(&self, fd: i32) {
        if fd >= 0 {
            (self.on_descriptor)(fd, false);
            sys::close(fd);
        }
    }

    /// In a fork child: another thread of the parent may have held the lock.
    pub(crate) fn forget_lock(&self) {
        self.lock.forget();
    }

    /// Does no thread hold the lock at the moment?
    pub(crate) fn is_free(&self) -> bool {
        self.lock.is_free()
    }

    /// Closes what is open.
    pub(crate) fn close(&self) {
        let _ = self.lock.with(|| {
            // SAFETY: under the lock.
            for entry in &mut unsafe { &mut *self.entries.get() }.0 {
                self.disown(std::mem::replace(entry, (0, -1)).1);
            }
        });
    }

    /// See [`crate::joined::Joined::moved`].
    pub(crate) fn moved(&self, from: i32, to: i32) -> bool {
        let put = || {
            // SAFETY: under the lock.
            let (entries, _) = unsafe { &mut *self.entries.get() };
            let known = entries.iter_mut().find(|(_, fd)| *fd == from);
            known.map(|(_, fd)| *fd = to).is_some()
        };
        // Where the lock was left behind, nothing that is open here is used any more.
        self.lock.with(put).unwrap_or(false)
    }

    /// Writes into the FIFO of this number, in the directory `dir`.
    pub(crate) fn write(&self, dir: i32, id: u64) -> sys::Result<()> {
        // A thread that left its work here by `siglongjmp` never gives the lock back, and one that
        // lost the processor here does not for long. All that ring the same sleeper, which nobody
        // has woken then, would wait for it: in a program in Go each of them lets Go start another
        // thread for the next one.
        self.lock.soon(|| self.write_by_known(dir, id)).unwrap_or_else(|| {
            let fd = sys::move_high(open(dir, id)?);
            (self.on_descriptor)(fd, true);
            let written = wake_by(fd);
            self.disown(fd);
            written
        })
    }

    /// [`Self::write`], under the lock.
    fn write_by_known(&self, dir: i32, id: u64) -> sys::Result<()> {
        // SAFETY: under the lock.
        let (entries, next) = unsafe { &mut *self.entries.get() };
        let place = (id as usize) % CACHED;
        let known =
            entries.iter().cycle().skip(place).take(4).find(|(known, fd)| *known == id && *fd >= 0);
        let opened = match known {
            Some((_, fd)) => Ok(*fd),
            None => open(dir, id).map(|fd| {
                let fd = sys::move_high(fd);
                *next = next.wrapping_add(1);
                if let Some(victim) = entries.get_mut((place + *next % 4) % CACHED) {
                    self.disown(victim.1);
                    (self.on_descriptor)(fd, true);
                    *victim = (id, fd);
                }
                fd
            }),
        };
        opened.and_then(wake_by)
    }
}

/// Writes a byte. A FIFO that is full has been written to.
fn wake_by(fifo: i32) -> sys::Result<()> {
    match sys::write(fifo, &[0]) {
        Ok(_) | Err(libc::EAGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Opens a FIFO that this process has just made, and gives others the rights to it that they have
/// to the segment: only if it is that FIFO. Who owns the directory may have put something else
/// there.
pub(crate) fn open_own(dir: i32, id: u64, mode: u32) -> sys::Result<i32> {
    let fd = open(dir, id)?;
    let is_own = sys::fstat(fd)
        .is_ok_and(|stat| stat.st_uid == sys::effective_ids().0 && stat.st_nlink == 1);
    let shared = if is_own { sys::fchmod(fd, mode) } else { Err(libc::EPERM) };
    shared.map(|()| fd).inspect_err(|_| sys::close(fd))
}

/// Opens a waiter's FIFO. Where several users share the directory, anything may stand under that
/// name.
pub(crate) fn open(dir: i32, id: u64) -> sys::Result<i32> {
    let fd = sys::openat(dir, &name(id), libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOFOLLOW, 0)?;
    match sys::fstat(fd) {
        Ok(stat) if stat.st_mode & libc::S_IFMT == libc::S_IFIFO => Ok(fd),
        _ => {
            sys::close(fd);
            Err(libc::EINVAL)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_region::sys::Fd;

    /// Whoever owns the directory of FIFOs puts a link to a file of this user's in a FIFO's place.
    #[test]
    fn what_stands_in_a_fifos_place_is_left_alone() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::{PermissionsExt, symlink};
        let place = tempfile::tempdir().expect("a directory");
        let secret = place.path().join("secret");
        std::fs::write(&secret, "own").expect("written");
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("ours");
        let dir = std::fs::File::open(place.path()).expect("there");
        let named = |id: u64| place.path().join(name(id).to_str().expect("ASCII"));
        symlink(&secret, named(1)).expect("made");
        std::fs::hard_link(&secret, named(2)).expect("made");
        for id in [1, 2] {
            assert!(open_own(dir.as_raw_fd(), id, 0o666).is_err());
        }
        assert_eq!(std::fs::metadata(&secret).expect("there").permissions().mode() & 0o777, 0o600);
        sys::mkfifoat(dir.as_raw_fd(), &name(3), 0o600).expect("made");
        sys::close(open_own(dir.as_raw_fd(), 3, 0o660).expect("its own"));
        assert_eq!(std::fs::metadata(named(3)).expect("there").permissions().mode() & 0o777, 0o660);
    }

    /// The sleeper is rung while another holds the lock, by a descriptor that is made known, and
    /// closed again.
    #[test]
    fn who_holds_the_lock_holds_up_nobody() {
        use std::os::fd::AsRawFd;
        use std::sync::Mutex;
        static TOLD: Mutex<Vec<(i32, bool)>> = Mutex::new(Vec::new());
        let place = tempfile::tempdir().expect("a directory");
        let dir = std::fs::File::open(place.path()).expect("there");
        sys::mkfifoat(dir.as_raw_fd(), &name(7), 0o600).expect("made");
        let sleeper = Fd(open(dir.as_raw_fd(), 7).expect("there"));
        let cache = Cache::new(|fd, made| TOLD.lock().expect("whole").push((fd, made)));
        let rung = || sys::poll(sleeper.0, libc::POLLIN, 0) == libc::POLLIN;
        let within = cache.lock.with(|| {
            let written = cache.write(dir.as_raw_fd(), 7);
            (written, rung(), TOLD.lock().expect("whole").clone())
        });
        let (written, came, told) = within.expect("nobody else wants it");
        assert!(written.is_ok() && came);
        let number = told.first().expect("it is told of").0;
        assert_eq!(told, [(number, true), (number, false)]);
    }

    /// The program's descriptor of that number gets nothing; the FIFO is rung by its other one.
    #[test]
    fn a_number_that_the_program_takes_is_no_fifos() {
        use std::io::Read;
        use std::os::fd::AsRawFd;
        use std::os::unix::net::UnixStream;
        let place = tempfile::tempdir().expect("a directory");
        let dir = std::fs::File::open(place.path()).expect("there");
        sys::mkfifoat(dir.as_raw_fd(), &name(7), 0o600).expect("made");
        let sleeper = Fd(open(dir.as_raw_fd(), 7).expect("there"));
        let cache = Cache::new(|_, _| {});
        cache.write(dir.as_raw_fd(), 7).expect("there");
        // SAFETY: under no lock that anybody else would want.
        let entries = unsafe { &(*cache.entries.get()).0 };
        let number = entries.iter().find(|(id, _)| *id == 7).expect("kept").1;
        empty(sleeper.0);

        let copy = sys::fcntl(number, libc::F_DUPFD_CLOEXEC, 3).expect("a number");
        let copy = i32::try_from(copy).expect("a number");
        assert!(!cache.moved(number + 1000, copy) && cache.moved(number, copy));
        let (mine, mut beside) = UnixStream::pair().expect("sockets");
        // SAFETY: both are open.
        assert_eq!(unsafe { libc::dup2(mine.as_raw_fd(), number) }, number);
        cache.write(dir.as_raw_fd(), 7).expect("there");
        assert_eq!(sys::poll(sleeper.0, libc::POLLIN, 0), libc::POLLIN, "it is rung");
        beside.set_nonblocking(true).expect("a flag");
        assert!(beside.read(&mut [0]).is_err(), "nothing came, and it is open");
        cache.close();
        assert!(beside.read(&mut [0]).is_err(), "it is not closed either");
        sys::close(number);
    }

    /// A peer that writes as fast as it is read, for ever: what is emptied here never runs out.
    #[test]
    fn emptying_a_fifo_ends_while_somebody_goes_on_writing() {
        use std::os::fd::IntoRawFd;
        let endless = std::fs::File::open("/dev/zero").expect("there").into_raw_fd();
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            empty(endless);
            let _ = done.send(());
        });
        ended
            .recv_timeout(std::time::Duration::from_secs(20))
            .expect("it reads for as long as somebody writes");
        sys::close(endless);
    }
}
