//! Why a call failed: a number and a text, kept for the calling thread.

use ginnel::Error;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::ManuallyDrop;

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
        Error::NamesFull
        | Error::TooManyObjects
        | Error::TooManyMessages { .. }
        | Error::TooManyLoans { .. }
        | Error::TooManyPermits { .. } => 8,
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
        Error::Broken => 23,
        _ => 22,
    }
}

// A pthread key's destructor runs after those of these values and may call, and fail. So what is
// kept has no destructor; what frees it when the thread ends stands beside it, and a failure after
// that is kept for good.
thread_local! {
    static LAST: RefCell<(c_int, ManuallyDrop<Option<CString>>)> =
        const { RefCell::new((0, ManuallyDrop::new(None))) };
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        keep(0, None);
    }
}

fn keep(code: c_int, text: Option<CString>) {
    let old = LAST.with_borrow_mut(|last| {
        last.0 = code;
        std::mem::replace(&mut last.1, ManuallyDrop::new(text))
    });
    drop(ManuallyDrop::into_inner(old));
}

/// Keeps why a call failed, and gives what it returns.
pub fn fail(why: Fail) -> c_int {
    let _ = END.try_with(|_| ());
    keep(why.code, CString::new(why.text).ok());
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
    LAST.with_borrow(|last| last.1.as_ref().map_or(NONE.as_ptr(), |text| text.as_ptr()))
}
