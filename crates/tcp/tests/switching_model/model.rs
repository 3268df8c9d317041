//! What may happen: every step of docs/protocol.md between two accesses that the other end can see,
//! in any order.

use stateright::{Model, Property};

use crate::state::*;

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

    // ---- the kernel ----

    fn send(&mut self, item: Item) {
        self.out().queue.push(item);
        if self.rules.instant {
            let _ = self.arrive(self.e);
        }
    }

    fn has_room(&mut self) -> bool {
        let room = self.rules.room;
        self.out().queue.len() < room
    }

    /// The next item of direction `d` reaches the kernel of the end that reads it.
    fn arrive(&mut self, d: usize) -> Option<()> {
        let item = self.s.dirs[d].queue.next_to_arrive()?;
        let reader = self.s.ends[1 - d];
        let queue = &mut self.s.dirs[d].queue;
        if matches!(reader.life, Life::Closed | Life::Dead) {
            queue.drop_next();
            if item != Item::Fin {
                self.send_reset(1 - d);
            }
        } else if reader.reset {
            queue.drop_next();
        } else {
            queue.arrived += 1;
        }
        Some(())
    }

    /// The kernel of end `e`, whose socket is gone, refuses a byte: what it still had to send is
    /// lost with it.
    fn send_reset(&mut self, e: usize) {
        let told = 1 - e;
        if self.s.ends[e].life != Life::Dead && self.s.dirs[told].next == self.s.dirs[told].got {
            self.fault(Fault::ResetAfterCleanClose);
        }
        self.s.ends[told].reset = true;
        self.s.dirs[e].queue.drop_in_flight();
        let out = &mut self.s.dirs[told];
        out.queue = Queue::default();
        out.owed = 0;
        out.resend = (0, 0);
    }

    /// What the kernel does when the last descriptor of the socket goes.
    fn release_socket(&mut self) {
        if self.end().reset {
            return;
        }
        if self.inc().queue.readable() > 0 {
            self.send_reset(self.e);
        } else if !self.out().shut {
            self.out().shut = true;
            self.send(Item::Fin);
        }
    }

    /// Whether a sleep on the TCP socket ends.
    fn socket_wakes(&mut self) -> bool {
        self.inc().queue.front().is_some() || self.end().reset
    }

    // ---- tokens ----

    fn send_lock_is_free(&mut self) -> bool {
        !matches!(
            self.end().writing,
            Writing::Published
                | Writing::Unrung
                | Writing::Upgrading
                | Writing::Upgraded
                | Writing::Downgrading { .. }
                | Writing::Ending
        )
    }

    /// Tokens can be sent in this direction: it is in ring phase and open.
    fn carries_tokens(direction: &Direction) -> bool {
        direction.epoch % 2 == 1 && direction.eof == NO_EOF && !direction.shut
    }

    fn send_token(&mut self) -> Option<()> {
        let may = self.send_lock_is_free() && self.has_room() && !self.end().reset;
        (may && self.out().owed > 0).then(|| {
            self.out().owed -= 1;
            self.out().sent += 1;
            self.send(Item::Token);
        })
    }

    /// Puts `word` into `want_data`, and notes how many tokens were sent since it was last set.
    fn set_want_data(&mut self, word: Word) {
        let old = std::mem::replace(&mut self.inc().want_data, word);
        let promised = if let Word::Promised(count) = old { count.cast_signed() } else { 0 };
        let claimed = self.end().armed_data && (old == Word::None || promised > 0);
        self.end().to_come += i8::from(claimed) + promised;
        self.end().armed_data = word == Word::Token;
    }

    /// Puts `word` into `want_space`, and notes whether the last arming was claimed.
    fn set_want_space(&mut self, word: Word) {
        let old = std::mem::replace(&mut self.out().want_space, word);
        let claimed = self.end().armed_space && old == Word::None;
        self.end().to_come += i8::from(claimed);
        self.end().armed_space = word == Word::Token;
    }

    /// Claims what the reader of our direction armed.
    fn claim_want_data(&mut self) {
        if self.out().want_data == Word::Token {
            self.out().want_data = Word::None;
            self.out().owed += 1;
        }
    }

    /// Claims what the writer of our incoming direction armed.
    fn claim_want_space(&mut self) {
        if self.inc().want_space == Word::Token {
            self.inc().want_space = Word::None;
            self.out().owed += 1;
        }
    }

    // ---- the writer ----

    fn write(&mut self) -> Option<()> {
        let bytes = self.rules.bytes[self.e];
        if self.end().writing != Writing::Idle || self.out().next == bytes {
            return None;
        }
        if self.end().reset {
            self.end().writing = Writing::Broken;
            return Some(());
        }
        if self.out().epoch % 2 == 1 { self.write_to_ring() } else { self.write_to_tcp() }
    }

    fn write_to_tcp(&mut self) -> Option<()> {
        let out = self.out();
        let in_turn = out.owed == 0 && out.resend.0 == out.resend.1;
        (in_turn && self.has_room()).then(|| {
            let out = self.out();
            let byte = out.next;
            out.next += 1;
            out.sent += 1;
            self.send(Item::Data(byte));
        })
    }

    fn write_to_ring(&mut self) -> Option<()> {
        if self.ring_is_full() {
            if self.tokens_can_come() || self.is_broken(Broken::TokenWithoutSource) {
                self.end().writing = Writing::Full;
                if self.rules.coarse {
                    let _ = self.finish_write();
                }
            } else {
                let ring = self.out().tail;
                self.leave(ring);
            }
        } else {
            let size = self.rules.ring;
            let out = self.out();
            out.ring[(out.tail % size) as usize] = out.next;
            out.tail += 1;
            out.next += 1;
            self.end().writing = Writing::Published;
        }
        Some(())
    }

    fn ring_is_full(&mut self) -> bool {
        let stale = self.is_broken(Broken::StaleHeadCounts);
        let size = self.rules.ring;
        let out = self.out();
        let head = if stale { out.head } else { out.head.max(out.up.ring) };
        out.tail - head >= size
    }

    /// Whether a writer that sleeps on a full ring could be woken with a token.
    fn tokens_can_come(&mut self) -> bool {
        let inc = self.inc();
        Self::carries_tokens(inc) && !inc.queue.fin_arrived() && !inc.hold
    }

    fn finish_write(&mut self) -> Option<()> {
        let next = match self.end().writing {
            Writing::Published => return self.wake_reader_of_ring(),
            Writing::Unrung => {
                self.wake_by_token();
                Writing::Idle
            }
            Writing::Upgrading => {
                let out = self.out();
                out.up = Record { tcp: out.sent, ring: out.tail };
                out.epoch += 1;
                Writing::Upgraded
            }
            Writing::Upgraded => {
                if self.out().hold && !self.is_broken(Broken::HoldUnchecked) {
                    let ring = self.out().tail;
                    self.leave(ring);
                    return Some(());
                }
                Writing::Idle
            }
            Writing::Downgrading { ring } => {
                let counted =
                    if self.is_broken(Broken::OwedTokensUncounted) { 0 } else { self.out().owed };
                let out = self.out();
                out.down = Record { tcp: out.sent + counted.cast_signed(), ring };
                if ring < out.tail {
                    out.resend = (ring, out.tail);
                }
                out.taken = false;
                out.epoch += 1;
                Writing::Idle
            }
            Writing::Ending => {
                self.out().shut = true;
                self.send(Item::Fin);
                Writing::Done
            }
            Writing::Full => {
                self.set_want_space(Word::Token);
                self.end().kick = false;
                Writing::Armed
            }
            Writing::Armed => self.look_again_at_full_ring(),
            _ => return None,
        };
        self.end().writing = next;
        Some(())
    }

    fn wake_reader_of_ring(&mut self) -> Option<()> {
        self.end().writing = Writing::Idle;
        if self.out().want_data == Word::Closed {
            let ring = self.out().tail;
            self.leave(ring);
            return Some(());
        }
        let out = self.out();
        let unentered = out.want_data == Word::None && out.ack < out.epoch;
        if unentered && self.is_broken(Broken::UnenteredCountsAsArmed) {
            self.out().owed += 1;
        }
        if self.out().want_data == Word::Unheard {
            self.out().want_data = Word::None;
            self.end().writing = Writing::Unrung;
        }
        self.claim_want_data();
        Some(())
    }

    /// Wakes a reader that cannot be rung, by a token that is promised.
    fn wake_by_token(&mut self) {
        let (silent, unpromised) =
            (self.is_broken(Broken::UnrungInSilence), self.is_broken(Broken::UnrungUnpromised));
        let word = self.out().want_data;
        if silent || matches!(word, Word::Closed | Word::Promised(_)) {
            return;
        }
        self.out().owed += 1;
        if !unpromised {
            self.out().want_data = if word == Word::Token { Word::None } else { Word::Promised(1) };
        }
    }

    fn nudge(&mut self) -> Option<()> {
        let out = *self.out();
        let may = self.end().nudges > 0
            && self.send_lock_is_free()
            && Self::carries_tokens(&out)
            && !self.end().reset;
        may.then(|| {
            self.end().nudges -= 1;
            self.wake_by_token();
        })
    }

    fn look_again_at_full_ring(&mut self) -> Writing {
        if self.is_broken(Broken::SleepOnFullUnchecked) {
            return Writing::Asleep;
        }
        let unchecked = self.is_broken(Broken::TokenSourceUnchecked)
            || self.is_broken(Broken::TokenWithoutSource);
        if !unchecked && !self.tokens_can_come() {
            self.set_want_space(Word::None);
            return Writing::Idle;
        }
        if !self.ring_is_full() || self.freeze_in_force() { Writing::Idle } else { Writing::Asleep }
    }

    fn wake_writer(&mut self) -> Option<()> {
        let wakes = self.socket_wakes() || self.end().kick;
        (self.end().writing == Writing::Asleep && wakes).then(|| {
            self.end().kick = false;
            self.end().writing = Writing::Idle;
            if self.rules.coarse {
                let _ = self.write();
            }
        })
    }

    fn resend(&mut self) -> Option<()> {
        let may = self.send_lock_is_free() && self.has_room() && !self.end().reset;
        let out = self.out();
        (may && out.owed == 0 && out.resend.0 < out.resend.1).then(|| {
            let size = self.rules.ring;
            let out = self.out();
            let byte = out.ring[(out.resend.0 % size) as usize];
            out.resend.0 += 1;
            out.sent += 1;
            if out.resend.0 == out.resend.1 {
                out.resend = (0, 0);
            }
            self.send(Item::Data(byte));
        })
    }

    fn upgrade(&mut self) -> Option<()> {
        let (early, unsent) =
            (self.is_broken(Broken::UpgradeBeforeAck), self.is_broken(Broken::UpgradeBeforeResent));
        let idle =
            self.end().writing == Writing::Idle && self.end().upgrades > 0 && !self.end().reset;
        let out = self.out();
        let entered = out.ack == out.epoch || early;
        let all_sent = out.queue.arrived == out.queue.len() && out.owed == 0;
        let resent = out.resend.0 == out.resend.1 || unsent;
        let may = out.epoch.is_multiple_of(2) && !out.hold && !out.shut;
        (idle && entered && all_sent && resent && may).then(|| {
            self.out().taken = true;
            self.end().upgrades -= 1;
            self.end().writing = Writing::Upgrading;
        })
    }

    fn downgrade(&mut self) -> Option<()> {
        let idle =
            self.end().writing == Writing::Idle && self.end().downgrades > 0 && !self.end().reset;
        (idle && self.out().epoch % 2 == 1).then(|| {
            self.end().downgrades -= 1;
            let ring = self.out().tail;
            self.leave(ring);
        })
    }

    /// A freeze of the epoch we are in.
    fn freeze_in_force(&mut self) -> bool {
        let any_epoch = self.is_broken(Broken::FreezeWithoutEpoch);
        let out = self.out();
        out.epoch % 2 == 1
            && out.eof == NO_EOF
            && out.freeze.is_some_and(|f| f.0 == out.epoch || any_epoch)
    }

    fn answer_freeze(&mut self) -> Option<()> {
        (self.send_lock_is_free() && self.freeze_in_force() && !self.end().reset).then(|| {
            let (_, ring) = self.out().freeze.unwrap_or_default();
            self.leave(ring);
        })
    }

    /// Begins a downgrade at this ring offset. Its one token wakes the reader and a writer on a
    /// full ring alike.
    fn leave(&mut self, ring: u8) {
        let word = self.out().want_data;
        let armed = word == Word::Token || self.inc().want_space == Word::Token;
        let silent = self.is_broken(Broken::DowngradeInSilence)
            || (self.is_broken(Broken::DowngradeWakesTheArmed) && !armed);
        let unpromised = self.is_broken(Broken::DowngradeTokenUnpromised);
        self.end().writing = Writing::Downgrading { ring };
        let enough = matches!(word, Word::Promised(_)) && self.is_broken(Broken::PromisedOnce);
        if word == Word::Closed || enough || silent {
            return;
        }
        self.out().owed += 1;
        self.out().want_data = match word {
            Word::Promised(count) if !unpromised => Word::Promised(count + 1),
            Word::None | Word::Unheard if !unpromised => Word::Promised(1),
            _ => Word::None,
        };
    }

    fn shutdown(&mut self) -> Option<()> {
        let may =
            self.rules.shutdown[self.e] && self.end().writing == Writing::Idle && !self.end().reset;
        let out = self.out();
        (may && out.owed == 0 && out.resend.0 == out.resend.1).then(|| {
            let out = self.out();
            if out.epoch % 2 == 1 {
                out.eof = out.tail;
            }
            self.end().writing = Writing::Ending;
        })
    }

    // ---- the reader ----

    fn ask_kernel(&mut self) -> Option<()> {
        (self.end().reading == Reading::Idle).then(|| {
            let epoch = self.inc().epoch;
            self.end().reading = if self.is_broken(Broken::RecordsBeforeFionread) {
                Reading::ReadEpoch { epoch }
            } else {
                self.kernel_says()
            };
            if self.rules.coarse {
                let _ = self.receive(false);
                if self.end().reading == Reading::Empty {
                    let _ = self.finish_read();
                }
            }
        })
    }

    fn kernel_says(&mut self) -> Reading {
        let reset = self.end().reset;
        let queue = &self.inc().queue;
        Reading::Looked { bytes: queue.readable(), fin: queue.fin_arrived(), reset }
    }

    fn receive(&mut self, all: bool) -> Option<()> {
        let (bytes, mut fin, reset, epoch) = match (self.end().reading, self.inc().epoch) {
            (Reading::Looked { bytes, fin, reset }, epoch) => (bytes, fin, reset, epoch),
            (Reading::ReadEpoch { epoch }, _) => match self.kernel_says() {
                Reading::Looked { bytes, fin, reset } => (bytes, fin, reset, epoch),
                _ => return None,
            },
            (Reading::HandedOver, _) if !all => return self.read_bare_socket(),
            _ => return None,
        };
        if self.is_broken(Broken::FinAfterRecords) {
            fin = self.inc().queue.fin_arrived();
        }
        self.end().reading = Reading::Idle;
        if self.inc().phase.is_multiple_of(2) {
            self.receive_from_tcp(all, bytes, fin, reset, epoch)
        } else if !all {
            self.receive_from_ring(bytes, fin, reset, epoch);
            Some(())
        } else {
            None
        }
    }

    fn receive_from_tcp(
        &mut self,
        all: bool,
        bytes: u8,
        fin: bool,
        reset: bool,
        epoch: u8,
    ) -> Option<()> {
        let inc = self.inc();
        let upgraded = epoch > inc.phase;
        let most = if upgraded {
            bytes.min((inc.up.tcp - inc.received).max(0).cast_unsigned())
        } else {
            bytes
        };
        if all && most < 2 {
            return None;
        }
        if most > 0 {
            (0..if all { most } else { 1 }).for_each(|_| self.take_from_tcp());
        } else if upgraded && inc.received == inc.up.tcp {
            self.enter_ring();
        } else if fin {
            // Bytes of a frozen ring that were to come over TCP, and their writer died.
            let short = inc.phase > 0
                && inc.received < inc.down.tcp + (inc.tail - inc.down.ring).cast_signed();
            if upgraded || (short && !self.is_broken(Broken::ShortResendBelieved)) {
                self.read_reset();
            } else {
                self.read_eof();
            }
        } else if reset {
            self.read_reset();
        } else {
            self.end().reading = Reading::AsleepTcp;
        }
        Some(())
    }

    fn take_from_tcp(&mut self) {
        let inc = self.inc();
        inc.received += 1;
        match inc.queue.pop() {
            Item::Data(byte) => self.hand_out(byte),
            _ => self.fault(Fault::TokenAsData),
        }
    }

    fn hand_out(&mut self, byte: u8) {
        if byte != self.inc().got {
            self.fault(Fault::WrongByte);
        }
        self.inc().got += 1;
    }

    fn enter_ring(&mut self) {
        let inc = self.inc();
        inc.phase += 1;
        inc.head = inc.up.ring;
        inc.ack = inc.phase;
    }

    fn enter_tcp(&mut self) {
        self.inc().phase += 1;
        if self.end().life == Life::Open {
            self.set_want_data(Word::Token);
        }
        self.inc().ack = self.inc().phase;
        self.end().token_kept = false;
    }

    fn receive_from_ring(&mut self, bytes: u8, fin: bool, reset: bool, epoch: u8) {
        let eager = self.is_broken(Broken::TokensLeaveBeforeData) && bytes > 0;
        let past = self.is_broken(Broken::TokensPastDowngrade);
        let size = self.rules.ring;
        let inc = self.inc();
        let downgraded = epoch > inc.phase;
        let alive = inc.eof == NO_EOF && !fin && !reset;
        let frozen = !downgraded && alive && inc.freeze.is_some_and(|f| f.0 == inc.phase);
        let limit = if downgraded {
            inc.down.ring
        } else if frozen {
            inc.head
        } else {
            inc.tail
        };
        if inc.head < limit && !eager {
            let byte = inc.ring[(inc.head % size) as usize];
            inc.head += 1;
            self.hand_out(byte);
            self.end().reading = Reading::HeadMoved;
            return;
        }
        let tokens = if downgraded && !past {
            bytes.min((inc.down.tcp - inc.received).max(0).cast_unsigned())
        } else {
            bytes
        };
        if tokens > 0 {
            self.end().token_kept &= eager;
            (0..tokens).for_each(|_| self.throw_token_away());
        } else if downgraded && inc.received >= inc.down.tcp {
            self.enter_tcp();
        } else if !downgraded && inc.eof == inc.head {
            self.read_eof();
        } else if fin && downgraded {
            // The writer died before the tokens it had counted: nothing follows.
            inc.received = inc.down.tcp;
            self.enter_tcp();
        } else if fin {
            self.ask_whether_dead();
        } else if reset {
            self.read_reset();
        } else {
            self.end().token_kept = false;
            self.end().reading = if downgraded { Reading::AsleepTcp } else { Reading::Empty };
        }
    }

    fn throw_token_away(&mut self) {
        let wakes_all = !self.is_broken(Broken::TokenWakesOneThread);
        let inc = self.inc();
        inc.received += 1;
        if inc.queue.pop() != Item::Token {
            self.fault(Fault::DataAsToken);
        }
        self.end().to_come -= 1;
        if wakes_all {
            self.wake_own_writer();
        }
    }

    /// Bids the other thread of this end look again.
    fn wake_own_writer(&mut self) {
        let end = self.end();
        end.kick |= matches!(end.writing, Writing::Armed | Writing::Asleep);
    }

    fn ask_whether_dead(&mut self) {
        let out = *self.out();
        let consumed = out.epoch % 2 == 1 && out.ack == out.epoch && out.head == out.tail;
        if consumed {
            self.read_eof();
        } else if Self::carries_tokens(&out) && self.send_lock_is_free() {
            self.out().owed += 1;
            self.end().reading = Reading::Probed;
        } else {
            self.read_reset();
        }
    }

    fn read_eof(&mut self) {
        self.end().reading = Reading::Eof;
        let dead = self.s.ends[self.p].life == Life::Dead;
        let inc = self.inc();
        let ended = inc.shut || inc.eof != NO_EOF || dead;
        if !ended || inc.got != inc.next {
            self.fault(Fault::EarlyEof);
        }
    }

    fn read_reset(&mut self) {
        self.end().reading = Reading::Reset;
        let unread = self.out().next > self.out().got;
        match self.s.ends[self.p].life {
            Life::Dead => {}
            Life::Closed if unread => {}
            _ => self.fault(Fault::ResetForNothing),
        }
    }

    fn finish_read(&mut self) -> Option<()> {
        let next = match self.end().reading {
            Reading::HeadMoved => {
                if !self.send_lock_is_free() {
                    return None;
                }
                let out = *self.out();
                if Self::carries_tokens(&out) {
                    self.claim_want_space();
                }
                Reading::Idle
            }
            Reading::Empty => {
                let unheard = self.rules.unheard[self.e] && self.inc().want_data != Word::Token;
                self.set_want_data(if unheard { Word::Unheard } else { Word::Token });
                Reading::Armed
            }
            Reading::Armed => {
                let unchecked = self.is_broken(Broken::SleepOnEmptyUnchecked);
                let inc = self.inc();
                let frozen = inc.freeze.is_some_and(|f| f.0 == inc.phase) && inc.eof == NO_EOF;
                let nothing =
                    (inc.tail == inc.head || frozen) && inc.epoch == inc.phase && inc.eof == NO_EOF;
                if nothing || unchecked { Reading::Asleep } else { Reading::Idle }
            }
            _ => return None,
        };
        self.end().reading = next;
        Some(())
    }

    fn wake_reader(&mut self) -> Option<()> {
        let next = match self.end().reading {
            Reading::Asleep => Reading::Idle,
            Reading::AsleepTcp => Reading::Idle,
            Reading::Probed => return self.end().reset.then(|| self.read_reset()),
            _ => return None,
        };
        self.socket_wakes().then(|| {
            let keeps = self.rules.level_sets && self.end().reading == Reading::Asleep;
            self.end().token_kept = keeps && !self.end().reset;
            self.end().reading = next;
            if self.rules.coarse {
                let _ = self.ask_kernel();
            }
        })
    }

    /// The program read a little and asks its kernel set again: the unread token must report what
    /// is left.
    fn sleep_in_level_set(&mut self) -> Option<()> {
        (self.end().token_kept && self.end().reading == Reading::Idle && !self.socket_wakes()).then(
            || {
                self.end().reading = Reading::Asleep;
            },
        )
    }

    fn freeze(&mut self) -> Option<()> {
        let may = self.end().reading == Reading::Idle && self.end().freezes > 0;
        (may && self.inc().phase % 2 == 1).then(|| {
            let inc = self.inc();
            inc.freeze = Some((inc.phase, inc.head));
            self.end().freezes -= 1;
            self.end().reading = Reading::HeadMoved;
        })
    }

    fn hold(&mut self) -> Option<()> {
        let may = self.rules.hand_over[self.e] && self.end().reading == Reading::Idle;
        (may && !self.inc().hold).then(|| {
            self.inc().hold = true;
            self.wake_own_writer();
        })
    }

    fn hand_over(&mut self) -> Option<()> {
        let calm = self.end().reading == Reading::Idle
            && !self.end().armed_space
            && self.end().to_come == 0;
        let apart = self.is_broken(Broken::HoldApart);
        let inc = self.inc();
        let free = !inc.taken || apart;
        (calm && inc.hold && free && inc.phase.is_multiple_of(2) && inc.epoch == inc.phase).then(
            || {
                self.end().reading = Reading::HandedOver;
            },
        )
    }

    fn read_bare_socket(&mut self) -> Option<()> {
        match self.inc().queue.front()? {
            Item::Fin => self.read_eof(),
            _ => self.take_from_tcp(),
        }
        Some(())
    }

    // ---- the process ----

    fn close(&mut self) -> Option<()> {
        match self.end().life {
            Life::Open => self.begin_close(),
            Life::Closing => {
                self.set_want_data(Word::Closed);
                self.end().life = Life::DataClosed;
                Some(())
            }
            Life::DataClosed => {
                if !self.is_broken(Broken::SpaceLeftArmed) {
                    self.set_want_space(Word::None);
                }
                self.end().life = Life::Waiting;
                Some(())
            }
            Life::Waiting => self.finish_close(),
            Life::Closed | Life::Dead => None,
        }
    }

    fn begin_close(&mut self) -> Option<()> {
        let reading = matches!(
            self.end().reading,
            Reading::Idle | Reading::Asleep | Reading::AsleepTcp | Reading::Eof | Reading::Reset
        );
        let writing = matches!(
            self.end().writing,
            Writing::Idle | Writing::Asleep | Writing::Done | Writing::Broken
        );
        (self.rules.close[self.e] && reading && writing).then(|| {
            let out = self.out();
            if out.epoch % 2 == 1 && !out.shut {
                out.eof = out.tail;
            }
            let end = self.end();
            end.writing = Writing::Done;
            end.reading = Reading::Idle;
            end.kick = false;
            end.token_kept = false;
            end.life = Life::Closing;
        })
    }

    /// Throws tokens away until the last that was promised has come, then lets the kernel close.
    fn finish_close(&mut self) -> Option<()> {
        let reset = self.end().reset;
        let inc = *self.inc();
        let (bytes, switched) = (inc.queue.readable(), inc.epoch > inc.phase);
        let on_ring = inc.phase % 2 == 1;
        let limit = if switched { inc.down.ring } else { inc.tail };
        let unread = if on_ring {
            inc.head < limit
        } else {
            bytes > 0 && !(switched && inc.received == inc.up.tcp)
        };
        if unread && !reset {
            self.end().life = Life::Closed;
            self.send_reset(self.e);
            return Some(());
        }
        if switched && !on_ring && inc.received == inc.up.tcp {
            self.enter_ring();
            return Some(());
        }
        let tokens = if switched {
            bytes.min((inc.down.tcp - inc.received).max(0).cast_unsigned())
        } else {
            bytes
        };
        if on_ring && tokens > 0 {
            (0..tokens).for_each(|_| self.throw_token_away());
            return Some(());
        }
        if on_ring && switched && inc.received == inc.down.tcp {
            self.enter_tcp();
            return Some(());
        }
        let out = self.out();
        let all_sent = out.owed == 0 && out.resend.0 == out.resend.1;
        let all_come = self.end().to_come == 0 || inc.queue.fin_arrived();
        let may = (all_sent && (all_come || self.is_broken(Broken::CloseWithoutWaiting))) || reset;
        may.then(|| {
            self.end().life = Life::Closed;
            self.release_socket();
        })
    }

    fn kill(&mut self) -> Option<()> {
        self.rules.kill[self.e].then(|| {
            let end = self.end();
            end.life = Life::Dead;
            end.writing = Writing::Done;
            end.reading = Reading::Idle;
            self.release_socket();
        })
    }
}
