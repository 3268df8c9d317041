//! What an endpoint's owner sleeps on: a waiter, and its descriptor.
//!
//! On a host where `ginneld` serves the segment there are two: the waiter's own, by which processes
//! of the host ring it, and one of the process's, at which the daemon rings for machines. They
//! stand in an epoll set then, which is the descriptor.

use crate::Error;
use ginnel_node::Waiter;
use ginnel_region::Segment;
use ginnel_region::sys::{self, Fd};
use libc::epoll_event;
use syscalls::Sysno;

pub(super) struct Ear {
    waiter: Waiter,
    both: Option<Fd>,
}

impl Ear {
    /// `relayed`: where the daemon rings.
    pub fn new(waiter: Waiter, relayed: Option<i32>) -> Result<Self, Error> {
        let both = relayed.map(|relayed| set_of(waiter.fifo(), relayed)).transpose();
        let both = both.map_err(|errno| Error::System("make a descriptor to sleep on", errno))?;
        Ok(Self { waiter, both })
    }

    pub fn waiter(&self) -> Waiter {
        self.waiter
    }

    /// Readable once the endpoint was rung.
    pub fn fd(&self) -> i32 {
        self.both.as_ref().map_or(self.waiter.fifo(), |both| both.0)
    }

    /// About to sleep.
    pub fn sleeping(&self, segment: &Segment) {
        self.waiter.sleeping(segment);
    }

    /// Awake again; takes what it was rung with, also by somebody who was late the last time.
    pub fn awake(&self, segment: &Segment) {
        self.waiter.awake(segment, true);
        self.waiter.take(segment, |_| {});
        self.waiter.empty();
        if let Some(both) = &self.both {
            let mut events = [epoll_event { events: 0, u64: 0 }; 2];
            let arguments = [both.0 as usize, events.as_mut_ptr() as usize, events.len(), 0, 0, 0];
            // SAFETY: so many events have room, and no mask is passed.
            let _ = unsafe { sys::raw(Sysno::epoll_pwait, arguments) };
        }
    }
}

/// A set of a waiter's descriptor, and of the daemon's, which is never read: edge by edge.
fn set_of(own: i32, relayed: i32) -> sys::Result<Fd> {
    let flags = libc::EPOLL_CLOEXEC as usize;
    // SAFETY: no memory is passed.
    let set = Fd(unsafe { sys::raw(Sysno::epoll_create1, [flags, 0, 0, 0, 0, 0]) }? as i32);
    let set = Fd(sys::move_high(set.take()));
    for (fd, how) in [(own, 0), (relayed, libc::EPOLLET)] {
        let mut event = epoll_event { events: (libc::EPOLLIN | how) as u32, u64: 0 };
        let add = libc::EPOLL_CTL_ADD as usize;
        let arguments = [set.0 as usize, add, fd as usize, &raw mut event as usize, 0, 0];
        // SAFETY: `event` is readable.
        unsafe { sys::raw(Sysno::epoll_ctl, arguments) }?;
    }
    Ok(set)
}
