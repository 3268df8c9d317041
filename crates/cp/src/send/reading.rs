//! One file as it is read, straight into the buffers that are sent.
//!
//! A file that changes meanwhile is read again, and given up where it does not rest: what arrives
//! is what once was there as a whole. That it changed is told by its size, its time of change and
//! its inode's before and after. The kernel's clock for those ticks every few milliseconds, so a
//! file that changed within the last tick is left to rest for one first.

use crate::failure::said;
use crate::hash;
use crate::link::Packet;
use crate::raw;
use crate::tree;
use crate::walk::Source;
use crate::wire::{Record, Want};
use rustix::fs::{FileType, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::io::{Error, Result};
use std::os::fd::OwnedFd;

/// How often a file that changes is begun.
const TRIES: u32 = 3;
/// How often it is left to rest, each time.
const RESTS: u32 = 8;
/// Pieces begin and end at pages where they can.
const PAGE: usize = 4096;

/// What came of a step.
pub enum Step {
    /// There is more to do.
    On,
    /// The packet has no room for more of it.
    NoRoom,
    /// It was sent as a whole.
    Done,
    /// It cannot be had.
    Failed {
        /// Why.
        text: String,
        /// It is gone.
        vanished: bool,
    },
}

/// A file that is being sent.
pub struct Reading {
    /// Where it lies in its source.
    pub path: Vec<u8>,
    source: usize,
    /// Its number in its batch.
    pub entry: u32,
    want: Want,
    /// Its data is not sent, only whether it would be.
    compare_only: bool,
    tries: u32,
    open: Option<Open>,
}

struct Open {
    file: OwnedFd,
    stat: Stat,
    size: u64,
    at: u64,
    /// Up to where there is data.
    data: u64,
    /// It may have holes that can be found.
    sparse: bool,
}

impl Reading {
    /// Of the entry with this number in its batch.
    pub fn new(path: Vec<u8>, source: usize, entry: u32, want: Want, compare_only: bool) -> Self {
        Self { path, source, entry, want, compare_only, tries: 0, open: None }
    }

    /// The next piece of it.
    pub fn step(&mut self, sources: &[Source], packet: &mut Packet<'_>) -> Step {
        let done = match &mut self.open {
            None => self.begin(sources, packet),
            Some(open) => open.piece(packet),
        };
        match done {
            Ok(Step::Failed { .. }) if self.tries < TRIES => {
                // It has changed: once more, as it is now.
                self.open = None;
                Step::On
            }
            Ok(step) => step,
            Err(error) => Step::Failed { text: said(&error), vanished: tree::is_missing(&error) },
        }
    }

    fn begin(&mut self, sources: &[Source], packet: &mut Packet<'_>) -> Result<Step> {
        self.tries += 1;
        let source = sources.get(self.source).ok_or(Errno::NOENT)?;
        let (dir, name) = source.tree.parent(&self.path)?;
        let file = tree::open_in(&*dir, name, OFlags::RDONLY, 0)?;
        let mut stat = rustix::fs::fstat(&file)?;
        if tree::kind(&stat) != FileType::RegularFile {
            return Ok(Step::Failed { text: "it is no file any more".into(), vanished: false });
        }
        let mut rests = 0;
        while let Some(rest) = tree::to_rest(&stat) {
            // One that is written without end has no state to be copied.
            if rests == RESTS {
                return Ok(changed());
            }
            std::thread::sleep(rest);
            stat = rustix::fs::fstat(&file)?;
            rests += 1;
        }
        let size = tree::size(&stat);
        // Files of /proc have no length, and yet bytes: nothing says when all of them are there.
        if size == 0 && rustix::io::pread(&file, &mut [0_u8; 1][..], 0)? > 0 {
            let text = "it has bytes and no length, as in /proc; copy it to a file first";
            return Ok(Step::Failed { text: text.into(), vanished: false });
        }
        let mut from = 0;
        if let Want::Rest(have) = self.want
            && (have.len == size || have.extends && have.len < size)
            && hash::of_start(&file, have.len, || packet.alive())? == Some(have.hash)
        {
            from = have.len;
        }
        packet.records.push(Record::Begin {
            entry: self.entry,
            from,
            size,
            meta: tree::meta(&stat),
        });
        #[allow(
            clippy::unnecessary_cast,
            reason = "the types differ from one processor to another"
        )]
        let sparse = (stat.st_blocks as u64).saturating_mul(512) < size;
        let data = if sparse { from } else { size };
        let at = if self.compare_only { size } else { from };
        self.open = Some(Open { file, stat, size, at, data, sparse });
        Ok(Step::On)
    }
}

impl Open {
    fn piece(&mut self, packet: &mut Packet<'_>) -> Result<Step> {
        if self.at < self.size && self.at >= self.data {
            self.find_data()?;
        }
        if self.at >= self.size {
            return self.end(packet);
        }
        let left = usize::try_from(self.data.min(self.size) - self.at).unwrap_or(usize::MAX);
        let room = packet.room();
        let len = if left <= room { left } else { room / PAGE * PAGE };
        if len == 0 {
            return Ok(Step::NoRoom);
        }
        let read = raw::read_into(&self.file, self.at, &mut packet.loan, packet.used, len)?;
        if read == 0 {
            return Ok(changed());
        }
        let number = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let (pos, len) = (number(packet.used), number(read));
        packet.records.push(Record::Bytes { at: self.at, pos, len });
        packet.used += read;
        self.at += read as u64;
        Ok(Step::On)
    }

    /// Goes on to where data is, past a hole.
    fn find_data(&mut self) -> Result<()> {
        let seek = |to| rustix::fs::seek(&self.file, to);
        let found = match seek(SeekFrom::Data(self.at)) {
            Ok(data) => (data, seek(SeekFrom::Hole(data))?),
            // Nothing but a hole up to its end.
            Err(Errno::NXIO) => (self.size, self.size),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => (self.at, self.size),
            Err(error) => return Err(error.into()),
        };
        (self.at, self.data) = (found.0.clamp(self.at, self.size), found.1.min(self.size));
        if self.sparse && self.data <= self.at && self.at < self.size {
            // Nonsense of a file system: as if there were no holes.
            self.data = self.size;
        }
        Ok(())
    }

    /// Was it the same file all the time?
    fn end(&self, packet: &mut Packet<'_>) -> Result<Step> {
        let now = rustix::fs::fstat(&self.file).map_err(Error::from)?;
        let state = |stat: &Stat| {
            (tree::size(stat), tree::meta(stat).mtime, tree::meta(stat).nanos, tree::changed(stat))
        };
        if state(&now) != state(&self.stat) {
            return Ok(changed());
        }
        packet.records.push(Record::End);
        Ok(Step::Done)
    }
}

fn changed() -> Step {
    let text = "it changed while it was read; copy it again when nobody writes it";
    Step::Failed { text: text.into(), vanished: false }
}
