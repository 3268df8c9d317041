//! Memory of the dead: pages of a segment whose owners are gone, and the entries of members and
//! processes.
//!
//! A [`Look`] walks the heads of the segment's pages and asks, for each kind of page, a handler:
//! whoever allocates pages of a kind knows when they are nobody's any more. Waiters are the node's
//! own. Pages of a kind that nobody brings a handler for are left alone: another library's
//! processes look after them.

use crate::node::Node;
use crate::place;
use crate::processes::{Holdings, Life};
use crate::waiter;
use crate::wake::page;
use ginnel_region::{Head, Use};

/// Where a [`Look`] looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Everywhere: through some megabytes of tables, most of them empty.
    All,
    /// At the pages up to where the peers say that they have claimed any; what that leaves out is
    /// to be looked at now and then all the same.
    Used,
}

/// Decides about pages of one kind.
///
/// Given the head of a page of its kind, it returns that head,
/// [taken](ginnel_region::Segment::take), if all that carries the page's tag is to be freed: nobody
/// uses it any more, and nobody will.
pub type Handler<'h> = &'h mut dyn FnMut(&mut Look<'_>, Head) -> Option<Head>;

/// One look for the dead.
pub struct Look<'n> {
    node: &'n Node,
    reach: Reach,
    /// Members of which nothing can come any more: what they hold by now is all there is. Their
    /// numbers are free only after a look everywhere, at pages of every kind that they have.
    gone: Vec<(u16, u64)>,
    members: Members,
    processes: Processes,
}

impl<'n> Look<'n> {
    /// Begins a look. What a library keeps beside the segment is looked at between this and
    /// [`Self::pages`].
    #[must_use]
    pub fn begin(node: &'n Node, reach: Reach) -> Self {
        let joined = node.joined();
        let gone = if reach == Reach::All {
            place::gone(&joined.segment, joined.place)
        } else {
            Vec::new()
        };
        Self { node, reach, gone, members: Members::default(), processes: Processes::default() }
    }

    /// Where it looks.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Does any process of a member live? Asked once for each.
    pub fn member_lives(&mut self, member: u16) -> bool {
        self.members.of(self.node, member)
    }

    /// Does the process of an entry of this node's process table live? The last few answers are
    /// kept.
    pub fn process_lives(&mut self, entry: u32) -> bool {
        self.processes.live(self.node, entry)
    }

    /// Has somebody been making or freeing a page for so long that it must be thought dead?
    #[must_use]
    pub fn is_left(&self, head: Head) -> bool {
        let node = self.node;
        node.processes.is_long_so(node.ticket(), node.joined().segment.id(), head)
    }

    /// Looks at the segment's pages, each with the handler for its kind, and frees what those say.
    /// Returns how many heads were freed, waiters apart.
    pub fn pages(&mut self, handlers: &mut [(Use, Handler<'_>)]) -> usize {
        let (reach, joined) = (self.reach, self.node.joined());
        let segment = &joined.segment;
        let mut ended = Vec::new();
        let mut look = |head: Head| {
            let kind = head.owner().kind;
            if kind == Use::Waiter {
                if let Some(head) = self.waiter_of_nobody(head) {
                    waiter::discard(joined, head);
                }
            } else if let Some((_, handler)) = handlers.iter_mut().find(|(of, _)| *of == kind) {
                ended.extend(handler(self, head));
            } else {
                self.gone.retain(|(member, _)| *member != head.owner().member);
            }
        };
        match reach {
            Reach::All => segment.owned().for_each(|(page, _)| match segment.head(page) {
                Some(head) => look(head),
                None => segment.release_orphan(page),
            }),
            Reach::Used => segment.heads_within_reach().for_each(look),
        }
        segment.release_groups(&ended);
        ended.len()
    }

    /// Ends a look everywhere: gives back the entries of members and of processes of which nothing
    /// is left. `holdings`: what the library keeps beside the process table.
    pub fn end(self, holdings: &impl Holdings) {
        if self.reach == Reach::All {
            self.node.processes.free_ended(self.node.library(), holdings);
        }
        for member in self.gone {
            place::free_member(&self.node.joined().segment, member);
        }
    }

    /// Takes a waiter that is one of the dead.
    fn waiter_of_nobody(&mut self, head: Head) -> Option<Head> {
        let joined = self.node.joined();
        let maker = head.owner().member;
        let ours = maker == joined.member;
        let nobodys = if head.is_busy() {
            (ours || !self.member_lives(maker)) && self.is_left(head)
        } else if ours {
            let process = page::owner_word(&joined.segment, head.page());
            !self.process_lives(process.unwrap_or(u32::MAX))
        } else {
            !self.member_lives(maker)
        };
        nobodys.then(|| joined.segment.take(head)).flatten()
    }
}

/// Answers about other members, asked once each.
#[derive(Default)]
struct Members(Vec<(u16, bool)>);

impl Members {
    fn of(&mut self, node: &Node, member: u16) -> bool {
        if let Some((_, lives)) = self.0.iter().find(|(known, _)| *known == member) {
            return *lives;
        }
        let lives = node.member_lives(member);
        self.0.push((member, lives));
        lives
    }
}

/// What was found of processes, the last few: a hundred connections of one ask for it once. The
/// place of a dead one may be another's at any moment, which has another life then.
#[derive(Default)]
struct Processes {
    found: [Option<(u32, Life, bool)>; 8],
    next: usize,
}

impl Processes {
    fn live(&mut self, node: &Node, process: u32) -> bool {
        let life = node.processes.process(process).life();
        let known =
            self.found.iter().flatten().find(|(known, of, _)| (*known, *of) == (process, life));
        if let Some((_, _, lives)) = known {
            return *lives;
        }
        let lives = node.processes.alive(process);
        if let Some(place) = self.found.get_mut(self.next) {
            *place = Some((process, life, lives));
            self.next = (self.next + 1) % self.found.len();
        }
        lives
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::node_in;
    use ginnel_region::Owner;

    #[test]
    fn each_kind_of_page_is_asked_of_its_handler_and_others_are_left() {
        let place = tempfile::tempdir().expect("a directory");
        let node = node_in(place.path());
        let segment = &node.joined().segment;
        let claim = |kind| {
            let head = segment.claim_head(Owner::new(node.joined().member, kind)).expect("room");
            segment.clear(head.page());
            segment.settle(head).expect("made").page()
        };
        // Nobody's: it names no process.
        let (waiter, channel) = (claim(Use::Waiter), claim(Use::Channel));
        let mut look = Look::begin(&node, Reach::All);
        assert_eq!(look.pages(&mut []), 0);
        assert!(segment.head(waiter).is_none(), "the node's own kind");
        assert!(segment.head(channel).is_some(), "nobody here knows when it is to be freed");
        let mut asked = Vec::new();
        let mut lets_live = |_: &mut Look<'_>, head: Head| {
            asked.push(head.page());
            None
        };
        assert_eq!(look.pages(&mut [(Use::Channel, &mut lets_live)]), 0);
        assert_eq!(asked, [channel]);
        let mut frees = |_: &mut Look<'_>, head: Head| segment.take(head);
        assert_eq!(look.pages(&mut [(Use::Channel, &mut frees)]), 1);
        assert!(segment.head(channel).is_none());
        look.end(&());
    }
}
