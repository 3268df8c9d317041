//! `--delete`: what the sender's directory does not have goes here, too.

use crate::failure::said;
use crate::filter::Filter;
use crate::names;
use crate::recv::writing::partial_name;
use crate::report::Report;
use crate::tree;
use rustix::fs::{AtFlags, FileType, OFlags};
use std::collections::HashSet;
use std::io::{Error, Result};
use std::os::fd::AsFd;

/// Directories in directories, at most: each is open while what lies in it goes.
pub const DEEPEST: u32 = 200;

/// What a directory is cleared with.
pub struct Deletion<'a> {
    /// What is left out of the copy stays.
    pub filter: &'a Filter,
    /// Nothing is to be done but told.
    pub dry_run: bool,
}

impl Deletion<'_> {
    /// Deletes what an open directory has beside `keep`.
    pub fn clear(
        &self,
        dir: impl AsFd,
        path: &[u8],
        keep: &HashSet<Vec<u8>>,
        report: &mut dyn Report,
    ) {
        let (found, read) = tree::list(&dir);
        if let Err(error) = read {
            report.problem(path, &format!("looking for what to delete: {}", said(&error)), false);
        }
        let partials: HashSet<Vec<u8>> = keep.iter().map(|name| partial_name(name)).collect();
        for name in found.iter().filter(|name| !keep.contains(*name) && !partials.contains(*name)) {
            let whole = names::join(path, name);
            match self.remove(&dir, name, &whole, DEEPEST) {
                Ok(true) => report.deleted(&whole),
                Ok(false) => {}
                Err(error) => {
                    report.problem(&whole, &format!("deleting it: {}", said(&error)), false)
                }
            }
        }
    }

    /// Removes a name with all below it; false where something in it stays.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self, dir: impl AsFd, name: &[u8], path: &[u8], depth: u32) -> Result<bool> {
        let stat = match tree::stat_in(&dir, name) {
            Err(error) if tree::is_missing(&error) => return Ok(false),
            other => other?,
        };
        let is_directory = tree::kind(&stat) == FileType::Directory;
        if self.filter.leaves_out(path, is_directory) {
            return Ok(false);
        }
        if !is_directory {
            if !self.dry_run {
                rustix::fs::unlinkat(&dir, name, AtFlags::empty())?;
            }
            return Ok(true);
        }
        let deeper = depth.checked_sub(1).ok_or(Error::from_raw_os_error(libc::ELOOP))?;
        let below = tree::open_in(&dir, name, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        let (found, read) = tree::list(&below);
        read?;
        let mut empty = true;
        for inner in &found {
            empty &= self.remove(&below, inner, &names::join(path, inner), deeper)?;
        }
        if empty && !self.dry_run {
            rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)?;
        }
        Ok(empty)
    }
}
