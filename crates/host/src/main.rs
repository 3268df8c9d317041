//! `ginneld`: the program; its command line is [`ginnel_host::args`].

use clap::Parser;
use ginnel_host::{args::Cli, keeper, program, server::Server};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    program::run(cli.config.as_deref(), |config| {
        if cli.check {
            println!(
                "{} segments, sockets below {}",
                config.segments.len(),
                config.run_dir.display()
            );
            return Ok(ExitCode::SUCCESS);
        }
        program::raise_limit();
        if !cli.keep {
            return Server::new(config)?.run().map(|()| ExitCode::SUCCESS);
        }
        let arguments = cli
            .config
            .iter()
            .flat_map(|file| ["--config".into(), file.clone().into_os_string()])
            .collect::<Vec<_>>();
        keeper::keep(&config.run_dir, &arguments)
            .map(|status| ExitCode::from(u8::try_from(status).unwrap_or(1)))
    })
}
