//! The life of a connection: connect, accept, shutdown, options.
use super::Outcome;
use crate::fds::{self, Entry, Young};
use crate::moment::Moment;
use crate::options::{self, inherited_listener, option, waits_for_more};
use crate::{adopt, next, runtime, sets};
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::{Reason, Stage, flag};
use ginnel_tcp::{cork, kernel, path};
use libc::{c_int, c_void, socklen_t};

/// `accept`/`accept4` returned `fd`.
pub fn accepted(listener: c_int, fd: c_int) {
    if runtime::attachment().is_none() {
        return;
    }
    super::fd::created(fd, super::fd::Kind::Socket);
    match runtime::classify(listener) {
        entry @ (Entry::Tcp | Entry::Shared | Entry::Listener) => {
            if entry != Entry::Listener {
                inherited_listener(listener, entry);
            }
            let is_other = runtime::is_multipath(listener) && !runtime::is_tcp(fd);
            fds::set(fd, if is_other { Entry::Plain } else { Entry::Young(Young::accepted()) });
        }
        Entry::Plain if runtime::is_multipath(listener) && runtime::is_tcp(fd) => {
            inherited_listener(listener, Entry::Plain);
            fds::set(fd, Entry::Young(Young::accepted()));
        }
        Entry::Plain => fds::set(fd, Entry::Plain),
        _ => {}
    }
}

/// `connect` on `fd` returned 0 or failed with EINPROGRESS.
pub fn connected(fd: c_int) {
    if matches!(runtime::classify(fd), Entry::Tcp | Entry::Shared | Entry::Listener) {
        let _ = adopt::adopt(fd, true);
        note_tcp();
    }
}

/// The kernel has something to tell the other end of a connection: see [`ginnel_tcp::by_tcp`].
pub fn note_tcp() {
    if let Some(attachment) = runtime::attachment() {
        attachment.node.joined().segment.note_tcp();
    }
}

/// Before a `connect` to no address, which resets the connection. The socket lives on, and is
/// looked at anew when it is next used.
pub fn disconnecting(fd: c_int) {
    match fds::get(fd) {
        Entry::Endpoint(slot) | Entry::Inherited(slot) => {
            if let Some(endpoint) = runtime::known(fd) {
                if endpoint.slot().has(flag::CORKED | flag::KERNEL_CORKED)
                    || endpoint.does_not_count() && cork::is_set(fd)
                {
                    options::note_corked();
                }
                endpoint.disconnect();
            }
            sets::disconnecting(fd, slot);
            fds::take(fd);
            if let Some(ended) = super::fd::part(fd, slot) {
                adopt::ended(&ended);
            }
        }
        entry @ (Entry::Tcp | Entry::Shared | Entry::Listener | Entry::Young(_)) => {
            if !fds::replace(fd, entry, Entry::Unknown) {
                // Another thread has just used it for the first time.
                disconnecting(fd);
            }
        }
        // Or no number that there can be.
        Entry::Plain => fds::set(fd, Entry::Unknown),
        Entry::Epoll(_) | Entry::Own | Entry::Uring | Entry::Unknown => {}
    }
}

/// `shutdown(2)`; with `Done`/`Failed` the kernel's shutdown has been made.
pub fn shutdown(fd: c_int, how: c_int) -> Outcome<c_int> {
    let Some(endpoint) = runtime::known(fd).filter(|endpoint| runtime::carried(*endpoint)) else {
        return Outcome::Libc;
    };
    let (inside, slot) = (super::fd::is_inside(fd), endpoint.slot());
    let ended = match how {
        libc::SHUT_RDWR => true,
        libc::SHUT_WR => slot.has(flag::RX_SHUT),
        libc::SHUT_RD => slot.has(flag::TX_SHUT),
        _ => false,
    };
    if ended && !inside {
        wait_for_switch(endpoint);
        endpoint.ends_both_ways();
    }
    if how == libc::SHUT_WR || how == libc::SHUT_RDWR {
        if inside {
            endpoint.finish_writing_unlocked();
        } else {
            endpoint.finish_writing();
        }
    }
    if how == libc::SHUT_RD || how == libc::SHUT_RDWR {
        slot.heed_kernel();
    }
    // A thread that sleeps may be told of the kernel's edge before this call returns.
    let edge = (!inside).then(|| crate::sets::edge_begins(endpoint));
    // SAFETY: the program's own call.
    let done = endpoint.says_by_tcp(|| unsafe { next::shutdown(fd, how) });
    let errno = next::errno();
    if done == 0 && how != libc::SHUT_WR {
        endpoint.receives_no_more();
    }
    if let Some(edge) = edge {
        crate::sets::edge_comes(endpoint, edge);
    }
    if done < 0 { Outcome::Failed(errno) } else { Outcome::Done(done) }
}

