//! Differences that are known limits of Ginnel's (docs/limits.md), by which a script counts apart from
//! those that are the same.

mod order;

use super::Script;
use super::asked::{Asked, asks, copies, room_of, slot_of, waits_on};
use super::rules::{Rule, events, left_over, sorted};
use order::{order_beside_a_child, order_inside, order_of_many, place_of_what_was_read};

/// All of them.
pub const LIMITS: [Rule; 9] = [
    Rule {
        name: "an inner edge once more",
        why: "to see what an inner set has Ginnel may take it and give it back, which is an edge. That is taken out \
              of the same wait, but for one with room for one event. And a wake-up over TCP is an edge, where \
              something is ready that went back to TCP",
        allows: inner_edge_once_more,
        parts: false,
    },
    Rule {
        name: "place of an edge that was read",
        why: "a writer keeps the times of four pieces. An edge that was read before a wait told of it, and behind which \
              more came than these, has the place of what it is told with",
        allows: place_of_what_was_read,
        parts: false,
    },
    Rule {
        name: "order in a set of two processes",
        why: "where something was changed since the fork, each of the two asks the kernel as often as there is room \
              for more, and what is level-triggered goes round",
        allows: order_beside_a_child,
        parts: false,
    },
    Rule {
        name: "order where not all have a place",
        why: "of a set that holds more than a wait has room for the kernel is asked again for what is in the places \
              of connections that rings told of, and what is level-triggered goes round",
        allows: order_of_many,
        parts: false,
    },
    Rule {
        name: "order in an inner set",
        why: "the kernel takes what is empty off an inner set's list whenever it looks there for an outer one. Where \
              an answer is full, it has others",
        allows: order_inside,
        parts: true,
    },
    Rule {
        name: "edge of an acknowledged FIN",
        why: "where a thread was told of a shutdown at once, its acknowledgement is one more edge of the kernel's. Of \
              bytes that lie in a ring the kernel knows nothing then",
        allows: edge_of_fin,
        parts: false,
    },
    Rule {
        name: "reports of a closed number",
        why: "where another process has the socket as well, a wake-up that lies there is swept by that process alone, \
              and bytes in the ring are told once they have come by TCP",
        allows: reports_of_closed,
        parts: false,
    },
    Rule {
        name: "PRI of an end",
        why: "an urgent byte lies in the kernel's socket, which is not read any more once a ring says that the other \
              end has reset the connection",
        allows: urgent_at_the_end,
        parts: false,
    },
    Rule {
        name: "the first of two urgent bytes",
        why: "TCP drops an urgent byte that lies first in the stream when another comes. Before it lies a wake-up, if \
              the connection was in a ring",
        allows: first_urgent_byte,
        parts: false,
    },
];

/// The limit by which these answers to step `at` of a script differ, where they do by one.
#[must_use]
pub fn known(script: &Script, at: usize, plain: &str, carried: &str) -> Option<&'static Rule> {
    let asked = Asked { script, at };
    LIMITS.iter().find(|limit| (limit.allows)(&asked, plain, carried))
}

fn inner_edge_once_more(asked: &Asked, plain: &str, carried: &str) -> bool {
    let before: Vec<&str> = asked.before().collect();
    let had_one = |set| {
        let mut waits = before.iter().rev().filter(|step| waits_on(step, set));
        waits.next().is_some_and(|step| room_of(step) == Some(1))
    };
    let one = asked.sets().into_iter().any(had_one);
    let is_inner = |event: &&str| {
        let data = event.strip_prefix("IN/");
        data.is_some_and(|data| {
            asked.is_edge_of_set(data)
                && (one || asked.sets_of(data).any(|set| left_ring(asked, set)))
        })
    };
    let waits = asked.waits() && asked.step() != "collect";
    waits && more_of(plain, carried, is_inner)
}

/// Does `set` hold a connection that may be on TCP again?
fn left_ring(asked: &Asked, set: u64) -> bool {
    asked.registered_in(set).any(|slot| asked.may_leave_ring(slot))
}

/// Are the answers the same but for more events in the second, each of which is one of these?
fn more_of(plain: &str, carried: &str, is: impl Fn(&&str) -> bool) -> bool {
    left_over(carried, plain).is_some_and(|more| !more.is_empty() && more.iter().all(is))
}

