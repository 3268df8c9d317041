//! Guests on a bridge of the host's kernel: QEMU's `-netdev tap`, the usual way between machines of
//! one host, here without the kernel's `vhost-net`. Needs root and `/dev/net/tun`.

use crate::call;
use crate::namespace::Namespace;
use anyhow::{Result, ensure};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;

/// A bridge with a tap device for each guest, in a network namespace of its own. Removed when it is
/// dropped.
pub struct Bridge {
    namespace: Namespace,
    taps: Vec<File>,
}

impl Bridge {
    /// Makes it, for so many guests.
    ///
    /// # Errors
    /// Where namespace or devices cannot be made.
    pub fn new(guests: usize) -> Result<Self> {
        let namespace = Namespace::new()?;
        call(&mut namespace.command("ip link add bridge type bridge && ip link set bridge up"))?;
        let mut taps = Vec::new();
        for guest in 0..guests {
            // With headers that say what is to be segmented and summed: as QEMU itself would open
            // it.
            let tap = namespace.tap(&format!("tap{guest}"), libc::IFF_VNET_HDR)?;
            call(&mut namespace.command(&format!(
                "ip link set tap{guest} master bridge && ip link set tap{guest} up"
            )))?;
            // QEMU inherits it.
            ensure!(
                // SAFETY: touches no memory.
                unsafe { libc::fcntl(tap.as_raw_fd(), libc::F_SETFD, 0) } == 0,
                "fcntl: {}",
                std::io::Error::last_os_error()
            );
            taps.push(tap);
        }
        Ok(Self { namespace, taps })
    }

    /// QEMU's options for one of the guests, the first being 0. In the guest it is the card after
    /// the first.
    ///
    /// # Panics
    /// Where there is no such guest.
    #[must_use]
    pub fn options(&self, guest: usize) -> Vec<String> {
        let card = format!("virtio-net-pci,netdev=tap,mac={}", Self::mac(guest));
        ["-netdev", &self.netdev(guest, "tap"), "-device", &card].map(str::to_owned).to_vec()
    }

    /// A command of the host in that network, a shell script: the bridge is the interface `bridge`.
    #[must_use]
    pub fn command(&self, script: &str) -> Command {
        self.namespace.command(script)
    }

    /// The hardware address of that card.
    #[must_use]
    pub fn mac(guest: usize) -> String {
        format!("52:54:00:68:00:{:02x}", guest + 1)
    }

    /// One of the guests' `-netdev` for another card.
    ///
    /// # Panics
    /// Where there is no such guest.
    #[must_use]
    pub fn netdev(&self, guest: usize, id: &str) -> String {
        format!("tap,id={id},fd={}", self.taps[guest].as_raw_fd())
    }
}
