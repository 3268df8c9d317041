//! A Go program's system call, on the thread's own stack and with the C library's registers: it is
//! sent through the library's own routing by number, as a C program's `syscall()` is.

use super::{exe, signals, threads};
use crate::next::{errno, set_errno};
use crate::{hooks, report};
use core::sync::atomic::{AtomicU8, Ordering};
use libc::c_long;

/// The kernel's numbers are below this one, …
pub const KERNELS: usize = 512;
/// … and those that the stubs use for calls of their own below this.
pub const NUMBERS: usize = KERNELS + 8;

/// A vfork child is about to be made.
pub const BEFORE_VFORK: c_long = KERNELS as c_long;
/// The parent goes on; the argument is what the kernel answered.
pub const AFTER_VFORK: c_long = KERNELS as c_long + 1;
/// A thread is to be made; the argument is where `clone`'s are.
pub const NEW_THREAD: c_long = KERNELS as c_long + 2;

/// What becomes of a call: 0, the kernel makes it; 1, the library; 2, the library where it makes a
/// process with memory of its own.
pub static OURS: [AtomicU8; NUMBERS] = [const { AtomicU8::new(0) }; NUMBERS];

/// The calls of which the library has to know: those that [`hooks::by_number`] tells apart.
const KNOWN: [c_long; 80] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_pidfd_getfd,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_create,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_setuid,
    libc::SYS_setreuid,
    libc::SYS_setresuid,
    libc::SYS_setgid,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_landlock_restrict_self,
    libc::SYS_seccomp,
    libc::SYS_prctl,
    libc::SYS_mlockall,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_prlimit64,
    libc::SYS_exit_group,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fork,
    // In programs whose threads are Go's own.
    libc::SYS_rt_sigaction,
    // Of a program that another one loaded.
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_newfstatat,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    BEFORE_VFORK,
    AFTER_VFORK,
    NEW_THREAD,
];

/// Before anything is replaced: which calls are the library's.
pub fn choose(own_threads: bool) {
    let mark = |number: c_long, what: u8| {
        if let Some(ours) = usize::try_from(number).ok().and_then(|number| OURS.get(number)) {
            ours.store(what, Ordering::Relaxed);
        }
    };
    KNOWN
        .iter()
        .filter(|number| !exe::is_asked_by(**number) || exe::is_other())
        .for_each(|number| mark(*number, 1));
    mark(libc::SYS_clone, 2);
    mark(libc::SYS_clone3, 2);
    mark(libc::SYS_rt_sigaction, own_threads.into());
}

/// Makes a call; the answer is the kernel's: an error is below zero.
///
/// # Safety
/// As for the system call of this number.
pub unsafe extern "C" fn carry(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let saved = errno();
    // SAFETY: the caller's promise.
    let answer = unsafe { route(number, [a, b, c, d, e, f]) };
    set_errno(saved);
    answer
}

/// # Safety
/// As for [`carry`].
unsafe fn route(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    match number {
        // First, as they are nearly all.
        libc::SYS_read | libc::SYS_write | libc::SYS_epoll_pwait => {}
        BEFORE_VFORK => {
            hooks::before_vfork();
            return 0;
        }
        AFTER_VFORK => {
            hooks::after_vfork(a);
            return 0;
        }
        NEW_THREAD => {
            // SAFETY: the stub passes the place of `clone`'s arguments.
            return unsafe { threads::start(core::ptr::with_exposed_provenance(a as usize)) };
        }
        // SAFETY: the program's own arguments.
        libc::SYS_rt_sigaction => return unsafe { signals::set(a, b, c, d) },
        // The handlers that would write it do not run.
        libc::SYS_exit_group if !hooks::is_elsewhere() => report::write(),
        number if exe::is_asked_by(number) || number == libc::SYS_execve => {
            // SAFETY: the program's own arguments.
            if let Some(answer) = unsafe { exe::answer(number, [a, b, c, d, e]) } {
                return answer;
            }
        }
        _ => {}
    }
    // SAFETY: the caller's promise.
    let answer = unsafe { hooks::by_number(number, a, b, c, d, e, f) };
    if answer == -1 { -c_long::from(errno()) } else { answer }
}

#[cfg(test)]
mod tests {
    /// A call that the routing tells apart must come to it.
    #[test]
    fn every_call_that_is_routed_is_known() {
        let (routing, here) = (include_str!("../hooks/raw.rs"), include_str!("calls.rs"));
        let mut seen = 0;
        for part in routing.split("libc::SYS_").skip(1) {
            let name = part
                .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
                .next()
                .unwrap_or_default();
            // A child that shares this memory comes back on this very stack.
            if name != "vfork" {
                seen += 1;
                assert!(
                    here.contains(&format!("libc::SYS_{name},")) || name.starts_with("clone"),
                    "{name}"
                );
            }
        }
        assert!(seen > 60, "{seen}");
    }
}
