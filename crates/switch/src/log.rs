//! Log lines on standard error, as ginneld writes them: `level=info event=connected port=vm1`.
//! Under systemd the level goes before the line as the journal wants it (sd-daemon(3)); else a
//! line begins with `time=`, seconds since 1970.
//!
//! Whoever reads standard error may be slow, or stand still, and a machine whose front end comes
//! and goes without end may write as many lines as it likes. No frame waits for that: a line for
//! which there is no room is lost, and the next one says so.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt::{Display, Write as _};
use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How much a line matters: its number for the journal, and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something did not work.
    Error = 3,
    /// Somebody was turned away, or something is not as it should be.
    Warning = 4,
    /// What is going on.
    Info = 6,
}

/// Lines that were lost since the last that was not.
static LOST: AtomicU64 = AtomicU64::new(0);
static TO_JOURNAL: LazyLock<bool> = LazyLock::new(|| std::env::var_os("JOURNAL_STREAM").is_some());

/// Writes one line. A value that is no plain word is put in quotes, so that a line stays a line.
pub fn write(level: Level, event: &str, fields: &[(&str, &dyn Display)]) {
    let name = format!("{level:?}").to_lowercase();
    let mut line = if *TO_JOURNAL {
        format!("<{}>", level as u8)
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("time={}.{:03} ", now.as_secs(), now.subsec_millis())
    };
    // Writing to a string cannot fail.
    let _ = write!(line, "level={name} event={event}");
    for (key, value) in fields {
        let value = value.to_string();
        let odd = |c: char| c.is_control() || c.is_whitespace() || "\"=\\".contains(c);
        let plain = !value.is_empty() && !value.contains(odd);
        let _ =
            if plain { write!(line, " {key}={value}") } else { write!(line, " {key}={value:?}") };
    }
    let lost = LOST.swap(0, Ordering::Relaxed);
    let _ = if lost == 0 { writeln!(line) } else { writeln!(line, " lines_lost={lost}") };
    if !put(std::io::stderr(), &line) {
        LOST.fetch_add(lost + 1, Ordering::Relaxed);
    }
}

/// Writes a line where there is room for it.
fn put(to: impl AsFd, line: &str) -> bool {
    let mut polled = [PollFd::new(&to, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let asked = poll(&mut polled, Some(&now));
    // A pipe has room for 4 KiB then (pipe(7), PIPE_BUF), a socket for more.
    let room = asked.is_ok() && polled[0].revents().contains(PollFlags::OUT);
    // There is nobody to tell that standard error is closed.
    room && rustix::io::write(&to, line.as_bytes()).is_ok()
}

/// `log!(Info, "connected", port = name)`: see [`fn@crate::log::write`].
#[macro_export]
macro_rules! log {
    ($level:ident, $event:literal $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::log::write($crate::log::Level::$level, $event, &[$((stringify!($key), &$value)),*])
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_who_reads() {
        let (reads, writes) = rustix::pipe::pipe().expect("a pipe");
        let line = "level=info event=connected port=vm1\n".repeat(100);
        let written = (0..1000).take_while(|_| put(&writes, &line)).count();
        assert!((1..1000).contains(&written), "{written}");
        let mut room = vec![0; 65536];
        assert!(rustix::io::read(&reads, &mut room[..]).is_ok_and(|len| len > 4096));
        assert!(put(&writes, &line), "there is room again");
    }
}
