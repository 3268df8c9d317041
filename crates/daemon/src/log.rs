//! Log lines: `level=info event=joined segment=default slot=3`, one for each event, on standard
//! error. Under systemd the journal adds the time, and the level goes before the line as it wants it
//! (sd-daemon(3)); else a line begins with `time=`, seconds since 1970.
//!
//! Whoever reads standard error may be slow, or stand still, and who comes and goes without end may
//! have as many lines written as he likes. Nothing that a daemon does waits for that: a line for
//! which there is no room is lost, and the next one says so (`lines_lost=`).
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
use std::sync::{LazyLock, Mutex, PoisonError};
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

/// The most that a line has: so much a pipe takes whole or not at all (pipe(7), `PIPE_BUF`).
const LINE: usize = 4096;

/// Lines that were lost since the last that was not.
static LOST: Mutex<u64> = Mutex::new(0);
static TO_JOURNAL: LazyLock<bool> = LazyLock::new(|| std::env::var_os("JOURNAL_STREAM").is_some());

/// Writes one line. A value that is no plain word is put in quotes, so that a line stays a line.
pub fn write(level: Level, event: &str, fields: &[(&str, &dyn Display)]) {
    let mut line = if *TO_JOURNAL {
        format!("<{}>", level as u8)
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("time={}.{:03} ", now.as_secs(), now.subsec_millis())
    };
    line.push_str(&format(level, event, fields));
    static AGAIN: LazyLock<Option<OwnedFd>> = LazyLock::new(|| again(std::io::stderr()));
    let mut lost = LOST.lock().unwrap_or_else(PoisonError::into_inner);
    let written = put(std::io::stderr(), AGAIN.as_ref(), &ended(line, *lost));
    *lost = if written { 0 } else { *lost + 1 };
}

fn format(level: Level, event: &str, fields: &[(&str, &dyn Display)]) -> String {
    let mut line = format!("level={} event={event}", format!("{level:?}").to_lowercase());
    for (key, value) in fields {
        let value = value.to_string();
        let odd = |c: char| c.is_control() || c.is_whitespace() || "\"=\\".contains(c);
        let plain = !value.is_empty() && !value.contains(odd);
        // Writing to a string cannot fail.
        let _ =
            if plain { write!(line, " {key}={value}") } else { write!(line, " {key}={value:?}") };
    }
    line
}

/// A line with its end, cut to [`LINE`] bytes.
fn ended(mut line: String, lost: u64) -> String {
    let end = if lost == 0 { "\n".to_owned() } else { format!(" lines_lost={lost}\n") };
    let most = LINE - end.len();
    if line.len() > most {
        let cut = (0..=most - "…".len()).rev().find(|&at| line.is_char_boundary(at));
        line.truncate(cut.unwrap_or(0));
        line.push('…');
    }
    line + &end
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
    // A pipe has room for a line then.
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

    const CONNECTED: &str = "level=info event=connected port=vm1\n";

    #[test]
    fn an_event_is_one_line_whatever_it_says() {
        assert_eq!(
            format(Level::Info, "joined", &[("slot", &3), ("why", &"")]),
            "level=info event=joined slot=3 why=\"\""
        );
        let line =
            format(Level::Error, "x", &[("a", &"two words"), ("b", &"line\nbreak \"q\" a=b")]);
        assert_eq!(line, r#"level=error event=x a="two words" b="line\nbreak \"q\" a=b""#);
    }

    #[test]
    fn a_long_line_is_cut() {
        assert_eq!(ended("level=info".to_owned(), 3), "level=info lines_lost=3\n");
        for odd in 0..4 {
            let line = ended(format!("{}{}", "x".repeat(odd), "ä€".repeat(LINE)), 12345);
            assert!((LINE - 8..=LINE).contains(&line.len()), "{}", line.len());
            assert!(line.ends_with("… lines_lost=12345\n"), "{line}");
        }
    }

    /// So many lines have room while nobody reads.
    fn fill(to: impl AsFd) -> usize {
        let again = again(&to);
        (0..1 << 20).take_while(|_| put(&to, again.as_ref(), CONNECTED)).count()
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
                scope.spawn(|| (0..5000).for_each(|_| _ = put(&writes, again.as_ref(), CONNECTED)));
            }
        });
    }
}
