//! Who asks the broker, and that nobody keeps another waiting.
//!
//! Each process that asks has a connection, and a thread of its own here: a descriptor that
//! somebody sends can make its last close wait, as at the prover ([`crate::prover::server`]), and
//! then that process's own thread waits. What a thread does for others is to send them a message:
//! who does not read his messages loses them. Descriptors that are under way count against a limit
//! of the broker's user, so a process that has not read all is given no memory: it is waited for,
//! for a moment.

mod messages;

use super::matching::{Client, End, Introduced, Matching, Pair, Refusal};
use super::{lines, memory};
use crate::log;
use crate::prover::numbers::{Place, Reader};
use crate::prover::server::{Lines, PAUSE, STACK};
use crate::prover::turn_away::TurnAway;
use crate::users;
use anyhow::{Context, Result};
use ginnel_tcp::broker::{Answer, Farewell, Question, Verdict};
use ginnel_tcp::kernel;
use ginnel_tcp::proof::Numbers;
use messages::{Heard, receive, say, tell};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{SocketFlags, accept_with};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of unread messages that the kernel keeps for a process, as it counts them: more than a
/// process has questions under way.
const UNREAD: usize = 64 << 10;
/// How often it is looked whether an end has waited long enough.
const TICK: Duration = Duration::from_millis(200);
/// How many connections of one user are read at once.
const READERS_OF_USER: usize = 4;

/// What each pair gets, and each user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a pair's memory, which is taken as it is used.
    pub memory: u64,
    /// Pairs that two users may have together.
    pub pairs: usize,
}

struct State {
    matching: Matching,
    sockets: HashMap<Client, Arc<OwnedFd>>,
    reading: HashMap<u32, usize>,
}

struct Broker {
    limits: Limits,
    reader: Reader,
    state: Mutex<State>,
    /// Somebody waits who did not before; somebody has done reading.
    changed: Condvar,
    /// What is logged of pairs.
    lines: Mutex<Lines>,
}

impl Broker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves whoever connects, for ever.
///
/// # Errors
/// What makes it impossible to go on.
pub fn serve(listener: &OwnedFd, reader: Reader, limits: Limits) -> Result<()> {
    let turn_away = TurnAway::start()?;
    let state = State {
        matching: Matching::new(limits.pairs),
        sockets: HashMap::new(),
        reading: HashMap::new(),
    };
    let lines = Mutex::new(Lines::default());
    let broker = Arc::new(Broker {
        limits,
        reader,
        state: Mutex::new(state),
        changed: Condvar::new(),
        lines,
    });
    let gives_up = broker.clone();
    thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || give_up(&gives_up))
        .context("a thread that gives up")?;
    let mut turned_away = Lines::default();
    loop {
        let client = match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(client) => client,
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            // Whoever waits is let in when there are some again.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                thread::sleep(PAUSE);
                continue;
            }
            Err(error) => return Err(error).context("accept"),
        };
        let who = users::of_peer(&client);
        let entered =
            who.map_err(|_| Verdict::TooMany).and_then(|user| Ok((broker.enter(user)?, user)));
        let (verdict, client) = match entered {
            Err(verdict) => (verdict, client),
            Ok((number, user)) => {
                let socket = Arc::new(client);
                broker.state().sockets.insert(number, socket.clone());
                if serve_beside(broker.clone(), number, user, socket.clone()).is_ok() {
                    continue;
                }
                // The kernel has no memory for a thread.
                broker.state().sockets.remove(&number);
                broker.state().matching.leave(number);
                // Nobody else has it by now.
                let Ok(client) = Arc::try_unwrap(socket) else { continue };
                (Verdict::NoMemory, client)
            }
        };
        turned_away.one(|| {
            log!(
                Warning,
                "process_turned_away",
                uid = who.unwrap_or(u32::MAX),
                why = format!("{verdict:?}")
            )
        });
        let _ = say(client.as_fd(), &Answer::refusal(verdict, 0), &[]);
        turn_away.hang_up(client);
    }
}

