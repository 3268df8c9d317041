//! `ginnel ls` and `ginnel rm`.

use crate::name::SegmentName;
use clap::Args;

/// `ginnel ls`
#[derive(Debug, Args)]
pub struct Ls {
    /// Segment: a name, or a path if it contains a slash [default: the one that ginnel run takes]
    #[arg(long, value_name = "NAME|PATH")]
    pub segment: Option<SegmentName>,
    /// Print JSON: {"version", "segment", "objects": [{"name", "kind", "size", "owner", "users",
    /// "waiting", "removed"}]}
    #[arg(long)]
    pub json: bool,
}

/// `ginnel rm`
#[derive(Debug, Args)]
pub struct Rm {
    /// Names of objects
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Segment: a name, or a path if it contains a slash [default: the one that ginnel run takes]
    #[arg(long, value_name = "NAME|PATH")]
    pub segment: Option<SegmentName>,
    /// Print JSON: {"version", "segment", "removed": [NAME, …]}
    #[arg(long)]
    pub json: bool,
}
