//! Joining a segment of `ginneld` as a process of the host: it gives the memory, and eventfds by
//! which it passes wake-ups on (docs/ginneld.md).
//!
//! System calls are made past the C library, whose functions the shim replaces. What the daemon
//! sends is checked as if it were a stranger's.

use ginnel_ivshmem::inbox::Inbox;
use ginnel_ivshmem::wire::{MAX_VECTORS, Message, Stage};
use ginnel_region::sys::{self, Fd};
use ginnel_region::{Error, MAX_PEER, Segment};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use syscalls::Sysno;

/// How long the daemon may take to answer when a program starts, nanoseconds.
const PATIENCE: u64 = 2_000_000_000;
/// Of the descriptors that a process may have, one in so many is for doorbells of machines. The
/// machines without one are woken over TCP.
const SHARE: u64 = 4;

/// Does a path name the daemon's socket, rather than a segment's file? Also where the daemon is
/// gone and its socket with it.
#[must_use]
pub fn is_socket(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sock")
        || path.metadata().is_ok_and(|meta| meta.file_type().is_socket())
}

/// A segment given as a file, a device or the socket of a daemon, for a look: from a daemon without
/// its doorbells.
///
/// # Errors
/// See [`Error`].
pub fn look(path: &Path) -> Result<Segment, Error> {
    if !is_socket(path) {
        return Segment::open(path);
    }
    open(path).map(|(segment, _)| segment)
}

/// Joins at the socket `path`, and maps what the daemon gives.
///
/// # Errors
/// System calls' errors, [`Error::NoDaemon`], [`Error::Refused`], and those of a segment.
pub(crate) fn open(path: &Path) -> Result<(Segment, Admission), Error> {
    let admission = join(path, sys::monotonic_ns() + PATIENCE, || {})?;
    let vectors = u16::try_from(admission.own.len()).unwrap_or(0);
    Ok((Segment::of_host(path, admission.memory.0, vectors)?, admission))
}

/// What a process has once it has joined.
pub(crate) struct Admission {
    /// As long as it is open, the process counts as attached.
    pub socket: Fd,
    pub memory: Fd,
    /// Doorbells of its own, vector 0 first. None where it was refused.
    pub own: Vec<Fd>,
    /// Doorbells of machines 1, 2, …, vector 0 first; those for which no descriptor was to spare
    /// are −1.
    pub machines: Vec<Fd>,
}

/// Joins by `until` (monotonic nanoseconds). `between` is called every few milliseconds meanwhile.
pub(crate) fn join(path: &Path, until: u64, mut between: impl FnMut()) -> Result<Admission, Error> {
    let spare = sys::descriptor_limit() / SHARE;
    let socket = connect(path)?;
    let (mut inbox, mut stage) = (Inbox::default(), Stage::default());
    let (mut memory, mut own, mut machines) = (None, Vec::new(), Vec::new());
    // How many doorbells the first machine has: as many has everybody, and the own come last.
    let mut vectors = 0;
    loop {
        // Also while something comes: one that sends a message now and then would have the program
        // wait for as long as it likes.
        if sys::monotonic_ns() >= until {
            return Err(Error::NoDaemon("nobody answers"));
        }
        // SAFETY: `socket` is open until the end of this function.
        let received = inbox.receive(unsafe { BorrowedFd::borrow_raw(socket.0) });
        let received = received.map_err(|_| {
            Error::NoDaemon("it closed the connection, or does not speak ginneld's protocol")
        })?;
        let Some((number, descriptor)) = received else {
            if refused(memory.as_ref()) {
                // Nothing more comes.
                break;
            }
            let _ = sys::poll(socket.0, libc::POLLIN, 5);
            between();
            continue;
        };
        let descriptor = descriptor.map(|descriptor| Fd(descriptor.into_raw_fd()));
        let (message, next) = stage
            .next(number, descriptor.is_some())
            .map_err(|_| Error::NoDaemon("it does not speak ginneld's protocol"))?;
        stage = next;
        match (message, descriptor) {
            (Message::Id(0) | Message::Version, None) => {}
            (Message::Id(_), _) => {
                return Err(Error::NoDaemon("this is a virtual machine's socket, not host.sock"));
            }
            (Message::Memory, Some(fd)) => memory = Some(high(fd)),
            (Message::Doorbell(0), Some(fd)) => own.push(high(fd)),
            (Message::Doorbell(peer), Some(fd)) => {
                vectors += usize::from(peer == 1);
                let in_order =
                    vectors > 0 && usize::from(peer) == machines.len() / vectors + 1 || peer == 1;
                if !in_order || peer > MAX_PEER || own.len() + vectors > usize::from(MAX_VECTORS) {
                    return Err(Error::NoDaemon("it does not serve as ginneld does"));
                }
                machines.push(if machines.len() as u64 >= spare { Fd(-1) } else { high(fd) });
            }
            _ => return Err(Error::NoDaemon("it does not serve as ginneld does")),
        }
        if own.len() > vectors {
            return Err(Error::NoDaemon("it does not serve as ginneld does"));
        }
        if vectors > 0 && own.len() == vectors && memory.is_some() {
            break;
        }
    }
    let memory = memory.ok_or(Error::NoDaemon("it gives no memory"))?;
    Ok(Admission { socket: high(socket), memory, own, machines })
}

