//! What two runs of one script may answer differently, and why: everything else is a difference.
//!
//! These are left open where they arise, in the interpreter (`tests/differential`) and in what the
//! generator asks, so that a step says the same however the kernel decided:
//!
//! | open | why | what is done |
//! |---|---|---|
//! | how much a full buffer takes | the sizes are the kernel's, and grow | `fill` says "some", and the content is checked at each offset |
//! | how much must be read of a full buffer until it can be written to | a third of the buffer by tcp(7)'s code, another part of a ring | it is drained, or looked at; no more |
//! | whether a full buffer takes an urgent byte | it is a buffer of the kernel's | none is sent there |
//! | when FIN arrives behind a full buffer | it waits for room at the receiver | a close or shutdown there drains in the same step |
//! | SIOCOUTQ | the kernel acknowledges when it likes; a ring counts what is not read | "fits" where it is no more than what was sent |
//! | what a full buffer's reader takes that is shut down | Linux receives for it, acknowledges, and lets it read until there is nothing at the moment: how much that is depends on what was under way | it is not shut down, nor filled after that |
//! | which edges a stream makes while it is filled and drained | one for each delivery, whose sizes are the kernel's | scripts that fill ask for edges of one direction at a time |
//! | when FIN is acknowledged | within 40 ms, and then it is an edge of its own | a shutdown waits until it is, and a thread that waits beside it waits longer |
//! | how long a shutdown or close takes behind a full buffer | the kernel asks for room when it likes | where streams are filled, nothing ends while a thread waits |
//! | what becomes of a receive whose number is closed | Ginnel ends the connection with the close (docs/limits.md), the kernel with the receive | no number is closed that a thread receives from |
//! | when a small write leaves | Nagle's algorithm waits for an acknowledgement that may be put off | every connection has TCP_NODELAY |
//!
//! The rest are the rules below. What is a limit of Ginnel's, and nothing that the kernel leaves open,
//! is no rule: see [`super::limits`].

use super::Script;
use super::asked::{Asked, Carrier, slot_of};

/// Answers that may differ.
pub struct Rule {
    /// What it is called in summaries.
    pub name: &'static str,
    /// Why the kernel leaves it open.
    pub why: &'static str,
    /// Whether these two answers to this step are the same by it.
    pub(super) allows: fn(&Asked, plain: &str, carried: &str) -> bool,
    /// What the set has told by then is another in each run: see [`Apart`](super::apart::Apart).
    pub parts: bool,
}

/// All rules.
pub const RULES: [Rule; 8] = [
    Rule {
        name: "which waiter has room",
        why: "the same as the next where an answer is full: who is told of a level goes to the end of the set's \
              list, which goes on in another order in each run",
        allows: which_waiter_has_room,
        parts: true,
    },
    Rule {
        name: "which waiter",
        why: "of several threads that wait on one set the kernel wakes one after another, and which \
              takes how many of the events is up to the scheduler: together they have the same events",
        allows: which_waiter,
        parts: false,
    },
    Rule {
        name: "order of carriers",
        why: "epoll_wait(2) promises no order. What is told by rings keeps its own, and what the kernel \
              tells keeps its own; which of the two became ready first nobody knows (docs/design.md)",
        allows: order_of_carriers,
        parts: false,
    },
    Rule {
        name: "who has room",
        why: "the same where an answer is full: who comes first is told, and the rest the next time. From \
              then on each run's set has its own order, and where it tells of edges or once, its own events",
        allows: who_has_room,
        parts: true,
    },
    Rule {
        name: "room with bytes that are gone",
        why: "bytes that come are an edge of the kernel's, which tells of what there is when it is asked: of \
              room alone, where they were read before that, or of an end that receives no more. A ring tells of \
              bytes while they are there",
        allows: room_alone,
        parts: false,
    },
    Rule {
        name: "a wait that begins with it",
        why: "where a thread waits, the same decides whether it is told of room, or of what comes next",
        allows: room_alone_at_first,
        parts: true,
    },
    Rule {
        name: "room behind a full buffer",
        why: "what a full buffer takes more is the kernel's to decide (tcp(7), tcp_wmem: it grows while it is \
              used), and what lay in a full ring takes less of it when the connection goes back to TCP",
        allows: room_behind_full,
        parts: true,
    },
    Rule {
        name: "an edge of what found no room",
        why: "the kernel sends again what a full buffer has not taken, when its timers say so or when the other end \
              speaks, and where that finds no room it is an edge all the same (tcp_data_queue in Linux): of 240 \
              plain runs 13 had one within 150 ms, and 226 in the 150 ms after. A ring's bytes wait in the ring",
        allows: edge_without_room,
        parts: false,
    },
];

