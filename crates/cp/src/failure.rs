//! How a copy ends: exit codes, which are rsync's, and what is said.

use crate::names;
use std::fmt;

/// The command's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The command line is wrong, or the two ends speak different versions.
    Usage = 2,
    /// Source or destination cannot be had.
    Files = 3,
    /// The copy could not begin: no server, or it refused.
    Start = 5,
    /// A file could not be read or written, and nothing more could be done.
    Io = 11,
    /// The other end died, or broke the protocol.
    Protocol = 12,
    /// A signal ended it.
    Signal = 20,
    /// Some files were not copied.
    Partial = 23,
    /// Some files were gone before they could be read.
    Vanished = 24,
    /// The other end was silent for too long.
    Timeout = 30,
    /// The server did not answer at all.
    NoAnswer = 35,
}

impl Code {
    /// The code that a peer sent; one that is none is a broken protocol.
    #[must_use]
    pub fn of(number: u8) -> Self {
        let all = [Self::Usage, Self::Files, Self::Start, Self::Io, Self::Signal, Self::Partial];
        let more = [Self::Vanished, Self::Timeout, Self::NoAnswer];
        let found = all.into_iter().chain(more).find(|&code| code as u8 == number);
        found.unwrap_or(Self::Protocol)
    }
}

/// Why a copy ended before it was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// What happened, to what, and the way out.
    pub text: String,
}

/// What most functions give.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// One with this code.
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// The other end broke a rule.
    #[must_use]
    pub fn broken(what: &str) -> Self {
        let text =
            format!("the other end broke the protocol: {what}; what was there before is kept");
        Self::new(Code::Protocol, text)
    }

    /// A file or directory, and what the system said of it.
    #[must_use]
    pub fn of_path(code: Code, doing: &str, path: &[u8], error: &std::io::Error) -> Self {
        Self::new(code, format!("{}: {doing}: {}", names::shown(path), said(error)))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl From<ginnel::Error> for Failure {
    fn from(error: ginnel::Error) -> Self {
        use ginnel::Error;
        let code = match error {
            Error::TimedOut => Code::Timeout,
            Error::Segment { .. } | Error::NotFound { .. } | Error::SegmentFull { .. } => {
                Code::Start
            }
            _ => Code::Protocol,
        };
        Self::new(code, error.to_string())
    }
}

/// The system's words, without the number.
#[must_use]
pub fn said(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_rsyncs() {
        for code in [2, 3, 5, 11, 20, 23, 24, 30, 35] {
            assert_eq!(Code::of(code) as u8, code);
        }
        assert_eq!(Code::of(77), Code::Protocol);
        assert_eq!(said(&std::io::Error::from_raw_os_error(2)), "No such file or directory");
    }
}