/// Before an end receives no more, and its kernel answers what comes with a reset: bytes that are on
/// their way from a ring to TCP had come before.
fn wait_for_switch(endpoint: Endpoint<'static>) {
    let mut switch = Moment::default();
    while endpoint.is_between_carriers() && switch.passes(endpoint) {
        let _ = endpoint.tidy();
    }
}

/// Does it matter here that the option is set? Most that programs set do not.
#[inline]
#[must_use]
pub fn is_of_interest(level: c_int, name: c_int) -> bool {
    match level {
        libc::IPPROTO_TCP => {
            name != libc::TCP_NODELAY
                && name != libc::TCP_DEFER_ACCEPT
                && name != libc::TCP_QUICKACK
        }
        libc::SOL_SOCKET => {
            name != libc::SO_REUSEADDR && name != libc::SO_REUSEPORT && name != libc::SO_LINGER
        }
        _ => false,
    }
}

/// Before `setsockopt`: some options make a socket unfit for a ring (TCP_ULP, SO_TIMESTAMP,
/// TCP_REPAIR …) and hand it over first.
pub fn setting_option(
    fd: c_int,
    level: c_int,
    name: c_int,
    _value: *const c_void,
    _len: socklen_t,
) {
    if !is_cork(level, name)
        && options::is_unfit_option(level, name)
        && runtime::classify(fd).is_tcp()
    {
        options::note_unfit();
        if options::changes_the_stream(level, name) {
            super::io::hand_over_for(fd, Reason::Option);
        } else {
            let _ = super::io::hand_over_if_possible(fd);
        }
    }
}

/// Before `getsockopt`: one option is a receive.
pub fn reading_option(fd: c_int, level: c_int, name: c_int) {
    const TCP_ZEROCOPY_RECEIVE: c_int = 35;
    if (level, name) == (libc::IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE) && runtime::classify(fd).is_tcp()
    {
        super::io::hand_over_for(fd, Reason::Option);
    }
}

/// May the kernel have control data for a receive: does the socket stay on TCP, perhaps for an
/// option that brings some?
pub fn has_control(fd: c_int) -> bool {
    runtime::known(fd).is_some_and(|endpoint| {
        let slot = endpoint.slot();
        let stage = slot.stage();
        stage == Stage::Plain
            || slot.has(flag::HOLD) && (stage != Stage::Active || endpoint.on_tcp())
    })
}

/// The value of an option that is a number.
///
/// # Safety
/// `value` points to `len` readable bytes.
unsafe fn number(value: *const c_void, len: socklen_t) -> Option<c_int> {
    // SAFETY: the caller's promise.
    (len as usize >= size_of::<c_int>() && !value.is_null())
        .then(|| unsafe { value.cast::<c_int>().read_unaligned() })
}

/// Is it `TCP_CORK`?
#[inline]
#[must_use]
pub fn is_cork(level: c_int, name: c_int) -> bool {
    (level, name) == (libc::IPPROTO_TCP, libc::TCP_CORK)
}

