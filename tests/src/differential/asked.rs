//! What a step of a script asks, and what the steps before it say of that.

use super::Script;

/// A step of a script.
pub(super) struct Asked<'a> {
    pub(super) script: &'a Script,
    pub(super) at: usize,
}

impl Asked<'_> {
    pub(super) fn step(&self) -> &str {
        self.script.steps.get(self.at).map_or("", String::as_str)
    }

    pub(super) fn before(&self) -> impl Iterator<Item = &str> {
        self.script.steps.iter().take(self.at).map(String::as_str)
    }

    /// Is it a wait, or one that began before?
    pub(super) fn waits(&self) -> bool {
        self.step().contains("wait ") || self.step() == "collect"
    }

    /// The sets that are waited on in it, or in those whose answers are collected.
    pub(super) fn sets(&self) -> Vec<u64> {
        let set = |step: &str| {
            step.split(' ').skip_while(|word| !word.ends_with("wait")).nth(1)?.parse().ok()
        };
        if self.step() != "collect" {
            return set(self.step()).into_iter().collect();
        }
        self.gone().filter_map(set).collect()
    }

    /// The steps whose answers a `collect` has.
    pub(super) fn gone(&self) -> impl Iterator<Item = &str> {
        let since = self
            .before()
            .collect::<Vec<_>>()
            .iter()
            .rposition(|step| *step == "collect")
            .map_or(0, |at| at + 1);
        self.before().skip(since).filter(|step| step.starts_with("go "))
    }

    /// How many events its answer has room for, or those whose answers are collected.
    pub(super) fn rooms(&self) -> Vec<usize> {
        if self.step() != "collect" {
            return room_of(self.step()).into_iter().collect();
        }
        self.gone().filter_map(room_of).collect()
    }

    /// Does `event` say that there is room, where edges of bytes and of room were asked for? Or
    /// that an end which receives no more can be read, of an edge as well?
    pub(super) fn is_edge_of_both(&self, event: &str) -> bool {
        let Some((bits, data)) = event.split_once('/') else { return false };
        if bits != "OUT" {
            return self.is_edge_of_deaf(bits, data) || bits == "IN" && self.is_edge_of_inner(data);
        }
        self.before().any(|step| {
            let mut words =
                step.split(' ').skip_while(|word| !matches!(*word, "add" | "mod")).skip(3);
            let asked: Vec<&str> = words.next().unwrap_or_default().split('|').collect();
            words.next() == Some(data)
                && ["IN", "OUT", "ET"].iter().all(|event| asked.contains(event))
        })
    }

    /// Does `event`, of `poll` or `select`, say that a set is ready in which edges of bytes and of
    /// room were asked for?
    pub(super) fn is_set_of_edges_of_both(&self, event: &str) -> bool {
        let set = event.split_once('/').and_then(|(_, slot)| slot.parse().ok());
        set.is_some_and(|set| self.registrations(set).any(|(_, asked)| is_both(asked)))
    }

    /// Is it said of a set in which edges of bytes and of room were asked for?
    pub(super) fn is_edge_of_inner(&self, data: &str) -> bool {
        self.before().any(|step| {
            let mut words =
                step.split(' ').skip_while(|word| !matches!(*word, "add" | "mod")).skip(2);
            let inner = words.next().and_then(|slot| slot.parse().ok());
            words.nth(1) == Some(data) && inner.is_some_and(|set| self.holds_edge_of_both(set, 3))
        })
    }

    /// Were edges of bytes and of room asked for in `set`, or so `deep` in those that it has?
    fn holds_edge_of_both(&self, set: u64, deep: u32) -> bool {
        let inside = |slot| deep > 0 && self.holds_edge_of_both(slot, deep - 1);
        self.registrations(set).any(|(slot, asked)| is_both(asked) || inside(slot))
    }

    /// Is this the data of a set whose edges are told?
    pub(super) fn is_edge_of_set(&self, data: &str) -> bool {
        self.before().any(|step| {
            let mut words =
                step.split(' ').skip_while(|word| !matches!(*word, "add" | "mod")).skip(2);
            let is_set =
                |slot: &str| self.before().any(|step| step.ends_with(&format!("epoll {slot}")));
            let is_inner = words.next().is_some_and(is_set);
            let edge = words.next().is_some_and(|asked| asks(asked, "ET"));
            is_inner && edge && words.next() == Some(data)
        })
    }

    /// Is this the data of an edge-triggered registration of who reads what `writer` writes, by
    /// whatever numbers?
    pub(super) fn is_edge_of_reader(&self, writer: u64, data: &str) -> bool {
        let same = |slot: u64| {
            let copied = |step: &str| {
                let of = slot_of(step, "dup").or_else(|| slot_of(step, "dup2"))?;
                let at: u64 = step.split(' ').next_back()?.parse().ok()?;
                (at == slot).then_some(of)
            };
            self.before().filter_map(copied).last().unwrap_or(slot)
        };
        let other = |step: &str| {
            let mut words = step.strip_prefix("tcp ")?.split(' ');
            let ends: [u64; 2] = [words.next()?.parse().ok()?, words.next()?.parse().ok()?];
            let at = ends.iter().position(|end| *end == same(writer))?;
            Some(ends[1 - at])
        };
        let Some(reader) = self.before().filter_map(other).last() else { return false };
        // Or of a set that has it, as an edge.
        let inside = |set| {
            self.registrations(set).any(|(slot, asked)| same(slot) == reader && asks(asked, "ET"))
        };
        if !self.waits() {
            // `poll` and `select` name the set.
            return data.parse().is_ok_and(inside);
        }
        let is_inner = self.sets_of(data).any(inside);
        is_inner
            || self.before().any(|step| {
                let mut words =
                    step.split(' ').skip_while(|word| !matches!(*word, "add" | "mod")).skip(2);
                let slot = words.next().and_then(|slot| slot.parse().ok());
                let edge = words.next().is_some_and(|asked| asks(asked, "ET"));
                slot.is_some_and(|slot| same(slot) == reader) && edge && words.next() == Some(data)
            })
    }

    /// Is it an edge of a connection that was shut down for reading?
    pub(super) fn is_edge_of_deaf(&self, bits: &str, data: &str) -> bool {
        let deaf: Vec<u64> = self
            .before()
            .filter(|step| step.ends_with(" RD"))
            .filter_map(|step| slot_of(step, "shut"))
            .collect();
        let read = bits.split('|').all(|bit| matches!(bit, "IN" | "OUT" | "RDHUP"));
        read && self.before().any(|step| {
            let mut words =
                step.split(' ').skip_while(|word| !matches!(*word, "add" | "mod")).skip(2);
            let of_deaf = words
                .next()
                .and_then(|slot| slot.parse().ok())
                .is_some_and(|slot| deaf.contains(&slot));
            let edge = words.next().is_some_and(|asked| asks(asked, "ET"));
            of_deaf && edge && words.next() == Some(data)
        })
    }

    /// Was something done with the connection of `slot`, by whatever numbers, for which it goes back
    /// to TCP?
    pub(super) fn may_leave_ring(&self, slot: u64) -> bool {
        let ends: Vec<u64> = [Some(slot), self.other_end(slot)]
            .into_iter()
            .flatten()
            .flat_map(|of| copies(self, of))
            .collect();
        let leaves = |step: &str| {
            let mut words = step.split(' ').skip_while(|word| !matches!(*word, "opt" | "send"));
            let call = words.next();
            let of = words.next().and_then(|slot| slot.parse().ok());
            let rest: Vec<&str> = words.collect();
            let leaves = call == Some("opt") && rest == ["RCVLOWAT", "10"]
                || call == Some("send") && rest.last() == Some(&"OOB");
            leaves && of.is_some_and(|of| ends.contains(&of))
        };
        self.before().any(leaves)
    }

    /// Was `slot` ever a connection, or a copy of one?
    pub(super) fn is_connection(&self, slot: u64) -> bool {
        let made = |step: &str, slot: u64| {
            let names = |word: Option<&str>| word.and_then(|word| word.parse().ok()) == Some(slot);
            let mut words = step.split(' ').skip_while(|word| matches!(*word, "B" | "T" | "U"));
            match words.next() {
                Some("tcp") => names(words.next()) || names(words.next()),
                Some("connect" | "accept") => names(words.next()),
                _ => false,
            }
        };
        copies(self, slot).into_iter().any(|slot| self.before().any(|step| made(step, slot)))
    }

    /// The slot of the other end of the connection that was made with `slot`.
    pub(super) fn other_end(&self, slot: u64) -> Option<u64> {
        let of_tcp = |step: &str| -> Option<[u64; 2]> {
            let mut words = step.strip_prefix("tcp ")?.split(' ');
            Some([words.next()?.parse().ok()?, words.next()?.parse().ok()?])
        };
        let at = |ends: [u64; 2]| Some(ends[1 - ends.iter().position(|end| *end == slot)?]);
        self.before().filter_map(of_tcp).find_map(at)
    }

    /// Who tells of `event`, where its data says of what it is: bytes of a connection are told by
    /// its ring, pipes and listeners by the kernel; room, an end and an inner set by either.
    pub(super) fn carrier(&self, event: &str) -> Carrier {
        let (bits, data) = event.split_once('/').unwrap_or((event, ""));
        // As the generator gives data: see `Generator::data`.
        let Some(slot) = data.parse::<u64>().ok().and_then(|data| data.checked_sub(100)) else {
            return Carrier::Either;
        };
        let mut of = Carrier::Kernel;
        for step in self.before() {
            let words: Vec<&str> =
                step.split(' ').filter(|word| !matches!(*word, "B" | "T" | "U" | "go")).collect();
            let names = |at: usize| words.get(at).and_then(|word| word.parse().ok()) == Some(slot);
            match words.first() {
                Some(&"tcp") if names(1) || names(2) => {
                    // One that exchanged no bytes both ways may be on TCP as yet.
                    of =
                        if words.last() == Some(&"both") { Carrier::Ring } else { Carrier::Either };
                }
                Some(&"connect" | &"accept") if names(1) => of = Carrier::Ring,
                Some(&"dup" | &"dup2") if names(2) => return Carrier::Either,
                Some(&"epoll") if names(1) => return Carrier::Either,
                _ => {}
            }
        }
        let ends = |step: &str| {
            step.split(' ').any(|word| matches!(word, "shut" | "close" | "exit" | "dup2"))
        };
        let by_ring = bits == "IN" && !self.before().any(ends) && !self.may_leave_ring(slot);
        if of == Carrier::Ring && !by_ring { Carrier::Either } else { of }
    }
}

