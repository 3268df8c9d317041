//! Every command and flag. Help, manual page and completions are made from these definitions.

pub mod container;
pub mod cp;
pub mod mpi;
pub mod objects;
pub mod segment;
pub mod service;
pub mod vm;

use crate::name::SegmentName;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Carries the TCP connections of unmodified programs on one host through shared memory.
///
/// Programs started with `ginnel run` meet one another in a segment of shared memory. Connections
/// whose both ends are there move into it and back as needed; all others stay ordinary TCP. No
/// daemon and no configuration is needed.
#[derive(Debug, Parser)]
#[command(name = "ginnel", version, max_term_width = 100, after_long_help = EXIT)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT: &str = "\
Exit status:
  0    done
  1    failed; standard error says why
  2    the command line was wrong
  ginnel run exits as PROGRAM does, or
  125  ginnel itself failed
  126  PROGRAM was found and cannot be started
  127  PROGRAM was not found";

const RUN: &str = "\
Environment, handed to PROGRAM and all that it starts:
  GINNEL_DIR       directory of the segments given by name and of the list of sockets: the user's
                   own, mode 700 [default: /dev/shm/ginnel-UID, else $XDG_RUNTIME_DIR/ginnel-UID,
                   else ginnel-UID in $TMPDIR or /tmp]
  GINNEL_SEGMENT   the segment, as --segment sets it [default: in a virtual machine the one
                   that its host shares, such as /dev/ginnel0; else default]
  GINNEL_SIZE      bytes of a segment that is made because there is none; memory is taken only as
                   it is used [default: 1073741824]
  GINNEL_SPIN      microseconds to spin before sleeping; 0 as --no-spin sets it
                   [default: 30; in a segment shared with other machines 200, where the processor
                   is emulated in software 1000]
  GINNEL_AFTER     reads and writes of a connection before it may move [default: 8]
  GINNEL_RING      first size of a ring, bytes, rounded up to a power of two from 4096 to 67108864
                   [default: 32768]
  GINNEL_RING_MAX  largest size of a ring, rounded likewise, at least GINNEL_RING. Only directions
                   through which much goes get more than 1048576, two of a user's at a time; one
                   such ring takes at most 1/16 of the segment, all of them 1/8 [default: 4194304]
  GINNEL_BROKER    socket of ginnel-broker, which gives programs of different users or containers
                   memory for each pair of processes; off: none
                   [default: /run/ginnel/broker/broker.sock, where it is there]
  GINNEL_GO        0: programs in Go stay on TCP; 1: static ones are reached, too
  GINNEL_POLICY    rules as in a --policy file, between semicolons, instead of the user's own
  GINNEL_TOKENS    1: wake the other end over TCP even where a FIFO could be had
  GINNEL_VERBOSE   1: say on standard error what happens, as --verbose sets it
  GINNEL_REPORT    file to which each process adds a line of JSON with its counters when it ends
  GINNEL_SHIM      the library to preload, where it is not found beside ginnel
  GINNEL_OFF       if it is set at all, the preloaded library does nothing

Rules of a policy, one to a line; the first that holds decides, and what none holds for is carried:
  deny port 5432                           either end's port
  allow address 10.0.0.0/8 program nginx   the other end's address; this program's file
  deny                                     everything else
One end's deny is enough. `ginnel status` says denied. Apart from these:
  trust address 10.0.0.7                   carried without a proof, as --allow says it

