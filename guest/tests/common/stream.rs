//! Checked streams between guests whose connections go from one carrier to another, and back.

use super::{PATIENCE, status, wait};
use ginnel_guest::machine::Guest;
use serde_json::Value;
use std::time::{Duration, Instant};

/// A checked stream from one guest to another (`tests/programs/path`), which goes on until it is
/// told to end.
pub struct Stream {
    from: usize,
    to: usize,
    port: u16,
}

impl Stream {
    pub fn start(guests: &[Guest], from: usize, to: usize, port: u16) -> Self {
        let address = format!("10.77.0.{}", from + 1);
        // Each in a session of its own, with its output in files: no command of the agent's is
        // under way while the machine moves.
        let run = |guest: &Guest, role: &str| {
            let command = format!(
                "ginnel run -- ./path {role} {address} {port} >{role}.{port} 2>&1; echo $? >{role}.{port}.status"
            );
            guest.sh(&format!("setsid sh -c '{command}' </dev/null >/dev/null 2>&1 &"));
        };
        run(&guests[from], "server");
        guests[from].sh(&format!("until grep -q listening server.{port}; do sleep 0.1; done"));
        run(&guests[to], "client");
        Self { from, to, port }
    }

    fn at(&self, guests: &[Guest]) -> u64 {
        let said = guests[self.to].sh(&format!("tail -n 3 client.{}; true", self.port));
        said.lines().rev().find_map(|line| line.parse().ok()).unwrap_or(0)
    }

    pub fn moves_on(&self, guests: &[Guest]) {
        let before = self.at(guests);
        wait("bytes", || (self.at(guests) > before + 50_000).then_some(()));
    }

    pub fn end(&self, guests: &[Guest]) {
        let Self { from, to, port } = self;
        guests[*from].sh(&format!("pkill -USR1 -f '^./path server 10.77.0.{} {port}'", from + 1));
        for (guest, role) in [(from, "server"), (to, "client")] {
            let guest = &guests[*guest];
            let ended = || {
                guest
                    .run(&format!("cat {role}.{port}.status"), PATIENCE)
                    .ok()
                    .filter(|said| said.status == 0)
            };
            let status = wait("the stream's end", ended).out;
            let said = guest.sh(&format!("tail -n 5 {role}.{port}"));
            assert!(
                status.trim() == "0" && said.contains("all of"),
                "{role} {port}: {status}{said}"
            );
        }
    }
}

/// Ends of connections in a guest: those in rings, both ways, and all.
pub fn ends(guest: &Guest) -> (usize, usize, Value) {
    let seen = status(guest);
    let all = seen["connections"].as_array().expect("a list");
    let carried = all
        .iter()
        .filter(|one| one["in_carrier"] == "ring" || one["out_carrier"] == "ring")
        .count();
    (carried, all.len(), seen)
}

/// Waits until so many connections of each guest are in rings.
pub fn are_carried(guests: &[Guest], least: usize) {
    for guest in guests {
        let until = Instant::now() + PATIENCE;
        loop {
            let (carried, _, seen) = ends(guest);
            if carried >= least {
                break;
            }
            assert!(Instant::now() < until, "{carried} of {least} connections in rings: {seen:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
