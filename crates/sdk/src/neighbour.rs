//! This process among its neighbours, as `ginnel-channel` has it: joining a segment, waiters, who
//! of other members lives. All that this crate takes from there comes through this file.
//!
//! The list of processes (the ledger) is one apart, in `GINNEL_DIR/objects`: the preloaded library
//! keeps its own, and neither takes the other's entries for those of a program before an exec.

use crate::{Error, Result};
use ginnel_channel::attach::{Attachment, Settings};
use ginnel_channel::waiter::{Rung, Waiter, ring};
use ginnel_channel::{home, reclaim};
use ginnel_region::Segment;
use std::path::Path;

pub(crate) struct Neighbour(Attachment);

impl Neighbour {
    /// Joins the segment at `path`; a file is made, of `size` bytes, where there is none.
    pub fn join(path: &Path, size: u64) -> Result<Self> {
        let refused = |message| Error::Segment { message };
        let mut settings = Settings::from_environment();
        home::make_directory(&settings.directory).map_err(refused)?;
        settings.directory = settings.directory.join("objects");
        settings.segment = path.to_owned();
        settings.config.size = size;
        (settings.tokens, settings.chaos, settings.deaf) = (false, None, 0);
        let attachment = Attachment::new(settings, |_, _| {}).map_err(|no| refused(no.message))?;
        if !attachment.joined().fifos || attachment.joined().wake_dir() < 0 {
            let message = format!(
                "{}: nobody can be woken in this segment; in a virtual machine install the driver \
                 ginnel.ko, else see whether {0}.wake is this user's",
                path.display()
            );
            return Err(refused(message));
        }
        Ok(Self(attachment))
    }

    pub fn segment(&self) -> &Segment {
        &self.0.joined().segment
    }

    pub fn member(&self) -> u16 {
        self.0.joined().member
    }

    /// Does any process of another member live? Unknown counts as yes.
    pub fn member_lives(&self, member: u16) -> bool {
        self.0.member_lives(member)
    }

    /// The directory of wake-ups, open.
    pub fn wake_dir(&self) -> i32 {
        self.0.joined().wake_dir()
    }

    /// A descriptor that tells of wake-ups beside a waiter's own, edge by edge: those of machines,
    /// on a host where `ginneld` serves the segment.
    pub fn relayed(&self) -> Option<i32> {
        self.0.joined().bells.as_ref().map(|bells| bells.own()).filter(|&fd| fd >= 0)
    }

    pub fn waiter(&self) -> Result<Waiter> {
        Waiter::new(&self.0).map_err(Error::from)
    }

    pub fn retire(&self, waiter: Waiter) {
        waiter.retire(&self.0);
    }

    /// Wakes whoever waits with this page, a peer's number. True if somebody slept and was woken.
    pub fn ring(&self, page: u32, bit: u16) -> bool {
        ring(&self.0, page, bit, false) == Rung::Woken
    }

    /// Frees waiters of the dead.
    pub fn reclaim(&self) {
        reclaim::reclaim(&self.0);
    }
}
