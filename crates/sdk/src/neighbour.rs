//! This process among its neighbours, as `ginnel-node` has it: joining a segment, waiters, who of
//! other members lives. All that this crate takes from there comes through this file.

use crate::{Error, Result, descriptors};
use ginnel_node::{Library, Look, Node, Reach, Rung, Settings, Waiter};
use ginnel_region::{Head, Segment, Use};
use std::path::Path;

/// As whom the processes that use named objects stand in the process table. Each copy of this crate
/// in a process has an entry of its own, beside the preloaded library's.
const LIBRARY: Library = Library::of_program("objects-1");

pub(crate) struct Neighbour(Node);

impl Neighbour {
    /// Joins the segment at `path`; a file is made, of `size` bytes, where there is none.
    pub fn join(path: &Path, size: u64) -> Result<Self> {
        let refused = |message| Error::Segment { message };
        let mut settings = Settings::from_environment();
        settings.segment = path.to_owned();
        settings.config.size = size;
        settings.tokens = false;
        let node = Node::new(settings, LIBRARY, |_| Ok(()), descriptors::tell);
        let (node, ()) = node.map_err(|no| refused(no.message))?;
        if !node.joined().fifos || node.joined().wake_dir() < 0 {
            let message = format!(
                "{}: nobody can be woken in this segment; in a virtual machine install the driver \
                 ginnel.ko, else see whether {0}.wake is this user's",
                path.display()
            );
            return Err(refused(message));
        }
        Ok(Self(node))
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

    /// Does any process of another member live that has its locks where this one has its own?
    pub fn member_is_beside(&self, member: u16) -> bool {
        self.0.member_is_beside(member)
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

    pub fn waiter(&self) -> Result<Waiter, ginnel_region::Error> {
        Waiter::new(&self.0)
    }

    pub fn retire(&self, waiter: Waiter) {
        waiter.retire(&self.0);
    }

    /// Wakes whoever waits with this page, a peer's number. True if somebody slept and was woken.
    pub fn ring(&self, page: u32, bit: u16) -> bool {
        self.0.ring(page, bit) == Rung::Woken
    }

    /// Wakes whoever waits with this page. False where it sleeps, and there is no way to wake it.
    pub fn reaches(&self, page: u32, bit: u16) -> bool {
        self.0.ring(page, bit) != Rung::Unreachable
    }

    /// Frees waiters of the dead, and gives back the entries of processes and members that are
    /// gone. Objects outlive those that made them, and parties are freed before (see
    /// [`crate::presence`]).
    pub fn reclaim(&self) {
        let mut look = Look::begin(&self.0, Reach::All);
        let (mut party, mut object) = (none, none);
        look.pages(&mut [(Use::Party, &mut party), (Use::Object, &mut object)]);
        look.end(&());
    }
}

fn none(_: &mut Look<'_>, _: Head) -> Option<Head> {
    None
}
