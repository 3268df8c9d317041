//! Every run in small of two that connect to one that accepts, any of which dies, gives up, or
//! finds no room, at any step. `src/stream.rs` says what they do; each step here is one access to
//! what they share: a name, an end of a queue, a message.
//!
//! | rule left out | what goes wrong |
//! |---|---|
//! | who accepts and finds no room keeps the call | the caller waits for ever |
//! | who waits for an answer looks whether anybody could give it | it waits for the dead |
//! | who accepts takes both ends, and answers then | what the caller writes is for nobody |
//! | who finds an end taken that was let go takes it again | the caller waits for ever |

use stateright::{Model, Property};

const CALLERS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Caller {
    /// Has made both queues under their names, and taken its ends.
    Begins,
    /// Has called.
    Waits,
    /// Takes its names away, because of an answer or of none.
    Ends {
        heard: bool,
    },
    /// Its ends are dropped; it says so to its user.
    Failed,
    Connected,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Listener {
    Idle,
    /// Has this call in hand, with neither of its ends.
    Called(usize),
    /// Has the end to read from.
    Half(usize),
    Both(usize),
    /// Where that rule is left out: has answered before it has the end to read from.
    Early(usize),
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    callers: [Caller; CALLERS],
    listener: Listener,
    calls: Vec<usize>,
    pending: Option<usize>,
    named: [bool; CALLERS],
    /// Who accepts has the end to read from; had it, and let it go.
    reads: [bool; CALLERS],
    let_go: [bool; CALLERS],
    /// It has the other end: as a stream that its user has.
    accepted: [bool; CALLERS],
    answers: [bool; CALLERS],
    /// Objects that who accepts has room for.
    room: u8,
    events: u8,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    Keeping,
    Looking,
    Order,
    TakingAgain,
}

struct Streams(Without);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Call(usize),
    Accept,
    /// The caller's time is over.
    GiveUp(usize),
    Kill(usize),
    KillListener,
    /// Its user closes something else.
    MakeRoom,
}

fn is_there(caller: Caller) -> bool {
    matches!(
        caller,
        Caller::Begins | Caller::Waits | Caller::Connected | Caller::Ends { heard: true }
    )
}

impl Streams {
    fn call(&self, state: &mut State, at: usize) {
        let dead = state.listener == Listener::Dead;
        state.callers[at] = match state.callers[at] {
            Caller::Begins => {
                state.calls.push(at);
                Caller::Waits
            }
            Caller::Waits if state.answers[at] => Caller::Ends { heard: true },
            Caller::Waits if dead && self.0 != Without::Looking => Caller::Ends { heard: false },
            Caller::Ends { heard } => {
                state.named[at] = false;
                if heard {
                    if !state.reads[at] && !dead {
                        state.wrong = Some("it is connected, and nobody reads");
                    }
                    Caller::Connected
                } else {
                    Caller::Failed
                }
            }
            other => other,
        };
    }

    /// It finds no room: the call waits, or is lost.
    fn not_now(&self, state: &mut State, at: usize) -> Listener {
        if state.reads[at] && !state.accepted[at] {
            state.reads[at] = false;
            state.let_go[at] = true;
            state.room += 1;
        }
        if self.0 != Without::Keeping {
            state.pending = Some(at);
        }
        Listener::Idle
    }

