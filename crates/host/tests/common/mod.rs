//! A daemon of its own for each test, and real QEMUs. Every wait has an end; what was started is
//! killed by process id when it is dropped.
#![allow(dead_code, reason = "not every test uses all of it")]

pub mod channels;
pub mod daemon;
pub mod qemu;

pub use ginnel_tests::dies_with_us;
use std::time::{Duration, Instant};

/// How long anything may take: long enough for a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `ready` gives something.
pub fn wait<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal to a process that this test started.
pub fn signal(pid: u32, signal: libc::c_int) {
    let pid = libc::pid_t::try_from(pid).expect("a pid");
    // SAFETY: touches no memory; the process is one of ours.
    unsafe { libc::kill(pid, signal) };
}

/// Says that this test, or a part of it, does not run, where `cargo test` does not hide it.
pub fn skip(why: &str) {
    use std::io::Write;
    // The harness names a test's thread after it.
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", thread.name().unwrap_or("a test"));
}

/// The numbers by which the kernel tells eventfds apart (`eventfd-id` in fdinfo, Linux 5.2): those
/// that a process has open.
pub fn eventfds(pid: u32) -> Vec<u64> {
    let read = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path()).ok();
    let infos =
        std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("proc").flatten().filter_map(read);
    infos
        .filter_map(|info| {
            info.lines().find_map(|line| line.strip_prefix("eventfd-id:")?.trim().parse().ok())
        })
        .collect()
}
