//! `select`: a poll of what its sets say.

use super::sleep::{most_entries, sooner};
use super::{Few, IN, OUT, poll_special, special};
use crate::outcome::Outcome;
use crate::{deadline, next, runtime};
use libc::{c_int, fd_set, pollfd, sigset_t, timespec};

/// `select` and `pselect`. Sets may be null. The hook writes back a `select` timeout itself from
/// the time that passed.
///
/// # Safety
/// Non-null sets hold at least `nfds` bits.
pub unsafe fn select(
    nfds: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: Option<timespec>,
    mask: *const sigset_t,
) -> Outcome<c_int> {
    if nfds <= 0 || runtime::attachment().is_none() {
        return Outcome::Libc;
    }
    let sets = [read, write, except];
    let meanings = [IN, OUT, libc::POLLPRI];
    let bit = |set: *mut fd_set, fd: c_int| {
        let word = fd as usize / 64;
        // SAFETY: the caller's promise: the set holds `nfds` bits, in words of 64.
        !set.is_null() && unsafe { *set.cast::<u64>().add(word) } >> (fd % 64) & 1 == 1
    };
    let mut any = false;
    let mut polled: Few<pollfd> = Few::new();
    for fd in 0..nfds {
        let events = sets
            .iter()
            .zip(meanings)
            .filter(|(set, _)| bit(**set, fd))
            .fold(0, |sum, (_, meaning)| sum | meaning);
        if events != 0 {
            any |= special(fd).is_some();
            polled.push(pollfd { fd, events, revents: 0 });
        }
    }
    if !any {
        return Outcome::Libc;
    }
    // SAFETY: the caller's promise about `mask`.
    let mut done = unsafe { poll_special(&mut polled, timeout, mask) };
    if done == Err(libc::EINVAL) {
        // SAFETY: as above.
        done = unsafe { poll_in_pieces(&mut polled, timeout, mask) };
    }
    if let Err(errno) = done {
        return Outcome::Failed(errno);
    }
    if polled.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Outcome::Failed(libc::EBADF);
    }
    // What select calls readable, writable, exceptional (fs/select.c: POLLIN_SET, POLLOUT_SET,
    // POLLEX_SET).
    let answers = [
        IN | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR,
        OUT | libc::POLLWRBAND | libc::POLLERR,
        libc::POLLPRI,
    ];
    let mut count = 0;
    for (set, (meaning, answer)) in sets.iter().zip(meanings.iter().zip(answers)) {
        if set.is_null() {
            continue;
        }
        for entry in &polled {
            if entry.events & meaning == 0 {
                continue;
            }
            // SAFETY: as above.
            let word = unsafe { &mut *set.cast::<u64>().add(entry.fd as usize / 64) };
            if entry.revents & answer != 0 {
                count += 1;
            } else {
                *word &= !(1 << (entry.fd % 64));
            }
        }
    }
    Outcome::Done(count)
}

/// [`poll_special`] where the kernel takes fewer entries at a time (RLIMIT_NOFILE, which does not
/// bind its `select`): looks again every millisecond.
///
/// # Safety
/// `mask` is null or a signal mask.
unsafe fn poll_in_pieces(
    wanted: &mut [pollfd],
    timeout: Option<timespec>,
    mask: *const sigset_t,
) -> Result<usize, i32> {
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    let end = deadline::after(timeout);
    loop {
        let mut count = 0;
        for piece in wanted.chunks_mut(most_entries().max(1)) {
            // SAFETY: a null mask.
            count += unsafe { poll_special(piece, Some(now), core::ptr::null()) }?;
        }
        let left = sooner(deadline::remaining(end), 1_000_000).unwrap_or(now);
        if count > 0 || left.tv_nsec == 0 {
            return Ok(count);
        }
        // SAFETY: no entries; the caller's promise about `mask`.
        if unsafe { next::ppoll(core::ptr::null_mut(), 0, &raw const left, mask) } < 0 {
            return Err(next::errno());
        }
    }
}
