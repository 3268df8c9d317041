//! Ping-pong: one message to and fro at a time, with a pause before each or without.

use super::{Measured, Phase, Task, histogram};
use crate::conn::{Address, Conn, Listener};
use anyhow::{Result, ensure};
use std::io::Write;
use std::time::{Duration, Instant};

/// Exchanges before measuring begins, however short the warm-up.
const WARM_UP: usize = 50;

/// A first message of this byte begins what is measured: the server takes its CPU time from there.
const MEASURED: u8 = 2;

pub fn answer(task: &Task, listener: &Listener) -> Result<Measured> {
    let mut conn = listener.accept()?;
    let mut message = vec![0; task.size];
    let mut phase = Phase::begin();
    let mut count = 0;
    while conn.fill(&mut message)? {
        if message[0] == MEASURED {
            phase = Phase::begin();
            count = 0;
        }
        count += 1;
        conn.write_all(&message)?;
    }
    Ok(Measured::new().amount(count * task.size as u64, count, &phase))
}

pub fn ask(task: &Task, address: &Address) -> Result<Measured> {
    let mut conn = Conn::connect(address)?;
    let mut message = vec![1; task.size];
    let pause = Duration::from_micros(task.pause_us);
    let mut exchange = |message: &mut [u8]| -> Result<()> {
        conn.write_all(message)?;
        ensure!(conn.fill(message)?, "the server closed");
        Ok(())
    };
    let until = Instant::now() + task.warm_up();
    let mut done = 0;
    while done < WARM_UP || Instant::now() < until {
        exchange(&mut message)?;
        done += 1;
    }
    let mut times = histogram()?;
    let mut phase = Phase::begin();
    let until = phase.began + task.duration();
    message[0] = MEASURED;
    let mut before = Instant::now();
    while before < until || times.is_empty() {
        if !pause.is_zero() {
            std::thread::sleep(pause);
            before = Instant::now();
        }
        exchange(&mut message)?;
        message[0] = 1;
        let after = Instant::now();
        times.saturating_record(u64::try_from((after - before).as_nanos()).unwrap_or(u64::MAX));
        before = after;
    }
    phase.end();
    let count = times.len();
    Ok(Measured::new().amount(2 * count * task.size as u64, count, &phase).times(&times, 2.0))
}
