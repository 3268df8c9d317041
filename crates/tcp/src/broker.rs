//! Memory for a pair of processes, from a broker that has seen both ends of one connection.
//!
//! Processes of different users or containers on one kernel share no segment. Each hands its end of
//! a connection to the broker (`ginnel-broker`; docs/protocol.md, "Meeting by a broker"). The
//! broker reads both ends' initial sequence numbers. Where these mirror each other it gives the two
//! processes, and nobody else, one sealed memory, and tells both under which number the
//! connection's ends meet there. Addresses do not count: whatever translated them left the sequence
//! numbers alone.
//!
//! This is the messages, both sides of them, and how a program finds the broker. Each message is
//! one packet on a socket of type SOCK_SEQPACKET; numbers are little-endian.

use crate::unix;
use ginnel_node::wake::line::LINES;
use ginnel_region::sys::{self, Fd};
use std::path::{Path, PathBuf};
use syscalls::Sysno;

/// The directory of the broker's socket, where ginneld has a directory for each of its segments. A
/// container is given the directory: a socket in its place would be that of one broker's life.
pub const DIRECTORY: &str = "broker";
/// The broker's socket there.
pub const SOCKET: &str = "broker.sock";
/// Where the broker is asked if nothing else is said.
pub const DEFAULT: &str = "/run/ginnel/broker/broker.sock";
/// The version of both messages.
const VERSION: u8 = 1;

/// Asks for the other end of the connection whose socket is beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// This end called connect.
    pub connected: bool,
    /// Any number: it comes back with the answer.
    pub number: u64,
}

impl Question {
    /// Bytes of it on the socket.
    pub const SIZE: usize = 16;

    /// As it is sent: version, connected, six zeroes, number.
    #[must_use]
    pub fn bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..2].copy_from_slice(&[VERSION, u8::from(self.connected)]);
        bytes[8..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// From what was received; `None` where that is no question.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::SIZE] = bytes.try_into().ok()?;
        let [VERSION, connected @ 0..=1, 0, 0, 0, 0, 0, 0, number @ ..] = bytes else {
            return None;
        };
        Some(Self { connected: *connected == 1, number: u64::from_le_bytes(*number) })
    }
}

/// Says that the process does not need a pair any more: no connection of its own is in the memory.
/// Both processes hear [`Verdict::Ended`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Farewell {
    /// The pair's number.
    pub pair: u64,
}

impl Farewell {
    /// As it is sent, as long as a question: version, 2, six zeroes, pair.
    #[must_use]
    pub fn bytes(&self) -> [u8; Question::SIZE] {
        let mut bytes = [0; Question::SIZE];
        bytes[..2].copy_from_slice(&[VERSION, 2]);
        bytes[8..].copy_from_slice(&self.pair.to_le_bytes());
        bytes
    }

    /// From what was received; `None` where that is none.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Question::SIZE] = bytes.try_into().ok()?;
        let [VERSION, 2, 0, 0, 0, 0, 0, 0, pair @ ..] = bytes else { return None };
        Some(Self { pair: u64::from_le_bytes(*pair) })
    }
}

ginnel_region::numbered! {
    /// What became of a question.
    pub enum Verdict: u8 {
        /// The other end is another process's: both meet in the pair's memory. It is beside the
        /// answer where the process has not got it yet, and behind it the process's ends of the
        /// pair's lines. (A program under an older Ginnel has room for the memory alone, and the
        /// kernel closes the rest.)
        Meet = 0,
        /// Nobody came with the other end in time.
        Nobody = 1,
        /// It is no TCP connection, or its numbers could not be read.
        Unreadable = 2,
        /// The user has as many questions, or processes that ask, as one may have.
        TooMany = 3,
        /// The user has as many pairs as one may have.
        TooManyPairs = 4,
        /// There is no memory for a pair.
        NoMemory = 5,
        /// Both ends are one process's.
        OneProcess = 6,
        /// The ends' networks belong to different user namespaces: who owns one of them could make
        /// a socket there with any sequence numbers.
        OtherNetwork = 7,
        /// Not the answer to a question: the other process of this pair has gone.
        Ended = 8,
        /// The socket was read and closed; the other end has not come yet. Another answer follows.
        Waits = 9,
    }
}

/// The broker's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What became of it.
    pub verdict: Verdict,
    /// Which side the process is, where both ends meet: 0 or 1.
    pub side: u8,
    /// As in the [`Question`].
    pub number: u64,
    /// The pair's: a number that no other pair of this broker has. 0: none.
    pub pair: u64,
    /// Under which number the two ends meet in the pair's memory; random. 0: not at all.
    pub meeting: u64,
}

impl Answer {
    /// Bytes of it on the socket.
    pub const SIZE: usize = 32;

    /// One that only says why not.
    #[must_use]
    pub fn refusal(verdict: Verdict, number: u64) -> Self {
        Self { verdict, side: 0, number, pair: 0, meeting: 0 }
    }

    /// As it is sent: version, verdict, side, five zeroes, number, pair, meeting.
    #[must_use]
    pub fn bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..3].copy_from_slice(&[VERSION, self.verdict as u8, self.side]);
        for (place, number) in
            bytes[8..].chunks_exact_mut(8).zip([self.number, self.pair, self.meeting])
        {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// From what was received; `None` where that is no answer.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::SIZE] = bytes.try_into().ok()?;
        let [VERSION, verdict, side @ 0..=1, 0, 0, 0, 0, 0, numbers @ ..] = bytes else {
            return None;
        };
        let (numbers, []) = numbers.as_chunks::<8>() else { return None };
        let [number, pair, meeting] = numbers else { return None };
        Some(Self {
            verdict: Verdict::numbered(*verdict)?,
            side: *side,
            number: u64::from_le_bytes(*number),
            pair: u64::from_le_bytes(*pair),
            meeting: u64::from_le_bytes(*meeting),
        })
    }
}

