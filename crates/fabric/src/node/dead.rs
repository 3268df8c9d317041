//! Memory of the dead.

use super::{c_path, fifo_name, guard, lives, reopen, wake_directory};
use crate::Error;
use crate::layout::endpoint::{ENDPOINT, FIFO, JOB};
use crate::layout::memory::owner_of;
use crate::layout::pair::{self, PAIR};
use crate::layout::{head_of, word};
use ginnel_region::sys::{self, Fd};
use ginnel_region::{Head, Segment};
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Frees what the dead left in the segment at `path`, and removes it where nobody is left. Nothing
/// where there is none.
///
/// # Errors
/// What stood against it.
pub fn clean(path: &Path) -> Result<(), Error> {
    let segment = match Segment::open(path) {
        Err(ginnel_region::Error::System { errno: libc::ENOENT, .. }) => return Ok(()),
        opened => opened?,
    };
    let done = guard(path, &segment).and_then(|guard| {
        let (Some(_guard), Some(file)) = (guard, reopen(path, &segment)?) else { return Ok(()) };
        let flags = libc::O_DIRECTORY | libc::O_RDONLY | libc::O_NOFOLLOW;
        let wakes = sys::openat(libc::AT_FDCWD, &c_path(&wake_directory(path))?, flags, 0)
            .map_or(Fd(-1), Fd);
        reclaim(&segment, &file, &wakes);
        remove_if_empty(&segment, path);
        Ok(())
    });
    segment.close();
    done
}

/// Removes a segment in which nothing is left. The caller has the guard.
pub(super) fn remove_if_empty(segment: &Segment, path: &Path) {
    if segment.heads_within_reach().next().is_none()
        && let (Ok(file), directory) = (c_path(path), wake_directory(path))
    {
        let _ = sys::unlinkat(libc::AT_FDCWD, &file);
        let _ = std::fs::remove_dir(directory);
    }
}

/// Frees the groups of the dead. The caller has the guard.
pub(super) fn reclaim(segment: &Segment, file: &Fd, wakes: &Fd) {
    let free = |head: Head| {
        if let Some(head) = segment.take(head) {
            segment.release_groups(&[head]);
        }
    };
    let heads: Vec<Head> = segment.heads_within_reach().collect();
    for &head in &heads {
        let first = word(segment, head.page(), 0).load(Ordering::Acquire);
        if head.is_busy() {
            // Whoever makes or frees groups has the guard, which the caller has.
            free(head);
        } else if first == ENDPOINT && sys::byte_is_shared(file.0, head.page().into()) == Ok(false)
        {
            let number = word(segment, head.page(), FIFO).load(Ordering::Relaxed);
            let _ = sys::unlinkat(wakes.0, &fifo_name(number));
            free(head);
        }
    }
    let jobs = jobs_of_the_living(segment, file, &heads);
    for &head in &heads {
        let is_nobodys = if head_of(segment, head.page(), PAIR) == Some(head) {
            pair::is_nobodys(segment, head.page(), |id| lives(segment, file, id))
        } else {
            owner_of(segment, head)
                .is_some_and(|(owner, job)| !lives(segment, file, owner) && !jobs.contains(&job))
        };
        if is_nobodys {
            free(head);
        }
    }
}

/// The jobs of which somebody lives.
fn jobs_of_the_living(segment: &Segment, file: &Fd, heads: &[Head]) -> HashSet<u64> {
    let pages = heads
        .iter()
        .map(|head| head.page())
        .filter(|page| head_of(segment, *page, ENDPOINT).is_some());
    let living = pages.filter(|page| sys::byte_is_shared(file.0, (*page).into()).unwrap_or(true));
    living.map(|page| word(segment, page, JOB).load(Ordering::Relaxed)).collect()
}
