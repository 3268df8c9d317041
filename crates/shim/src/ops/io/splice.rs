//! Between a socket and a pipe (`splice`).

use super::file::{PIECE, is_active, leave_ring};
use super::recv::recv_before;
use super::send::send_before;
use super::{advance, recv};
use crate::ops::Outcome;
use crate::{next, runtime, sets, wait};
use ginnel_region::sys;
use ginnel_tcp::ledger::{Reason, Stage, flag};
use ginnel_tcp::rx::Take;
use ginnel_tcp::tx::Put;
use ginnel_tcp::{Endpoint, kernel};
use libc::{c_int, c_uint, iovec};

/// What `splice(2)` may be asked for: SPLICE_F_MOVE, _NONBLOCK, _MORE and _GIFT.
const SPLICE_FLAGS: c_uint =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// `splice(2)` without offsets. Out of a socket the bytes are copied, for the kernel does not see
/// those in a ring. Into a socket that does not block they are read into the ring; into one that
/// does the kernel moves them, once that direction is back on TCP.
pub fn splice(from: c_int, to: c_int, count: usize, flags: c_uint) -> Outcome {
    if flags & !SPLICE_FLAGS != 0 {
        // The kernel refuses it.
        return Outcome::Libc;
    }
    if let Some(endpoint) = runtime::find(to) {
        // (Of an empty pipe the kernel asks nothing of the socket.)
        if endpoint.keeps_error()
            && kernel::readable(from) > 0
            && let Some(errno) = endpoint.take_refusal()
        {
            return Outcome::Failed(errno);
        }
        return if may_be_spliced_into(endpoint) && is_pipe(from) {
            splice_in(endpoint, from, count, flags)
        } else {
            leave_ring(endpoint, Reason::HandedOver)
        };
    }
    let Some(endpoint) = runtime::find(from) else { return Outcome::Libc };
    if count == 0 || !is_pipe(to) || matches!(endpoint.slot().stage(), Stage::Plain | Stage::Closed)
    {
        return Outcome::Libc;
    }
    splice_out(endpoint, to, count, flags)
}

fn is_pipe(fd: c_int) -> bool {
    sys::fcntl(fd, libc::F_GETPIPE_SZ, 0).is_ok()
}

/// Can what lies in a pipe be read into the ring as it would be spliced? Whether the socket blocks
/// is asked each time, for whoever shares it may have changed that.
fn may_be_spliced_into(endpoint: Endpoint<'_>) -> bool {
    let slot = endpoint.slot();
    // (Whether it blocks is not kept for one that is no candidate yet.)
    sys::fcntl(endpoint.fd(), libc::F_GETFL, 0)
        .is_ok_and(|set| set & libc::O_NONBLOCK as usize != 0)
        && !slot.has(flag::HOLD | flag::TX_SHUT)
        && !matches!(slot.stage(), Stage::Plain | Stage::Closed | Stage::Broken)
}

/// From a pipe into a socket that does not block.
fn splice_in(endpoint: Endpoint<'static>, pipe: c_int, count: usize, flags: c_uint) -> Outcome {
    if is_active(endpoint) && endpoint.slot().has(flag::SHARED) {
        // As in a send.
        crate::service::watch(endpoint);
    }
    let mut done = 0;
    while done < count {
        let left = (count - done).min(PIECE);
        let none = core::ptr::null_mut;
        // SAFETY: no offsets; a cancellation point, as the program's own call.
        let call = || unsafe { next::splice(pipe, none(), endpoint.fd(), none(), left, flags) };
        let sent = if is_active(endpoint) { None } else { send_before(endpoint, 0, call) };
        match (sent, done) {
            (Some(outcome), 0) => return outcome,
            (Some(Outcome::Done(n @ 1..)), _) => {
                done += n.unsigned_abs();
                break;
            }
            (Some(_), _) => break,
            (None, _) => {}
        }
        match endpoint.put_pipe(pipe, left) {
            Put::Bytes(0) if done > 0 => break,
            Put::Bytes(0) => match wait_for_pipe(pipe, flags) {
                None => {}
                Some(outcome) => return outcome,
            },
            Put::Bytes(n) => done += n,
            Put::Error(libc::EOPNOTSUPP) if done == 0 => {
                return leave_ring(endpoint, Reason::HandedOver);
            }
            Put::RingFull => {
                sets::filled(endpoint);
                return ended(endpoint, Put::RingFull, done);
            }
            put => return ended(endpoint, put, done),
        }
    }
    if endpoint.slot().stage() == Stage::Settling {
        advance(endpoint, false);
    }
    Outcome::Done(done as isize)
}

/// How a splice into a socket ends that could not go on.
#[cold]
fn ended(endpoint: Endpoint<'static>, put: Put, done: usize) -> Outcome {
    if put == Put::KernelFull {
        // As in a send.
        let _ = endpoint.tidy();
    }
    match put {
        Put::Error(errno) if done > 0 && errno != libc::EPIPE => endpoint.keep_error(errno),
        Put::Error(errno) if done == 0 => return Outcome::Failed(errno),
        Put::Kernel if done == 0 => return Outcome::Libc,
        _ if done == 0 => return Outcome::Failed(libc::EAGAIN),
        _ => {}
    }
    Outcome::Done(done as isize)
}

