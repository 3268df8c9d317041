//! Looking at the other library's objects without opening them.

use super::{STATE, Seen, path_of, short};
use crate::layout::stands_in;
use crate::presence::Presence;
use crate::raw::Area;
use crate::{Kind, Result, Segment};
use ginnel_region::{Entry, PAGE, Use};
use std::sync::atomic::Ordering::Acquire;

/// What an entry's object says of itself, if it is the same before and after: it is not opened, and
/// may go at any time.
fn peek(presence: &Presence, entry: &Entry) -> Option<(Vec<u8>, Seen)> {
    let segment = presence.segment();
    let head = segment.head(entry.page).filter(|head| head.owner().kind == Use::Object)?;
    if stands_in(segment, head) != (entry.index, entry.generation) {
        return None;
    }
    let words = Area::new(segment, u64::from(entry.page) * PAGE, PAGE)?;
    let (path, word) = (path_of(words)?, words.word(STATE).load(Acquire));
    segment.names().is_live(entry).then(|| (path, Seen::of(presence, word)))
}

/// Every object of the other library: its path and its stage. Those whose makers died are taken
/// away.
///
/// # Errors
/// [`Forked`](crate::Error::Forked), [`Lost`](crate::Error::Lost), [`Gone`](crate::Error::Gone).
pub fn list(segment: &Segment) -> Result<Vec<(Vec<u8>, Seen)>> {
    let presence = &segment.inner.presence;
    presence.check_looking()?;
    let ours = |entry: &Entry| !entry.removed && entry.kind == Kind::Iceoryx2 as u16;
    let names = presence.segment().names();
    let (mut found, mut cleared) = (Vec::new(), false);
    for entry in names.entries().filter(ours) {
        match peek(presence, &entry) {
            Some((_, seen)) if seen.is_ruin() => cleared |= names.remove(&entry),
            Some(part) => found.push(part),
            None => {}
        }
    }
    if cleared {
        presence.bury_removed();
    }
    Ok(found)
}

/// What has this path, without opening it; what a dead maker left counts as nothing.
///
/// # Errors
/// As [`list`].
pub fn look(segment: &Segment, path: &[u8]) -> Result<Option<Seen>> {
    let presence = &segment.inner.presence;
    presence.check_looking()?;
    let entry = presence.segment().names().find(short(path).as_bytes());
    let found = entry.and_then(|entry| peek(presence, &entry));
    let found = found.filter(|(found, seen)| found == path && !seen.is_ruin());
    Ok(found.map(|(_, seen)| seen))
}

/// Takes the name from what has this path. False where nothing has it.
///
/// # Errors
/// As [`list`].
pub fn remove(segment: &Segment, path: &[u8]) -> Result<bool> {
    let presence = &segment.inner.presence;
    presence.check_looking()?;
    let names = presence.segment().names();
    let Some(entry) = names.find(short(path).as_bytes()) else { return Ok(false) };
    let Some((found, seen)) = peek(presence, &entry) else { return Ok(false) };
    let removed = found == path && names.remove(&entry);
    presence.bury_removed();
    Ok(removed && !seen.is_ruin())
}
