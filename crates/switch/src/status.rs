//! What the switch says of itself: JSON, of which `--json` is the same text.

use crate::config::VsockConfig;
use crate::counters::{Counters, REASONS};
use crate::filter::Network;
use crate::hosts::{self, Host};
use crate::port::{Link, Port};
use crate::switch::Switch;
use crate::vsock::machine::Shown;
use crate::wire::{features, show};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// The state of the switch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Version of this format.
    pub format: u32,
    /// The switch's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since it began.
    pub seconds: f64,
    /// Addresses in the table.
    pub addresses: usize,
    /// Its ports.
    pub ports: Vec<PortStatus>,
    /// Its devices for sockets between machines.
    #[serde(default)]
    pub vsock: Vec<VsockStatus>,
    /// Where others reach it; empty: it has no fabric.
    #[serde(default)]
    pub listens: String,
    /// Do all hosts prove that they have one secret?
    #[serde(default)]
    pub sealed: bool,
    /// Other hosts.
    #[serde(default)]
    pub hosts: Vec<HostStatus>,
}

/// The state of another host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub at: String,
    /// `up`: frames go there and come from there; `down`.
    pub state: String,
    /// Why it is down, or was the last time.
    pub trouble: Option<String>,
    /// Connections that were made with it.
    pub connections: u64,
    /// Segments that both hosts have.
    pub keys: Vec<u32>,
    /// Frames that it sent here, and their bytes.
    pub sent_frames: u64,
    /// See above.
    pub sent_bytes: u64,
    /// Frames that it was given, and their bytes.
    pub received_frames: u64,
    /// See above.
    pub received_bytes: u64,
    /// Those of them that it was given from where they lay, without a copy.
    #[serde(default)]
    pub in_place_frames: u64,
    /// Messages of this connection in which it sent them, and was given them.
    pub sent_messages: u64,
    /// See above.
    pub received_messages: u64,
    /// Frames of it that were dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Frames for it that were dropped, by reason.
    pub missed: BTreeMap<String, u64>,
    /// Frames of it that went to all of a segment.
    pub flooded: u64,
    /// Addresses behind it that were not learned.
    pub unlearned: u64,
}

/// The state of a device for sockets between machines.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VsockStatus {
    /// Its name.
    pub name: String,
    /// The machine's context id.
    pub cid: u32,
    /// Who reach each other.
    pub key: u32,
    /// Where front ends connect, and programs of the host.
    pub at: String,
    /// See above; empty: nowhere.
    pub host: String,
    /// Does its guest serve its queues?
    pub up: bool,
    /// Why not, or why its last front end was let go.
    pub trouble: Option<String>,
    /// Connections now.
    pub connections: u64,
    /// Bytes that its guest sent, and was given.
    pub sent_bytes: u64,
    /// See above.
    pub received_bytes: u64,
    /// Connections that it asked for in vain.
    pub refused: u64,
    /// Connections that were reset: it broke a rule, or too much waited for it.
    pub reset: u64,
    /// Packets of it that were none, or named another sender.
    pub bad: u64,
}

/// The state of one port.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PortStatus {
    /// Its name.
    pub name: String,
    /// Its segment.
    pub key: u32,
    /// Where front ends connect, or the tap device.
    pub at: String,
    /// Addresses of IP that are its machine's by the configuration; networks are not among them.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// `waiting`: for a front end. `connected`: one is there, whose guest has set up no queues.
    /// `up`: frames go in and out. `broken`: a guest broke a rule, and is served no further.
    pub state: String,
    /// Why it is broken, or why its last front end was let go.
    pub trouble: Option<String>,
    /// Front ends that have connected.
    pub connections: u64,
    /// Pairs of queues that carry frames.
    pub pairs: usize,
    /// The MTU that the front end named; 0 if it did not.
    pub mtu: u16,
    /// What was agreed on, by the names of virtio.
    pub offloads: Vec<String>,
    /// Frames that the guest sent, and their bytes.
    pub sent_frames: u64,
    /// See above.
    pub sent_bytes: u64,
    /// Frames that it was given, and their bytes.
    pub received_frames: u64,
    /// See above.
    pub received_bytes: u64,
    /// Frames of it that were dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Frames for it that were dropped, by reason.
    pub missed: BTreeMap<String, u64>,
    /// Frames of it that went to all of its segment.
    pub flooded: u64,
    /// Addresses of it that were not learned.
    pub unlearned: u64,
    /// Large segments that were cut for it.
    pub cut: u64,
    /// Looks at its queues that found something: how many frames came at once.
    #[serde(default)]
    pub bursts: u64,
    /// Kicks that were heard of it.
    pub kicks: u64,
    /// Interrupts that it was given.
    pub interrupts: u64,
}

/// An address in the table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Address {
    /// The segment.
    pub key: u32,
    /// The address.
    pub mac: String,
    /// The port behind which it is; `@NAME`: the host.
    pub port: String,
    /// Seconds since it was heard; `None`: given by the configuration.
    pub age: Option<u32>,
}

const OFFLOADS: [(&str, u64); 9] = [
    ("csum", features::CSUM),
    ("guest_csum", features::GUEST_CSUM),
    ("tso4", features::HOST_TSO4),
    ("guest_tso4", features::GUEST_TSO4),
    ("tso6", features::HOST_TSO6),
    ("guest_tso6", features::GUEST_TSO6),
    ("mrg_rxbuf", features::MRG_RXBUF),
    ("indirect_desc", features::INDIRECT_DESC),
    ("event_idx", features::EVENT_IDX),
];

