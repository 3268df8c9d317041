//! `ginnel bench`: a program of its own, so that `ginnel run` carries nothing of it.

use crate::args::Bench;
use crate::exec;
use anyhow::{Context, Result, bail};
use std::io::Error;

/// Becomes ginnel-bench. Returns only where that failed.
pub fn bench(args: &Bench) -> Result<()> {
    let program =
        std::env::current_exe().context("finding this program")?.with_file_name("ginnel-bench");
    if !program.exists() {
        bail!("no {}: it comes with ginnel, and belongs into the same folder", program.display());
    }
    let mut command = vec![program.clone().into_os_string()];
    command.extend(args.arguments.iter().cloned());
    let errno = exec::exec(&command, None, std::env::vars_os().collect());
    bail!("starting {}: {}", program.display(), Error::from_raw_os_error(errno))
}
