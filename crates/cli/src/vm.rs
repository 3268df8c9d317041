//! `ginnel vm`: virtual machines, as seen from their host.

mod net;

use crate::args::vm::{VmArgs, VmCommand};
use anyhow::{Context, Result};
use ginnel_host::config::Config;
use ginnel_host::qemu;
use std::io::Write;

/// Runs one of them.
pub fn vm(command: &VmCommand) -> Result<()> {
    match command {
        VmCommand::Args(args) => print_args(args),
    }
}

fn print(options: Vec<[String; 2]>) -> Result<()> {
    let mut text = String::new();
    for [option, value] in options {
        text += &format!("{option} {value}\n");
    }
    // First into memory: a closed pipe is an error to report, not a panic.
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn print_args(args: &VmArgs) -> Result<()> {
    if args.net.is_some() || args.vsock.is_some() {
        return print_switch_args(args);
    }
    // The command line has made sure of both.
    let segment = args.segment.as_deref().context("--segment is missing")?;
    let slot = args.slot.context("--slot is missing")?;
    let config = Config::load(args.config.as_deref())?;
    print(qemu::options(&config, segment, slot, args.bus.as_deref())?)?;
    let socket = config.socket(segment, slot);
    if !socket.exists() {
        eprintln!(
            "ginnel: {} is not there yet: start ginneld before this machine",
            socket.display()
        );
    }
    Ok(())
}

/// A card and a device for sockets, as `ginnel-switch` has them.
fn print_switch_args(args: &VmArgs) -> Result<()> {
    let (mac, queues, vectors) = (args.mac.as_deref(), args.queues, args.vectors);
    let mut options = args.memory.as_deref().map_or(Ok(Vec::new()), net::memory)?;
    if let Some(socket) = &args.net {
        options.extend(net::options(&net::Net { socket, mac, queues, vectors })?);
    }
    if let Some(socket) = &args.vsock {
        options.extend(net::vsock(socket, vectors)?);
    }
    print(options)?;
    if args.memory.is_none() {
        eprintln!("ginnel: the machine's memory must be shared: --memory prints its options too");
    }
    for socket in [&args.net, &args.vsock].into_iter().flatten().filter(|path| !path.exists()) {
        let socket = socket.display();
        eprintln!("ginnel: {socket} is not there yet: start ginnel-switch before this machine");
    }
    Ok(())
}
