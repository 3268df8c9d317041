//! Where the segment is, where nobody names one, and how a plug-in joins it there.

use crate::Error;
use ginnel_region::{Config, parse_size};
use std::path::{Path, PathBuf};

/// The default place of the segment: `mpi` in the user's directory, or what `GINNEL_FABRIC` names.
///
/// # Errors
/// In words, where the directory is not the user's alone.
pub fn default_path() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("GINNEL_FABRIC").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let directory = ginnel_node::home::default_directory();
    ginnel_node::home::make_directory(&directory)?;
    Ok(directory.join(NAME))
}

/// Joins the segment in its default place, of `GINNEL_SIZE` bytes where there is none yet. Why that
/// cannot be is said on standard error: a plug-in's caller knows numbers alone.
///
/// # Errors
/// What stood against it; `None`: it has no place.
pub fn join_default<T>(
    open: impl FnOnce(&Path, &Config) -> Result<T, Error>,
) -> Result<T, Option<Error>> {
    let path = default_path().map_err(|why| {
        eprintln!("ginnel: {why}");
        None
    })?;
    let mut config = Config::default();
    if let Some(size) = std::env::var("GINNEL_SIZE").ok().and_then(|text| parse_size(&text)) {
        config.size = size;
    }
    open(&path, &config).map_err(|failed| {
        eprintln!("ginnel: segment {}: {failed}", path.display());
        Some(failed)
    })
}

/// The segment's name in the user's directory.
pub const NAME: &str = "mpi";
