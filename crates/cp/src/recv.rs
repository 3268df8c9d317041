//! The receiver: whose files are written. It says what it wants of each batch, writes what comes,
//! and says what became of it.
//!
//! Everything that it hears is checked: the sender may be anybody in the segment. Paths are names
//! below the base, of what was asked for; data belongs to the oldest batch, to a file that was
//! wanted, behind what was written of it. What does not fit ends the copy.

mod attributes;
mod base;
mod data;
mod decide;
mod delete;
mod place;
mod whole;
mod writing;

pub use attributes::Policy;
pub use base::From;

use crate::failure::{Code, Failure, Result};
use crate::filter::Filter;
use crate::link::Link;
use crate::names;
use crate::report::Report;
use crate::tree::{self, Seen};
use crate::wire::{Action, Entry, MOST_BATCHES, MOST_ENTRIES, Message, Meta, Order, Want};
use attributes::{Attributes, Owners};
use base::Base;
use std::collections::{HashSet, VecDeque};
use writing::Writing;

/// Directories that were named and not listed yet, and names in one directory, at most: what a
/// sender can have its receiver remember.
const MOST_NAMES: usize = 4 << 20;
/// And what they take, bytes: each its own, and about so many more.
const MOST_BYTES: usize = 512 << 20;
const PER_NAME: usize = 64;

/// What names at the top a sender may send.
#[derive(Debug, Clone)]
pub enum Allowed {
    /// Any.
    Any,
    /// Only those that were asked for.
    These(HashSet<Vec<u8>>),
}

/// What is to be received.
pub struct Task<'a> {
    /// From whom.
    pub link: &'a Link,
    /// Where the destination is looked up from.
    pub from: From<'a>,
    /// The destination.
    pub to: &'a [u8],
    /// How.
    pub order: &'a Order,
    /// What is allowed.
    pub policy: Policy,
    /// What may come.
    pub allowed: Allowed,
}

struct Batch {
    number: u32,
    entries: Vec<Entry>,
    wants: Vec<Want>,
    actions: Vec<Action>,
    /// What was compared of each, where it may be gone on from there.
    seen: Vec<Option<Seen>>,
    /// Entries whose data is done with, from the first on.
    passed: usize,
    /// Names of the directories that are listed in it, in order.
    keep: VecDeque<HashSet<Vec<u8>>>,
}

/// The file whose data is coming.
enum Now {
    None,
    /// It is being written.
    Writing {
        entry: usize,
        writing: Writing,
        meta: Meta,
        size: u64,
        moved: u64,
    },
    /// It is there already, as the sender found by its hash.
    Same {
        entry: usize,
        meta: Meta,
    },
    /// Nothing is to be written.
    Dry {
        entry: usize,
        same: bool,
    },
    /// It failed, and what comes of it is not looked at.
    Failing {
        entry: usize,
    },
}

impl Now {
    fn entry(&self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Writing { entry, .. } | Self::Same { entry, .. } => Some(*entry),
            Self::Dry { entry, .. } | Self::Failing { entry } => Some(*entry),
        }
    }
}

struct Receiving<'a> {
    link: &'a Link,
    order: &'a Order,
    base: Base,
    filter: Filter,
    attributes: Attributes<'a>,
    allowed: &'a Allowed,
    report: &'a mut dyn Report,
    batches: VecDeque<Batch>,
    next: u32,
    finished: bool,
    now: Now,
    /// Something has the destination's name.
    renamed: bool,
    /// Directories that this copy has made: nothing of ours is in them yet.
    made: HashSet<Vec<u8>>,
    /// Directories that may be listed, and the names of the one that is being listed.
    announced: HashSet<Vec<u8>>,
    /// Bytes that both take.
    remembered: [usize; 2],
    here: (Vec<u8>, HashSet<Vec<u8>>),
}

/// Receives what a sender sends.
///
/// # Errors
/// What ended it before it was done. What failed for single files is reported.
pub fn receive(task: &Task<'_>, report: &mut dyn Report) -> Result<()> {
    let Task { link, order, .. } = *task;
    let filter = Filter::new(&order.exclude).map_err(|text| Failure::new(Code::Usage, text))?;
    let single = loop {
        match link.recv()?.message {
            Message::Start { single } => break single,
            Message::Note(note) => report.note(&note),
            _ => return Err(Failure::broken("a message out of turn")),
        }
    };
    let base = base::find(task.from, task.to, single, order)?;
    let found = base.tree.as_ref().and_then(|tree| tree.stat(b"").ok().flatten());
    let own = found.filter(|_| base.rename.is_none()).and_then(|stat| tree::identity(&stat));
    link.send(&Message::Base(own))?;
    let attributes = Attributes { order, policy: task.policy, owners: Owners::default() };
    let receiving = Receiving {
        link,
        order,
        base,
        filter,
        attributes,
        allowed: &task.allowed,
        report,
        batches: VecDeque::new(),
        next: 0,
        finished: false,
        now: Now::None,
        renamed: false,
        made: HashSet::new(),
        announced: HashSet::new(),
        remembered: [0; 2],
        here: Default::default(),
    };
    receiving.run()
}

