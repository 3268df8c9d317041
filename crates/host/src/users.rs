//! Names of users and groups as numbers, asked of the system once, when the configuration is read.

/// A user's id.
pub(crate) fn user(name: &str) -> Option<u32> {
    nix::unistd::User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

/// A group's id.
pub(crate) fn group(name: &str) -> Option<u32> {
    nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}