fn edge_of_fin(asked: &Asked, plain: &str, carried: &str) -> bool {
    let mut beside = false;
    let mut shut = Vec::new();
    for step in asked.before() {
        match step {
            "collect" => beside = false,
            step if step.starts_with("go ") => beside = true,
            step if beside && !step.ends_with(" RD") => shut.extend(slot_of(step, "shut")),
            _ => {}
        }
    }
    let is_shut = |data: &str| {
        let mut given = asked.sets().into_iter().flat_map(|set| asked.given(set, data));
        given.any(|(slot, events)| asks(events, "ET") && shut.contains(&slot))
    };
    let told = |answer| events(answer).into_iter().filter(|event| bits(event).any(is_in)).count();
    asked.waits()
        && told(carried) < told(plain)
        && without_in(plain, is_shut) == without_in(carried, is_shut)
}

fn bits(event: &str) -> impl Iterator<Item = &str> {
    event.split('/').next().unwrap_or_default().split('|')
}

fn is_in(bit: &str) -> bool {
    bit == "IN"
}

/// What an answer tells but for bytes in events whose data is of these.
fn without_in(answer: &str, of: impl Fn(&str) -> bool) -> Vec<String> {
    let mut rest = Vec::new();
    for event in events(answer) {
        let data = event.split_once('/').map_or("", |(_, data)| data);
        let kept: Vec<&str> = bits(event).filter(|bit| !is_in(bit) || !of(data)).collect();
        rest.extend((!kept.is_empty()).then(|| format!("{}/{data}", kept.join("|"))));
    }
    rest.sort_unstable();
    rest
}

fn reports_of_closed(asked: &Asked, plain: &str, carried: &str) -> bool {
    let sets = asked.sets();
    let closed = |slot: u64| {
        let goes = |step: &&str| {
            let number = step.split(' ').next_back().and_then(|at| at.parse().ok());
            slot_of(step, "close") == Some(slot)
                || slot_of(step, "dup2").is_some() && number == Some(slot)
        };
        let mut after_fork = asked.before().skip_while(|step| *step != "fork");
        asked.is_connection(slot) && after_fork.any(|step| goes(&step))
    };
    let is_closed = |data: &str| {
        let level = |asked: &str| !asks(asked, "ET");
        let mut all = sets.iter().flat_map(|set| asked.given(*set, data));
        // Or of a set that has such a one.
        let inside =
            |set| asked.registrations(set).any(|(slot, asked)| level(asked) && closed(slot));
        all.any(|(slot, events)| level(events) && closed(slot)) || asked.sets_of(data).any(inside)
    };
    asked.waits()
        && sorted(plain) != sorted(carried)
        && without_in(plain, is_closed) == without_in(carried, is_closed)
}

fn urgent_at_the_end(asked: &Asked, plain: &str, carried: &str) -> bool {
    let is_urgent = |step: &str| step.ends_with(" OOB");
    let without = |answer: &str| {
        let of_one = |event: &str| {
            let (bits, data) = event.split_once('/').unwrap_or((event, ""));
            let ended = asks(bits, "HUP");
            let kept = bits.split('|').filter(|bit| !(ended && *bit == "PRI"));
            format!("{}/{data}", kept.collect::<Vec<_>>().join("|"))
        };
        events(answer).into_iter().map(of_one).collect::<Vec<_>>()
    };
    asked.before().any(is_urgent)
        && events(plain) != events(carried)
        && without(plain) == without(carried)
}

fn first_urgent_byte(asked: &Asked, plain: &str, carried: &str) -> bool {
    let reads = ["read", "recv", "readv", "recvmsg", "drain"];
    let reader = reads.iter().find_map(|call| slot_of(asked.step(), call));
    let numbers = reader.map(|slot| copies(asked, asked.other_end(slot).unwrap_or(slot)));
    let urgent = |step: &&str| {
        let by = slot_of(step, "send").filter(|_| step.ends_with(" OOB"));
        by.zip(numbers.as_ref()).is_some_and(|(by, numbers)| numbers.contains(&by))
    };
    let twice = asked.before().filter(urgent).count() > 1;
    twice && plain.matches("jumps").count() > carried.matches("jumps").count()
}

#[cfg(test)]
mod tests {
    use super::{Script, known};

