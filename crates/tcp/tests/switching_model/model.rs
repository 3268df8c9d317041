//! What may happen: every step of docs/protocol.md between two accesses that the other end can see,
//! in any order.

mod kernel;
mod process;
mod reader;
mod tokens;
mod writer;

use stateright::{Model, Property};

use crate::switching_model::state::*;

/// A rule of the protocol, left out on purpose: the checker must then find a run that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// The reader reads `epoch` before it asks the kernel how many bytes there are.
    RecordsBeforeFionread,
    /// The reader asks the kernel for a FIN after it has read the records.
    FinAfterRecords,
    /// A new upgrade does not wait for the reader to have entered the last downgrade.
    UpgradeBeforeAck,
    /// An upgrade does not wait until the bytes of a frozen ring are all sent again.
    UpgradeBeforeResent,
    /// Tokens are thrown away while the ring holds data.
    TokensLeaveBeforeData,
    /// Tokens are thrown away past a downgrade's offset.
    TokensPastDowngrade,
    /// A reader sleeps without looking again once armed.
    SleepOnEmptyUnchecked,
    /// A writer sleeps without looking again once armed.
    SleepOnFullUnchecked,
    /// A writer that armed looks at `head` and `freeze` again, not at whether tokens can still
    /// come.
    TokenSourceUnchecked,
    /// A writer on a full ring asks for a token though its incoming direction is on TCP.
    TokenWithoutSource,
    /// A downgrade sends no token.
    DowngradeInSilence,
    /// A downgrade sends its token only if somebody had armed before it was published.
    DowngradeWakesTheArmed,
    /// A downgrade sends its token without a word in `want_data`.
    DowngradeTokenUnpromised,
    /// A waiter that cannot be rung is left asleep.
    UnrungInSilence,
    /// A waiter that cannot be rung is woken by a token without a word in `want_data`.
    UnrungUnpromised,
    /// A downgrade sends no token where one is promised.
    PromisedOnce,
    /// Tokens not yet accepted by the kernel are not counted in a downgrade's offset.
    OwedTokensUncounted,
    /// A token that is thrown away does not wake this end's other sleepers.
    TokenWakesOneThread,
    /// An upgrade that the reader has not entered counts as armed, whatever `want_data` says.
    UnenteredCountsAsArmed,
    /// A writer counts the space from `head` alone, though a frozen ring's rest was sent again over
    /// TCP.
    StaleHeadCounts,
    /// A freeze does not say which epoch it means.
    FreezeWithoutEpoch,
    /// `hold` is a word of its own, looked at before the upgrade is published.
    HoldApart,
    /// `hold` is not looked at again once the upgrade is published.
    HoldUnchecked,
    /// A close does not wait for the tokens that are on their way.
    CloseWithoutWaiting,
    /// A close leaves TOKEN in `want_space`.
    SpaceLeftArmed,
    /// End-of-file over TCP is believed though bytes of a frozen ring were to come before it.
    ShortResendBelieved,
}

/// What the two ends may do, and how often: kept so small that every run is walked.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Whether both directions begin on their rings.
    pub upgraded: bool,
    /// How many bytes each end's program writes.
    pub bytes: [u8; 2],
    pub upgrades: [u8; 2],
    pub downgrades: [u8; 2],
    /// How often each end, as the reader, freezes its incoming direction.
    pub freezes: [u8; 2],
    pub shutdown: [bool; 2],
    pub close: [bool; 2],
    pub kill: [bool; 2],
    /// Whether this end may hand its incoming direction to a program without the shim.
    pub hand_over: [bool; 2],
    /// Whether this end, as a reader, sleeps by a waiter that the writer cannot ring.
    pub unheard: [bool; 2],
    /// How often each end may send a token that wakes nobody in particular: its reader's writer may
    /// wait for room by a waiter that cannot be rung.
    pub nudges: [u8; 2],
    /// Whether programs sleep in level-triggered kernel sets without asking the shim.
    pub level_sets: bool,
    /// Whether a thread that looks goes on to what it sees, and arms, in the same step.
    pub coarse: bool,
    /// Whether what is sent has arrived at once.
    pub instant: bool,
    /// How many bytes a ring takes.
    pub ring: u8,
    /// How many bytes one direction of the kernel takes.
    pub room: u8,
    pub broken: Option<Broken>,
}

