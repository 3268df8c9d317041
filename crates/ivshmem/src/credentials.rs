//! Who is at the other end of a unix socket, as the kernel noted it when the connection was made.

use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The process that connected: as it was then, whatever became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Process id; 0 where it lives in a pid namespace that this one cannot see into.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary group ids; empty before Linux 4.13.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Of the other end (`SO_PEERCRED` and `SO_PEERGROUPS`, unix(7)).
    ///
    /// # Errors
    /// The `errno` of getsockopt(2).
    pub fn of(socket: impl AsFd) -> Result<Self, Errno> {
        let mut cred = [libc::ucred { pid: 0, uid: 0, gid: 0 }];
        get(socket.as_fd(), libc::SO_PEERCRED, &mut cred)?;
        let [cred] = cred;
        // The kernel allows 65536 groups; whoever has more than this many is known by the first
        // ones.
        let mut groups = vec![0u32; 1024];
        let count = get(socket.as_fd(), libc::SO_PEERGROUPS, &mut groups).unwrap_or(0);
        groups.truncate(count);
        Ok(Self { pid: u32::try_from(cred.pid).unwrap_or(0), uid: cred.uid, gid: cred.gid, groups })
    }
}

/// getsockopt(2) at level SOL_SOCKET; how many whole values came.
fn get<T: Copy>(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    into: &mut [T],
) -> Result<usize, Errno> {
    let mut len = libc::socklen_t::try_from(size_of_val(into)).map_err(|_| Errno::INVAL)?;
    // SAFETY: `into` is writable for `len` bytes, and both callers' types are plain numbers, valid
    // with any bytes.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            into.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if got == 0 {
        Ok(len as usize / size_of::<T>())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_ourselves() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let known = Credentials::of(&one).expect("credentials");
        assert_eq!(known.pid, std::process::id());
        assert_eq!(known.uid, own_uid());
        let ours = std::fs::read_to_string("/proc/self/status").expect("proc");
        let line = ours.lines().find_map(|line| line.strip_prefix("Groups:")).expect("groups");
        let mut groups: Vec<u32> =
            line.split_whitespace().map(|gid| gid.parse().expect("a number")).collect();
        let mut seen = known.groups;
        groups.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, groups);
    }

    fn own_uid() -> u32 {
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("proc"))
    }
}
