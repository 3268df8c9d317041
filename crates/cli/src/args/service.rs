//! `ginnel service`.

use crate::name::SegmentName;
use clap::{Args, Subcommand};

/// `ginnel service`
#[derive(Debug, Args)]
pub struct Service {
    /// What to do with services.
    #[command(subcommand)]
    pub command: ServiceCommand,
}

/// The commands on services.
#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    /// Have services run with their sockets accelerated, from their next start on
    ///
    /// Writes one file for each, a drop-in named zz-ginnel.conf (systemd.unit(5)), and nothing
    /// else. Looks at the unit's programs and its sandbox first: what cannot be served is refused
    /// with the reason, and then nothing is changed for any of them. A service meets programs of
    /// its own user; services of different users need --segment.
    Enable(Enable),
    /// Undo `ginnel service enable`
    ///
    /// Removes the drop-in. A service that runs goes on as it is until it is started anew.
    Disable(Disable),
    /// Show which services are switched on, and whether they run with the library
    ///
    /// What is carried of their connections says `ginnel status --all-users`.
    Status(Status),
}

/// `ginnel service enable`
#[derive(Debug, Args)]
pub struct Enable {
    /// Services, such as redis-server
    #[arg(required = true, value_name = "UNIT")]
    pub units: Vec<String>,
    /// Restart those that run; one that does not start with the library is put back to what it was
    #[arg(long)]
    pub now: bool,
    /// Services of this user's own manager rather than the system's
    #[arg(long)]
    pub user: bool,
    /// Segment in which to meet, as for `ginnel run` [default: that of the service's user]
    #[arg(long, value_name = "NAME|PATH")]
    pub segment: Option<SegmentName>,
    /// Carry connections with this address, or network, without a proof, as for `ginnel run`; may
    /// be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub allow: Vec<String>,
}

/// `ginnel service disable`
#[derive(Debug, Args)]
pub struct Disable {
    /// Services, such as redis-server
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "UNIT")]
    pub units: Vec<String>,
    /// All that are switched on
    #[arg(long)]
    pub all: bool,
    /// Restart those that run
    #[arg(long)]
    pub now: bool,
    /// Services of this user's own manager rather than the system's
    #[arg(long)]
    pub user: bool,
}

/// `ginnel service status`
#[derive(Debug, Args)]
pub struct Status {
    /// Services [default: all that are switched on]
    #[arg(value_name = "UNIT")]
    pub units: Vec<String>,
    /// Print JSON: a list of {"unit", "enabled", "state", "processes", "with_library"}
    #[arg(long)]
    pub json: bool,
    /// Services of this user's own manager rather than the system's
    #[arg(long)]
    pub user: bool,
}
