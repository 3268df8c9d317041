//! A connection of the ledger, as it is reported: what carries it, and, where that is TCP, why.

use super::Survey;
use crate::address;
use crate::report::{Carrier, Connection, Holder, Process, Wake};
use ginnel_region::Segment as Region;
use ginnel_region::device::Source;
use ginnel_ring::park::Want;
use ginnel_tcp::layout::{Channel, Direction};
use ginnel_tcp::ledger::{Ledger, flag};
use ginnel_tcp::{Reason, Slot, Stage};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// What stands for the memory that two processes have from the broker, which nobody else can look
/// into.
const PAIR: &str = "(pair)";

impl Survey {
    pub(super) fn connections(
        &self,
        ledger: &Ledger,
        processes: &BTreeMap<u32, Process>,
        names: &HashMap<u64, String>,
    ) -> Vec<Connection> {
        ledger.slots().filter_map(|slot| self.connection(slot, processes, names)).collect()
    }

    /// `None`: it went while it was looked at, or nobody holds it any more.
    fn connection(
        &self,
        slot: &Slot,
        processes: &BTreeMap<u32, Process>,
        names: &HashMap<u64, String>,
    ) -> Option<Connection> {
        let (cookie, generation) = (slot.cookie.load(Acquire), slot.generation.load(Relaxed));
        let holders: Vec<&Process> =
            slot.held_by().filter_map(|process| processes.get(&process)).collect();
        let stage = slot.stage();
        if holders.is_empty() || stage == Stage::Closed {
            return None;
        }
        let active = stage == Stage::Active;
        let carrier = |epoch: u64| {
            if active && epoch & 1 == 1 { Carrier::Ring } else { Carrier::Tcp }
        };
        let (out_carrier, in_carrier) =
            (carrier(slot.tx.epoch.load(Relaxed)), carrier(slot.rx.phase.load(Relaxed)));
        let tuple = slot.tuple();
        let address = |bytes, port| (tuple.local_port != 0).then(|| address::text(bytes, port));
        // Where the path is cut, the next byte goes by TCP.
        let tcp = out_carrier == Carrier::Tcp
            || in_carrier == Carrier::Tcp
            || active && slot.has(flag::CUT);
        let why = if tcp { Some(why(slot, &holders, stage, || self.is_held(slot))) } else { None };
        let connection = Connection {
            cookie,
            generation,
            processes: holders
                .iter()
                .map(|process| Holder { pid: process.pid, name: process.name.clone() })
                .collect(),
            local: address(tuple.local, tuple.local_port),
            remote: address(tuple.remote, tuple.remote_port),
            segment: if slot.has(flag::PAIR) {
                Some(PAIR.into())
            } else {
                names.get(&slot.segment.load(Relaxed)).cloned()
            },
            stage: stage_word(stage),
            out_carrier,
            in_carrier,
            out_tcp: slot.out_tcp.load(Relaxed),
            out_ring: slot.out_ring.load(Relaxed),
            in_tcp: slot.in_tcp.load(Relaxed),
            in_ring: slot.in_ring.load(Relaxed),
            wake: if out_carrier == Carrier::Tcp && in_carrier == Carrier::Tcp {
                Wake::None
            } else {
                self.wake(slot)
            },
            wakes: slot.wakes.load(Relaxed),
            tokens: slot.tokens.load(Relaxed),
            upgrades: slot.upgrades.load(Relaxed),
            downgrades: slot.downgrades.load(Relaxed),
            explanation: why.as_ref().map(|why| why.sentence.clone()),
            reason: why.map(|why| why.word),
        };
        (slot.cookie.load(Acquire) == cookie && slot.generation.load(Relaxed) == generation)
            .then_some(connection)
    }

    /// The segment that a connection is in; not that of a pair, whose other process chooses what
    /// number stands there.
    fn region_of(&self, slot: &Slot) -> Option<&Region> {
        if slot.has(flag::PAIR) {
            return None;
        }
        let id = slot.segment.load(Relaxed);
        self.regions
            .values()
            .filter_map(|(_, region)| region.as_ref().ok())
            .find(|region| region.id() == id)
    }

    /// What this end sends in a channel (0), or what it receives (1).
    fn direction(&self, slot: &Slot, which: u8) -> Option<Direction<'_>> {
        let page = slot.channel.load(Relaxed);
        let region = self.region_of(slot).filter(|region| region.owner(page).is_some())?;
        Some(Channel::at(region, page).direction(which ^ slot.side()))
    }

    /// Does the other end keep what this one sends on TCP?
    fn is_held(&self, slot: &Slot) -> bool {
        self.direction(slot, 0).is_some_and(Direction::asked_back)
    }

    /// By what this end is woken when it sleeps: what it asked for last, else what it would ask
    /// for.
    fn wake(&self, slot: &Slot) -> Wake {
        if slot.has(flag::PAIR) {
            return if slot.has(flag::BY_LINE) { Wake::Line } else { Wake::Token };
        }
        let region = self.region_of(slot);
        let wish =
            self.direction(slot, 1).map(|incoming| Want::of(incoming.want_data().load(Relaxed)));
        let tokens_only = region.is_some_and(Region::tokens_only);
        let device = region.is_some_and(|region| {
            matches!(region.source(), Source::Device { .. } | Source::Host { .. })
        });
        let better = if device { Wake::Doorbell } else { Wake::Fifo };
        match wish {
            Some(Want::Waiter { .. }) => better,
            _ if tokens_only || slot.has(flag::SHARED) || slot.rx.armed.load(Relaxed) != 0 => {
                Wake::Token
            }
            _ => better,
        }
    }
}

