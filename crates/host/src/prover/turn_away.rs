//! Hanging up without waiting for what lies unread.
//!
//! Whoever connects can send descriptors at once. The kernel closes them where their message is
//! thrown away: in the thread that closes the connection. A TCP socket that lingers makes its last
//! close wait for as long as its owner likes (SO_LINGER, socket(7)), but not in a thread that is
//! about to end (`inet_release`, `net/ipv4/af_inet.c`). So each connection that nobody answers ends
//! with a thread.
//!
//! Such a thread needs a table of descriptors of its own. A copy of the process's would hold other
//! askers' sockets for a moment, under numbers that are others' by then, and
//! [`super::numbers::Reader`] looks into the tables of all threads. So one thread has had its own
//! table from before the first asker on, with nothing of an asker's in it but the connection that
//! it is to end, and those that end with it copy that one.

#![allow(unsafe_code)]

use anyhow::{Context, Result, bail};
use ginnel_daemon::log;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

/// How long to wait where threads or descriptors are scarce.
const PAUSE: Duration = Duration::from_millis(10);
/// So many connections one thread ends, about: a user may send more than there could be threads.
const AT_ONCE: usize = 64;
/// Stack of a thread, bytes.
const STACK: usize = 64 << 10;

/// The way to the thread that hangs up.
#[derive(Debug)]
pub struct TurnAway(OwnedFd);

impl TurnAway {
    /// Starts the thread. To be called before there is any descriptor of somebody else's.
    ///
    /// # Errors
    /// There is no thread or socket to be had.
    pub fn start() -> Result<Self> {
        let (own, its) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (done, apart) = mpsc::channel();
        let fd = its.as_raw_fd();
        let run = move || {
            let alone = keep_alone(fd);
            let go_on = alone.is_ok();
            let _ = done.send(alone);
            if go_on {
                // SAFETY: the number is open in this thread's own table, and nobody else's there.
                end_each(&unsafe { OwnedFd::from_raw_fd(fd) });
            }
        };
        thread::Builder::new().stack_size(STACK).spawn(run).context("a thread that hangs up")?;
        match apart.recv() {
            Ok(Ok(())) => Ok(Self(own)),
            other => {
                bail!("a table of descriptors of its own, for the thread that hangs up: {other:?}")
            }
        }
    }

    /// Closes `client`, whatever lies unread in it, without waiting for that.
    pub fn hang_up(&self, client: OwnedFd) {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let beside = [client.as_fd()];
            control.push(SendAncillaryMessage::ScmRights(&beside));
            match sendmsg(&self.0, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => break,
                // Too many are on their way, or memory is scarce. A close here could wait for ever.
                Err(_) => thread::sleep(PAUSE),
            }
        }
        // It is on its way, so this is not its last descriptor; once it is gone, the other may be.
        drop(client);
        let _ = send(&self.0, &[0], SendFlags::NOSIGNAL);
    }
}

/// Gives this thread a table of descriptors of its own, with none but `fd` and the standard ones.
fn keep_alone(fd: RawFd) -> Result<(), Errno> {
    let close = |first: u32, last: u32, flags: u32| {
        // SAFETY: no memory is passed. What it closes are this thread's copies, which nobody knows.
        match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
            0 => Ok(()),
            _ => {
                Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS))
            }
        }
    };
    let fd = fd.unsigned_abs();
    close(fd + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    if fd > 3 { close(3, fd - 1, 0) } else { Ok(()) }
}

/// Ends all connections that come, until nobody sends any more: those that wait together by one
/// thread.
fn end_each(from: &OwnedFd) {
    let mut clients = Vec::new();
    loop {
        let wait = if clients.is_empty() { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        match next(from, wait) {
            Ok(Some(client)) if clients.len() < AT_ONCE => clients.push(client),
            Ok(Some(client)) => {
                clients.push(client);
                end_with_a_thread(std::mem::take(&mut clients));
            }
            Err(Errno::AGAIN) => end_with_a_thread(std::mem::take(&mut clients)),
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return end_with_a_thread(clients),
        }
    }
}

/// The next one, whose sender has closed its own descriptor; `None`: nobody sends any more.
fn next(from: &OwnedFd, wait: RecvFlags) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(from, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC | wait)?;
    let came = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    // The sender's own descriptor is closed when this has come.
    while came.is_some() && recv(from, &mut [0u8], RecvFlags::empty()) == Err(Errno::INTR) {}
    Ok(came)
}

/// Has a thread end that has a copy of this one's table, and with it the last descriptors of
/// `clients`.
fn end_with_a_thread(clients: Vec<OwnedFd>) {
    let turns = Arc::new(Barrier::new(2));
    loop {
        let its = turns.clone();
        let run = move || {
            // As unshare(CLONE_FILES) does it, which filters of containers refuse: it closes none.
            // SAFETY: no memory is passed, and this thread uses no descriptor.
            let copied = unsafe {
                libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, libc::CLOSE_RANGE_UNSHARE)
            } == 0;
            its.wait();
            // Now the other descriptors are closed, which were not the last.
            its.wait();
            if !copied {
                log!(Error, "no_table", why = "close_range");
            }
        };
        match thread::Builder::new().stack_size(STACK).spawn(run) {
            Ok(_) => break,
            Err(error) => {
                log!(Warning, "no_thread", why = error);
                thread::sleep(100 * PAUSE);
            }
        }
    }
    turns.wait();
    drop(clients);
    turns.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_side_hears_of_it_and_other_descriptors_stay() {
        let turn_away = TurnAway::start().expect("a thread");
        let (mut other, stays) = UnixStream::pair().expect("a pair");
        for _ in 0..300 {
            let (mut own, client) = UnixStream::pair().expect("a pair");
            turn_away.hang_up(client.into());
            assert_eq!(own.read(&mut [0; 1]).expect("the end"), 0);
        }
        other.set_nonblocking(true).expect("set");
        assert_eq!(
            other.read(&mut [0; 1]).expect_err("open").kind(),
            std::io::ErrorKind::WouldBlock
        );
        drop(stays);
    }
}
