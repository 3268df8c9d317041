//! Every run in small of a barrier of three, any of which dies at any step and is followed by
//! another, or gives up. `src/barrier.rs` says what the words mean; each step here is one access to
//! one of them, in its order.
//!
//! | rule left out | what goes wrong |
//! |---|---|
//! | who gives up looks whether all had come before | it is told that it has not come, and it had |
//! | who takes a seat takes the bit of the one before away | others go on before it has come |
//! | who is dead is looked at before who has come | one that had come is taken for one that had not |

use stateright::{Model, Property};

const PARTIES: usize = 3;
const DEATHS: u8 = 2;
const TIMES: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Party {
    /// Has taken the seat, and not looked at the bit.
    Sits,
    Comes,
    /// Has come, when all had so often.
    Waits(u8),
    /// Saw this one dead; or, where that rule is left out, that it had not come.
    Sees(u8, usize),
    /// Takes its bit back.
    GivesUp(u8),
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    come: [bool; PARTIES],
    times: u8,
    parties: [Party; PARTIES],
    /// Whoever lives and waits was among those that all had come with.
    counted: [bool; PARTIES],
    deaths: u8,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    LookingBack,
    TakingTheBit,
    Order,
}

struct Barrier(Without);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Step(usize),
    /// Looks whether this one is dead.
    Look(usize, usize),
    /// Its time is over.
    TimeOut(usize),
    Kill(usize),
}

impl Barrier {
    fn come(state: &mut State, at: usize) -> Party {
        state.come[at] = true;
        state.counted[at] = false;
        if state.come != [true; PARTIES] {
            return Party::Waits(state.times);
        }
        // Those that wait or died after they had come; one that has only taken its seat has not.
        if state.parties.iter().any(|party| matches!(party, Party::Comes)) && {
            let here = |&(other, party): &(usize, &Party)| other != at && *party == Party::Comes;
            state.parties.iter().enumerate().any(|pair| here(&pair))
        } {
            state.wrong = Some("all go on, and one has not come");
        }
        state.come = [false; PARTIES];
        state.times += 1;
        state.counted = [true; PARTIES];
        Party::Comes
    }

    fn step(&self, state: &mut State, at: usize) {
        state.parties[at] = match state.parties[at] {
            Party::Sits => {
                if self.0 != Without::TakingTheBit {
                    state.come[at] = false;
                }
                Party::Comes
            }
            Party::Comes if state.times < TIMES => Self::come(state, at),
            Party::Comes => Party::Comes,
            Party::Waits(before) if state.times != before => {
                if !state.counted[at] {
                    state.wrong = Some("one goes on that has not come");
                }
                Party::Comes
            }
            Party::Sees(before, other) => {
                let broken = match self.0 {
                    // It asks now who is dead, after it saw that it had not come.
                    Without::Order => state.parties[other] == Party::Dead,
                    _ => state.parties[other] == Party::Dead && !state.come[other],
                };
                if !broken {
                    Party::Waits(before)
                } else {
                    if state.come[other] {
                        state.wrong = Some("one that had come is taken for one that had not");
                    }
                    Party::GivesUp(before)
                }
            }
            Party::GivesUp(before) => {
                let all_had = state.times != before && self.0 != Without::LookingBack;
                if state.times == before {
                    state.come[at] = false;
                }
                if !all_had && state.counted[at] {
                    state.wrong = Some("one is told that it has not come, and it had");
                }
                Party::Comes
            }
            // Another takes its seat.
            Party::Dead => Party::Sits,
            waits => waits,
        };
    }
}

impl Model for Barrier {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            come: [false; PARTIES],
            times: 0,
            parties: [Party::Comes; PARTIES],
            counted: [false; PARTIES],
            deaths: 0,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        for at in 0..PARTIES {
            actions.extend([Action::Step(at), Action::TimeOut(at)]);
            actions.extend((0..PARTIES).map(|other| Action::Look(at, other)));
            if state.deaths < DEATHS {
                actions.push(Action::Kill(at));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Step(at) => self.step(&mut next, at),
            Action::Look(at, other) => {
                let Party::Waits(before) = state.parties[at] else { return None };
                let seen = match self.0 {
                    Without::Order => !state.come[other],
                    _ => state.parties[other] == Party::Dead,
                };
                if seen && at != other {
                    next.parties[at] = Party::Sees(before, other);
                }
            }
            Action::TimeOut(at) => {
                let Party::Waits(before) = state.parties[at] else { return None };
                next.parties[at] = Party::GivesUp(before);
            }
            Action::Kill(at) => {
                next.parties[at] = Party::Dead;
                next.deaths += 1;
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(TOGETHER, |_, state: &State| state.wrong.is_none())]
    }
}

const TOGETHER: &str = "all go on together, and who does not has not come";

fn discoveries(without: Without) -> Vec<&'static str> {
    crate::model::discoveries(Barrier(without), without, without == Without::Nothing)
}

#[test]
fn every_run_is_right() {
    assert_eq!(discoveries(Without::Nothing), [""; 0]);
}

#[test]
fn each_rule_is_needed() {
    for without in [Without::LookingBack, Without::TakingTheBit, Without::Order] {
        assert!(!discoveries(without).is_empty(), "{without:?}");
    }
}
