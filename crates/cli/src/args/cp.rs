//! `ginnel cp` and `ginnel cp serve`.

use crate::name::SegmentName;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// What the long help ends with.
pub const CP: &str = "\
Examples:
  ginnel cp serve --root /srv/files --name vm3 --writable    on one side, then on the other
  ginnel cp report.pdf vm3:/inbox/                           there
  ginnel cp -a vm3:/photos .                                 back, a tree with all that it has
  ginnel cp -a --delete photos/ vm3:/photos/                 the same there as here

Exit status, as rsync's:
  0   all is copied
  2   the command line is wrong, or the two sides are of different versions
  3   source or destination cannot be had
  5   the copy could not begin: no server of that name, or it refused
  11  a file could not be written, and the rest neither: no room
  12  the other side died or broke the protocol
  20  stopped by a signal
  23  some files were not copied: standard error names them
  24  some files were gone before they were read
  30  the other side was silent for too long
  35  the server did not answer";

/// `ginnel cp`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "ginnel cp [OPTIONS] SOURCE… DESTINATION\n       ginnel cp serve [OPTIONS] --root <DIR>"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
pub struct Cp {
    /// Offer a directory
    #[command(subcommand)]
    pub command: Option<CpCommand>,
    /// What to copy, then where to: NAME:PATH of a server, or a path here. (A file that is called
    /// serve: ./serve)
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Directories too, with all that is in them
    #[arg(short, long)]
    pub recursive: bool,
    /// All that a tree has: the same as -rlptgo
    #[arg(short, long)]
    pub archive: bool,
    /// Symbolic links, as links
    #[arg(short, long)]
    pub links: bool,
    /// Permissions
    #[arg(short, long)]
    pub perms: bool,
    /// Times of change; with these, a file of the same size and time is not copied again
    #[arg(short, long)]
    pub times: bool,
    /// Owners, where this is root
    #[arg(short, long)]
    pub owner: bool,
    /// Groups, where this is root
    #[arg(short, long)]
    pub group: bool,
    /// Owners and groups by number, rather than by the names that both sides have for them
    #[arg(long)]
    pub numeric_ids: bool,
    /// Say what would be done, and do nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Compare files by checksum (BLAKE3), rather than by size and time
    #[arg(short, long)]
    pub checksum: bool,
    /// Copy also what has the same size and time
    #[arg(short = 'I', long)]
    pub ignore_times: bool,
    /// Keep what there is of a file when the copy is interrupted, and go on from there the next
    /// time
    #[arg(long)]
    pub partial: bool,
    /// Write over files rather than beside them: a copy that is interrupted leaves a mixture
    #[arg(long)]
    pub inplace: bool,
    /// Delete at the destination what the source does not have; takes -r and one directory
    #[arg(long)]
    pub delete: bool,
    /// Leave out what fits; may be given several times. With / in front: at the top of what is
    /// copied
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Leave out links that lead out of what is copied
    #[arg(long)]
    pub safe_links: bool,
    /// Have each file on the disk before it gets its name
    #[arg(long)]
    pub fsync: bool,
    /// Bytes a second at most, in KiB or with K, M, G
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub bwlimit: Option<u64>,
    /// Seconds for which a silent other side is waited for; 0: for ever
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    pub timeout: u64,
    /// Name each thing that is done
    #[arg(short, long)]
    pub verbose: bool,
    /// No progress on a terminal
    #[arg(short, long)]
    pub quiet: bool,
    /// Print JSON when it is done (docs/cp.md)
    #[arg(long)]
    pub json: bool,
    /// Segment in which the server is: a name, or a path if it contains a slash [default: the one
    /// that ginnel run takes]
    #[arg(long, value_name = "NAME|PATH")]
    pub segment: Option<SegmentName>,
}

/// The other side.
#[derive(Debug, Subcommand)]
pub enum CpCommand {
    /// Offer a directory to whoever has the segment, to be read
    ///
    /// Nothing outside of it can be reached, whatever paths and links say. Whoever can open the
    /// segment can read it, and with --writable write it, with this process's rights.
    Serve(Serve),
}

/// `ginnel cp serve`
#[derive(Debug, Args)]
pub struct Serve {
    /// The directory
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
    /// The name before the colon [default: this host's]
    #[arg(long)]
    pub name: Option<String>,
    /// Take files, too
    #[arg(long)]
    pub writable: bool,
    /// Let clients say whose their files are, and set the bits by which a program gets their
    /// rights; as root only
    #[arg(long, requires = "writable")]
    pub owners: bool,
    /// Take links that lead out of the directory. They are never followed here, but others might
    #[arg(long, requires = "writable")]
    pub any_links: bool,
    /// Clients at a time
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u16).range(1..=128))]
    pub sessions: u16,
    /// Seconds for which a silent client is waited for; 0: for ever
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    pub timeout: u64,
    /// Say on standard error what each client does
    #[arg(short, long)]
    pub verbose: bool,
    /// Segment: a name, or a path if it contains a slash; made if there is none [default: the one
    /// that ginnel run takes]
    #[arg(long, value_name = "NAME|PATH")]
    pub segment: Option<SegmentName>,
}

fn rate(text: &str) -> Result<u64, String> {
    let wrong = || "a number of KiB a second, or one with K, M or G, like 10M".to_owned();
    let bytes = match text.parse::<u64>() {
        Ok(kibibytes) => kibibytes.checked_mul(1024),
        Err(_) => ginnel_region::parse_size(text),
    };
    bytes.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rates_are_rsyncs() {
        assert_eq!(
            ["0", "10", "10K", "3m"].map(rate),
            [Ok(0), Ok(10 << 10), Ok(10 << 10), Ok(3 << 20)]
        );
        assert!(rate("fast").is_err() && rate("-1").is_err() && rate("99999999999999999").is_err());
    }
}
