//! Every run of one lane of a queue in small: a sender that lends, sends, gives back and drops the
//! oldest, a receiver that takes and gives back, and others that take the place of either where it
//! dies, at any step. `src/queue.rs` says what the words mean; each step here is one access to one
//! of them, in the order of `src/queue/send.rs`, `recv.rs` and `lane.rs`.
//!
//! | rule left out | what goes wrong |
//! |---|---|
//! | a message is marked as sent before it is put into its cell | a buffer that is in a cell is freed |
//! | a dropped message's cell names its buffer | a sender that dies there loses the buffer for ever |
//! | a new sender frees what was lent | lent buffers of the dead are lost |
//! | a new receiver frees what was taken | taken buffers of the dead are lost |
//! | the sender exchanges the cell to drop a message | a message is taken and dropped at once |

use stateright::{Model, Property};

const CELLS: usize = 2;
/// One for each cell, one that the receiver holds, one that the sender writes.
const BUFFERS: usize = 4;
const MESSAGES: u8 = 4;
const DEATHS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Content {
    Empty,
    Full(usize),
    Dropped(usize),
}

/// A cell: its turn, and what is in it.
type Cell = (u8, Content);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Buffer {
    Free,
    Lent,
    Sent(u8),
}

/// What a sender does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sender {
    /// Looks at the cell of the next message.
    Room,
    /// Saw it full of this buffer, and drops it.
    Drop(usize),
    /// Has dropped it: takes the buffer back.
    TakeBack(usize),
    /// Looks for a free buffer.
    Lend,
    /// Marks its buffer as sent.
    Mark(usize),
    /// Puts it into its cell.
    Publish(usize),
    /// A new one: looks at each buffer in turn.
    Inherit(usize),
    Dead,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Receiver {
    Look,
    /// Saw this cell full, and takes it.
    Take(Cell),
    /// Holds the buffer, sent at this position; gives it back.
    Hold(usize, u8),
    /// A new one: looks at each buffer in turn, and then where to go on.
    Inherit(usize),
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    cells: [Cell; CELLS],
    buffers: [Buffer; BUFFERS],
    /// What is in each buffer: the number of a message.
    inside: [u8; BUFFERS],
    sender: Sender,
    /// The sender's next position, and the receiver's.
    tail: u8,
    next: u8,
    receiver: Receiver,
    /// The number of the next message, and of the last one that arrived plus one.
    number: u8,
    arrived: u8,
    deaths: u8,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    MarkingFirst,
    NamingTheDropped,
    FreeingTheLent,
    FreeingTheTaken,
    ExchangeToDrop,
}

struct Lane(Without);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Send,
    GiveUp,
    Receive,
    KillSender,
    KillReceiver,
}

fn turn(position: u8) -> u8 {
    position / CELLS as u8
}

fn cell(position: u8) -> usize {
    usize::from(position) % CELLS
}

/// The next position, by the cells: as `Lane::tail` reads it, at one moment. That a sender that
/// goes on meanwhile does no harm is argued there.
fn tail(state: &State) -> u8 {
    let turns =
        state.cells.map(|(turn, content)| turn + u8::from(matches!(content, Content::Full(_))));
    let last = turns[CELLS - 1];
    last * CELLS as u8 + turns.iter().filter(|&&turn| turn == last + 1).count() as u8
}

fn is_full(state: &State, position: u8) -> bool {
    let (at, content) = state.cells[cell(position)];
    at == turn(position) && matches!(content, Content::Full(_))
}

