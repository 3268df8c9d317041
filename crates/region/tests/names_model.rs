//! Every run of the names table's protocol in small: three parties that want one name, a fourth
//! that has it and gives it up, three entries, and a death at any step. `src/names.rs` is what is
//! modelled; each step here is one access to one word there.
//!
//! | rule left out | what goes wrong |
//! |---|---|
//! | whoever claimed an entry looks through the table again | two parties have the name |
//! | whoever sees a claim in a higher entry waits for it | two parties have the name |
//! | whoever sees a claim in a lower entry withdraws | two wait for each other for ever |
//! | a dead party's claim is freed by whoever meets it | a name that nobody has cannot be had |

use stateright::{Checker, HasDiscoveries, Model, Property};

const ENTRIES: usize = 3;
const PARTIES: usize = 3;
const DEATHS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Word {
    Free,
    Claimed(usize),
    Live(usize),
    Removed(usize),
}

/// What a party does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// Looks at this entry for an object of the name.
    Find(usize),
    /// Tries to claim this entry.
    Take(usize),
    /// Has claimed `mine`, and looks at another.
    Resolve {
        mine: usize,
        at: usize,
    },
    /// Gives `mine` back, and is told that the name is taken or begins anew.
    Withdraw {
        mine: usize,
        taken: bool,
    },
    /// Publishes its object.
    Publish(usize),
    /// Has the name; gives it up next.
    Has(usize),
    /// Has taken the name away; frees the entry next.
    Frees(usize),
    Done,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    words: [Word; ENTRIES],
    at: [At; PARTIES + 1],
    deaths: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    SecondLook,
    WaitingForHigher,
    WithdrawingForLower,
    FreeingTheDead,
}

struct Table(Without);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Step(usize),
    Die(usize),
}

impl Table {
    /// The state after a party's next step; the same state where it waits.
    fn step(&self, state: &State, party: usize) -> State {
        let mut next = state.clone();
        next.at[party] = match state.at[party] {
            At::Find(i) => match state.words[i] {
                Word::Live(_) => At::Done,
                _ if i + 1 < ENTRIES => At::Find(i + 1),
                _ => At::Take(0),
            },
            At::Take(i) => self.take(&mut next, party, i),
            At::Resolve { mine, at } => self.resolve(&mut next, mine, at),
            At::Withdraw { mine, taken } => {
                exchange(&mut next, mine, Word::Claimed(party), Word::Free);
                if taken { At::Done } else { At::Find(0) }
            }
            At::Publish(i) => {
                if exchange(&mut next, i, Word::Claimed(party), Word::Live(party)) {
                    At::Has(i)
                } else {
                    At::Done
                }
            }
            At::Has(i) => {
                exchange(&mut next, i, Word::Live(party), Word::Removed(party));
                At::Frees(i)
            }
            At::Frees(i) => {
                exchange(&mut next, i, Word::Removed(party), Word::Free);
                At::Done
            }
            end @ (At::Done | At::Dead) => end,
        };
        next
    }

    fn frees(&self, state: &State, party: usize) -> bool {
        state.at[party] == At::Dead && self.0 != Without::FreeingTheDead
    }

    fn take(&self, next: &mut State, party: usize, i: usize) -> At {
        match next.words[i] {
            Word::Free => {
                next.words[i] = Word::Claimed(party);
                if self.0 == Without::SecondLook {
                    At::Publish(i)
                } else {
                    At::Resolve { mine: i, at: 0 }
                }
            }
            Word::Claimed(other) if self.frees(next, other) => {
                next.words[i] = Word::Free;
                At::Take(i)
            }
            _ if i + 1 < ENTRIES => At::Take(i + 1),
            // Full: that is an answer.
            _ => At::Done,
        }
    }

    fn resolve(&self, next: &mut State, mine: usize, at: usize) -> At {
        let on =
            if at + 1 < ENTRIES { At::Resolve { mine, at: at + 1 } } else { At::Publish(mine) };
        match next.words[at] {
            _ if at == mine => on,
            Word::Live(_) => At::Withdraw { mine, taken: true },
            Word::Claimed(other) if self.frees(next, other) => {
                next.words[at] = Word::Free;
                on
            }
            Word::Claimed(_) if at < mine && self.0 != Without::WithdrawingForLower => {
                At::Withdraw { mine, taken: false }
            }
            Word::Claimed(_) if at > mine && self.0 == Without::WaitingForHigher => on,
            Word::Claimed(_) => At::Resolve { mine, at },
            Word::Free | Word::Removed(_) => on,
        }
    }
}

fn exchange(state: &mut State, entry: usize, from: Word, to: Word) -> bool {
    let done = state.words[entry] == from;
    if done {
        state.words[entry] = to;
    }
    done
}

impl Model for Table {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // Somebody has the name, in any entry, or nobody has.
        let had = (0..ENTRIES).map(|i| {
            let mut words = [Word::Free; ENTRIES];
            words[i] = Word::Live(PARTIES);
            let mut at = [At::Find(0); PARTIES + 1];
            at[PARTIES] = At::Has(i);
            State { words, at, deaths: 0 }
        });
        let mut at = [At::Find(0); PARTIES + 1];
        at[PARTIES] = At::Done;
        had.chain([State { words: [Word::Free; ENTRIES], at, deaths: 0 }]).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for party in (0..=PARTIES).filter(|&party| !matches!(state.at[party], At::Done | At::Dead))
        {
            if self.step(state, party) != *state {
                actions.push(Action::Step(party));
            }
            if state.deaths < DEATHS {
                actions.push(Action::Die(party));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        match action {
            Action::Step(party) => Some(self.step(state, party)),
            Action::Die(party) => {
                let mut next = state.clone();
                next.at[party] = At::Dead;
                next.deaths += 1;
                Some(next)
            }
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TWICE, |_, state: &State| {
                state.words.iter().filter(|word| matches!(word, Word::Live(_))).count() <= 1
            }),
            Property::always(STUCK, |model: &Table, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                let moves = actions.iter().any(|action| matches!(action, Action::Step(_)));
                moves || state.at.iter().all(|at| matches!(at, At::Done | At::Dead))
            }),
        ]
    }
}

const TWICE: &str = "nobody has a name that another has";
const STUCK: &str = "whoever wants it gets an answer";

fn discoveries(without: Without) -> Vec<&'static str> {
    let found = if without == Without::Nothing { HasDiscoveries::All } else { HasDiscoveries::Any };
    let checker = Table(without).checker().threads(2).finish_when(found).spawn_bfs().join();
    println!("{without:?}: {} states", checker.unique_state_count());
    checker.discoveries().into_keys().collect()
}

#[test]
fn every_run_is_right() {
    assert_eq!(discoveries(Without::Nothing), [""; 0]);
}

#[test]
fn each_rule_is_needed() {
    assert_eq!(discoveries(Without::SecondLook), [TWICE]);
    assert_eq!(discoveries(Without::WaitingForHigher), [TWICE]);
    assert_eq!(discoveries(Without::WithdrawingForLower), [STUCK]);
    assert_eq!(discoveries(Without::FreeingTheDead), [STUCK]);
}
