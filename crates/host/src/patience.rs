//! A limit on what the kernel may wait for in the daemon's thread.
//!
//! Somebody can send a descriptor beside his bytes, and take care that it is the last one of a TCP
//! socket that lingers (SO_LINGER). When the daemon reads the bytes or closes the connection, the
//! kernel closes that socket in the daemon's thread, and waits there. The wait ends with any
//! signal: while the daemon works there is one every [`LIMIT`]. (Since Linux 6.16 SO_PASSRIGHTS
//! keeps such descriptors out, see [`crate::sockets`].)

use anyhow::Result;
use signal_hook::consts::SIGALRM;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long the kernel may wait in the midst of the daemon's work.
const LIMIT: Duration = Duration::from_millis(50);

/// Makes the signal one that does nothing else.
///
/// # Errors
/// If it cannot have a handler.
pub fn prepare() -> Result<()> {
    signal_hook::flag::register(SIGALRM, Arc::new(AtomicBool::new(false)))?;
    Ok(())
}

/// The daemon works, as long as the value lives.
#[must_use]
pub struct Working(());

/// From here on the kernel is not waited for.
pub fn work() -> Working {
    set(LIMIT);
    Working(())
}

impl Drop for Working {
    fn drop(&mut self) {
        set(Duration::ZERO);
    }
}

fn set(every: Duration) {
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: libc::suseconds_t::try_from(every.as_micros()).unwrap_or(0),
    };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: the value is readable, and what was set before is not asked for.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}
