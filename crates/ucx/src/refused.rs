//! What a rank does about messages that are not taken: words on standard error, and where they were
//! a rank's, its end.

use ginnel_fabric::active::Refused;
use std::sync::atomic::{AtomicU32, Ordering};

/// A rank's exit status then (`EX_SOFTWARE` of sysexits.h).
const GARBLED: i32 = 70;

/// Strangers are not heard, and the job goes on. A message between two ranks that is garbled never
/// comes: the job would wait for it, and for whatever follows, for ever. UCX tells that to nobody
/// who only receives, so the rank ends, and its launcher ends the job.
#[cold]
pub fn told(refused: Refused) {
    static STRANGERS: AtomicU32 = AtomicU32::new(0);
    /// More of them say nothing new, and may be somebody who fills a log.
    const SAID: u32 = 8;
    let (what, id) = match refused {
        Refused::Stranger(id) if STRANGERS.fetch_add(1, Ordering::Relaxed) < SAID => {
            ("messages of a stranger are not heard", id)
        }
        Refused::Stranger(_) => return,
        Refused::Peer(id) => ("a message of another rank is garbled", id),
        Refused::Own(id) => {
            ("another rank hears this one no more, of which a message was garbled", id)
        }
    };
    let ends = if matches!(refused, Refused::Stranger(_)) { "" } else { "; this rank ends" };
    eprintln!(
        "ginnel: {what} (endpoint {}; another program writes to the segment, or not all have the same GINNEL_JOB_KEY){ends}",
        id.page()
    );
    if !ends.is_empty() {
        // SAFETY: no memory is passed. Nothing else is to run: what UCX and the program would do at
        // their end may wait for the messages that do not come.
        unsafe { libc::_exit(GARBLED) };
    }
}
