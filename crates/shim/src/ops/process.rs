//! Processes: fork, exec, descriptors passed to others.
pub use crate::service::not_executed;

use super::program::{CONFINED, Program};
use crate::fds::{self, Entry, Young};
use crate::{adopt, identity, leader, own, pool, report, runtime, service, sets};
use ginnel_node::processes::ProcessFlags;
use ginnel_region::sys;
use ginnel_tcp::hand_over;
use ginnel_tcp::ledger::{Reason, Stage, flag};
use libc::c_int;
use std::sync::atomic::Ordering;

/// At `exit` and `_exit`: sockets that nobody else has end as if they were closed; those that
/// somebody else may have go back to TCP. Else a token would lie unread when the kernel closes
/// them, which then resets and throws away what it has not sent. Together they have two seconds.
pub fn finish_all() {
    // A process that carries nothing may be confined: not one system call more than its own.
    if runtime::attachment().is_none() || !own::is_ours_by_number() {
        return;
    }
    let end = sys::monotonic_ns() + 2_000_000_000;
    for (fd, entry) in fds::all() {
        if let (Entry::Endpoint(_) | Entry::Inherited(_), Some(endpoint)) =
            (entry, runtime::known(fd))
        {
            let slot = endpoint.slot();
            let alone = slot.forking.load(Ordering::SeqCst) == 0 && !runtime::others_live(endpoint);
            let now = sys::monotonic_ns();
            if alone && slot.stage() == Stage::Active && now < end && endpoint.is_free() {
                if slot.has(flag::SPAWNED) {
                    // Somebody else may have it, without having said so yet: as at a close.
                    let _ = endpoint.detach(Reason::HandedOver, end - now);
                } else {
                    endpoint.finish();
                }
            } else if !alone && slot.stage() == Stage::Active {
                endpoint.leave_options_if_free();
                if endpoint.is_free() {
                    endpoint.leave_to_heirs();
                }
            }
        }
    }
}

/// Before `fork` (pthread_atfork prepare).
pub fn fork_prepare() {
    identity::wait_for_parting();
    let _ = fds::hold_changes();
    for (fd, entry) in fds::all() {
        if entry.has_no_slot() {
            fds::share(fd);
        }
    }
    crate::uncounted::end_all();
    // The parent may close a socket before the child has said that it holds it.
    each_endpoint(|slot| {
        slot.forking.fetch_add(1, Ordering::SeqCst);
    });
    sets::lock_all();
}

/// Calls `work` for the slot of every descriptor that stands for one.
fn each_endpoint(work: impl Fn(&ginnel_tcp::Slot)) {
    let Some(attachment) = runtime::attachment() else { return };
    for (_, entry) in fds::all() {
        if let Entry::Endpoint(slot) | Entry::Inherited(slot) = entry {
            work(attachment.ledger.slot(slot));
        }
    }
}

/// After `fork`, in the parent.
pub fn fork_parent() {
    sets::unlock_all();
    fds::release_changes(false);
    service::expect();
}

/// After a `fork` that failed: there is no child that would say that it holds what this process
/// holds.
pub fn fork_failed() {
    each_endpoint(ginnel_tcp::Slot::forked);
}

/// After `fork`, in the child.
pub fn fork_child() {
    sets::unlock_all();
    fds::release_changes(true);
    own::begin();
    identity::abandon_what_was_left();
    let Some(attachment) = runtime::attachment() else { return };
    if !attachment.node.reenter(&attachment.ledger) {
        // No room in the ledger: whatever is carried cannot be shared. Nothing new is begun, and
        // nothing kept, as nobody would give it up if the child became another user.
        return identity::abandon(attachment);
    }
    report::forget();
    leader::begin();
    crate::uncounted::start();
    fds::forget_parent();
    service::forget_parent(attachment);
    pool::forget();
    sets::forget_parent();
    for (fd, entry) in fds::all() {
        if let Entry::Endpoint(slot) | Entry::Inherited(slot) = entry {
            let shared = attachment.ledger.slot(slot);
            if shared.holder_count() > 4 {
                shared.purge(&attachment.node.processes);
            }
            shared.hold(attachment.node.me());
            shared.set(flag::SHARED, true);
            shared.forked();
            fds::set(fd, Entry::Inherited(slot));
        } else if let Entry::Young(young) = entry {
            fds::set(fd, Entry::Young(young.heir()));
        }
    }
    identity::forked(attachment);
}

/// Before an `exec*` of `program`: where it will not have the shim (static, setuid, LD_PRELOAD
/// gone), sockets that survive the exec are handed over.
pub fn executing(program: Program) {
    if runtime::attachment().is_none() || !own::is_ours_by_number() {
        return;
    }
    report::write();
    if let Some(attachment) = runtime::attachment() {
        program.explain(attachment);
        attachment.node.processes.process(attachment.node.me()).set(ProcessFlags::Executing, true);
    }
    sets::untag();
    if program.keeps_shim() {
        hand_over_pairs(true);
    } else {
        hand_over_inherited();
    }
    // Whatever it is in the middle of by then.
    let _ = service::stand_still();
}

