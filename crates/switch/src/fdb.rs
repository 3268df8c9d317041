//! The forwarding table: behind which port an address of a segment is.
//!
//! An entry is learned from the sender's address of a frame, within the segment of the port that it
//! came in by, and forgotten 300 s after the last (IEEE 802.1Q, 8.8.3). A port has a limit, so that
//! none can fill the table; what is above it is not learned, and is reached by flooding. Entries
//! that the configuration gives (`mac =`) never age, and no other port takes them. Another host may
//! have them while there is no machine at their port: it was moved there, where a port has the same
//! `mac`. Once one is at the port they are that port's again.
//!
//! The map's hash is keyed by a secret of this process (SipHash): no guest can choose addresses
//! that collide.

use crate::hosts::FIRST;
use crate::wire::Mac;
use std::collections::{HashMap, HashSet};

/// How long an entry lives, seconds.
pub const AGEING: u32 = 300;

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The port.
    pub port: u32,
    /// When it was last heard, seconds on the switch's clock.
    pub heard: u32,
    /// Given by the configuration.
    pub fixed: bool,
}

/// What became of an address that was to be learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// It is known, and was before.
    Known,
    /// It is new, or has moved here from another port.
    New,
    /// The port has as many as it may.
    TooMany,
    /// It is another port's by configuration.
    Taken,
}

/// The table.
#[derive(Debug, Default)]
pub struct Fdb {
    entries: HashMap<(u32, Mac), Entry>,
    /// Ports whose addresses the configuration gives, and those of them at which a machine is.
    homes: HashMap<(u32, Mac), u32>,
    inhabited: HashSet<u32>,
    /// Entries of each port that were learned.
    counts: Vec<u32>,
    generation: u64,
    /// When it was looked through for what is old, seconds: in the same second nothing more is.
    aged: Option<u32>,
}

