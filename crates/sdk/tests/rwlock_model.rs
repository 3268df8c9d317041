//! Every run in small of a reader–writer lock: two that read and two that write, any of which dies
//! at any step and is followed by another. `src/rwlock.rs` says what the words mean; each step here
//! is one access to one of them, in the order of `src/rwlock/words.rs`.
//!
//! | rule left out | what goes wrong |
//! |---|---|
//! | a reader looks once more after it has its place | it reads beside a writer |
//! | a writer looks at the places after it is in the word | it writes beside a reader |
//! | bit 60 tells who writes from who is about to | nobody is told of a writer that died |
//! | what was half done stays until somebody says that it is not | the next but one is not told |

use stateright::{Model, Property};

const EACH: usize = 2;
const DEATHS: u8 = 2;

/// One that reads or writes: the readers come first. A dead one's words name it still; who follows
/// it is another party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Party(u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Writer {
    party: Option<Party>,
    writes: bool,
    half_done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reader {
    Out,
    /// Saw nobody in the word.
    Takes,
    /// Has its place.
    LooksAgain,
    /// Found somebody in the word.
    Retreats,
    Reads,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Writes {
    Out,
    /// Saw the word free, with this beside it.
    Enters(bool),
    /// Looks at this place.
    Looks(usize),
    GoesIn,
    Inside,
    /// What it protects is in order: it says so where it was told.
    Leaves,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    writer: Writer,
    places: [Option<Party>; EACH],
    readers: [Reader; EACH],
    writers: [Writes; EACH],
    /// Who lives at the moment, readers and writers.
    parties: [Party; 2 * EACH],
    /// What the lock protects is half done, of a dead writer's.
    half_done: bool,
    deaths: u8,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    LookingAgain,
    EnteringFirst,
    TellingApart,
    Keeping,
}

struct Lock(Without);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Read(usize),
    Write(usize),
    /// Puts what was half done in order and says so; else it goes out and the next one is told.
    Mend(usize),
    Kill(usize),
    /// Somebody takes the dead out of the word, or of a place.
    FreeWord,
    FreePlace(usize),
}

impl Lock {
    fn read(&self, state: &mut State, at: usize) {
        let me = state.parties[at];
        state.readers[at] = match state.readers[at] {
            Reader::Out if state.writer.party.is_none() => Reader::Takes,
            Reader::Out => Reader::Out,
            // Each has a place of its own; a dead one's is taken once it is free.
            Reader::Takes if state.places[at].is_some() => Reader::Out,
            Reader::Takes => {
                state.places[at] = Some(me);
                if self.0 == Without::LookingAgain { Reader::Reads } else { Reader::LooksAgain }
            }
            Reader::LooksAgain if state.writer.party.is_some() => Reader::Retreats,
            Reader::LooksAgain => {
                if state.half_done && !state.writer.half_done {
                    state.wrong = Some("a reader is not told");
                }
                Reader::Reads
            }
            Reader::Retreats | Reader::Reads => {
                if state.places[at] == Some(me) {
                    state.places[at] = None;
                }
                Reader::Out
            }
        };
    }

    fn write(&self, state: &mut State, at: usize) {
        let me = state.parties[EACH + at];
        let first =
            if self.0 == Without::EnteringFirst { Writes::GoesIn } else { Writes::Looks(0) };
        state.writers[at] = match state.writers[at] {
            Writes::Out if state.writer.party.is_some() => Writes::Out,
            Writes::Out if self.0 == Without::EnteringFirst => {
                let drained = state.places.iter().all(Option::is_none);
                if drained { Writes::Enters(state.writer.half_done) } else { Writes::Out }
            }
            Writes::Out => Writes::Enters(state.writer.half_done),
            Writes::Enters(half_done) => {
                let free = Writer { party: None, writes: false, half_done };
                if state.writer == free {
                    state.writer.party = Some(me);
                    first
                } else {
                    Writes::Out
                }
            }
            Writes::Looks(EACH) => Writes::GoesIn,
            Writes::Looks(place) if state.places[place].is_some() => Writes::Looks(0),
            Writes::Looks(place) => Writes::Looks(place + 1),
            Writes::GoesIn => {
                state.writer.writes = true;
                if state.half_done && !state.writer.half_done {
                    state.wrong = Some("a writer is not told");
                }
                Writes::Inside
            }
            Writes::Inside => Writes::Leaves,
            Writes::Leaves => {
                let half_done = state.writer.half_done && self.0 != Without::Keeping;
                state.writer = Writer { party: None, writes: false, half_done };
                Writes::Out
            }
        };
    }

