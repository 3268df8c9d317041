//! Switches of several hosts, each at an address of its own on loopback.

use super::Lab;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Addresses that no other test has.
pub struct Net {
    number: u32,
    /// The shortest frame that is sent from where it lies, if not that of any switch.
    pub in_place: Option<u32>,
}

impl Net {
    /// None where libfabric is missing.
    pub fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let there =
            ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
                .iter()
                .any(|place| Path::new(place).join("libfabric.so.1").exists());
        if !there {
            eprintln!("skipped: needs libfabric1");
            return None;
        }
        let own = std::process::id() & 0x3fff;
        let number = own << 8 | NEXT.fetch_add(1, Ordering::Relaxed) & 0xff;
        Some(Self { number, in_place: None })
    }

    /// The same, with frames of so many bytes sent from where they lie.
    pub fn lending(&self, bytes: u32) -> Self {
        Self { in_place: Some(bytes), ..*self }
    }

    /// Does something with frames copied, and again with all that may be sent from where they lie.
    pub fn each(mut with: impl FnMut(&Self)) {
        for in_place in [None, Some(256)] {
            let Some(net) = Self::new() else { return };
            with(&Self { in_place, ..net });
        }
    }

    /// Of host `n`, 1 to 3: those with lower numbers call.
    pub fn address(&self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x7f00_0000 | (self.number + 1) << 2 & 0x00ff_fffc | n)
    }

    /// What the configuration of host `n` says of `count` hosts, which are called `h1`, `h2` …
    pub fn text(&self, n: u32, count: u32, secret: Option<&Path>) -> String {
        let secret = secret.map(|file| format!("secret = {file:?}\n")).unwrap_or_default();
        let hosts = (1..=count).map(|n| format!("h{n} = \"{}\"\n", self.address(n)));
        let hosts: String = hosts.collect();
        let in_place =
            self.in_place.map(|bytes| format!("in_place = {bytes}\n")).unwrap_or_default();
        let listen = self.address(n);
        format!("[fabric]\nlisten = \"{listen}\"\n{secret}{in_place}[fabric.hosts]\n{hosts}")
    }

    /// Switches of so many hosts with these ports each, which have found each other.
    pub fn hosts(&self, ports: &[&str], secret: Option<&Path>) -> Vec<Lab> {
        let count = ports.len() as u32;
        let lab =
            |(n, ports): (u32, &&str)| Lab::new(&format!("{ports}{}", self.text(n, count, secret)));
        let labs: Vec<Lab> = (1..).zip(ports).map(lab).collect();
        for (lab, n) in labs.iter().zip(1..) {
            for other in (1..=count).filter(|&other| other != n) {
                lab.until_host(&format!("h{other}"), |host| host.state == "up");
            }
        }
        labs
    }
}

/// A file of a secret.
pub fn secret(place: &Path, text: &str) -> std::path::PathBuf {
    use std::os::unix::fs::OpenOptionsExt;
    let path = place.join(text);
    let mut options = std::fs::OpenOptions::new();
    let mut file =
        options.write(true).create(true).truncate(true).mode(0o600).open(&path).expect("made");
    std::io::Write::write_all(&mut file, text.as_bytes()).expect("written");
    path
}