/// TCP_CORK of a connection whose ring carries what is sent: true if the kernel need not know.
///
/// # Safety
/// `value` points to `len` readable bytes.
pub unsafe fn corked_in_ring(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> bool {
    if !is_cork(level, name) {
        return false;
    }
    // SAFETY: the caller's promise.
    let value = unsafe { number(value, len) };
    runtime::known_carried(fd).zip(value).is_some_and(|(endpoint, value)| endpoint.cork(value != 0))
}

/// Around the kernel's `setsockopt`: the options by which paths are looked at are the program's for
/// its duration.
pub fn with_own_options(
    fd: c_int,
    level: c_int,
    name: c_int,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if !path::is_option(level, name) {
        return call();
    }
    match runtime::known(fd) {
        Some(endpoint) => {
            let result = endpoint.with_own_options(|| (call(), next::errno()));
            next::set_errno(result.1);
            result.0
        }
        None => call(),
    }
}

/// Around the kernel's `setsockopt` of TCP_NODELAY, by which tokens are pushed, too.
pub fn beside_tokens(fd: c_int, level: c_int, name: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let endpoint = if (level, name) == (libc::IPPROTO_TCP, libc::TCP_NODELAY) {
        runtime::known_carried(fd)
    } else {
        None
    };
    match endpoint {
        Some(endpoint) => endpoint.beside_tokens(call),
        None => call(),
    }
}

/// SO_RCVTIMEO_NEW and SO_SNDTIMEO_NEW (`asm-generic/socket.h`): with 64-bit times, where the C
/// library's own are shorter.
const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;

/// After `setsockopt` succeeded (SO_RCVLOWAT and the like are tracked).
///
/// # Safety
/// `value` points to `len` readable bytes.
pub unsafe fn option_set(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) {
    if is_cork(level, name) {
        // SAFETY: the caller's promise.
        if let Some(value) = unsafe { number(value, len) }
            && !fds::change_young(fd, |young| young.corked(value != 0))
        {
            match runtime::find(fd) {
                Some(endpoint) => endpoint.corked(value != 0),
                None => options::note_corked(),
            }
        }
        return;
    }
    let limits = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW];
    if level == libc::SOL_SOCKET
        && limits.contains(&name)
        && !matches!(fds::get(fd), Entry::Young(_))
        && let Some(endpoint) = runtime::find(fd)
    {
        endpoint.slot().rx.limits.fetch_add(1, Ordering::SeqCst);
    }
    if (level, name) != (libc::SOL_SOCKET, libc::SO_RCVLOWAT) {
        return;
    }
    // The kernel makes an edge of what there is to receive, where that is enough, or of a FIN, be
    // there a reset behind it or not; not of a reset alone (`tcp_set_rcvlowat` in Linux).
    let least = option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT).map_or(1, i32::unsigned_abs);
    // (Also of bytes that are to go over TCP, and may not come to.)
    let bytes = |endpoint: &Endpoint<'_>| endpoint.ring_bytes() >= least.max(1).into();
    let something = |endpoint: &Endpoint<'_>| {
        endpoint.rx_in_ring() && bytes(endpoint) || endpoint.peer_has_ended()
    };
    // (Also of one that this process inherited and did not use yet.)
    let carried = runtime::known(fd).and_then(|_| runtime::find(fd));
    let carried = carried.filter(|endpoint| endpoint.slot().stage() == Stage::Active);
    if let Some(endpoint) = carried.filter(something) {
        crate::sets::edge_of_bytes(endpoint);
    }
    // An end that neither sends nor receives can be read always, and what comes is answered with a
    // reset: nothing is to come for this option's sake.
    let is_over = |endpoint: Endpoint<'_>| {
        endpoint.slot().has(flag::TX_SHUT) && endpoint.slot().has(flag::RX_SHUT)
    };
    if waits_for_more(fd)
        && runtime::find(fd).is_some_and(|endpoint| !is_over(endpoint))
        && !super::io::hand_over_if_possible(fd)
        // Behind the end nobody waits for more.
        && sys::poll(fd, libc::POLLRDHUP, 0) == 0
    {
        // The kernel would hide a wake-up: woken too early is better than never.
        let one: c_int = 1;
        let _ = kernel::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &one);
    }
}

/// After `getsockopt` succeeded: corrects what the kernel says of an accelerated socket (TCP_INFO's
/// counters), in place.
///
/// # Safety
/// `value` points to `len` readable and writable bytes.
pub unsafe fn option_read(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: socklen_t,
) {
    let Some(endpoint) = runtime::known(fd) else { return };
    let own = if path::is_option(level, name) {
        endpoint.own_option(level, name).ok()
    } else if is_cork(level, name) {
        endpoint.own_cork().map(c_int::from)
    } else {
        None
    };
    if let Some(own) = own {
        let own = own.to_ne_bytes();
        // SAFETY: the caller's promise; what the kernel cut short stays short.
        unsafe {
            core::ptr::copy_nonoverlapping(
                own.as_ptr(),
                value.cast::<u8>(),
                own.len().min(len as usize),
            )
        };
    }
    if level == libc::SOL_SOCKET && name == libc::SO_ERROR && len as usize >= size_of::<c_int>() {
        let broken = if endpoint.slot().stage() == Stage::Broken { libc::ECONNRESET } else { 0 };
        let kept = endpoint.take_error().unwrap_or(0).max(broken);
        if kept != 0 {
            // SAFETY: the caller's promise.
            unsafe { value.cast::<c_int>().write_unaligned(kept) };
        }
    }
}
