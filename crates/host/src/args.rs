//! Command lines of `ginneld`, `ginnel-prover` and `ginnel-broker`: their help and manual pages
//! (`ginnel generate man`) come from here.

use clap::Parser;
use std::path::PathBuf;

/// Serves segments of shared memory to virtual machines and to processes of this host.
///
/// QEMU joins a segment by its ivshmem-doorbell device; `ginnel vm args` prints the options. Runs
/// in the foreground and logs to standard error. SIGTERM ends it. What it gave out stays as it is:
/// memory and doorbells work on without it.
#[derive(Debug, Parser)]
#[command(name = "ginneld", version, max_term_width = 100, after_long_help = EXIT)]
pub struct Cli {
    /// Configuration [default: /etc/ginnel/ginneld.toml if it is there, else one segment named
    /// default]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only say whether the configuration is good
    #[arg(long)]
    pub check: bool,
    /// Start the daemon, keep its descriptors and start it again if it dies, for hosts without
    /// systemd. SIGHUP restarts it
    #[arg(long, conflicts_with = "check")]
    pub keep: bool,
}

const EXIT: &str = "\
Exit status:
  0  ended by SIGTERM or SIGINT
  1  failed; standard error says why
  2  the command line or the configuration is wrong";

/// Proves for programs of this host that they hold a TCP connection, where they may not do it
/// themselves.
///
/// A program in a segment of ginneld hands its socket over, and gets a secret that only the two
/// ends of its connection can have. Needs CAP_BPF and CAP_PERFMON at its start, which it gives up,
/// and Linux 6.1. Runs in the foreground and logs to standard error.
#[derive(Debug, Parser)]
#[command(name = "ginnel-prover", version, max_term_width = 100, after_long_help = PROVER_EXIT)]
pub struct Prover {
    /// ginneld's configuration, whose `run_dir` says where to listen [default:
    /// /etc/ginnel/ginneld.toml if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only say whether this kernel shows what it takes, and whether this process may see it
    #[arg(long)]
    pub check: bool,
}

const PROVER_EXIT: &str = "\
Exit status:
  0  with --check: it can prove
  1  failed; standard error says why
  2  the command line or the configuration is wrong";

/// Gives two processes of this host memory of their own, once it has seen both ends of one
/// connection.
///
/// For programs of different users or containers, which share no segment. A program hands its
/// socket over; nobody but the two gets the memory. Needs CAP_BPF and CAP_PERFMON at its start,
/// which it gives up, and Linux 6.1. Runs in the foreground and logs to standard error.
#[derive(Debug, Parser)]
#[command(name = "ginnel-broker", version, max_term_width = 100, after_long_help = BROKER_EXIT)]
pub struct Broker {
    /// ginneld's configuration, whose `run_dir` says where to listen [default:
    /// /etc/ginnel/ginneld.toml if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only say whether this kernel shows what it takes, and whether this process may see it
    #[arg(long)]
    pub check: bool,
}

const BROKER_EXIT: &str = "\
Exit status:
  0  with --check: it can see both ends of a connection
  1  failed; standard error says why
  2  the command line or the configuration is wrong";