/// Is it the memory of one who may not join? A hint, so as not to wait for doorbells:
/// [`Segment::of_host`] says.
fn refused(memory: Option<&Fd>) -> bool {
    memory.is_some_and(|memory| sys::fstat(memory.0).is_ok_and(|stat| stat.st_size <= 4096))
}

fn high(fd: Fd) -> Fd {
    Fd(sys::move_high(fd.take()))
}

fn connect(path: &Path) -> Result<Fd, Error> {
    let failed = |errno| Error::System { doing: "join ginneld", errno };
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all zeroes is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    if bytes.len() >= address.sun_path.len() {
        return Err(failed(libc::ENAMETOOLONG));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as usize;
    // SAFETY: no memory is passed.
    let socket = unsafe { sys::raw(Sysno::socket, [libc::AF_UNIX as usize, kind, 0, 0, 0, 0]) }
        .map_err(failed)?;
    let socket = Fd(socket as i32);
    let arguments =
        [socket.0 as usize, &raw const address as usize, size_of_val(&address), 0, 0, 0];
    // SAFETY: `address` is readable for its length.
    unsafe { sys::raw(Sysno::connect, arguments) }.map_err(failed)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_ivshmem::outbox::Outbox;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// A daemon that sends one doorbell after another, each just before the joiner would give up:
    /// 65,024 of them are allowed.
    #[test]
    fn a_daemon_that_goes_on_and_on_is_left_in_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("host.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        std::thread::spawn(move || {
            let (socket, _) = listener.accept().expect("a joiner");
            let memory = tempfile::tempfile().expect("a file");
            // Larger than what one is given who may not join.
            memory.set_len(1 << 20).expect("its size");
            let memory = Arc::new(memory.into());
            let bell = Arc::new(ginnel_ivshmem::doorbell::new().expect("an eventfd"));
            let mut outbox = Outbox::welcome(0, &memory, [], &[]);
            while outbox.flush(&socket).is_ok() {
                std::thread::sleep(Duration::from_millis(1));
                outbox = Outbox::new(1);
                let _ = outbox.push(Message::Doorbell(1), Some(bell.clone()));
            }
        });
        let (done, ended) = channel();
        std::thread::spawn(move || {
            let joined = join(&path, sys::monotonic_ns() + 50_000_000, || {});
            let _ = done.send(joined.map(drop));
        });
        let joined = ended.recv_timeout(Duration::from_secs(20)).expect("it has an end");
        assert_eq!(joined, Err(Error::NoDaemon("nobody answers")));
    }
}
