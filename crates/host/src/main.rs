//! `ginneld`: the program; its command line is [`ginnel_host::args`].

use clap::Parser;
use ginnel_host::{args::Cli, config::Config, keeper, log, server::Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;

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
    let done = if cli.keep {
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
