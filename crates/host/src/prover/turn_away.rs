//! Hanging up without waiting for what lies unread.
//!
//! Whoever connects can send descriptors at once. The kernel closes them where their message is thrown
//! away: in the thread that closes the connection. A TCP socket that lingers makes its last close wait
//! for as long as its owner likes (SO_LINGER, socket(7)), but not in a thread that is about to end
//! (`inet_release`, `net/ipv4/af_inet.c`). So a connection that nobody answers goes to a thread that
//! has nothing else open, and ends with it.

#![allow(unsafe_code)]

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;

/// Closes `client`, whatever lies unread in it. Returns before that has happened.
///
/// # Errors
/// There is no thread to be had, or no table of descriptors: nothing was closed.
pub fn turn_away(client: OwnedFd) -> Result<(), (io::Error, OwnedFd)> {
    let (turns, fd) = (Arc::new(Barrier::new(2)), client.as_raw_fd());
    let failure = Arc::new(Mutex::new(None));
    let ends = {
        let (turns, failure) = (turns.clone(), failure.clone());
        move || {
            // From here on this thread has descriptors of its own, and of these just that one.
            let alone = keep_alone(fd);
            *failure.lock().unwrap_or_else(PoisonError::into_inner) = alone.err();
            turns.wait();
            // Now the caller closes the other descriptor of it, which is not the last.
            turns.wait();
        }
    };
    if let Err(error) = thread::Builder::new().stack_size(super::server::STACK).spawn(ends) {
        return Err((error, client));
    }
    turns.wait();
    let failed = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    let result = match failed {
        Some(error) => Err((error.into(), client)),
        None => {
            drop(client);
            Ok(())
        }
    };
    turns.wait();
    result
}

/// Gives this thread a table of descriptors of its own, with none but `fd`. What it drops, the other
/// threads have too.
fn keep_alone(fd: i32) -> Result<(), Errno> {
    let close = |first: u32, last: u32, flags: u32| {
        // SAFETY: no memory is passed. The descriptors that it closes are this thread's copies, of
        // which nobody knows.
        match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::NOSYS)),
        }
    };
    let fd = fd.unsigned_abs();
    close(fd + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    match fd {
        0 => Ok(()),
        _ => close(0, fd - 1, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_side_hears_of_it_and_other_descriptors_stay() {
        let (mut own, client) = UnixStream::pair().expect("a pair");
        let (mut other, stays) = UnixStream::pair().expect("a pair");
        turn_away(client.into()).expect("a thread");
        assert_eq!(own.read(&mut [0; 1]).expect("the end"), 0);
        other.set_nonblocking(true).expect("set");
        assert_eq!(other.read(&mut [0; 1]).expect_err("open").kind(), io::ErrorKind::WouldBlock);
        drop(stays);
    }
}
