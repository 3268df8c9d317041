//! A thread that serves connections, each for as long as it lasts.
//!
//! Readiness is edge-triggered, so a connection remembers what it was told, and those that have
//! more to do take turns: none is served for longer than [`TURN`] reads while others wait.

use super::Shared;
use super::listen::Stream;
use crate::protocol::{Context, Session, Verdict};
use mio::{Events, Poll, Token, Waker};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Reads of one connection before another has its turn.
const TURN: usize = 8;
/// Bytes of one read.
const READ: usize = 64 << 10;
/// For so long the store is left to others between two parts of flush_all.
pub const ASIDE: Duration = Duration::from_micros(100);
/// Token of the waker; connections have the numbers from 0 on.
const WAKER: Token = Token(usize::MAX);

/// The accepting thread's end.
#[derive(Debug)]
pub struct Worker {
    inbox: Arc<Mutex<Vec<Stream>>>,
    waker: Waker,
}

impl Worker {
    /// Starts the thread.
    pub fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let inbox: Arc<Mutex<Vec<Stream>>> = Arc::default();
        let mut state = State {
            poll,
            inbox: inbox.clone(),
            slots: Vec::new(),
            free: Vec::new(),
            turns: VecDeque::new(),
            buffer: vec![0; READ],
            shared,
        };
        std::thread::Builder::new().name("worker".into()).spawn(move || state.run())?;
        Ok(Self { inbox, waker })
    }

    /// Gives the thread a connection.
    pub fn serve(&self, stream: Stream) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        let _ = self.waker.wake();
    }
}

struct Connection {
    stream: Stream,
    session: Session,
    readable: bool,
    writable: bool,
    /// The client's end is shut: a read that brings less than it could is not the last.
    hung_up: bool,
    /// Commands wait for the client to read answers, or gave others a turn.
    held: bool,
    /// The client has sent all it will, or is not served any more: only answers are left.
    closing: bool,
    /// Whether it waits among `turns`.
    queued: bool,
    last: Instant,
}

struct State {
    poll: Poll,
    inbox: Arc<Mutex<Vec<Stream>>>,
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    turns: VecDeque<usize>,
    buffer: Vec<u8>,
    shared: Arc<Shared>,
}

/// What a turn left.
enum Left {
    More,
    Nothing,
    Closed,
}

impl State {
    fn run(&mut self) {
        let mut events = Events::with_capacity(1024);
        loop {
            let idle = self.shared.idle_timeout;
            let timeout = match (self.turns.is_empty(), idle) {
                (false, _) => Some(Duration::ZERO),
                (true, 0) => None,
                (true, _) => Some(Duration::from_secs(1)),
            };
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                eprintln!("ginnel-cache: waiting for connections: {error}");
                std::process::abort();
            }
            for event in &events {
                if event.token() == WAKER {
                    self.take_new();
                    continue;
                }
                let at = event.token().0;
                let Some(Some(one)) = self.slots.get_mut(at) else { continue };
                one.hung_up |= event.is_read_closed() || event.is_error();
                one.readable |= event.is_readable() || one.hung_up;
                one.writable |= event.is_writable() || event.is_error();
                if !std::mem::replace(&mut one.queued, true) {
                    self.turns.push_back(at);
                }
            }
            for _ in 0..self.turns.len() {
                self.turn_of_next();
            }
            if idle > 0 {
                self.close_idle(Duration::from_secs(idle));
            }
        }
    }

    fn take_new(&mut self) {
        let new = std::mem::take(&mut *self.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        for mut stream in new {
            let at = self.free.pop().unwrap_or(self.slots.len());
            if stream.register(self.poll.registry(), Token(at)).is_err() {
                self.free.push(at);
                self.shared.connections.open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let one = Connection {
                stream,
                session: Session::default(),
                readable: true,
                writable: true,
                hung_up: false,
                held: false,
                closing: false,
                queued: true,
                last: Instant::now(),
            };
            if at == self.slots.len() {
                self.slots.push(Some(one));
            } else {
                self.slots[at] = Some(one);
            }
            self.turns.push_back(at);
        }
    }

    fn turn_of_next(&mut self) {
        let Some(at) = self.turns.pop_front() else { return };
        let Some(Some(one)) = self.slots.get_mut(at) else { return };
        one.queued = false;
        match one.turn(&mut self.buffer, &self.shared) {
            Left::Nothing => {}
            Left::More => {
                self.shared.connections.yields.fetch_add(1, Ordering::Relaxed);
                one.queued = true;
                self.turns.push_back(at);
            }
            Left::Closed => self.close(at),
        }
    }

    fn close(&mut self, at: usize) {
        // The descriptor leaves the set of its own accord when it is closed.
        self.slots[at] = None;
        self.free.push(at);
        self.shared.connections.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn close_idle(&mut self, limit: Duration) {
        for at in 0..self.slots.len() {
            if self.slots[at].as_ref().is_some_and(|one| !one.queued && one.last.elapsed() > limit)
            {
                self.shared.connections.idle.fetch_add(1, Ordering::Relaxed);
                self.close(at);
            }
        }
    }
}

impl Connection {
    fn turn(&mut self, buffer: &mut [u8], shared: &Shared) -> Left {
        if shared.idle_timeout > 0 {
            self.last = Instant::now();
        }
        for _ in 0..TURN {
            if self.write(shared).is_err() {
                return Left::Closed;
            }
            if self.closing {
                return if self.session.output.is_empty() { Left::Closed } else { Left::Nothing };
            }
            if self.session.is_full() {
                return Left::Nothing;
            }
            if self.held {
                self.execute(&[], shared);
                continue;
            }
            if !self.readable {
                return Left::Nothing;
            }
            match self.stream.read(buffer) {
                Ok(0) => self.closing = true,
                Ok(count) => {
                    // Less than could have come: there is no more, and the next byte tells.
                    self.readable = count == buffer.len() || self.hung_up;
                    shared.connections.read.fetch_add(count as u64, Ordering::Relaxed);
                    self.execute(&buffer[..count], shared);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Left::Closed,
            }
        }
        Left::More
    }

    fn execute(&mut self, bytes: &[u8], shared: &Shared) {
        let mut store = shared.store();
        let (settings, connections) = (&shared.settings, &*shared.connections);
        let mut context = Context { store: &mut store, settings, connections };
        match self.session.receive(bytes, &mut context) {
            Verdict::Open => {}
            Verdict::Close => self.closing = true,
            Verdict::Shutdown => {
                self.closing = true;
                shared.stop.store(true, Ordering::Relaxed);
            }
        }
        drop(store);
        self.held = self.session.has_more();
        if self.session.is_flushing() {
            // Whoever was woken by the lock's end takes longer to come than this thread would.
            std::thread::sleep(ASIDE);
        }
    }

    /// Writes answers as far as the client takes them.
    fn write(&mut self, shared: &Shared) -> io::Result<()> {
        while self.writable && !self.session.output.is_empty() {
            match self.stream.write(&self.session.output) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    shared.connections.written.fetch_add(count as u64, Ordering::Relaxed);
                    self.session.written(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
