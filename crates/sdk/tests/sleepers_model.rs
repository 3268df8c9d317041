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

impl Sleepers {
    fn is_dead(state: &State, party: usize) -> bool {
        state.parties[party] == Party::Dead || state.lost[party]
    }

    /// It has a word now.
    fn has(&self, state: &mut State, at: usize, word: usize, asked: bool, rest: usize) -> Party {
        state.words[word] = if self.0 == Kind::Event { Word::Absent } else { Word::Had(at) };
        if asked { Party::TakesBack(word, rest) } else { Party::Holds(word) }
    }

    /// Looks at a word: it is free; there is another; `None`: there is none.
    fn takes(state: &State, word: usize) -> Option<bool> {
        if state.words[word] == Word::Free {
            return Some(true);
        }
        (word + 1 < state.words.len()).then_some(false)
    }

    fn holds(&self, state: &mut State, at: usize, word: usize) -> Party {
        // Asked after it was taken: one that was taken for dead goes not in.
        if state.lost[at] {
            return self.gives_back(state, at, word);
        }
        if self.0 == Kind::Mutex && state.half.1 && !state.half.0 {
            state.wrong = Some("nobody knows that it is half changed");
        }
        Party::Holds(word)
    }

    fn gives_back(&self, state: &mut State, at: usize, word: usize) -> Party {
        if self.0 == Kind::Event {
            return Party::Over;
        }
        if state.words[word] != Word::Had(at) && self.1 != Without::OwnOnly {
            return Party::Over;
        }
        let another = |other: &usize| {
            *other != at && !state.lost[*other] && state.parties[*other] == Party::Holds(word)
        };
        if (0..PARTIES).any(|other| another(&other)) {
            state.wrong = Some("what another has is free");
        }
        state.words[word] = Word::Free;
        Party::Tells(1, Then::Over)
    }

    fn step(&self, state: &mut State, at: usize) {
        state.parties[at] = match state.parties[at] {
            Party::Takes { at: word, asked, looks } => match Self::takes(state, word) {
                Some(true) => self.has(state, at, word, asked, 0),
                Some(false) => Party::Takes { at: word + 1, asked, looks },
                None if !looks => Party::Asks,
                None if self.0 == Kind::Event => Party::Sleeps,
                None => Party::LooksForDead { at: 0, freed: 0 },
            },
            Party::Asks => {
                (state.rung[at], state.places[at]) = (false, true);
                Party::SetsBit
            }
            Party::SetsBit => {
                state.bits |= 1 << at;
                state.sleeping[at] = true;
                match self.1 {
                    Without::Looking => Party::Sleeps,
                    _ => Party::Takes { at: 0, asked: true, looks: true },
                }
            }
            Party::LooksForDead { at: word, mut freed } => {
                if let Word::Had(had) = state.words[word]
                    && had != at
                    && Self::is_dead(state, had)
                {
                    if self.0 == Kind::Mutex {
                        state.half.0 |= self.1 != Without::Telling;
                        state.words[word] = Word::Had(at);
                        state.parties[at] = Party::TakesBack(word, 0);
                        return;
                    }
                    state.words[word] = Word::Free;
                    freed += 1;
                }
                match (word + 1 < state.words.len(), self.0) {
                    (true, _) => Party::LooksForDead { at: word + 1, freed },
                    (_, Kind::Mutex) => Party::Sleeps,
                    _ => Party::TakesAfter { at: 0, freed },
                }
            }
            Party::TakesAfter { at: word, freed } => match Self::takes(state, word) {
                Some(true) => {
                    let rest =
                        if self.1 == Without::TellingAll { 0 } else { freed.saturating_sub(1) };
                    self.has(state, at, word, true, rest)
                }
                Some(false) => Party::TakesAfter { at: word + 1, freed },
                // It told as many as it made free, which others have by now.
                None => Party::Sleeps,
            },
            Party::Sleeps if state.rung[at] => {
                (state.rung[at], state.sleeping[at]) = (false, false);
                Party::Takes { at: 0, asked: true, looks: false }
            }
            Party::Sleeps => Party::Sleeps,
            Party::GivesUp => {
                state.sleeping[at] = false;
                let claimed = !std::mem::take(&mut state.places[at]);
                if claimed && self.1 != Without::PassingOn {
                    Party::Tells(1, Then::Over)
                } else {
                    Party::Over
                }
            }
            Party::TakesBack(word, rest) => {
                state.sleeping[at] = false;
                let claimed = !std::mem::take(&mut state.places[at]);
                let pass_on = usize::from(claimed && self.1 != Without::PassingOn);
                match rest + pass_on {
                    0 => self.holds(state, at, word),
                    most => Party::Tells(most, Then::Holds(word)),
                }
            }
            Party::Holds(word) => self.gives_back(state, at, word),
            Party::Tells(most, then) => Party::Wakes { bits: state.bits, most, then },
            Party::Wakes { bits, most, then } if bits == 0 || most == 0 => match then {
                Then::Holds(word) => self.holds(state, at, word),
                Then::Over => {
                    state.owed &= self.0 != Kind::Event;
                    Party::Over
                }
            },
            Party::Wakes { bits, most, then } => {
                let other = bits.trailing_zeros() as usize;
                state.bits &= !(1 << other);
                let slept = std::mem::take(&mut state.places[other]) && {
                    state.rung[other] = true;
                    state.sleeping[other] && state.parties[other] != Party::Dead
                };
                Party::Wakes { bits: bits & (bits - 1), most: most - usize::from(slept), then }
            }
            Party::Sets => {
                let was = std::mem::replace(&mut state.words[0], Word::Free);
                if was == Word::Free && self.1 == Without::WakingAgain {
                    state.owed = false;
                    Party::Over
                } else {
                    Party::Tells(1, Then::Over)
                }
            }
            Party::Over => Party::Over,
            Party::Dead => Party::Dead,
        };
    }

    fn kill(&self, state: &mut State, at: usize) {
        let party = std::mem::replace(&mut state.parties[at], Party::Dead);
        state.deaths += 1;
        state.half.1 |= state.words.contains(&Word::Had(at)) && self.0 == Kind::Mutex;
        // Between a change and the end of its waking; or it was woken, and tells nobody.
        let telling = matches!(
            party,
            Party::Tells(..)
                | Party::Wakes { .. }
                | Party::LooksForDead { .. }
                | Party::TakesAfter { .. }
                | Party::GivesUp
        );
        state.owed |= telling || state.rung[at] || !state.places[at] && party == Party::Sleeps;
        let asked = matches!(party, Party::Takes { asked: true, .. } | Party::TakesBack(..));
        state.owed |= asked && (self.0 != Kind::Event || !state.places[at]);
    }

    /// May one that sleeps look by itself?
    fn looks_by_itself(&self, state: &State) -> bool {
        let dead = |word: &Word| matches!(word, Word::Had(had) if Self::is_dead(state, *had));
        state.owed && self.0 != Kind::Event || state.words.iter().any(dead)
    }

    /// Nobody does anything any more, or for as long as it likes.
    fn is_quiet(state: &State) -> bool {
        let quiet = |(at, party): (usize, &Party)| match party {
            Party::Over | Party::Dead | Party::Holds(_) => true,
            Party::Sleeps => !state.rung[at],
            _ => false,
        };
        state.parties.iter().enumerate().all(quiet)
    }
}

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
