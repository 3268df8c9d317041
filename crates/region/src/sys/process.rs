//! This process and others: limits, numbers, time, signals.

use super::{Result, poll, raw};
use syscalls::Sysno;

/// A soft limit of this process.
fn soft_limit(resource: usize) -> Result<u64> {
    let mut limit = [0u64; 2];
    // SAFETY: `limit` has the shape of `struct rlimit64`.
    unsafe { raw(Sysno::prlimit64, [0, resource, 0, limit.as_mut_ptr() as usize, 0, 0]) }
        .map(|_| limit[0])
}

/// How many descriptors this process may have (`RLIMIT_NOFILE`, soft).
#[must_use]
pub fn descriptor_limit() -> u64 {
    soft_limit(libc::RLIMIT_NOFILE as usize).unwrap_or(0)
}

/// How large a file this process may make (`RLIMIT_FSIZE`, soft), bytes. To go beyond it raises
/// SIGXFSZ, which ends a program that does not expect it.
#[must_use]
pub fn file_size_limit() -> u64 {
    soft_limit(libc::RLIMIT_FSIZE as usize).unwrap_or(u64::MAX)
}

/// How much address space (`RLIMIT_AS`) and private memory (`RLIMIT_DATA`) this process may have,
/// soft, bytes.
#[must_use]
pub fn memory_limits() -> (u64, u64) {
    let limit = |which| soft_limit(which as usize).unwrap_or(u64::MAX);
    (limit(libc::RLIMIT_AS), limit(libc::RLIMIT_DATA))
}

/// Effective user and group.
#[must_use]
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: no arguments, cannot fail.
    let id = |number| unsafe { raw(number, [0; 6]) }.map_or(0, |id| id as u32);
    (id(Sysno::geteuid), id(Sysno::getegid))
}

/// Fills `buffer` with random bytes (`getrandom(2)`); a poor substitute from the clock where the
/// kernel refuses.
pub fn random(buffer: &mut [u8]) {
    // SAFETY: `buffer` is writable for its length.
    let got =
        unsafe { raw(Sysno::getrandom, [buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0, 0]) };
    if got != Ok(buffer.len()) {
        let mut seed = monotonic_ns() ^ u64::from(pid()) << 32;
        for byte in buffer {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = seed.to_be_bytes()[0];
        }
    }
}

/// A random number other than zero.
#[must_use]
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    random(&mut bytes);
    u64::from_ne_bytes(bytes) | 1
}

/// `getpid(2)`, asked of the kernel each time (a vfork child shares our memory but not our number).
#[must_use]
pub fn pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { raw(Sysno::getpid, [0; 6]) }.map_or(0, |pid| u32::try_from(pid).unwrap_or(0))
}

/// `getppid(2)`: 0 where the parent is in another pid namespace.
#[must_use]
pub fn parent() -> u32 {
    // SAFETY: no arguments.
    unsafe { raw(Sysno::getppid, [0; 6]) }.map_or(0, |pid| u32::try_from(pid).unwrap_or(0))
}

/// What a signal does, as the kernel has it (sigaction(2), x86-64 and others with a restorer).
#[repr(C)]
#[derive(Default)]
pub struct Action {
    /// The handler's address; 0 and 1: none.
    pub handler: usize,
    /// `SA_…`.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    mask: u64,
}

/// Asks what a signal does.
#[must_use]
pub fn signal_action(signal: usize) -> Option<Action> {
    let mut action = Action::default();
    // SAFETY: asks only; `action` has the kernel's shape.
    let asked = unsafe { raw(Sysno::rt_sigaction, [signal, 0, &raw mut action as usize, 8, 0, 0]) };
    asked.is_ok().then_some(action)
}

/// Nanoseconds of the monotonic clock, which all processes of a kernel share.
#[must_use]
pub fn monotonic_ns() -> u64 {
    nanoseconds_by(libc::CLOCK_MONOTONIC)
}

/// The same as of the kernel's last tick (ten milliseconds ago at most, where its processors run),
/// which costs less to ask for.
#[must_use]
pub fn coarse_monotonic_ns() -> u64 {
    nanoseconds_by(libc::CLOCK_MONOTONIC_COARSE)
}

