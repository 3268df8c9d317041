//! Several messages in one call, `sendmmsg` and `recvmmsg`.

use super::{control_follows, descriptors_came, fast_open, receive_one, send_one};
use crate::hooks::clock::{now, remaining};
use crate::hooks::io::{self, MOST_PIECES};
use crate::hooks::{Outcome, bypass, cancel, set_errno};
use crate::next;
use libc::{c_int, c_uint, mmsghdr, timespec};

/// What a call that stopped at message `done` returns: how many went before, or `result` where none
/// did.
fn so_far(done: c_uint, result: c_int) -> c_int {
    // At most 1024, so it fits.
    let done = done as c_int;
    if result >= 0 {
        done + result
    } else if done > 0 {
        done
    } else {
        result
    }
}

/// As the kernel's: stops at the first message that fails or goes in part, and an error after the
/// first message is not told.
#[unsafe(no_mangle)]
pub(in crate::hooks) unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    cancel::point();
    if bypass() || io::is_nowhere(messages) {
        // SAFETY: the program's own arguments.
        return unsafe { next::sendmmsg(fd, messages, count, flags) };
    }
    let count = count.min(MOST_PIECES as c_uint);
    let mut done = 0;
    while done < count {
        // SAFETY: `done` is below the program's count of messages.
        let entry = unsafe { messages.add(done as usize) };
        // SAFETY: one of the program's messages.
        let (outcome, size) = unsafe { send_one(fd, &raw const (*entry).msg_hdr, flags) };
        let all = match outcome {
            Outcome::Done(sent) => {
                // SAFETY: as above. The kernel moves less than 2^31 bytes, so it fits.
                unsafe { (*entry).msg_len = sent as c_uint };
                sent.unsigned_abs() == size
            }
            Outcome::Failed(error) => {
                set_errno(error);
                return so_far(done, -1);
            }
            // An empty message says nothing of those after it.
            // SAFETY: as above.
            Outcome::Libc if size == 0 && unsafe { (*entry).msg_hdr.msg_controllen } == 0 => {
                // SAFETY: as above.
                if unsafe { next::sendmmsg(fd, entry, 1, flags) } < 0 {
                    return so_far(done, -1);
                }
                true
            }
            Outcome::Libc => {
                for later in done + 1..count {
                    // SAFETY: one of the program's messages.
                    let message = unsafe { &raw const (*messages.add(later as usize)).msg_hdr };
                    // SAFETY: as above.
                    if unsafe { (*message).msg_controllen } != 0 {
                        // SAFETY: as above.
                        unsafe { control_follows(fd, message) };
                    }
                }
                // SAFETY: the rest of the program's messages.
                let sent = unsafe { next::sendmmsg(fd, entry, count - done, flags) };
                fast_open(fd, flags, sent as isize);
                return so_far(done, sent);
            }
        };
        done += 1;
        if !all {
            break;
        }
    }
    // At most 1024, so it fits.
    done as c_int
}

/// As the kernel's: the time is looked at after each message only, MSG_WAITFORONE makes all but the
/// first non-blocking, and an error after the first message is not told.
#[unsafe(no_mangle)]
pub(in crate::hooks) unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    cancel::point();
    // SAFETY: null or the program's own.
    let limit = unsafe { timeout.as_ref() }.copied();
    let usable =
        limit.is_none_or(|limit| limit.tv_sec >= 0 && (0..1_000_000_000).contains(&limit.tv_nsec));
    if bypass() || io::is_nowhere(messages) || !usable {
        // SAFETY: the program's own arguments.
        return unsafe { next::recvmmsg(fd, messages, count, flags, timeout) };
    }
    let start = if limit.is_some() { now() } else { timespec { tv_sec: 0, tv_nsec: 0 } };
    let count = count.min(MOST_PIECES as c_uint);
    let mut each_flags = flags & !libc::MSG_WAITFORONE;
    let mut done = 0;
    while done < count {
        // SAFETY: `done` is below the program's count of messages.
        let entry = unsafe { messages.add(done as usize) };
        // SAFETY: one of the program's messages.
        match unsafe { receive_one(fd, &raw mut (*entry).msg_hdr, each_flags) } {
            // SAFETY: as above. The kernel moves less than 2^31 bytes, so it fits.
            Outcome::Done(received) => unsafe { (*entry).msg_len = received as c_uint },
            Outcome::Failed(error) => {
                set_errno(error);
                return so_far(done, -1);
            }
            Outcome::Libc => {
                let rest_flags = if done == 0 { flags } else { each_flags };
                // SAFETY: the rest of the program's messages.
                let received =
                    unsafe { next::recvmmsg(fd, entry, count - done, rest_flags, timeout) };
                for index in 0..received.max(0).unsigned_abs() as usize {
                    // SAFETY: the kernel filled this one.
                    unsafe { descriptors_came(&raw const (*entry.add(index)).msg_hdr) };
                }
                return so_far(done, received);
            }
        }
        done += 1;
        if flags & libc::MSG_WAITFORONE != 0 {
            each_flags |= libc::MSG_DONTWAIT;
        }
        if let Some(limit) = limit {
            let left = remaining(limit, start, now());
            // SAFETY: not null, since there is a limit.
            unsafe { *timeout = left };
            if left.tv_sec == 0 && left.tv_nsec == 0 {
                break;
            }
        }
    }
    // At most 1024, so it fits.
    done as c_int
}
