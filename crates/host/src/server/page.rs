//! What the status page says, as a value and as JSON; [`html`] is the page itself.

mod html;

pub use html::{SCRIPT, STYLE, html};

use super::Server;
use crate::config::Backing;
use crate::memory;
use crate::metrics::{By, Of, REFUSALS, RELAYS};
use crate::segment::Segment;
use ginnel_tcp::census::Share;
use serde::Serialize;
use std::collections::BTreeMap;
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
    /// When this was said, seconds since 1970.
    pub now: u64,
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
    /// What the peers have written about their connections.
    pub hints: Hints,
    /// Joins that were refused since this instance started, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Wake-ups that were passed on since this instance started, by direction.
    pub relayed: BTreeMap<&'static str, u64>,
    /// The machines that are attached.
    pub machines: Vec<PeerStatus>,
    /// The host's processes that are attached, all with slot 0.
    pub processes: Vec<PeerStatus>,
}

/// What stands in a segment, where every peer can write: right if all of them are honest.
#[derive(Debug, Default, Serialize)]
pub struct Hints {
    /// Connections that have moved into the segment.
    pub connections: u64,
    /// Bytes that these have carried in rings.
    pub open_bytes: u64,
    /// Bytes of all connections since the segment was made.
    pub bytes: u64,
    /// Bytes a second between the last two looks, which are a second apart or more.
    pub bytes_per_second: u64,
    /// Named objects.
    pub objects: u64,
    /// Bytes that these have for their users.
    pub object_bytes: u64,
    /// There was more than is looked at: connections and bytes are at least so many.
    pub partial: bool,
    /// What the processes of the host have of it, all together.
    pub host: PeerHints,
}

/// A peer's part in [`Hints`].
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct PeerHints {
    /// Connections with an end there.
    pub connections: u64,
    /// Bytes that these ends have sent in rings.
    pub sent: u64,
    /// Bytes that were sent to them in rings.
    pub received: u64,
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
    /// Since when, seconds since 1970; for the host's processes and what was taken over at a
    /// restart, not before this instance.
    pub since: Option<u64>,
    /// Its part of the connections; of the host's processes only all together is known.
    pub hints: Option<PeerHints>,
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// What there is now.
#[must_use]
pub fn status(server: &Server) -> Status {
    Status {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        started: seconds(server.started),
        now: seconds(SystemTime::now()),
        kept_for_the_next: server.store.is_there(),
        segments: server
            .segments
            .iter()
            .enumerate()
            .map(|(index, segment)| segment_status(server, index, segment))
            .collect(),
    }
}

fn segment_status(server: &Server, index: usize, segment: &Segment) -> SegmentStatus {
    // Of this life of the peer: what an earlier machine in the slot has left is nobody's any more.
    // The host has one life.
    let share = |peer: u16| {
        let life = if peer == 0 { 0 } else { (segment.presence(peer).generation & 0xffff) as u16 };
        let Share { connections, sent, received } =
            segment.seen.census.by_peer.get(&(peer, life)).copied().unwrap_or_default();
        PeerHints { connections, sent, received }
    };
    let machines = segment.occupants.iter().map(|(&slot, one)| PeerStatus {
        slot,
        pid: one.credentials.pid,
        uid: one.credentials.uid,
        generation: segment.presence(slot).generation,
        since: Some(seconds(one.since)),
        hints: Some(share(slot)),
    });
    let generation = segment.presence(0).generation;
    let process = |who: &ginnel_ivshmem::credentials::Credentials| PeerStatus {
        slot: 0,
        pid: who.pid,
        uid: who.uid,
        generation,
        since: None,
        hints: None,
    };
    let (census, metrics) = (&segment.seen.census, &server.metrics);
    let by = |kind| By { segment: segment.name.clone(), kind };
    SegmentStatus {
        name: segment.name.clone(),
        size: segment.config.size,
        resident: memory::resident(&segment.memory),
        memory: if segment.config.memory == Backing::Memfd { "memfd" } else { "hugepages" },
        slots: segment.config.machines,
        vectors: segment.config.vectors,
        hints: Hints {
            connections: census.connections,
            open_bytes: census.carried,
            bytes: metrics.carried.get_or_create(&Of { segment: segment.name.clone() }).get(),
            bytes_per_second: segment.seen.rate,
            objects: census.objects.0,
            object_bytes: census.objects.1,
            partial: census.partial,
            host: share(0),
        },
        refused: REFUSALS
            .iter()
            .map(|&kind| (kind, metrics.refused.get_or_create(&by(kind)).get()))
            .collect(),
        relayed: RELAYS
            .iter()
            .map(|&kind| (kind, metrics.relayed.get_or_create(&by(kind)).get()))
            .collect(),
        machines: machines.collect(),
        processes: server.host_processes(index).map(|(joiner, _)| process(&joiner.who)).collect(),
    }
}

/// For programs.
#[must_use]
pub fn json(status: &Status) -> String {
    serde_json::to_string_pretty(status).unwrap_or_default() + "\n"
}
