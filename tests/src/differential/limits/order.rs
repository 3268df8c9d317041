//! Limits of the order of events, and of which there are where an answer is full.

use super::super::asked::{Asked, asks, copies, room_of, slot_of, waits_on};
use super::super::rules::{events, sorted};

pub(super) fn place_of_what_was_read(asked: &Asked, plain: &str, carried: &str) -> bool {
    let [set] = asked.sets()[..] else { return false };
    let before: Vec<&str> = asked.before().collect();
    let since = before.iter().rposition(|step| waits_on(step, set)).map_or(0, |at| at + 1);
    let moves = |slot: u64, calls: &[&str]| {
        let of = |step: &&&str| calls.iter().any(|call| slot_of(step, call) == Some(slot));
        before[since..].iter().filter(of).count()
    };
    let was_read = |slot: u64| {
        let read = moves(slot, &["read", "recv", "readv", "recvmsg", "drain"]);
        let writers = asked.other_end(slot);
        let written = writers
            .map_or(0, |writer| moves(writer, &["write", "send", "writev", "sendmsg", "sendfile"]));
        read > 0 && written > 2
    };
    let is_of_one = |event: &&str| {
        let data = event.split_once('/').map_or("", |(_, data)| data);
        asked.given(set, data).any(|(slot, events)| asks(events, "ET") && was_read(slot))
    };
    let others = |answer| events(answer).into_iter().filter(|event| !is_of_one(event)).collect();
    let (before, now): (Vec<&str>, Vec<&str>) = (others(plain), others(carried));
    asked.waits() && sorted(plain) == sorted(carried) && before == now
}

pub(super) fn order_beside_a_child(asked: &Asked, plain: &str, carried: &str) -> bool {
    // Each of the two looks at the set anew for it.
    let changed = |set: &u64| {
        let mut since_fork = asked.before().skip_while(|step| *step != "fork");
        let calls = ["add", "mod", "del"];
        since_fork.any(|step| calls.iter().any(|call| slot_of(step, call) == Some(*set)))
    };
    asked.waits() && asked.sets().iter().any(changed) && sorted(plain) == sorted(carried)
}

pub(super) fn order_of_many(asked: &Asked, plain: &str, carried: &str) -> bool {
    let more = |(set, room): (u64, usize)| registered(asked, set).len() > room;
    // Or of one that was waited on so before.
    let before = asked.before().filter(|step| step.contains("wait "));
    let waits = before.chain([asked.step()]).filter_map(|step| {
        let set = asked.sets().into_iter().find(|set| waits_on(step, *set))?;
        Some((set, room_of(step)?))
    });
    asked.waits() && sorted(plain) == sorted(carried) && { waits }.any(more)
}

pub(super) fn order_inside(asked: &Asked, plain: &str, carried: &str) -> bool {
    let is_inner = |set: &u64| {
        let registers = |step: &str| {
            let mut words = step.split(' ').skip_while(|word| *word != "add").skip(2);
            words.next().and_then(|slot| slot.parse().ok()) == Some(*set)
        };
        asked.before().any(registers)
    };
    // What was read, or filled, is empty, and taken off.
    let may_be_empty = |set: &u64| {
        let slots: Vec<u64> =
            registered(asked, *set).into_iter().flat_map(|slot| copies(asked, slot)).collect();
        let calls = ["read", "recv", "readv", "recvmsg", "drain", "fill"];
        let empties = |step: &str| {
            let mut of = calls.iter().filter_map(|call| slot_of(step, call));
            of.any(|slot| slots.contains(&slot))
        };
        asked.before().any(empties)
    };
    let room = asked.rooms().iter().sum::<usize>();
    let full = |answer| events(answer).len() == room;
    let more = |set: &u64| registered(asked, *set).len() > room;
    let others = full(plain) && full(carried) && asked.sets().iter().any(more);
    let fits = |set: &u64| is_inner(set) && may_be_empty(set);
    asked.waits() && asked.sets().iter().any(fits) && (sorted(plain) == sorted(carried) || others)
}

/// The slots that were registered in `set`, each once.
fn registered(asked: &Asked, set: u64) -> Vec<u64> {
    let mut slots: Vec<u64> = asked.registered_in(set).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

#[cfg(test)]
mod tests {
    use super::super::tests::limit;

    #[test]
    fn an_edge_that_was_read_may_have_another_place() {
        let rule = |writes: usize, reads: &str| {
            let script = format!(
                "tcp 1 2 both\nepoll 9\nadd 9 1 IN|ET 101\nadd 9 2 IN 102\nwrite 2 100\n{reads}\nwrite 1 1\n{}wait 9 8 0",
                "write 2 1\n".repeat(writes)
            );
            limit(&script, "wait 2: IN/101 IN/102", "wait 2: IN/102 IN/101")
        };
        assert_eq!(rule(2, "drain 1"), Some("place of an edge that was read"));
        assert_eq!(rule(1, "drain 1"), None);
        assert_eq!(rule(2, "inq 1"), None);
    }

    #[test]
    fn a_set_of_two_processes_may_tell_in_another_order() {
        let rule = |steps: &str| {
            let script = format!("tcp 3 4 both\nepoll 9\nadd 9 3 IN 103\nadd 9 4 IN 104\n{steps}");
            limit(&script, "wait 2: IN/103 IN/104", "wait 2: IN/104 IN/103")
        };
        let order = Some("order in a set of two processes");
        assert_eq!(rule("fork\nB mod 9 3 IN 103\nwait 9 8 0"), order);
        assert_eq!(rule("fork\nmod 9 3 IN 103\nB wait 9 8 0"), order);
        assert_eq!(rule("mod 9 3 IN 103\nfork\nwait 9 8 0"), None);
        assert_eq!(rule("fork\nB mod 8 3 IN 103\nwait 9 8 0"), None);
        assert_eq!(rule("fork\nwait 9 8 0"), None);
    }

    #[test]
    fn a_set_that_holds_more_than_a_wait_may_tell_in_another_order() {
        let rule = |room: u64| {
            let script = format!(
                "tcp 3 4 both\nepoll 9\nadd 9 3 IN 103\nadd 9 4 IN 104\nadd 9 5 IN 105\nwait 9 {room} 0"
            );
            limit(&script, "wait 2: IN/103 IN/104", "wait 2: IN/104 IN/103")
        };
        assert_eq!(rule(2), Some("order where not all have a place"));
        assert_eq!(rule(3), None);
    }

    #[test]
    fn an_inner_set_may_tell_in_another_order() {
        let rule = |read: &str, set: u64| {
            let script = format!(
                "tcp 3 4 both\nepoll 8\nepoll 9\nadd 8 9 IN 109\nadd 9 3 IN 103\nadd 9 4 IN 104\n{read}\nwait {set} 8 0"
            );
            limit(&script, "wait 2: IN/103 IN/104", "wait 2: IN/104 IN/103")
        };
        assert_eq!(rule("drain 3", 9), Some("order in an inner set"));
        assert_eq!(rule("drain 3", 8), None);
        assert_eq!(rule("inq 3", 9), None);
        let full = |room: u64| {
            let script = format!(
                "epoll 8\nepoll 9\nadd 8 9 IN 109\nadd 9 3 IN 103\nadd 9 4 IN 104\nread 3 1\nwait 9 {room} 0"
            );
            limit(&script, "wait 1: IN/103", "wait 1: IN/104")
        };
        assert_eq!((full(1), full(2)), (Some("order in an inner set"), None));
    }
}
