//! `ginnel-switch`: what it does by its command line ([`ginnel_switch::args`]).
#![forbid(unsafe_code)]

mod show;

use anyhow::{Context, Error, Result, bail};
use clap::Parser;
use ginnel_daemon::log;
use ginnel_switch::args::{Ask, Cli, Command};
use ginnel_switch::config::{Config, FabricConfig};
use ginnel_switch::hosts::libfabric;
use ginnel_switch::reload::{Outcome, Source};
use ginnel_switch::secret::Secret;
use ginnel_switch::{control, metrics, server::Server, trace};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    // First: there are no threads yet.
    libfabric::forget_registrations();
    let cli = Cli::parse();
    let done = match &cli.command {
        Some(command) => run(command),
        None => return start(&cli),
    };
    status(done, ExitCode::FAILURE)
}

fn start(cli: &Cli) -> ExitCode {
    let read = asks(cli).and_then(|asks| Ok((asks, configuration(cli)?)));
    match read {
        Ok((_, config)) if cli.check => {
            let control = config.control();
            println!("{} ports, control socket {}", config.ports.len(), control.display());
            ExitCode::SUCCESS
        }
        Ok((asks, config)) => status(serve(&config, asks, cli.busy), ExitCode::FAILURE),
        Err(error) => status(Err(error), ExitCode::from(2)),
    }
}

fn status(done: Result<()>, failed: ExitCode) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ginnel-switch: {error:#}");
            failed
        }
    }
}

/// The configuration's file, and a stream that can be read once SIGHUP has asked that it be read
/// again. It is there before the file is: names of hosts may take long to be looked up, and a
/// signal that nobody expects ends the process.
fn asks(cli: &Cli) -> Result<Option<(PathBuf, UnixStream)>> {
    let Some(file) = &cli.config else { return Ok(None) };
    let (asks, ask) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGHUP, ask)?;
    // A link is followed anew each time.
    Ok(Some((std::path::absolute(file)?, asks)))
}

fn configuration(cli: &Cli) -> Result<Config> {
    let mut config = match &cli.config {
        Some(file) => Config::load(file)?,
        None if cli.port.is_empty() && cli.vsock.is_empty() => {
            bail!("no ports; give --port NAME:SOCKET for each machine, or --config FILE")
        }
        None => {
            let names: std::collections::HashSet<_> =
                cli.port.iter().map(|port| &port.name).collect();
            if names.len() != cli.port.len() {
                bail!("two ports have one name");
            }
            let names: std::collections::HashSet<_> =
                cli.vsock.iter().map(|one| &one.name).collect();
            if names.len() != cli.vsock.len() {
                bail!("two machines have one name");
            }
            let known: std::collections::HashSet<_> =
                cli.vsock.iter().map(|one| (one.key, one.cid)).collect();
            if known.len() != cli.vsock.len() {
                bail!("two machines of one key have one context id");
            }
            let (vsock, fabric) = (cli.vsock.clone(), fabric(cli)?);
            Config { vsock, fabric, ..Config::new(cli.run_dir.clone(), cli.port.clone()) }
        }
    };
    config.busy |= cli.busy;
    Ok(config)
}

/// Other hosts, as the command line has them.
fn fabric(cli: &Cli) -> Result<Option<FabricConfig>> {
    let Some(listen) = cli.listen else { return Ok(None) };
    let mut fabric = FabricConfig::new(listen, cli.host.clone()).map_err(Error::msg)?;
    fabric.provider = cli.provider.unwrap_or_default();
    if let Some(file) = &cli.secret {
        let wrong = |why| Error::msg(format!("--secret {}: {why}", file.display()));
        fabric.secret = Some(Secret::load(file).map_err(wrong)?);
    }
    Ok(Some(fabric))
}

fn serve(config: &Config, asks: Option<(PathBuf, UnixStream)>, busy: bool) -> Result<()> {
    raise_limit();
    let (end, ends) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::low_level::pipe::register(signal, ends.try_clone()?)?;
    }
    let mut server = Server::new(config)?;
    if let Some(address) = config.metrics {
        // Somebody else may have the port: that keeps no frames from being switched.
        if let Err(error) = metrics::serve(address, config.control()) {
            log!(Warning, "no_metrics", why = format!("{error:#}"));
        }
    }
    if let Some((file, asks)) = asks {
        server.reload_from(Source { file, busy }, asks)?;
    }
    server.run(end)
}

/// As many descriptors as the system allows: a port takes one for its connection and two for each
/// queue.
fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // What cannot be raised is used as it is, and running out is handled.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Status(ask) => print(&text(ask, "status", show::status)?),
        Command::Ports(ask) => print(&text(ask, "status", show::ports)?),
        Command::Fdb(ask) => print(&text(ask, "fdb", show::fdb)?),
        Command::Hosts { key, ask } => {
            print(&text(ask, "status", |answer| show::hosts_file(answer, *key))?)
        }
        Command::Top(ask) => top(ask),
        Command::Reload(ask) => reload(ask),
        Command::Trace { port, count, ask } => {
            let mut stream = control::ask(&ask.control, &format!("trace {port}"))?;
            let said = line(&mut stream)?;
            if let Some(error) = serde_json::from_str::<serde_json::Value>(&said)?["error"].as_str()
            {
                bail!("{error}");
            }
            let out = &mut std::io::stdout().lock();
            let (written, missed) = trace::write_pcapng(&mut stream, out, port, *count)?;
            eprintln!("{written} frames, {missed} missed since this was too slow");
            Ok(())
        }
    }
}

/// What a switch answers: as it is, or as `show` puts it.
fn text(ask: &Ask, question: &str, show: impl Fn(&str) -> Result<String>) -> Result<String> {
    let answer = control::answer_of(&ask.control, question, Some(control::PATIENCE))?;
    if ask.json { Ok(answer) } else { show(&answer).context("the switch's answer") }
}

/// Has a switch read its configuration again.
fn reload(ask: &Ask) -> Result<()> {
    // Names of hosts may take long to be looked up.
    let answer = control::answer_of(&ask.control, "reload", None)?;
    let outcome: Outcome = serde_json::from_str(&answer).context("the switch's answer")?;
    print(&if ask.json { answer } else { show::outcome(&outcome) })?;
    outcome.error.map_or(Ok(()), |why| bail!("{why}"))
}

fn line(from: &mut impl Read) -> Result<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while from.read(&mut byte)? == 1 && byte != *b"\n" && line.len() < 4096 {
        line.extend(byte);
    }
    Ok(String::from_utf8(line)?)
}

fn print(text: &str) -> Result<()> {
    // A closed pipe is an error to report, not a panic.
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn top(ask: &Ask) -> Result<()> {
    let mut before: Option<String> = None;
    loop {
        let now = text(&Ask { control: ask.control.clone(), json: true }, "status", show::status)?;
        if ask.json {
            print(&now)?;
        } else if let Some(before) = &before {
            print(&show::rates(before, &now)?)?;
        }
        before = Some(now);
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}
