//! Connections made one after another: connect, one byte to and fro, close.

use super::{Measured, Phase, Task, histogram};
use crate::conn::{Address, Conn, Listener};
use anyhow::{Result, ensure};
use std::io::Write;
use std::time::Instant;

/// At most so many in a sample: each leaves a port in TIME_WAIT for a minute.
const MOST: u64 = 1000;
/// Not measured.
const WARM_UP: u64 = 20;
/// The byte of the last connection.
const LAST: u8 = 2;

pub fn answer(listener: &Listener) -> Result<Measured> {
    let mut phase = Phase::begin();
    let mut count = 0;
    loop {
        let mut conn = listener.accept()?;
        if count == WARM_UP {
            phase = Phase::begin();
        }
        let mut byte = [0];
        if !conn.fill(&mut byte)? {
            continue;
        }
        conn.write_all(&byte)?;
        count += 1;
        if byte[0] == LAST {
            break;
        }
    }
    Ok(Measured::new().amount(0, count.saturating_sub(WARM_UP), &phase))
}

pub fn ask(task: &Task, address: &Address) -> Result<Measured> {
    let exchange = |byte: u8| -> Result<()> {
        let mut conn = Conn::connect(address)?;
        let mut answer = [byte];
        conn.write_all(&answer)?;
        ensure!(conn.fill(&mut answer)?, "the server closed");
        Ok(())
    };
    for _ in 0..WARM_UP {
        exchange(1)?;
    }
    let mut times = histogram()?;
    let mut phase = Phase::begin();
    while phase.began.elapsed() < task.duration() && times.len() < MOST {
        let before = Instant::now();
        exchange(1)?;
        times.saturating_record(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    phase.end();
    exchange(LAST)?;
    Ok(Measured::new().amount(0, times.len(), &phase).times(&times, 1.0))
}