/// Where the broker is to be asked, by `GINNEL_BROKER`: a path, or `off` for nowhere.
#[must_use]
pub fn from_environment() -> Option<PathBuf> {
    match std::env::var_os("GINNEL_BROKER") {
        None => Some(PathBuf::from(DEFAULT)),
        Some(off) if off == "off" || off.is_empty() => None,
        Some(path) => Some(PathBuf::from(path)),
    }
}

/// Is there a socket at `path`? Allocates nothing.
#[must_use]
pub fn is_there(path: &Path) -> bool {
    unix::is_there(path)
}

/// A connection to the broker at `path`, whose calls do not wait. `None`: nobody is there, or
/// somebody who is not to be trusted with a socket: neither root, nor this user, nor the owner of
/// `path`.
#[must_use]
pub fn connect(path: &Path) -> Option<Fd> {
    unix::connect(&unix::address(&[path.as_os_str()])?, path)
}

/// Sends a question with the socket `fd` beside it.
///
/// # Errors
/// The `errno`; EAGAIN where the broker has not read what was asked before.
pub fn ask(broker: i32, question: &Question, fd: i32) -> Result<(), i32> {
    unix::send(broker, &question.bytes(), fd)
}

/// Says farewell to a pair. Where that cannot be sent now it is to be said later.
pub fn part(broker: i32, pair: u64) {
    let bytes = Farewell { pair }.bytes();
    let flags = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as usize;
    // SAFETY: the bytes are readable until the call returns.
    let _ = unsafe {
        sys::raw(
            Sysno::sendto,
            [broker as usize, bytes.as_ptr() as usize, bytes.len(), flags, 0, 0],
        )
    };
}

/// What was beside an answer.
#[derive(Default)]
pub struct Beside {
    /// The memory of a pair that the process had not got yet.
    pub memory: Option<Fd>,
    /// Its ends of the pair's lines; none from a broker that knows of none.
    pub lines: [Option<Fd>; LINES],
}

/// What came from the broker.
pub enum Heard {
    /// An answer.
    Answer(Answer, Beside),
    /// Nothing yet.
    Nothing,
    /// It has gone, or does not speak as the broker does.
    Gone,
}

/// Receives what has come.
#[must_use]
pub fn hear(broker: i32) -> Heard {
    // One byte more than an answer has: what is longer is none.
    let mut bytes = [0u8; Answer::SIZE + 1];
    let mut receive = || unix::receive::<{ 1 + LINES }>(broker, &mut bytes);
    // Who is hung up on with a question that was not read hears of that first, and then what was
    // said before (the kernel's `__skb_try_recv_datagram`).
    let received = match receive() {
        Err(libc::ECONNRESET) => receive(),
        received => received,
    };
    let (received, [memory, lines @ ..]) = match received {
        Ok(received) => received,
        Err(libc::EAGAIN | libc::EINTR) => return Heard::Nothing,
        Err(_) => return Heard::Gone,
    };
    match bytes.get(..received).and_then(Answer::of_bytes) {
        Some(answer) => Heard::Answer(answer, Beside { memory, lines }),
        None => Heard::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_over_and_back() {
        let question = Question { connected: true, number: u64::MAX - 3 };
        assert_eq!(Question::of_bytes(&question.bytes()), Some(question));
        let farewell = Farewell { pair: 7 };
        assert_eq!(Farewell::of_bytes(&farewell.bytes()), Some(farewell));
        assert!(
            Question::of_bytes(&farewell.bytes()).is_none()
                && Farewell::of_bytes(&question.bytes()).is_none()
        );
        for verdict in 0..10 {
            let verdict = Verdict::numbered(verdict).expect("one of them");
            let answer = Answer { verdict, side: 1, number: 7, pair: u64::MAX, meeting: 1 << 63 };
            assert_eq!(Answer::of_bytes(&answer.bytes()), Some(answer));
        }
    }

    #[test]
    fn what_is_no_message_is_none() {
        let (question, answer) = (
            Question { connected: false, number: 3 }.bytes(),
            Answer::refusal(Verdict::Nobody, 3).bytes(),
        );
        for at in 0..8 {
            let (mut question, mut answer) = (question, answer);
            (question[at], answer[at]) = (99, 99);
            assert_eq!(Question::of_bytes(&question), None, "byte {at}");
            assert_eq!(Answer::of_bytes(&answer), None, "byte {at}");
        }
        assert_eq!(Question::of_bytes(&question[1..]), None);
        assert_eq!(Answer::of_bytes(&[]), None);
    }

    #[test]
    fn the_last_word_is_heard_of_one_who_hangs_up_on_a_question() {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: there is room for two descriptors.
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
        let [own, broker] = ends.map(Fd);
        assert_eq!(ask(own.0, &Question { connected: true, number: 3 }, own.0), Ok(()));
        let answer = Answer::refusal(Verdict::NoMemory, 3);
        assert_eq!(unix::send(broker.0, &answer.bytes(), own.0), Ok(()));
        drop(broker);
        assert!(matches!(hear(own.0), Heard::Answer(said, _) if said == answer));
        assert!(matches!(hear(own.0), Heard::Gone));
    }
}
