//! One segment as the daemon has it: memory, doorbells, and who is in which slot.

use crate::config::SegmentConfig;
use crate::keep::{Name, Store};
use crate::look::Seen;
use crate::memory;
use anyhow::Result;
use ginnel_daemon::log;
use ginnel_ivshmem::{credentials::Credentials, doorbell, outbox::Outbox};
use ginnel_region::{Geometry, PeerTable, Presence, VERSION};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

/// Version of the memory's layout where the release that kept it noted none.
const UNRECORDED: u32 = 2;

/// How many doorbells are renewed in one go: all have to be told to the store, and a machine that
/// joins meanwhile waits behind them.
const RENEWED_AT_ONCE: usize = 32;

/// Descriptors of earlier instances that nobody has taken up yet.
pub type Kept = BTreeMap<Name, OwnedFd>;

/// Who is in a slot.
#[derive(Debug, Clone)]
pub struct Occupant {
    /// Who connected.
    pub credentials: Credentials,
    /// When, or when this instance took it over.
    pub since: SystemTime,
}

/// A segment that is served.
pub struct Segment {
    /// Its name.
    pub name: String,
    /// Its configuration; size, slots and vectors as they really are.
    pub config: SegmentConfig,
    /// The memory.
    pub memory: Arc<OwnedFd>,
    table: PeerTable,
    /// By peer (0 is the host), then by vector. They stay the same whoever is in the slot, and all
    /// peers get all of them when they join: nobody need ever be told that another came or left.
    bells: Vec<Vec<Arc<OwnedFd>>>,
    /// Who is in which slot. A slot is a peer's id, for ever: QEMU does not survive that an id
    /// changes hands.
    pub occupants: BTreeMap<u16, Occupant>,
    /// The last look at its connections.
    pub seen: Seen,
    /// Slots whose doorbells a machine was given.
    used: BTreeSet<u16>,
    /// What is said of each peer in the segment. This copy counts: the one in the segment can be
    /// written by anybody.
    presences: BTreeMap<u16, Presence>,
}

/// Says what a segment with machines attached keeps, though this release or the configuration would
/// have it otherwise.
fn say_kept(name: &str, version: u32, geometry: Option<(u64, u16, u16)>) {
    if version != VERSION {
        log!(
            Warning,
            "layout_kept",
            segment = name,
            version = version,
            ours = VERSION,
            why = "virtual machines are attached to it, made by another release; programs of this one stay on TCP until ginneld starts with none of them"
        );
    }
    if let Some((size, slots, vectors)) = geometry {
        log!(
            Warning,
            "geometry_kept",
            segment = name,
            size = size,
            slots = slots,
            vectors = vectors,
            why = "virtual machines are attached; the new configuration holds when ginneld starts with none of them"
        );
    }
}

impl Segment {
    /// Takes over what an earlier instance had kept of this segment, and makes the rest.
    ///
    /// # Errors
    /// What failed.
    pub fn new(
        name: &str,
        config: &SegmentConfig,
        kept: &mut Kept,
        store: &mut Store,
    ) -> Result<Self> {
        let mut config = config.clone();
        let attached =
            kept.keys().any(|key| matches!(key, Name::Connection(segment, _) if segment == name));
        let memory = Self::take_memory(name, &mut config, attached, kept, store)?;
        let table = PeerTable::map(std::os::fd::AsFd::as_fd(&memory))?;
        let mut bells = Vec::new();
        for peer in 0..=config.machines {
            let mut vectors = Vec::new();
            for vector in 0..config.vectors {
                let key = Name::Bell(name.to_owned(), peer, vector);
                let bell = match kept.remove(&key) {
                    Some(bell) => Arc::new(bell),
                    None => {
                        let bell = Arc::new(doorbell::new()?);
                        store.keep(&key, &bell);
                        bell
                    }
                };
                vectors.push(bell);
            }
            bells.push(vectors);
        }
        table.set_geometry(Geometry { machines: config.machines, vectors: config.vectors })?;
        // The generations alone come from what peers can write. They are hints wherever they are
        // read, and only count on from here.
        let presences = (0..=config.machines)
            .map(|peer| (peer, Presence { attached: false, ..table.presence(peer) }))
            .collect();
        Ok(Self {
            name: name.to_owned(),
            config,
            memory,
            table,
            bells,
            occupants: BTreeMap::new(),
            seen: Seen::default(),
            used: BTreeSet::new(),
            presences,
        })
    }

