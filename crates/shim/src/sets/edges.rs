//! Edges: what of them is news, where a ring, the kernel or another process may have told of it
//! already.

use super::collect::{ENDS, IN, OUT};
use super::{Registration, Set};
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::kernel;
use ginnel_tcp::ledger::{Stage, flag};

/// In [`Registration::ended`], beside events: that the other end has ended, or said so, and that
/// this end's directions were shut. Each is an edge of its own, and may change no event. (No bits
/// of epoll's.)
const PEER: u32 = 1 << 27;
const TX_SHUT: u32 = 1 << 26;
const RX_SHUT: u32 = 1 << 25;
/// After both of these: that the connection is no more, by a reset for what came, perhaps.
const GONE: u32 = 1 << 24;

/// Likewise, on TCP: that an urgent byte waits, asked for or not.
const URGENT: u32 = 1 << 23;

/// Whether there is one. Asks the kernel.
pub(super) fn urgent(endpoint: Endpoint<'_>) -> u32 {
    if sys::poll(endpoint.fd(), libc::POLLPRI, 0) == 0 { 0 } else { URGENT }
}

pub(super) fn marks(endpoint: Endpoint<'_>) -> u32 {
    let own = own_ends(endpoint);
    let is_gone = || kernel::state(endpoint.fd()) == Ok(kernel::CLOSE);
    let gone = if own == TX_SHUT | RX_SHUT && is_gone() { GONE } else { 0 };
    own | gone | if endpoint.peer_has_ended() { PEER } else { 0 }
}

/// Those of them that this end's shutdowns make.
pub(super) fn own_ends(endpoint: Endpoint<'_>) -> u32 {
    let slot = endpoint.slot();
    let mark = |is: bool, mark: u32| if is { mark } else { 0 };
    mark(slot.has(flag::TX_SHUT), TX_SHUT) | mark(slot.has(flag::RX_SHUT), RX_SHUT)
}

/// Of a [`key`]: what counts bytes. Above them stand 11 bits of the channel's number.
pub(super) const BYTES: u64 = u64::MAX >> 12;

/// What has a ring direction's readiness come to: changes with every byte, and with the channel, in
/// whose rings positions begin anew. A switch to TCP and back does not change it: that brings no
/// byte. (The end is the kernel's to tell: it is said in the ring a moment before it has come.)
pub(super) fn key(endpoint: Endpoint<'_>) -> u64 {
    endpoint.incoming().tail().load(Ordering::Acquire) & BYTES | channel(endpoint)
}

/// The channel's part of a [`key`].
pub(super) fn channel(endpoint: Endpoint<'_>) -> u64 {
    u64::from(endpoint.slot().channels.load(Ordering::Relaxed) & 0x7ff) << 52
}

/// What the kernel alone knows of a connection in rings, to be told beside what they say: an end, a
/// reset, an error, with which it is readable, and whether the kernel's own side has room. With
/// them urgent data, which never comes by a ring.
pub(super) fn held(endpoint: Endpoint<'_>) -> u32 {
    let got = u32::from(endpoint.ask_beside_ring().cast_unsigned());
    let room = if got & libc::EPOLLOUT as u32 != 0 { OUT } else { 0 };
    // What comes over TCP again is told beside room, too.
    let bytes = if got & libc::EPOLLIN as u32 != 0 && !endpoint.rx_in_ring() { IN } else { 0 };
    let room = room | bytes | got & libc::EPOLLPRI as u32;
    if got & ENDS == 0 {
        return room;
    }
    endpoint.slot().heed_kernel();
    let readable = if got & !(libc::EPOLLERR as u32) & ENDS != 0 { IN } else { 0 };
    as_end(endpoint, got & ENDS | readable) | room
}

/// What is reported of a socket, as epoll has it (the low bits are poll's), with a reset that only
/// meant the end of the stream told as FIN.
pub fn as_end(endpoint: Endpoint<'_>, events: u32) -> u32 {
    if events & libc::EPOLLHUP as u32 == 0 {
        // No reset: that hangs up as well. An error alone says that the error queue holds
        // something.
        return events;
    }
    // The kernel tells of an error once, and this end's own look may have taken it.
    let events = if endpoint.keeps_error() { events | libc::EPOLLERR as u32 } else { events };
    let hang_up = if endpoint.slot().has(flag::TX_SHUT) { 0 } else { libc::EPOLLHUP };
    let rest = events & !((libc::EPOLLERR | hang_up) as u32);
    // Where nothing would be left to report, the kernel would wake the caller again and again.
    if rest != events && rest != 0 && endpoint.reset_is_end() { rest } else { events }
}

