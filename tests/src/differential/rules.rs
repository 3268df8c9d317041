//! What two runs of one script may answer differently, and why: everything else is a difference.
//!
//! These are left open where they arise, in the interpreter (`tests/differential`) and in what the
//! generator asks, so that a step says the same however the kernel decided:
//!
//! | open | why | what is done |
//! |---|---|---|
//! | how much a full buffer takes | the sizes are the kernel's, and grow | `fill` says "some", and the content is checked at each offset |
//! | how much must be read of a full buffer until it can be written to | a third of the buffer by tcp(7)'s code, another part of a ring | it is drained, or looked at; no more |
//! | when FIN arrives behind a full buffer | it waits for room at the receiver | a close or shutdown there drains in the same step |
//! | SIOCOUTQ | the kernel acknowledges when it likes; a ring counts what is not read | "fits" where it is no more than what was sent |
//!
//! | which edges a stream makes while it is filled and drained | one for each delivery, whose sizes are the kernel's | scripts that fill ask for edges of one direction at a time |
//! | when FIN is acknowledged | within 40 ms, and then it is an edge of its own | a shutdown waits until it is |
//! | when a small write leaves | Nagle's algorithm waits for an acknowledgement that may be put off | every connection has TCP_NODELAY |
//!
//! The rest are the rules below.

use super::Script;

/// Answers that may differ.
pub struct Rule {
    /// What it is called in summaries.
    pub name: &'static str,
    /// Why the kernel leaves it open.
    pub why: &'static str,
    /// Whether these two answers to this step are the same by it.
    allows: fn(&Asked, plain: &str, carried: &str) -> bool,
    /// What the program finds afterwards is another: the rest of the script is not compared.
    pub ends: bool,
}

/// All rules.
pub const RULES: [Rule; 4] = [
    Rule {
        name: "which waiter",
        why: "of several threads that wait on one set the kernel wakes one after another, and which \
              takes how many of the events is up to the scheduler: together they have the same events",
        allows: which_waiter,
        ends: false,
    },
    Rule {
        name: "order of carriers",
        why: "epoll_wait(2) promises no order. What is told by rings keeps its own, and what the kernel \
              tells keeps its own; which of the two became ready first nobody knows (docs/design.md)",
        allows: order_of_carriers,
        ends: false,
    },
    Rule {
        name: "who has room",
        why: "the same where an answer is full: who comes first is told, and the rest the next time",
        allows: who_has_room,
        ends: true,
    },
    Rule {
        name: "room with bytes that are gone",
        why: "bytes that come are an edge of the kernel's, which tells of what there is when it is asked: of \
              room alone, where they were read before that. A ring tells of bytes while they are there",
        allows: room_alone,
        ends: false,
    },
];

/// The first rule by which these answers to step `at` of a script are the same, or `None` where they
/// are not. Equal ones are so by no rule.
#[must_use]
pub fn allowed(script: &Script, at: usize, plain: &str, carried: &str) -> Option<&'static Rule> {
    let asked = Asked { script, at };
    RULES.iter().find(|rule| (rule.allows)(&asked, plain, carried))
}

/// A step of a script.
struct Asked<'a> {
    script: &'a Script,
    at: usize,
}

impl Asked<'_> {
    fn step(&self) -> &str {
        self.script.steps.get(self.at).map_or("", String::as_str)
    }

    fn before(&self) -> impl Iterator<Item = &str> {
        self.script.steps.iter().take(self.at).map(String::as_str)
    }

    /// Is it a wait, or one that began before?
    fn waits(&self) -> bool {
        self.step().contains("wait ") || self.step() == "collect"
    }

    /// How many events its answer has room for, or those whose answers are collected.
    fn rooms(&self) -> Vec<usize> {
        let room = |step: &str| step.split(' ').skip_while(|word| !word.ends_with("wait")).nth(2)?.parse().ok();
        if self.step() != "collect" {
            return room(self.step()).into_iter().collect();
        }
        let before: Vec<&str> = self.before().collect();
        let since = before.iter().rposition(|step| *step == "collect").map_or(0, |at| at + 1);
        before.iter().skip(since).filter(|step| step.starts_with("go ")).filter_map(|step| room(step)).collect()
    }

    /// Does `event` say that there is room, where edges of bytes and of room were asked for?
    fn is_edge_of_both(&self, event: &str) -> bool {
        let Some(data) = event.strip_prefix("OUT/") else { return false };
        self.before().any(|step| {
            let mut words = step.split(' ').skip_while(|word| !matches!(*word, "add" | "mod")).skip(3);
            let asked: Vec<&str> = words.next().unwrap_or_default().split('|').collect();
            words.next() == Some(data) && ["IN", "OUT", "ET"].iter().all(|event| asked.contains(event))
        })
    }

    /// Who tells of `event`, where its data says of what it is: bytes of a connection are told by its
    /// ring, pipes and listeners by the kernel; room, an end and an inner set by either.
    fn carrier(&self, event: &str) -> Carrier {
        let (bits, data) = event.split_once('/').unwrap_or((event, ""));
        // As the generator gives data: see `Generator::data`.
        let Some(slot) = data.parse::<u64>().ok().and_then(|data| data.checked_sub(100)) else { return Carrier::Either };
        let mut of = Carrier::Kernel;
        for step in self.before() {
            let words: Vec<&str> = step.split(' ').filter(|word| !matches!(*word, "B" | "T" | "U" | "go")).collect();
            let names = |at: usize| words.get(at).and_then(|word| word.parse().ok()) == Some(slot);
            match words.first() {
                Some(&"tcp") if names(1) || names(2) => of = Carrier::Ring,
                Some(&"connect" | &"accept") if names(1) => of = Carrier::Ring,
                Some(&"dup" | &"dup2") if names(2) => return Carrier::Either,
                Some(&"epoll") if names(1) => return Carrier::Either,
                _ => {}
            }
        }
        let ends = |step: &str| step.split(' ').any(|word| matches!(word, "shut" | "close" | "exit" | "dup2"));
        let by_ring = bits == "IN" && !self.before().any(ends);
        if of == Carrier::Ring && !by_ring { Carrier::Either } else { of }
    }
}