impl Lane {
    #[allow(clippy::too_many_lines, reason = "each step of a sender, in their order")]
    fn send(&self, state: &mut State) {
        let position = state.tail;
        let at = cell(position);
        state.sender = match state.sender {
            Sender::Room => match state.cells[at] {
                (seen, Content::Full(buffer)) if seen + 1 == turn(position) => Sender::Drop(buffer),
                (seen, Content::Empty | Content::Dropped(_)) if seen == turn(position) => {
                    Sender::Lend
                }
                _ => return state.wrong = Some("a cell is out of turn"),
            },
            Sender::Drop(buffer) => {
                let was = (turn(position) - 1, Content::Full(buffer));
                let named = self.0 != Without::NamingTheDropped;
                let content = if named { Content::Dropped(buffer) } else { Content::Empty };
                if state.cells[at] == was || self.0 == Without::ExchangeToDrop {
                    state.cells[at] = (turn(position), content);
                    Sender::TakeBack(buffer)
                } else {
                    Sender::Lend
                }
            }
            Sender::TakeBack(buffer) => {
                if state.receiver == Receiver::Hold(buffer, position - CELLS as u8) {
                    state.wrong = Some("a message that is held is dropped");
                }
                state.buffers[buffer] = Buffer::Free;
                Sender::Lend
            }
            Sender::Lend => {
                // Any buffer is as good as another: the first.
                let free = state.buffers.iter().position(|&buffer| buffer == Buffer::Free);
                let Some(buffer) = free else { return state.wrong = Some("no buffer is free") };
                state.buffers[buffer] = Buffer::Lent;
                state.inside[buffer] = state.number;
                if self.0 == Without::MarkingFirst {
                    Sender::Publish(buffer)
                } else {
                    Sender::Mark(buffer)
                }
            }
            Sender::Mark(buffer) => {
                state.buffers[buffer] = Buffer::Sent(position);
                if self.0 == Without::MarkingFirst {
                    self.sent(state)
                } else {
                    Sender::Publish(buffer)
                }
            }
            Sender::Publish(buffer) => {
                state.cells[at] = (turn(position), Content::Full(buffer));
                if self.0 == Without::MarkingFirst {
                    Sender::Mark(buffer)
                } else {
                    self.sent(state)
                }
            }
            Sender::Inherit(BUFFERS) => {
                state.tail = tail(state);
                if state.number < MESSAGES { Sender::Room } else { Sender::Done }
            }
            Sender::Inherit(buffer) => {
                self.inherit_as_sender(state, buffer);
                Sender::Inherit(buffer + 1)
            }
            end @ (Sender::Dead | Sender::Done) => end,
        };
    }

    fn sent(&self, state: &mut State) -> Sender {
        state.tail += 1;
        state.number += 1;
        if state.number < MESSAGES { Sender::Room } else { Sender::Done }
    }

    fn inherit_as_sender(&self, state: &mut State, buffer: usize) {
        let free = match state.buffers[buffer] {
            Buffer::Lent => self.0 != Without::FreeingTheLent,
            Buffer::Sent(position) => {
                let (at, content) = state.cells[cell(position)];
                let unpublished = position == tail(state) && at == turn(position);
                unpublished || (at == turn(position) + 1 && content == Content::Dropped(buffer))
            }
            Buffer::Free => false,
        };
        if free {
            state.buffers[buffer] = Buffer::Free;
        }
    }

    fn receive(&self, state: &mut State) {
        let at = cell(state.next);
        state.receiver = match state.receiver {
            Receiver::Look => {
                let (seen, content) = state.cells[at];
                match content {
                    Content::Full(_) if seen == turn(state.next) => Receiver::Take((seen, content)),
                    _ if seen > turn(state.next) => {
                        state.next += (seen - turn(state.next) - 1) * CELLS as u8 + 1;
                        Receiver::Look
                    }
                    _ => Receiver::Look,
                }
            }
            Receiver::Take(seen) => {
                let (_, Content::Full(buffer)) = seen else { return };
                if state.cells[at] == seen {
                    state.cells[at] = (seen.0 + 1, Content::Empty);
                    let position = state.next;
                    state.next += 1;
                    let number = state.inside[buffer];
                    if number < state.arrived {
                        state.wrong = Some("a message comes twice, or is another by now");
                    }
                    state.arrived = number + 1;
                    Receiver::Hold(buffer, position)
                } else {
                    Receiver::Look
                }
            }
            Receiver::Hold(buffer, position) => {
                if state.inside[buffer] + 1 != state.arrived {
                    state.wrong = Some("a message that is held was written over");
                }
                if state.buffers[buffer] == Buffer::Sent(position) {
                    state.buffers[buffer] = Buffer::Free;
                }
                Receiver::Look
            }
            Receiver::Inherit(BUFFERS) => {
                let tail = tail(state);
                let oldest = tail.saturating_sub(CELLS as u8)..tail;
                state.next =
                    oldest.clone().find(|&position| is_full(state, position)).unwrap_or(tail);
                Receiver::Look
            }
            Receiver::Inherit(buffer) => {
                if let Buffer::Sent(position) = state.buffers[buffer] {
                    let (at, content) = state.cells[cell(position)];
                    let waits = content == Content::Full(buffer);
                    let comes = !matches!(content, Content::Full(_));
                    let in_turn = at == turn(position);
                    if !(in_turn && (waits || comes)) && self.0 != Without::FreeingTheTaken {
                        state.buffers[buffer] = Buffer::Free;
                    }
                }
                Receiver::Inherit(buffer + 1)
            }
            Receiver::Dead => Receiver::Inherit(0),
        };
    }
}

