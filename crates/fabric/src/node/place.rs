//! Where the segment is, where nobody names one.

use std::path::PathBuf;

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

/// The segment's name in the user's directory.
pub const NAME: &str = "mpi";
