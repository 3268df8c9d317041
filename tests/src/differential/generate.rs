//! From a seed to a script: which descriptors there are, who has them, and what is done with them.
//!
//! A script begins with what it is about (connections, pipes, sets and what is registered there),
//! goes on with steps at random, and ends by asking every set and draining every stream, so that
//! what was lost on the way is missed.

use super::random::Random;

/// Who has a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The first process, and each of its threads.
    First,
    /// The child.
    Child,
    /// Both.
    Both,
}

#[derive(Clone, Copy, Debug)]
struct End {
    slot: u64,
    owner: Owner,
    /// What it can do, as the interpreter knows it.
    reads: bool,
    writes: bool,
    socket: bool,
    listens: bool,
}

#[derive(Clone, Copy, Debug)]
struct Registration {
    set: u64,
    slot: u64,
    owner: Owner,
}

struct Generator {
    random: Random,
    steps: Vec<String>,
    next_slot: u64,
    ends: Vec<End>,
    sets: Vec<(u64, Owner)>,
    registered: Vec<Registration>,
    forked: bool,
    threads: bool,
    /// In percent: how often two registrations are given the same data.
    same_data: u64,
    /// In percent: how often a registration is level-triggered and nothing else.
    level: u64,
}

/// The steps of `seed`.
#[must_use]
pub fn steps(seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let threads = random.chance(45);
    let same_data = random.weigh(&[(6, 0), (3, 50), (1, 100)]);
    let level = random.weigh(&[(2, 20), (2, 50), (1, 95)]);
    let mut generator = Generator {
        random,
        steps: Vec::new(),
        next_slot: 0,
        ends: Vec::new(),
        sets: Vec::new(),
        registered: Vec::new(),
        forked: false,
        threads,
        same_data,
        level,
    };
    generator.begin();
    let count = generator.random.within(8, 60);
    for _ in 0..count {
        generator.step();
    }
    generator.end();
    generator.steps
}

impl Generator {
    fn slot(&mut self) -> u64 {
        self.next_slot = (self.next_slot + 1) % 64;
        self.next_slot
    }

    fn line(&mut self, owner: Owner, step: &str) {
        let who = match owner {
            Owner::Child => "B ",
            Owner::Both if self.forked && self.random.chance(40) => "B ",
            _ if self.threads && self.random.chance(15) => self.random.pick(&["T ", "U "]).unwrap_or(""),
            _ => "",
        };
        self.steps.push(format!("{who}{step}"));
    }

    // What there is.

