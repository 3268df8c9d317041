//! Who asks the broker, and that nobody keeps another waiting.
//!
//! Each process that asks has a connection, and a thread of its own here: a descriptor that
//! somebody sends can make its last close wait, as at the prover ([`crate::prover::server`]), and
//! then that process's own thread waits. What a thread does for others is to send them a message:
//! who does not read his messages loses them. Descriptors that are under way count against a limit
//! of the broker's user, so a process that has not read all is given no memory: it is waited for,
//! for a moment.

mod meeting;
mod messages;

use super::matching::{Client, End, Matching, Refusal};
use super::memory;
use crate::prover::numbers::{Place, Reader};
use crate::prover::server::{Lines, PAUSE, STACK};
use crate::prover::turn_away::TurnAway;
use crate::users;
use anyhow::{Context, Result};
use ginnel_daemon::log;
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
/// So many ends that cannot be told are passed over for one question: others may hand them in as
/// fast as they are.
const PASSED_OVER: usize = 8;

/// What each pair gets, and each user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a pair's memory, which is taken as it is used.
    pub memory: u64,
    /// Pairs that two users may have together.
    pub pairs: usize,
}

/// A process that has asked.
struct Asker {
    client: Client,
    user: u32,
    /// Until then its thread waits for no other process, which would keep this one waiting.
    waits_from: Instant,
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
        let _ = say(client.as_fd(), &Answer::refusal(verdict, 0));
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
            let mut waits_from = Instant::now();
            while let Some(heard) = receive(socket.as_fd()) {
                match heard {
                    Heard::Question(question, end) => {
                        let asker = Asker { client, user, waits_from };
                        waits_from = broker.answer(asker, question, end);
                    }
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

    /// Looks for the other end. Returns from when on the thread may wait for another process.
    fn answer(&self, mut asker: Asker, question: Question, socket: OwnedFd) -> Instant {
        let client = asker.client;
        let read = self.read(asker.user, &question, socket.as_fd());
        // Before anybody is told: what its close may wait for keeps only this process waiting.
        drop(socket);
        let Question { connected, number } = question;
        let verdict = match read {
            Ok((numbers, place)) => {
                let end = End { client, number, connected, numbers, place };
                let is_answered = |_| self.hand_in(end, &mut asker.waits_from);
                if (0..PASSED_OVER).any(is_answered) {
                    return asker.waits_from;
                }
                // It asks again.
                Verdict::Nobody
            }
            Err(verdict) => verdict,
        };
        self.refuse(client, verdict, number);
        asker.waits_from
    }

    /// Looks for the other end. False where that could not be told: its process died a moment ago,
    /// or does not read, and whoever else has that socket may come yet.
    fn hand_in(&self, end: End, waits_from: &mut Instant) -> bool {
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
            Ok(None) => true,
            Ok(Some(pair)) if pair.is_new => self.introduce(&pair, waits_from),
            Ok(Some(pair)) => self.meet(&pair, |_, socket, answer| say(socket, answer)) != Err(0),
            Err(Refusal { verdict, also }) => {
                self.refuse(end.client, verdict, end.number);
                if let Some(also) = also {
                    self.refuse(also.client, verdict, also.number);
                }
                true
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
