//! Who asks the prover, and that nobody keeps another waiting.
//!
//! Each connection is one question and has a thread of its own, since a descriptor that somebody
//! sends can make its last close wait: a TCP socket that lingers, a file of a file system that
//! stands still. So a user has only so many threads at once; who asks for more is turned away, and
//! stays on TCP. Nothing is queued here but the kernel's own queue of connections. The thread that
//! accepts closes nothing that somebody else may have sent ([`super::turn_away`]).

use super::numbers::Reader;
use super::turn_away::TurnAway;
use crate::users;
use anyhow::{Context, Result};
use ginnel_daemon::log;
use ginnel_tcp::proof::helper::{ANSWER, Question};
use rustix::fs::{Mode, chmod, unlink};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, recvmsg, send, socket_with,
};
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long one who has connected may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Questions of one user at once, and of all.
const OF_ONE_USER: usize = 16;
const OF_ALL: usize = 256;
/// Connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 128;
/// How long to wait where descriptors, memory or threads are scarce.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// At most one line of a kind is logged in that time: whoever fills the log with them has no right
/// to.
const BETWEEN_LINES: Duration = Duration::from_secs(1);
/// Stack of a thread, bytes.
pub(crate) const STACK: usize = 64 << 10;

/// Listens at `path`, in place of what an earlier instance left there. Anybody may connect.
///
/// # Errors
/// What failed.
pub fn listen_at(path: &Path) -> Result<OwnedFd> {
    let make = || -> Result<OwnedFd, Errno> {
        match unlink(path) {
            Err(error) if error != Errno::NOENT => return Err(error),
            _ => {}
        }
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        listen(&socket, BACKLOG)?;
        chmod(path, Mode::from_raw_mode(0o666))?;
        Ok(socket)
    };
    make().with_context(|| {
        format!("{}: listen (a socket's path has at most 107 bytes)", path.display())
    })
}

/// How many questions of each user are being answered.
#[derive(Default)]
struct Asking(Mutex<HashMap<u32, usize>>);

/// One of them; it counts until it is dropped.
struct Place {
    asking: Arc<Asking>,
    user: u32,
}

impl Asking {
    fn enter(self: &Arc<Self>, user: u32) -> Option<Place> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if users.values().sum::<usize>() >= OF_ALL
            || users.get(&user).is_some_and(|&count| count >= OF_ONE_USER)
        {
            return None;
        }
        *users.entry(user).or_default() += 1;
        Some(Place { asking: self.clone(), user })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = self.asking.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                users.remove(&self.user);
            }
        }
    }
}

/// Answers whoever connects, for ever.
///
/// # Errors
/// What makes it impossible to go on.
pub fn serve(listener: &OwnedFd, reader: Reader) -> Result<()> {
    let (reader, asking, turn_away) =
        (Arc::new(reader), Arc::new(Asking::default()), TurnAway::start()?);
    let (mut turned_away, mut scarce) = (Lines::default(), Lines::default());
    loop {
        let client = match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(client) => client,
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            // Descriptors or memory are scarce: whoever waits is answered when there are some
            // again.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                thread::sleep(PAUSE);
                continue;
            }
            Err(error) => return Err(error).context("accept"),
        };
        let user = users::of_peer(&client);
        let place = user.ok().and_then(|user| asking.enter(user));
        let not_answered = match place {
            Some(place) => match answer_beside(client, place, reader.clone()) {
                Ok(()) => continue,
                Err((error, client)) => {
                    scarce.one(|| log!(Warning, "no_thread", why = error));
                    client
                }
            },
            None => {
                turned_away
                    .one(|| log!(Warning, "too_many_questions", uid = user.unwrap_or(u32::MAX)));
                client
            }
        };
        turn_away.hang_up(not_answered);
    }
}

/// When a line of a kind was logged last.
#[derive(Default)]
pub(crate) struct Lines(Option<Instant>);

impl Lines {
    pub(crate) fn one(&mut self, log: impl FnOnce()) {
        if self.0.is_none_or(|last| last.elapsed() >= BETWEEN_LINES) {
            self.0 = Some(Instant::now());
            log();
        }
    }
}

/// Answers in a thread of its own; gives `client` back where there is none.
fn answer_beside(
    client: OwnedFd,
    place: Place,
    reader: Arc<Reader>,
) -> Result<(), (io::Error, OwnedFd)> {
    let asks = Arc::new(Mutex::new(Some(client)));
    let taken = asks.clone();
    let take =
        |asks: &Mutex<Option<OwnedFd>>| asks.lock().unwrap_or_else(PoisonError::into_inner).take();
    let answers = thread::Builder::new().stack_size(STACK).spawn(move || {
        // Dropped last: what the question brought is closed before its place is another's.
        let _place = place;
        if let Some(client) = take(&taken) {
            answer(&client, &reader);
        }
    });
    let Err(error) = answers else { return Ok(()) };
    take(&asks).map_or(Ok(()), |client| Err((error, client)))
}

/// Reads one question and answers it. Whatever is wrong with it: there is no secret.
fn answer(client: &OwnedFd, reader: &Reader) {
    for side in [Timeout::Recv, Timeout::Send] {
        if set_socket_timeout(client, side, Some(PATIENCE)).is_err() {
            return;
        }
    }
    let Some((question, socket)) = receive(client.as_fd()) else { return };
    let secret = secret(&question, socket.as_fd(), reader).unwrap_or(0);
    let bytes: [u8; ANSWER] = secret.to_le_bytes();
    let _ = send(client, &bytes, SendFlags::NOSIGNAL);
}

/// The question, and the socket that came beside it.
fn receive(client: BorrowedFd<'_>) -> Option<(Question, OwnedFd)> {
    // One more than a question has: what is longer is none.
    let mut bytes = [0u8; Question::SIZE + 1];
    // Room for one descriptor. The kernel closes what does not fit.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(client, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
            .ok()?;
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Some((Question::of_bytes(bytes.get(..received.bytes)?)?, socket?))
}

fn secret(question: &Question, socket: BorrowedFd<'_>, reader: &Reader) -> Option<u64> {
    let claim = question.claim(socket.as_raw_fd())?;
    match reader.numbers(socket, claim.connected) {
        Ok(numbers) => numbers.map(|numbers| claim.secret(numbers)),
        Err(error) => {
            log!(Error, "cannot_read", why = error);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_places_and_gives_them_back() {
        let asking = Arc::new(Asking::default());
        let places: Vec<Place> = std::iter::from_fn(|| asking.enter(7)).take(OF_ALL).collect();
        assert_eq!(places.len(), OF_ONE_USER);
        assert!(asking.enter(8).is_some(), "another user's are his own");
        drop(places);
        assert!(asking.enter(7).is_some());
        assert!(asking.0.lock().expect("not poisoned").is_empty(), "and nobody is remembered");
    }
}
