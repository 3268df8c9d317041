//! QEMU's command line for a machine, and where the machine's files are.

use super::Spec;
use crate::kernel::Kernel;
use crate::qemu::Qemu;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the files of a machine are.
pub(super) struct Files<'a> {
    pub(super) directory: &'a Path,
    pub(super) name: &'a str,
    /// It comes from another QEMU, which has its sockets still.
    pub(super) incoming: bool,
}

impl Files<'_> {
    pub(super) fn path(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{}.{kind}", self.name))
    }

    /// A file of this QEMU's own.
    pub(super) fn here(&self, kind: &str) -> PathBuf {
        if self.incoming { self.path(&format!("next.{kind}")) } else { self.path(kind) }
    }
}

/// QEMU with the machine's processor, kernel, console, sockets and network.
pub(super) fn qemu_command(kernel: &Kernel, spec: &Spec, files: &Files<'_>) -> Result<Command> {
    let serve = |kind: &str| format!("path={},server=on,wait=off", files.here(kind).display());
    let qemu = spec.qemu.clone().map_or_else(Qemu::chosen, Ok)?;
    let (mut command, accelerator) = (qemu.command(), qemu.accelerator(kernel));
    // With one processor for ever QEMU's emulation leaves out barriers and makes atomic
    // instructions of several (accel/tcg: CF_PARALLEL is set where `smp.max_cpus > 1`): nobody
    // else could see, it thinks. The other machine of the segment does.
    let (smp, clock) =
        if accelerator[1] == "tcg" { ("1,maxcpus=2", "tsc=reliable") } else { ("1", "") };
    let memory = if spec.memory == 0 { needed(&files.path("initrd"))? } else { spec.memory.into() };
    let memory = memory.to_string();
    command.args(accelerator).args(["-machine", "q35", "-cpu", "max", "-m", &memory, "-smp", smp]);
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-kernel"])
        .arg(kernel.image());
    command.arg("-initrd").arg(files.path("initrd"));
    // An oops stops the guest where it is, for the console to be read.
    command.arg("-append").arg(format!(
        "console=ttyS0 loglevel=5 no_timer_check oops=panic panic=0 rdinit=/init {clock}"
    ));
    let append = if files.incoming { "on" } else { "off" };
    command.args([
        "-chardev",
        &format!("file,id=console,path={},append={append}", files.path("console").display()),
        "-serial",
        "chardev:console",
    ]);
    command.args(["-qmp", &format!("unix:{},server=on,wait=off", files.here("qmp").display())]);
    command.args([
        "-device",
        "virtio-serial-pci",
        "-chardev",
        &format!("socket,id=agent,{}", serve("agent")),
    ]);
    command.args(["-device", "virtserialport,chardev=agent,name=ginnel.agent"]);
    command.args(["-chardev", &format!("socket,id=host-cpu,{}", serve("host-cpu"))]);
    command.args(["-device", "virtserialport,chardev=host-cpu,name=ginnel.host-cpu"]);
    if let Some(netdev) = &spec.netdev {
        let last = spec
            .address
            .as_deref()
            .and_then(|text| text.split('/').next()?.rsplit('.').next()?.parse::<u8>().ok());
        command.args(["-netdev", netdev, "-device"]);
        command
            .arg(format!("virtio-net-pci,netdev=net,mac=52:54:00:67:00:{:02x}", last.unwrap_or(1)));
    }
    Ok(command)
}

/// How much memory a machine needs that boots from this archive, MiB. It lies there twice while it
/// is unpacked, and then in a file system that takes no more than half of the memory (the kernel's
/// `Documentation/filesystems/ramfs-rootfs-initramfs.rst`): what has no room there is left out, and
/// nobody is told.
fn needed(archive: &Path) -> Result<u64> {
    let archive = std::fs::metadata(archive)?.len() >> 20;
    Ok((64 + 3 * archive).max(256).next_multiple_of(64))
}
