//! `ginneld --prove`: proves for programs of the host, which may not read their own sockets'
//! sequence numbers, that they hold their ends of connections.
//!
//! A process of its own, with CAP_NET_ADMIN and nothing else, so that the daemon needs no
//! capability. A program hands it the socket and gets a hash
//! ([`ginnel_channel::proof::prover`] has the messages). Whoever holds a socket may ask about it:
//! the answer tells nothing to anybody who does not.
//!
//! Each question has a thread, since a hostile program can hold its own socket's lock in the
//! kernel for as long as it likes, and with it whoever asks for that socket's state. A user has
//! few at a time, so that nobody but this user's own programs waits.

use crate::config::Config;
use crate::log;
use crate::rundir::RunDir;
use anyhow::{Context, Result, ensure};
use ginnel_channel::proof::prover::{QUESTION, SOCKET, answer};
use ginnel_peer::credentials::Credentials;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, listen, recvmsg, send, socket_with,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Questions of one user at a time.
const OF_A_USER: u32 = 8;
/// Questions of all users at a time.
const OF_ALL: u32 = 256;
/// How long one may take to ask.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long nobody is let in where descriptors or threads have run out.
const PAUSE: Duration = Duration::from_millis(50);

/// How many questions are being answered, by user.
type Asking = Arc<Mutex<BTreeMap<u32, u32>>>;

/// Serves until it is killed.
///
/// # Errors
/// What failed, and what to do about it.
pub fn serve(config: &Config) -> Result<()> {
    let directory = RunDir::open(&config.run_dir)?;
    let _lock = directory.lock("prove.lock")?;
    let mut doors = Vec::new();
    for name in config.segments.keys() {
        directory.make_segment(name)?;
        doors.push(door(&config.socket(name, 0).with_file_name(SOCKET))?);
    }
    keep_one_capability()?;
    log!(Info, "proving", pid = std::process::id(), segments = doors.len(), run_dir = config.run_dir.display());
    let asking = Asking::default();
    loop {
        let mut polled: Vec<PollFd<'_>> = doors.iter().map(|door| PollFd::new(door, PollFlags::IN)).collect();
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("wait for questions"),
        }
        for (door, polled) in doors.iter().zip(&polled) {
            if polled.revents().intersects(PollFlags::IN) {
                admit(door, &asking);
            }
        }
    }
}

/// CAP_NET_ADMIN, and no way to any other.
fn keep_one_capability() -> Result<()> {
    let permitted = capabilities(None).context("look at capabilities")?.permitted;
    ensure!(
        permitted.contains(CapabilitySet::NET_ADMIN),
        "CAP_NET_ADMIN is missing: start it as root, or by the unit ginneld-prover.service, which gives it that and nothing else"
    );
    let one = CapabilitySet::NET_ADMIN;
    set_no_new_privs(true).context("give up new privileges")?;
    set_capabilities(None, CapabilitySets { effective: one, permitted: one, inheritable: CapabilitySet::empty() })
        .context("give up capabilities")
}

fn door(path: &Path) -> Result<OwnedFd> {
    let make = || -> Result<OwnedFd> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let door = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        bind(&door, &SocketAddrUnix::new(path)?)?;
        listen(&door, 128)?;
        fs::set_permissions(path, Permissions::from_mode(0o666))?;
        Ok(door)
    };
    make().with_context(|| format!("{}: listen (a socket's path has at most 107 bytes)", path.display()))
}

/// Lets one in who asks, unless his user asks too much.
fn admit(door: &OwnedFd, asking: &Asking) {
    let joiner = match accept_with(door, SocketFlags::CLOEXEC) {
        Ok(joiner) => joiner,
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
        Err(errno) => {
            log!(Error, "cannot_accept", why = errno);
            return std::thread::sleep(PAUSE);
        }
    };
    let Ok(who) = Credentials::of(&joiner) else { return };
    let Some(turn) = Turn::take(asking, who.uid) else { return };
    let began = std::thread::Builder::new().stack_size(128 << 10).spawn(move || {
        attend(&joiner);
        drop(turn);
    });
    if let Err(error) = began {
        log!(Error, "no_thread", why = error);
        std::thread::sleep(PAUSE);
    }
}

/// One of a user's questions.
struct Turn {
    asking: Asking,
    uid: u32,
}

impl Turn {
    fn take(asking: &Asking, uid: u32) -> Option<Self> {
        let mut counts = asking.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.values().sum::<u32>() >= OF_ALL || counts.get(&uid).is_some_and(|&count| count >= OF_A_USER) {
            return None;
        }
        *counts.entry(uid).or_default() += 1;
        Some(Self { asking: asking.clone(), uid })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut counts = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}

/// One question and its answer. Whoever asks nothing sensible is let go without a word.
fn attend(joiner: &OwnedFd) {
    let _ = set_socket_timeout(joiner, Timeout::Recv, Some(PATIENCE));
    let Some((question, socket)) = question(joiner) else { return };
    if let Some(answer) = answer(&question, socket.as_raw_fd()) {
        let _ = send(joiner, &answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// The question, and the one socket beside it.
fn question(joiner: &OwnedFd) -> Option<([u8; QUESTION], OwnedFd)> {
    // One byte more, so that a message that is too long is seen to be.
    let mut bytes = [0u8; QUESTION + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(joiner, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut sockets = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            sockets.extend(rights);
        }
    }
    let socket = sockets.pop().filter(|_| sockets.is_empty())?;
    (received.bytes == QUESTION).then(|| {
        let mut question = [0u8; QUESTION];
        question.copy_from_slice(&bytes[..QUESTION]);
        (question, socket)
    })
}
