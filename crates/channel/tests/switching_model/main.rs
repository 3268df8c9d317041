//! The switching protocol of docs/protocol.md as a state machine, walked to the last state.
mod model;
mod state;

use model::{Broken, Protocol};
use stateright::{Checker, HasDiscoveries, Model};

fn walk(name: &str, rules: Protocol) {
    let t = std::time::Instant::now();
    let checker = rules.checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
    println!("{name}: {} states, depth {}, {:?}", checker.unique_state_count(), checker.max_depth(), t.elapsed());
    for (p, path) in checker.discoveries() {
        println!("VIOLATED {p}");
        let last = *path.last_state();
        for a in path.into_actions() { print!(" {}:{:?}", ["A","B"][a.0], a.1); }
        println!("\n{last:?}");
        panic!();
    }
}

#[test]
fn one_way() {
    walk("one direction", Protocol { bytes: [4, 0], upgrades: [2, 0], downgrades: [2, 0], freezes: [0, 1], ..Protocol::default() });
}
#[test]
fn one_way_level() {
    walk("one level", Protocol { bytes: [4, 0], upgrades: [2, 0], downgrades: [1, 0], level_sets: true, ..Protocol::default() });
}
#[test]
fn one_way_shut() {
    walk("one shut", Protocol { bytes: [3, 0], upgrades: [2, 0], downgrades: [1, 0], freezes: [0, 1], shutdown: [true, false], ..Protocol::default() });
}
#[test]
fn hand_over() {
    walk("hand over", Protocol { bytes: [3, 0], upgrades: [2, 0], downgrades: [1, 0], freezes: [0, 1], hand_over: [false, true], ..Protocol::default() });
}
#[test]
fn full_both() {
    walk("full", Protocol { bytes: [3, 3], upgrades: [1, 1], ..Protocol::default() });
}
#[test]
fn full_down() {
    walk("full down", Protocol { bytes: [4, 2], upgrades: [1, 1], downgrades: [0, 1], ..Protocol::default() });
}
#[test]
fn full_freeze() {
    walk("full freeze", Protocol { bytes: [4, 1], upgrades: [1, 1], freezes: [0, 1], shutdown: [false, true], ..Protocol::default() });
}
#[test]
fn close() {
    walk("close", Protocol { bytes: [2, 1], upgrades: [1, 1], instant: false, close: [true, false], ..Protocol::default() });
}
#[test]
fn close_full() {
    walk("close_full", Protocol { bytes: [3, 1], upgrades: [1, 1], close: [true, false], ..Protocol::default() });
}
#[test]
fn close_both() {
    walk("close both", Protocol { bytes: [1, 1], upgrades: [1, 1], downgrades: [1, 0], close: [true, true], ..Protocol::default() });
}
#[test]
fn death() {
    walk("death", Protocol { bytes: [3, 0], upgrades: [1, 1], downgrades: [1, 0], freezes: [0, 1], kill: [true, false], instant: false, ..Protocol::default() });
}
#[test]
fn death_reader() {
    walk("death reader", Protocol { bytes: [3, 1], upgrades: [1, 1], kill: [false, true], ..Protocol::default() });
}
