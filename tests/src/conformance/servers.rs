//! Real servers with their own clients, under load for two minutes each (`LOAD_SECONDS`), their
//! results checked: the scripts in `tests/servers`.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::{Part, Reader, Suite};
use crate::build;

/// Each script a part. What is not installed is skipped by its script.
///
/// # Errors
/// When the scripts cannot be read.
pub fn prepare(_base: &Path) -> Result<Suite> {
    let mut scripts: Vec<_> = std::fs::read_dir(build::tests_dir().join("servers"))?.collect::<Result<_, _>>()?;
    scripts.sort_by_key(std::fs::DirEntry::file_name);
    let parts = scripts.into_iter().map(|entry| entry.path()).filter_map(|path| {
        let name = path.file_stem()?.to_str()?.to_owned();
        let command = vec!["sh".to_owned(), path.to_str()?.to_owned()];
        (name != "lib").then_some(Part { name, command, dir: None, limit: Duration::from_secs(900), reader: Reader::Tap })
    });
    let seconds = std::env::var("LOAD_SECONDS").unwrap_or_else(|_| "120".to_owned());
    Ok(Suite { version: format!("below; {seconds} s of load each"), remarks: Vec::new(), parts: parts.collect() })
}
