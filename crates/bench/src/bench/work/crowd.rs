//! Many connections: a server with one epoll set answers, a client has some messages under way and
//! sends the next on another connection.

use super::{Measured, Phase, Task, histogram};
use crate::conn::{Address, Conn, Listener};
use anyhow::{Result, bail, ensure};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Messages under way at once.
const UNDER_WAY: usize = 16;
/// Messages on each connection before measuring begins.
const WARM_UP: usize = 6;
/// The first byte of the first message that is measured.
const MEASURED: u8 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections in a set, each with a message that is being read.
struct Crowd {
    poll: Poll,
    conns: Vec<Option<Conn>>,
    parts: Vec<(Vec<u8>, usize)>,
}

impl Crowd {
    fn new(task: &Task, mut connection: impl FnMut() -> Result<Conn>) -> Result<Self> {
        let poll = Poll::new()?;
        let mut conns = Vec::with_capacity(task.connections);
        for i in 0..task.connections {
            let mut conn = connection()?;
            conn.set_nonblocking(true)?;
            poll.registry().register(
                &mut SourceFd(&conn.input_fd()),
                Token(i),
                Interest::READABLE,
            )?;
            conns.push(Some(conn));
        }
        let parts = vec![(vec![0; task.size], 0); task.connections];
        Ok(Self { poll, conns, parts })
    }

    /// Reads from a connection until it has no more; `each` gets every message, at the end None.
    fn read(
        &mut self,
        i: usize,
        mut each: impl FnMut(&mut Conn, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let (Some(conn), (message, filled)) = (&mut self.conns[i], &mut self.parts[i]) else {
            return Ok(());
        };
        loop {
            match conn.read(&mut message[*filled..]) {
                Ok(0) => {
                    each(conn, None)?;
                    self.conns[i] = None;
                    return Ok(());
                }
                Ok(n) => {
                    *filled += n;
                    if *filled == message.len() {
                        *filled = 0;
                        each(conn, Some(message))?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Writes a small message whole: there is always room, one is under way at most.
fn say(conn: &mut Conn, message: &[u8]) -> Result<()> {
    let n = conn.write(message)?;
    ensure!(n == message.len(), "a message of {} bytes had no room", message.len());
    Ok(())
}

pub fn answer(task: &Task, listener: &Listener) -> Result<Measured> {
    let mut crowd = Crowd::new(task, || listener.accept())?;
    let mut events = Events::with_capacity(256);
    let mut phase = Phase::begin();
    let (mut left, mut count) = (task.connections, 0);
    while left > 0 {
        crowd.poll.poll(&mut events, Some(PATIENCE))?;
        ensure!(!events.is_empty(), "nothing moved for {PATIENCE:?}");
        for event in &events {
            crowd.read(event.token().0, |conn, message| {
                let Some(message) = message else {
                    left -= 1;
                    return Ok(());
                };
                if message[0] == MEASURED {
                    phase = Phase::begin();
                    count = 0;
                }
                count += 1;
                say(conn, message)
            })?;
        }
    }
    Ok(Measured::new().amount(count * task.size as u64, count, &phase))
}

pub fn ask(task: &Task, address: &Address) -> Result<Measured> {
    let n = task.connections;
    let mut crowd = Crowd::new(task, || Conn::connect(address))?;
    let mut events = Events::with_capacity(256);
    let mut sent = vec![Instant::now(); n];
    let mut message = vec![1; task.size];
    let mut times = histogram()?;
    let mut phase: Option<Phase> = None;
    let (mut next, mut under_way, mut done, mut announced) = (0, 0, 0, false);
    let until = Instant::now() + task.warm_up();
    loop {
        let now = Instant::now();
        if phase.is_none() && done >= WARM_UP * n && now >= until {
            phase = Some(Phase::begin());
        }
        let ended = phase
            .as_ref()
            .is_some_and(|phase| phase.began.elapsed() >= task.duration() && !times.is_empty());
        while !ended && under_way < UNDER_WAY.min(n) {
            message[0] = if phase.is_some() && !announced { MEASURED } else { 1 };
            announced = phase.is_some();
            sent[next] = Instant::now();
            let Some(conn) = &mut crowd.conns[next] else {
                bail!("the server closed a connection")
            };
            say(conn, &message)?;
            next = (next + 1) % n;
            under_way += 1;
        }
        if under_way == 0 {
            break;
        }
        crowd.poll.poll(&mut events, Some(PATIENCE))?;
        ensure!(!events.is_empty(), "nothing came for {PATIENCE:?}");
        for event in &events {
            let i = event.token().0;
            crowd.read(i, |_, message| {
                ensure!(message.is_some(), "the server closed a connection");
                under_way -= 1;
                done += 1;
                if phase.is_some() {
                    times.saturating_record(
                        u64::try_from(sent[i].elapsed().as_nanos()).unwrap_or(u64::MAX),
                    );
                }
                Ok(())
            })?;
        }
    }
    let mut phase = phase.unwrap_or_else(Phase::begin);
    phase.end();
    Ok(Measured::new()
        .amount(2 * times.len() * task.size as u64, times.len(), &phase)
        .times(&times, 1.0))
}
