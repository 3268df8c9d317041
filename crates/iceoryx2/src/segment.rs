//! Which segment it is, and what became of it.

use ginnel::{Error, Options, Result, Segment, adapter};
use iceoryx2_log::{error, warn};
use std::cell::RefCell;
use std::sync::OnceLock;

static SEGMENT: OnceLock<Segment> = OnceLock::new();

thread_local! {
    static WHY: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// Has this process's services live in this segment. Before the first node is made; otherwise they
/// live in [`ginnel::Segment::own`]: the one that `GINNEL_SEGMENT` names, the device of a virtual
/// machine, or the user's own.
///
/// # Errors
/// [`Error::Invalid`] where services live in another one already.
pub fn use_segment(segment: &Segment) -> Result<()> {
    let used = SEGMENT.get_or_init(|| entered(segment.clone()));
    if used.path() == segment.path() {
        return Ok(());
    }
    let (used, asked) = (used.path().display(), segment.path().display());
    let what = format!("this process's services live in {used} already, and cannot in {asked}");
    Err(Error::Invalid { what })
}

/// Why the last call of this thread failed that says "internal error", "insufficient permissions"
/// or another word of iceoryx2's for what it does not know: a segment that is full, say. The text
/// names the thing and the way out.
#[must_use]
pub fn last_error() -> Option<Error> {
    WHY.with_borrow(Clone::clone)
}

pub(crate) fn segment() -> Result<&'static Segment> {
    if let Some(segment) = SEGMENT.get() {
        return Ok(segment);
    }
    let opened = Options::new().trusting(true).own().map_err(failed("open the segment"))?;
    Ok(SEGMENT.get_or_init(|| entered(opened)))
}

/// Said once, where others than this kernel's processes have the segment.
fn entered(segment: Segment) -> Segment {
    if adapter::is_between_machines(&segment) {
        warn!(from "ginnel-iceoryx2",
            "This layer trusts the group: every machine that has the segment {} can read and write \
             all that iceoryx2 keeps there, and one that writes nonsense can end this process.",
            segment.path().display());
    }
    segment
}

/// Keeps the reason of a failure for [`last_error`], and tells iceoryx2's log.
pub(crate) fn failed(doing: &'static str) -> impl Fn(Error) -> Error {
    move |why| {
        error!(from "ginnel-iceoryx2", "Unable to {}: {}.", doing, why);
        WHY.set(Some(why.clone()));
        why
    }
}
