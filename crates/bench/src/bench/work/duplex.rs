//! Both directions at once: each end writes and reads as it can, in one thread.

use super::{Measured, Phase, Task};
use crate::conn::Conn;
use anyhow::Result;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// How long nothing may move: whoever measures has a shorter patience, this one ends a program that
/// nobody waits for.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(task: &Task, mut conn: Conn) -> Result<Measured> {
    conn.set_nonblocking(true)?;
    let mut poll = watch(&conn)?;
    let mut events = Events::with_capacity(4);
    let out = vec![1; task.size];
    let mut buffer = vec![0; task.size.clamp(64 << 10, 1 << 20)];
    let (mut sent, mut received) = (0, 0u64);
    let (mut writing, mut reading, mut warm) = (true, true, false);
    let mut phase = Phase::begin();
    while reading || writing {
        let mut moved = false;
        if reading {
            match conn.read(&mut buffer) {
                // The client ends it, and the server with it.
                Ok(0) => {
                    reading = false;
                    phase.end();
                }
                Ok(n) => {
                    received += n as u64;
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        if writing {
            match conn.write(&out[sent..]) {
                Ok(n) => {
                    sent = (sent + n) % out.len();
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        let now = Instant::now();
        if !warm && now - phase.began >= task.warm_up() {
            (warm, received) = (true, 0);
            phase = Phase::begin();
        }
        let ended =
            if task.server { !reading } else { warm && now - phase.began >= task.duration() };
        if writing && ended {
            writing = false;
            conn.finish()?;
        }
        if !moved && (reading || writing) {
            poll.poll(&mut events, Some(PATIENCE))?;
            anyhow::ensure!(!events.is_empty(), "nothing moved for {PATIENCE:?}");
        }
    }
    Ok(Measured::new().amount(received, received / task.size as u64, &phase))
}

/// Waits for bytes and for room.
fn watch(conn: &Conn) -> Result<Poll> {
    let poll = Poll::new()?;
    let (input, output) = (conn.input_fd(), conn.output_fd());
    if input == output {
        poll.registry().register(
            &mut SourceFd(&input),
            Token(0),
            Interest::READABLE | Interest::WRITABLE,
        )?;
    } else {
        poll.registry().register(&mut SourceFd(&input), Token(0), Interest::READABLE)?;
        poll.registry().register(&mut SourceFd(&output), Token(1), Interest::WRITABLE)?;
    }
    Ok(poll)
}
