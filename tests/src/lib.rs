//! Real programs under test: the framework that builds, starts, watches and ends them.
//!
//! The programs are plain C (`tests/programs`), know nothing of Ginnel and hold on TCP alone; a
//! test runs one on a [`Stand`], plainly or under the shim, and looks at what it said, how it ended
//! and how many bytes the rings carried:
//!
//! ```no_run
//! use ginnel_tests::{Stand, build};
//! let stand = Stand::shimmed("half-close", &[("GINNEL_TOKENS", "1")]);
//! let done = stand.run(&mut stand.command(build::program("half_close")));
//! assert!(done.success(), "{done}");
//! assert!(stand.report().ring_bytes() > 0);
//! ```
//!
//! Everything a stand makes lies in its own directory and is removed with it. A program that does
//! not end in time is looked at (`ginnel status`, a debugger's backtraces) before it, and what it
//! started, is killed by process id.

pub mod browser;
pub mod build;
pub mod cgroup;
pub mod conformance;
pub mod crash;
mod crowd;
pub mod daemon;
pub mod debian;
pub mod differential;
pub mod go;
pub mod host;
pub mod image;
pub mod json;
pub mod limit;
pub mod netns;
pub mod permit;
pub mod port;
pub mod programs;
pub mod release;
pub mod spoil;
mod stand;
pub mod switching;
pub mod user_manager;
mod watch;

pub use crowd::Crowd;
pub use stand::{Report, Stand, exit_on_interrupt, exit_on_panic};
pub use watch::{Done, Running};

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Says that a test, or a part of one, did not run, where `cargo test` does not hide it.
pub fn skip(what: &str, why: &str) {
    // Not eprintln!, which the harness captures in a test that passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}: {why}");
}

/// The kernel kills what is started if the thread that starts it dies without having done so: with
/// its test, that is.
pub fn dies_with_us(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec one system call is made.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    }
}

/// Whether this process may create namespaces and change users.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: geteuid has no precondition and touches no memory of ours.
    unsafe { libc::geteuid() == 0 }
}

/// A seed for this run: `GINNEL_SEED`, or one from the clock.
///
/// # Panics
/// When `GINNEL_SEED` is set and no number.
#[must_use]
pub fn seed() -> u64 {
    match std::env::var("GINNEL_SEED") {
        Ok(text) => text.parse().expect("GINNEL_SEED must be a number"),
        Err(_) => fresh_seed(),
    }
}

/// A seed from the clock.
#[must_use]
pub fn fresh_seed() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |d| d.as_secs() << 20 ^ u64::from(d.subsec_nanos()))
}