fn serve_beside(
    broker: Arc<Broker>,
    client: Client,
    user: u32,
    socket: Arc<OwnedFd>,
) -> io::Result<()> {
    let run = move || {
        // One that nobody can answer, and that nobody would miss.
        if set_socket_send_buffer_size(&*socket, UNREAD).is_ok() {
            while let Some(heard) = receive(socket.as_fd()) {
                match heard {
                    Heard::Question(question, end) => broker.answer(client, user, question, end),
                    Heard::Farewell(Farewell { pair }) => broker.end(client, pair),
                    Heard::Nonsense => {}
                }
            }
        }
        let others = {
            let mut state = broker.state();
            state.sockets.remove(&client);
            state.matching.leave(client)
        };
        for (other, pair) in others {
            broker.say_ended(other, pair);
        }
        // Its last descriptor is closed here: what lies unread in it may make that wait.
        drop(socket);
    };
    thread::Builder::new().stack_size(STACK).spawn(run).map(drop)
}

impl Broker {
    /// A process of `user` comes to ask.
    fn enter(&self, user: u32) -> Result<Client, Verdict> {
        let processes = self.state().sockets.len();
        if !memory::has_room_for_process(processes) {
            return Err(Verdict::NoMemory);
        }
        self.state().matching.enter(user).ok_or(Verdict::TooMany)
    }

    fn answer(&self, client: Client, user: u32, question: Question, socket: OwnedFd) {
        let read = self.read(user, &question, socket.as_fd());
        // Before anybody is told: what its close may wait for keeps only this process waiting.
        drop(socket);
        let (numbers, place) = match read {
            Ok(read) => read,
            Err(verdict) => return self.refuse(client, verdict, question.number),
        };
        let Question { connected, number } = question;
        let mut end = Some(End { client, number, connected, numbers, place });
        while let Some(asks) = end {
            end = self.hand_in(asks);
        }
    }

    /// Looks for the other end. Returns the same end where the other one could not be told: its
    /// process died a moment ago, and whoever else has that socket may come yet.
    fn hand_in(&self, end: End) -> Option<End> {
        let found = {
            let mut state = self.state();
            let found = state.matching.hand_in(end, Instant::now());
            if found == Ok(None) {
                // Under the lock: whoever comes to it is told after this one.
                tell(&state, end.client, &Answer::refusal(Verdict::Waits, end.number));
                self.changed.notify_all();
            }
            found
        };
        match found {
            Ok(None) => None,
            Ok(Some(pair)) if pair.is_new => self.introduce(&pair),
            Ok(Some(pair)) => (self.meet(&pair, Default::default()) == Err(0)).then_some(end),
            Err(Refusal { verdict, also }) => {
                self.refuse(end.client, verdict, end.number);
                if let Some(also) = also {
                    self.refuse(also.client, verdict, also.number);
                }
                None
            }
        }
    }

