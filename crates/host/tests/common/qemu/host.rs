//! A daemon and the QEMUs that join it.

use super::{Qemu, is_installed};
use crate::common::daemon::{Daemon, SMALL};
use std::path::Path;

/// A daemon, and a directory for the sockets of its QEMUs.
pub struct Host {
    pub daemon: Daemon,
    directory: tempfile::TempDir,
}

impl Host {
    /// With a daemon that has a keeper; `None` where QEMU is not installed.
    pub fn start() -> Option<Self> {
        Self::with(|| Daemon::kept(SMALL))
    }

    /// With a daemon started in this way; `None` where QEMU is not installed.
    pub fn with(daemon: impl FnOnce() -> Daemon) -> Option<Self> {
        is_installed().then(|| Self {
            daemon: daemon(),
            directory: tempfile::tempdir().expect("a directory"),
        })
    }

    /// Where the QEMUs' sockets are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A QEMU in a slot, its device set up as a driver would.
    pub fn machine(&self, slot: u16) -> Qemu {
        let mut qemu = Qemu::joined(self.directory(), &self.daemon.socket(slot));
        qemu.set_up_device();
        qemu
    }

    /// QEMUs in slots 1 and 2.
    pub fn pair(&self) -> (Qemu, Qemu) {
        (self.machine(1), self.machine(2))
    }
}
