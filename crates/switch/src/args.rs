//! The command line, from which the manual page is made too.

use crate::config::fabric::address_of;
use crate::config::{HostConfig, PortConfig, Provider, RUN_DIR, VsockConfig};
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Switches Ethernet between virtual machines, in shared memory.
///
/// Each port is a vhost-user socket; `ginnel vm args --net SOCKET` prints QEMU's options. Runs in
/// the foreground and logs to standard error. SIGTERM ends it; SIGHUP has it read its configuration
/// again.
#[derive(Debug, Parser)]
#[command(name = "ginnel-switch", version, max_term_width = 100, after_long_help = EXIT)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Configuration
    #[arg(long, value_name = "FILE", conflicts_with = "port")]
    pub config: Option<PathBuf>,
    /// A port: its name, its socket, and the key of its segment [default: 0]; may be given several
    /// times
    #[arg(long, value_name = "NAME:SOCKET[:KEY]", value_parser = PortConfig::parse)]
    pub port: Vec<PortConfig>,
    /// Sockets for a machine without a network: its context id, 3 or more, QEMU's socket, and the
    /// key of those that reach each other [default: 0]; may be given several times. Programs of the
    /// host connect to SOCKET.host
    #[arg(long, value_name = "NAME:CID:SOCKET[:KEY]", value_parser = VsockConfig::parse, conflicts_with = "config")]
    pub vsock: Vec<VsockConfig>,
    /// This host's address, as other hosts have it, where their switches reach this one
    /// [port: 9192]
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = address_of)]
    #[arg(requires = "host", conflicts_with = "config")]
    pub listen: Option<SocketAddr>,
    /// Another host, by its address or a name of it, whose machines belong to the same segments;
    /// may be given several times
    #[arg(long, value_name = "NAME=ADDRESS[:PORT]", value_parser = HostConfig::parse)]
    #[arg(requires = "listen", conflicts_with = "config")]
    pub host: Vec<HostConfig>,
    /// File of what all hosts have in common, which its owner alone may read: without it whoever
    /// sends from a host's address is that host
    #[arg(long, value_name = "FILE", requires = "listen", conflicts_with = "config")]
    pub secret: Option<PathBuf>,
    /// By what hosts reach each other: tcp, or verbs for InfiniBand and RoCE [default: tcp]
    #[arg(long, value_name = "PROVIDER", value_parser = Provider::parse)]
    #[arg(requires = "listen", conflicts_with = "config")]
    pub provider: Option<Provider>,
    /// Directory of the control socket, where ports are given on the command line
    #[arg(long, value_name = "DIRECTORY", default_value = RUN_DIR, conflicts_with = "config")]
    pub run_dir: PathBuf,
    /// Never sleep: for a processor that does nothing else
    #[arg(long)]
    pub busy: bool,
    /// Only say whether the configuration is good
    #[arg(long)]
    pub check: bool,
    /// What to ask a running switch; none: be one
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Questions to a switch that runs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say what a running switch does, and what is wrong
    Status(Ask),
    /// List its ports with their counters
    Ports(Ask),
    /// List the addresses that it knows
    Fdb(Ask),
    /// Write the machines' names and addresses as a hosts file (hosts(5)), for machines and host:
    /// ginnel-switch hosts --key 0 >>/etc/hosts
    Hosts {
        /// Only those of this segment
        #[arg(long, value_name = "KEY")]
        key: Option<u32>,
        /// Which switch
        #[command(flatten)]
        ask: Ask,
    },
    /// Show frames and bytes of each port, every second
    Top(Ask),
    /// Have it read its configuration again: ports come and go, and others go on
    Reload(Ask),
    /// Write a port's frames as pcapng: ginnel-switch trace vm1 | tcpdump -r -
    Trace {
        /// The port
        port: String,
        /// End after so many frames
        #[arg(long, short, value_name = "N")]
        count: Option<u64>,
        /// Which switch
        #[command(flatten)]
        ask: Ask,
    },
}

/// Which switch is asked, and how it is to answer.
#[derive(Debug, Args)]
pub struct Ask {
    /// The switch's control socket
    #[arg(long, value_name = "PATH", default_value_os_t = default_control())]
    pub control: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

fn default_control() -> PathBuf {
    PathBuf::from(RUN_DIR).join("control.sock")
}

const EXIT: &str = "\
Exit status:
  0  ended by SIGTERM or SIGINT, or answered
  1  failed; standard error says why
  2  the command line or the configuration is wrong";
