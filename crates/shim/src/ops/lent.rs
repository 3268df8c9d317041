//! What a child does that uses this process's memory and has a table of descriptors of its own
//! (`vfork`, `clone` with CLONE_VM): the connections that it keeps for the program that it becomes
//! go back to TCP, for nobody knows how that program will use them.
//!
//! The child itself must not: what it opens or closes on the way would be in its own table, and
//! remembered in the memory of both. So the parent's service thread does it, by the parent's
//! descriptors, while the child waits.
use super::process::surviving;
use super::program::Program;
use crate::fds::{self, Entry, Young};
use crate::{runtime, service};
use ginnel_tcp::kernel;
use ginnel_tcp::ledger::flag;
use libc::c_int;
use std::sync::atomic::Ordering;

/// In such a child: `fd`, in its own table, will be open in another program.
pub fn kept(fd: c_int) {
    let (Some(attachment), Ok(cookie)) = (runtime::attachment(), kernel::cookie(fd)) else {
        return;
    };
    let is_same = |slot: u32| attachment.ledger.slot(slot).cookie.load(Ordering::Relaxed) == cookie;
    for (known, entry) in fds::all() {
        match entry {
            Entry::Endpoint(slot) | Entry::Inherited(slot) if is_same(slot) => {
                attachment.ledger.slot(slot).set(flag::SPAWNED | flag::SHARED, true);
                service::pass_on(slot);
                return;
            }
            // Not used yet: the parent is to leave it on TCP.
            Entry::Young(_) if known == fd => {
                fds::change_young(fd, Young::passed);
            }
            _ => {}
        }
    }
}

/// In such a child, before an exec of `program`.
pub fn executing(program: Program) {
    if runtime::attachment().is_some() && !program.keeps_shim() {
        surviving().for_each(|(fd, _)| kept(fd));
    }
}
