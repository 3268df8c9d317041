//! How a neighbour is handed the memory: a unix socket in the user's Ginnel directory.
//!
//! The server says who it is and hands over a descriptor of the memory, which can only be read
//! ([`memory`](crate::memory)). The client may hand back a ring of hints ([`hints`](crate::hints)),
//! and keeps the connection for as long as it reads. Directory and socket are the user's alone, and
//! either end asks the kernel who the other is: memory goes from a user to the same user.

use crate::accept::{AT_ONCE, Waiting};
use crate::hints::{RING_BYTES, Source};
use crate::layout::{MAGIC, VERSION};
use crate::memory::{self, Memory, View};
use crate::protocol::Connections;
use mio::event::Source as _;
use mio::net::{UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Neighbours at once. The next one asks over the protocol.
pub const MOST: usize = 1024;
/// For so long a client waits at a door.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of either side's greeting: [`MAGIC`], [`VERSION`], generation.
const GREETING: usize = 24;

/// The server's end: who asks, and who has the memory.
#[derive(Debug)]
pub struct Door {
    listener: UnixListener,
    path: PathBuf,
    memory: OwnedFd,
    greeting: [u8; GREETING],
    guests: HashMap<usize, Guest>,
    next: usize,
    connections: Arc<Connections>,
}

#[derive(Debug)]
struct Guest {
    stream: UnixStream,
    over: Arc<AtomicBool>,
    has_ring: bool,
}

fn greeting(generation: u64) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    for (part, word) in bytes.chunks_exact_mut(8).zip([MAGIC, VERSION, generation]) {
        part.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// Returns the directory for the user's sockets: `GINNEL_DIR`, else in `/dev/shm`, else in
/// `XDG_RUNTIME_DIR`, else in `/tmp`.
#[must_use]
pub fn directory() -> PathBuf {
    if let Some(named) = std::env::var_os("GINNEL_DIR") {
        return named.into();
    }
    let name = format!("ginnel-{}", rustix::process::geteuid().as_raw());
    if Path::new("/dev/shm").is_dir() {
        return Path::new("/dev/shm").join(name);
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from).join(name)
}

/// Is the directory, which is there, the effective user's alone?
///
/// # Errors
/// What is wrong with it, in words.
pub fn check_directory(directory: &Path) -> io::Result<()> {
    let shown = directory.display();
    let data = directory.symlink_metadata()?;
    let me = rustix::process::geteuid().as_raw();
    let wrong = if !data.is_dir() {
        format!("{shown} is no directory")
    } else if data.uid() != me {
        format!("{shown} belongs to user {}, not to {me}", data.uid())
    } else if data.mode() & 0o077 != 0 {
        format!("{shown} gives others rights: chmod 700 {shown}")
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, wrong))
}

impl Door {
    /// Opens a door to `memory`.
    ///
    /// # Errors
    /// Why there is none: a directory that others may write, mostly.
    pub fn open(
        generation: u64,
        memory: OwnedFd,
        connections: Arc<Connections>,
    ) -> io::Result<Self> {
        let directory = directory();
        match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => check_directory(&directory)?,
        }
        remove_dead(&directory);
        let path = directory.join(format!("cache-{generation:016x}.sock"));
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        let greeting = greeting(generation);
        let guests = HashMap::new();
        Ok(Self { listener, path, memory, greeting, guests, next: 0, connections })
    }

    /// Returns the socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether nobody has the memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.guests.is_empty()
    }

    /// Has `registry` tell who asks.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.listener.register(registry, token, Interest::READABLE)
    }

    /// Hands the memory to all who ask. Their tokens are numbers above `first`.
    pub fn let_in(&mut self, registry: &Registry, first: usize) -> Waiting {
        for _ in 0..AT_ONCE {
            match self.listener.accept() {
                Ok((stream, _)) if self.guests.len() < MOST && is_same_user(&stream) => {
                    self.hand_over(stream, registry, first);
                }
                Ok(_) => {}
                Err(error) => {
                    if let Some(waiting) = Waiting::after(&error) {
                        return waiting;
                    }
                }
            }
        }
        Waiting::Perhaps
    }

    fn hand_over(&mut self, mut stream: UnixStream, registry: &Registry, first: usize) {
        if send(&stream, &self.greeting, Some(self.memory.as_fd())).is_err() {
            return;
        }
        self.next += 1;
        let token = first + self.next;
        if stream.register(registry, Token(token), Interest::READABLE).is_ok() {
            let guest = Guest { stream, over: Arc::default(), has_ring: false };
            self.guests.insert(token, guest);
            self.connections.neighbours.store(self.guests.len() as u64, Ordering::Relaxed);
        }
    }

    /// Hears all that a guest has to say, since the next of it is not told of apart: it hands over
    /// its ring of hints, or leaves, or breaks the rules, which is taken as leaving.
    pub fn hear(&mut self, token: usize) -> Option<Source> {
        let mut source = None;
        loop {
            let guest = self.guests.get_mut(&token)?;
            let mut bytes = [0; GREETING];
            let ring = match receive(&guest.stream, &mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return source,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok((GREETING, Some(ring))) if bytes == self.greeting && !guest.has_ring => ring,
                _ => {
                    guest.over.store(true, Ordering::Relaxed);
                    self.guests.remove(&token);
                    self.connections.neighbours.store(self.guests.len() as u64, Ordering::Relaxed);
                    return None;
                }
            };
            guest.has_ring = true;
            let view = memory::open(ring).ok().filter(|view| view.len() * 8 == RING_BYTES);
            source = view.map(|view| Source::new(view, guest.over.clone()));
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Takes away the sockets of servers that are no more.
fn remove_dead(directory: &Path) {
    let Ok(entries) = directory.read_dir() else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_door =
            name.to_str().is_some_and(|name| name.starts_with("cache-") && name.ends_with(".sock"));
        let refused = || {
            let tried = connect(&entry.path(), Duration::from_millis(100));
            tried.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if is_door && refused() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// (Not by rustix: the kernel says 0 for a process of another pid namespace, socket(7), and rustix
/// takes that for an error.)
fn is_same_user(stream: &impl AsFd) -> bool {
    getsockopt(stream, PeerCredentials)
        .is_ok_and(|other| other.uid() == rustix::process::geteuid().as_raw())
}

fn send(stream: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let sent =
        rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives at most one message and one descriptor.
fn receive(stream: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let mut fd = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.last().or(fd);
        }
    }
    Ok((got.bytes, fd))
}

/// Connects to a unix socket. Neither that, nor what is done with the connection, waits for longer
/// than `timeout`: a server that stands still lets nobody in, and its queue gets full.
pub(crate) fn connect(
    path: &Path,
    timeout: Duration,
) -> io::Result<std::os::unix::net::UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(timeout))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(timeout))?;
    let address = SocketAddrUnix::new(path)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address))?;
    Ok(socket.into())
}

