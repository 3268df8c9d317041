//! Why a call failed: a number and a text, kept for the calling thread.

use ginnel::Error;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

/// A failure that is about to be told.
pub struct Fail {
    code: c_int,
    text: String,
}

impl Fail {
    pub fn null(what: &str) -> Self {
        Self::invalid(&format!("{what} is NULL"))
    }

    pub fn invalid(text: &str) -> Self {
        Self { code: 5, text: text.to_owned() }
    }

    pub fn in_use(text: &str) -> Self {
        Self { code: 7, text: text.to_owned() }
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self { code: code(&error), text: error.to_string() }
    }
}

/// The number in `ginnel.h`.
fn code(error: &Error) -> c_int {
    match error {
        Error::NotFound { .. } => 1,
        Error::Taken { .. } => 2,
        Error::WrongKind { .. } => 3,
        Error::WrongShape { .. } | Error::Version { .. } => 4,
        Error::Invalid { .. } | Error::Name { .. } => 5,
        Error::Busy { .. } => 6,
        Error::InUse { .. } => 7,
        Error::NamesFull | Error::TooManyObjects | Error::TooManyMessages { .. } => 8,
        Error::SegmentFull { .. } | Error::NoMemory => 9,
        Error::TooLarge { .. } => 10,
        Error::WouldBlock => 11,
        Error::TimedOut => 12,
        Error::Ended { died: false } => 13,
        Error::Ended { died: true } => 14,
        Error::Deadlock => 15,
        Error::Forked => 16,
        Error::Lost => 17,
        Error::Gone => 18,
        Error::Corrupt { .. } => 19,
        Error::Segment { .. } => 20,
        Error::System { .. } => 21,
        _ => 22,
    }
}

thread_local! {
    static LAST: RefCell<(c_int, CString)> = RefCell::default();
}

/// Keeps why a call failed, and gives what it returns.
pub fn fail(why: Fail) -> c_int {
    let text = CString::new(why.text).unwrap_or_default();
    LAST.with_borrow_mut(|last| *last = (why.code, text));
    -1
}

/// See `ginnel.h`.
#[unsafe(no_mangle)]
pub extern "C" fn ginnel_errcode() -> c_int {
    LAST.with_borrow(|last| last.0)
}

/// See `ginnel.h`.
#[unsafe(no_mangle)]
pub extern "C" fn ginnel_errmsg() -> *const c_char {
    const NONE: &CStr = c"no call of this thread has failed";
    LAST.with_borrow(|last| if last.0 == 0 { NONE.as_ptr() } else { last.1.as_ptr() })
}