/// Edges of bytes and of room.
fn is_both(asked: &str) -> bool {
    ["IN", "OUT", "ET"].iter().all(|event| asks(asked, event))
}

/// Who tells of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    /// A ring.
    Ring,
    /// The kernel.
    Kernel,
    /// One of both.
    Either,
}

impl Asked<'_> {
    /// The registrations that were made in `set`, as (slot, what was asked for).
    pub(super) fn registrations(&self, set: u64) -> impl Iterator<Item = (u64, &str)> {
        self.before().filter_map(move |step| {
            let mut words =
                step.split(' ').skip_while(|word| !matches!(*word, "add" | "mod")).skip(1);
            let of_set = words.next()?.parse() == Ok(set);
            let slot = words.next()?.parse().ok()?;
            of_set.then_some((slot, words.next().unwrap_or_default()))
        })
    }

    /// What was registered in `set` with this data, as (slot, what was asked for).
    pub(super) fn given(&self, set: u64, data: &str) -> impl Iterator<Item = (u64, &str)> {
        let steps = self.before().filter(move |step| gives(step, set, data));
        steps.filter_map(|step| {
            let mut words =
                step.split(' ').skip_while(|word| !matches!(*word, "add" | "mod")).skip(2);
            Some((words.next()?.parse().ok()?, words.next()?))
        })
    }

    /// The sets that were registered with this data in others.
    pub(super) fn sets_of(&self, data: &str) -> impl Iterator<Item = u64> {
        self.before().filter_map(move |step| {
            let mut words =
                step.split(' ').skip_while(|word| !matches!(*word, "add" | "mod")).skip(2);
            let slot: u64 = words.next()?.parse().ok()?;
            let is_set = self.before().any(|step| step.ends_with(&format!("epoll {slot}")));
            (is_set && words.nth(1) == Some(data)).then_some(slot)
        })
    }

    pub(super) fn registered_in(&self, set: u64) -> impl Iterator<Item = u64> {
        self.registrations(set).map(|(slot, _)| slot)
    }

    /// Does `set` tell of levels alone, and of no other set?
    pub(super) fn is_level(&self, set: u64) -> bool {
        let is_set = |slot| self.before().any(|step| step.ends_with(&format!("epoll {slot}")));
        let told_once = |asked: &str| {
            asked.split('|').any(|event| matches!(event, "ET" | "ONESHOT" | "EXCLUSIVE"))
        };
        self.registrations(set).all(|(slot, asked)| !told_once(asked) && !is_set(slot))
    }
}

