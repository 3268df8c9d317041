//! How a descriptor comes to be an endpoint, with a slot in the ledger, and ceases to be one: what
//! the epoll sets, the service thread and the ledger are told of that.

use crate::fds::{self, Entry, Young};
use crate::{options, report, runtime, service, sets};
use core::sync::atomic::{AtomicU32, Ordering};
use ginnel_node::node::Standing;
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::{Reason, Stage, flag};
use ginnel_tcp::{Attachment, Slot, hand_over, kernel, lifetime, reclaim};
use libc::c_int;

/// How long another process may take to close what it takes for the last descriptor of a socket,
/// nanoseconds.
const PATIENCE: u64 = 2_000_000_000;

/// Looks at a descriptor that is not known yet: see [`runtime::find`].
pub fn look(fd: c_int) -> Option<Endpoint<'static>> {
    runtime::attachment()?;
    match fds::get(fd) {
        Entry::Inherited(slot) => {
            fds::replace(fd, Entry::Inherited(slot), Entry::Endpoint(slot));
            let endpoint = runtime::endpoint(fd, slot)?;
            service::attend(endpoint);
            Some(endpoint)
        }
        Entry::Unknown if !runtime::is_tcp(fd) => {
            fds::replace(fd, Entry::Unknown, Entry::Plain);
            None
        }
        _ => adopt(fd, false),
    }
}

/// Finds or makes the slot of a connected TCP socket. `connected`: this process called connect on
/// it.
pub fn adopt(fd: c_int, connected: bool) -> Option<Endpoint<'static>> {
    let attachment = runtime::attachment()?;
    let _change = fds::change();
    loop {
        match try_adopt(attachment, fd, connected) {
            Adopted::Is(endpoint) => return Some(endpoint),
            Adopted::Not => return None,
            Adopted::Again(index) => forsake(attachment, index),
        }
    }
}