fn nanoseconds_by(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` is not one of the functions that the shim replaces; `time` is
    // writable.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Is the processor one that QEMU emulates in software? An instruction takes ten times as long
/// then, and a wake-up too. (CPUID leaf 0x4000_0000, where hypervisors say who they are:
/// `target/i386/cpu.c` of QEMU.)
#[must_use]
pub fn is_emulated() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid;
        use std::sync::atomic::{AtomicU8, Ordering};
        // 0 not asked yet, else 1 + the answer: a hypervisor is asked by leaving the guest.
        static ANSWER: AtomicU8 = AtomicU8::new(0);
        if ANSWER.load(Ordering::Relaxed) == 0 {
            let name = (__cpuid(1).ecx >> 31 == 1)
                .then(|| __cpuid(0x4000_0000))
                .map(|told| [told.ebx, told.ecx, told.edx]);
            ANSWER.store(
                1 + u8::from(
                    name == Some([
                        u32::from_le_bytes(*b"TCGT"),
                        u32::from_le_bytes(*b"CGTC"),
                        u32::from_le_bytes(*b"GTCG"),
                    ]),
                ),
                Ordering::Relaxed,
            );
        }
        ANSWER.load(Ordering::Relaxed) == 2
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Sleeps for `ms` milliseconds, or until a signal comes.
pub fn sleep_ms(ms: i32) {
    let _ = poll(-1, 0, ms);
}

/// Gives the processor away to whoever else can run on it.
pub fn yield_now() {
    // SAFETY: no arguments.
    let _ = unsafe { raw(Sysno::sched_yield, [0; 6]) };
}

/// Does a process with this number exist (in this pid namespace)?
#[must_use]
pub fn pid_exists(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let asked = unsafe { raw(Sysno::kill, [pid as usize, 0, 0, 0, 0, 0]) };
    asked != Err(libc::ESRCH)
}

/// While it lives, no signal handler runs in this thread.
#[must_use]
pub struct SignalsBlocked(u64);

/// Blocks all signals of this thread until the value is dropped. For the few calls that a handler
/// must not come into the midst of, nor leave by `siglongjmp`. But for the one by which glibc has a
/// thread set its ids when another calls `setuid`: that one waits for it, perhaps with a lock that
/// this thread needs.
pub fn block_signals() -> SignalsBlocked {
    /// glibc's SIGSETXID (`sysdeps/unix/sysv/linux/internal-signals.h`).
    const SETS_IDS: u32 = 33;
    let (all, mut before) = (!(1u64 << (SETS_IDS - 1)), 0u64);
    let arguments = [
        libc::SIG_BLOCK as usize,
        &raw const all as usize,
        &raw mut before as usize,
        size_of::<u64>(),
        0,
        0,
    ];
    // SAFETY: both sets are as large as the kernel's.
    let blocked = unsafe { raw(Sysno::rt_sigprocmask, arguments) };
    SignalsBlocked(if blocked.is_ok() { before } else { 0 })
}

impl SignalsBlocked {
    /// The signals that were blocked before, one bit for each, the first for signal 1.
    #[must_use]
    pub fn before(&self) -> u64 {
        self.0
    }

    /// Blocks what was blocked before, and no more. Signals that came meanwhile are dealt with.
    pub fn restored(&self) {
        let arguments =
            [libc::SIG_SETMASK as usize, &raw const self.0 as usize, 0, size_of::<u64>(), 0, 0];
        // SAFETY: the set is as large as the kernel's.
        let _ = unsafe { raw(Sysno::rt_sigprocmask, arguments) };
    }

    /// The same for a moment.
    pub fn let_through(&self) {
        self.restored();
        std::mem::forget(block_signals());
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let arguments =
            [libc::SIG_SETMASK as usize, &raw const self.0 as usize, 0, size_of::<u64>(), 0, 0];
        // SAFETY: the set is as large as the kernel's, and what it was before.
        let _ = unsafe { raw(Sysno::rt_sigprocmask, arguments) };
    }
}

/// Does this thread run a signal handler on a stack of the handler's own (`sigaltstack(2)`), which
/// may be small?
#[must_use]
pub fn on_signal_stack() -> bool {
    // SAFETY: all zeroes is a valid value.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set, and the value is writable.
    let asked = unsafe { raw(Sysno::sigaltstack, [0, &raw mut stack as usize, 0, 0, 0, 0]) };
    asked.is_ok() && stack.ss_flags & libc::SS_ONSTACK != 0
}
