//! Memory of the dead.

use super::{PATIENCE, lives};
use crate::Error;
use crate::layout::endpoint::{ENDPOINT, JOB};
use crate::layout::memory::owner_of;
use crate::layout::pair::{self, PAIR};
use crate::layout::{head_of, word};
use crate::neighbour::{Guard, Hold, beside};
use ginnel_region::{Config, Head, Use};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::Ordering;

/// What the directory beside a segment is called while it is removed.
const GONE: &str = ".gone.wake";

/// Frees what the dead left in the segment at `path`, and removes it where nobody is left. Nothing
/// where there is none.
///
/// # Errors
/// What stood against it.
pub fn clean(path: &Path) -> Result<(), Error> {
    // Of one who was killed while it removed the segment there may be less than a file.
    if !path.exists() && !beside(path, ".wake").exists() && !beside(path, GONE).exists() {
        return Ok(());
    }
    let hold = Hold::join(path, &Config::default())?;
    let done = hold.guard(PATIENCE).map(|guard| {
        if let Some(guard) = guard {
            reclaim(&guard, &hold);
            remove_if_empty(&guard, &hold);
        }
    });
    hold.leave();
    done
}

/// Removes a segment's file, and what lies beside it, where nobody has anything in it, nor has
/// joined it for something else.
pub(super) fn remove_if_empty(_guard: &Guard, hold: &Hold) {
    let is_empty = || hold.segment().heads_within_reach().next().is_none();
    if hold.is_file() && is_empty() && !hold.is_others() {
        let (wakes, gone) = (beside(hold.path(), ".wake"), beside(hold.path(), GONE));
        // The file first, and the directory at once: whoever joined the file meanwhile, or makes it
        // anew and finds the old one's locks, finds that one of the two is not what the path names.
        let _ = std::fs::remove_file(hold.path());
        // Somebody else may be removing what was there just before, or was killed at that.
        for _ in 0..100 {
            let _ = std::fs::remove_dir_all(&gone);
            match std::fs::rename(&wakes, &gone) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                _ => break,
            }
        }
        let _ = std::fs::remove_dir_all(&gone);
    }
}

/// Frees the groups of the dead.
pub(super) fn reclaim(guard: &Guard, hold: &Hold) {
    let segment = hold.segment();
    let free = |head: Head| {
        if let Some(head) = segment.take(head) {
            segment.release_groups(&[head]);
        }
    };
    let heads: Vec<Head> =
        segment.heads_within_reach().filter(|head| head.owner().kind == Use::Endpoint).collect();
    for &head in &heads {
        let (first, member) = (word(segment, head.page(), 0), head.owner().member);
        let nobodys = if head.is_busy() {
            // Whoever on this machine makes or frees groups has the guard, which the caller has.
            hold.is_beside(member) || !hold.member_lives(member)
        } else {
            first.load(Ordering::Acquire) == ENDPOINT && !hold.lives(head)
        };
        if nobodys {
            free(head);
        }
    }
    let jobs = jobs_of_the_living(hold, &heads);
    for &head in &heads {
        let is_nobodys = if head_of(segment, head.page(), PAIR) == Some(head) {
            pair::is_nobodys(segment, head.page(), |id| lives(hold, id))
        } else {
            owner_of(segment, head)
                .is_some_and(|(owner, job)| !lives(hold, owner) && !jobs.contains(&job))
        };
        if is_nobodys {
            free(head);
        }
    }
    hold.reclaim(guard);
}

/// The jobs of which somebody lives.
fn jobs_of_the_living(hold: &Hold, heads: &[Head]) -> HashSet<u64> {
    let segment = hold.segment();
    let living = heads
        .iter()
        .filter_map(|head| head_of(segment, head.page(), ENDPOINT))
        .filter(|head| hold.lives(*head));
    living.map(|head| word(segment, head.page(), JOB).load(Ordering::Relaxed)).collect()
}
