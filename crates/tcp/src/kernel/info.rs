//! What the kernel says of a connection: its state, its counters and its path (`TCP_INFO`, and the
//! queues beside it).

use super::{getsockopt, readable, unacknowledged};
use ginnel_region::sys::{self, Result};
use libc::c_int;

/// What the kernel knows of a connection, as far as it is needed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of data given to the kernel since the connection began (a SYN is not counted).
    pub sent: u64,
    /// Bytes of data that arrived, whether they were received by the program or not.
    pub arrived: u64,
    /// Bytes of data that the program received.
    pub received: u64,
    /// Window scales: what this side announced, what the other announced.
    pub scales: (u8, u8),
    /// The TCP state (1 = established).
    pub state: u8,
}

/// States of a connection (`net/tcp_states.h` of the kernel, as TCP_INFO tells them).
pub const ESTABLISHED: u8 = 1;
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
const TIME_WAIT: u8 = 6;

/// There is no connection any more.
pub const CLOSE: u8 = 7;

/// The other end has shut down, this one has not.
pub const CLOSE_WAIT: u8 = 8;
const LAST_ACK: u8 = 9;
const CLOSING: u8 = 11;

/// Has the other end's stream ended, by FIN or a reset, in this state?
fn has_fin_in(state: u8) -> bool {
    matches!(state, TIME_WAIT | CLOSE | CLOSE_WAIT | LAST_ACK | CLOSING)
}

/// The head of `struct tcp_info` (linux/tcp.h); the kernel fills as much as is asked for.
#[repr(C)]
#[derive(Clone, Copy)]
struct TcpInfo {
    state: u8,
    _bytes: [u8; 5],
    scales: u8,
    _limits: u8,
    _words: [u32; 24],
    _rates: [u64; 2],
    bytes_acked: u64,
    bytes_received: u64,
}

const _: () = assert!(std::mem::offset_of!(TcpInfo, bytes_acked) == 120);

fn tcp_info(fd: c_int) -> Result<TcpInfo> {
    // SAFETY: plain numbers.
    let mut info: TcpInfo = unsafe { std::mem::zeroed() };
    getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    Ok(info)
}

/// The TCP state (linux/tcp_states.h; 1 = established).
///
/// # Errors
/// The `errno`.
pub fn state(fd: c_int) -> Result<u8> {
    let mut state = 0u8;
    getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state)?;
    Ok(state)
}

/// Has everything that will ever come from the other end been received? So it is not where only
/// this end shut its receiving down, nor after an error that passes.
#[must_use]
pub fn nothing_follows(fd: c_int) -> bool {
    // In this order: what the state says is final.
    state(fd).is_ok_and(has_fin_in) && readable(fd) == 0
}

/// What TCP has heard of the path to the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// How often the oldest unacknowledged bytes were sent again.
    pub retransmits: u8,
    /// Keepalive and window probes since the last acknowledgement.
    pub probes: u8,
    /// Milliseconds since the last acknowledgement.
    pub silent: u32,
}

/// Reads what TCP has heard of the path.
///
/// # Errors
/// The `errno`.
pub fn path(fd: c_int) -> Result<Path> {
    // The head of `struct tcp_info` up to `tcpi_last_ack_recv`.
    let mut info = [0u32; 15];
    getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    let [_, _, retransmits, probes] = info[0].to_ne_bytes();
    Ok(Path { retransmits, probes, silent: info[14] })
}

/// TCP_INFO, and the bytes in the queues of receives and sends: read until TCP_INFO is the same
/// before and after (apart, under traffic, one reading in 500 is torn).
fn steady(fd: c_int) -> Result<(TcpInfo, u64, u64)> {
    for round in 0..200 {
        if round > 16 {
            // Bytes come in all the time: not in step with them.
            sys::yield_now();
        }
        let before = tcp_info(fd)?;
        let (queued, out) = (readable(fd), unacknowledged(fd));
        let after = tcp_info(fd)?;
        if before.bytes_acked == after.bytes_acked
            && before.bytes_received == after.bytes_received
            && before.state == after.state
        {
            return Ok((after, queued, out));
        }
    }
    Err(libc::EAGAIN)
}

/// What the kernel counts as acknowledged, what waits behind that in its send queue, and what it
/// counts as received: bytes, a SYN and a FIN as one each. `None` where they could not be read.
#[must_use]
pub fn totals(fd: c_int) -> Option<(u64, u64, u64)> {
    steady(fd).ok().map(|(info, _, out)| (info.bytes_acked, out, info.bytes_received))
}

/// Reads the connection's counters. `connected`: this side called connect: its SYN is counted among
/// the acknowledged bytes. The kernel counts a FIN as one byte too, either way; here it is none.
///
/// # Errors
/// The `errno`, or EAGAIN where traffic never paused long enough.
pub fn facts(fd: c_int, connected: bool) -> Result<Facts> {
    let (info, queued, out) = steady(fd)?;
    let fin_out =
        matches!(info.state, FIN_WAIT1 | FIN_WAIT2 | TIME_WAIT | CLOSE | LAST_ACK | CLOSING);
    let fin_in = has_fin_in(info.state);
    let arrived = info.bytes_received.saturating_sub(u64::from(fin_in));
    Ok(Facts {
        sent: (info.bytes_acked + out).saturating_sub(u64::from(connected) + u64::from(fin_out)),
        arrived,
        received: arrived.saturating_sub(queued),
        scales: (info.scales >> 4, info.scales & 15),
        state: info.state,
    })
}
