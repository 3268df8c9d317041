//! Names of users and groups as numbers, asked of the system once, when the configuration is read;
//! and whose process is at the other end of a socket.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::os::fd::AsFd;

/// A user's id.
pub(crate) fn user(name: &str) -> Option<u32> {
    nix::unistd::User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

/// A group's id.
pub(crate) fn group(name: &str) -> Option<u32> {
    nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}

/// The user of the process at the other end of a Unix socket.
///
/// rustix's `socket_peercred` is not for this: the kernel gives 0 for a process of another pid
/// namespace (socket(7), `SO_PEERCRED`), which rustix has no number for, and takes for an error.
pub(crate) fn of_peer(socket: &impl AsFd) -> nix::Result<u32> {
    getsockopt(socket, PeerCredentials).map(|other| other.uid())
}