/// `NoPeer` as `no_peer`.
pub(super) fn word(reason: Reason) -> String {
    let mut word = String::new();
    for letter in format!("{reason:?}").chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

fn stage_word(stage: Stage) -> &'static str {
    match stage {
        Stage::Candidate => "candidate",
        Stage::Published => "published",
        Stage::Offered => "offered",
        Stage::Settling => "settling",
        Stage::Active => "active",
        Stage::Plain => "plain",
        Stage::Broken => "broken",
        Stage::Closed => "closed",
    }
}

/// Why a connection is on TCP.
struct Why {
    word: String,
    sentence: String,
}

impl Why {
    fn new(word: &str, sentence: &str) -> Self {
        Self { word: word.into(), sentence: sentence.into() }
    }

    fn of(reason: Reason) -> Self {
        Self { word: word(reason), sentence: reason.to_string() }
    }
}

fn why(slot: &Slot, holders: &[&Process], stage: Stage, is_held: impl FnOnce() -> bool) -> Why {
    let reason = slot.reason();
    if reason != Reason::None {
        return Why::of(reason);
    }
    if let Some(process) = holders.iter().find(|process| process.reason.is_some()) {
        let sentence = process.explanation.clone().unwrap_or_default();
        return Why { word: process.reason.clone().unwrap_or_default(), sentence };
    }
    match stage {
        Stage::Candidate => Why::of(Reason::Young),
        Stage::Published => Why::of(Reason::NoPeer),
        Stage::Offered | Stage::Settling => {
            Why::new("settling", "the ends have met and are agreeing on the bytes so far")
        }
        Stage::Active if slot.has(flag::HOLD) => Why::of(Reason::Held),
        Stage::Active if is_held() => Why::of(Reason::Held),
        Stage::Active => Why::new("ready", "moves at the next write"),
        Stage::Broken => Why::of(Reason::Corrupt),
        Stage::Plain | Stage::Closed => Why::new("plain", "stays on TCP"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_node::processes::Processes;
    use ginnel_node::settings::DEFAULT_SEGMENT;
    use ginnel_region::{Config, Owner, Use};
    use ginnel_tcp::attach::LIBRARY;
    use ginnel_tcp::layout::GATE_HOLD;
    use ginnel_tcp::ledger::Tuple;

    #[test]
    fn reasons_become_words() {
        assert_eq!(word(Reason::NoPeer), "no_peer");
        assert_eq!(word(Reason::IoUring), "io_uring");
        assert_eq!(word(Reason::Held), "held");
    }

    /// A ledger with this process in it and one connection, made by hand.
    #[test]
    fn a_connection_is_described() {
        let directory = tempfile::tempdir().expect("a directory");
        let ledger = Ledger::open_or_create(directory.path()).expect("a ledger");
        let processes = Processes::open_or_create(directory.path()).expect("a table");
        let me = processes.enter(LIBRARY, &ledger).expect("room");
        let (slot, _) = ledger.find_or_claim(&processes, 77, me, |_| {}).expect("room");
        let address = |last| std::net::Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped().octets();
        slot.set_tuple(&Tuple {
            label: 0,
            local: address(1),
            local_port: 80,
            remote: address(2),
            remote_port: 4000,
        });
        slot.out_ring.store(5, Relaxed);
        let segment = directory.path().join(DEFAULT_SEGMENT);
        let region = Region::create(&segment, &Config { size: 16 << 20, ..Config::default() })
            .expect("a segment");
        let head = region.claim_head(Owner::new(0, Use::Channel)).expect("room");
        region.clear(head.page());
        let page = region.settle(head).expect("made").page();
        slot.segment.store(region.id(), Relaxed);
        slot.channel.store(page, Relaxed);
        let mut survey = Survey::new(directory.path().to_owned());
        assert!(matches!(survey.region(&segment), Some(Ok(_))));
        let own = Process { pid: 1, name: "server".into(), ..Process::default() };
        let processes = BTreeMap::from([(me, own)]);
        let look = || survey.connection(slot, &processes, &HashMap::new());
        assert!(look().is_none(), "nobody holds it");
        assert!(slot.hold(me));
        let seen = look().expect("held");
        assert_eq!(
            (seen.local.as_deref(), seen.remote.as_deref()),
            (Some("10.0.0.1:80"), Some("10.0.0.2:4000"))
        );
        assert_eq!(
            (seen.reason.as_deref(), seen.wake, seen.stage),
            (Some("young"), Wake::None, "candidate")
        );
        slot.tx.epoch.store(1, Relaxed);
        assert_eq!(look().expect("held").out_carrier, Carrier::Tcp, "not active: the kernel's");
        slot.set_stage(Stage::Active);
        let seen = look().expect("held");
        assert_eq!(
            (seen.out_carrier, seen.in_carrier, seen.reason.as_deref()),
            (Carrier::Ring, Carrier::Tcp, Some("ready"))
        );
        // As the other end asks for TCP: nothing moves at the next write.
        Channel::at(&region, page).direction(0).gate().store(GATE_HOLD, Relaxed);
        assert_eq!(look().expect("held").reason.as_deref(), Some("held"));
        slot.rx.phase.store(3, Relaxed);
        let seen = look().expect("held");
        assert_eq!((seen.in_carrier, seen.reason), (Carrier::Ring, None));
        slot.make_plain(Reason::Urgent);
        assert_eq!(look().expect("held").explanation.as_deref(), Some("urgent data"));
    }
}
