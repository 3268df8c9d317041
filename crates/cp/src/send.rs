//! The sender: whose files are read. It lists them in batches, is told which are wanted, and sends
//! those.
//!
//! Some batches are listed ahead of the data, so that neither end waits for the other's answer. It
//! never waits for room without hearing what the receiver has to say, so the two cannot wait for
//! each other.

mod reading;

use crate::failure::{Failure, Result};
use crate::filter::Filter;
use crate::link::{Link, Packet};
use crate::report::Report;
use crate::walk::{Source, Walk};
use crate::wire::Order;
use crate::wire::{Action, Entry, MOST_BATCHES, MOST_ENTRIES, Message, Record, Want};
use ginnel::Loan;
use reading::{Reading, Step};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Batches that are listed and not answered yet, at most.
const AHEAD: usize = 3;
/// For how long to wait for room before hearing what the receiver says.
const MOMENT: Duration = Duration::from_millis(20);
/// Bytes of a batch's listing, about: a part of what a message may hold.
const LISTING: usize = 16 << 10;

/// An entry, and the source that it is of.
struct Item {
    source: usize,
    entry: Entry,
}

struct Batch {
    number: u32,
    items: Vec<Item>,
    /// What the receiver wants of it, once it has said so.
    wants: Option<Vec<Want>>,
    /// The next item to be sent.
    next: usize,
    /// All of it was sent.
    sent: bool,
}

struct Sending<'a> {
    link: &'a Link,
    sources: &'a [Source],
    walk: Walk<'a>,
    order: &'a Order,
    report: &'a mut dyn Report,
    batches: VecDeque<Batch>,
    next: u32,
    listed: bool,
    finished: bool,
    reading: Option<Reading>,
}

/// Sends what the sources hold, and returns when the receiver has finished with all of it.
///
/// # Errors
/// What ended it before. What failed for single files is reported.
pub fn send(link: &Link, sources: &[Source], order: &Order, report: &mut dyn Report) -> Result<()> {
    let filter = Filter::new(&order.exclude);
    let filter = filter.map_err(|text| Failure::new(crate::failure::Code::Usage, text))?;
    let single = matches!(sources, [source] if source.is_single());
    link.send(&Message::Start { single })?;
    let base = loop {
        match link.recv()?.message {
            Message::Base(base) => break base,
            Message::Note(note) => report.note(&note),
            _ => return Err(Failure::broken("a message out of turn")),
        }
    };
    let sending = Sending {
        link,
        sources,
        walk: Walk::new(sources, order, &filter, base),
        order,
        report,
        batches: VecDeque::new(),
        next: 0,
        listed: false,
        finished: false,
        reading: None,
    };
    sending.run()
}

impl<'a> Sending<'a> {
    fn run(mut self) -> Result<()> {
        while !self.finished {
            if let Some(incoming) = self.link.try_recv()? {
                self.hear(incoming.message)?;
                continue;
            }
            let unanswered = self.batches.iter().filter(|batch| batch.wants.is_none()).count();
            if !self.listed && unanswered < AHEAD && self.batches.len() < MOST_BATCHES {
                self.list()?;
            } else if !self.data()? && !self.finished {
                let message = self.link.recv()?.message;
                self.hear(message)?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Wants { batch, wants } => {
                let mut batches = self.batches.iter_mut();
                let found = batches.find(|its| its.number == batch && its.wants.is_none());
                let found = found.filter(|its| its.items.len() == wants.len());
                let found = found.ok_or_else(|| Failure::broken("an answer to no question"))?;
                found.wants = Some(wants);
            }
            Message::Done { batch, actions } => {
                let is_it = |front: &&Batch| {
                    front.sent && front.number == batch && front.items.len() == actions.len()
                };
                self.batches
                    .front()
                    .filter(is_it)
                    .ok_or_else(|| Failure::broken("it has done what it was not given"))?;
                for (item, action) in
                    self.batches.pop_front().into_iter().flat_map(|done| done.items).zip(actions)
                {
                    self.became(&item.entry, action);
                }
            }
            Message::Note(note) => self.report.note(&note),
            Message::Finish if self.listed && self.batches.is_empty() => self.finished = true,
            _ => return Err(Failure::broken("a message out of turn")),
        }
        Ok(())
    }

    fn became(&mut self, entry: &Entry, action: Action) {
        match entry {
            Entry::File { path, size, .. } => {
                if matches!(action, Action::Same | Action::Attributes) {
                    self.report.moved(*size);
                }
                self.report.became(action, path);
            }
            Entry::Dir { path, .. } | Entry::Link { path, .. } => self.report.became(action, path),
            _ => {}
        }
    }

    /// A buffer, hearing the receiver while there is none.
    fn room(&mut self) -> Result<Loan<'a>> {
        let link = self.link;
        let mut since = Instant::now();
        loop {
            if let Some(loan) = link.loan(MOMENT)? {
                return Ok(loan);
            }
            while let Some(incoming) = link.try_recv()? {
                self.hear(incoming.message)?;
                since = Instant::now();
            }
            link.patient(since)?;
        }
    }