Exit status: that of PROGRAM, or 125 if ginnel itself failed, 126 if PROGRAM was found and cannot
be started, 127 if it was not found.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program with its sockets accelerated
    ///
    /// Both ends of a connection must run this way, in the same segment, to meet. A program that
    /// cannot be reached (statically linked, setuid) runs as ever, on TCP, and one line on standard
    /// error says so.
    #[command(after_long_help = RUN)]
    Run(Run),
    /// Show segments, processes and connections, and why a connection is not accelerated
    Status(Status),
    /// Show connections and their rates, live; q quits
    Top(Top),
    /// Look for everything that can keep connections on TCP, and say what to do about it
    ///
    /// One line for each thing: "ok", "WRONG" with what is wrong and what to do, or "-" where it is
    /// not there and not every use needs it. Works on a host and in a virtual machine. The exit
    /// status is 1 where something is wrong.
    Doctor(Doctor),
    /// Have all programs leave a segment: their connections go on over TCP
    ///
    /// Before a virtual machine's device is unplugged, for a live migration perhaps
    /// (docs/migration.md): no connection breaks, and no byte is lost or repeated. Done when
    /// nothing of any of them is in the segment. Asks the programs of this user; as root those of
    /// all users. Programs that start meanwhile stay on TCP too. The exit status is 1 where a
    /// program has not answered in time: it is named, the others stay on TCP, and the request
    /// stands.
    Detach(Detach),
    /// Let programs that left a segment join it again: their connections move as they are used
    ///
    /// The segment may be another one under the same name. In a virtual machine, a program takes
    /// the device that `ginnel run` would find now, unless it was started with --segment. The exit
    /// status is 1 where a program finds no segment in time; it joins as soon as there is one.
    Attach(Attach),
    /// Create, list and remove segments
    Segment(segment::Segment),
    /// List the named objects of a segment: memory, queues, locks
    Ls(objects::Ls),
    /// Take the names from objects of a segment
    ///
    /// Nobody finds an object by its name from then on, and another may have it. Who uses it goes
    /// on using it; its memory is freed when nobody does.
    Rm(objects::Rm),
    /// Copy files between processes, containers and virtual machines of this host
    ///
    /// One of both sides is NAME:PATH, below the directory that `ginnel cp serve` offers there
    /// under that name; the other is a path here. What is there before stays until the whole new
    /// file is there. The rules are rsync's (docs/cp.md): a source with a slash at its end means
    /// what lies in it.
    #[command(after_long_help = cp::CP)]
    Cp(cp::Cp),
    /// Switch services of systemd on and off
    Service(service::Service),
    /// Have containers meet in a segment, by CDI or by options of their runtime
    Container(container::Container),
    /// Attach virtual machines to segments that ginneld serves
    Vm(vm::Vm),
    /// Start an MPI program whose ranks reach each other through shared memory
    ///
    /// Becomes the mpirun that is found (Open MPI's or MPICH's) with the settings that this takes:
    /// docs/mpi.md. All arguments after ginnel's own are mpirun's: ginnel mpirun -n 4 PROGRAM
    #[command(after_long_help = mpi::MPIRUN)]
    Mpirun(mpi::Mpirun),
    /// Print settings for MPI libraries
    Mpi(mpi::Mpi),
    /// Compare transports on this machine, as a report with charts
    ///
    /// Starts ginnel-bench, which lies beside ginnel: `ginnel bench --help` is its help
    /// (docs/bench.md).
    #[command(disable_help_flag = true)]
    Bench(Bench),
    /// Print the manual page, completions, or docs/reference.md
    #[command(hide = true)]
    Generate(Generate),
}

/// `ginnel run`
#[derive(Debug, Args)]
pub struct Run {
    /// Segment in which to meet: a name, or a path if it contains a slash. A name that ginneld
    /// serves on this host is ginneld's segment, and so is the path of its host.sock; else it is a
    /// file, made if there is none
    #[arg(long, value_name = "NAME|PATH")]
    pub segment: Option<SegmentName>,
    /// Rules about which connections may be carried, after those of /etc/ginnel/policy [default:
    /// ginnel/policy in $XDG_CONFIG_HOME or ~/.config, if there is one]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Carry connections with this address, or network (10.0.0.0/24), though their ends cannot
    /// prove that they hold them: whoever has the segment can then pretend to be the other end.
    /// Both ends need it; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub allow: Vec<String>,
    /// Say on standard error what happens
    #[arg(long, short)]
    pub verbose: bool,
    /// Sleep at once rather than spin for some microseconds first
    #[arg(long)]
    pub no_spin: bool,
    /// Have System V shared memory and semaphores (shmget, semget) in the segment, too: all
    /// programs that run so in it share them, as in an IPC namespace of their own (docs/sysv.md)
    #[arg(long)]
    pub sysv: bool,
    /// The program, looked up in PATH, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"], num_args = 1..)]
    pub command: Vec<OsString>,
}

