//! What a script is about: connections, pipes, sets, and what is registered there.

use super::{End, Generator, Owner, Registration};

impl Generator {
    pub(super) fn begin(&mut self) {
        let room = self.random.weigh(&[(2, 2000), (1, 20000)]);
        self.steps.push(format!("room {room}"));
        for _ in 0..self.random.weigh(&[(3, 1), (5, 2), (3, 3), (1, 5)]) {
            self.connection();
        }
        for _ in 0..self.random.weigh(&[(4, 0), (4, 1), (1, 2)]) {
            self.pipe();
        }
        if self.random.chance(20) {
            let slot = self.slot();
            self.steps.push(format!("event {slot}"));
            self.ends.push(End {
                slot,
                owner: Owner::First,
                reads: true,
                writes: true,
                socket: false,
                listens: false,
            });
        }
        if self.random.chance(25) {
            let slot = self.slot();
            self.steps.push(format!("listen {slot}"));
            self.ends.push(End {
                slot,
                owner: Owner::First,
                reads: true,
                writes: false,
                socket: false,
                listens: true,
            });
        }
        let apart = self.random.chance(25) && !self.between;
        if apart {
            self.apart();
        }
        self.sets_of(Owner::First);
        if apart || self.between {
            self.sets_of(Owner::Child);
        }
    }

    pub(super) fn connection(&mut self) {
        let (a, b) = (self.slot(), self.slot());
        let how = self.random.weigh(&[(16, "both"), (2, "one"), (2, "cold")]);
        self.steps.push(format!("tcp {a} {b} {how}"));
        let other = if self.between { Owner::Child } else { Owner::First };
        for (slot, owner) in [(a, Owner::First), (b, other)] {
            self.ends.push(End {
                slot,
                owner,
                reads: true,
                writes: true,
                socket: true,
                listens: false,
            });
            if self.random.chance(60) {
                let who = if owner == Owner::Child { "B " } else { "" };
                self.steps.push(format!("{who}opt {slot} NONBLOCK 1"));
            }
        }
    }

    pub(super) fn pipe(&mut self) {
        let (r, w) = (self.slot(), self.slot());
        self.steps.push(format!("pipe {r} {w}"));
        let end = End {
            slot: r,
            owner: Owner::First,
            reads: true,
            writes: false,
            socket: false,
            listens: false,
        };
        self.ends.push(end);
        self.ends.push(End { slot: w, reads: false, writes: true, ..end });
    }

    /// One end of each connection and pipe goes to a child, and stays open there alone.
    pub(super) fn apart(&mut self) {
        self.steps.push("fork".to_owned());
        self.forked = true;
        let mut ends = std::mem::take(&mut self.ends);
        for (i, end) in ends.iter_mut().enumerate() {
            let child = i % 2 == 1 && !end.listens;
            end.owner = if child { Owner::Child } else { Owner::First };
            let other = if child { "" } else { "B " };
            self.steps.push(format!("{other}close {}", end.slot));
        }
        self.ends = ends;
    }

    pub(super) fn sets_of(&mut self, owner: Owner) {
        for _ in 0..self.random.weigh(&[(5, 1), (3, 2), (2, 3)]) {
            let set = self.slot();
            self.line(owner, &format!("epoll {set}"));
            // Flat or nested: a set may be registered in one that is there already.
            let outer: Vec<u64> = self.sets.iter().filter(|s| s.1 == owner).map(|s| s.0).collect();
            self.sets.push((set, owner));
            let nests = self.random.chance(70);
            if let (true, Some(outer)) = (nests, self.random.pick(&outer)) {
                self.add(owner, outer, set, true);
            }
        }
        let ends: Vec<End> = self.ends.iter().copied().filter(|end| end.owner == owner).collect();
        for end in ends {
            for (set, _) in self.sets.clone().into_iter().filter(|s| s.1 == owner) {
                if self.random.chance(55) {
                    self.add(owner, set, end.slot, !end.writes);
                }
            }
        }
    }

    pub(super) fn add(&mut self, owner: Owner, set: u64, slot: u64, only_in: bool) {
        let events = self.events(only_in, true);
        let data = self.data(slot);
        self.line(owner, &format!("add {set} {slot} {events} {data}"));
        self.registered.push(Registration { set, slot, owner });
    }

    pub(super) fn data(&mut self, slot: u64) -> u64 {
        if self.random.chance(self.same_data) { 7 } else { 100 + slot }
    }

    pub(super) fn events(&mut self, only_in: bool, first: bool) -> String {
        let asked = [
            (10, "IN"),
            (3, "IN|RDHUP"),
            (6, "IN|OUT"),
            (3, "IN|OUT|RDHUP"),
            (2, "OUT"),
            (1, "RDHUP"),
            (1, "IN|PRI"),
        ];
        let mut events =
            if only_in { "IN".to_owned() } else { self.random.weigh(&asked).to_owned() };
        if self.random.chance(self.level) {
            return events;
        }
        let how = self.random.weigh(&[
            (5, "|ET"),
            (4, "|ONESHOT"),
            (1, "|ET|ONESHOT"),
            (u64::from(first), "|EXCLUSIVE"),
        ]);
        if self.fills && how.contains("ET") {
            if only_in {
                return events;
            }
            self.random.weigh(&[(3, "IN"), (2, "OUT"), (1, "RDHUP")]).clone_into(&mut events);
        }
        events.push_str(how);
        events
    }
}