    /// The connection's numbers, and where it is.
    fn read(
        &self,
        user: u32,
        question: &Question,
        socket: BorrowedFd<'_>,
    ) -> Result<(Numbers, Place), Verdict> {
        let mut state = self.state();
        while state.reading.get(&user).is_some_and(|&count| count >= READERS_OF_USER) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        *state.reading.entry(user).or_default() += 1;
        drop(state);
        let established = kernel::state(socket.as_raw_fd()) == Ok(kernel::ESTABLISHED);
        let read = established.then(|| self.reader.numbers_and_place(socket, question.connected));
        let mut state = self.state();
        if let Some(count) = state.reading.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                state.reading.remove(&user);
            }
        }
        drop(state);
        self.changed.notify_all();
        match read {
            Some(Ok(Some(found))) => Ok(found),
            Some(Err(error)) => {
                self.line(|| log!(Error, "cannot_read", why = error));
                Err(Verdict::Unreadable)
            }
            _ => Err(Verdict::Unreadable),
        }
    }

    /// Gives both processes of a new pair its memory, and tells them where their ends meet. What is
    /// to meet there meanwhile is told after that: a process that has not got the memory could not.
    /// Returns the second end where the first could not be told.
    fn introduce(&self, pair: &Pair) -> Option<End> {
        let memory = match memory::make(self.limits.memory) {
            Ok(memory) => memory,
            Err(error) => {
                self.line(|| log!(Warning, "no_memory", why = format!("{error:#}")));
                self.come_to_nothing(pair, Verdict::NoMemory, &[pair.first, pair.second]);
                return None;
            }
        };
        // Where there are none, the two wake each other over TCP.
        let [one, other] = lines::make().unwrap_or_default();
        match self.meet(pair, [&one, &other].map(|ends| lines::beside(memory.as_fd(), ends))) {
            Ok(()) => {}
            // Who has not read all that was said before hears it behind that, and may ask again: it
            // would take a broker that says nothing for one that stands still.
            Err(0) => {
                self.come_to_nothing(pair, Verdict::Nobody, &[pair.first]);
                return Some(pair.second);
            }
            Err(_) => {
                self.say_ended(pair.first.client, pair.id);
                self.come_to_nothing(pair, Verdict::Nobody, &[pair.second]);
                return None;
            }
        }
        let (first, second) = (pair.first.client, pair.second.client);
        self.line(|| log!(Info, "paired", pair = pair.id, first = first, second = second));
        let Introduced { has_ended, queued } = self.state().matching.introduced(pair.id);
        if has_ended {
            // The word of that went out before the memory, perhaps, and was of a pair that nobody
            // knew.
            self.say_ended(first, pair.id);
            self.say_ended(second, pair.id);
        }
        for pair in queued {
            if has_ended {
                self.come_to_nothing(&pair, Verdict::Nobody, &[pair.first, pair.second]);
            } else if self.meet(&pair, Default::default()) == Err(0) {
                self.refuse(pair.second.client, Verdict::Nobody, pair.second.number);
            }
        }
        None
    }

    /// Tells both processes where their ends meet. `beside`: what each gets with that.
    ///
    /// # Errors
    /// Which of the two could not be told: 0, the one that waited, and then the other was told of
    /// nothing yet; or 1.
    fn meet(&self, pair: &Pair, beside: [Vec<BorrowedFd<'_>>; 2]) -> Result<(), u8> {
        let meeting = ginnel_region::sys::random_u64().max(1);
        for ((side, end), beside) in [(0, &pair.first), (1, &pair.second)].into_iter().zip(beside) {
            let socket = self.state().sockets.get(&end.client).cloned();
            let answer =
                Answer { verdict: Verdict::Meet, side, number: end.number, pair: pair.id, meeting };
            if socket.is_none_or(|socket| say(socket.as_fd(), &answer, &beside).is_err()) {
                return Err(side);
            }
        }
        Ok(())
    }

    /// A new pair is none after all: these ends hear why, and so do those that were to meet there.
    fn come_to_nothing(&self, pair: &Pair, verdict: Verdict, ends: &[End]) {
        let queued = if pair.is_new { self.state().matching.undo(pair.id) } else { Vec::new() };
        for end in ends {
            self.refuse(end.client, verdict, end.number);
        }
        for end in queued.iter().flat_map(|pair| [pair.first, pair.second]) {
            self.refuse(end.client, Verdict::Nobody, end.number);
        }
    }

    fn say_ended(&self, client: Client, pair: u64) {
        tell(&self.state(), client, &Answer { pair, ..Answer::refusal(Verdict::Ended, 0) });
    }

    /// Tells both processes of a pair that it has ended, as one of them says: that one also where
    /// it has ended before, which it may have missed.
    fn end(&self, client: Client, pair: u64) {
        let other = self.state().matching.part(client, pair);
        for client in other.into_iter().chain([client]) {
            self.say_ended(client, pair);
        }
    }

    /// Says what became of a question, where that is not memory.
    fn refuse(&self, client: Client, verdict: Verdict, number: u64) {
        tell(&self.state(), client, &Answer::refusal(verdict, number));
    }

    fn line(&self, log: impl FnOnce()) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).one(log);
    }
}

/// Tells those who have waited in vain.
fn give_up(broker: &Broker) {
    loop {
        let mut state = broker.state();
        while !state.matching.is_waited() {
            state = broker.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let gone = state.matching.give_up(Instant::now());
        drop(state);
        for (end, verdict) in gone {
            broker.refuse(end.client, verdict, end.number);
        }
        thread::sleep(TICK);
    }
}
