//! Every run in small of senders that get pages for their lanes, and die at any step: two lanes of
//! two pages each, in five pages. `src/queue/pages.rs` says what the words mean; each step here is
//! one access to one of them, in its order.
//!
//! | rule left out | what goes wrong |
//! |---|---|
//! | the word names the pages before they become the queue's | a death in between loses them |
//! | bit 63, while they are being made | two lanes come to have the same pages |
//! | strays are freed before bit 63 goes | a death in between loses them |
//! | a page is looked at before it is asked who names it | a stray is another lane's by then, and is freed |

use stateright::{Model, Property};

const PAGES: usize = 5;
const LANE: usize = 2;
const LANES: usize = 2;
const DEATHS: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Free,
    /// A sender's own, by its lane; `true`: that one is dead.
    Party(usize, bool),
    Queue,
}

/// What a lane's word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Word {
    None,
    Making(Option<usize>),
    Made(usize),
}

impl Word {
    fn names(self, page: usize) -> bool {
        let first = match self {
            Self::Making(first) => first,
            Self::Made(first) => Some(first),
            Self::None => None,
        };
        first.is_some_and(|first| (first..first + LANE).contains(&page))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sender {
    Begins,
    /// Looks at this page for a stray.
    Strays(usize),
    /// Saw it the queue's (the page's count of changes), and that nobody names it.
    Frees(usize, u8),
    /// Asks who names the page before it looks at it: where that rule is left out.
    Asked(usize),
    Cleaned,
    Claims,
    Names(usize),
    HandsOver(usize, usize),
    Ends(usize),
    Done,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    pages: [Owner; PAGES],
    /// How often each changed hands.
    claims: [u8; PAGES],
    words: [Word; LANES],
    senders: [Sender; LANES],
    deaths: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    NamingFirst,
    BeingMade,
    CleaningFirst,
    LookingFirst,
}

struct Pages(Without);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Step(usize),
    Kill(usize),
    /// Somebody frees a page that is a dead one's.
    Sweep(usize),
}

impl Pages {
    /// A sender begins, and frees strays where that is called for.
    fn clean(&self, state: &mut State, lane: usize) -> Sender {
        let without = self.0;
        let named = |state: &State, page| state.words.iter().any(|word| word.names(page));
        match state.senders[lane] {
            Sender::Begins => match state.words[lane] {
                Word::Made(first) => match state.pages[first..first + LANE] {
                    [Owner::Queue, Owner::Queue] => Sender::Done,
                    _ => Sender::Claims,
                },
                Word::None => Sender::Claims,
                Word::Making(_) if without == Without::CleaningFirst => {
                    state.words[lane] = Word::None;
                    Sender::Strays(0)
                }
                Word::Making(_) => {
                    state.words[lane] = Word::Making(None);
                    Sender::Strays(0)
                }
            },
            Sender::Strays(PAGES) => Sender::Cleaned,
            Sender::Strays(page) if without == Without::LookingFirst => {
                if named(state, page) {
                    Sender::Strays(page + 1)
                } else {
                    Sender::Asked(page)
                }
            }
            Sender::Strays(page) => {
                // Between the look and the question others go on, which changes nothing: what makes
                // the page another lane's is seen by its count.
                if state.pages[page] == Owner::Queue && !named(state, page) {
                    Sender::Frees(page, state.claims[page])
                } else {
                    Sender::Strays(page + 1)
                }
            }
            Sender::Asked(page) => {
                if state.pages[page] == Owner::Queue {
                    Sender::Frees(page, state.claims[page])
                } else {
                    Sender::Strays(page + 1)
                }
            }
            Sender::Frees(page, seen) => {
                if state.pages[page] == Owner::Queue && state.claims[page] == seen {
                    state.pages[page] = Owner::Free;
                }
                Sender::Strays(page + 1)
            }
            Sender::Cleaned => {
                state.words[lane] = Word::None;
                Sender::Claims
            }
            other => other,
        }
    }