/// Nothing lies in the pipe: `None` once something does, if the call may wait for that.
#[cold]
fn wait_for_pipe(pipe: c_int, flags: c_uint) -> Option<Outcome> {
    let settings = sys::fcntl(pipe, libc::F_GETFL, 0).unwrap_or(0);
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0 && settings & libc::O_NONBLOCK as usize == 0;
    let mut asked = libc::pollfd { fd: pipe, events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd. A cancellation point, as the program's own call.
    while unsafe { next::poll(&raw mut asked, 1, if waits { -1 } else { 0 }) } < 0 {
        if !wait::goes_on_after_signal() {
            return Some(Outcome::Failed(next::errno()));
        }
    }
    if asked.revents & libc::POLLIN != 0 {
        None
    } else if asked.revents & libc::POLLHUP != 0 {
        // Nobody writes into it any more.
        Some(Outcome::Done(0))
    } else {
        Some(Outcome::Failed(libc::EAGAIN))
    }
}

/// From a socket into a pipe. What lies in a ring is put into the pipe while nobody else receives,
/// and is received as far as the pipe takes it.
fn splice_out(endpoint: Endpoint<'static>, pipe: c_int, count: usize, flags: c_uint) -> Outcome {
    let settings = sys::fcntl(pipe, libc::F_GETFL, 0).unwrap_or(0);
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0 && settings & libc::O_NONBLOCK as usize == 0;
    if is_active(endpoint) && endpoint.slot().has(flag::SHARED) {
        // As in a receive.
        crate::service::watch(endpoint);
    }
    let mut done = 0;
    while done < count {
        match wait_for_place(pipe, waits && done == 0) {
            Ok(()) => {}
            Err(_) if done > 0 => break,
            Err(libc::EPIPE) => {
                // SAFETY: to this thread, as the kernel does.
                unsafe { libc::raise(libc::SIGPIPE) };
                return Outcome::Failed(libc::EPIPE);
            }
            Err(errno) => return Outcome::Failed(errno),
        }
        let left = count - done;
        let none = core::ptr::null_mut;
        let more = if done > 0 { flags | libc::SPLICE_F_NONBLOCK } else { flags };
        // SAFETY: no offsets; a cancellation point, as the program's own call.
        let call = || unsafe { next::splice(endpoint.fd(), none(), pipe, none(), left, more) };
        let received =
            if is_active(endpoint) { None } else { recv_before(endpoint, 0, true, call) };
        match received {
            Some(Outcome::Done(moved)) => return Outcome::Done(done as isize + moved),
            Some(outcome) if done == 0 => return outcome,
            Some(_) => break,
            None => {}
        }
        match piece_out(endpoint, pipe, left, settings) {
            Ok(Take::Bytes(moved @ 1..)) => {
                done += moved;
                continue;
            }
            // The kernel tells it once.
            Ok(Take::Error(errno)) if done > 0 => {
                endpoint.keep_error(errno);
                break;
            }
            Ok(Take::Error(errno)) => return Outcome::Failed(errno),
            // The kernel moves nothing until somebody has received past it.
            Ok(Take::Mark) if done == 0 => return Outcome::Libc,
            Ok(Take::Mark) => break,
            Ok(_) | Err(libc::EAGAIN) => {}
            Err(_) if done > 0 => break,
            Err(errno) => return Outcome::Failed(errno),
        }
        // Waits for some, or finds out why there is none.
        let mut byte = 0u8;
        let piece = [iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 }];
        let more = if done == 0 { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: the piece is one byte.
        match unsafe { recv(endpoint.fd(), &piece, libc::MSG_PEEK | more) } {
            Outcome::Done(1..) => {}
            other if done == 0 => return other,
            Outcome::Failed(errno) if errno != libc::EAGAIN => {
                endpoint.keep_error(errno);
                break;
            }
            _ => break,
        }
    }
    Outcome::Done(done as isize)
}

/// Waits until a pipe has room, if the call may wait for that. The error is the call's.
fn wait_for_place(pipe: c_int, waits: bool) -> sys::Result<()> {
    let mut room = libc::pollfd { fd: pipe, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one pollfd. A cancellation point, as the program's own call.
    while unsafe { next::poll(&raw mut room, 1, if waits { -1 } else { 0 }) } < 0 {
        if !wait::goes_on_after_signal() {
            return Err(next::errno());
        }
    }
    match room.revents {
        libc::POLLOUT => Ok(()),
        // Nobody reads it.
        events if events & libc::POLLERR != 0 => Err(libc::EPIPE),
        _ => Err(libc::EAGAIN),
    }
}

/// What lies there now, up to `count` bytes, into a pipe that can be written to. `settings`: how the
/// pipe is open. The error is the pipe's.
fn piece_out(
    endpoint: Endpoint<'static>,
    pipe: c_int,
    count: usize,
    settings: usize,
) -> sys::Result<Take> {
    let mut buffer = [0u8; libc::PIPE_BUF];
    let most = count.min(buffer.len());
    let put = |bytes: &[u8]| kernel::pipe::put(pipe, bytes, settings);
    endpoint.take_by(buffer.get_mut(..most).unwrap_or_default(), put)
}
