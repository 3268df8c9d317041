//! What a process says to the broker, and what it is told.

use super::State;
use crate::broker::matching::Client;
use crate::sockets::has_read_all;
use anyhow::Result;
use ginnel_node::wake::line::LINES;
use ginnel_tcp::broker::{Answer, Farewell, Question};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process that is to be given memory may take to read what it was sent before.
pub(super) const READS: Duration = Duration::from_millis(100);

/// What a process said.
pub(super) enum Heard {
    Question(Question, OwnedFd),
    Farewell(Farewell),
    Nonsense,
}

/// The next message; `None` at the end.
pub(super) fn receive(client: BorrowedFd<'_>) -> Option<Heard> {
    // One more than a question has: what is longer is none.
    let mut bytes = [0u8; Question::SIZE + 1];
    // Room for one descriptor. The kernel closes what does not fit.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(
            client,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(Errno::INTR) => {}
            other => break other.ok()?,
        }
    };
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    if received.bytes == 0 && socket.is_none() {
        return None;
    }
    let bytes = bytes.get(..received.bytes)?;
    Some(match (Question::of_bytes(bytes), socket, Farewell::of_bytes(bytes)) {
        (Some(question), Some(socket), _) => Heard::Question(question, socket),
        (_, None, Some(farewell)) => Heard::Farewell(farewell),
        _ => Heard::Nonsense,
    })
}

/// Sends an answer to a process that is there, without waiting.
pub(super) fn tell(state: &State, client: Client, answer: &Answer) {
    let _ = state.sockets.get(&client).map(|socket| say(socket.as_fd(), answer));
}

/// Sends an answer, without waiting.
pub(super) fn say(client: BorrowedFd<'_>, answer: &Answer) -> Result<(), Errno> {
    send(client, &answer.bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
}

/// Sends an answer with descriptors, once all before it was read.
///
/// # Errors
/// AGAIN: not until then.
pub(super) fn give(
    client: BorrowedFd<'_>,
    answer: &Answer,
    beside: &[BorrowedFd<'_>],
    until: Instant,
) -> Result<(), Errno> {
    while !has_read_all(client) {
        if Instant::now() >= until {
            return Err(Errno::AGAIN);
        }
        thread::sleep(Duration::from_millis(1));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1 + LINES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(beside));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(client, &[IoSlice::new(&answer.bytes())], &mut control, flags).map(drop)
}
