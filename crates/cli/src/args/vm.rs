//! `ginnel vm`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `ginnel vm`
#[derive(Debug, Args)]
pub struct Vm {
    /// What to do with virtual machines.
    #[command(subcommand)]
    pub command: VmCommand,
}

/// The commands on virtual machines.
#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Print the QEMU options with which a virtual machine joins a segment, or a switch
    ///
    /// To be put into QEMU's command line: qemu-system-x86_64 … $(ginnel vm args --segment default
    /// --slot 1). Each machine needs a slot of its own in a segment. With libvirt, see
    /// docs/libvirt.md.
    ///
    /// With --net the machine gets a network card at a port of ginnel-switch (docs/switch.md):
    /// qemu-system-x86_64 -m 1G … $(ginnel vm args --net /run/ginnel-switch/vm1.sock --memory 1G).
    Args(VmArgs),
}

/// `ginnel vm args`
#[derive(Debug, Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("switch").args(["net", "vsock"]).multiple(true))]
pub struct VmArgs {
    /// Segment, as ginneld's configuration names it
    #[arg(long, value_name = "NAME", required_unless_present_any = ["net", "vsock"])]
    pub segment: Option<String>,
    /// Slot in the segment, from 1 on: the machine's peer id
    #[arg(long, value_name = "N", required_unless_present_any = ["net", "vsock"])]
    pub slot: Option<u16>,
    /// Put the device on this PCI bus, rather than behind a root port of its own on pcie.0; on
    /// machine pc: pci.0
    #[arg(long, value_name = "BUS")]
    pub bus: Option<String>,
    /// ginneld's configuration [default: /etc/ginnel/ginneld.toml if it is there, else one segment
    /// named default]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Socket of a port of ginnel-switch: a network card, rather than a segment
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["segment", "slot", "bus", "config"])]
    pub net: Option<PathBuf>,
    /// Socket of a device of ginnel-switch for sockets between machines; with --net or alone
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["segment", "slot", "bus", "config"])]
    pub vsock: Option<PathBuf>,
    /// The card's Ethernet address [default: one of the socket's own]
    #[arg(long, requires = "net")]
    pub mac: Option<String>,
    /// Pairs of the card's queues; the switch's port must have as many
    #[arg(long, value_name = "N", requires = "net", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub queues: u16,
    /// The machine's memory, as in QEMU's -m: prints also the options by which it is shared
    #[arg(long, value_name = "SIZE", requires = "switch")]
    pub memory: Option<String>,
    /// Interrupts of each device; 0 for QEMU 7.2 without KVM, which crashes otherwise
    #[arg(long, value_name = "N", requires = "switch")]
    pub vectors: Option<u16>,
}
