//! The command line.

use anyhow::{Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Compares transports on this machine: shared memory by Ginnel, TCP, Unix sockets, pipes, vsock
///
/// Measures patterns × transports × sizes in turn, so that noise falls on all alike, and writes a
/// report (report.html, charts/*.svg) with the raw samples (samples.csv, run.json). Ctrl-C ends it
/// with what there is; a second one at once. Nothing is left behind.
#[derive(Debug, Parser)]
#[command(
    name = "ginnel bench",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    /// What else can be done.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to measure.
    #[command(flatten)]
    pub options: Options,
}

/// What else can be done than measuring here.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write the report of a run again, or compare several: the first is what the others are
    /// compared with
    Report {
        /// Directories of runs
        #[arg(required = true, value_name = "DIR")]
        runs: Vec<PathBuf>,
        /// Where the report goes [default: the directory of a single run, else
        /// ginnel-bench-compared]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Markdown files to put the figures of a single run into, between `<!-- bench NAME: PART
        /// -->` and `<!-- bench end -->`: NAME is the run's, PART gains, summary, machine, medians,
        /// ratios, programs, latency, cpu, charts or failed
        #[arg(long, value_name = "FILE", num_args = 1..)]
        fill: Vec<PathBuf>,
    },
    /// Be the other end of `ginnel bench --connect`, on another machine or in another guest; until
    /// it is ended
    Serve {
        /// Where to listen. Who reaches it can have this machine measure, and nothing else
        #[arg(long, default_value = "0.0.0.0:7411", value_name = "ADDRESS:PORT")]
        listen: SocketAddr,
    },
    /// On the host of the guest that measures, tell it what the host's processes spend (its
    /// --host-cpu); until that machine ends
    Host {
        /// The socket at the other end of the machine's serial port: QEMU's -chardev
        /// socket,id=NAME,path=SOCKET,server=on,wait=off -device virtio-serial -device
        /// virtserialport,chardev=NAME,name=ginnel.host-cpu
        socket: PathBuf,
        /// Processes that work for the guests: each QEMU, vhost threads, ginneld
        #[arg(required = true, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
        processes: Vec<u32>,
    },
    /// One end of a workload
    #[command(hide = true)]
    Work {
        /// A task, in JSON
        task: String,
    },
}

/// What to measure.
#[derive(Clone, Debug, Deserialize, clap::Args, Serialize)]
pub struct Options {
    /// More sizes and more rounds: half an hour to three quarters rather than two minutes
    #[arg(long)]
    pub full: bool,
    /// Real programs too: NetPIPE, sockperf, iperf3, nginx, redis, memcached, a file copied by
    /// curl; two minutes more. Those that are not installed are named with their package
    #[arg(long, conflicts_with = "connect")]
    #[serde(default)]
    pub apps: bool,
    /// Only these patterns
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PATTERN")]
    pub pattern: Vec<Pattern>,
    /// Only these transports
    #[arg(long, value_enum, value_delimiter = ',', value_name = "TRANSPORT")]
    pub transport: Vec<Transport>,
    /// Sizes of messages, 1 to 64M, such as 64,4K,1M
    #[arg(long, value_delimiter = ',', value_parser = size, value_name = "SIZE")]
    pub sizes: Vec<usize>,
    /// Processors of the two ends; "none" leaves it to the kernel
    #[arg(long, default_value = "0,1", value_parser = pin, value_name = "CPU,CPU")]
    pub pin: Pin,
    /// Rounds; each takes every sample once [default: 3; with --full 7]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "COUNT")]
    pub rounds: Option<u32>,
    /// Seconds of a sample [default: 0.15; with --full 0.5]
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// Directory of the results [default: ginnel-bench-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    pub out: Option<PathBuf>,
    /// Name of this run in comparisons [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Measure to where `ginnel bench serve` listens; transports ginnel and tcp
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = far)]
    pub connect: Option<SocketAddr>,
    /// Measure TCP over a further network of that machine too, where its address in it is this:
    /// virtio=10.0.1.1. Names: virtio, switch, function, function-emulated
    #[arg(long, value_parser = way, value_name = "NAME=ADDRESS", requires = "connect")]
    #[serde(default)]
    pub way: Vec<Way>,
    /// In a guest: the serial port at whose other side `ginnel bench host` tells what the host
    /// spends, such as /dev/virtio-ports/ginnel.host-cpu
    #[arg(long, value_name = "PORT", requires = "connect")]
    #[serde(default)]
    pub host_cpu: Option<PathBuf>,
}

/// A further network of the other machine, and its address there.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Way(pub Transport, pub IpAddr);

/// The two processors of `--pin`, or none.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Pin(pub Option<[usize; 2]>);

/// What two ends do.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Ping-pong; half a round trip
    Latency,
    /// The same with 1 ms between messages: the receiver sleeps
    Paused,
    /// 64 B to and fro at a fixed rate: CPU time of both ends
    Rate,
    /// A stream in one direction
    Stream,
    /// Streams in both directions at once
    Both,
    /// Connections made one after another
    Connect,
    /// 64 B to and fro on 1 to 1,000 connections (--full: 10,000), 16 messages under way
    Many,
    /// Ping-pong of 64 B by 1 to 8 pairs of processes at once
    Pairs,
    /// A stream through rings of 16 KiB to 8 MiB
    Rings,
    /// NetPIPE's ping-pong (--apps: this and those below)
    Netpipe,
    /// sockperf's ping-pong
    Sockperf,
    /// iperf3, 1 to 8 streams
    Iperf3,
    /// nginx and wrk, a page of 1 KiB over 1 to 1,024 connections
    Nginx,
    /// redis and redis-benchmark, SET and GET on 50 connections
    Redis,
    /// memcached, 95 % reads of 1 KiB records at a fixed rate: latency
    Memcached,
    /// A file that curl copies from nginx
    Copy,
}