/// How [`adopt`] went.
enum Adopted {
    /// This is what the number stands for.
    Is(Endpoint<'static>),
    /// For nothing that is connected, or for what stays without a slot.
    Not,
    /// Another thread has used it first, closed it, or said more of it, while it was given this
    /// slot.
    Again(u32),
}

fn try_adopt(attachment: &'static Attachment, fd: c_int, connected: bool) -> Adopted {
    let before = fds::get(fd);
    match before {
        Entry::Endpoint(slot) | Entry::Inherited(slot) => {
            return runtime::endpoint(fd, slot).map_or(Adopted::Not, Adopted::Is);
        }
        Entry::Plain | Entry::Own | Entry::Uring | Entry::Epoll(_) => return Adopted::Not,
        _ => {}
    }
    let young = if let Entry::Young(young) = before { Some(young) } else { None };
    if young.is_none() && !is_connected(fd, before) {
        return Adopted::Not;
    }
    let Ok(cookie) = kernel::cookie(fd) else { return Adopted::Not };
    // Another process may have it without having said so: it was open at a fork, came over exec, or
    // was passed.
    let heir = young.is_some_and(Young::is_heir);
    let shared = heir || before == Entry::Shared || before == Entry::Tcp && !connected;
    let describe = |slot: &Slot| {
        sets::fresh(attachment.ledger.index(slot));
        // Who connected counts its SYN among the acknowledged bytes: a fresh connection tells by
        // one byte more than was sent.
        let was = young.map_or_else(|| guess_connected(fd), Young::is_connecting);
        slot.set(flag::CONNECTED, connected || was);
        slot.set(flag::SPAWNED | flag::SHARED, shared);
        slot.set_reason(Reason::Young);
        if runtime::uses_io_uring() {
            slot.make_plain(Reason::IoUring);
        }
    };
    let Some((slot, new)) = take_up(attachment, cookie, describe) else {
        fds::replace(fd, before, Entry::Plain);
        return Adopted::Not;
    };
    let index = attachment.ledger.index(slot);
    if heir {
        slot.set(flag::SPAWNED | flag::SHARED, true);
    }
    if !new && attachment.is_of_foreign_pair(slot) {
        // It was handed over before it came here, to the kernel: this process has no way into that
        // memory.
        slot.let_go(attachment.node.me());
        fds::replace(fd, before, Entry::Plain);
        return Adopted::Not;
    }
    let Some(endpoint) = runtime::endpoint(fd, index) else { return Adopted::Not };
    if young.is_some_and(Young::is_passed)
        && matches!(slot.stage(), Stage::Candidate | Stage::Published)
    {
        // Nobody knows who has it too, and reads and writes it past the hooks.
        hand_over::hold(endpoint, Reason::HandedOver);
    }
    if let Some(young) = young
        && slot.stage() == Stage::Candidate
    {
        endpoint.corked(young.is_corked());
    }
    if !becomes(attachment, fd, before, (index, cookie)) {
        return Adopted::Again(index);
    }
    tell(endpoint, cookie, new);
    Adopted::Is(endpoint)
}

/// Is it a connection, or about to be one? Remembers what else it is.
fn is_connected(fd: c_int, before: Entry) -> bool {
    const LISTENING: u8 = 10;
    const CLOSED: u8 = 7;
    match kernel::state(fd) {
        Err(_) => return false,
        Ok(LISTENING) => options::inherited_listener(fd, before),
        Ok(CLOSED) => {
            _ = fds::replace(
                fd,
                before,
                if before == Entry::Tcp { Entry::Tcp } else { Entry::Shared },
            )
        }
        Ok(_) => return true,
    }
    false
}

/// Tells everybody of an endpoint: the sets that have its numbers, and the service thread of one
/// that others have had. `new`: its slot was claimed for it.
fn tell(endpoint: Endpoint<'static>, cookie: u64, new: bool) {
    let (attachment, slot, index) = (endpoint.attachment, endpoint.slot(), endpoint.index());
    sets::adopted(endpoint.fd(), index);
    if COPIED.load(Ordering::Relaxed) != 0 {
        adopt_copies(attachment, cookie, index);
    }
    if !new
        && attachment.node.standing() == Standing::Away
        && (slot.stage() == Stage::Published || slot.is_in_channel())
    {
        service::admit(endpoint);
    }
    if !new {
        service::attend(endpoint);
    }
}

/// `fd` stands for this slot, of the socket with this cookie, from here on; false where it has come
/// to stand for something else, or where another thread has let go of the slot meanwhile, for the
/// last number that it knew of. One step for all of them.
fn becomes(attachment: &Attachment, fd: c_int, before: Entry, (index, cookie): (u32, u64)) -> bool {
    fds::counting(index, || {
        // First: a signal handler that closes the number finds it counted.
        fds::refer(index, fd);
        let held =
            attachment.ledger.slot(index).take_up(attachment.node.me(), cookie) == Some(true);
        let is_it = held && fds::replace(fd, before, Entry::Endpoint(index));
        if !is_it {
            fds::unrefer(index, fd);
        }
        is_it
    })
}

/// Lets go of a slot that was taken for a number which may have been closed meanwhile, where no
/// number has it. (A thread that is giving it to one holds it again then.)
#[cold]
fn forsake(attachment: &Attachment, index: u32) {
    fds::counting(index, || {
        if fds::count(index) == 0 {
            attachment.ledger.slot(index).let_go(attachment.node.me());
        }
    });
}

/// Finds or claims the slot of the socket with this cookie, and holds it. True: it was claimed, and
/// described before anybody could find it.
fn take_up(
    attachment: &'static Attachment,
    cookie: u64,
    describe: impl Fn(&Slot),
) -> Option<(&'static Slot, bool)> {
    let (me, ticket) = (attachment.node.me(), attachment.node.ticket());
    let end = sys::monotonic_ns() + PATIENCE;
    loop {
        let (slot, new) = attachment
            .ledger
            .find_or_claim(&attachment.node.processes, cookie, ticket, &describe)
            .or_else(|| {
                reclaim::reclaim_now_and_then(attachment);
                attachment.ledger.find_or_claim(
                    &attachment.node.processes,
                    cookie,
                    ticket,
                    &describe,
                )
            })?;
        if slot.holder_count() > 4 {
            slot.purge(&attachment.node.processes);
        }
        if let Some(held) = slot.take_up(me, cookie) {
            return held.then_some((slot, new));
        }
        // Another process closes what it takes for the last descriptor: the slot is free in a
        // moment, or the socket's for good.
        sys::sleep_ms(1);
        if sys::monotonic_ns() > end {
            return None;
        }
    }
}

/// A socket was duplicated before it had a slot.
static COPIED: AtomicU32 = AtomicU32::new(0);

/// Sockets that had a slot have none, and some may have several numbers.
pub fn note_copies() {
    COPIED.store(1, Ordering::Relaxed);
}

/// `fd`, a TCP socket without a slot, is about to stand for the same socket as another number: both
/// are to find one slot.
pub fn copying(fd: c_int) -> Entry {
    if adopt(fd, false).is_none() && matches!(fds::get(fd), Entry::Tcp | Entry::Shared) {
        COPIED.store(1, Ordering::Relaxed);
    }
    fds::get(fd)
}

/// The other descriptors of a socket that has just got its slot, `index`.
fn adopt_copies(attachment: &Attachment, cookie: u64, index: u32) {
    for (fd, entry) in fds::all() {
        let same = matches!(entry, Entry::Tcp | Entry::Shared | Entry::Young(_))
            && kernel::cookie(fd) == Ok(cookie);
        if same && becomes(attachment, fd, entry, (index, cookie)) {
            sets::adopted(fd, index);
        }
    }
}

/// For a socket whose making was not seen (inherited over exec without the shim before): did this
/// side connect? Bytes acknowledged by the peer, and bytes sent by this side, differ by the SYN
/// only on the side that connected.
fn guess_connected(fd: c_int) -> bool {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Info {
        head: [u64; 15],
        acked: u64,
        received: u64,
        segments: [u32; 2],
        notsent: [u32; 4],
        rate: u64,
        busy: [u64; 3],
        delivered: [u32; 2],
        bytes_sent: u64,
        bytes_retransmitted: u64,
    }
    // SAFETY: plain numbers.
    let mut info: Info = unsafe { core::mem::zeroed() };
    let whole = kernel::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)
        .is_ok_and(|len| len as usize >= core::mem::size_of::<Info>());
    let in_flight = kernel::unacknowledged(fd) - kernel::unsent(fd).min(kernel::unacknowledged(fd));
    whole && info.acked + in_flight == info.bytes_sent - info.bytes_retransmitted + 1
}

