//! A stream in one direction, measured where it arrives.

use super::{Measured, Phase, Task};
use crate::conn::{Address, Conn, Listener};
use anyhow::Result;
use std::io::{Read, Write};
use std::time::Instant;

pub fn receive(task: &Task, listener: &Listener) -> Result<Measured> {
    let mut conn = listener.accept()?;
    let mut buffer = vec![0; task.size.clamp(64 << 10, 1 << 20)];
    let mut bytes = 0;
    let mut phase = Phase::begin();
    let mut warm = false;
    loop {
        let n = conn.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        bytes += n as u64;
        if !warm && phase.began.elapsed() >= task.warm_up() {
            (warm, bytes) = (true, 0);
            phase = Phase::begin();
        }
    }
    phase.end();
    Ok(Measured::new().amount(bytes, bytes / task.size as u64, &phase))
}

pub fn send(task: &Task, address: &Address) -> Result<Measured> {
    let mut conn = Conn::connect(address)?;
    let buffer = vec![1; task.size];
    let warm = Instant::now() + task.warm_up();
    while Instant::now() < warm {
        conn.write_all(&buffer)?;
    }
    let mut phase = Phase::begin();
    let until = phase.began + task.duration();
    let mut count = 0;
    // The clock is read once in so many writes: it would be a large part of a small one.
    let batch = (65536 / task.size).clamp(1, 64) as u64;
    while count == 0 || Instant::now() < until {
        for _ in 0..batch {
            conn.write_all(&buffer)?;
        }
        count += batch;
    }
    phase.end();
    conn.finish()?;
    // Until the other end has read everything and closes.
    while conn.read(&mut [0; 16])? > 0 {}
    Ok(Measured::new().amount(count * task.size as u64, count, &phase))
}
