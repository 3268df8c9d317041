//! Small files, of which all came in one message: several threads write them at once.
//!
//! What a small file costs is that it is made, in the kernel. The threads end before the message is
//! given back, so the sender's buffer holds their bytes for as long, and what came of each file is
//! told in the order of the listing.

use super::data::commit_new;
use super::writing::{How, Writing};
use super::{Attributes, Now, Receiving};
use crate::failure::Result;
use crate::link::Incoming;
use crate::raw::Bytes;
use crate::tree::Directory;
use crate::wire::{Action, Meta, Record, Want};
use std::io::Error;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};

/// Threads of one copy, at most: in one directory they wait for each other now and then.
const MOST_THREADS: usize = 4;
/// Files for which one more thread is worth its start.
const WORTH: usize = 16;

/// A file of which all came.
struct Whole {
    entry: usize,
    path: Vec<u8>,
    dir: Arc<Directory>,
    name: Vec<u8>,
    meta: Meta,
    part: (u32, u32),
}

/// What came of it.
enum Came {
    /// It has its name.
    Copied,
    /// It was written, and something else has its name.
    Taken(Writing),
    /// It could not be written, or not be given its name.
    Failed(&'static str, Error),
}

impl Whole {
    fn write(&self, bytes: Bytes<'_>, attributes: &Attributes<'_>) -> Came {
        let size = self.part.1.into();
        let mode = attributes.mode(&self.meta, None);
        let how = How { partial: false, inplace: false, mode };
        let begun = Writing::begin(Arc::clone(&self.dir), &self.name, how, None, size);
        let written = begun.and_then(|mut writing| {
            let fits = self.part.1 == 0 || writing.write(bytes, 0, self.part)?;
            if fits { Ok(writing) } else { Err(std::io::ErrorKind::InvalidInput.into()) }
        });
        let mut writing = match written {
            Ok(writing) => writing,
            Err(error) => return Came::Failed("writing it", error),
        };
        match commit_new(&mut writing, attributes, &self.meta) {
            Ok(true) => Came::Copied,
            Ok(false) => Came::Taken(writing),
            Err(error) => Came::Failed("putting it in its place", error),
        }
    }
}

impl Receiving<'_> {
    /// All records of a message.
    pub(super) fn records(&mut self, records: &[Record], incoming: &Incoming<'_>) -> Result<()> {
        let (mut records, mut whole) = (records, Vec::new());
        while let Some((first, rest)) = records.split_first() {
            if let Some(used) = self.whole(records, incoming, &mut whole)? {
                records = records.get(used..).unwrap_or_default();
                continue;
            }
            self.write(std::mem::take(&mut whole), incoming)?;
            self.record(first, incoming)?;
            records = rest;
        }
        self.write(whole, incoming)
    }

    /// Takes a file off the records, if all of it is there and may be written: how many records
    /// that were. Whatever does not fit is left for [`Self::record`] to refuse.
    fn whole(
        &mut self,
        records: &[Record],
        incoming: &Incoming<'_>,
        whole: &mut Vec<Whole>,
    ) -> Result<Option<usize>> {
        let (entry, size, meta, part, used) = match *records {
            [
                Record::Begin { entry, from: 0, size, meta },
                Record::Bytes { at: 0, pos, len },
                Record::End,
                ..,
            ] => (entry as usize, size, meta, (pos, len), 3),
            [Record::Begin { entry, from: 0, size: 0, meta }, Record::End, ..] => {
                (entry as usize, 0, meta, (0, 0), 2)
            }
            _ => return Ok(None),
        };
        let plain = !self.order.dry_run && !self.order.partial && !self.order.inplace;
        if !plain || u64::from(part.1) != size || !incoming.bytes().holds(part) {
            return Ok(None);
        }
        let path = match self.is_next(entry) {
            Ok((Want::Whole, path)) if matches!(self.now, Now::None) => path.to_vec(),
            _ => return Ok(None),
        };
        self.pass(entry, Action::Failed)?;
        match self.place(&path) {
            Ok((dir, name)) => whole.push(Whole { entry, path, dir, name, meta, part }),
            Err(error) => self.failed(&path, "writing it", &error)?,
        }
        Ok(Some(used))
    }

    /// Writes these, and notes what came of each.
    fn write(&mut self, whole: Vec<Whole>, incoming: &Incoming<'_>) -> Result<()> {
        let (bytes, attributes) = (incoming.bytes(), &self.attributes);
        let came = at_once(&whole, |one| one.write(bytes, attributes));
        for (Whole { entry, path, meta, part, .. }, came) in whole.into_iter().zip(came) {
            let action = match came {
                Came::Copied => Action::Copied,
                Came::Taken(writing) => match self.replace(&path, writing, &meta) {
                    Ok(()) => Action::Copied,
                    Err(error) => {
                        self.failed(&path, "putting it in its place", &error)?;
                        Action::Failed
                    }
                },
                Came::Failed(doing, error) => {
                    self.failed(&path, doing, &error)?;
                    Action::Failed
                }
            };
            self.report.moved(part.1.into());
            self.report.carried(part.1.into());
            let batch = self.batches.front_mut();
            if let Some(its) = batch.and_then(|batch| batch.actions.get_mut(entry)) {
                *its = action;
            }
        }
        Ok(())
    }
}

/// What `work` returns for each of `all`, in order, done by as many threads as are worth it.
fn at_once<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let processors =
        *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    let threads = (all.len() / WORTH).min(processors).clamp(1, MOST_THREADS);
    if threads == 1 {
        return all.iter().map(work).collect();
    }
    let (own, others) = all.split_at(all.len().div_ceil(threads));
    std::thread::scope(|scope| {
        let work = &work;
        let spawn = |part| {
            let run = move || -> Vec<R> { Vec::from_iter(<[T]>::iter(part).map(work)) };
            std::thread::Builder::new().spawn_scoped(scope, run).map_err(|_| part)
        };
        let started: Vec<_> = others.chunks(own.len()).map(spawn).collect();
        let mut came: Vec<R> = own.iter().map(work).collect();
        for one in started {
            match one {
                Ok(thread) => {
                    came.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
                }
                // No thread is to be had.
                Err(part) => came.extend(part.iter().map(work)),
            }
        }
        came
    })
}