/// A socket whose last descriptor is being closed: its slot, and its cookie.
#[must_use]
pub struct Ended {
    index: u32,
    cookie: u64,
}

/// One descriptor of this process let go of `slot`; `fd` is still open. `Some` if this was the last
/// descriptor of the socket anywhere, as far as is known: then the close has been prepared, and
/// [`ended`] is due after the kernel's close.
pub fn let_go(fd: c_int, index: u32) -> Option<Ended> {
    let endpoint = runtime::endpoint(fd, index)?;
    // While this process holds it.
    let cookie = endpoint.slot().cookie.load(Ordering::Relaxed);
    let part = || {
        let left = fds::unrefer(index, fd);
        if left == 0 {
            report::add(endpoint.slot());
            endpoint.slot().let_go(endpoint.me());
        }
        left
    };
    // (A fork child may not have said yet that it holds it.)
    let others =
        || runtime::others_live(endpoint) || endpoint.slot().forking.load(Ordering::SeqCst) != 0;
    if fds::count(index) == 1 && others() {
        endpoint.leave_to_heirs();
    }
    if service::unless_serving(index, || fds::counting(index, part)) > 0 {
        return None;
    }
    if others() {
        endpoint.leave_options();
        return None;
    }
    if endpoint.slot().has(flag::SPAWNED) {
        // Somebody else may have it, without having said so yet: it is left to the kernel as it is.
        // What is still in a ring is theirs to read, and a close here would reset it; where nobody
        // has it, the slot is found without a holder. (So is what a kernel would answer with a
        // reset.)
        if endpoint.is_best_read_in_ring() || !endpoint.detach(Reason::HandedOver, 500_000_000) {
            return None;
        }
    }
    if !endpoint.slot().end(&endpoint.attachment.node.processes, endpoint.me(), cookie) {
        // Whoever was to have it has come meanwhile.
        endpoint.leave_options();
        return None;
    }
    endpoint.finish();
    Some(Ended { index, cookie })
}

/// After the kernel's close of the last descriptor.
pub fn ended(ended: &Ended) {
    if let Some(attachment) = runtime::attachment() {
        lifetime::forget(attachment, attachment.ledger.slot(ended.index), ended.cookie);
    }
}
