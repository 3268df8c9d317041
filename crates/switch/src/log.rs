//! Log lines on standard error, as ginneld writes them: `level=info event=connected port=vm1`.
//! Under systemd the level goes before the line as the journal wants it (sd-daemon(3)); else a
//! line begins with `time=`, seconds since 1970.

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::sync::LazyLock;
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
    line.push('\n');
    // There is nobody to tell that standard error is closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// `log!(Info, "connected", port = name)`: see [`fn@crate::log::write`].
#[macro_export]
macro_rules! log {
    ($level:ident, $event:literal $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::log::write($crate::log::Level::$level, $event, &[$((stringify!($key), &$value)),*])
    };
}
