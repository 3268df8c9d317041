//! What bounds a call that waits: its connection's life, and its time limit.

use crate::deadline::{self, Deadline, is_over, remaining};
use crate::fds::{self, Entry};
use crate::outcome::Outcome;
use crate::{next, runtime};
use core::sync::atomic::{Ordering, fence};
use ginnel_node::Standing;
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::kernel;
use ginnel_tcp::ledger::flag;
use libc::{c_int, timespec};

/// SO_RCVTIMEO or SO_SNDTIMEO of a socket. That there is none is remembered until the program sets
/// one, unless one that the shim does not see may do so.
#[must_use]
fn socket_limit(endpoint: Endpoint<'_>, name: c_int) -> Option<timespec> {
    let slot = endpoint.slot();
    let unlimited = if name == libc::SO_RCVTIMEO { &slot.rx.unlimited } else { &slot.tx.unlimited };
    // Before the kernel is asked: a change that comes in between is counted after it was made.
    let changes = slot.rx.limits.load(Ordering::SeqCst).wrapping_add(1);
    if unlimited.load(Ordering::Relaxed) == changes
        && !slot.has(flag::HOLD | flag::SHARED | flag::SPAWNED)
    {
        return None;
    }
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    kernel::getsockopt(endpoint.fd(), libc::SOL_SOCKET, name, &mut limit).ok()?;
    let limited = limit.tv_sec != 0 || limit.tv_usec != 0;
    unlimited.store(if limited { 0 } else { changes }, Ordering::Relaxed);
    limited.then_some(timespec { tv_sec: limit.tv_sec, tv_nsec: limit.tv_usec * 1000 })
}

/// A call that may sleep: the connection that it began with, which another thread may close
/// meanwhile, and give number and slot to others; and its time limit (SO_RCVTIMEO or SO_SNDTIMEO),
/// asked for when it first matters: a call that need not sleep saves the question.
pub struct Limit {
    name: c_int,
    cookie: u64,
    end: Option<Deadline>,
    /// How far the reader of a full ring had come, and since when.
    still: Option<(u64, u64)>,
    /// The call has moved bytes already: a signal ends it, whatever its handler wants of calls that
    /// have not.
    pub partial: bool,
    /// The time is over, and what the kernel has is looked at once more.
    pub over: bool,
    /// The program's signal mask, where signals are let in only by the call's sleeps
    /// ([`super::for_more`]).
    pub(super) mask: Option<libc::sigset_t>,
}

impl Drop for Limit {
    fn drop(&mut self) {
        if let Some(mask) = &self.mask {
            // SAFETY: a mask that the kernel gave.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, core::ptr::null_mut()) };
        }
    }
}

impl Limit {
    /// Of a call on `endpoint`; the limit that the socket option `name` sets, from the first sleep
    /// on.
    #[must_use]
    pub fn new(endpoint: Endpoint<'_>, name: c_int) -> Self {
        let cookie = endpoint.slot().cookie.load(Ordering::Relaxed);
        Self { name, cookie, end: None, still: None, partial: false, over: false, mask: None }
    }

    /// Is it still the connection that the call began with? To be asked after each sleep, before
    /// what the kernel said is believed: that is of the old connection.
    #[must_use]
    pub fn is_still(&self, endpoint: Endpoint<'_>) -> bool {
        self.is_known(endpoint)
            || self.has_slot(endpoint) && kernel::cookie(endpoint.fd()) == Ok(self.cookie)
    }

    /// Returns what becomes of a call that finds its connection to be no longer what it began with.
    /// `done`: so many bytes were moved before.
    pub fn ended(&self, endpoint: Endpoint<'_>, done: usize) -> Outcome {
        let is_present = runtime::attachment()
            .is_some_and(|present| core::ptr::eq(present, endpoint.attachment));
        let is_leaving = endpoint.attachment.node.standing() != Standing::Here;
        let of_slot = |entry| matches!(entry, Entry::Endpoint(slot) | Entry::Inherited(slot) if slot == endpoint.index());
        if done > 0 {
            Outcome::Done(done as isize)
        } else if (!is_present || is_leaving && !of_slot(fds::get(endpoint.fd())))
            && kernel::cookie(endpoint.fd()) == Ok(self.cookie)
        {
            // The process has given up what it had of it, or is about to, and becomes somebody
            // else: it is the kernel's alone ([`crate::identity`]).
            Outcome::Libc
        } else if is_present && of_slot(fds::get(endpoint.fd())) {
            // Somebody wrote another socket's cookie into the slot.
            Outcome::Failed(libc::ECONNRESET)
        } else {
            Outcome::Failed(self.closed())
        }
    }

    /// Another thread closed the number. The kernel has a call that sleeps go on: one with a time
    /// limit ends when that is over, and so does this one, though its connection has ended. (One
    /// without would sleep for good.) Returns the errno.
    #[cold]
    fn closed(&self) -> c_int {
        let Some(end @ Some(_)) = self.end else { return libc::EBADF };
        while !is_over(end) {
            let left = remaining(end);
            let left = left.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
            // SAFETY: no descriptors; the limit is ours. A cancellation point, as the program's own
            // call.
            if unsafe { next::ppoll(core::ptr::null_mut(), 0, left, core::ptr::null()) } < 0 {
                return next::errno();
            }
        }
        libc::EAGAIN
    }

    /// Is the slot still its own, whatever the number stands for? Else nothing of it is to be
    /// touched.
    pub(super) fn has_slot(&self, endpoint: Endpoint<'_>) -> bool {
        endpoint.slot().cookie.load(Ordering::Relaxed) == self.cookie
    }

    /// Does the number stand for it, as far as the table says?
    pub(super) fn is_known(&self, endpoint: Endpoint<'_>) -> bool {
        let index = endpoint.index();
        // The other half of [`Endpoint::wake_receiver`]: who armed before this either sees the
        // number taken or is woken.
        fence(Ordering::SeqCst);
        self.has_slot(endpoint)
            && matches!(fds::get(endpoint.fd()), Entry::Endpoint(slot) | Entry::Inherited(slot) if slot == index)
    }

    /// For how long the reader of a full ring has stood at `head`, over all the sleeps of the call,
    /// nanoseconds.
    pub(super) fn standstill(&mut self, head: u64) -> u64 {
        let now = sys::monotonic_ns();
        let since = self.still.filter(|(known, _)| *known == head).map_or(now, |(_, since)| since);
        self.still = Some((head, since));
        now - since
    }

    pub(super) fn end(&mut self, endpoint: Endpoint<'_>) -> Deadline {
        *self.end.get_or_insert_with(|| deadline::after(socket_limit(endpoint, self.name)))
    }
}
