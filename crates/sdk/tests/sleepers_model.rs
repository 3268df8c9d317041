//! Every run in small of three parties at a mutex, a semaphore of two permits, or an event that
//! resets itself. Any of them may die at any step, give up, or be taken for dead. `src/mutex.rs`,
//! `src/semaphore.rs`, `src/event.rs` and `src/waitlist.rs` say what the words mean; each step here
//! is one access to one of them, in its order.
//!
//! Nobody looks after a tenth of a second here, but where a death calls for it: one that had a
//! permit, or was to wake somebody.
//!
//! | rule left out | what goes wrong |
//! |---|---|
//! | who has asked to be woken looks once more before it sleeps | it sleeps, and there is a permit |
//! | who was asked to go on, and gives up or has a permit already, wakes the next | the next sleeps, and there is one |
//! | who takes from a dead one says so | what the mutex protects is half changed, and nobody knows |
//! | who gives back gives back its own | one that was taken for dead gives another's to a third |
//! | who makes permits of the dead free tells as many | one sleeps, and there is one |
//! | who sets an event that is set wakes, too | the first died before it woke anybody; one sleeps |

mod steps;

use stateright::{Model, Property};

const PARTIES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Word {
    /// Not there; an event that is not set.
    Absent,
    Free,
    Had(usize),
}

/// What a party does after it has woken others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Holds(usize),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Party {
    /// Looks at this word. `asked`: with a wish in the list; `looks`: before it sleeps.
    Takes {
        at: usize,
        asked: bool,
        looks: bool,
    },
    Asks,
    SetsBit,
    /// Looks whether who has this word is dead. So many were made free.
    LooksForDead {
        at: usize,
        freed: usize,
    },
    /// Takes a permit after that.
    TakesAfter {
        at: usize,
        freed: usize,
    },
    Sleeps,
    /// Its time is over.
    GivesUp,
    /// Has this word, and a wish.
    TakesBack(usize, usize),
    Holds(usize),
    /// Is about to look at the bits, and to wake so many.
    Tells(usize, Then),
    /// Goes through the bits that it saw.
    Wakes {
        bits: u8,
        most: usize,
        then: Then,
    },
    /// Sets the event.
    Sets,
    Over,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    words: Vec<Word>,
    /// What a mutex protects may be half changed: as its word says, and in truth.
    half: (bool, bool),
    parties: [Party; PARTIES],
    places: [bool; PARTIES],
    bits: u8,
    /// Says of itself that it sleeps; was rung.
    sleeping: [bool; PARTIES],
    rung: [bool; PARTIES],
    /// Taken for dead.
    lost: [bool; PARTIES],
    /// How often one died, was taken for dead, or gave up.
    deaths: u8,
    /// One died that was to wake somebody.
    owed: bool,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mutex,
    Semaphore,
    /// One whose permits are all had by one that may die.
    OfDead,
    Event,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    Looking,
    PassingOn,
    Telling,
    OwnOnly,
    TellingAll,
    WakingAgain,
}

struct Sleepers(Kind, Without);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Step(usize),
    /// A tenth of a second is over.
    LookAgain(usize),
    GiveUp(usize),
    Kill(usize),
    Lose(usize),
}

const FIRST: Party = Party::Takes { at: 0, asked: false, looks: false };

impl Model for Sleepers {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let (words, parties) = match self.0 {
            Kind::Mutex => (vec![Word::Free], [FIRST; PARTIES]),
            Kind::Semaphore => (vec![Word::Free, Word::Free], [FIRST; PARTIES]),
            Kind::OfDead => (vec![Word::Had(2), Word::Had(2)], [FIRST, FIRST, Party::Holds(0)]),
            Kind::Event => (vec![Word::Absent], [FIRST, Party::Sets, Party::Sets]),
        };
        vec![State {
            words,
            half: (false, false),
            parties,
            places: [false; PARTIES],
            bits: 0,
            sleeping: [false; PARTIES],
            rung: [false; PARTIES],
            lost: [false; PARTIES],
            deaths: 0,
            owed: false,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        for at in 0..PARTIES {
            actions.push(Action::Step(at));
            let lives = !matches!(state.parties[at], Party::Dead | Party::Over);
            if state.parties[at] == Party::Sleeps && self.looks_by_itself(state) {
                actions.push(Action::LookAgain(at));
            }
            if state.parties[at] == Party::Sleeps && state.deaths == 0 {
                actions.push(Action::GiveUp(at));
            }
            if lives && state.deaths == 0 {
                actions.push(Action::Kill(at));
                if self.0 == Kind::Mutex {
                    actions.push(Action::Lose(at));
                }
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Step(at) => self.step(&mut next, at),
            Action::LookAgain(at) => next.rung[at] = true,
            Action::GiveUp(at) => {
                (next.parties[at], next.deaths) = (Party::GivesUp, state.deaths + 1)
            }
            Action::Kill(at) => self.kill(&mut next, at),
            Action::Lose(at) => {
                next.lost[at] = true;
                next.deaths += 1;
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let wakes = |model: &Self, state: &State| {
            let sleeps = state.parties.contains(&Party::Sleeps);
            let excused = state.owed || model.looks_by_itself(state);
            !(Self::is_quiet(state) && sleeps && state.words.contains(&Word::Free)) || excused
        };
        vec![
            Property::always(RIGHT, |_, state: &State| state.wrong.is_none()),
            Property::always(WOKEN, wakes),
        ]
    }
}

const RIGHT: &str = "nobody has what is another's, and who follows a dead one knows";
const WOKEN: &str = "nobody sleeps where there is something to be had";

fn discoveries(kind: Kind, without: Without) -> Vec<&'static str> {
    let model = Sleepers(kind, without);
    crate::model::discoveries(model, (kind, without), without == Without::Nothing)
}

#[test]
fn every_run_is_right() {
    for kind in [Kind::Mutex, Kind::Semaphore, Kind::OfDead, Kind::Event] {
        assert_eq!(discoveries(kind, Without::Nothing), [""; 0], "{kind:?}");
    }
}

#[test]
fn each_rule_is_needed() {
    for (kind, without) in [
        (Kind::Mutex, Without::Looking),
        (Kind::Semaphore, Without::Looking),
        (Kind::Event, Without::Looking),
        (Kind::Mutex, Without::PassingOn),
        (Kind::Mutex, Without::Telling),
        (Kind::Mutex, Without::OwnOnly),
        (Kind::OfDead, Without::TellingAll),
        (Kind::Event, Without::WakingAgain),
    ] {
        assert!(!discoveries(kind, without).is_empty(), "{kind:?} {without:?}");
    }
}