    fn step(&self, state: &mut State, lane: usize) {
        let without = self.0;
        state.senders[lane] = match state.senders[lane] {
            Sender::Claims => {
                let free = |&first: &usize| {
                    state.pages[first..first + LANE].iter().all(|&page| page == Owner::Free)
                };
                let Some(first) = (0..=PAGES - LANE).find(free) else { return };
                for page in first..first + LANE {
                    state.pages[page] = Owner::Party(lane, false);
                    state.claims[page] += 1;
                }
                if without == Without::NamingFirst {
                    Sender::HandsOver(first, 0)
                } else {
                    Sender::Names(first)
                }
            }
            Sender::Names(first) if without == Without::BeingMade => {
                state.words[lane] = Word::Made(first);
                Sender::HandsOver(first, 0)
            }
            Sender::Names(first) => {
                state.words[lane] = Word::Making(Some(first));
                Sender::HandsOver(first, 0)
            }
            Sender::HandsOver(first, LANE) => Sender::Ends(first),
            Sender::HandsOver(first, done) => {
                state.pages[first + done] = Owner::Queue;
                Sender::HandsOver(first, done + 1)
            }
            Sender::Ends(first) => {
                state.words[lane] = Word::Made(first);
                Sender::Done
            }
            Sender::Done => Sender::Done,
            Sender::Dead => Sender::Begins,
            _ => self.clean(state, lane),
        };
    }
}

impl Model for Pages {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            pages: [Owner::Free; PAGES],
            claims: [0; PAGES],
            words: [Word::None; LANES],
            senders: [Sender::Begins; LANES],
            deaths: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for lane in 0..LANES {
            actions.push(Action::Step(lane));
            if state.deaths < DEATHS && state.senders[lane] != Sender::Dead {
                actions.push(Action::Kill(lane));
            }
        }
        actions.extend((0..PAGES).map(Action::Sweep));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Step(lane) => self.step(&mut next, lane),
            Action::Kill(lane) => {
                next.senders[lane] = Sender::Dead;
                next.deaths += 1;
                for page in &mut next.pages {
                    if *page == Owner::Party(lane, false) {
                        *page = Owner::Party(lane, true);
                    }
                }
            }
            Action::Sweep(page) => match state.pages[page] {
                Owner::Party(_, true) => next.pages[page] = Owner::Free,
                _ => return None,
            },
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SHARED, |_, state: &State| {
                let made = |lane: usize| match (state.words[lane], state.senders[lane]) {
                    (Word::Made(first), Sender::Done) => Some(first),
                    _ => None,
                };
                let [one, other] = [0, 1].map(made);
                one.zip(other).is_none_or(|(one, other)| one.abs_diff(other) >= LANE)
            }),
            Property::always(TAKEN, |_, state: &State| {
                (0..LANES).all(|lane| match (state.words[lane], state.senders[lane]) {
                    (Word::Made(first), Sender::Done) => {
                        (first..first + LANE).all(|page| state.pages[page] == Owner::Queue)
                    }
                    _ => true,
                })
            }),
            Property::always(LOST, |_, state: &State| {
                // Where both have their lanes, whoever died before.
                let idle = state.senders.iter().all(|&sender| sender == Sender::Done);
                let queues = state.pages.iter().filter(|&&page| page == Owner::Queue).count();
                !idle || queues == LANES * LANE
            }),
        ]
    }
}

const SHARED: &str = "no page is of two lanes";
const TAKEN: &str = "a lane's pages are the queue's for as long as it has them";
const LOST: &str = "no page is lost";

fn discoveries(without: Without) -> Vec<&'static str> {
    crate::model::discoveries(Pages(without), without, without == Without::Nothing)
}

#[test]
fn every_run_is_right() {
    assert_eq!(discoveries(Without::Nothing), [""; 0]);
}

#[test]
fn each_rule_is_needed() {
    use Without::{BeingMade, CleaningFirst, LookingFirst, NamingFirst};
    for without in [NamingFirst, BeingMade, CleaningFirst, LookingFirst] {
        assert!(!discoveries(without).is_empty(), "{without:?}");
    }
}
