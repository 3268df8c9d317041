//! `ginnel-broker`: the program; its command line is [`ginnel_host::args`].

use clap::Parser;
use ginnel_daemon::log;
use ginnel_host::args::Broker;
use ginnel_host::broker::server::{self, Limits};
use ginnel_host::config::Config;
use ginnel_host::program;
use ginnel_host::prover::numbers::Reader;
use ginnel_host::prover::rights;
use ginnel_host::prover::server::listen_at;
use ginnel_host::rundir::RunDir;
use ginnel_tcp::broker::{DIRECTORY, SOCKET};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Broker::parse();
    program::run(cli.config.as_deref(), |config| {
        run(&config, cli.check).map(|()| ExitCode::SUCCESS)
    })
}

fn run(config: &Config, check: bool) -> anyhow::Result<()> {
    let reader = Reader::new()?;
    rights::give_up()?;
    reader.check()?;
    if check {
        println!("ginnel-broker can see both ends of a connection on this kernel");
        return Ok(());
    }
    // A descriptor for each process that asks, and as many under way.
    program::raise_limit();
    let directory = RunDir::open(&config.run_dir)?;
    let _lock = directory.lock("broker.lock")?;
    directory.make_segment(DIRECTORY)?;
    let path = directory.path().join(DIRECTORY).join(SOCKET);
    let listener = listen_at(&path)?;
    log!(Info, "started", pid = std::process::id(), socket = path.display());
    let limits = Limits { memory: config.broker.memory, pairs: config.broker.pairs };
    server::serve(&listener, reader, limits)
}
