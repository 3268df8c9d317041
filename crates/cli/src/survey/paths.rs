//! Where segments are: in a directory, and where a process has one mapped or its environment names
//! one.

use super::{Survey, identity};
use crate::name::is_by_product;
use crate::served;
use ginnel_node::processes::{self, is_process_table};
use ginnel_node::settings::DEFAULT_SEGMENT;
use ginnel_node::wake::directory::{sockets, wake_directory};
use ginnel_region::{Error, Segment as Region, device};
use ginnel_tcp::Reason;
use ginnel_tcp::ledger::is_ledger;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

impl Survey {
    /// Segments in the directory, and those elsewhere that this process's environment or a process
    /// of the ledger names.
    pub(super) fn segment_paths(&mut self) -> Vec<PathBuf> {
        let directory = self.directory.clone();
        let mut paths = files(&directory);
        let none = self.tables.as_ref().is_some_and(|(_, tables)| {
            tables
                .processes
                .living()
                .any(|(_, process)| Reason::of(process.reason.load(Relaxed)) == Reason::NoSegment)
        });
        // Other files may lie there too; they matter where a process found no segment.
        paths.retain(|path| {
            let foreign = matches!(self.region(path), Some(Err(Error::Foreign)));
            !foreign
                || none
                || path.ends_with(DEFAULT_SEGMENT)
                || wake_directory(&directory, path).is_dir()
        });
        if self.own {
            let named = std::env::var_os("GINNEL_SEGMENT")
                .map(PathBuf::from)
                .filter(|path| path.is_absolute() && may_be_segment(path));
            self.elsewhere.extend(named);
            self.elsewhere.extend(served::from_environment());
            self.elsewhere.extend(device::find());
            let known: Vec<u64> = self
                .regions
                .values()
                .filter_map(|(_, region)| region.as_ref().ok())
                .map(Region::id)
                .collect();
            if let Some((_, tables)) = &self.tables {
                // Memory that a daemon gave has no name among a process's maps.
                if tables
                    .processes
                    .living()
                    .any(|(_, process)| !known.contains(&process.segment.load(Relaxed)))
                {
                    self.elsewhere.extend(sockets(&directory));
                }
                self.elsewhere.extend(
                    tables
                        .processes
                        .living()
                        .filter(|(_, process)| !known.contains(&process.segment.load(Relaxed)))
                        .flat_map(|(_, process)| mapped(process)),
                );
            }
            self.elsewhere.retain(|path| may_be_segment(path));
            for path in &self.elsewhere {
                if !paths.iter().any(|known| identity(known) == identity(path)) {
                    paths.push(path.clone());
                }
            }
        }
        paths
    }
}

/// A file, a device that a driver made, or a daemon's socket.
fn may_be_segment(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| {
        meta.is_file() || meta.file_type().is_char_device() || meta.file_type().is_socket()
    })
}

/// Every file of the directory that may be a segment.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            !is_ledger(&name)
                && !is_process_table(&name)
                && !name.starts_with('.')
                && !is_by_product(&name)
        })
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    paths
}

/// Files that a process has mapped as a segment is mapped, and that are one.
fn mapped(process: &processes::Process) -> Vec<PathBuf> {
    if process.segment.load(Relaxed) == 0 {
        return Vec::new();
    }
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.pid.load(Relaxed)))
        .unwrap_or_default();
    // proc(5): address perms offset dev inode pathname
    let shared = maps.lines().filter(|line| line.split_ascii_whitespace().nth(1) == Some("rw-s"));
    let paths =
        shared.filter_map(|line| line.find('/').and_then(|at| line.get(at..))).map(PathBuf::from);
    let mut segments: Vec<PathBuf> = paths
        .filter(|path| {
            may_be_segment(path) && matches!(Region::open(path), Ok(_) | Err(Error::Version { .. }))
        })
        .collect();
    segments.dedup();
    segments
}
