//! `ginnel vm`: virtual machines, as seen from their host.

use crate::args::{VmArgs, VmCommand};
use anyhow::Result;
use ginnel_host::config::Config;
use ginnel_host::qemu;
use std::io::Write;

/// Runs one of them.
pub fn vm(command: &VmCommand) -> Result<()> {
    match command {
        VmCommand::Args(args) => print_args(args),
    }
}

fn print_args(args: &VmArgs) -> Result<()> {
    let config = Config::load(args.config.as_deref())?;
    let options = qemu::options(&config, &args.segment, args.slot, args.bus.as_deref())?;
    let mut text = String::new();
    for [option, value] in options {
        text += &format!("{option} {value}\n");
    }
    // First into memory: a closed pipe is an error to report, not a panic.
    std::io::stdout().write_all(text.as_bytes())?;
    let socket = config.socket(&args.segment, args.slot);
    if !socket.exists() {
        eprintln!("ginnel: {} is not there yet: start ginneld before this machine", socket.display());
    }
    Ok(())
}