    fn kill(&self, state: &mut State, at: usize) {
        state.deaths += 1;
        state.parties[at] = Party(state.parties[at].0 + 8);
        if at < EACH {
            state.readers[at] = Reader::Out;
            return;
        }
        state.half_done |= state.writers[at - EACH] == Writes::Inside;
        state.writers[at - EACH] = Writes::Out;
    }

    fn free_word(&self, state: &mut State) {
        let dead = state.writer.party.is_some_and(|party| !state.parties.contains(&party));
        if dead {
            let wrote = state.writer.writes && self.0 != Without::TellingApart;
            let half_done = wrote || state.writer.half_done;
            state.writer = Writer { party: None, writes: false, half_done };
        }
    }
}

impl Model for Lock {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            writer: Writer { party: None, writes: false, half_done: false },
            places: [None; EACH],
            readers: [Reader::Out; EACH],
            writers: [Writes::Out; EACH],
            parties: [0, 1, 2, 3].map(Party),
            half_done: false,
            deaths: 0,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        actions.extend((0..EACH).flat_map(|at| [Action::Read(at), Action::Write(at)]));
        actions.extend((0..EACH).flat_map(|at| [Action::FreePlace(at), Action::Mend(at)]));
        actions.push(Action::FreeWord);
        if state.deaths < DEATHS {
            actions.extend((0..2 * EACH).map(Action::Kill));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Read(at) => self.read(&mut next, at),
            Action::Write(at) => self.write(&mut next, at),
            Action::Mend(at) if state.writers[at] == Writes::Inside => {
                next.half_done = false;
                next.writer.half_done = false;
            }
            Action::Mend(_) => return None,
            Action::Kill(at) => self.kill(&mut next, at),
            Action::FreeWord => self.free_word(&mut next),
            Action::FreePlace(at) => {
                let dead = |party| !state.parties.contains(&party);
                next.places[at] = state.places[at].filter(|&party| !dead(party));
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TOLD, |_, state: &State| state.wrong.is_none()),
            Property::always(ALONE, |_, state: &State| {
                let inside = |&&writes: &&Writes| matches!(writes, Writes::Inside | Writes::Leaves);
                let write = state.writers.iter().filter(inside).count();
                let read = state.readers.iter().filter(|&&reader| reader == Reader::Reads).count();
                write == 0 || (write == 1 && read == 0)
            }),
            // Nothing stays behind: from everywhere both a reader and a writer come in, once the
            // dead were taken out.
            Property::always(CLEAN, |_, state: &State| {
                let out = state.readers == [Reader::Out; EACH]
                    && state
                        .writers
                        .iter()
                        .all(|writes| matches!(writes, Writes::Out | Writes::Enters(_)));
                let living = |party: Option<Party>| {
                    party.is_some_and(|party| state.parties.contains(&party))
                };
                !out || !(living(state.writer.party) || state.places.into_iter().any(living))
            }),
        ]
    }
}

const TOLD: &str = "whoever comes in after a writer died is told";
const ALONE: &str = "who writes is alone";
const CLEAN: &str = "who is out is in no word";

fn discoveries(without: Without) -> Vec<&'static str> {
    crate::model::discoveries(Lock(without), without, without == Without::Nothing)
}

#[test]
fn every_run_is_right() {
    assert_eq!(discoveries(Without::Nothing), [""; 0]);
}

#[test]
fn each_rule_is_needed() {
    use Without::{EnteringFirst, Keeping, LookingAgain, TellingApart};
    for without in [LookingAgain, EnteringFirst, TellingApart, Keeping] {
        assert!(!discoveries(without).is_empty(), "{without:?}");
    }
}
