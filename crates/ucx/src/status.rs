//! What UCX hears of what failed.

use crate::abi::{CONNECTION_RESET, INVALID_PARAM, IO_ERROR, NO_MEMORY, NO_RESOURCE, Status};
use ginnel_fabric::Error;
use std::sync::Once;

/// UCX and the library above say "out of memory" at most.
#[cold]
fn say_full() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        eprintln!(
            "ginnel: the segment has no room left for what this rank asks of it: GINNEL_SIZE (bytes) makes a larger one, once \
             no job uses this one"
        );
    });
}

/// The status that stands for an error of the engine's.
pub fn status_of(error: Error) -> Status {
    match error {
        Error::Again => NO_RESOURCE,
        Error::Gone => CONNECTION_RESET,
        Error::NoMemory => {
            say_full();
            NO_MEMORY
        }
        Error::TooMany => NO_MEMORY,
        Error::TooLong | Error::Invalid => INVALID_PARAM,
        Error::NoMessage | Error::Refused(_) | Error::System(..) => IO_ERROR,
    }
}
