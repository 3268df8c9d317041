//! From a seed to a script: which descriptors there are, who has them, and what is done with them.
//!
//! A script begins with what it is about (connections, pipes, sets and what is registered there),
//! goes on with steps at random, and ends by asking every set and draining every stream, so that
//! what was lost on the way is missed.

mod begin;
mod bytes;
mod ends;
mod events;

use super::random::Random;

/// Who has a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The first process, and each of its threads.
    First,
    /// The child, or the process in its place that nobody forked.
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

/// Adds a step, or nothing where there is nothing to do it with.
type Act = fn(&mut Generator) -> Option<()>;

struct Generator {
    random: Random,
    steps: Vec<String>,
    next_slot: u64,
    ends: Vec<End>,
    sets: Vec<(u64, Owner)>,
    registered: Vec<Registration>,
    forked: bool,
    /// The child is another machine's process from the start, and has one end of each connection.
    between: bool,
    threads: bool,
    /// From which slot a thread receives, while others act.
    receives: Option<u64>,
    /// Whether streams are filled. Which edges a stream makes while it is filled and drained is up
    /// to the sizes of what is delivered at once: no edge is asked for then that tells of both of
    /// a connection's directions.
    fills: bool,
    /// In percent: how often two registrations are given the same data.
    same_data: u64,
    /// Whether waits have room for fewer events than there may be.
    tight: bool,
    /// In percent: how often a registration is level-triggered and nothing else.
    level: u64,
}

/// The steps of `seed`, for a process and its child or, where they are `between` two, for two of
/// which each may be in a machine of its own.
#[must_use]
pub fn steps(seed: u64, between: bool) -> Vec<String> {
    let mut random = Random::new(seed);
    let threads = random.chance(45);
    let same_data = random.weigh(&[(6, 0), (3, 50), (1, 100)]);
    let level = random.weigh(&[(2, 20), (2, 50), (1, 95)]);
    let fills = random.chance(35);
    let tight = random.chance(30);
    let mut generator = Generator {
        random,
        steps: Vec::new(),
        next_slot: 0,
        ends: Vec::new(),
        sets: Vec::new(),
        registered: Vec::new(),
        forked: false,
        between,
        threads,
        receives: None,
        fills,
        same_data,
        tight,
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
            _ if self.threads && self.random.chance(15) => {
                self.random.pick(&["T ", "U "]).unwrap_or("")
            }
            _ => "",
        };
        self.steps.push(format!("{who}{step}"));
    }

    fn any(&mut self, which: impl Fn(&End) -> bool) -> Option<End> {
        let ends: Vec<End> = self.ends.iter().copied().filter(which).collect();
        self.random.pick(&ends)
    }

    fn step(&mut self) {
        let kinds: [(u64, Act); 17] = [
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

    fn process(&mut self) -> Option<()> {
        if self.between {
            return None;
        }
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
    ///
    /// A step that shuts down or closes goes on until FIN is acknowledged, which the kernel may put
    /// off for 40 ms: each wait is longer than two of these. Behind a full buffer FIN waits for
    /// room, and that for as long as the kernel likes: where streams are filled nothing ends here.
    fn beside(&mut self) {
        // How long they wait, ms: a network takes its time.
        let long = if self.between { 400 } else { 150 };
        let ends = u64::from(!self.fills);
        let sets: Vec<u64> =
            self.sets.iter().filter(|s| s.1 != Owner::Child).map(|s| s.0).collect();
        let reads = self.any(|end| end.socket && end.owner != Owner::Child);
        let Some(set) = self.random.pick(&sets) else { return };
        let first = match (reads, self.random.chance(25)) {
            (Some(end), true) => {
                self.receives = Some(end.slot);
                format!("recv {} 400 -", end.slot)
            }
            _ => self.wait_on(set, long),
        };
        self.steps.push(format!("go T {first}"));
        if self.random.chance(50) {
            let second = self.wait_on(set, long);
            self.steps.push(format!("go U {second}"));
        }
        // The threads are at work: whoever acts is the first, or the child.
        let threads = std::mem::replace(&mut self.threads, false);
        for _ in 0..self.random.within(1, 2) {
            let kind = self.random.weigh(&[
                (6, Self::write as Act),
                (ends, Self::shut),
                (ends, Self::close),
                (1, Self::modify),
            ]);
            kind(self);
        }
        (self.threads, self.receives) = (threads, None);
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
