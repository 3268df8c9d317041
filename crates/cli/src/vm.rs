//! `ginnel vm`: virtual machines, as seen from their host.

mod net;

use crate::args::{VmArgs, VmCommand};
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
    if let Some(socket) = &args.net {
        let (mac, memory) = (args.mac.as_deref(), args.memory.as_deref());
        let (queues, vectors) = (args.queues, args.vectors);
        print(net::options(&net::Net { socket, mac, queues, memory, vectors })?)?;
        if memory.is_none() {
            eprintln!("ginnel: the machine's memory must be shared: --memory prints its options too");
        }
        if !socket.exists() {
            let socket = socket.display();
            eprintln!("ginnel: {socket} is not there yet: start ginnel-switch before this machine");
        }
        return Ok(());
    }
    // The command line has made sure of both.
    let segment = args.segment.as_deref().context("--segment is missing")?;
    let slot = args.slot.context("--slot is missing")?;
    let config = Config::load(args.config.as_deref())?;
    print(qemu::options(&config, segment, slot, args.bus.as_deref())?)?;
    let socket = config.socket(segment, slot);
    if !socket.exists() {
        eprintln!("ginnel: {} is not there yet: start ginneld before this machine", socket.display());
    }
    Ok(())
}
