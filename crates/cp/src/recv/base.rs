//! Where what arrives is to lie: rsync's rules for a destination.
//!
//! A directory that is there: in it. Otherwise one file or link becomes what the destination names,
//! unless that ends in a slash; anything else makes a directory of that name.

use crate::failure::{Code, Failure, Result};
use crate::names;
use crate::tree::{self, Tree};
use crate::wire::Order;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::Error;
use std::os::fd::OwnedFd;

/// What a destination is looked up from.
#[derive(Clone, Copy)]
pub enum From<'a> {
    /// The user's own paths.
    User,
    /// What a server offers, and nothing outside of it.
    Root(&'a OwnedFd),
}

/// The directory in which everything lies.
pub struct Base {
    /// `None`: it is not there, and nothing is to be made.
    pub tree: Option<Tree>,
    /// What the one thing that is copied is called here, where it is not its own name.
    pub rename: Option<Vec<u8>>,
}

impl From<'_> {
    fn open(self, path: &[u8]) -> std::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = if path.is_empty() { b"." } else { path };
        match self {
            Self::User => Ok(rustix::fs::open(path, flags, Mode::empty())?),
            Self::Root(root) => tree::open_beneath(root, path, flags),
        }
    }

    /// Paths of a peer begin at the root, with or without a slash.
    fn start(self, path: &[u8]) -> &[u8] {
        match self {
            Self::User => path,
            Self::Root(_) => {
                let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
                &path[start..]
            }
        }
    }
}

/// Finds or makes the base of `path`. `single`: one file or link is to come.
///
/// # Errors
/// What the path is, or leads to, and what to do.
pub fn find(from: From<'_>, path: &[u8], single: bool, order: &Order) -> Result<Base> {
    let failed = |doing: &str, error: &Error| match tree::leads_out(error) {
        true => Failure::new(
            Code::Files,
            format!("{}: it leads out of the directory that is offered", names::shown(path)),
        ),
        false => Failure::of_path(Code::Files, doing, path, error),
    };
    let whole = from.start(path);
    let error = match from.open(whole) {
        Ok(dir) => return Ok(Base { tree: Some(Tree::new(dir)), rename: None }),
        Err(error) => error,
    };
    let bare = whole.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let is_directory = bare < whole.len() || !single;
    let (_, name) = names::split(&whole[..bare]);
    let directory = &whole[..bare - name.len()];
    match error.raw_os_error() {
        Some(libc::ENOTDIR) if is_directory => {
            // A part of the way may be a file, too; the words fit both.
            return Err(failed("the destination has to be a directory", &error));
        }
        Some(libc::ENOENT | libc::ENOTDIR) if names::check_name(name).is_ok() => {}
        // A link in its place is replaced, wherever it leads.
        Some(libc::ELOOP | libc::EXDEV) if !is_directory && names::check_name(name).is_ok() => {}
        _ => return Err(failed("opening the destination", &error)),
    }
    let dir = from.open(directory);
    let dir = dir.map_err(|error| failed("opening the destination's directory", &error))?;
    if !is_directory {
        return Ok(Base { tree: Some(Tree::new(dir)), rename: Some(name.to_vec()) });
    }
    if order.dry_run {
        return Ok(Base { tree: None, rename: None });
    }
    match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed("making the destination", &errno.into())),
    }
    if order.fsync {
        let synced = rustix::fs::fsync(&dir);
        synced.map_err(|errno| failed("making the destination", &errno.into()))?;
    }
    let made = Tree::new(dir);
    let base = made.dir(name).map_err(|error| failed("opening the destination", &error))?;
    let base = base.try_clone().map_err(|error| failed("opening the destination", &error))?;
    Ok(Base { tree: Some(Tree::new(base)), rename: None })
}