/// What was dropped, by reason.
fn reasons(of: &[u64; REASONS]) -> BTreeMap<String, u64> {
    Counters::reasons(of).map(|(name, count)| (name.to_owned(), count)).collect()
}

fn port(port: &Port) -> PortStatus {
    let broken = port.device().is_some_and(|one| one.queues.iter().any(|one| one.broken.is_some()));
    let connected = matches!(&port.link, Link::Guest(seat) if seat.peer.is_some());
    let state = match (broken, port.is_up(), connected) {
        (true, _, _) => "broken",
        (_, true, _) => "up",
        (_, _, true) => "connected",
        _ => "waiting",
    };
    let agreed = port.device().map_or(0, crate::vhost::Device::features);
    let socket = port.config.socket.as_ref().map(|path| path.display().to_string());
    let count = &port.counters;
    let offloads = OFFLOADS.iter().filter(|(_, bit)| agreed & bit != 0);
    PortStatus {
        name: port.config.name.clone(),
        key: port.config.key,
        addresses: port.config.filter.addresses.iter().filter_map(Network::single).collect(),
        at: socket.or_else(|| port.config.tap.clone()).unwrap_or_default(),
        state: state.into(),
        trouble: port.trouble.clone(),
        connections: port.connections,
        pairs: port.receives.len(),
        mtu: port.device().map_or(0, |device| device.mtu),
        offloads: offloads.map(|(name, _)| (*name).to_owned()).collect(),
        sent_frames: count.sent_frames,
        sent_bytes: count.sent_bytes,
        received_frames: count.received_frames,
        received_bytes: count.received_bytes,
        dropped: reasons(&count.dropped),
        missed: reasons(&count.missed),
        flooded: count.flooded,
        unlearned: count.unlearned,
        cut: count.cut,
        kicks: count.kicks,
        bursts: count.bursts,
        interrupts: count.interrupts,
    }
}

fn vsock((config, shown): &(VsockConfig, Arc<Shown>)) -> VsockStatus {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let host = config.host.as_ref().map(|path| path.display().to_string());
    VsockStatus {
        name: config.name.clone(),
        cid: config.cid,
        key: config.key,
        at: config.socket.display().to_string(),
        host: host.unwrap_or_default(),
        up: shown.up.load(Ordering::Relaxed),
        trouble: shown.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        connections: count(&shown.connections),
        sent_bytes: count(&shown.sent),
        received_bytes: count(&shown.received),
        refused: count(&shown.refused),
        reset: count(&shown.reset),
        bad: count(&shown.bad),
    }
}

fn host(host: &Host) -> HostStatus {
    let (count, link) = (&host.counters, host.link.as_ref());
    HostStatus {
        name: host.config.name.clone(),
        at: host.config.address.to_string(),
        state: if link.is_some() { "up" } else { "down" }.into(),
        trouble: host.trouble.clone(),
        connections: host.connections,
        keys: host.keys.clone(),
        sent_frames: count.sent_frames,
        sent_bytes: count.sent_bytes,
        received_frames: count.received_frames,
        received_bytes: count.received_bytes,
        in_place_frames: count.in_place,
        sent_messages: link.map_or(0, |link| link.received),
        received_messages: link.map_or(0, |link| link.sent),
        dropped: reasons(&count.dropped),
        missed: reasons(&count.missed),
        flooded: count.flooded,
        unlearned: count.unlearned,
    }
}

/// The state as JSON.
#[must_use]
pub fn status(switch: &Switch) -> String {
    let (clock, fabric) = (switch.clock, switch.hosts.config.as_ref());
    let status = Status {
        format: 1,
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        seconds: clock.now.saturating_duration_since(clock.began).as_secs_f64(),
        addresses: switch.fdb.iter().count(),
        ports: switch.ports().map(port).collect(),
        vsock: switch.vsock.iter().map(vsock).collect(),
        listens: fabric.map(|fabric| fabric.listen.to_string()).unwrap_or_default(),
        sealed: fabric.is_some_and(|fabric| fabric.secret.is_some()),
        hosts: switch.hosts.all.iter().map(host).collect(),
    };
    serde_json::to_string(&status).unwrap_or_default()
}

/// The table as JSON, by segment and address.
#[must_use]
pub fn fdb(switch: &Switch) -> String {
    let now = switch.clock.seconds;
    let name = |index| match hosts::place(index).and_then(|place| switch.hosts.all.get(place)) {
        Some(host) => format!("@{}", host.config.name),
        None => switch.port(index).map(|port| port.config.name.clone()).unwrap_or_default(),
    };
    let mut entries: Vec<_> = switch.fdb.iter().collect();
    entries.sort_unstable_by_key(|&(key, mac, _)| (key, mac));
    let live = entries.into_iter().filter(|(_, _, entry)| {
        entry.fixed || now.saturating_sub(entry.heard) <= crate::fdb::AGEING
    });
    let table: Vec<Address> = live
        .map(|(key, mac, entry)| Address {
            key,
            mac: show(mac),
            port: name(entry.port),
            age: (!entry.fixed).then(|| now.saturating_sub(entry.heard)),
        })
        .collect();
    serde_json::to_string(&table).unwrap_or_default()
}