/// What of an edge of the kernel's is news, where the ring may have told of it already: a token of
/// bytes that were, or an end that was told with them. `made`: it is none of the kernel's own.
pub(super) fn edge(
    set: &Set,
    entry: &mut Registration,
    endpoint: Endpoint<'_>,
    events: u32,
    made: bool,
) -> u32 {
    if !endpoint.rx_in_ring() {
        return edge_on_tcp(entry, endpoint, events, made);
    }
    let (news, ends) = joined(set, entry, endpoint, events, made);
    entry.ended |= ends;
    entry.edges = endpoint.slot().edges.load(Ordering::Acquire);
    if endpoint.slot().has(flag::TX_SHUT) {
        entry.told_tokens = tokens_come(endpoint);
    }
    news
}

/// Above so many bits of [`tokens_come`] stands the phase.
const PHASE: u32 = 40;

/// How many tokens have come, those that lie there among them, and in which phase of the ring: the
/// token of a switch is not counted. Asks the kernel.
fn tokens_come(endpoint: Endpoint<'_>) -> u64 {
    let rx = &endpoint.slot().rx;
    let come = rx.tokens.load(Ordering::Relaxed).wrapping_add(kernel::readable(endpoint.fd()));
    rx.phase.load(Ordering::Relaxed) << PHASE | come & ((1 << PHASE) - 1)
}

/// The same where TCP carries what comes in.
fn edge_on_tcp(entry: &mut Registration, endpoint: Endpoint<'_>, events: u32, made: bool) -> u32 {
    let (news, ends) = on_tcp(entry, endpoint, events, made);
    entry.ended = entry.ended & !URGENT | ends;
    if events & ENDS != 0 {
        entry.edges = endpoint.slot().edges.load(Ordering::Acquire);
    }
    news
}

/// What is news where TCP carries what comes in, and the ends that are told with it: bytes that a
/// ring told of may come once more, and a wake-up that is swept by now brings the kernel's room,
/// which was told of.
fn on_tcp(entry: &Registration, endpoint: Endpoint<'_>, events: u32, made: bool) -> (u32, u32) {
    let slot = endpoint.slot();
    // The kernel may have had no room meanwhile, of which nothing is known here while nothing was
    // carried.
    let is_unknown = || slot.tx.epoch.load(Ordering::Relaxed) == 0 && may_have_filled(endpoint);
    let kernels_room =
        || (slot.has(flag::KERNEL_FULL) || is_unknown()) && entry.wants(libc::EPOLLOUT);
    if events & ENDS != 0 {
        let (ends, edges) = (events & ENDS | marks(endpoint), slot.edges.load(Ordering::Acquire));
        let hung_up = events & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
        let over = endpoint.peer_has_ended() || hung_up;
        let told = ends & !entry.ended == 0 && entry.edges == edges;
        // (An end that receives no more is readable beside a wake-up, too.)
        let known = told && (made && over || !hung_up && is_token_alone(entry, endpoint));
        // The other end may have ended its half only, and reads on. (With a hang-up room was told,
        // and stays.)
        let room = !hung_up
            && events & OUT != 0
            && (entry.room && entry.wants(libc::EPOLLOUT) || kernels_room());
        return (if known && !room { 0 } else { events }, ends);
    }
    if kernels_room() {
        return (events, 0);
    }
    let told = entry.told();
    let no_more = || made && entry.told_by_tcp.is_some_and(|told| told == endpoint.come_by_tcp());
    let of_ring =
        || told & !BYTES == channel(endpoint) && endpoint.had_come(told & BYTES, entry.dry);
    let again = events & IN == 0 || no_more() || of_ring();
    // An end that was not asked for makes an edge as well.
    let ends = || held(endpoint) & ENDS | marks(endpoint);
    if !again || entry.room && entry.wants(libc::EPOLLOUT) {
        return (events, if endpoint.may_have_ended() { ends() } else { 0 });
    }
    // So does an urgent byte.
    let ends = ends() | urgent(endpoint);
    let known = ends & !entry.ended == 0;
    (if known { events & !(IN | OUT) } else { events }, ends)
}

/// On TCP again: has nothing come by it but the wake-up of the switch? (As the kernel counts: what
/// the writer says of it may come a moment after the edge.)
fn is_token_alone(entry: &Registration, endpoint: Endpoint<'_>) -> bool {
    !endpoint.was_never_in_ring()
        && endpoint.ring_bytes() == 0
        && endpoint.had_come(endpoint.unread_from() & BYTES, entry.dry)
}

