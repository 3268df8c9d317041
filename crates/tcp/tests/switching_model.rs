//! The switching protocol of `docs/protocol.md` as a state machine, walked to the last state.
//!
//! [`state`] is what there is, [`model`] what may happen, and this file the situations that are
//! walked: each small enough to visit every order of every step. Nothing here uses the crate's
//! code: it is the rules that are checked. Then every rule that carries weight is left out in turn,
//! and the checker must find the run that goes wrong.
//!
//! `cargo test -p ginnel-tcp --test main switching_model:: -- --nocapture` prints how many states
//! each walk visited.

mod model;
mod state;

use std::time::Instant;

use model::{Broken, Protocol};
use stateright::{Checker, HasDiscoveries, Model};

const A_ALONE: [bool; 2] = [true, false];
const B_ALONE: [bool; 2] = [false, true];
const BOTH: [bool; 2] = [true, true];

/// A writes, switches back and forth; B reads and freezes.
fn switching() -> Protocol {
    Protocol {
        bytes: [4, 0],
        upgrades: [2, 0],
        downgrades: [2, 0],
        freezes: [0, 1],
        ..Protocol::default()
    }
}

/// As [`switching`], and A shuts down somewhere.
fn ending() -> Protocol {
    Protocol { bytes: [3, 0], downgrades: [1, 0], shutdown: A_ALONE, ..switching() }
}

/// B's program sleeps in level-triggered sets, behind the shim's back.
fn level_sets() -> Protocol {
    Protocol {
        bytes: [4, 0],
        upgrades: [2, 0],
        downgrades: [1, 0],
        level_sets: true,
        ..Protocol::default()
    }
}

/// B wants to hand its incoming direction to a program without the shim.
fn handing_over() -> Protocol {
    Protocol { bytes: [3, 0], downgrades: [1, 0], hand_over: B_ALONE, ..switching() }
}

/// Both rings are full again and again, and only tokens wake.
fn full_rings() -> Protocol {
    Protocol { upgraded: true, bytes: [3, 2], ring: 1, coarse: true, ..Protocol::default() }
}

/// As [`full_rings`], and B's direction, on which A's space tokens come, switches.
fn full_rings_switching() -> Protocol {
    Protocol { bytes: [3, 1], upgrades: [0, 1], downgrades: [0, 1], ..full_rings() }
}

/// As [`full_rings_switching`] with less to do and no two steps in one.
fn full_rings_finely() -> Protocol {
    Protocol { bytes: [2, 0], upgrades: [0, 0], coarse: false, ..full_rings_switching() }
}

/// As [`full_rings`], and B freezes A's direction and shuts its own down.
fn full_rings_ending() -> Protocol {
    Protocol { bytes: [3, 1], freezes: [0, 1], shutdown: B_ALONE, ..full_rings() }
}

/// As [`full_rings`], and A upgrades again after a freeze left bytes in the ring.
fn full_rings_frozen() -> Protocol {
    Protocol { bytes: [3, 0], upgrades: [1, 0], freezes: [0, 1], ..full_rings() }
}

/// A closes while bytes and tokens are on the wire.
fn closing() -> Protocol {
    Protocol {
        bytes: [2, 1],
        upgrades: [1, 1],
        close: A_ALONE,
        coarse: true,
        instant: false,
        ..Protocol::default()
    }
}

/// A closes while it sleeps, or slept, on a full ring.
fn closing_full() -> Protocol {
    Protocol { upgraded: true, bytes: [3, 1], close: A_ALONE, coarse: true, ..Protocol::default() }
}

/// Both close when they like, and A switches and freezes.
fn closing_both() -> Protocol {
    let switches =
        Protocol { upgrades: [1, 1], downgrades: [1, 0], freezes: [0, 1], ..Protocol::default() };
    Protocol { bytes: [1, 1], close: BOTH, coarse: true, ..switches }
}

/// B sleeps by a waiter that A cannot ring.
fn unheard() -> Protocol {
    Protocol { bytes: [3, 0], unheard: B_ALONE, nudges: [1, 0], ..switching() }
}

/// Both close when they like, cannot ring each other, and send tokens for nothing.
fn closing_unheard() -> Protocol {
    Protocol {
        upgraded: true,
        bytes: [1, 1],
        unheard: BOTH,
        nudges: [1, 1],
        downgrades: [1, 0],
        close: BOTH,
        coarse: true,
        ..Protocol::default()
    }
}

/// The writer is killed somewhere in its switches.
fn writer_dies() -> Protocol {
    let switches =
        Protocol { upgrades: [1, 1], downgrades: [1, 0], freezes: [0, 1], ..Protocol::default() };
    Protocol { bytes: [2, 0], kill: A_ALONE, instant: false, coarse: true, ..switches }
}

/// The reader is killed while the writer may sleep on a full ring.
fn reader_dies() -> Protocol {
    Protocol { bytes: [3, 1], upgrades: [1, 1], kill: B_ALONE, coarse: true, ..Protocol::default() }
}

