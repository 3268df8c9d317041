//! The thread that lets clients and neighbours in, hears the latter, and keeps the clock.

use super::Shared;
use super::listen::Listener;
use super::worker::{ASIDE, Worker};
use crate::accept::{AT_ONCE, Waiting};
use crate::door::Door;
use crate::hints::{Shared as Rings, Sources};
use mio::{Events, Poll, Token};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Token of the door; listeners have the numbers below it, whom it let in those above.
const DOOR: usize = 1 << 16;
/// How often the rings of neighbours are looked at.
const HINTS: Duration = Duration::from_millis(100);
/// Hashes of a ring for which the store's lock is held at a time.
const AT_A_TIME: usize = 512;
/// When those are tried again who could not be let in.
const AGAIN: Duration = Duration::from_millis(20);

/// What the thread has.
pub struct Front {
    shared: Arc<Shared>,
    poll: Poll,
    listeners: Vec<Listener>,
    door: Option<Door>,
    workers: Vec<Worker>,
    /// The worker that has the next connection, counted on and on.
    next: usize,
    hints: Sources,
    /// The rings of readers far away, if the memory has a copy.
    rings: Option<Rings>,
    /// When the hints were looked at last.
    looked: Instant,
    /// Tokens of sockets at which somebody may wait of whom no event will tell.
    late: BTreeSet<usize>,
    /// Whether one of them could be let in now.
    hurry: bool,
}

impl Front {
    /// Starts the workers, and listens.
    pub fn new(
        shared: Arc<Shared>,
        mut listeners: Vec<Listener>,
        (mut door, rings): (Option<Door>, Option<Rings>),
        threads: u16,
    ) -> io::Result<Self> {
        let workers =
            (0..threads).map(|_| Worker::start(shared.clone())).collect::<Result<_, _>>()?;
        let poll = Poll::new()?;
        for (at, listener) in listeners.iter_mut().enumerate() {
            listener.register(poll.registry(), Token(at))?;
        }
        if let Some(door) = &mut door {
            door.register(poll.registry(), Token(DOOR))?;
        }
        let (mut hints, looked, late) = (Sources::default(), Instant::now(), BTreeSet::new());
        rings.iter().flat_map(|rings| rings.sources()).for_each(|source| hints.add(source));
        let (next, hurry) = (0, false);
        Ok(Self { shared, poll, listeners, door, workers, next, hints, rings, looked, late, hurry })
    }

    /// Serves until `ended` is set, or a client says so.
    pub fn run(&mut self, ended: &AtomicBool) -> io::Result<()> {
        let mut events = Events::with_capacity(64);
        while !ended.load(Ordering::Relaxed) && !self.shared.stop.load(Ordering::Relaxed) {
            match self.poll.poll(&mut events, Some(self.until_due())) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            self.hurry = false;
            let late = std::mem::take(&mut self.late);
            for at in events.iter().map(|event| event.token().0).chain(late) {
                self.attend(at);
            }
            self.look_at_hints();
            let now = self.shared.now();
            self.shared.store().tick(now);
            while self.shared.store().flush_due() {
                std::thread::sleep(ASIDE);
            }
        }
        Ok(())
    }

    /// Returns how long to sleep: to the next second, or the next look at hints, or the next try.
    fn until_due(&self) -> Duration {
        if self.hurry {
            return Duration::ZERO;
        }
        let into = Duration::from_nanos(u64::from(self.shared.begun.elapsed().subsec_nanos()));
        let mut rest = (Duration::from_secs(1) - into).max(Duration::from_millis(1));
        let is_near = self.door.as_ref().is_some_and(|door| !door.is_empty());
        if is_near || self.shared.connections.far.load(Ordering::Relaxed) > 0 {
            rest = rest.min(HINTS);
        }
        if self.late.is_empty() { rest } else { rest.min(AGAIN) }
    }

    /// Does what a token stands for.
    fn attend(&mut self, at: usize) {
        let registry = self.poll.registry();
        let waiting = match (self.listeners.get(at), &mut self.door) {
            (Some(listener), _) => accept(listener, &self.shared, &self.workers, &mut self.next),
            (None, Some(door)) if at == DOOR => door.let_in(registry, DOOR),
            (None, Some(door)) => {
                if let Some(source) = door.hear(at) {
                    self.hints.add(source);
                }
                Waiting::Nobody
            }
            (None, None) => Waiting::Nobody,
        };
        if waiting != Waiting::Nobody {
            self.late.insert(at);
            self.hurry |= waiting == Waiting::Perhaps;
        }
    }

    /// Counts what neighbours read out of the memory.
    fn look_at_hints(&mut self) {
        if self.looked.elapsed() < HINTS {
            return;
        }
        self.looked = Instant::now();
        if let Some(rings) = &mut self.rings {
            rings.tidy(self.shared.now());
            self.shared.connections.far.store(rings.readers() as u64, Ordering::Relaxed);
        }
        let mut hashes = Vec::new();
        self.hints.drain(&mut hashes);
        for hashes in hashes.chunks(AT_A_TIME) {
            let mut store = self.shared.store();
            hashes.iter().for_each(|&hash| store.was_read(hash));
        }
    }
}

/// Accepts who is there, and gives each connection to the next thread.
fn accept(listener: &Listener, shared: &Shared, workers: &[Worker], next: &mut usize) -> Waiting {
    let connections = &shared.connections;
    for _ in 0..AT_ONCE {
        let stream = match listener.accept() {
            Ok(stream) => stream,
            Err(error) => match Waiting::after(&error) {
                Some(waiting) => return waiting,
                None => continue,
            },
        };
        if connections.open.load(Ordering::Relaxed) >= connections.most.load(Ordering::Relaxed) {
            connections.refused.fetch_add(1, Ordering::Relaxed);
            stream.refuse(b"ERROR Too many open connections\r\n");
            continue;
        }
        connections.open.fetch_add(1, Ordering::Relaxed);
        connections.total.fetch_add(1, Ordering::Relaxed);
        workers[*next % workers.len()].serve(stream);
        *next += 1;
    }
    Waiting::Perhaps
}
