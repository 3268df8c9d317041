//! Listening sockets, and what is noted in connections.

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::net::sockopt::Timeout;
use std::fs::{self, Permissions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

/// Listens at `path`, in place of what an earlier instance left there. Its directory is there, and
/// its own ([`crate::rundir`]). Anybody may connect; who may join is decided by who connected.
///
/// # Errors
/// What failed.
pub fn listen(path: &Path) -> Result<OwnedFd> {
    let make = || -> Result<OwnedFd> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        refuse_descriptors(&listener);
        fs::set_permissions(path, Permissions::from_mode(0o666))?;
        Ok(listener.into())
    };
    make().with_context(|| {
        format!("{}: listen (a socket's path has at most 107 bytes)", path.display())
    })
}

/// Nobody has a descriptor to give to the daemon: where the kernel knows the option (Linux 6.16,
/// `asm-generic/socket.h`) who connects here cannot send one. See [`crate::patience`] for others.
fn refuse_descriptors(listener: impl AsFd) {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let (off, len): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: one int is readable. What the kernel does not know it refuses.
    unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            len,
        )
    };
}

/// Does this socket, of an earlier instance, listen at `path`, and is the path still there?
pub fn is_bound_to(socket: impl AsFd, path: &Path) -> bool {
    let bound = rustix::net::getsockname(socket)
        .ok()
        .and_then(|address| SocketAddrUnix::try_from(address).ok());
    path.exists()
        && bound.is_some_and(|address| {
            address.path_bytes() == Some(path.as_os_str().as_encoded_bytes())
        })
}

/// How far a machine's setup has come: noted in the socket itself, so that the next instance can
/// ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setup {
    /// Nothing has been sent.
    Unsent,
    /// Sending has begun, and may have got anywhere.
    Begun,
    /// All of it has been sent.
    Sent,
}

/// Notes it, as the time limit on blocking receives (SO_RCVTIMEO), of which we make none.
pub fn note_setup(socket: impl AsFd, setup: Setup) {
    let seconds = match setup {
        Setup::Unsent => None,
        Setup::Begun => Some(Duration::from_secs(1)),
        Setup::Sent => Some(Duration::from_secs(2)),
    };
    // It cannot fail on a socket; if it did, the next instance would think that less was sent.
    let _ = rustix::net::sockopt::set_socket_timeout(socket, Timeout::Recv, seconds);
}

/// What was noted.
pub fn setup(socket: impl AsFd) -> Setup {
    match rustix::net::sockopt::socket_timeout(socket, Timeout::Recv)
        .ok()
        .flatten()
        .map(|limit| limit.as_secs())
    {
        None => Setup::Unsent,
        Some(1) => Setup::Begun,
        Some(_) => Setup::Sent,
    }
}

/// What the kernel counts at least for a message that was not read (Linux, `SKB_TRUESIZE`; 768 on
/// 6.1).
const COUNTED: usize = 576;

/// Lets the other end leave about so many messages unread and no more, and at least eight, which is
/// the least that the kernel has.
pub fn limit_unread(socket: impl AsFd, messages: usize) {
    let bytes = messages.saturating_mul(COUNTED);
    // It cannot fail on a socket. The kernel doubles what is set, and gives the double.
    if rustix::net::sockopt::socket_send_buffer_size(&socket).is_ok_and(|now| now > bytes) {
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, bytes / 2);
    }
}

/// Has the other end read everything that was sent to it? (SIOCOUTQ, unix(7)) Also if the kernel
/// does not say.
pub fn has_read_all(socket: impl AsFd) -> bool {
    unread(socket).unwrap_or(0) == 0
}

fn unread(socket: impl AsFd) -> Result<libc::c_int, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ, which is SIOCOUTQ, writes one int.
    let asked = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if asked == 0 { Ok(bytes) } else { Err(Errno::IO) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn what_the_other_end_has_not_read_is_seen() {
        let (mut one, mut other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert!(has_read_all(&one));
        one.write_all(b"x").expect("written");
        assert!(!has_read_all(&one));
        other.read_exact(&mut [0]).expect("read");
        assert!(has_read_all(&one));
    }

    #[test]
    fn no_more_is_left_unread_than_the_limit() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        one.set_nonblocking(true).expect("set");
        let count = || (0..10_000).take_while(|_| (&one).write(&[0; 8]).is_ok()).count();
        limit_unread(&one, 20);
        assert!((8..=21).contains(&count()));
        limit_unread(&one, 200);
        assert_eq!(count(), 0, "never made larger");
    }

    #[test]
    fn what_is_noted_in_a_socket_stays_in_it() {
        let (one, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let copy = one.try_clone().expect("a copy, as a store has it");
        assert_eq!(setup(&copy), Setup::Unsent);
        for noted in [Setup::Begun, Setup::Sent] {
            note_setup(&one, noted);
            assert_eq!((setup(&copy), setup(&other)), (noted, Setup::Unsent));
        }
    }

    #[test]
    fn sockets_are_open_to_all_and_replace_what_was_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("1.sock");
        drop(listen(&path).expect("made"));
        let socket = listen(&path).expect("made again");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o666);
        assert!(is_bound_to(&socket, &path) && !is_bound_to(&socket, directory.path()));
        fs::remove_file(&path).expect("removed");
        assert!(!is_bound_to(&socket, &path), "nobody could reach it");
    }
}
