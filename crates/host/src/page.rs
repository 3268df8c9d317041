//! What the status page says, as a value, as JSON and as HTML.

use crate::config::Backing;
use crate::memory;
use crate::server::Server;
use serde::Serialize;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// The daemon.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Its version.
    pub version: &'static str,
    /// Its process id.
    pub pid: u32,
    /// When this instance started, seconds since 1970.
    pub started: u64,
    /// Will the next instance get its machines?
    pub kept_for_the_next: bool,
    /// The segments.
    pub segments: Vec<SegmentStatus>,
}

/// A segment.
#[derive(Debug, Serialize)]
pub struct SegmentStatus {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Bytes that are really taken.
    pub resident: u64,
    /// `memfd` or `hugepages`.
    pub memory: &'static str,
    /// Slots for virtual machines.
    pub slots: u16,
    /// Vectors of each peer.
    pub vectors: u16,
    /// The machines that are attached.
    pub machines: Vec<PeerStatus>,
    /// The host's processes that are attached, all with slot 0.
    pub processes: Vec<PeerStatus>,
}

/// One who is attached.
#[derive(Debug, Serialize)]
pub struct PeerStatus {
    /// The slot, which is its peer id.
    pub slot: u16,
    /// The process that connected: QEMU.
    pub pid: u32,
    /// Its user id.
    pub uid: u32,
    /// How often a peer with this id has joined.
    pub generation: u64,
    /// Since when, seconds since 1970; for the host's processes and what was taken over at a restart, not before this instance.
    pub since: Option<u64>,
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// What there is now.
#[must_use]
pub fn status(server: &Server) -> Status {
    let segments = server.segments.iter().enumerate().map(|(index, segment)| {
        let machines = segment.occupants.iter().map(|(&slot, one)| PeerStatus {
            slot,
            pid: one.credentials.pid,
            uid: one.credentials.uid,
            generation: segment.presence(slot).generation,
            since: Some(seconds(one.since)),
        });
        let generation = segment.presence(0).generation;
        let process = |who: &ginnel_peer::credentials::Credentials| PeerStatus {
            slot: 0,
            pid: who.pid,
            uid: who.uid,
            generation,
            since: None,
        };
        SegmentStatus {
            name: segment.name.clone(),
            size: segment.config.size,
            resident: memory::resident(&segment.memory),
            memory: if segment.config.memory == Backing::Memfd { "memfd" } else { "hugepages" },
            slots: segment.config.machines,
            vectors: segment.config.vectors,
            machines: machines.collect(),
            processes: server.host_processes(index).map(|(joiner, _)| process(&joiner.who)).collect(),
        }
    });
    Status {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        started: seconds(server.started),
        kept_for_the_next: server.store.is_there(),
        segments: segments.collect(),
    }
}

/// For programs.
#[must_use]
pub fn json(status: &Status) -> String {
    serde_json::to_string_pretty(status).unwrap_or_default() + "\n"
}

/// For people. Nothing in it needs escaping: names of segments are letters, digits, '_' and '-', all else is numbers.
#[must_use]
pub fn html(status: &Status) -> String {
    let mut page = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>ginneld</title><style>body{font:15px/1.5 system-ui,sans-serif;margin:2em;max-width:60em}table{border-collapse:collapse}\
         th,td{text-align:left;padding:.2em 1.2em .2em 0;border-bottom:1px solid #ccc}:root{color-scheme:light dark}</style></head><body>\n",
    );
    let next =
        if status.kept_for_the_next { "A restart disturbs nobody." } else { "Not kept: a restart loses the attached machines." };
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "<h1>ginneld {}</h1>\n<p>Process {}. {next} <a href=\"/metrics\">Metrics</a>, <a href=\"/status.json\">JSON</a>.</p>",
        status.version, status.pid
    );
    for segment in &status.segments {
        let (size, resident) = (segment.size >> 20, segment.resident as f64 / f64::from(1 << 20));
        let _ = writeln!(
            page,
            "<h2>{}</h2>\n<p>{size} MiB of {}, {resident:.1} MiB taken. {} of {} slots in use, {} vectors each.</p>",
            segment.name,
            segment.memory,
            segment.machines.len(),
            segment.slots,
            segment.vectors
        );
        if segment.machines.len() + segment.processes.len() > 0 {
            page.push_str("<table><tr><th>Slot</th><th>Process</th><th>User</th><th>Joins</th></tr>\n");
            for one in segment.processes.iter().chain(&segment.machines) {
                let slot = if one.slot == 0 { "host".into() } else { one.slot.to_string() };
                let _ =
                    writeln!(page, "<tr><td>{slot}</td><td>{}</td><td>{}</td><td>{}</td></tr>", one.pid, one.uid, one.generation);
            }
            page.push_str("</table>\n");
        }
    }
    page + "</body></html>\n"
}
