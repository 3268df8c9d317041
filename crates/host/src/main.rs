//! `ginneld`: the command line.

use clap::Parser;
use ginnel_host::{config::Config, keeper, log, prover, server::Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::PathBuf;
use std::process::ExitCode;

/// Serves segments of shared memory to virtual machines and to processes of this host.
///
/// QEMU joins a segment by its ivshmem-doorbell device; `ginnel vm args` prints the options. Runs in the foreground and logs to standard error.
/// SIGTERM ends it. What it gave out stays as it is: memory and doorbells work on without it.
#[derive(Debug, Parser)]
#[command(name = "ginneld", version, max_term_width = 100, after_long_help = EXIT)]
struct Cli {
    /// Configuration [default: /etc/ginnel/ginneld.toml if it is there, else one segment named default]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only say whether the configuration is good
    #[arg(long)]
    check: bool,
    /// Start the daemon, keep its descriptors and start it again if it dies, for hosts without systemd. SIGHUP restarts it
    #[arg(long, conflicts_with = "check")]
    keep: bool,
    /// Prove for programs of this host that they hold their connections, instead of serving segments (docs/ginneld.md,
    /// "Proofs"). Needs CAP_NET_ADMIN and gives up everything else
    #[arg(long, conflicts_with_all = ["check", "keep"])]
    prove: bool,
}

const EXIT: &str = "\
Exit status:
  0  ended by SIGTERM or SIGINT
  1  failed; standard error says why
  2  the command line or the configuration is wrong";

/// As many descriptors as the system allows: also those on their way to joiners count, by this limit.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // What cannot be raised is used as it is, and running out is handled.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = match Config::load(cli.config.as_deref()) {
        Ok(config) => config,
        Err(error) => {
            log!(Error, "bad_configuration", why = error);
            return ExitCode::from(2);
        }
    };
    if cli.check {
        println!("{} segments, sockets below {}", config.segments.len(), config.run_dir.display());
        return ExitCode::SUCCESS;
    }
    raise_limit();
    let done = if cli.prove {
        prover::serve(&config).map(|()| ExitCode::SUCCESS)
    } else if cli.keep {
        let arguments = cli.config.iter().flat_map(|file| ["--config".into(), file.clone().into_os_string()]).collect::<Vec<_>>();
        keeper::keep(&config.run_dir, &arguments).map(|status| ExitCode::from(u8::try_from(status).unwrap_or(1)))
    } else {
        Server::new(config).and_then(|mut server| server.run()).map(|()| ExitCode::SUCCESS)
    };
    done.unwrap_or_else(|error| {
        log!(Error, "failed", why = format!("{error:#}"));
        ExitCode::FAILURE
    })
}
