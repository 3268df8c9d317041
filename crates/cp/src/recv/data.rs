//! Data as it comes: pieces of files of the oldest batch, and what is done when it is over. Small
//! files, of which all came in one message, are written by [`whole`](super::whole).

use super::attributes::{Attributes, Old};
use super::writing::{How, Writing};
use super::{Now, Receiving, place};
use crate::failure::{Code, Failure, Result, said};
use crate::link::Incoming;
use crate::names;
use crate::tree::{self, Seen};
use crate::wire::{Action, Entry, Message, Meta, Order, Record, Want};
use rustix::fs::{FileType, Stat};
use std::io::Error;

impl Receiving<'_> {
    pub(super) fn record(&mut self, record: &Record, incoming: &Incoming<'_>) -> Result<()> {
        match *record {
            Record::Begin { entry, from, size, meta } => {
                self.begin(entry as usize, from, size, meta)
            }
            Record::Bytes { at, pos, len } => self.bytes(at, (pos, len), incoming),
            Record::End => self.end(),
            Record::Drop { entry } => {
                let entry = entry as usize;
                if self.now.entry() != Some(entry) {
                    self.is_next(entry)?;
                }
                if let Now::Writing { writing, .. } = std::mem::replace(&mut self.now, Now::None) {
                    writing.give_up(false);
                }
                self.pass(entry, Action::Failed)
            }
            Record::BatchEnd => self.batch_end(),
        }
    }

    /// Is this an entry of the oldest batch that was wanted, and not had yet, with none in between?
    pub(super) fn is_next(&self, entry: usize) -> Result<(Want, &[u8])> {
        let wrong = || Failure::broken("data that was not asked for");
        let batch = self.batches.front().ok_or_else(wrong)?;
        let want = batch.wants.get(entry).copied().filter(|&want| want != Want::Nothing);
        let want = want.filter(|_| entry >= batch.passed && matches!(self.now, Now::None));
        let between = batch.wants.get(batch.passed..entry).unwrap_or_default();
        if between.iter().any(|&want| want != Want::Nothing) {
            return Err(wrong());
        }
        let path = batch.entries.get(entry).map(Entry::path).ok_or_else(wrong)?;
        Ok((want.ok_or_else(wrong)?, path))
    }

    pub(super) fn pass(&mut self, entry: usize, action: Action) -> Result<()> {
        self.now = Now::None;
        let batch = self.batches.front_mut().ok_or_else(|| Failure::broken("data of no batch"))?;
        batch.passed = entry + 1;
        if let Some(its) = batch.actions.get_mut(entry) {
            *its = action;
        }
        Ok(())
    }

    fn begin(&mut self, entry: usize, from: u64, size: u64, meta: Meta) -> Result<()> {
        // It changed while it was read, and begins anew.
        let mut again = None;
        if self.now.entry() == Some(entry)
            && let Now::Writing { writing, .. } = std::mem::replace(&mut self.now, Now::None)
        {
            again = Some(writing);
        }
        let (want, path) = self.is_next(entry)?;
        let path = path.to_vec();
        let wrong = || Failure::broken("a file that does not fit what was asked for");
        let compared = match want {
            Want::Rest(have) if from == have.len && from <= size => !have.extends,
            _ if from == 0 => false,
            _ => return Err(wrong()),
        };
        // A length that no file can have would be told by the system, too, but late.
        if i64::try_from(size).is_err() || compared && from != size {
            return Err(wrong());
        }
        if self.order.dry_run {
            self.now = Now::Dry { entry, same: compared };
            return Ok(());
        }
        if compared {
            self.now = Now::Same { entry, meta };
            return Ok(());
        }
        let seen = self.seen(entry, from);
        if from > 0 && seen.is_none() {
            return Err(wrong());
        }
        let opened = match again {
            Some(mut writing) => writing.restart(from, size).map(|()| writing),
            None => self.open(&path, seen, size, &meta),
        };
        self.now = match opened {
            Ok(writing) => {
                self.report.moved(from);
                Now::Writing { entry, writing, meta, size, moved: from }
            }
            Err(error) => {
                self.failed(&path, "writing it", &error)?;
                Now::Failing { entry }
            }
        };
        Ok(())
    }

    /// What was compared of an entry, if it is to go on from there.
    fn seen(&self, entry: usize, from: u64) -> Option<Seen> {
        let seen = self.batches.front()?.seen.get(entry).copied().flatten();
        seen.filter(|seen| from > 0 && seen.len == from)
    }

    fn open(
        &mut self,
        path: &[u8],
        seen: Option<Seen>,
        size: u64,
        meta: &Meta,
    ) -> std::io::Result<Writing> {
        let (dir, name) = self.place(path)?;
        let Order { partial, inplace, .. } = *self.order;
        if !inplace {
            // What has its name was looked at when it was decided on, and is again in the end.
            let how = How { partial, inplace, mode: self.attributes.mode(meta, None) };
            return Writing::begin(dir, &name, how, seen, size);
        }
        let stat = place::look(&dir, &name)?;
        self.may_replace(&dir, &name, path, stat.as_ref())?;
        let is_file = |stat: &Stat| tree::kind(stat) == FileType::RegularFile;
        let old = stat.filter(is_file).map(|stat| Old { meta: tree::meta(&stat) });
        // What is no file is replaced by one.
        let inplace = old.is_some() == stat.is_some();
        let how = How { partial, inplace, mode: self.attributes.mode(meta, old) };
        Writing::begin(dir, &name, how, seen, size)
    }

    fn bytes(&mut self, at: u64, part: (u32, u32), incoming: &Incoming<'_>) -> Result<()> {
        let wrong = || Failure::broken("data that does not fit its file");
        let bytes = incoming.bytes();
        if !bytes.holds(part) {
            return Err(wrong());
        }
        let (entry, wrote) = match &mut self.now {
            Now::Writing { entry, writing, moved, .. } => {
                *moved += u64::from(part.1);
                (*entry, writing.write(bytes, at, part))
            }
            Now::Failing { .. } => return Ok(()),
            Now::None | Now::Same { .. } | Now::Dry { .. } => return Err(wrong()),
        };
        match wrote {
            Ok(true) => {
                self.report.moved(part.1.into());
                self.report.carried(part.1.into());
                Ok(())
            }
            Ok(false) => Err(wrong()),
            Err(error) => {
                let path = self.path_of(entry);
                self.failed(&path, "writing it", &error)?;
                self.now = Now::Failing { entry };
                Ok(())
            }
        }
    }

    fn path_of(&self, entry: usize) -> Vec<u8> {
        let batch = self.batches.front();
        batch
            .and_then(|batch| batch.entries.get(entry))
            .map(|entry| entry.path().to_vec())
            .unwrap_or_default()
    }

    fn end(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.now, Now::None) {
            Now::None => Err(Failure::broken("the end of nothing")),
            Now::Failing { entry } => self.pass(entry, Action::Failed),
            Now::Dry { entry, same } => {
                self.pass(entry, if same { Action::Same } else { Action::Copied })
            }
            Now::Same { entry, meta } => {
                let path = self.path_of(entry);
                let action = self.same(&path, &meta)?;
                self.pass(entry, action)
            }
            Now::Writing { entry, writing, meta, size, moved } => {
                let path = self.path_of(entry);
                self.report.moved(size.saturating_sub(moved));
                match self.commit(&path, writing, &meta) {
                    Ok(()) => self.pass(entry, Action::Copied),
                    Err(error) => {
                        self.failed(&path, "putting it in its place", &error)?;
                        self.pass(entry, Action::Failed)
                    }
                }
            }
        }
    }

    fn commit(&mut self, path: &[u8], mut writing: Writing, meta: &Meta) -> std::io::Result<()> {
        if commit_new(&mut writing, &self.attributes, meta)? {
            return Ok(());
        }
        self.replace(path, writing, meta)
    }

    /// Gives a file that was written the name that something else has.
    pub(super) fn replace(
        &mut self,
        path: &[u8],
        writing: Writing,
        meta: &Meta,
    ) -> std::io::Result<()> {
        let (dir, name) = self.place(path)?;
        let stat = place::look(&dir, &name)?;
        let over = self.may_replace(&dir, &name, path, stat.as_ref())?;
        let is_file = |stat: &Stat| tree::kind(stat) == FileType::RegularFile;
        let old = stat.filter(is_file).map(|stat| Old { meta: tree::meta(&stat) });
        let mode = self.attributes.mode(meta, old);
        self.attributes.set(writing.file(), meta, mode, &writing.meta()?)?;
        let aside = writing.commit(self.order.fsync, over)?;
        self.remove_aside(&dir, aside, path);
        Ok(())
    }

    /// Something failed for one file. Where the file system is full, all the rest would.
    pub(super) fn failed(&mut self, path: &[u8], doing: &str, error: &Error) -> Result<()> {
        if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) {
            let way = "what was there before is kept; make room, then copy again";
            let text = format!("{}: {doing}: {}; {way}", names::shown(path), said(error));
            return Err(Failure::new(Code::Io, text));
        }
        self.report.problem(path, &format!("{doing}: {}", said(error)), false);
        Ok(())
    }

    /// All data of the oldest batch has come: what is left of it is done, in order.
    fn batch_end(&mut self) -> Result<()> {
        let wrong = || Failure::broken("the end of a batch that is not over");
        let mut batch = self.batches.pop_front().ok_or_else(wrong)?;
        let rest = batch.wants.get(batch.passed..).unwrap_or_default();
        if !matches!(self.now, Now::None) || rest.iter().any(|&want| want != Want::Nothing) {
            return Err(wrong());
        }
        for (entry, action) in batch.entries.iter().zip(&batch.actions) {
            match entry {
                Entry::Listed { path, whole } if self.order.delete => {
                    let keep = batch.keep.pop_front().unwrap_or_default();
                    if *whole {
                        self.delete(path, &keep);
                    }
                }
                Entry::Left { path, meta } => self.leave(path, meta)?,
                Entry::File { path, .. } | Entry::Dir { path, .. } | Entry::Link { path, .. } => {
                    self.report.became(*action, path);
                }
                _ => {}
            }
        }
        self.link.send(&Message::Done { batch: batch.number, actions: batch.actions })
    }
}

/// Gives a file that was written its name, if nothing has that: mostly nothing does, and then it
/// need not be looked at. Says whether it did.
pub(super) fn commit_new(
    writing: &mut Writing,
    attributes: &Attributes<'_>,
    meta: &Meta,
) -> std::io::Result<bool> {
    writing.end()?;
    if !writing.is_nowhere() {
        return Ok(false);
    }
    let mode = attributes.mode(meta, None);
    attributes.set(writing.file(), meta, mode, &writing.meta()?)?;
    writing.commit_new(attributes.order.fsync)
}