    /// Lists the next batch.
    fn list(&mut self) -> Result<()> {
        let (mut items, mut bytes, mut found) = (Vec::new(), 0, (0, 0));
        while items.len() < MOST_ENTRIES && bytes < LISTING {
            // What the walk reports goes over the same queue, where this end is a server: in front.
            let Some((source, entry)) = self.walk.next(self.report) else {
                self.listed = true;
                break;
            };
            bytes += 32 + entry.path().len();
            match &entry {
                Entry::File { size, .. } => found = (found.0 + 1, found.1 + size),
                Entry::Link { target, .. } => bytes += target.len(),
                _ => {}
            }
            items.push(Item { source, entry });
        }
        self.report.found(found.0, found.1);
        if !items.is_empty() {
            let entries = items.iter().map(|item| item.entry.clone()).collect();
            let loan = self.room()?;
            self.link.put(loan, 0, &Message::List { batch: self.next, entries })?;
            let (number, wants) = (self.next, None);
            self.batches.push_back(Batch { number, items, wants, next: 0, sent: false });
            self.next = self.next.wrapping_add(1);
        }
        if self.listed {
            let loan = self.room()?;
            self.link.put(loan, 0, &Message::Finish)?;
        }
        Ok(())
    }

    /// Is there anything to be sent at the moment?
    fn has_data(&self) -> bool {
        let next = self.batches.iter().find(|batch| !batch.sent);
        self.reading.is_some() || next.is_some_and(|batch| batch.wants.is_some())
    }

    /// Sends one message of data; false where there is none to be sent.
    fn data(&mut self) -> Result<bool> {
        if !self.has_data() {
            return Ok(false);
        }
        let mut packet = Packet::new(self.link, self.room()?, self.order.chunk);
        while !packet.is_full() && self.has_data() {
            if !self.step(&mut packet) {
                break;
            }
        }
        let moved = packet.used as u64;
        packet.send()?;
        self.report.moved(moved);
        self.report.carried(moved);
        Ok(true)
    }

    /// Adds a piece; false where the packet has no room for it.
    fn step(&mut self, packet: &mut Packet<'a>) -> bool {
        if let Some(reading) = &mut self.reading {
            match reading.step(self.sources, packet) {
                Step::On => {}
                Step::NoRoom => return false,
                Step::Done => self.reading = None,
                Step::Failed { text, vanished } => {
                    packet.records.push(Record::Drop { entry: reading.entry });
                    let path = std::mem::take(&mut reading.path);
                    self.reading = None;
                    self.report.problem(&path, &text, vanished);
                }
            }
            return true;
        }
        let Some(batch) = self.batches.iter_mut().find(|batch| !batch.sent) else { return false };
        let Some(item) = batch.items.get(batch.next) else {
            batch.sent = true;
            packet.records.push(Record::BatchEnd);
            return true;
        };
        let wants = batch.wants.as_ref().and_then(|wants| wants.get(batch.next));
        let want = wants.copied().unwrap_or(Want::Nothing);
        let number = u32::try_from(batch.next).unwrap_or(u32::MAX);
        batch.next += 1;
        if let (Entry::File { path, .. }, true) = (&item.entry, want != Want::Nothing) {
            let compare_only = self.order.dry_run;
            let reading = Reading::new(path.to_vec(), item.source, number, want, compare_only);
            self.reading = Some(reading);
        }
        true
    }
}