/// Walks every run, and says how many states there were.
fn holds(name: &str, rules: Protocol) {
    let begun = Instant::now();
    let checker = rules.checker().threads(1).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {states} states, {depth} deep, {:.1} s", begun.elapsed().as_secs_f32());
    checker.assert_properties();
}

/// Leaves a rule out: some run must now break one of these properties, named by their numbers.
fn needs(rule: Broken, properties: &str, rules: Protocol) {
    let rules = Protocol { broken: Some(rule), ..rules };
    let is_meant = |name: &str| name.starts_with(|number| properties.contains(number));
    let wanted = rules
        .properties()
        .iter()
        .map(|property| property.name)
        .filter(|name| is_meant(name))
        .collect();
    let checker =
        rules.checker().threads(1).finish_when(HasDiscoveries::AnyOf(wanted)).spawn_bfs().join();
    let found = checker.discoveries();
    let broken = found.into_iter().find(|(name, _)| is_meant(name));
    let Some((name, path)) = broken else {
        let states = checker.unique_state_count();
        panic!("{rule:?}: no run breaks {properties} in {states} states");
    };
    let steps: Vec<_> = path
        .into_actions()
        .iter()
        .map(|step| format!("{}:{:?}", ["A", "B"][step.0], step.1))
        .collect();
    println!("{rule:?} breaks {name} after {} steps: {}", steps.len(), steps.join(" "));
}

#[test]
#[ignore = "test-all: millions of states, a minute"]
fn one_direction_switches() {
    holds("switching", switching());
    holds("ending", ending());
    holds("level-triggered sets", level_sets());
    holds("handing over", handing_over());
    holds("unheard", unheard());
}

#[test]
#[ignore = "test-all: millions of states, a minute"]
fn full_rings_never_lock() {
    holds("full rings", full_rings());
    holds("full rings, switching", full_rings_switching());
    holds("full rings, step by step", full_rings_finely());
    holds("full rings, ending", full_rings_ending());
    holds("full rings, frozen", full_rings_frozen());
}

#[test]
fn closes_are_clean() {
    holds("closing", closing());
    holds("closing on a full ring", closing_full());
    holds("closing on both sides", closing_both());
    holds("closing unheard", closing_unheard());
}

#[test]
fn deaths_wake_the_other_end() {
    holds("writer dies", writer_dies());
    holds("reader dies", reader_dies());
}

#[test]
fn fionread_and_fin_come_before_the_records() {
    needs(Broken::RecordsBeforeFionread, "2", switching());
    needs(Broken::FinAfterRecords, "15", ending());
}

#[test]
fn upgrades_wait() {
    needs(Broken::UpgradeBeforeAck, "2", switching());
    needs(Broken::UpgradeBeforeResent, "12", switching());
}

#[test]
fn tokens_are_thrown_away_in_time() {
    needs(Broken::TokensLeaveBeforeData, "3", Protocol { downgrades: [0, 0], ..level_sets() });
    needs(Broken::TokensPastDowngrade, "2", switching());
    needs(Broken::OwedTokensUncounted, "2", switching());
}

#[test]
fn sleepers_look_again() {
    needs(Broken::SleepOnEmptyUnchecked, "3", switching());
    needs(Broken::SleepOnFullUnchecked, "3", full_rings_finely());
    needs(Broken::TokenSourceUnchecked, "3", full_rings_finely());
    needs(Broken::TokenWithoutSource, "3", switching());
    needs(Broken::TokenWakesOneThread, "3", full_rings());
}

#[test]
fn downgrades_wake() {
    needs(Broken::DowngradeInSilence, "3", full_rings_switching());
    needs(Broken::DowngradeWakesTheArmed, "3", full_rings_switching());
    needs(Broken::StaleHeadCounts, "3", full_rings_frozen());
    needs(Broken::UnrungInSilence, "3", unheard());
    needs(Broken::PromisedOnce, "3", unheard());
}

#[test]
fn freezes_and_holds_bind() {
    needs(Broken::FreezeWithoutEpoch, "1", switching());
    needs(Broken::HoldApart, "2", handing_over());
    needs(Broken::HoldUnchecked, "3", handing_over());
}

#[test]
fn closes_wait_for_their_tokens() {
    needs(Broken::CloseWithoutWaiting, "5", closing());
    needs(Broken::SpaceLeftArmed, "5", closing_full());
    needs(Broken::UnenteredCountsAsArmed, "5", Protocol { bytes: [0, 2], ..closing() });
    needs(Broken::DowngradeTokenUnpromised, "5", closing_both());
    needs(Broken::UnrungUnpromised, "5", closing_unheard());
}

#[test]
fn a_short_resend_is_no_end_of_file() {
    needs(Broken::ShortResendBelieved, "1", writer_dies());
}