/// The first rule by which these answers to step `at` of a script are the same, or `None` where
/// they are not. Equal ones are so by no rule.
#[must_use]
pub fn allowed(script: &Script, at: usize, plain: &str, carried: &str) -> Option<&'static Rule> {
    let asked = Asked { script, at };
    RULES.iter().find(|rule| (rule.allows)(&asked, plain, carried))
}

/// The events in an answer to `wait`, each as it is written.
#[must_use]
pub fn events(answer: &str) -> Vec<&str> {
    let found = answer.split([' ', ';']).filter(|word| word.contains('/'));
    found.collect()
}

pub(super) fn sorted(answer: &str) -> Vec<&str> {
    let mut all = events(answer);
    all.sort_unstable();
    all
}

/// The events that `more` has beyond those of `less`; `None` where it lacks one of these.
pub(super) fn left_over<'a>(more: &'a str, less: &str) -> Option<Vec<&'a str>> {
    let mut left = events(more);
    for event in events(less) {
        left.remove(left.iter().position(|other| *other == event)?);
    }
    Some(left)
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

fn which_waiter_has_room(asked: &Asked, plain: &str, carried: &str) -> bool {
    let rooms = asked.rooms();
    let is_full = |answer: &str| {
        answer.split(';').any(|one| one.contains("wait ") && rooms.contains(&events(one).len()))
    };
    which_waiter(asked, plain, carried) && (is_full(plain) || is_full(carried))
}

fn order_of_carriers(asked: &Asked, plain: &str, carried: &str) -> bool {
    let by = |answer, carrier| {
        events(answer)
            .into_iter()
            .filter(|event| asked.carrier(event) == carrier)
            .collect::<Vec<_>>()
    };
    let same = |carrier| by(plain, carrier) == by(carried, carrier);
    asked.waits()
        && sorted(plain) == sorted(carried)
        && same(Carrier::Ring)
        && same(Carrier::Kernel)
}

fn who_has_room(asked: &Asked, plain: &str, carried: &str) -> bool {
    let rooms = asked.rooms();
    let all = rooms.iter().sum::<usize>();
    let full = |answer| rooms.contains(&events(answer).len()) || events(answer).len() == all;
    let differ = events(plain)
        .into_iter()
        .chain(events(carried))
        .any(|event| asked.carrier(event) != Carrier::Ring);
    full(plain) && full(carried) && differ
}

fn room_alone(asked: &Asked, plain: &str, carried: &str) -> bool {
    // Of a set that is asked itself, the same decides whether it is ready.
    let asks = asked.step().contains("poll ") || asked.step().contains("select ");
    let same = |event: &&str| {
        asked.waits() && asked.is_edge_of_both(event)
            || asks && asked.is_set_of_edges_of_both(event)
    };
    left_over(plain, carried).is_some_and(|missing| !missing.is_empty() && missing.iter().all(same))
}

fn room_alone_at_first(asked: &Asked, plain: &str, carried: &str) -> bool {
    let told = events(plain);
    let differ = told.iter().filter(|event| !events(carried).contains(event));
    let lone =
        differ.clone().count() > 0 && differ.copied().all(|event| asked.is_edge_of_both(event));
    asked.step() == "collect" && lone
}

fn edge_without_room(asked: &Asked, plain: &str, carried: &str) -> bool {
    let full: Vec<u64> = asked.before().filter_map(|step| slot_of(step, "fill")).collect();
    let of_full = |event: &&str| {
        let data = event.strip_prefix("IN/");
        data.is_some_and(|data| full.iter().any(|of| asked.is_edge_of_reader(*of, data)))
    };
    let asks = asked.waits() || asked.step().contains("poll ");
    asks && left_over(plain, carried)
        .is_some_and(|more| !more.is_empty() && more.iter().all(of_full))
}

