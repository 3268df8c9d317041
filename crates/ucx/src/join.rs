//! Joining the segment, by the job's key.

use crate::abi::{INVALID_PARAM, IO_ERROR, Status};
use crate::status::status_of;
use ginnel_fabric::Error;
use ginnel_fabric::active::{Key, parse_key};
use ginnel_region::Config;
use std::path::Path;

/// The job's key, by which ranks that `ginnel mpirun` started know each other's messages.
fn key() -> Result<Option<Key>, Status> {
    let Some(text) = std::env::var_os("GINNEL_JOB_KEY").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    match text.to_str().and_then(parse_key) {
        Some(key) => Ok(Some(key)),
        None => {
            eprintln!("ginnel: GINNEL_JOB_KEY is to be 32 hexadecimal digits");
            Err(INVALID_PARAM)
        }
    }
}

/// Joins the segment, in whatever way.
pub fn join<T>(
    open: impl FnOnce(&Path, &Config, Option<Key>) -> Result<T, Error>,
) -> Result<T, Status> {
    let key = key()?;
    let joined = ginnel_fabric::node::join_default(|path, config| open(path, config, key));
    joined.map_err(|why| why.map_or(IO_ERROR, status_of))
}