impl Model for Lane {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            cells: [(0, Content::Empty); CELLS],
            buffers: [Buffer::Free; BUFFERS],
            inside: [0; BUFFERS],
            sender: Sender::Room,
            tail: 0,
            next: 0,
            receiver: Receiver::Look,
            number: 0,
            arrived: 0,
            deaths: 0,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        actions.extend([Action::Send, Action::Receive]);
        if matches!(state.sender, Sender::Mark(_)) && self.0 != Without::MarkingFirst {
            actions.push(Action::GiveUp);
        }
        if state.deaths < DEATHS {
            actions.extend([Action::KillSender, Action::KillReceiver]);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            // Whoever takes a dead one's place does so at any later time.
            Action::Send if state.sender == Sender::Dead => next.sender = Sender::Inherit(0),
            Action::Send => self.send(&mut next),
            Action::GiveUp => {
                let Sender::Mark(buffer) = state.sender else { return None };
                next.buffers[buffer] = Buffer::Free;
                next.number += 1;
                next.sender = if next.number < MESSAGES { Sender::Room } else { Sender::Done };
            }
            Action::Receive => self.receive(&mut next),
            Action::KillSender => {
                next.sender = Sender::Dead;
                next.deaths += 1;
                // What it was about to send is not sent; the next one has others.
                next.number += 1;
            }
            Action::KillReceiver => {
                next.receiver = Receiver::Dead;
                next.deaths += 1;
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(WRONG, |_, state: &State| state.wrong.is_none()),
            Property::always(TWICE, |_, state: &State| {
                let mut buffers: Vec<usize> = (0..CELLS as u8 * 8)
                    .filter(|&at| is_full(state, at))
                    .map(|at| full(state, at))
                    .collect();
                buffers.sort_unstable();
                buffers.windows(2).all(|pair| pair[0] != pair[1])
            }),
            Property::always(LOST, |_, state: &State| {
                // Where both are at rest, each buffer is free or in a cell, or in the one hand.
                let idle = matches!(state.sender, Sender::Room | Sender::Done)
                    && state.receiver == Receiver::Look;
                let in_cells = (0..CELLS as u8 * 8).filter(|&at| is_full(state, at)).count();
                let free = state.buffers.iter().filter(|&&buffer| buffer == Buffer::Free).count();
                !idle || free + in_cells == BUFFERS
            }),
        ]
    }
}

fn full(state: &State, position: u8) -> usize {
    match state.cells[cell(position)].1 {
        Content::Full(buffer) => buffer,
        _ => usize::MAX,
    }
}

const WRONG: &str = "messages come once, whole and in order, and there is room for the next";
const TWICE: &str = "no buffer is in two cells";
const LOST: &str = "no buffer is lost";

fn discoveries(without: Without) -> Vec<&'static str> {
    crate::model::discoveries(Lane(without), without, without == Without::Nothing)
}

#[test]
fn every_run_is_right() {
    assert_eq!(discoveries(Without::Nothing), [""; 0]);
}

#[test]
fn each_rule_is_needed() {
    use Without::{
        ExchangeToDrop, FreeingTheLent, FreeingTheTaken, MarkingFirst, NamingTheDropped,
    };
    let rules = [MarkingFirst, NamingTheDropped, FreeingTheLent, FreeingTheTaken, ExchangeToDrop];
    for without in rules {
        assert!(!discoveries(without).is_empty(), "{without:?}");
    }
}