fn room_behind_full(asked: &Asked, plain: &str, carried: &str) -> bool {
    let mut full: Vec<u64> = asked.before().filter_map(|step| slot_of(step, "fill")).collect();
    for step in asked.before() {
        // By another number of it.
        let copy = slot_of(step, "dup").or_else(|| slot_of(step, "dup2"));
        let at = step.split(' ').next_back().and_then(|at| at.parse().ok());
        if let (Some(of), Some(at)) = (copy, at) {
            full.extend(full.contains(&of).then_some(at));
            full.extend(full.contains(&at).then_some(of));
        }
    }
    let waits = asked.waits();
    let of_full = |data: &str| {
        if !waits {
            return data.parse().is_ok_and(|slot| full.contains(&slot));
        }
        asked.before().any(|step| {
            let mut words =
                step.split(' ').skip_while(|word| !matches!(*word, "add" | "mod")).skip(2);
            let slot = words.next().and_then(|slot| slot.parse().ok());
            slot.is_some_and(|slot| full.contains(&slot)) && words.nth(1) == Some(data)
        })
    };
    let without = |answer| {
        let rest = events(answer).into_iter().filter_map(|event| {
            let (bits, data) = event.split_once('/').unwrap_or((event, ""));
            let kept = bits
                .split('|')
                .filter(|bit| !matches!(*bit, "OUT" | "w") || !of_full(data))
                .collect::<Vec<_>>()
                .join("|");
            (!kept.is_empty()).then(|| format!("{kept}/{data}"))
        });
        let mut rest: Vec<String> = rest.collect();
        rest.sort_unstable();
        rest
    };
    let room = |answer: &str| answer.matches("OUT").count() + answer.matches("w/").count();
    let asks = waits || asked.step().contains("poll ") || asked.step().contains("select ");
    asks && !full.is_empty() && room(plain) < room(carried) && without(plain) == without(carried)
}

#[cfg(test)]
mod tests {
    use super::super::apart::Apart;
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
    fn a_waiter_with_few_places_turns_the_list() {
        let later = |room: u64| {
            let script = format!(
                "tcp 1 2 both\nepoll 9\nadd 9 1 IN|OUT 101\nadd 9 2 IN|OUT 102\ngo T wait 9 {room} 40\ngo U wait 9 8 40\ncollect\nwait 9 8 0"
            );
            let script = Script::parse("", &script);
            let mut apart = Apart::default();
            let (plain, carried) = (
                "T: wait 1: OUT/101; U: wait 2: OUT/101 OUT/102; ",
                "T: wait 1: OUT/102; U: wait 2: OUT/101 OUT/102; ",
            );
            apart.note(&script, 6, allowed(&script, 6, plain, carried).expect("two waiters"));
            apart.allow(&script, 7, "wait 2: OUT/101 OUT/102", "wait 2: OUT/102 OUT/101")
        };
        assert!(later(1));
        assert!(!later(3));
    }

    #[test]
    fn rings_and_the_kernel_keep_their_own_order() {
        let step = "T wait 9 8 0";
        assert_eq!(
            rule(step, "wait 2: IN/101 IN/105", "wait 2: IN/105 IN/101"),
            Some("order of carriers")
        );
        assert_eq!(rule(step, "wait 2: IN/101 IN/103", "wait 2: IN/103 IN/101"), None);
        assert_eq!(rule(step, "wait 2: IN/105 IN/107", "wait 2: IN/107 IN/105"), None);
        assert_eq!(rule(step, "wait 2: IN/101 IN/105", "wait 1: IN/105"), None);
    }