/// As [`edge`] has it, and nothing is noted as told. (Of what is not in a ring, too.) `alone`: no
/// other that is carried is ready in its set.
pub(super) fn news_of(
    set: &Set,
    entry: &Registration,
    endpoint: Endpoint<'_>,
    events: u32,
    alone: bool,
) -> u32 {
    let same = |ends: u32| ends & !entry.ended == 0;
    let untold = entry.room || events & OUT == 0 || !same(held(endpoint) & ENDS | marks(endpoint));
    let events = if untold { events } else { events & !OUT };
    if endpoint.receives_by_ring() {
        joined(set, entry, endpoint, events, true).0
    } else if (entry.retold || !alone) && endpoint.slot().stage() == Stage::Active {
        // It is in the kernel's list since that was told of it anew, perhaps for nothing else; or
        // it is not, and another that is ready is.
        on_tcp(entry, endpoint, events, true).0
    } else {
        events
    }
}

/// Of a set that is in others, on TCP again: was what came counted when it lay in the ring?
pub(super) fn was_noted(entry: &Registration, endpoint: Endpoint<'_>) -> bool {
    let of_channel = entry.noted != u64::MAX && entry.noted & !BYTES == channel(endpoint);
    of_channel && endpoint.had_come(entry.noted & BYTES, entry.noted_dry)
}

/// Has it come to an end that the program was not told of?
pub(super) fn has_untold_end(entry: &Registration, endpoint: Endpoint<'_>) -> bool {
    endpoint.may_have_ended() && (held(endpoint) & ENDS | marks(endpoint)) & !entry.ended != 0
}

/// What is news, and the ends that are told with it. The kernel reports room beside an edge,
/// always: that is news where the program may wait for it, and else only one event more than TCP
/// has.
fn joined(
    set: &Set,
    entry: &Registration,
    endpoint: Endpoint<'_>,
    events: u32,
    made: bool,
) -> (u32, u32) {
    let key = key(endpoint);
    let same = entry.was_told(key);
    if !same && !endpoint.may_have_ended() && events & IN != 0 {
        return (events, 0);
    }
    let held = if endpoint.may_have_ended() {
        held(endpoint) & !OUT & !(libc::EPOLLPRI as u32)
    } else {
        0
    };
    let ends = held & ENDS | marks(endpoint);
    // Without a wake-up, what the kernel tells of an end that was shut down is news: of how that
    // goes on.
    let slot = endpoint.slot();
    let no_token = || {
        let come = tokens_come(endpoint);
        if come >> PHASE == entry.told_tokens >> PHASE {
            // One that came since may be swept by now.
            come == entry.told_tokens
        } else if slot.has(flag::RX_SHUT) {
            kernel::readable(endpoint.fd()) == 0
        } else {
            events & IN == 0
        }
    };
    let shut = || slot.has(flag::TX_SHUT) && no_token();
    let known = (made || !shut()) && entry.edges == slot.edges.load(Ordering::Acquire);
    if known && (same || events & IN == 0) && ends & !entry.ended == 0 {
        // Where there is something to tell, all that it has is told. (With a hang-up room was told,
        // and stays.)
        let hung_up = ends & libc::EPOLLHUP as u32 != 0;
        let untold = !hung_up && (entry.room || room_may_be_news(set, endpoint));
        let room = if untold { u32::MAX } else { !OUT };
        let news = events & !(IN | ENDS) & room;
        return (if news == 0 { 0 } else { events | held & entry.asked() }, 0);
    }
    (events | held & entry.asked(), ends)
}

/// Was so much ever given to the kernel to send that it may have had no room? (Two bytes take less
/// than two thirds of the smallest buffer, `SOCK_MIN_SNDBUF` in Linux.)
fn may_have_filled(endpoint: Endpoint<'_>) -> bool {
    endpoint.slot().tx.sent.load(Ordering::Relaxed) > 2
}

/// May the kernel have told of room because there was none, which this process does not know of?
pub(super) fn room_may_be_news(set: &Set, endpoint: Endpoint<'_>) -> bool {
    let slot = endpoint.slot();
    let elsewhere = slot.has_several_holders() || set.shared.load(Ordering::Relaxed);
    !endpoint.tx_in_ring() && may_have_filled(endpoint)
        || slot.has(flag::KERNEL_FULL)
        || elsewhere && slot.has(flag::RING_FULL)
}
