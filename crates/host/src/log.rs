//! Log lines: `level=info event=joined segment=default slot=3 pid=77`, one for each event, on
//! standard error.
//!
//! Under systemd the journal adds the time, and the level goes before the line as it wants it
//! (sd-daemon(3)); else a line begins with `time=`, seconds since 1970.

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something did not work.
    Error,
    /// Somebody was turned away, or something is not as it should be.
    Warning,
    /// What is going on.
    Info,
}

static TO_JOURNAL: LazyLock<bool> = LazyLock::new(|| std::env::var_os("JOURNAL_STREAM").is_some());

/// Writes one line. A value with blanks, quotes or control characters is put in quotes, so that a
/// line stays a line.
pub fn write(level: Level, event: &str, fields: &[(&str, &dyn Display)]) {
    let mut line = if *TO_JOURNAL {
        format!("<{}>", [3, 4, 6][level as usize])
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("time={}.{:03} ", now.as_secs(), now.subsec_millis())
    };
    line.push_str(&format(level, event, fields));
    line.push('\n');
    // There is nobody to tell that standard error is closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn format(level: Level, event: &str, fields: &[(&str, &dyn Display)]) -> String {
    let mut line = format!("level={} event={event}", ["error", "warning", "info"][level as usize]);
    for (key, value) in fields {
        let value = value.to_string();
        let plain = !value.is_empty()
            && !value
                .contains(|c: char| c.is_control() || c.is_whitespace() || "\"=\\".contains(c));
        // Writing to a string cannot fail.
        let _ =
            if plain { write!(line, " {key}={value}") } else { write!(line, " {key}={value:?}") };
    }
    line
}

/// `log!(Info, "joined", segment = name, slot = 3)`: see [`fn@crate::log::write`].
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
    fn an_event_is_one_line_whatever_it_says() {
        assert_eq!(
            format(Level::Info, "joined", &[("slot", &3), ("why", &"")]),
            "level=info event=joined slot=3 why=\"\""
        );
        let line =
            format(Level::Error, "x", &[("a", &"two words"), ("b", &"line\nbreak \"q\" a=b")]);
        assert_eq!(line, r#"level=error event=x a="two words" b="line\nbreak \"q\" a=b""#);
    }
}
