//! `GINNEL_REPORT`: one line of JSON a process, appended to a file at its end: how many bytes went
//! which way.

use crate::{fds, own, runtime};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use ginnel_region::sys;
use ginnel_tcp::Slot;
use std::ffi::CString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

const NAMES: [&str; 8] = [
    "tcp_in",
    "ring_in",
    "tcp_out",
    "ring_out",
    "wakes_sent",
    "tokens_sent",
    "upgrades",
    "downgrades",
];
static TOTALS: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// Where to, as the environment and the working directory were when the process started: programs
/// clear the one and change the other.
static PATH: OnceLock<Option<CString>> = OnceLock::new();

/// At the process's start.
pub fn start() {
    PATH.get_or_init(|| {
        let path = PathBuf::from(std::env::var_os("GINNEL_REPORT")?);
        let path = std::env::current_dir().map_or_else(|_| path.clone(), |here| here.join(&path));
        CString::new(path.as_os_str().as_bytes()).ok()
    });
}

/// Adds what went over a socket that this process is done with, and that no process that had it too
/// has reported before.
pub fn add(slot: &Slot) {
    let counters = [
        &slot.in_tcp,
        &slot.in_ring,
        &slot.out_tcp,
        &slot.out_ring,
        &slot.wakes,
        &slot.tokens,
        &slot.upgrades,
        &slot.downgrades,
    ];
    for ((total, counter), reported) in TOTALS.iter().zip(counters).zip(&slot.reported) {
        let now = counter.load(Relaxed);
        if now == 0 {
            continue;
        }
        total.fetch_add(now.saturating_sub(reported.fetch_max(now, Relaxed)), Relaxed);
    }
}

/// In a fork child: begins anew.
pub fn forget() {
    for total in &TOTALS {
        total.store(0, Relaxed);
    }
}

/// At the process's end.
pub fn write() {
    let Some(attachment) = runtime::attachment() else { return };
    if !own::is_ours_by_number() {
        return;
    }
    crate::uncounted::report();
    let mut seen = Vec::new();
    for (_, entry) in fds::all() {
        if let fds::Entry::Endpoint(index) = entry
            && !seen.contains(&index)
        {
            seen.push(index);
            add(attachment.ledger.slot(index));
        }
    }
    write_as(&attachment.node.processes.process(attachment.node.me()).name());
}

/// Writes what was added so far, for a process of this name.
pub fn write_as(program: &str) {
    let Some(path) = PATH.get().and_then(Option::as_ref) else { return };
    let mut line = format!(
        "{{\"pid\":{},\"program\":\"{}\"",
        sys::pid(),
        program.replace(|letter: char| letter.is_control() || matches!(letter, '"' | '\\'), "?")
    );
    for (name, total) in NAMES.iter().zip(&TOTALS) {
        let _ = write!(line, ",\"{name}\":{}", total.swap(0, Relaxed));
    }
    line.push_str("}\n");
    // A FIFO that nobody reads does not stop the program.
    if let Ok(fd) = sys::openat(
        libc::AT_FDCWD,
        path,
        libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_NONBLOCK,
        0o644,
    ) {
        // Beyond the limit on the size of files the kernel would end the program.
        let size = sys::fstat(fd).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        if size.saturating_add(line.len() as u64) <= sys::file_size_limit() {
            let _ = sys::write(fd, line.as_bytes());
        }
        sys::close(fd);
    }
}
