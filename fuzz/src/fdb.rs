//! `ginnel-switch`'s forwarding table, beside a list that is looked through each time.

use crate::Bytes;
use ginnel_switch::fdb::{AGEING, Fdb, Learned};
use ginnel_switch::hosts::FIRST;
use ginnel_switch::wire::Mac;
use std::collections::{HashMap, HashSet};

const KEYS: u64 = 2;
const MACS: u64 = 6;
/// Ports, and other hosts.
const PORTS: [u32; 5] = [0, 1, 2, FIRST, FIRST + 1];

/// An address that was learned.
#[derive(Debug, Clone, Copy)]
struct Known {
    place: (u32, Mac),
    port: u32,
    heard: u32,
}

impl Known {
    fn lives(&self, now: u32) -> bool {
        now - self.heard <= AGEING
    }
}

/// What was learned, what the configuration gives, and where machines are.
#[derive(Default)]
struct List {
    learned: Vec<Known>,
    homes: HashMap<(u32, Mac), u32>,
    inhabited: HashSet<u32>,
}

impl List {
    fn known(&mut self, place: (u32, Mac)) -> Option<&mut Known> {
        self.learned.iter_mut().find(|one| one.place == place)
    }

    fn find(&mut self, place: (u32, Mac), now: u32) -> Option<u32> {
        let learned = self.known(place).filter(|one| one.lives(now)).map(|one| one.port);
        learned.or_else(|| self.homes.get(&place).copied())
    }

    fn may_have(&self, port: u32, home: u32) -> bool {
        port >= FIRST && !self.inhabited.contains(&home)
    }

    fn forget(&mut self, place: (u32, Mac)) {
        self.learned.retain(|one| one.place != place);
    }

    fn fix(&mut self, place: (u32, Mac), port: u32) {
        self.homes.insert(place, port);
        let other = self.known(place).map(|one| one.port);
        if other.is_some_and(|other| !self.may_have(other, port)) {
            self.forget(place);
        }
    }

    fn set_inhabited(&mut self, port: u32, is: bool) {
        if !is {
            self.inhabited.remove(&port);
        } else if self.inhabited.insert(port) {
            let homes = &self.homes;
            self.learned.retain(|one| homes.get(&one.place) != Some(&port));
        }
    }

    fn learn(&mut self, one: Known, limit: usize) -> Learned {
        let home = self.homes.get(&one.place).copied();
        match self.known(one.place) {
            Some(old) if old.port == one.port => {
                old.heard = one.heard;
                return Learned::Known;
            }
            None if home == Some(one.port) => return Learned::Known,
            _ => {}
        }
        if home == Some(one.port) {
            self.forget(one.place);
            return Learned::New;
        }
        if home.is_some_and(|home| !self.may_have(one.port, home)) {
            return Learned::Taken;
        }
        let full = |list: &Self| list.learned.iter().filter(|old| old.port == one.port).count();
        if full(self) >= limit {
            self.learned.retain(|old| old.lives(one.heard));
        }
        if full(self) >= limit {
            return Learned::TooMany;
        }
        self.forget(one.place);
        self.learned.push(one);
        Learned::New
    }
}

fn mac(n: u64) -> Mac {
    [2, 0, 0, 0, 0, n as u8]
}

/// Addresses are learned, move, age, are given and taken back; machines come to ports and go. Each
/// address is where it should be, no port has more than it may, and whoever has looked one up
/// notices when that holds no more.
///
/// # Panics
/// When that is not so.
pub fn table(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let (mut fdb, mut list, mut now) = (Fdb::default(), List::default(), 0);
    while !bytes.is_empty() {
        let (key, mac_of) = (bytes.below(KEYS) as u32, mac(bytes.below(MACS)));
        let port = PORTS[usize::from(bytes.byte()) % PORTS.len()];
        let all = || (0..KEYS as u32).flat_map(|key| (0..MACS).map(move |n| (key, mac(n))));
        let before: Vec<_> = all().map(|place| list.find(place, now)).collect();
        let generation = fdb.generation();
        match bytes.byte() % 16 {
            0 if port < FIRST => {
                fdb.fix(key, mac_of, port);
                list.fix((key, mac_of), port);
            }
            1 if bytes.one_in(4) => {
                fdb.unfix();
                list.homes.clear();
            }
            2 => {
                fdb.forget(port);
                list.learned.retain(|one| one.port != port);
            }
            3 => {
                let ports = HashSet::from([port, PORTS[usize::from(bytes.byte()) % PORTS.len()]]);
                fdb.forget_all(&ports);
                list.learned.retain(|one| !ports.contains(&one.port));
            }
            4 => {
                fdb.age(now);
                list.learned.retain(|one| one.lives(now));
            }
            5 | 6 if port < FIRST => {
                let is = bytes.one_in(2);
                fdb.set_inhabited(port, is);
                list.set_inhabited(port, is);
            }
            _ => {
                let limit = bytes.below(4) as u32;
                let one = Known { place: (key, mac_of), port, heard: now };
                let learned = fdb.learn(key, mac_of, port, now, limit);
                assert_eq!(learned, list.learn(one, limit as usize), "{one:?}, of {limit}");
            }
        }
        let mut moved = false;
        for (place, was) in all().zip(before) {
            let is = list.find(place, now);
            assert_eq!(fdb.find(place.0, place.1, now), is, "{place:x?}");
            moved |= was != is;
        }
        assert!(!moved || fdb.generation() != generation, "nobody notices that one has moved");
        now += [0, 0, 1, 40, AGEING, AGEING + 1][usize::from(bytes.byte() % 6)];
    }
}