    /// The limit by which the last step of a script differs.
    pub(super) fn limit(script: &str, plain: &str, carried: &str) -> Option<&'static str> {
        let script = Script::parse("", script);
        known(&script, script.steps.len() - 1, plain, carried).map(|limit| limit.name)
    }

    #[test]
    fn an_inner_edge_comes_once_more_behind_a_wait_with_one_place() {
        let rule = |how: &str, room: u64, plain, carried| {
            let script = format!(
                "tcp 1 2 both\nepoll 9\nepoll 8\nadd 9 8 {how} 108\nadd 9 1 IN 101\nwait 9 {room} 0\nwait 9 8 0"
            );
            limit(&script, plain, carried)
        };
        let more = Some("an inner edge once more");
        assert_eq!(rule("IN|ET", 1, "wait 1: IN/101", "wait 2: IN/101 IN/108"), more);
        assert_eq!(rule("IN|ET", 2, "wait 1: IN/101", "wait 2: IN/101 IN/108"), None);
        assert_eq!(rule("IN", 1, "wait 1: IN/101", "wait 2: IN/101 IN/108"), None);
        assert_eq!(rule("IN|ET", 1, "wait 2: IN/101 IN/108", "wait 1: IN/101"), None);
        assert_eq!(rule("IN|ET", 1, "wait 0:", "wait 1: IN/101"), None);
    }

    #[test]
    fn an_inner_edge_comes_once_more_beside_what_went_back_to_tcp() {
        let rule = |sends: &str| {
            let script = format!(
                "tcp 1 2 both\nepoll 9\nepoll 8\nadd 9 8 IN|ET 108\nadd 8 1 OUT 101\nwait 9 8 0\n{sends}\nwait 9 8 0"
            );
            limit(&script, "wait 0:", "wait 1: IN/108")
        };
        assert_eq!(rule("send 2 1 OOB"), Some("an inner edge once more"));
        assert_eq!(rule("send 2 1 DONTWAIT"), None);
    }

    #[test]
    fn an_acknowledged_fin_may_be_no_edge() {
        let told = |shut: &str, how: &str, plain, carried| {
            let script = format!(
                "tcp 5 6 both\nepoll 9\nadd 9 5 IN|{how} 105\nwrite 6 1\n{shut}\nwait 9 8 0"
            );
            limit(&script, plain, carried)
        };
        let rule = |shut: &str, how: &str| told(shut, how, "wait 1: IN/105", "wait 0:");
        let beside = "go T wait 9 16 150\nshut 5 WR\ncollect";
        assert_eq!(rule(beside, "ET"), Some("edge of an acknowledged FIN"));
        assert_eq!(rule(beside, "RDHUP"), None);
        assert_eq!(rule("shut 5 WR", "ET"), None);
        let (both, room) = ("wait 1: IN|OUT/105", "wait 1: OUT/105");
        assert_eq!(told(beside, "OUT|ET", both, room), Some("edge of an acknowledged FIN"));
        assert_eq!(told(beside, "OUT|ET", room, both), None);
    }

    #[test]
    fn a_number_that_is_closed_may_be_reported_early_or_late() {
        let rule = |how: &str, ends: &str, plain, carried| {
            let script =
                format!("tcp 3 4 both\nepoll 9\nadd 9 4 {how} 104\nfork\n{ends}\nwait 9 8 0");
            limit(&script, plain, carried)
        };
        let early = Some("reports of a closed number");
        assert_eq!(rule("IN", "close 4", "wait 0:", "wait 1: IN/104"), early);
        assert_eq!(rule("IN|ET", "close 4", "wait 0:", "wait 1: IN/104"), None);
        assert_eq!(rule("IN", "close 3", "wait 0:", "wait 1: IN/104"), None);
        assert_eq!(rule("IN", "close 4", "wait 1: IN/104", "wait 0:"), early);
        assert_eq!(rule("IN|ET", "close 4", "wait 1: IN/104", "wait 0:"), None);
        assert_eq!(rule("IN|OUT", "close 4", "wait 1: OUT/104", "wait 1: IN|OUT/104"), early);
    }

    #[test]
    fn urgent_bytes_stay_where_tcp_drops_them() {
        let rule = |sends: &str, step: &str, plain, carried| {
            limit(&format!("tcp 1 2 both\n{sends}\n{step}"), plain, carried)
        };
        let (pri, first) = (Some("PRI of an end"), Some("the first of two urgent bytes"));
        let poll = "poll 0 1:IN|PRI";
        assert_eq!(rule("send 2 1 OOB", poll, "poll 1: IN|HUP/1", "poll 1: IN|PRI|HUP/1"), pri);
        assert_eq!(rule("send 2 1 OOB", poll, "poll 1: IN/1", "poll 1: IN|PRI/1"), None);
        assert_eq!(rule("write 2 1", poll, "poll 1: IN|HUP/1", "poll 1: IN|PRI|HUP/1"), None);
        let two = "send 1 1 OOB\nsend 1 1 OOB";
        assert_eq!(rule(two, "recv 2 1 -", "got 1 jumps 2 at 0", "got 1"), first);
        assert_eq!(rule("send 1 1 OOB", "recv 2 1 -", "got 1 jumps 2 at 0", "got 1"), None);
        assert_eq!(rule(two, "recv 1 1 -", "got 1 jumps 2 at 0", "got 1"), None);
    }
}