/// `ginnel status`
#[derive(Debug, Args)]
pub struct Status {
    /// Print JSON (docs/status-json.md)
    #[arg(long)]
    pub json: bool,
    /// Show every user's, as far as permissions allow
    #[arg(long)]
    pub all_users: bool,
}

/// `ginnel detach`
#[derive(Debug, Args)]
pub struct Detach {
    /// Segment to leave: a name, or a path if it contains a slash, such as /dev/ginnel0 [default:
    /// the one that ginnel run takes]
    #[arg(long, visible_alias = "device", value_name = "NAME|PATH")]
    pub segment: Option<SegmentName>,
    /// Seconds to wait
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = patience)]
    pub timeout: f64,
}

/// `ginnel attach`
#[derive(Debug, Args)]
pub struct Attach {
    /// Segment that may be joined again [default: every one that was detached]
    #[arg(long, visible_alias = "device", value_name = "NAME|PATH")]
    pub segment: Option<SegmentName>,
    /// Seconds to wait
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = patience)]
    pub timeout: f64,
}

fn patience(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0 to 86400".into()),
    }
}

/// `ginnel doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// Also look whether this program can have the library: whether it is dynamic, with musl or a
    /// glibc that is new enough, or in Go
    pub program: Option<OsString>,
    /// Print JSON: {"version", "ok", "checks": [{"check", "state": "ok"|"none"|"wrong", "found",
    /// "advice"}]}
    #[arg(long)]
    pub json: bool,
    /// This is a virtual machine that is to have a device: none is wrong
    #[arg(long)]
    pub vm: bool,
    /// ginneld's configuration [default: /etc/ginnel/ginneld.toml if it is there, else one segment
    /// named default]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `ginnel top`
#[derive(Debug, Args)]
pub struct Top {
    /// Seconds from one picture to the next
    #[arg(long, short = 'd', default_value = "1", value_name = "SECONDS", value_parser = interval)]
    pub interval: f64,
    /// End after so many pictures
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub count: Option<u64>,
    /// One picture, without taking over the terminal; the same as -n 1 where standard output is no
    /// terminal
    #[arg(long, conflicts_with = "count")]
    pub once: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.1 to 3600".into()),
    }
}

/// `ginnel bench`
#[derive(Debug, Args)]
pub struct Bench {
    /// What ginnel-bench understands
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// `ginnel generate`
#[derive(Debug, Args)]
pub struct Generate {
    /// Which.
    #[arg(value_enum)]
    pub what: What,
    /// Shell of the completions
    #[arg(long, value_enum, default_value = "bash")]
    pub shell: clap_complete::Shell,
    /// Write one manual page for each command into this directory, rather than the main one to
    /// standard output
    #[arg(long, value_name = "DIRECTORY")]
    pub into: Option<PathBuf>,
}

/// What can be generated.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum What {
    /// Manual pages.
    Man,
    /// Completions.
    Completions,
    /// docs/reference.md.
    Reference,
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
    fn flags_after_the_program_are_the_programs() {
        let cli = Cli::try_parse_from([
            "ginnel",
            "run",
            "--no-spin",
            "prog",
            "--verbose",
            "-x",
            "--",
            "y",
        ])
        .expect("parses");
        let Command::Run(run) = cli.command else { panic!("another command") };
        assert!(run.no_spin && !run.verbose);
        assert_eq!(run.command, ["prog", "--verbose", "-x", "--", "y"]);
        let cli = Cli::try_parse_from(["ginnel", "run", "--", "--odd", "-x"]).expect("parses");
        let Command::Run(run) = cli.command else { panic!("another command") };
        assert_eq!(run.command, ["--odd", "-x"]);
        let cli =
            Cli::try_parse_from(["ginnel", "mpirun", "--verbose", "-n", "4", "prog", "--verbose"])
                .expect("parses");
        let Command::Mpirun(mpirun) = cli.command else { panic!("another command") };
        assert!(mpirun.verbose);
        assert_eq!(mpirun.arguments, ["-n", "4", "prog", "--verbose"]);
    }
}