impl Default for Protocol {
    fn default() -> Self {
        Protocol {
            upgraded: false,
            bytes: [0; 2],
            upgrades: [0; 2],
            downgrades: [0; 2],
            freezes: [0; 2],
            shutdown: [false; 2],
            close: [false; 2],
            kill: [false; 2],
            hand_over: [false; 2],
            unheard: [false; 2],
            nudges: [0; 2],
            level_sets: false,
            coarse: false,
            instant: true,
            ring: RING,
            room: 3,
            broken: None,
        }
    }
}

/// Something that happens at end `.0`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Action(pub usize, pub Step);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    // The network.
    /// One item that this end sent reaches the other kernel.
    Arrive,
    // The thread that writes, and the service thread.
    Write,
    FinishWrite,
    WakeWriter,
    SendToken,
    Resend,
    Upgrade,
    Downgrade,
    AnswerFreeze,
    Nudge,
    Shutdown,
    // The thread that reads.
    AskKernel,
    Receive,
    ReceiveAll,
    FinishRead,
    WakeReader,
    SleepInLevelSet,
    Freeze,
    Hold,
    HandOver,
    // The process.
    Close,
    Kill,
}

const STEPS: [Step; 22] = [
    Step::Arrive,
    Step::FinishWrite,
    Step::FinishRead,
    Step::AskKernel,
    Step::Receive,
    Step::ReceiveAll,
    Step::WakeReader,
    Step::WakeWriter,
    Step::Write,
    Step::SendToken,
    Step::Resend,
    Step::Close,
    Step::Upgrade,
    Step::Downgrade,
    Step::AnswerFreeze,
    Step::Nudge,
    Step::Shutdown,
    Step::SleepInLevelSet,
    Step::Freeze,
    Step::Hold,
    Step::HandOver,
    Step::Kill,
];

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let direction = Direction {
            epoch: u8::from(self.upgraded),
            up: Record::default(),
            down: Record::default(),
            tail: 0,
            eof: NO_EOF,
            want_space: Word::None,
            ring: [0; RING as usize],
            ack: u8::from(self.upgraded),
            head: 0,
            want_data: Word::Token,
            freeze: None,
            hold: false,
            taken: self.upgraded,
            next: 0,
            sent: 0,
            owed: 0,
            resend: (0, 0),
            shut: false,
            received: 0,
            phase: u8::from(self.upgraded),
            got: 0,
            queue: Queue::default(),
        };
        let end = |e: usize| End {
            writing: Writing::Idle,
            reading: Reading::Idle,
            life: Life::Open,
            armed_data: true,
            armed_space: false,
            to_come: 0,
            kick: false,
            reset: false,
            token_kept: false,
            upgrades: self.upgrades[e],
            downgrades: self.downgrades[e],
            freezes: self.freezes[e],
            nudges: self.nudges[e],
        };
        vec![State { dirs: [direction; 2], ends: [end(0), end(1)], fault: None }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.fault.is_none() {
            actions.extend(STEPS.iter().flat_map(|&step| [Action(0, step), Action(1, step)]));
        }
    }

    fn next_state(&self, state: &State, Action(e, step): Action) -> Option<State> {
        let mut s = *state;
        Run { rules: self, s: &mut s, e, p: 1 - e }.step(step)?;
        s.dirs.iter_mut().for_each(Direction::count_from_here);
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "1: the bytes handed out are those written, in order, to the last",
                |_, s: &State| !matches!(s.fault, Some(Fault::WrongByte | Fault::EarlyEof)),
            ),
            Property::always("2: tokens are tokens and data is data", |_, s: &State| {
                !matches!(s.fault, Some(Fault::TokenAsData | Fault::DataAsToken))
            }),
            Property::always(
                "3, 4, 6: nobody waits for what never comes",
                |m: &Protocol, s: &State| s.is_settled() || s.fault.is_some() || m.can_move(s),
            ),
            Property::always("5: no reset without unread data or a death", |_, s: &State| {
                !matches!(s.fault, Some(Fault::ResetAfterCleanClose | Fault::ResetForNothing))
            }),
        ]
    }
}

