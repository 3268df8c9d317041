//! `ginnel-prover`: the program; its command line is [`ginnel_host::args`].

use clap::Parser;
use ginnel_daemon::log;
use ginnel_host::args::Prover;
use ginnel_host::config::Config;
use ginnel_host::program;
use ginnel_host::prover::numbers::Reader;
use ginnel_host::prover::{rights, server};
use ginnel_host::rundir::RunDir;
use ginnel_tcp::proof::helper::SOCKET;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Prover::parse();
    program::run(cli.config.as_deref(), |config| {
        run(&config, cli.check).map(|()| ExitCode::SUCCESS)
    })
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
