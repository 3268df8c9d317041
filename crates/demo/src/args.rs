//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::programs::Name;

/// Runs real servers and clients plainly and under `ginnel run`, and prints one table.
///
/// As root, servers and clients live in network namespaces of their own, made for the occasion,
/// with a bridge between them. Without root they use the loopback interface. Then the same between
/// two virtual machines. Nothing is left behind.
#[derive(Debug, Parser)]
#[command(name = "ginnel-demo", version)]
pub struct Args {
    /// Measure each setting so many times each way; the table shows medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Length of one measurement, in seconds
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// One round of one second each: a look, not a measurement
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,

    /// Only these programs
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME")]
    pub only: Vec<Name>,

    /// More numbers of connections: nginx up to 1024, memcached up to 256
    #[arg(long, overrides_with = "further")]
    pub further: bool,

    /// Also through the kernel's sockmap, by this program: `make demo-peers` compiles it. Needs
    /// root. No virtual machines
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["server_only", "plain_only"])]
    pub sockmap: Option<String>,

    /// Use the loopback interface even where namespaces could be made
    #[arg(long)]
    pub loopback: bool,

    /// Boot no virtual machines
    #[arg(long)]
    no_guests: bool,

    /// Only the servers run under `ginnel run`: what it costs to be ready for clients that are not.
    /// New servers in each round, which take turns of ten milliseconds with their loads. No virtual
    /// machines
    #[arg(long)]
    pub server_only: bool,

    /// Measure plain TCP alone
    #[arg(long, conflicts_with = "server_only")]
    pub plain_only: bool,

    /// Where the results go
    #[arg(long, value_name = "FILE", default_value = "target/demo/results.json")]
    pub json: PathBuf,
}

impl Args {
    /// Measurements of each setting, each way.
    pub fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds as usize }
    }

    /// Length of one measurement, in seconds.
    pub fn seconds(&self) -> u32 {
        if self.quick { 1 } else { self.seconds }
    }

    /// Whether virtual machines are wanted.
    pub fn guests(&self) -> bool {
        !self.no_guests && !self.server_only && self.sockmap.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn quick_is_one_second_once() {
        let args = Args::parse_from(["ginnel-demo", "--quick", "--only", "nginx,redis"]);
        assert_eq!((args.rounds(), args.seconds()), (1, 1));
        assert_eq!(args.only, [Name::Nginx, Name::Redis]);
    }
}
