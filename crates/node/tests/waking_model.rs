//! Every run in small of one who sleeps on a waiter and three who have news for it, of which two
//! may die at any step. `src/wake/page.rs` is what is modelled; each step here is one access to one
//! word there, in its order, and the byte in the FIFO is one.
//!
//! | rule left out | what goes wrong |
//! |---|---|
//! | who is about to sleep looks at its bits once more | it sleeps, and its news was there |
//! | who sees that another is about to wake it does so, too | that one died |
//! | each sleep has a number: who says that it is over means the one that he saw | the next goes on, whose waker died |

use stateright::{Checker, HasDiscoveries, Model, Property};

const RAISERS: usize = 3;
const DEATHS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Is {
    Awake,
    Asleep,
    Called,
}

/// The first word: of which sleep, and what it is.
type Word = (u8, Is);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sleeper {
    /// Takes all bits.
    Takes,
    /// Says that it sleeps.
    Says,
    /// Looks at its bits.
    Looks,
    /// Waits for a byte.
    Waits,
    /// Says that it is awake. `told`: there was a byte.
    Wakes { told: bool },
    /// Empties the FIFO.
    Empties,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Raiser {
    SetsBit,
    Looks,
    /// Saw this, and says that it is about to wake it.
    Calls(Word),
    /// Writes a byte, for the sleep with this number.
    Rings(u8),
    /// Says that this sleep was ended.
    Says(u8),
    Over,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    word: Word,
    bits: u8,
    bytes: bool,
    sleeper: Sleeper,
    raisers: [Raiser; RAISERS],
    deaths: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Sleeper,
    Raiser(usize),
    Die(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    SecondLook,
    CallingAgain,
    Numbers,
}

struct Page(Without);

impl Page {
    fn sleeper(&self, state: &State) -> State {
        let mut next = state.clone();
        let number = state.word.0;
        next.sleeper = match state.sleeper {
            Sleeper::Takes => {
                next.bits = 0;
                Sleeper::Says
            }
            Sleeper::Says => {
                let numbered = u8::from(self.0 != Without::Numbers);
                next.word = (number + numbered, Is::Asleep);
                if self.0 == Without::SecondLook { Sleeper::Waits } else { Sleeper::Looks }
            }
            Sleeper::Looks if state.bits == 0 => Sleeper::Waits,
            Sleeper::Looks => Sleeper::Wakes { told: false },
            Sleeper::Waits if state.bytes => Sleeper::Wakes { told: true },
            Sleeper::Waits => Sleeper::Waits,
            Sleeper::Wakes { told } => {
                next.word = (number, Is::Awake);
                if told || state.word.1 != Is::Asleep { Sleeper::Empties } else { Sleeper::Takes }
            }
            Sleeper::Empties => {
                next.bytes = false;
                Sleeper::Takes
            }
        };
        next
    }

    fn raiser(&self, state: &State, raiser: usize) -> State {
        let mut next = state.clone();
        next.raisers[raiser] = match state.raisers[raiser] {
            Raiser::SetsBit => {
                next.bits |= 1 << raiser;
                Raiser::Looks
            }
            Raiser::Looks => match state.word {
                (_, Is::Awake) => Raiser::Over,
                (_, Is::Called) if self.0 == Without::CallingAgain => Raiser::Over,
                seen => Raiser::Calls(seen),
            },
            Raiser::Calls(seen) => {
                let now = state.word;
                if now == (seen.0, Is::Asleep) {
                    next.word = (seen.0, Is::Called);
                }
                // (Of another sleep than was seen, its owner has looked at the bits since.)
                if now.1 == Is::Awake { Raiser::Over } else { Raiser::Rings(seen.0) }
            }
            Raiser::Rings(number) => {
                next.bytes = true;
                Raiser::Says(number)
            }
            Raiser::Says(number) => {
                if state.word == (number, Is::Called) {
                    next.word = (number, Is::Awake);
                }
                Raiser::Over
            }
            at @ (Raiser::Over | Raiser::Dead) => at,
        };
        next
    }
}

impl Model for Page {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            word: (0, Is::Awake),
            bits: 0,
            bytes: false,
            sleeper: Sleeper::Takes,
            raisers: [Raiser::SetsBit; RAISERS],
            deaths: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if self.sleeper(state) != *state {
            actions.push(Action::Sleeper);
        }
        for raiser in 0..RAISERS {
            if matches!(state.raisers[raiser], Raiser::Over | Raiser::Dead) {
                continue;
            }
            actions.push(Action::Raiser(raiser));
            if state.deaths < DEATHS {
                actions.push(Action::Die(raiser));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(match action {
            Action::Sleeper => self.sleeper(state),
            Action::Raiser(raiser) => self.raiser(state, raiser),
            Action::Die(raiser) => {
                let mut next = state.clone();
                next.raisers[raiser] = Raiser::Dead;
                next.deaths += 1;
                next
            }
        })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(HEARD, |model: &Page, state: &State| {
            let mut actions = Vec::new();
            model.actions(state, &mut actions);
            let lives = |raiser: &usize| state.raisers[*raiser] == Raiser::Over;
            let unheard = (0..RAISERS).filter(lives).any(|raiser| state.bits >> raiser & 1 == 1);
            !actions.is_empty() || !unheard
        })]
    }
}

const HEARD: &str = "the news of all who live is taken in the end";

fn discoveries(without: Without) -> Vec<&'static str> {
    let found = if without == Without::Nothing { HasDiscoveries::All } else { HasDiscoveries::Any };
    let checker = Page(without).checker().threads(2).finish_when(found).spawn_bfs().join();
    println!("{without:?}: {} states", checker.unique_state_count());
    checker.discoveries().into_keys().collect()
}

#[test]
fn every_run_is_right() {
    assert_eq!(discoveries(Without::Nothing), [""; 0]);
}

#[test]
fn each_rule_is_needed() {
    assert_eq!(discoveries(Without::SecondLook), [HEARD]);
    assert_eq!(discoveries(Without::CallingAgain), [HEARD]);
    assert_eq!(discoveries(Without::Numbers), [HEARD]);
}