impl Fdb {
    /// Changes whenever an address is behind another port than before: what was looked up earlier
    /// holds as long as this is the same.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn count(&mut self, port: u32) -> &mut u32 {
        let index = port as usize;
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        &mut self.counts[index]
    }

    /// Gives a port an address for ever.
    pub fn fix(&mut self, key: u32, mac: Mac, port: u32) {
        self.homes.insert((key, mac), port);
        self.generation += 1;
        let now = self.entries.get(&(key, mac));
        if now.is_none_or(|now| now.fixed || !self.may_have(now.port, port)) {
            self.settle((key, mac), port);
        }
    }

    /// May this port have an address of that one's? A host, while no machine is there.
    fn may_have(&self, port: u32, home: u32) -> bool {
        port >= FIRST && !self.inhabited.contains(&home)
    }

    /// An address is at its port.
    fn settle(&mut self, place: (u32, Mac), port: u32) {
        self.generation += 1;
        let fixed = Entry { port, heard: 0, fixed: true };
        if let Some(old) = self.entries.insert(place, fixed).filter(|old| !old.fixed) {
            *self.count(old.port) -= 1;
        }
    }

    /// Takes every address that was given for ever back. What was looked up earlier does not hold.
    pub fn unfix(&mut self) {
        self.entries.retain(|_, entry| !entry.fixed);
        self.homes.clear();
        self.generation += 1;
    }

    /// There is a machine at a port, or no more.
    pub fn set_inhabited(&mut self, port: u32, is: bool) {
        if !is {
            self.inhabited.remove(&port);
        } else if self.inhabited.insert(port) {
            let own = self.homes.iter().filter(|(_, home)| **home == port);
            for place in own.map(|(&place, _)| place).collect::<Vec<_>>() {
                self.settle(place, port);
            }
        }
    }

    /// Learns that `mac` of segment `key` is behind `port`, which may have `limit` of them.
    pub fn learn(&mut self, key: u32, mac: Mac, port: u32, now: u32, limit: u32) -> Learned {
        if let Some(entry) = self.entries.get_mut(&(key, mac)).filter(|entry| entry.port == port) {
            let was_old = !entry.fixed && now.saturating_sub(entry.heard) > AGEING;
            entry.heard = now;
            // It was unknown, or at its own port.
            self.generation += u64::from(was_old);
            return Learned::Known;
        }
        match self.homes.get(&(key, mac)).copied() {
            Some(home) if home == port => {
                self.settle((key, mac), port);
                return Learned::New;
            }
            Some(home) if !self.may_have(port, home) => return Learned::Taken,
            _ => {}
        }
        if *self.count(port) >= limit {
            self.age(now);
            if *self.count(port) >= limit {
                return Learned::TooMany;
            }
        }
        *self.count(port) += 1;
        let new = Entry { port, heard: now, fixed: false };
        if let Some(old) = self.entries.insert((key, mac), new).filter(|old| !old.fixed) {
            *self.count(old.port) -= 1;
        }
        self.generation += 1;
        Learned::New
    }

    /// The port behind which `mac` is.
    #[must_use]
    pub fn find(&self, key: u32, mac: Mac, now: u32) -> Option<u32> {
        let entry = self.entries.get(&(key, mac))?;
        if entry.fixed || now.saturating_sub(entry.heard) <= AGEING {
            return Some(entry.port);
        }
        self.homes.get(&(key, mac)).copied()
    }

    /// Forgets what was not heard for long.
    pub fn age(&mut self, now: u32) {
        // A port that has all that it may asks for this with each frame.
        if self.aged.replace(now) == Some(now) {
            return;
        }
        self.retain(|entry| entry.fixed || now.saturating_sub(entry.heard) <= AGEING);
    }

    /// Forgets what was learned of a port: its guest is gone.
    pub fn forget(&mut self, port: u32) {
        if *self.count(port) == 0 {
            return;
        }
        self.retain(|entry| entry.fixed || entry.port != port);
    }

    /// The same of several ports.
    pub fn forget_all(&mut self, ports: &HashSet<u32>) {
        if !ports.is_empty() {
            self.retain(|entry| entry.fixed || !ports.contains(&entry.port));
        }
    }

    /// Keeps these. An address that is a port's goes back there.
    fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
        let (counts, homes, mut any) = (&mut self.counts, &self.homes, false);
        self.entries.retain(|place, entry| {
            if keep(entry) {
                return true;
            }
            any = true;
            if let Some(count) = counts.get_mut(entry.port as usize) {
                *count -= 1;
            }
            let home = homes.get(place).copied();
            *entry = Entry { port: home.unwrap_or(entry.port), heard: 0, fixed: true };
            home.is_some()
        });
        self.generation += u64::from(any);
    }

    /// All entries: segment, address, entry.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Mac, Entry)> + '_ {
        self.entries.iter().map(|(&(key, mac), &entry)| (key, mac, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];

    #[test]
    fn segments_are_apart_and_addresses_move_and_age() {
        let mut fdb = Fdb::default();
        assert_eq!(fdb.learn(1, A, 0, 10, 8), Learned::New);
        assert_eq!(fdb.learn(1, A, 0, 11, 8), Learned::Known);
        assert_eq!((fdb.find(1, A, 11), fdb.find(2, A, 11)), (Some(0), None));
        let before = fdb.generation();
        assert_eq!(fdb.learn(1, A, 3, 12, 8), Learned::New);
        assert_ne!(fdb.generation(), before, "whoever looked it up earlier looks again");
        assert_eq!(fdb.find(1, A, 12 + AGEING), Some(3));
        assert_eq!(fdb.find(1, A, 13 + AGEING), None);
        fdb.age(13 + AGEING);
        assert_eq!(fdb.iter().count(), 0);
        assert_eq!(fdb.counts, [0, 0, 0, 0]);
    }

    #[test]
    fn a_port_has_a_limit_which_the_aged_do_not_count_against() {
        let mut fdb = Fdb::default();
        let mac = |n: u8| [2, 0, 0, 0, 0, n];
        for n in 0..4 {
            assert_eq!(fdb.learn(0, mac(n), 0, 0, 4), Learned::New);
        }
        assert_eq!(fdb.learn(0, mac(4), 0, 1, 4), Learned::TooMany);
        assert_eq!(fdb.learn(0, mac(4), 1, 1, 4), Learned::New, "another port has its own");
        assert_eq!(fdb.learn(0, mac(5), 0, AGEING + 1, 4), Learned::New);
        fdb.forget(0);
        assert_eq!(fdb.find(0, mac(5), AGEING + 1), None);
        assert_eq!(fdb.find(0, mac(4), AGEING + 1), Some(1));
    }

    #[test]
    fn what_the_configuration_gives_is_nobody_elses() {
        let mut fdb = Fdb::default();
        assert_eq!(fdb.learn(0, A, 1, 0, 4), Learned::New);
        fdb.fix(0, A, 0);
        assert_eq!(fdb.counts, [0, 0]);
        assert_eq!(fdb.learn(0, A, 1, 0, 4), Learned::Taken);
        assert_eq!(fdb.learn(0, A, 0, 0, 4), Learned::Known);
        assert_eq!(fdb.learn(0, B, 1, 0, 4), Learned::New);
        fdb.forget(0);
        fdb.age(u32::MAX);
        assert_eq!((fdb.find(0, A, u32::MAX), fdb.find(0, B, u32::MAX)), (Some(0), None));
    }

    #[test]
    fn what_the_configuration_gives_is_another_hosts_while_no_machine_is_there() {
        let (mut fdb, host) = (Fdb::default(), FIRST + 1);
        fdb.fix(0, A, 0);
        fdb.set_inhabited(0, true);
        assert_eq!(fdb.learn(0, A, host, 0, 4), Learned::Taken);
        fdb.set_inhabited(0, false);
        assert_eq!(fdb.learn(0, A, 1, 0, 4), Learned::Taken, "another port of this host");
        assert_eq!(fdb.find(0, A, 0), Some(0), "nobody has said anything");
        assert_eq!(fdb.learn(0, A, host, 0, 4), Learned::New);
        assert_eq!(fdb.learn(0, A, 1, 0, 4), Learned::Taken);
        assert_eq!(fdb.find(0, A, 0), Some(host));
        // Also behind a configuration that is read again; not when the host is gone, or silent.
        fdb.unfix();
        fdb.fix(0, A, 0);
        assert_eq!((fdb.find(0, A, 0), fdb.find(0, A, AGEING + 1)), (Some(host), Some(0)));
        fdb.forget(host);
        assert_eq!(fdb.find(0, A, 0), Some(0));
        assert_eq!(fdb.learn(0, A, host, 0, 4), Learned::New);
        fdb.set_inhabited(0, true);
        assert_eq!((fdb.find(0, A, 0), fdb.counts[host as usize]), (Some(0), 0));
        assert_eq!(fdb.learn(0, A, host, 0, 4), Learned::Taken);
    }
}
