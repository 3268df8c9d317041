//! `ginnel mpirun` and `ginnel mpi`.

use crate::name::SegmentName;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;

/// Below the help of `ginnel mpirun`.
pub const MPIRUN: &str = "\
Environment, besides that of ginnel run:
  GINNEL_FABRIC    with --over fabric or ucx: the segment's file, or a machine's device
                   [default: mpi in GINNEL_DIR]
  GINNEL_SIZE      bytes of that file, where there is none yet [default: 1073741824]
  GINNEL_JOB_KEY   with --over ucx: 32 hexadecimal digits, by which the job's messages are sealed;
                   empty: they are not [default: a key of the job's own]";

/// `ginnel mpirun`
#[derive(Debug, Args)]
pub struct Mpirun {
    /// How ranks are to reach each other
    #[arg(long, value_enum, default_value = "tcp")]
    pub over: Over,
    /// Segment in which to meet, as for ginnel run
    #[arg(long, value_name = "NAME|PATH")]
    pub segment: Option<SegmentName>,
    /// Each rank says on standard error what happens
    #[arg(long)]
    pub verbose: bool,
    /// The launcher, where it is not the mpirun in PATH (mpirun.openmpi, mpiexec.mpich, a path)
    #[arg(long, value_name = "PROGRAM", default_value = "mpirun")]
    pub launcher: OsString,
    /// What mpirun understands, then the program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    pub arguments: Vec<OsString>,
}

/// How the ranks of an MPI program reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// By the library's own TCP transport, whose connections Ginnel carries as those of any program
    Tcp,
    /// By libfabric and Ginnel's provider: faster, on one host, where the library has libfabric
    Fabric,
    /// By UCX and Ginnel's transport: as fast, where the library has UCX (Open MPI, MPICH)
    Ucx,
}

/// `ginnel mpi`
#[derive(Debug, Args)]
pub struct Mpi {
    /// What to print.
    #[command(subcommand)]
    pub command: MpiCommand,
}

/// The commands on MPI libraries.
#[derive(Debug, Subcommand)]
pub enum MpiCommand {
    /// Print the settings that ginnel mpirun makes, for a shell: eval "$(ginnel mpi env --for
    /// openmpi)"
    Env(Env),
}

/// `ginnel mpi env`
#[derive(Debug, Args)]
pub struct Env {
    /// The library whose settings to print
    #[arg(long = "for", value_enum)]
    pub library: For,
    /// How ranks are to reach each other
    #[arg(long, value_enum, default_value = "tcp")]
    pub over: Over,
    /// Segment in which to meet, as for ginnel run
    #[arg(long, value_name = "NAME|PATH")]
    pub segment: Option<SegmentName>,
}

/// Libraries that have settings of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum For {
    /// Open MPI
    Openmpi,
    /// MPICH, as Debian builds it: on UCX
    Mpich,
    /// Programs that use libfabric themselves
    Libfabric,
    /// Programs that use UCX themselves
    Ucx,
}
