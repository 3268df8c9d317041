//! Sockets and tap devices: opened before a port or a device is there that has them, so that a
//! configuration is taken as a whole or not at all ([`crate::reload`]).

use crate::tap::Tap;
use anyhow::Context;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{connect, shutdown, socket_with};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A path at which front ends, or programs of the host, connect.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The path.
    pub socket: &'a Path,
    /// Permissions of the socket.
    pub mode: u32,
    /// Its group, if it is not the switch's.
    pub group: Option<u32>,
}

/// What is open and belongs to nobody yet. What nobody takes is closed and taken away again.
#[derive(Debug, Default)]
pub struct Places {
    sockets: HashMap<PathBuf, UnixListener>,
    taps: HashMap<String, Tap>,
    /// Directories that were made for the sockets: each before those that it lies in.
    directories: Vec<PathBuf>,
}

impl Places {
    /// Opens a socket that somebody is to take.
    ///
    /// # Errors
    /// Those of the system, with the path.
    pub fn open_socket(&mut self, place: Place<'_>) -> anyhow::Result<()> {
        let above = place.socket.ancestors().skip(1);
        let missing: Vec<_> = above.take_while(|one| !one.exists()).map(Path::to_owned).collect();
        self.directories.splice(..0, missing);
        self.sockets.insert(place.socket.to_owned(), listen(place)?);
        Ok(())
    }

    /// Has a socket that was somebody's, and that another is to take.
    pub fn put_socket(&mut self, path: PathBuf, listener: UnixListener) {
        self.sockets.insert(path, listener);
    }

    /// Opens a tap device that somebody is to take.
    ///
    /// # Errors
    /// Those of the system, with the name.
    pub fn open_tap(&mut self, name: &str) -> anyhow::Result<()> {
        self.taps.insert(name.to_owned(), tap(name)?);
        Ok(())
    }

    /// The socket at a path: the one that is open, or else it is opened now.
    ///
    /// # Errors
    /// Those of the system, with the path.
    pub fn socket(&mut self, place: Place<'_>) -> anyhow::Result<UnixListener> {
        self.sockets.remove(place.socket).map_or_else(|| listen(place), Ok)
    }

    /// A tap device: the one that is open, or else it is opened now.
    ///
    /// # Errors
    /// Those of the system, with the name.
    pub fn tap(&mut self, name: &str) -> anyhow::Result<Tap> {
        self.taps.remove(name).map_or_else(|| tap(name), Ok)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for (path, listener) in self.sockets.drain() {
            // Whoever has a copy of it, for a moment or longer, does not serve it either.
            let _ = shutdown(&listener, Shutdown::Both);
            drop(listener);
            take_away(&path);
        }
        for directory in &self.directories {
            // One with a socket in it stays, and so does whatever it lies in.
            let _ = std::fs::remove_dir(directory);
        }
    }
}

fn tap(name: &str) -> anyhow::Result<Tap> {
    Tap::open(name).with_context(|| format!("tap device {name}"))
}

/// Takes away a socket at which nobody listens any more.
pub fn take_away(path: &Path) {
    let is_socket = path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && !is_served(path) {
        // Whoever comes next takes it away, too.
        let _ = std::fs::remove_file(path);
    }
}

/// Does anybody listen there? Never waits, as for one whose queue is full.
fn is_served(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(socket) = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else {
        return true;
    };
    let connected = SocketAddrUnix::new(path).and_then(|address| connect(&socket, &address));
    !matches!(connected, Err(Errno::CONNREFUSED | Errno::NOENT))
}

/// Listens at a path. What a switch that is gone left there is taken away; one that lives, or a
/// file that is no socket, is left alone.
pub(crate) fn listen(place: Place<'_>) -> anyhow::Result<UnixListener> {
    let path = place.socket.display();
    bind(place).with_context(|| format!("{path}: cannot listen"))
}

fn bind(Place { socket: path, mode, group }: Place<'_>) -> io::Result<UnixListener> {
    if let Ok(meta) = path.symlink_metadata() {
        if !meta.file_type().is_socket() {
            return Err(io::Error::other("the path is taken by something that is no socket"));
        }
        if is_served(path) {
            let why = "somebody listens there: another switch, or this one as something else";
            return Err(io::Error::other(why));
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    if let Err(error) = give(Place { socket: path, mode, group }) {
        // Nobody is to find a socket at which nobody listens.
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(listener)
}

/// Says who may connect to a socket.
///
/// # Errors
/// Those of the system, and that something else is at the path.
pub fn give(Place { socket, mode, group }: Place<'_>) -> io::Result<()> {
    let file = opened(socket)?;
    // A descriptor of this kind has no fchmod(2); its link leads to the same file, whatever is at
    // the path by now.
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let set = |mode| rustix::fs::chmod(&link, Mode::from_raw_mode(mode));
    if let Some(group) = group {
        // What the new group may do is not for the old one, nor the other way round.
        set(mode & !0o070)?;
        let group = Some(rustix::fs::Gid::from_raw(group));
        rustix::fs::chownat(&file, "", None, group, AtFlags::EMPTY_PATH)?;
    }
    Ok(set(mode)?)
}

/// Permissions and group of a socket: a [`Place`] to give it back to.
///
/// # Errors
/// As of [`give`].
pub fn given(socket: &Path) -> io::Result<Place<'_>> {
    let stat = rustix::fs::fstat(opened(socket)?)?;
    Ok(Place { socket, mode: stat.st_mode & 0o7777, group: Some(stat.st_gid) })
}

/// The socket at a path itself, neither what a link leads to nor a file of another kind.
fn opened(socket: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(socket, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind == FileType::Socket { Ok(file) } else { Err(io::Error::other("it is no socket")) }
}