    fn accept(&self, state: &mut State) {
        state.listener = match state.listener {
            Listener::Idle => match state.pending.take() {
                Some(at) => Listener::Called(at),
                None if state.calls.is_empty() => Listener::Idle,
                None => Listener::Called(state.calls.remove(0)),
            },
            Listener::Called(at) if !state.named[at] => Listener::Idle,
            Listener::Called(at) if self.0 == Without::Order => {
                state.answers[at] = true;
                Listener::Early(at)
            }
            Listener::Called(at) | Listener::Early(at) if state.room == 0 => {
                self.not_now(state, at)
            }
            Listener::Called(at) | Listener::Early(at) => {
                if state.let_go[at] && self.0 == Without::TakingAgain {
                    // It takes the end for another's, and who called for gone.
                    state.listener = Listener::Idle;
                    return;
                }
                state.room -= 1;
                (state.reads[at], state.let_go[at]) = (true, false);
                if state.listener == Listener::Early(at) {
                    state.accepted[at] = true;
                    Listener::Idle
                } else {
                    Listener::Half(at)
                }
            }
            Listener::Half(at) if !state.named[at] => {
                state.reads[at] = false;
                state.room += 1;
                Listener::Idle
            }
            Listener::Half(at) if state.room == 0 => self.not_now(state, at),
            Listener::Half(at) => {
                state.room -= 1;
                Listener::Both(at)
            }
            Listener::Both(at) => {
                // Its caller may be gone: then its user reads that, and goes on.
                state.answers[at] = true;
                state.accepted[at] = true;
                if !is_there(state.callers[at]) {
                    (state.reads[at], state.accepted[at]) = (false, false);
                    state.room += 2;
                }
                Listener::Idle
            }
            Listener::Dead => Listener::Dead,
        };
    }
}

impl Model for Streams {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let of = |room| State {
            callers: [Caller::Begins; CALLERS],
            listener: Listener::Idle,
            calls: Vec::new(),
            pending: None,
            named: [true; CALLERS],
            reads: [false; CALLERS],
            let_go: [false; CALLERS],
            accepted: [false; CALLERS],
            answers: [false; CALLERS],
            room,
            events: 0,
            wrong: None,
        };
        vec![of(0), of(1), of(3), of(4)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        actions.push(Action::Accept);
        actions.extend((0..CALLERS).map(Action::Call));
        // Enough for all, in the end.
        if state.room < 4 {
            actions.push(Action::MakeRoom);
        }
        if state.events < 2 {
            actions.push(Action::KillListener);
            actions.extend((0..CALLERS).flat_map(|at| [Action::GiveUp(at), Action::Kill(at)]));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Call(at) => self.call(&mut next, at),
            Action::Accept => self.accept(&mut next),
            Action::MakeRoom => next.room += 1,
            Action::GiveUp(at) => {
                if state.callers[at] != Caller::Waits {
                    return None;
                }
                next.callers[at] = Caller::Ends { heard: false };
                next.events += 1;
            }
            Action::Kill(at) => {
                if matches!(state.callers[at], Caller::Dead | Caller::Failed) {
                    return None;
                }
                // Its names go with it.
                (next.callers[at], next.named[at]) = (Caller::Dead, false);
                next.events += 1;
            }
            Action::KillListener => {
                next.listener = Listener::Dead;
                (next.reads, next.calls, next.pending) = ([false; CALLERS], Vec::new(), None);
                next.events += u8::from(state.listener != Listener::Dead);
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let heard = |model: &Self, state: &State| {
            let steps = |action| {
                model.next_state(state, action).is_some_and(|next| {
                    next.callers != state.callers || next.listener != state.listener
                })
            };
            let quiet = state.room >= 4
                && !steps(Action::Accept)
                && !(0..CALLERS).any(|at| steps(Action::Call(at)));
            !(quiet && state.callers.contains(&Caller::Waits))
        };
        let agree = |_: &Self, state: &State| {
            let apart = |at: usize| {
                let there = state.listener != Listener::Dead;
                state.callers[at] == Caller::Connected && there && !state.accepted[at]
            };
            !(0..CALLERS).any(apart) || state.wrong.is_some()
        };
        vec![
            Property::always(HEARD, heard),
            Property::always(AGREE, agree),
            Property::always(READ, |_, state: &State| state.wrong.is_none()),
        ]
    }
}

const HEARD: &str = "nobody waits where nobody will answer";
const AGREE: &str = "who is connected was accepted";
const READ: &str = "who is connected is read";

fn discoveries(without: Without) -> Vec<&'static str> {
    crate::model::discoveries(Streams(without), without, without == Without::Nothing)
}

#[test]
fn every_run_is_right() {
    assert_eq!(discoveries(Without::Nothing), [""; 0]);
}

#[test]
fn each_rule_is_needed() {
    for without in [Without::Keeping, Without::Looking, Without::Order, Without::TakingAgain] {
        assert!(!discoveries(without).is_empty(), "{without:?}");
    }
}
