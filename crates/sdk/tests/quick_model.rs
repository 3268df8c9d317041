//! Every run in small of System V operations on one semaphore: one that sleeps, and two more, of
//! which some do without the lock. Any of them may die at any step. `src/sysv/quick.rs` and
//! `src/sysv/transaction.rs` say what the words mean; each step here is one access to one of them,
//! in its order.
//!
//! | rule left out | what goes wrong |
//! |---|---|
//! | who changes a word without the lock looks at the queue once more | one sleeps, and could go on |
//! | a word is marked until who waits for it is in the queue | one sleeps, and could go on |
//! | who does without the lock lets a marked word alone | what it did is lost |

use stateright::{Model, Property};

const PARTIES: usize = 3;

/// What is done with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Long {
    Add(i8),
    /// Has the sleeper go on, if it can. True: it is the sleeper itself, which sleeps again.
    Look(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Party {
    /// Without the lock: looks at the queue, at the word, exchanges it, looks at the queue again.
    Begins(i8),
    Loads(i8),
    Exchanges(i8, i8),
    LooksAgain(i8),
    /// With it.
    Locks(Long),
    Marks(Long),
    Has(Long, i8),
    Enters,
    /// Where that rule is left out: the mark is gone, and it is not in the queue yet.
    EntersLate,
    /// Takes the mark away, then gives the lock back. True: it sleeps then.
    Unmarks(bool),
    Unlocks(bool),
    Sleeps,
    Over,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    value: i8,
    marked: bool,
    holder: Option<usize>,
    queued: bool,
    done: bool,
    /// What the value would be, of all that was done.
    sum: i8,
    parties: [Party; PARTIES],
    deaths: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    LookingAgain,
    Marking,
    LettingAlone,
}

struct Quick(Without);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Step(usize),
    /// A tenth of a second is over.
    Wake(usize),
    Kill(usize),
}

impl Quick {
    #[allow(clippy::too_many_lines, reason = "every step of every party")]
    fn step(&self, state: &mut State, at: usize) {
        let refused = state.marked && self.0 != Without::LettingAlone;
        state.parties[at] = match state.parties[at] {
            Party::Begins(add) if state.queued => Party::Locks(Long::Add(add)),
            Party::Begins(add) => Party::Loads(add),
            Party::Loads(add) if refused || state.value + add < 0 => Party::Locks(Long::Add(add)),
            Party::Loads(add) => Party::Exchanges(add, state.value),
            Party::Exchanges(add, seen) if refused || state.value != seen => Party::Loads(add),
            Party::Exchanges(add, seen) => {
                state.value = seen + add;
                state.sum += add;
                Party::LooksAgain(add)
            }
            Party::LooksAgain(add) => {
                let look = add > 0 && state.queued && self.0 != Without::LookingAgain;
                if look { Party::Locks(Long::Look(false)) } else { Party::Over }
            }
            Party::Locks(long) => match state.holder {
                None => {
                    state.holder = Some(at);
                    Party::Marks(long)
                }
                Some(holder) if state.parties[holder] == Party::Dead => {
                    (state.holder, state.marked) = (Some(at), false);
                    Party::Marks(long)
                }
                Some(_) => Party::Locks(long),
            },
            Party::Marks(long) => {
                state.marked = true;
                Party::Has(long, state.value)
            }
            Party::Has(Long::Add(add), seen) if seen + add < 0 => Party::Enters,
            Party::Has(Long::Add(add), seen) => {
                state.value = seen + add;
                state.sum += add;
                let look = add > 0 && state.queued;
                if look { Party::Has(Long::Look(false), seen + add) } else { Party::Unmarks(false) }
            }
            Party::Has(Long::Look(sleeps), seen) => {
                if state.queued && seen > 0 {
                    // Both by the log: all or nothing.
                    (state.value, state.sum) = (seen - 1, state.sum - 1);
                    (state.queued, state.done) = (false, true);
                }
                Party::Unmarks(sleeps)
            }
            Party::Enters if self.0 == Without::Marking => {
                state.marked = false;
                Party::EntersLate
            }
            Party::Enters | Party::EntersLate => {
                state.queued = true;
                Party::Unmarks(true)
            }
            Party::Unmarks(sleeps) => {
                state.marked = false;
                Party::Unlocks(sleeps)
            }
            Party::Unlocks(sleeps) => {
                state.holder = None;
                if sleeps { Party::Sleeps } else { Party::Over }
            }
            Party::Sleeps if state.done => Party::Over,
            other => other,
        };
    }
}

/// Nobody does anything any more.
fn is_quiet(state: &State) -> bool {
    let quiet = |party: &Party| matches!(party, Party::Over | Party::Dead | Party::Sleeps);
    state.parties.iter().all(quiet) && !state.done
}

impl Model for Quick {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let first = Party::Locks(Long::Add(-1));
        let of = |others: [Party; 2]| State {
            value: 0,
            marked: false,
            holder: None,
            queued: false,
            done: false,
            sum: 0,
            parties: [first, others[0], others[1]],
            deaths: 0,
        };
        let quick = Party::Begins(1);
        vec![
            of([quick, quick]),
            of([quick, Party::Locks(Long::Add(1))]),
            of([quick, Party::Begins(-1)]),
        ]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for at in 0..PARTIES {
            actions.push(Action::Step(at));
            if state.parties[at] == Party::Sleeps && state.deaths > 0 {
                actions.push(Action::Wake(at));
            }
            let ended = matches!(state.parties[at], Party::Over | Party::Dead);
            if !ended && state.deaths < 2 {
                actions.push(Action::Kill(at));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Step(at) => self.step(&mut next, at),
            Action::Wake(at) => next.parties[at] = Party::Locks(Long::Look(true)),
            Action::Kill(at) => {
                next.parties[at] = Party::Dead;
                next.deaths += 1;
                // Its place in the queue is a dead one's.
                next.queued &= at != 0;
            }
        }
        // A second sleeper, of those that take one, has no place here.
        let second = |at: usize| matches!(next.parties[at], Party::Enters | Party::EntersLate);
        if (1..PARTIES).any(second) {
            return None;
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let woken = |_: &Self, state: &State| {
            let sleeps = state.parties.contains(&Party::Sleeps);
            !(is_quiet(state) && sleeps && state.value > 0 && state.deaths == 0)
        };
        vec![
            Property::always(WOKEN, woken),
            Property::always(KEPT, |_, state: &State| state.value == state.sum),
        ]
    }
}

const WOKEN: &str = "nobody sleeps that could go on";
const KEPT: &str = "what was done is not lost";

fn discoveries(without: Without) -> Vec<&'static str> {
    crate::model::discoveries(Quick(without), without, without == Without::Nothing)
}

#[test]
fn every_run_is_right() {
    assert_eq!(discoveries(Without::Nothing), [""; 0]);
}

#[test]
fn each_rule_is_needed() {
    for without in [Without::LookingAgain, Without::Marking, Without::LettingAlone] {
        assert!(!discoveries(without).is_empty(), "{without:?}");
    }
}