/// Before `posix_spawn`, `system`, `popen` of a program: likewise.
pub fn spawning(program: Program) {
    let Some(attachment) = runtime::attachment() else { return };
    program.explain(attachment);
    if program.keeps_shim() {
        mark_inherited();
        hand_over_pairs(false);
    } else {
        sets::lend_inherited();
        hand_over_inherited();
    }
}

/// A vfork child is about to be made: it will start some program.
pub fn vforking() {
    mark_inherited();
    hand_over_pairs(false);
}

/// Remembers of every connection that an exec would leave open that another program may have it.
fn mark_inherited() {
    sets::lend_inherited();
    for (fd, entry) in surviving() {
        if entry.has_no_slot() {
            fds::share(fd);
        } else if let Some(endpoint) = runtime::known(fd) {
            endpoint.slot().set(flag::SPAWNED | flag::SHARED, true);
        }
    }
    service::expect();
}

/// The TCP sockets that an exec would leave open.
pub(super) fn surviving() -> impl Iterator<Item = (c_int, Entry)> {
    fds::all().filter(|(_, entry)| entry.is_tcp()).filter(|(fd, _)| {
        let flags = sys::fcntl(*fd, libc::F_GETFD, 0).unwrap_or(libc::FD_CLOEXEC as usize);
        flags & libc::FD_CLOEXEC as usize == 0
    })
}

/// Hands over every endpoint that an exec would leave open.
fn hand_over_inherited() {
    for (fd, entry) in surviving() {
        match entry {
            Entry::Endpoint(_) | Entry::Inherited(_) => super::io::offer(fd),
            // The program may use it, and the counts would not know: it stays on TCP.
            Entry::Young(_) => {
                if let Some(endpoint) = runtime::find(fd) {
                    hand_over::hold(endpoint, Reason::HandedOver);
                }
            }
            _ => fds::share(fd),
        }
    }
}

/// Hands over every endpoint in the memory of a pair that an exec would leave open: the program
/// that comes has none of that memory. After it was said that a program comes: what the thread
/// does not see of that now, it sees before it has another connection meet there.
///
/// `for_good`: this process becomes that program.
fn hand_over_pairs(for_good: bool) {
    for (fd, _) in surviving() {
        let Some(endpoint) = runtime::known(fd).filter(|endpoint| endpoint.comes_to_pair()) else {
            continue;
        };
        if for_good && !runtime::others_live(endpoint) {
            // Nobody is left who could read what stays in a ring: such a connection is reset.
            super::io::hand_over(fd);
        } else {
            super::io::offer(fd);
        }
    }
}

/// `fds` are about to be sent as SCM_RIGHTS.
pub fn sending_fds(fds: &[c_int]) {
    // Whoever receives it may not have the shim, and for a while nobody holds it: the kernel's
    // socket must hold the whole truth.
    for &fd in fds {
        sets::lend(fd);
        fds::share(fd);
        // Not used here, and most likely not to be.
        if fds::change_young(fd, Young::passed) {
            continue;
        }
        if let Some(endpoint) = runtime::known(fd) {
            super::io::hand_over(fd);
            // A close here is not the last, though nobody says that he has it.
            endpoint.slot().set(flag::SPAWNED, true);
        }
    }
}

/// `fds` were just received as SCM_RIGHTS.
pub fn received_fds(fds: &[c_int]) {
    for &fd in fds {
        super::fd::created(fd, super::fd::Kind::Socket);
        if runtime::classify(fd) == Entry::Shared {
            let _ = adopt::adopt(fd, false);
        }
    }
}

/// The program is about to confine itself to the system calls that it makes itself (seccomp): from
/// here on the shim makes none of its own, and changes none.
pub fn confined() {
    if runtime::attachment().is_none() || !own::is_ours_by_number() {
        return;
    }
    hand_over_all(Reason::HandedOver);
    report::write();
    // No handler leaves this in the midst of it.
    let _blocked = sys::block_signals();
    service::pause();
    // What it has mapped and opened it would keep: it is confined, so others may come to steer it.
    if let Some(attachment) = runtime::attachment() {
        identity::leave_for_good(attachment);
    }
    CONFINED.store(true, Ordering::Relaxed);
}

/// This program's calls are not seen: what it has inherited goes back to TCP.
#[cfg(target_arch = "x86_64")]
pub fn unseen() {
    hand_over_all(Reason::HandedOver);
}

/// Everything that this process carries goes back to TCP, and stays there.
pub fn hand_over_all(reason: Reason) {
    for (fd, entry) in fds::all() {
        let endpoint = match entry {
            Entry::Endpoint(_) | Entry::Inherited(_) => runtime::known(fd),
            // Another process may come to carry it, and would not know of what is done here.
            Entry::Young(young) if young.is_heir() => runtime::find(fd),
            _ => None,
        };
        match endpoint {
            Some(endpoint) if endpoint.slot().stage() == Stage::Active => {
                super::io::hand_over_for(fd, reason)
            }
            Some(endpoint) => hand_over::hold(endpoint, reason),
            None => {}
        }
    }
    // No registration is of a carried connection any more: from here on every change is told at
    // once.
    sets::tell_all();
}
