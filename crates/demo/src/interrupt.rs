//! Ctrl-C and its relatives: a signal only sets a number, and every wait in this program looks at
//! it.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// The signal that came, or 0.
static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Starts listening for the signals that end a program.
pub fn watch() -> Result<()> {
    let signal = SIGNAL.get_or_init(Arc::default);
    for number in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        signal_hook::flag::register_usize(number, Arc::clone(signal), usize::try_from(number)?)?;
    }
    Ok(())
}

/// The exit status that a shell expects after the signal that came, if one came.
pub fn exit_code() -> Option<u8> {
    let number = SIGNAL.get()?.load(Ordering::Relaxed);
    if number == 0 { None } else { u8::try_from(128 + number).ok() }
}

/// Fails once a signal came, so that the caller goes home.
pub fn check() -> Result<()> {
    if exit_code().is_some() {
        bail!("interrupted");
    }
    Ok(())
}

/// Asks `done` again and again until it has an answer, for `limit` at most; `None` when the time is
/// over.
pub fn poll<T>(limit: Duration, mut done: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let end = Instant::now() + limit;
    loop {
        check()?;
        if let Some(answer) = done()? {
            return Ok(Some(answer));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
