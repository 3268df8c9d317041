//! The directory, and the files in it: the process table, the ledger and the segment.

use super::{Finding, allowed};
use ginnel_node::join;
use ginnel_node::processes::PROCESS_TABLE;
use ginnel_region::{Error, may_make};
use ginnel_tcp::attach::Tables;
use ginnel_tcp::ledger::{LEDGER, is_ledger};
use ginnel_tcp::settings::Settings;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Room below which a directory will not hold much of a segment: its tables, a ledger, and some
/// fifty connections, bytes.
const LITTLE_ROOM: u64 = 8 << 20;

/// The directory of segments and ledger.
pub(super) fn directory(path: &Path) -> Finding {
    let (shown, check) = (path.display(), "directory");
    let meta = match path.metadata() {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = path.parent().unwrap_or(Path::new("/"));
            return if allowed(parent, libc::W_OK | libc::X_OK) {
                Finding::ok(check, format!("{shown} is made when first needed"))
            } else {
                Finding::wrong(
                    check,
                    format!("{shown} is not there and cannot be made"),
                    "name another with GINNEL_DIR",
                )
            };
        }
        Err(error) => {
            return Finding::wrong(
                check,
                format!("{shown}: {error}"),
                "name another with GINNEL_DIR",
            );
        }
    };
    let (me, mode) = (ginnel_region::sys::effective_ids().0, meta.permissions().mode() & 0o7777);
    if !meta.is_dir() {
        Finding::wrong(
            check,
            format!("{shown} is no directory"),
            "remove it, or name another with GINNEL_DIR",
        )
    } else if meta.uid() != me {
        Finding::wrong(
            check,
            format!("{shown} belongs to user {}", meta.uid()),
            "name another with GINNEL_DIR",
        )
    } else if !allowed(path, libc::R_OK | libc::W_OK | libc::X_OK) {
        Finding::wrong(check, format!("{shown} has mode {mode:o}"), format!("chmod 700 {shown}"))
    } else if mode & 0o077 != 0 || path.is_symlink() {
        Finding::wrong(
            check,
            format!(
                "{shown} has mode {mode:o}, or is a link: it must be a directory with its owner's rights alone"
            ),
            format!("chmod 700 {shown}"),
        )
    } else {
        Finding::ok(check, format!("{shown}, mode {mode:o}"))
    }
}

/// Free bytes of the file system that holds a path, or will.
#[expect(unsafe_code, reason = "the C library's own question")]
fn free_bytes(path: &Path) -> Option<u64> {
    let there: PathBuf = path.ancestors().find(|path| path.exists())?.into();
    let name = CString::new(there.as_os_str().as_bytes()).ok()?;
    // SAFETY: all zeroes is a valid `statvfs`.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a terminated string, and a value to be filled in.
    let asked = unsafe { libc::statvfs(name.as_ptr(), &raw mut stat) };
    (asked == 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
}

pub(super) fn room(settings: &Settings) -> Finding {
    let (check, shown) = ("room", settings.node.directory.display());
    if let Err(error) = may_make(settings.node.config.size) {
        return Finding::wrong(
            check,
            error.to_string(),
            "raise the limit (ulimit -f), or set GINNEL_SIZE",
        );
    }
    let Some(free) = free_bytes(&settings.node.directory) else {
        return Finding::none(
            check,
            format!("the file system of {shown} does not say how much is free"),
        );
    };
    let found = format!("{} free for {shown}", crate::size::human(free));
    if free >= LITTLE_ROOM {
        Finding::ok(check, found)
    } else {
        Finding::wrong(
            check,
            found,
            "make its file system larger (mount -o remount,size=1G /dev/shm; for a container --shm-size)",
        )
    }
}

/// The process table and the ledger of sockets.
pub(super) fn ledger(directory: &Path) -> Finding {
    let check = "ledger";
    let me = ginnel_region::sys::effective_ids().0;
    for path in [directory.join(LEDGER), directory.join(PROCESS_TABLE)] {
        if let Some(meta) =
            path.symlink_metadata().ok().filter(|meta| meta.uid() != me || meta.mode() & 0o077 != 0)
        {
            let found = format!(
                "{} belongs to user {}, mode {:o}",
                path.display(),
                meta.uid(),
                meta.mode() & 0o7777
            );
            return Finding::wrong(
                check,
                found,
                "it must be this user's with mode 600: remove it once its programs have ended",
            );
        }
    }
    match Tables::open(directory, true) {
        Ok(_) => Finding::ok(check, directory.join(LEDGER).display().to_string()),
        Err((_, Error::System { errno: libc::ENOENT, .. })) => {
            let older = fs::read_dir(directory)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.file_name());
            let older = older
                .filter_map(|name| name.into_string().ok())
                .filter(|name| is_ledger(name) && name != LEDGER);
            let older: Vec<String> = older.collect();
            if older.is_empty() {
                Finding::ok(check, "made when first needed")
            } else {
                let found = format!(
                    "only of another version ({}): programs under that Ginnel are not seen",
                    older.join(", ")
                );
                Finding::wrong(check, found, "end them and start them again under this one")
            }
        }
        Err((path, Error::System { doing, errno })) => {
            let error = std::io::Error::from_raw_os_error(errno);
            Finding::wrong(
                check,
                format!("{}: {doing}: {error}", path.display()),
                "see the directory's owner and mode",
            )
        }
        Err((path, _)) => Finding::wrong(
            check,
            format!("{} is none of this version", path.display()),
            "end the programs under ginnel and remove it",
        ),
    }
}

/// The segment that programs started here would use.
pub(super) fn segment(settings: &Settings) -> Finding {
    let (check, path) = ("segment", &settings.node.segment);
    match join::look(path) {
        Ok(segment) => {
            let (free, all) = segment.page_counts();
            let found = format!("{}, {} of {} pages free", path.display(), free, all);
            if free == 0 {
                Finding::wrong(
                    check,
                    found,
                    "create a larger one with `ginnel segment create --size`",
                )
            } else {
                Finding::ok(check, found)
            }
        }
        Err(Error::System { errno: libc::ENOENT, .. }) if !join::is_socket(path) => {
            let parent = path.parent().unwrap_or(Path::new("/"));
            if parent == settings.node.directory || parent.is_dir() {
                Finding::ok(check, format!("{} is made when first needed", path.display()))
            } else {
                Finding::wrong(
                    check,
                    format!("{}: there is no directory for it", path.display()),
                    "create it first",
                )
            }
        }
        Err(Error::System { doing, errno }) if join::is_socket(path) => {
            let found = format!(
                "{}: {doing}: {}",
                path.display(),
                std::io::Error::from_raw_os_error(errno)
            );
            Finding::wrong(check, found, "start ginneld there, or name another with --segment")
        }
        Err(Error::System { errno: libc::EACCES, .. }) => {
            let advice =
                "whoever made it may allow you with `chmod`, or you name another with --segment";
            Finding::wrong(
                check,
                format!("{} may not be opened by this user", path.display()),
                advice,
            )
        }
        Err(error) => Finding::error(check, &path.display().to_string(), &error.to_string()),
    }
}