    #[test]
    fn room_comes_sooner_behind_a_full_ring_and_never_later() {
        let script =
            "tcp 1 2 both\nepoll 9\nadd 9 1 IN|OUT 101\nadd 9 2 IN 102\nfill 1\nwait 9 8 0";
        let script = Script::parse("", script);
        let rule = |plain, carried| allowed(&script, 5, plain, carried).map(|rule| rule.name);
        let room = Some("room behind a full buffer");
        assert_eq!(rule("wait 2: IN/101 IN/102", "wait 2: IN/102 IN|OUT/101"), room);
        assert_eq!(rule("wait 1: IN/102", "wait 2: IN/102 OUT/101"), room);
        assert_eq!(rule("wait 2: IN|OUT/101 IN/102", "wait 2: IN/102 IN/101"), None);
        assert_eq!(rule("wait 1: IN/102", "wait 1: OUT/101"), None);
    }

    #[test]
    fn a_full_stream_makes_edges_later() {
        let rule = |fills: u64, how: &str, plain, carried| {
            let script = format!(
                "tcp 1 2 both\nepoll 9\nadd 9 2 {how} 102\nfill {fills}\nwait 9 8 0\ngo T wait 9 8 150\ncollect"
            );
            allowed(&Script::parse("", &script), 6, plain, carried).map(|rule| rule.name)
        };
        let (more, none) = ("T: wait 1: IN/102; ", "T: wait 0:; ");
        assert_eq!(rule(1, "IN|ET", more, none), Some("an edge of what found no room"));
        assert_eq!(rule(1, "IN|ET", none, more), None);
        assert_eq!(rule(2, "IN|ET", more, none), None);
        assert_eq!(rule(1, "IN", more, none), None);
        let script = "tcp 1 2 both\nepoll 9\nadd 9 2 IN|ET 102\nfill 1\npoll 0 9:IN 2:IN";
        let script = Script::parse("", script);
        let rule = |plain| allowed(&script, 4, plain, "poll 0:").map(|rule| rule.name);
        assert_eq!(rule("poll 1: IN/9"), Some("an edge of what found no room"));
        assert_eq!(rule("poll 1: IN/2"), None);
    }

    #[test]
    fn a_full_answer_has_other_events() {
        assert_eq!(rule("wait 9 1 0", "wait 1: IN/105", "wait 1: IN/101"), Some("who has room"));
        assert_eq!(rule("wait 9 1 0", "wait 1: IN/103", "wait 1: IN/101"), None);
        assert_eq!(rule("wait 9 2 0", "wait 1: IN/105", "wait 1: IN/101"), None);
    }

    /// Whether a script's last step may differ after its set told two of four events in another
    /// order.
    fn later(registered: &str, step: &str, plain: &str, carried: &str) -> bool {
        let script =
            format!("tcp 1 2 both\npipe 5 6\nepoll 9\nepoll 8\n{registered}\nwait 9 1 0\n{step}");
        let script = Script::parse("", &script);
        let mut apart = Apart::default();
        let full = script.steps.len() - 2;
        let rule =
            allowed(&script, full, "wait 1: IN/105", "wait 1: IN/101").expect("a full answer");
        apart.note(&script, full, rule);
        apart.allow(&script, full + 1, plain, carried)
    }

    #[test]
    fn what_a_full_answer_has_no_part_in_is_compared() {
        let level = "add 9 1 IN 101\nadd 9 5 IN 105";
        let edge = "add 9 1 IN|ET 101\nadd 9 5 IN 105";
        assert!(later(level, "wait 9 8 0", "wait 2: IN/101 IN/105", "wait 2: IN/105 IN/101"));
        assert!(!later(level, "wait 9 8 0", "wait 2: IN/101 IN/105", "wait 1: IN/105"));
        assert!(later(edge, "wait 9 8 0", "wait 2: IN/101 IN/105", "wait 1: IN/105"));
        assert!(!later(edge, "wait 8 8 0", "wait 1: IN/101", "wait 0:"));
        assert!(!later(edge, "read 1 5", "got 5", "got EAGAIN"));
        assert!(later(edge, "poll 0 9:IN 1:IN", "poll 2: IN/9 IN/1", "poll 1: IN/1"));
        assert!(!later(edge, "poll 0 9:IN 1:IN", "poll 2: IN/9 IN/1", "poll 1: IN/9"));
    }
}