/// Who tells of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// A ring.
    Ring,
    /// The kernel.
    Kernel,
    /// One of both.
    Either,
}

/// The events in an answer to `wait`, each as it is written.
#[must_use]
pub fn events(answer: &str) -> Vec<&str> {
    let found = answer.split([' ', ';']).filter(|word| word.contains('/'));
    found.collect()
}

fn sorted(answer: &str) -> Vec<&str> {
    let mut all = events(answer);
    all.sort_unstable();
    all
}

fn which_waiter(asked: &Asked, plain: &str, carried: &str) -> bool {
    let waits = |answer: &str| answer.matches("wait ").count();
    let both = asked.step() == "collect" && waits(plain) == 2 && waits(carried) == 2;
    // What is level-triggered is told to each of them, or to one.
    let told = |answer| {
        let mut all = sorted(answer);
        all.dedup();
        all
    };
    both && told(plain) == told(carried)
}

fn order_of_carriers(asked: &Asked, plain: &str, carried: &str) -> bool {
    let by = |answer, carrier| events(answer).into_iter().filter(|event| asked.carrier(event) == carrier).collect::<Vec<_>>();
    let same = |carrier| by(plain, carrier) == by(carried, carrier);
    asked.waits() && sorted(plain) == sorted(carried) && same(Carrier::Ring) && same(Carrier::Kernel)
}

fn who_has_room(asked: &Asked, plain: &str, carried: &str) -> bool {
    let rooms = asked.rooms();
    let full = |answer| rooms.contains(&events(answer).len());
    let differ = events(plain).into_iter().chain(events(carried)).any(|event| asked.carrier(event) != Carrier::Ring);
    full(plain) && full(carried) && differ
}

fn room_alone(asked: &Asked, plain: &str, carried: &str) -> bool {
    let mut left = events(carried);
    let missing = events(plain).into_iter().filter(|event| match left.iter().position(|other| other == event) {
        Some(at) => {
            left.remove(at);
            false
        }
        None => true,
    });
    let missing: Vec<&str> = missing.collect();
    asked.waits() && left.is_empty() && !missing.is_empty() && missing.iter().all(|event| asked.is_edge_of_both(event))
}

#[cfg(test)]
mod tests {
    use super::{Script, allowed};

    fn rule(step: &str, plain: &str, carried: &str) -> Option<&'static str> {
        let script = format!("tcp 1 2 both\ntcp 3 4 both\npipe 5 6\npipe 7 8\nepoll 9\n{step}");
        allowed(&Script::parse("", &script), 5, plain, carried).map(|rule| rule.name)
    }

    #[test]
    fn two_waiters_may_share_events_as_they_like() {
        let plain = "T: wait 1: IN/7; U: wait 1: OUT/8; ";
        assert!(rule("collect", plain, "T: wait 2: OUT/8 IN/7; U: wait 0:; ").is_some());
        assert!(rule("collect", plain, "T: wait 1: OUT/8; U: wait 0:; ").is_none());
    }

    #[test]
    fn rings_and_the_kernel_keep_their_own_order() {
        let step = "T wait 9 8 0";
        assert_eq!(rule(step, "wait 2: IN/101 IN/105", "wait 2: IN/105 IN/101"), Some("order of carriers"));
        assert_eq!(rule(step, "wait 2: IN/101 IN/103", "wait 2: IN/103 IN/101"), None);
        assert_eq!(rule(step, "wait 2: IN/105 IN/107", "wait 2: IN/107 IN/105"), None);
        assert_eq!(rule(step, "wait 2: IN/101 IN/105", "wait 1: IN/105"), None);
    }

    #[test]
    fn a_full_answer_has_other_events() {
        assert_eq!(rule("wait 9 1 0", "wait 1: IN/105", "wait 1: IN/101"), Some("who has room"));
        assert_eq!(rule("wait 9 1 0", "wait 1: IN/103", "wait 1: IN/101"), None);
        assert_eq!(rule("wait 9 2 0", "wait 1: IN/105", "wait 1: IN/101"), None);
    }
}