/// The slots that stand, or stood, for what `slot` does, itself among them.
pub(super) fn copies(asked: &Asked, slot: u64) -> Vec<u64> {
    let mut all = vec![slot];
    for step in asked.before() {
        let of = slot_of(step, "dup").or_else(|| slot_of(step, "dup2"));
        let at = step.split(' ').next_back().and_then(|at| at.parse().ok());
        if let (Some(of), Some(at)) = (of, at) {
            if all.contains(&of) {
                all.push(at);
            } else if all.contains(&at) && slot_of(step, "dup").is_some() {
                all.push(of);
            }
        }
    }
    all
}

/// The slot that step `of` is about, where it is a `call`.
pub(super) fn slot_of(step: &str, call: &str) -> Option<u64> {
    step.split(' ').skip_while(|word| *word != call).nth(1)?.parse().ok()
}

/// For how many events a wait has room.
pub(super) fn room_of(step: &str) -> Option<usize> {
    step.split(' ').skip_while(|word| !word.ends_with("wait")).nth(2)?.parse().ok()
}

/// Does `step` wait on `set`?
pub(super) fn waits_on(step: &str, set: u64) -> bool {
    let at = step.split(' ').skip_while(|word| !word.ends_with("wait")).nth(1);
    at.is_some_and(|at| at.parse() == Ok(set))
}

/// Does `step` give a registration in `set` this data?
pub(super) fn gives(step: &str, set: u64, data: &str) -> bool {
    let mut words = step.split(' ').skip_while(|word| !matches!(*word, "add" | "mod")).skip(1);
    words.next().is_some_and(|word| word.parse() == Ok(set)) && words.nth(2) == Some(data)
}

/// Is `bit` among these events, as steps and answers write them?
pub fn asks(events: &str, bit: &str) -> bool {
    events.split('|').any(|event| event == bit)
}
