//! The host's Open MPI in guests, and jobs of it with a rank in each of two.
//!
//! Guests have no remote shell. The launcher is given a program that hands its command to the other
//! guest's [`LISTENER`], as a remote shell would.

use crate::call;
use crate::machine::Spec;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs what the other guest's launcher asks for, for as long as the guest runs.
pub const LISTENER: &str = "exec nc -ll -p 514 -e /bin/sh";

/// In place of a remote shell.
const AGENT: &str = "#!/bin/sh\nhost=$1\nshift\necho \"$*\" | exec nc \"$host\" 514\n";

/// What a launcher in the first guest is told, so that there is a rank in each.
pub const IN_EACH: &str = "--mca plm_rsh_agent /usr/bin/agent --mca plm_rsh_no_tree_spawn 1 \
     --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 \
     --bind-to none --host 10.77.0.1:1,10.77.0.2:1 -np 2";

/// Lets a launcher and ranks run as the guest's only user.
pub const AS_ROOT: &str = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";

/// Adds Open MPI to what a guest has.
///
/// # Errors
/// Where it is not installed.
pub fn add(spec: &mut Spec) -> Result<()> {
    let said = call(Command::new("ompi_info").args(["--path", "pkglibdir", "--parsable"]))?;
    let parts = PathBuf::from(said.trim().rsplit(':').next().unwrap_or_default());
    let libraries = parts.ancestors().nth(3).context("a folder of libraries")?;
    spec.programs.extend(["mpirun.openmpi", "orted"].map(str::to_owned));
    spec.folders.extend([
        libraries.join("pmix2/lib/pmix"),
        PathBuf::from("/etc/openmpi"),
        PathBuf::from("/usr/share/openmpi"),
        parts,
    ]);
    spec.folders.retain(|folder| Path::exists(folder));
    spec.files.push(("/usr/bin/agent".into(), 0o755, AGENT.into()));
    Ok(())
}
