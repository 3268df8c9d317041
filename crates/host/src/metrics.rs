//! What is counted, as Prometheus reads it.

use crate::memory;
use crate::segment::Segment;
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use prometheus_client::registry::{Registry, Unit};

/// One segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Of {
    /// Its name.
    pub segment: String,
}

/// Why joiners are refused.
pub const REFUSALS: [&str; 3] = ["not_allowed", "slot_taken", "no_slot"];
/// Where wake-ups are passed on to.
pub const RELAYS: [&str; 2] = ["to_host", "to_machine"];

/// One segment and something else.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct By {
    /// The segment's name.
    pub segment: String,
    /// One of [`REFUSALS`] or of [`RELAYS`].
    pub kind: &'static str,
}

/// The daemon's metrics.
pub struct Metrics {
    registry: Registry,
    /// Joins, of machines and of processes of the host.
    pub joins: Family<Of, Counter>,
    /// Departures.
    pub leaves: Family<Of, Counter>,
    /// Joins that were refused, by reason.
    pub refused: Family<By, Counter>,
    /// Wake-ups that the daemon passed on between processes of the host and machines, by direction.
    pub relayed: Family<By, Counter>,
    /// Bytes that were carried in rings, as the peers say.
    pub carried: Family<Of, Counter>,
    connections: Family<Of, Gauge>,
    open_bytes: Family<Of, Gauge>,
    objects: Family<Of, Gauge>,
    object_bytes: Family<Of, Gauge>,
    machines: Family<Of, Gauge>,
    processes: Family<Of, Gauge>,
    size: Family<Of, Gauge>,
    resident: Family<Of, Gauge>,
}

impl Metrics {
    /// All zero.
    #[allow(clippy::too_many_lines, reason = "a table: each metric with its words")]
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("ginneld");
        let new = Self {
            joins: Family::default(),
            leaves: Family::default(),
            refused: Family::default(),
            relayed: Family::default(),
            carried: Family::default(),
            connections: Family::default(),
            open_bytes: Family::default(),
            objects: Family::default(),
            object_bytes: Family::default(),
            machines: Family::default(),
            processes: Family::default(),
            size: Family::default(),
            resident: Family::default(),
            registry: Registry::default(),
        };
        registry.register(
            "joins",
            "Virtual machines and host processes that joined",
            new.joins.clone(),
        );
        registry.register(
            "leaves",
            "Virtual machines and host processes that left",
            new.leaves.clone(),
        );
        registry.register("refused_joins", "Joiners that were turned away", new.refused.clone());
        registry.register(
            "relayed_wakeups",
            "Wake-ups passed on between host processes and virtual machines",
            new.relayed.clone(),
        );
        registry.register_with_unit(
            "carried",
            "Bytes that connections carried in rings since the segment was made, as its peers have written there; never goes back, whatever they write",
            Unit::Bytes,
            new.carried.clone(),
        );
        registry.register(
            "connections",
            "Connections that are in the segment now, as its peers have written there",
            new.connections.clone(),
        );
        registry.register_with_unit(
            "open_connections_carried",
            "Bytes that the connections of now have carried in rings, as the peers have written there; goes back as connections end",
            Unit::Bytes,
            new.open_bytes.clone(),
        );
        registry.register(
            "objects",
            "Named objects that are in the segment now, as its peers have written there",
            new.objects.clone(),
        );
        registry.register_with_unit(
            "objects_size",
            "Bytes that those objects have for their users, as the peers have written there",
            Unit::Bytes,
            new.object_bytes.clone(),
        );
        registry.register("machines", "Virtual machines attached", new.machines.clone());
        registry.register("host_processes", "Host processes attached", new.processes.clone());
        registry.register_with_unit(
            "segment_size",
            "Size of the segment",
            Unit::Bytes,
            new.size.clone(),
        );
        registry.register_with_unit(
            "segment_resident",
            "Memory of the segment that is really taken",
            Unit::Bytes,
            new.resident.clone(),
        );
        Self { registry, ..new }
    }

    /// Notes what a look into a segment found.
    pub(crate) fn note(&self, segment: &Segment) {
        let carried = self.carried.get_or_create(&Of { segment: segment.name.clone() });
        // A counter: a peer may write a smaller number, and a connection that was just ending is
        // missing for a moment.
        carried.inc_by(segment.seen.census.carried_ever.saturating_sub(carried.get()));
    }

    /// In OpenMetrics' text format.
    #[must_use]
    pub fn text<'a>(&self, segments: impl Iterator<Item = (&'a Segment, usize)>) -> String {
        for (segment, processes) in segments {
            let of = Of { segment: segment.name.clone() };
            // Zero is told too, from the first reading on.
            let _ = (self.joins.get_or_create(&of), self.leaves.get_or_create(&of));
            for kind in REFUSALS {
                let _ = self.refused.get_or_create(&By { segment: segment.name.clone(), kind });
            }
            for kind in RELAYS {
                let _ = self.relayed.get_or_create(&By { segment: segment.name.clone(), kind });
            }
            let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            self.connections.get_or_create(&of).set(signed(segment.seen.census.connections));
            self.open_bytes.get_or_create(&of).set(signed(segment.seen.census.carried));
            let (objects, bytes) = segment.seen.census.objects;
            self.objects.get_or_create(&of).set(signed(objects));
            self.object_bytes.get_or_create(&of).set(signed(bytes));
            self.machines.get_or_create(&of).set(signed(segment.occupants.len() as u64));
            self.processes.get_or_create(&of).set(signed(processes as u64));
            self.size.get_or_create(&of).set(signed(segment.config.size));
            self.resident.get_or_create(&of).set(signed(memory::resident(&segment.memory)));
        }
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
