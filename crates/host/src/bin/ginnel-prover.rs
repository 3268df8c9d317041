//! `ginnel-prover`: the command line.

use clap::Parser;
use ginnel_channel::proof::helper::SOCKET;
use ginnel_host::config::Config;
use ginnel_host::log;
use ginnel_host::prover::numbers::Reader;
use ginnel_host::prover::{rights, server};
use ginnel_host::rundir::RunDir;
use std::path::PathBuf;
use std::process::ExitCode;

/// Proves for programs of this host that they hold a TCP connection, where they may not do it themselves.
///
/// A program in a segment of ginneld hands its socket over, and gets a secret that only the two ends
/// of its connection can have. Needs CAP_BPF and CAP_PERFMON at its start, which it gives up, and Linux 6.1.
/// Runs in the foreground and logs to standard error.
#[derive(Debug, Parser)]
#[command(name = "ginnel-prover", version, max_term_width = 100, after_long_help = EXIT)]
struct Cli {
    /// ginneld's configuration, whose `run_dir` says where to listen [default: /etc/ginnel/ginneld.toml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only say whether this kernel shows what it takes, and whether this process may see it
    #[arg(long)]
    check: bool,
}

const EXIT: &str = "\
Exit status:
  0  with --check: it can prove
  1  failed; standard error says why
  2  the command line or the configuration is wrong";

fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = match Config::load(cli.config.as_deref()) {
        Ok(config) => config,
        Err(error) => {
            log!(Error, "bad_configuration", why = error);
            return ExitCode::from(2);
        }
    };
    match run(&config, cli.check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log!(Error, "failed", why = format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(config: &Config, check: bool) -> anyhow::Result<()> {
    let reader = Reader::new()?;
    rights::give_up()?;
    reader.check()?;
    if check {
        println!("ginnel-prover can prove connections on this kernel");
        return Ok(());
    }
    let directory = RunDir::open(&config.run_dir)?;
    let _lock = directory.lock("prover.lock")?;
    let path = directory.path().join(SOCKET);
    let listener = server::listen_at(&path)?;
    log!(Info, "started", pid = std::process::id(), socket = path.display());
    server::serve(&listener, reader)
}