/// What carries the bytes.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Unmodified sockets under `ginnel run`, over loopback or to --connect
    Ginnel,
    /// The same between two network namespaces on a bridge
    GinnelVeth,
    /// Ginnel's ring alone, without sockets
    Ring,
    /// TCP over loopback or to --connect
    Tcp,
    /// TCP between two network namespaces on a bridge: the shape of two guests
    Veth,
    /// Unix stream sockets
    Unix,
    /// Two pipes
    Pipes,
    /// vsock over its loopback
    Vsock,
    /// TCP by virtio-net and a bridge, to --way
    Virtio,
    /// TCP by virtio-net and ginnel-switch, to --way
    Switch,
    /// TCP by virtual functions of SR-IOV cards, to --way
    Function,
    /// The same where the cards are emulated: a figure of the emulation, and of no card
    FunctionEmulated,
    /// No transport: a cache line between two cores, a copy by one
    Memory,
}

impl Pattern {
    /// Its name on the command line.
    pub fn name(self) -> String {
        named(&self)
    }
}

impl Transport {
    /// Its name on the command line.
    pub fn name(self) -> String {
        named(&self)
    }

    /// Whether the programs are started by `ginnel run`.
    pub fn is_ginnel(self) -> bool {
        matches!(self, Self::Ginnel | Self::GinnelVeth)
    }

    /// Whether it is one of the networks that --way names.
    pub fn is_way(self) -> bool {
        matches!(self, Self::Virtio | Self::Switch | Self::Function | Self::FunctionEmulated)
    }

    /// Whether it needs two network namespaces.
    pub fn is_veth(self) -> bool {
        matches!(self, Self::GinnelVeth | Self::Veth)
    }
}

fn named(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
}

fn size(text: &str) -> Result<usize> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    match digits.parse::<usize>().ok().and_then(|count| count.checked_mul(unit)) {
        Some(bytes @ 1..=0x400_0000) => Ok(bytes),
        _ => bail!("a size from 1 to 64M, such as 64, 4K or 1M"),
    }
}

fn seconds(text: &str) -> Result<f64> {
    match text.parse() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(seconds),
        _ => bail!("a number of seconds from 0.01 to 60"),
    }
}

fn pin(text: &str) -> Result<Pin> {
    if text == "none" {
        return Ok(Pin(None));
    }
    match text.split_once(',').map(|(a, b)| (a.parse(), b.parse())) {
        Some((Ok(a), Ok(b))) => Ok(Pin(Some([a, b]))),
        _ => bail!("two processors, such as 0,1, or none"),
    }
}

fn way(text: &str) -> Result<Way> {
    let Some((name, address)) = text.split_once('=') else {
        bail!("NAME=ADDRESS, such as virtio=10.0.1.1")
    };
    match Transport::from_str(name, false) {
        Ok(transport) if transport.is_way() => Ok(Way(transport, address.parse()?)),
        _ => bail!("no way is named {name}: virtio, switch, function or function-emulated"),
    }
}

fn far(text: &str) -> Result<SocketAddr> {
    use std::net::ToSocketAddrs;
    let found = text.to_socket_addrs().or_else(|_| (text, 7411).to_socket_addrs());
    match found.ok().and_then(|mut found| found.next()) {
        Some(address) => Ok(address),
        None => bail!("no address, and no name that has one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_have_units_and_bounds() {
        assert_eq!(
            ["1", "4K", "64M"].map(|text| size(text).ok()),
            [Some(1), Some(4096), Some(64 << 20)]
        );
        assert!(
            ["", "0", "65M", "4G", "K", "99999999999999999999M"]
                .iter()
                .all(|text| size(text).is_err())
        );
    }

    #[test]
    fn ways_have_a_name_and_an_address() {
        let parsed = way("function-emulated=10.0.1.1").ok();
        assert_eq!(parsed, Some(Way(Transport::FunctionEmulated, IpAddr::from([10, 0, 1, 1]))));
        assert!(
            ["", "virtio", "virtio=", "virtio=x", "tcp=10.0.1.1", "=10.0.1.1"]
                .iter()
                .all(|text| way(text).is_err())
        );
        assert!(
            Cli::try_parse_from(["b", "--way", "virtio=10.0.1.1"]).is_err(),
            "it is a way to --connect"
        );
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let cli = Cli::try_parse_from([
            "b",
            "--sizes",
            "1,4K",
            "--pattern",
            "latency,many",
            "--transport",
            "ginnel-veth",
            "--pin",
            "2,0",
        ])
        .unwrap();
        assert_eq!(cli.options.sizes, [1, 4096]);
        assert_eq!(cli.options.pattern, [Pattern::Latency, Pattern::Many]);
        assert_eq!(
            (cli.options.transport, cli.options.pin),
            (vec![Transport::GinnelVeth], Pin(Some([2, 0])))
        );
    }
}
