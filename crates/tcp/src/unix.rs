//! The sockets of the daemon's helpers, the prover's and the broker's: found by a path, trusted by
//! who listens there, and handed a descriptor beside a message. Each message is one packet
//! (SOCK_SEQPACKET, unix(7)). Nothing here allocates or waits.

use crate::kernel;
use ginnel_region::sys::{self, Fd};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use syscalls::Sysno;

/// The address of the path that `parts` make; `None`: it is too long for one.
pub(crate) fn address(parts: &[&OsStr]) -> Option<libc::sockaddr_un> {
    // SAFETY: all zeroes is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let mut room = address.sun_path.iter_mut();
    for from in parts.iter().flat_map(|part| part.as_bytes()) {
        *room.next()? = *from as libc::c_char;
    }
    // The zero at its end.
    room.next()?;
    Some(address)
}

/// A connection to `address`, whose calls do not wait. `None`: nobody is there, or somebody who is
/// not to be trusted with a socket: neither root, nor this user, nor the owner of `path`.
pub(crate) fn connect(address: &libc::sockaddr_un, path: &Path) -> Option<Fd> {
    let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as usize;
    // SAFETY: no memory is passed.
    let socket =
        unsafe { sys::raw(Sysno::socket, [libc::AF_UNIX as usize, kind, 0, 0, 0, 0]) }.ok()?;
    let socket = Fd(i32::try_from(socket).ok()?);
    let arguments =
        [socket.0 as usize, &raw const *address as usize, size_of_val(address), 0, 0, 0];
    // SAFETY: `address` is readable for its length.
    unsafe { sys::raw(Sysno::connect, arguments) }.ok()?;
    let mut listener = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    kernel::getsockopt(socket.0, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut listener).ok()?;
    let own = sys::effective_ids().0;
    [0, own, stat(path)?.st_uid].contains(&listener.uid).then_some(socket)
}

/// Is there a socket at `path`?
pub(crate) fn is_there(path: &Path) -> bool {
    stat(path).is_some_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFSOCK)
}

fn stat(path: &Path) -> Option<libc::stat> {
    // As long as an address can be.
    let mut room = [0u8; 108];
    let bytes = path.as_os_str().as_bytes();
    room.get_mut(..bytes.len())?.copy_from_slice(bytes);
    sys::stat(CStr::from_bytes_until_nul(&room).ok()?).ok()
}

/// What lies beside a message: descriptors, or room for so many (SCM_RIGHTS).
#[repr(C)]
struct Rights<const N: usize> {
    header: libc::cmsghdr,
    fds: [i32; N],
}

impl<const N: usize> Rights<N> {
    /// Bytes of it, without what the compiler puts behind them: there would be room for another
    /// descriptor, and the kernel closes what has none.
    const LEN: usize = size_of::<libc::cmsghdr>() + size_of::<[i32; N]>();

    fn new(fds: [i32; N]) -> Self {
        // SAFETY: all zeroes is a valid value. (musl's has a member more, which is padding.)
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        (header.cmsg_len, header.cmsg_level, header.cmsg_type) =
            (Self::LEN as _, libc::SOL_SOCKET, libc::SCM_RIGHTS);
        Self { header, fds }
    }

    /// How many descriptors the kernel put there.
    fn count(&self, message: &libc::msghdr) -> usize {
        let is_rights =
            self.header.cmsg_level == libc::SOL_SOCKET && self.header.cmsg_type == libc::SCM_RIGHTS;
        let are_there = |count: &usize| {
            let bytes = size_of::<libc::cmsghdr>() + count * size_of::<i32>();
            self.header.cmsg_len >= bytes as _ && message.msg_controllen >= bytes as _
        };
        if is_rights { (1..=N).take_while(are_there).count() } else { 0 }
    }
}

fn message<const N: usize>(part: &mut libc::iovec, rights: &mut Rights<N>) -> libc::msghdr {
    // SAFETY: all zeroes is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (std::ptr::from_mut(part), 1);
    (message.msg_control, message.msg_controllen) =
        (std::ptr::from_mut(rights).cast(), Rights::<N>::LEN as _);
    message
}

/// Sends a message with the descriptor `fd` beside it.
///
/// # Errors
/// The `errno`; EAGAIN where what was sent before is not read yet.
pub(crate) fn send(socket: i32, bytes: &[u8], fd: i32) -> Result<(), i32> {
    let mut rights = Rights::new([fd]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let message = message(&mut part, &mut rights);
    let flags = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as usize;
    // SAFETY: the message and all that it names live until the call returns.
    unsafe {
        sys::raw(Sysno::sendmsg, [socket as usize, &raw const message as usize, flags, 0, 0, 0])
    }
    .map(drop)
}

/// Receives a message into `bytes`: how long it is, and the first of the descriptors that were
/// beside it, in their order.
///
/// # Errors
/// The `errno`; EAGAIN where nothing has come.
pub(crate) fn receive<const N: usize>(
    socket: i32,
    bytes: &mut [u8],
) -> Result<(usize, [Option<Fd>; N]), i32> {
    let mut rights = Rights::new([-1; N]);
    rights.header.cmsg_type = 0;
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = message(&mut part, &mut rights);
    let flags = (libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) as usize;
    // SAFETY: the message and all that it names live until the call returns, and are writable.
    let received = unsafe {
        sys::raw(Sysno::recvmsg, [socket as usize, &raw mut message as usize, flags, 0, 0, 0])
    }?;
    let mut came = rights.fds.into_iter().take(rights.count(&message));
    Ok((received, [(); N].map(|()| came.next().map(Fd))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;

    /// Whoever listens may send more than was asked for: nothing of that stays open.
    #[test]
    fn of_several_descriptors_one_is_taken_and_none_is_left_open() {
        let (ours, theirs) = UnixDatagram::pair().expect("sockets");
        for count in [1usize, 2, 3, 10] {
            let pipes: Vec<_> = (0..count).map(|_| std::io::pipe().expect("a pipe")).collect();
            let fds: Vec<i32> = pipes.iter().map(|(_, writer)| writer.as_raw_fd()).collect();
            let mut room = vec![0u64; 16];
            let mut part = libc::iovec { iov_base: fds.as_ptr().cast_mut().cast(), iov_len: 1 };
            // SAFETY: all zeroes is a valid value.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
            message.msg_control = room.as_mut_ptr().cast();
            let bytes = size_of_val(&fds[..]);
            // SAFETY: the room holds a header and so many descriptors.
            unsafe {
                message.msg_controllen = libc::CMSG_SPACE(bytes as u32) as _;
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                (*header).cmsg_len = libc::CMSG_LEN(bytes as u32) as _;
                ((*header).cmsg_level, (*header).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
                std::ptr::copy_nonoverlapping(
                    fds.as_ptr().cast::<u8>(),
                    libc::CMSG_DATA(header),
                    bytes,
                );
                assert_eq!(libc::sendmsg(theirs.as_raw_fd(), &raw const message, 0), 1);
            }
            let (received, [taken]) = receive(ours.as_raw_fd(), &mut [0; 8]).expect("a message");
            assert!(received == 1 && taken.is_some());
            drop(taken);
            for (mut reader, writer) in pipes {
                drop(writer);
                // At the end as soon as nobody has the other one open.
                let set = set_nonblocking(reader.as_raw_fd());
                assert_eq!(
                    (set, reader.read(&mut [0]).map_err(|error| error.kind())),
                    (0, Ok(0)),
                    "{count} descriptors"
                );
            }
        }
    }

    fn set_nonblocking(fd: i32) -> i32 {
        // SAFETY: no memory is passed.
        unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }
    }
}