impl Protocol {
    /// Whether anything will happen though no program asks for it.
    fn can_move(&self, state: &State) -> bool {
        STEPS.iter().any(|&step| {
            (0..2).any(|e| state.must(e, step) && self.next_state(state, Action(e, step)).is_some())
        })
    }

    fn is_broken(&self, rule: Broken) -> bool {
        self.broken == Some(rule)
    }
}

impl State {
    /// Whether a step comes by itself. Programs need not write, switch, shut down, close or die.
    fn must(&self, e: usize, step: Step) -> bool {
        match step {
            Step::Write
            | Step::Upgrade
            | Step::Downgrade
            | Step::Nudge
            | Step::Shutdown
            | Step::Kill => false,
            Step::SleepInLevelSet | Step::Freeze | Step::Hold | Step::HandOver => false,
            Step::Close => self.ends[e].life != Life::Open,
            _ => true,
        }
    }

    /// Whether all may stay as it is for ever: every byte read, every end told of the other's end.
    fn is_settled(&self) -> bool {
        (0..2).all(|e| {
            let (end, peer) = (&self.ends[e], &self.ends[1 - e]);
            let (out, inc) = (&self.dirs[e], &self.dirs[1 - e]);
            let behind = inc.epoch > inc.phase;
            if matches!(end.life, Life::Closed | Life::Dead) {
                return true;
            }
            let ended = inc.shut || matches!(peer.life, Life::Closed | Life::Dead);
            let reader = match end.reading {
                Reading::Eof | Reading::Reset => true,
                Reading::Asleep | Reading::AsleepTcp => {
                    let asked = inc.hold || inc.freeze.is_some_and(|f| f.0 == inc.phase);
                    !ended && inc.got == inc.next && !(asked && behind)
                }
                Reading::HandedOver => !ended && inc.got == inc.next,
                _ => false,
            };
            let writer = matches!(end.writing, Writing::Idle | Writing::Done | Writing::Broken);
            let sent = end.reset || (out.owed == 0 && out.resend.0 == out.resend.1);
            end.life == Life::Open && reader && writer && sent
        })
    }
}

/// One step of end `e`, whose peer is `p`, in the making. `None` from a step: it cannot happen now.
struct Run<'a> {
    rules: &'a Protocol,
    s: &'a mut State,
    e: usize,
    p: usize,
}

impl Run<'_> {
    fn step(&mut self, step: Step) -> Option<()> {
        match step {
            Step::Arrive => return self.arrive(self.e),
            _ if matches!(self.end().life, Life::Closed | Life::Dead) => return None,
            Step::SendToken => return self.send_token(),
            Step::Resend => return self.resend(),
            Step::Close => return self.close(),
            Step::Kill => return self.kill(),
            _ if self.end().life != Life::Open => return None,
            _ => {}
        }
        match step {
            Step::Write => self.write(),
            Step::FinishWrite => self.finish_write(),
            Step::WakeWriter => self.wake_writer(),
            Step::Upgrade => self.upgrade(),
            Step::Downgrade => self.downgrade(),
            Step::AnswerFreeze => self.answer_freeze(),
            Step::Nudge => self.nudge(),
            Step::Shutdown => self.shutdown(),
            Step::AskKernel => self.ask_kernel(),
            Step::Receive => self.receive(false),
            Step::ReceiveAll => self.receive(true),
            Step::FinishRead => self.finish_read(),
            Step::WakeReader => self.wake_reader(),
            Step::SleepInLevelSet => self.sleep_in_level_set(),
            Step::Freeze => self.freeze(),
            Step::Hold => self.hold(),
            Step::HandOver => self.hand_over(),
            Step::Arrive | Step::SendToken | Step::Resend | Step::Close | Step::Kill => None,
        }
    }

    fn end(&mut self) -> &mut End {
        &mut self.s.ends[self.e]
    }

    /// The direction this end writes.
    fn out(&mut self) -> &mut Direction {
        &mut self.s.dirs[self.e]
    }

    /// The direction this end reads.
    fn inc(&mut self) -> &mut Direction {
        &mut self.s.dirs[self.p]
    }

    fn fault(&mut self, fault: Fault) {
        self.s.fault.get_or_insert(fault);
    }

    fn is_broken(&self, rule: Broken) -> bool {
        self.rules.is_broken(rule)
    }
}