    fn begin(&mut self) {
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
            self.ends.push(End { slot, owner: Owner::First, reads: true, writes: true, socket: false, listens: false });
        }
        if self.random.chance(25) {
            let slot = self.slot();
            self.steps.push(format!("listen {slot}"));
            self.ends.push(End { slot, owner: Owner::First, reads: true, writes: false, socket: false, listens: true });
        }
        let apart = self.random.chance(25);
        if apart {
            self.apart();
        }
        self.sets_of(Owner::First);
        if apart {
            self.sets_of(Owner::Child);
        }
    }

    fn connection(&mut self) {
        let (a, b) = (self.slot(), self.slot());
        let how = self.random.weigh(&[(16, "both"), (2, "one"), (2, "cold")]);
        self.steps.push(format!("tcp {a} {b} {how}"));
        for slot in [a, b] {
            self.ends.push(End { slot, owner: Owner::First, reads: true, writes: true, socket: true, listens: false });
            if self.random.chance(60) {
                self.steps.push(format!("opt {slot} NONBLOCK 1"));
            }
        }
    }

    fn pipe(&mut self) {
        let (r, w) = (self.slot(), self.slot());
        self.steps.push(format!("pipe {r} {w}"));
        let end = End { slot: r, owner: Owner::First, reads: true, writes: false, socket: false, listens: false };
        self.ends.push(end);
        self.ends.push(End { slot: w, reads: false, writes: true, ..end });
    }

    /// One end of each connection and pipe goes to a child, and stays open there alone.
    fn apart(&mut self) {
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

    fn sets_of(&mut self, owner: Owner) {
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

    fn add(&mut self, owner: Owner, set: u64, slot: u64, only_in: bool) {
        let events = self.events(only_in, true);
        let data = self.data(slot);
        self.line(owner, &format!("add {set} {slot} {events} {data}"));
        self.registered.push(Registration { set, slot, owner });
    }

    fn data(&mut self, slot: u64) -> u64 {
        if self.random.chance(self.same_data) { 7 } else { 100 + slot }
    }

    fn events(&mut self, only_in: bool, first: bool) -> String {
        let asked = [(10, "IN"), (3, "IN|RDHUP"), (6, "IN|OUT"), (3, "IN|OUT|RDHUP"), (2, "OUT"), (1, "RDHUP"), (1, "IN|PRI")];
        let mut events = if only_in { "IN".to_owned() } else { self.random.weigh(&asked).to_owned() };
        if self.random.chance(self.level) {
            return events;
        }
        let how = self.random.weigh(&[(5, "|ET"), (4, "|ONESHOT"), (1, "|ET|ONESHOT"), (u64::from(first), "|EXCLUSIVE")]);
        events.push_str(how);
        events
    }

    // What is done.

    fn any(&mut self, which: impl Fn(&End) -> bool) -> Option<End> {
        let ends: Vec<End> = self.ends.iter().copied().filter(which).collect();
        self.random.pick(&ends)
    }

    fn step(&mut self) {
        let kinds: [(u64, fn(&mut Self) -> Option<()>); 17] = [
            (24, Self::write),
            (14, Self::read),
            (5, Self::drain),
            (30, Self::wait),
            (5, Self::poll),
            (3, Self::select),
            (9, Self::modify),
            (2, Self::delete),
            (3, Self::register),
            (4, Self::shut),
            (3, Self::close),
            (3, Self::duplicate),
            (2, Self::fill),
            (4, Self::ask),
            (3, Self::option),
            (2, Self::come),
            (1, Self::process),
        ];
        let kind = self.random.weigh(&kinds);
        if kind(self).is_some() && self.threads && self.random.chance(12) {
            self.beside();
        }
    }

    fn write(&mut self) -> Option<()> {
        let end = self.any(|end| end.writes)?;
        let step = self.write_to(end);
        self.line(end.owner, &step);
        Some(())
    }

    fn write_to(&mut self, end: End) -> String {
        let length = self.random.weigh(&[(6, 1), (4, 100), (2, 700), (1, 1900)]);
        let how = match end.socket {
            true => self.random.weigh(&[(5, "write"), (4, "send"), (2, "writev"), (2, "sendmsg"), (1, "sendfile")]),
            false => "write",
        };
        let urgent = end.socket && self.random.chance(1);
        match (urgent, how) {
            (true, _) => format!("send {} 1 OOB", end.slot),
            (_, "send" | "sendmsg") => format!("{how} {} {length} DONTWAIT", end.slot),
            _ => format!("{how} {} {length}", end.slot),
        }
    }

    fn read(&mut self) -> Option<()> {
        let end = self.any(|end| end.reads && !end.listens)?;
        let step = self.read_from(end);
        self.line(end.owner, &step);
        Some(())
    }

    fn read_from(&mut self, end: End) -> String {
        let length = self.random.weigh(&[(4, 1), (4, 60), (4, 4000)]);
        let how = match end.socket {
            true => self.random.weigh(&[(4, "read"), (6, "recv"), (1, "readv"), (2, "recvmsg")]),
            false => "read",
        };
        let flags = [(12, "DONTWAIT"), (4, "DONTWAIT|PEEK"), (2, "WAITALL"), (1, "WAITALL|PEEK"), (1, "DONTWAIT|TRUNC"), (2, "-")];
        match how {
            "recv" | "recvmsg" => format!("{how} {} {length} {}", end.slot, self.random.weigh(&flags)),
            _ => format!("{how} {} {length}", end.slot),
        }
    }

    fn drain(&mut self) -> Option<()> {
        let end = self.any(|end| end.reads && !end.listens)?;
        self.line(end.owner, &format!("drain {}", end.slot));
        Some(())
    }

    fn fill(&mut self) -> Option<()> {
        let end = self.any(|end| end.writes)?;
        self.line(end.owner, &format!("fill {}", end.slot));
        Some(())
    }

    fn wait_on(&mut self, set: u64, ms: u64) -> String {
        let count = self.random.weigh(&[(3, 1), (1, 2), (1, 3), (5, 8)]);
        let how = if self.random.chance(10) { "pwait" } else { "wait" };
        format!("{how} {set} {count} {ms}")
    }

    fn wait(&mut self) -> Option<()> {
        let (set, owner) = self.random.pick(&self.sets.clone())?;
        let ms = self.random.weigh(&[(8, 0), (2, 2)]);
        let step = self.wait_on(set, ms);
        self.line(owner, &step);
        Some(())
    }

    /// The descriptors of one process, with what is asked of each.
    fn asked(&mut self, of: &[(u64, &'static str)]) -> Option<(Owner, String)> {
        let owner = self.any(|_| true)?.owner;
        let mut slots: Vec<u64> = self.ends.iter().filter(|e| e.owner == owner).map(|e| e.slot).collect();
        slots.extend(self.sets.iter().filter(|s| s.1 == owner).map(|s| s.0));
        let mut text = String::new();
        for slot in slots.into_iter().take(12) {
            if self.random.chance(60) {
                text += &format!(" {slot}:{}", self.random.weigh(of));
            }
        }
        Some((owner, text))
    }

    fn poll(&mut self) -> Option<()> {
        let (owner, asked) = self.asked(&[(4, "IN"), (4, "IN|OUT|RDHUP"), (2, "OUT"), (1, "RDHUP"), (1, "IN|PRI"), (1, "-")])?;
        let how = self.random.pick(&["poll", "ppoll"])?;
        let ms = self.random.weigh(&[(4, 0), (1, 2)]);
        self.line(owner, &format!("{how} {ms}{asked}"));
        Some(())
    }

    fn select(&mut self) -> Option<()> {
        let (owner, asked) = self.asked(&[(4, "r"), (3, "rw"), (1, "w"), (2, "rwx")])?;
        let ms = self.random.weigh(&[(4, 0), (1, 2)]);
        self.line(owner, &format!("select {ms}{asked}"));
        Some(())
    }

    fn modify(&mut self) -> Option<()> {
        let Registration { set, slot, owner } = self.random.pick(&self.registered.clone())?;
        let only_in = self.sets.iter().any(|s| s.0 == slot);
        let (events, data) = (self.events(only_in, false), self.data(slot));
        self.line(owner, &format!("mod {set} {slot} {events} {data}"));
        Some(())
    }

    fn delete(&mut self) -> Option<()> {
        let Registration { set, slot, owner } = self.random.pick(&self.registered.clone())?;
        self.line(owner, &format!("del {set} {slot}"));
        Some(())
    }

    fn register(&mut self) -> Option<()> {
        let (set, owner) = self.random.pick(&self.sets.clone())?;
        let end = self.any(|end| end.owner == owner)?;
        self.add(owner, set, end.slot, !end.writes);
        Some(())
    }

    fn shut(&mut self) -> Option<()> {
        let end = self.any(|end| end.socket)?;
        let way = self.random.weigh(&[(4, "WR"), (1, "RD"), (2, "RDWR")]);
        self.line(end.owner, &format!("shut {} {way}", end.slot));
        Some(())
    }

    fn close(&mut self) -> Option<()> {
        let end = self.any(|end| !end.listens)?;
        if end.socket && self.random.chance(25) {
            self.line(end.owner, &format!("opt {} LINGER 0", end.slot));
        }
        self.line(end.owner, &format!("close {}", end.slot));
        // Most scripts leave alone what is closed; some go on using the number.
        if self.random.chance(90) {
            self.ends.retain(|e| e.slot != end.slot);
        }
        Some(())
    }

    fn duplicate(&mut self) -> Option<()> {
        let end = self.any(|end| !end.listens)?;
        if self.random.chance(15) {
            let owner = end.owner;
            let at = self.any(|e| e.owner == owner && e.slot != end.slot && !e.listens)?;
            self.line(owner, &format!("dup2 {} {}", end.slot, at.slot));
            self.ends.retain(|e| e.slot != at.slot);
            self.ends.push(End { slot: at.slot, ..end });
            return Some(());
        }
        let at = self.slot();
        self.line(end.owner, &format!("dup {} {at}", end.slot));
        self.ends.push(End { slot: at, ..end });
        Some(())
    }

    fn ask(&mut self) -> Option<()> {
        let end = self.any(|end| end.socket)?;
        let what = self.random.weigh(&[(3, "error"), (3, "inq"), (1, "outq")]);
        self.line(end.owner, &format!("{what} {}", end.slot));
        Some(())
    }

    fn option(&mut self) -> Option<()> {
        let end = self.any(|end| end.socket)?;
        let options = [
            (3, "NONBLOCK 1"),
            (1, "NONBLOCK 0"),
            (2, "RCVLOWAT 10"),
            (1, "RCVLOWAT 1"),
            (1, "RCVTIMEO 5"),
            (1, "KEEPALIVE 1"),
            (1, "OOBINLINE 1"),
        ];
        let option = self.random.weigh(&options);
        self.line(end.owner, &format!("opt {} {option}", end.slot));
        Some(())
    }

    /// A new connection, taken at once or later.
    fn come(&mut self) -> Option<()> {
        let listener = self.any(|end| end.listens)?;
        let slot = self.slot();
        if self.random.chance(60) {
            self.line(listener.owner, &format!("connect {slot} {}", listener.slot));
        } else {
            self.line(listener.owner, &format!("accept {slot} {}", listener.slot));
        }
        self.ends.push(End { slot, reads: true, writes: true, socket: true, listens: false, ..listener });
        Some(())
    }

    fn process(&mut self) -> Option<()> {
        if !self.forked {
            self.steps.push("fork".to_owned());
            self.forked = true;
            for end in &mut self.ends {
                end.owner = Owner::Both;
            }
        } else if self.random.chance(40) {
            self.steps.push("exit".to_owned());
            self.forked = false;
            self.ends.retain(|end| end.owner != Owner::Child);
            self.sets.retain(|set| set.1 != Owner::Child);
            self.registered.retain(|registration| registration.owner != Owner::Child);
        }
        Some(())
    }

    /// One or two threads wait while others act.
    fn beside(&mut self) {
        let sets: Vec<u64> = self.sets.iter().filter(|s| s.1 != Owner::Child).map(|s| s.0).collect();
        let reads = self.any(|end| end.socket && end.owner != Owner::Child);
        let Some(set) = self.random.pick(&sets) else { return };
        let first = match (reads, self.random.chance(25)) {
            (Some(end), true) => format!("recv {} 400 -", end.slot),
            _ => self.wait_on(set, 40),
        };
        self.steps.push(format!("go T {first}"));
        if self.random.chance(50) {
            let second = self.wait_on(set, 40);
            self.steps.push(format!("go U {second}"));
        }
        // The threads are at work: whoever acts is the first, or the child.
        let threads = std::mem::replace(&mut self.threads, false);
        for _ in 0..self.random.within(1, 2) {
            let kind = self.random.weigh(&[(6, Self::write as fn(&mut Self) -> Option<()>), (1, Self::shut), (1, Self::close), (1, Self::modify)]);
            kind(self);
        }
        self.threads = threads;
        self.steps.push("collect".to_owned());
    }

    fn end(&mut self) {
        for (set, owner) in self.sets.clone() {
            self.line(owner, &format!("wait {set} 8 0"));
            self.line(owner, &format!("wait {set} 8 0"));
        }
        for end in self.ends.clone() {
            if end.reads && !end.listens {
                self.line(end.owner, &format!("drain {}", end.slot));
            }
        }
        for (set, owner) in self.sets.clone() {
            self.line(owner, &format!("wait {set} 8 0"));
        }
    }
}
