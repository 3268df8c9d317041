//! Out of a segment: every connection comes back to TCP, and ledger, segment and the descriptors
//! that belong to them are given up.

use super::{PARTING, PATIENCE, is_single_threaded};
use crate::fds::{self, Entry, Young};
use crate::{adopt, maps, report, runtime, service, sets, uncounted};
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use ginnel_tcp::ledger::{Reason, Slot, Stage, flag};
use ginnel_tcp::{Attachment, Endpoint};
use libc::c_int;
use syscalls::Sysno;

/// Brings all connections back to TCP, and gives up ledger, segment and the descriptors that belong
/// to them. The service thread is paused. Tells `plain` the descriptors whose sockets another
/// process may have: those stay on TCP for good. [`super::parted`] is due behind it.
pub(super) fn leave(old: &'static Attachment, reason: Reason, plain: &mut dyn FnMut(c_int)) {
    old.node.set_leaving(true);
    uncounted::end_all();
    take_up_heirs();
    let end = sys::monotonic_ns() + PATIENCE;
    come_down(reason, end);
    PARTING.store(core::ptr::from_ref(old).cast_mut(), Ordering::Release);
    let _ = fds::hold_changes();
    let single = is_single_threaded();
    for index in service::own_slots() {
        part(old, index, (reason, end), single && reason == Reason::OtherUser, plain);
    }
    service::retire_waiters(old);
    sets::forget_slots();
    service::close_down(old);
    runtime::stop();
    maps::give_up(old);
    old.renounce(reason);
    empty_own();
}

/// What is left of the shim's own descriptors: FIFOs by which threads sleep just now. Each closes
/// its own when it wakes, so the numbers stay, and stand for something by which nobody is woken.
pub(super) fn empty_own() {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    let mut none = None;
    for (fd, _) in fds::all().filter(|(fd, entry)| *entry == Entry::Own && !fds::is_spared(*fd)) {
        // SAFETY: no memory is passed.
        let made = || unsafe { sys::raw(Sysno::eventfd2, [0, flags as usize, 0, 0, 0, 0]) };
        let Some(none) = none.or_else(|| made().ok()).inspect(|&made| none = Some(made)) else {
            return;
        };
        // SAFETY: as above; the number is the shim's own.
        let _ = unsafe {
            sys::raw(Sysno::dup3, [none, fd as usize, libc::O_CLOEXEC as usize, 0, 0, 0])
        };
    }
    if let Some(none) = none {
        sys::close(none as c_int);
    }
}

/// Connections of which nothing is written down yet, and which a parent or a child may come to
/// carry: they get slots, in which it is said that they stay on TCP.
fn take_up_heirs() {
    for (fd, _) in
        fds::all().filter(|(_, entry)| matches!(entry, Entry::Young(young) if young.is_heir()))
    {
        let _ = runtime::find(fd);
    }
}

/// May another process have the socket?
fn is_shared(endpoint: Endpoint<'_>) -> bool {
    let slot = endpoint.slot();
    slot.has(flag::SPAWNED)
        || slot.forking.load(Ordering::SeqCst) != 0
        || runtime::others_live(endpoint)
}

/// Brings the connections to TCP: all of them at once, since each may take as long as its other end
/// takes to answer.
fn come_down(reason: Reason, end: u64) {
    let shared = |&index: &u32| service::with_endpoint(index, is_shared) == Some(true);
    for index in service::own_slots().filter(shared) {
        let _ = service::with_endpoint(index, |endpoint| endpoint.begin_detach(Reason::HandedOver));
    }
    let is_out = |endpoint: Endpoint<'static>| {
        if is_shared(endpoint) {
            endpoint.go_on_detaching().is_some()
        } else {
            endpoint.leave(reason)
        }
    };
    loop {
        // Every one, each time: all are to come down together.
        let left = service::own_slots()
            .filter(|&index| service::with_endpoint(index, is_out) == Some(false))
            .count();
        if left == 0 || sys::monotonic_ns() > end {
            return;
        }
        sys::sleep_ms(1);
    }
}

/// Takes the process off one slot, as [`come_down`] did with this reason and until this time.
/// `alone`: the process has one thread, none of whose calls can be in the kernel with the socket,
/// and it may carry connections again.
fn part(
    old: &'static Attachment,
    index: u32,
    (reason, end): (Reason, u64),
    alone: bool,
    plain: &mut dyn FnMut(c_int),
) {
    let Some(endpoint) = fds::of_slot(index).and_then(|fd| runtime::endpoint(fd, index)) else {
        return;
    };
    let slot = endpoint.slot();
    let shared = is_shared(endpoint);
    let stuck = if shared {
        endpoint.go_on_detaching() != Some(true)
    } else {
        is_kept_in(endpoint, reason, end)
    };
    if stuck && !shared {
        runtime::say(
            old.settings.verbose,
            "a connection was reset: the other end did not answer before the user changed",
        );
        endpoint.break_off(Reason::OtherUser);
    }
    let again = alone && !shared && slot.stage() == Stage::Candidate && !slot.has(flag::HOLD);
    for (fd, _) in fds::all().filter(
        |(_, entry)| matches!(entry, Entry::Endpoint(of) | Entry::Inherited(of) if *of == index),
    ) {
        let _ = fds::unrefer(index, fd);
        fds::set(fd, if again { Entry::Young(youth(slot)) } else { Entry::Plain });
        if stuck && shared {
            replace_by_none(fd);
        } else if shared {
            plain(fd);
        }
    }
    if again {
        adopt::note_copies();
    }
    report::add(slot);
    old.renounce_slot(slot);
}

/// Is a connection that no other process has still in a channel? Another may have had it until a
/// moment ago, and both came down as those do that share one: to TCP, with the channel kept. What
/// is left of the way out is this process's then.
fn is_kept_in(endpoint: Endpoint<'static>, reason: Reason, end: u64) -> bool {
    while !endpoint.leave(reason) && sys::monotonic_ns() < end {
        sys::sleep_ms(1);
    }
    endpoint.slot().is_in_channel()
}

/// What is known of a connection that begins anew.
fn youth(slot: &Slot) -> Young {
    Young::accepted().connected(slot.has(flag::CONNECTED)).corked(slot.has(flag::CORKED))
}

/// The other process's connection could not come back to TCP in time, and goes on without this one:
/// `fd` is a socket that was never connected.
fn replace_by_none(fd: c_int) {
    let flags = sys::fcntl(fd, libc::F_GETFD, 0).unwrap_or(0);
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed.
    let Ok(none) =
        (unsafe { sys::raw(Sysno::socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0]) })
    else {
        return;
    };
    let cloexec = if flags & libc::FD_CLOEXEC as usize != 0 { libc::O_CLOEXEC } else { 0 };
    // SAFETY: as above. The number is this process's own.
    let _ = unsafe { sys::raw(Sysno::dup3, [none, fd as usize, cloexec as usize, 0, 0, 0]) };
    sys::close(none as c_int);
}
