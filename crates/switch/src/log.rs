//! Log lines on standard error, as ginneld writes them: `level=info event=connected port=vm1`.
//! Under systemd the level goes before the line as the journal wants it (sd-daemon(3)); else a
//! line begins with `time=`, seconds since 1970.
//!
//! Whoever reads standard error may be slow, or stand still, and a machine whose front end comes
//! and goes without end may write as many lines as it likes. No frame waits for that: a line for
//! which there is no room is lost, and the next one says so.
//!
//! To ask for room before does not do: others write to the same pipe meanwhile, and a terminal has
//! room for some bytes of a line. So a socket is sent the line without waiting, and a pipe or a
//! terminal is opened anew: not to wait is said of an open file, which others have, too.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::fmt::{Display, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
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
    static AGAIN: LazyLock<Option<OwnedFd>> = LazyLock::new(|| again(std::io::stderr()));
    if !put(std::io::stderr(), AGAIN.as_ref(), &line) {
        LOST.fetch_add(lost + 1, Ordering::Relaxed);
    }
}

/// Opens a pipe or a terminal again, so that writing there waits for nobody. `None`: it is neither,
/// or another user's.
fn again(file: impl AsFd) -> Option<OwnedFd> {
    let kind = FileType::from_raw_mode(fstat(&file).ok()?.st_mode);
    if !matches!(kind, FileType::Fifo | FileType::CharacterDevice) {
        return None;
    }
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).ok()
}

/// Writes a line where there is room for it. `again` is what was opened [`again`].
fn put(to: impl AsFd, again: Option<&OwnedFd>, line: &str) -> bool {
    // There is nobody to tell that standard error is closed.
    let whole = |written: Result<usize, Errno>| written == Ok(line.len());
    if let Some(again) = again {
        return whole(rustix::io::write(again, line.as_bytes()));
    }
    match send(&to, line.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Err(Errno::NOTSOCK) => {}
        sent => return whole(sent),
    }
    let mut polled = [PollFd::new(&to, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let asked = poll(&mut polled, Some(&now));
    // A pipe has room for 4 KiB then (pipe(7), PIPE_BUF).
    let room = asked.is_ok() && polled[0].revents().contains(PollFlags::OUT);
    room && whole(rustix::io::write(&to, line.as_bytes()))
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

    const LINE: &str = "level=info event=connected port=vm1\n";

    /// So many lines have room while nobody reads.
    fn fill(to: impl AsFd) -> usize {
        let again = again(&to);
        (0..1 << 20).take_while(|_| put(&to, again.as_ref(), LINE)).count()
    }

    #[test]
    fn nobody_waits_for_who_reads() {
        let (reads, writes) = rustix::pipe::pipe().expect("a pipe");
        let written = fill(&writes);
        assert!((1..1 << 20).contains(&written), "{written}");
        let mut room = vec![0; 65536];
        assert!(rustix::io::read(&reads, &mut room[..]).is_ok_and(|len| len > 4096));
        assert!(fill(&writes) > 0, "there is room again");
    }

    #[test]
    fn nobody_waits_at_a_terminal_or_a_socket_that_stand_still() {
        let [_reads, writes] =
            std::os::unix::net::UnixStream::pair().map(|(a, b)| [a, b]).expect("two");
        assert!((1..1 << 20).contains(&fill(&writes)));
        let all = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR).expect("a terminal");
        rustix::pty::unlockpt(&all).expect("unlocked");
        let name = rustix::pty::ptsname(&all, Vec::new()).expect("its name");
        let terminal = open(name, OFlags::WRONLY | OFlags::NOCTTY, Mode::empty()).expect("opened");
        assert!((1..1 << 20).contains(&fill(&terminal)));
    }

    /// Several threads find the same room.
    #[test]
    fn nobody_waits_for_others_who_write() {
        let (_reads, writes) = rustix::pipe::pipe().expect("a pipe");
        let again = again(&writes);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5000).for_each(|_| _ = put(&writes, again.as_ref(), LINE)));
            }
        });
    }
}