/// What a neighbour has of a server's memory.
#[derive(Debug)]
pub struct Entry {
    /// The memory.
    pub view: View,
    /// The ring of hints, for whoever writes it.
    pub ring: Memory,
    /// Number of the server's start.
    pub generation: u64,
    /// Kept: by its end the server sees that of the neighbour.
    pub stream: std::os::unix::net::UnixStream,
}

/// Asks at the door for the memory of the server whose socket lies at `path`.
///
/// # Errors
/// Why it is not to be had: no such server here, another user's, another version.
pub fn enter(path: &Path) -> io::Result<Entry> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    // The server's path; where the directory has another name here, the socket's name is enough.
    let name = path.file_name().ok_or_else(|| bad("no name of a socket"))?;
    let directory = directory();
    check_directory(&directory)?;
    let stream = connect(&directory.join(name), PATIENCE).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let place = directory.display();
            let why = "the server is on another kernel, or has another GINNEL_DIR";
            io::Error::new(error.kind(), format!("its memory is not handed out in {place}: {why}"))
        }
        _ => error,
    })?;
    if !is_same_user(&stream) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user's server"));
    }
    let mut bytes = [0; GREETING];
    let (count, fd) = receive(&stream, &mut bytes)?;
    let word = |at: usize| {
        let word = bytes.get(at * 8..at * 8 + 8).and_then(|part| part.try_into().ok());
        u64::from_ne_bytes(word.unwrap_or_default())
    };
    if count != GREETING || word(0) != MAGIC || word(1) != VERSION {
        return Err(bad("the server has another version"));
    }
    let view = memory::open(fd.ok_or_else(|| bad("the server handed over no memory"))?)?;
    let (ring, ring_fd) = memory::create("ginnel-cache-hints", RING_BYTES)?;
    send(&stream, &bytes, Some(ring_fd.as_fd()))?;
    Ok(Entry { view, ring, generation: word(2), stream })
}