impl Receiving<'_> {
    fn run(mut self) -> Result<()> {
        while !self.finished || !self.batches.is_empty() {
            let incoming = self.link.recv()?;
            match &incoming.message {
                Message::Data(records) => self.records(records, &incoming)?,
                Message::Note(note) => self.report.note(note),
                Message::Finish if !self.finished => self.finished = true,
                Message::List { .. } if !self.finished => {
                    let Message::List { batch, entries } = incoming.message else { continue };
                    self.list(batch, entries)?;
                }
                _ => return Err(Failure::broken("a message out of turn")),
            }
        }
        self.sync()?;
        self.link.send(&Message::Finish)
    }

    /// A batch: what of it is wanted?
    fn list(&mut self, number: u32, entries: Vec<Entry>) -> Result<()> {
        let fits = number == self.next && entries.len() <= MOST_ENTRIES;
        if !fits || self.batches.len() >= MOST_BATCHES {
            return Err(Failure::broken("a listing out of turn"));
        }
        self.next = self.next.wrapping_add(1);
        let (mut files, mut bytes) = (0, 0u64);
        let (mut wants, mut actions, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        let mut keep = VecDeque::new();
        for entry in &entries {
            self.check(entry)?;
            self.remember(entry, &mut keep)?;
            let (want, action, compared) = self.decide(entry)?;
            if let Entry::File { size, .. } = entry {
                (files, bytes) = (files + 1, bytes.saturating_add(*size));
            }
            wants.push(want);
            actions.push(action);
            seen.push(compared);
        }
        self.report.found(files, bytes);
        self.link.send(&Message::Wants { batch: number, wants: wants.clone() })?;
        self.batches.push_back(Batch { number, entries, wants, actions, seen, passed: 0, keep });
        Ok(())
    }

    /// May this come at all?
    fn check(&mut self, entry: &Entry) -> Result<()> {
        let path = entry.path();
        names::check(path).map_err(Failure::broken)?;
        let (top, is_whole) = match path.iter().position(|&byte| byte == b'/') {
            Some(at) => (&path[..at], false),
            None => (path, true),
        };
        let allowed = match (entry, self.allowed) {
            (Entry::User(..) | Entry::Group(..), _) | (_, Allowed::Any) => true,
            (_, Allowed::These(names)) => names.contains(top),
        };
        if !allowed {
            return Err(Failure::broken("something that was not asked for"));
        }
        if self.base.rename.is_some() {
            let fits = match entry {
                Entry::File { .. } | Entry::Link { .. }
                    if !self.renamed && is_whole && !path.is_empty() =>
                {
                    self.renamed = true;
                    true
                }
                Entry::User(..) | Entry::Group(..) | Entry::Other { .. } => true,
                _ => false,
            };
            return if fits { Ok(()) } else { Err(Failure::broken("more than one file")) };
        }
        match entry {
            Entry::File { path, .. } | Entry::Link { path, .. } if path.is_empty() => {
                Err(Failure::broken("a file without a name"))
            }
            _ => Ok(()),
        }
    }

    /// Keeps the names of the directory that is being listed, for `--delete`.
    fn remember(&mut self, entry: &Entry, keep: &mut VecDeque<HashSet<Vec<u8>>>) -> Result<()> {
        if !self.order.delete {
            return Ok(());
        }
        match entry {
            Entry::Listed { path, .. } => {
                if !self.announced.remove(path.as_slice()) {
                    return Err(Failure::broken("the listing of a directory that it did not name"));
                }
                self.remembered = [self.remembered[0] - path.len() - PER_NAME, 0];
                let here = std::mem::take(&mut self.here);
                keep.push_back(if here.0 == path.as_slice() { here.1 } else { HashSet::new() });
            }
            Entry::File { path, .. }
            | Entry::Dir { path, .. }
            | Entry::Link { path, .. }
            | Entry::Other { path } => {
                if matches!(entry, Entry::Dir { .. }) && self.announced.insert(path.to_vec()) {
                    self.remembered[0] += path.len() + PER_NAME;
                }
                let (directory, name) = names::split(path);
                if self.here.0 != directory {
                    self.here = (directory.to_vec(), HashSet::new());
                    self.remembered[1] = 0;
                }
                if !name.is_empty() && self.here.1.insert(name.to_vec()) {
                    self.remembered[1] += name.len() + PER_NAME;
                }
                let names = self.here.1.len().max(self.announced.len());
                if names > MOST_NAMES || self.remembered.iter().sum::<usize>() > MOST_BYTES {
                    return Err(Failure::broken("more names than there is room for"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
