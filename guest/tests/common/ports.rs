//! Stock guests at ports of `ginnel-switch`.

use super::{PATIENCE, wait};
use ginnel_guest::agent::Pending;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{Guest, Spec};
use ginnel_guest::switch::VhostSwitch;

pub const PORTS: &str = "[port.one]\n[port.two]\n[port.three]\nkey = 7\n[port.elsewhere]\n";

/// Guests at ports of a switch.
pub struct Lab {
    pub guests: Vec<Guest>,
    pub switch: VhostSwitch,
    pub specs: Vec<Spec>,
    pub kernel: Kernel,
    pub directory: tempfile::TempDir,
}

impl Lab {
    pub fn boot(names: &[&str]) -> Self {
        let kernel = Kernel::fetch().expect("a kernel");
        let directory = tempfile::tempdir().expect("a directory");
        let switch = VhostSwitch::start(directory.path(), PORTS).expect("a switch");
        let spec = |(n, name): (u32, &&str)| {
            let spec = switch.spec(name, &format!("10.77.0.{n}/24")).expect("options");
            Spec { programs: programs(), ..spec }
        };
        let specs: Vec<Spec> = (1..).zip(names).map(spec).collect();
        let guests = Guest::boot_all(&kernel, directory.path(), &specs).expect("they boot");
        Self { guests, switch, specs, kernel, directory }
    }

    /// Sends so many megabytes from the second guest to the first, with something done meanwhile.
    /// What arrives is what was sent.
    pub fn transfer(&mut self, port: u16, megabytes: u32, meanwhile: impl FnOnce(&mut Self)) {
        let transfer = Transfer::start(&self.guests, port, megabytes);
        meanwhile(self);
        transfer.ends_well();
    }

    pub fn healthy(&self) {
        for guest in &self.guests {
            guest.assert_healthy();
        }
        for (guest, name) in self.guests.iter().zip(["one", "two", "three"]) {
            let port = self.switch.port(name).expect("a port");
            assert_eq!(port["state"], "up", "{port}\n{}", guest.said());
        }
    }
}

/// What the guests have beside busybox.
pub fn programs() -> Vec<String> {
    vec!["nc".into(), "iperf3".into()]
}

/// A stream from the second guest to the first, whose address is 10.77.0.1.
pub struct Transfer {
    server: Pending,
    client: Pending,
    sum: String,
}

impl Transfer {
    /// Begins to send so many megabytes.
    pub fn start(guests: &[Guest], port: u16, megabytes: u32) -> Self {
        let server = format!("nc -l -N {port} </dev/null | sha256sum");
        let server = guests[0].start(&server, 3 * PATIENCE).expect("started");
        // Not compressible, and the same at both ends.
        let make = format!(
            "dd if=/dev/urandom of=/tmp/data bs=1M count=1 2>/dev/null; \
             (for i in $(seq {megabytes}); do cat /tmp/data; done) >/tmp/all; \
             sha256sum </tmp/all"
        );
        let sum = guests[1].sh(&make);
        let send = format!(
            "for i in $(seq 100); do nc -N -w {} 10.77.0.1 {port} </tmp/all && exit 0; sleep 0.2; \
             done; exit 1",
            PATIENCE.as_secs()
        );
        let client = guests[1].start(&send, 3 * PATIENCE).expect("started");
        Self { server, client, sum }
    }

    /// Waits for its end: what arrived is what was sent.
    pub fn ends_well(self) {
        self.client.finish().expect("ended").good().expect("sent");
        assert_eq!(self.server.finish().expect("ended").good().expect("received"), self.sum);
    }
}

/// Waits until a switch has given so many frames more to the machine at a port.
pub fn receives(switch: &VhostSwitch, port: &str, more: u64) {
    let received = || switch.port(port).ok()?["received_frames"].as_u64();
    let before = received().expect("a number");
    wait("frames", || (received()? >= before + more).then_some(()));
}

pub fn ping(from: &Guest, address: &str) -> bool {
    from.sh(&format!("ping -c 3 -W 1 {address} >/dev/null 2>&1 && echo yes || echo no")).trim()
        == "yes"
}
