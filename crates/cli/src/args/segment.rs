//! `ginnel segment`.

use crate::name::SegmentName;
use crate::size::{Mode, Size};
use clap::{Args, Subcommand};

/// `ginnel segment`
#[derive(Debug, Args)]
pub struct Segment {
    /// What to do with segments.
    #[command(subcommand)]
    pub command: SegmentCommand,
}

/// The commands on segments.
#[derive(Debug, Subcommand)]
pub enum SegmentCommand {
    /// Create a segment
    Create(Create),
    /// List the segments of the directory
    List(List),
    /// Remove a segment: its file and its directory of wake-ups, nothing else
    Remove(Remove),
}

/// `ginnel segment create`
#[derive(Debug, Args)]
pub struct Create {
    /// Name in the directory, or a path if it contains a slash
    #[arg(value_name = "NAME|PATH")]
    pub name: SegmentName,
    /// Size, at least 16M; memory is taken only as it is used
    #[arg(long, default_value = "1G")]
    pub size: Size,
    /// Who may join, as file permissions in octal; whoever joins can read all that passes in it
    #[arg(long, default_value = "600", value_name = "OCTAL")]
    pub mode: Mode,
    /// Wake up by tokens over TCP only, never by FIFOs
    #[arg(long)]
    pub tokens: bool,
}

/// `ginnel segment list`
#[derive(Debug, Args)]
pub struct List {
    /// Print JSON: the same as "segments" of ginnel status --json
    #[arg(long)]
    pub json: bool,
}

/// `ginnel segment remove`
#[derive(Debug, Args)]
pub struct Remove {
    /// Name in the directory, or a path if it contains a slash
    #[arg(value_name = "NAME|PATH")]
    pub name: SegmentName,
    /// Remove it although processes use it, or although it is no segment. Those processes keep
    /// their connections; new ones do not meet them
    #[arg(long)]
    pub force: bool,
}