    fn take_memory(
        name: &str,
        config: &mut SegmentConfig,
        attached: bool,
        kept: &mut Kept,
        store: &mut Store,
    ) -> Result<Arc<OwnedFd>> {
        let key = kept
            .keys()
            .find(|key| matches!(key, Name::Memory(segment, _) if segment == name))
            .cloned();
        if let Some((key, memory)) =
            key.and_then(|key| kept.remove(&key).map(|memory| (key, memory)))
        {
            let version =
                if let Name::Memory(_, Some(version)) = key { version } else { UNRECORDED };
            // What machines have mapped stays as it is, whatever the configuration says by now.
            let bells = || {
                kept.keys().filter_map(|key| {
                    if let Name::Bell(segment, peer, vector) = key {
                        (segment == name).then_some((*peer, *vector))
                    } else {
                        None
                    }
                })
            };
            let (machines, vectors) =
                (bells().map(|bell| bell.0).max(), bells().map(|bell| bell.1 + 1).max());
            match (memory::adopt(&memory), machines, vectors) {
                (Ok(size), Some(machines), Some(vectors)) => {
                    let configured =
                        (size, machines, vectors) == (config.size, config.machines, config.vectors);
                    let same = configured && version == VERSION;
                    if same || attached {
                        say_kept(name, version, (!configured).then_some((size, machines, vectors)));
                        (config.size, config.machines, config.vectors) = (size, machines, vectors);
                        return Ok(Arc::new(memory));
                    }
                    log!(
                        Info,
                        "memory_replaced",
                        segment = name,
                        why = "size, slots, vectors or the release were changed and no machine is attached"
                    );
                }
                (Err(error), ..) => {
                    log!(Error, "kept_memory_unusable", segment = name, why = format!("{error:#}"))
                }
                _ => log!(
                    Error,
                    "kept_memory_unusable",
                    segment = name,
                    why = "no doorbells were kept with it"
                ),
            }
            let stale: Vec<Name> = kept
                .keys()
                .filter(|key| matches!(key, Name::Bell(segment, ..) if segment == name))
                .cloned()
                .collect();
            for key in stale.iter().chain([&key]) {
                kept.remove(key);
                store.forget(key);
            }
        }
        let memory = Arc::new(memory::create(name, config)?);
        store.keep(&Name::Memory(name.to_owned(), Some(VERSION)), &memory);
        Ok(memory)
    }

    /// May these join as `peer`?
    #[must_use]
    pub fn admits(&self, peer: u16, who: &Credentials) -> bool {
        let groups: Vec<u32> = std::iter::once(who.gid).chain(who.groups.iter().copied()).collect();
        self.config.joiners(peer).admits(who.uid, &groups)
    }

    /// A doorbell, if there is one.
    #[must_use]
    pub fn bell(&self, peer: u16, vector: u16) -> Option<&Arc<OwnedFd>> {
        self.bells.get(usize::from(peer))?.get(usize::from(vector))
    }

    /// All doorbells of a peer, vector 0 first.
    #[must_use]
    pub fn bells(&self, peer: u16) -> &[Arc<OwnedFd>] {
        self.bells.get(usize::from(peer)).map_or(&[], Vec::as_slice)
    }

    /// Makes a slot's doorbells as good as new for the machine that comes into it: what was rung
    /// for an earlier one does not reach it.
    pub fn silence(&self, peer: u16) {
        for bell in self.bells(peer) {
            let _ = doorbell::drain(bell);
        }
    }

    /// No machine is attached: gives new doorbells to every slot that had one, as those who left
    /// may have kept the old ones, and could read what the next machine is rung for. While anybody
    /// is attached that cannot be done: QEMU takes no second doorbell for a slot.
    pub fn renew_bells(&mut self, store: &mut Store) {
        let at_once = RENEWED_AT_ONCE / usize::from(self.config.vectors).max(1);
        for peer in self.used.iter().copied().take(at_once).collect::<Vec<_>>() {
            self.used.remove(&peer);
            let Some(bells) = self.bells.get_mut(usize::from(peer)) else { continue };
            for (vector, bell) in (0..).zip(bells) {
                // Where there is no descriptor to be had, the old one stays.
                let Ok(new) = doorbell::new() else { continue };
                *bell = Arc::new(new);
                let key = Name::Bell(self.name.clone(), peer, vector);
                store.forget(&key);
                store.keep(&key, bell);
            }
        }
    }

    /// What the machine in slot `peer` is sent: every slot's doorbells, whether anybody is in it or
    /// not, so that nobody need be told later.
    #[must_use]
    pub fn welcome(&self, peer: u16) -> Outbox {
        let others = (0..=self.config.machines)
            .filter(|&other| other != peer)
            .map(|other| (other, self.bells(other)));
        Outbox::welcome(peer, &self.memory, others, self.bells(peer))
    }

    /// Notes that a peer came or left, here and in the segment, where it is a hint for the others.
    /// For the host, 0, one process is one life.
    pub fn note(&mut self, peer: u16, attached: bool, new_life: bool) {
        if peer != 0 && attached {
            self.used.insert(peer);
        }
        let presence = self.presences.entry(peer).or_default();
        presence.attached = attached;
        if new_life {
            presence.generation = presence.generation.wrapping_add(1) & (u64::MAX >> 1);
        }
        if let Err(error) = self.table.set(peer, *presence) {
            log!(Error, "peer_table_unwritable", segment = self.name, slot = peer, why = error);
        }
    }

    /// What is said of a peer.
    #[must_use]
    pub fn presence(&self, peer: u16) -> Presence {
        self.presences.get(&peer).copied().unwrap_or_default()
    }
}
