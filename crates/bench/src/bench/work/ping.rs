//! Ping-pong: one message to and fro at a time, with a pause before each, at a fixed rate, or as it
//! goes.

use super::{Measured, Phase, Task, histogram, sleep_exactly};
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
    let mut pace = Pace::of(task)?;
    let mut exchange = |message: &mut [u8]| -> Result<()> {
        conn.write_all(message)?;
        ensure!(conn.fill(message)?, "the server closed");
        Ok(())
    };
    let until = Instant::now() + task.warm_up();
    let mut done = 0;
    while done < WARM_UP || Instant::now() < until {
        // A rate is kept here too: who learned that spinning pays must have time to unlearn it.
        if task.rate > 0 && done >= WARM_UP {
            pace.next(Instant::now());
        }
        exchange(&mut message)?;
        done += 1;
    }
    pace.begin();
    let mut times = histogram()?;
    let mut phase = Phase::begin();
    let until = phase.began + task.duration();
    message[0] = MEASURED;
    let mut now = Instant::now();
    while now < until || times.is_empty() {
        let before = pace.next(now);
        exchange(&mut message)?;
        message[0] = 1;
        now = Instant::now();
        times.saturating_record(u64::try_from((now - before).as_nanos()).unwrap_or(u64::MAX));
    }
    phase.end();
    let count = times.len();
    Ok(Measured::new().amount(2 * count * task.size as u64, count, &phase).times(&times, 2.0))
}

/// When the next message is sent.
enum Pace {
    AtOnce,
    After(Duration),
    /// One in each such time, and when it is due; what a late answer delays is late itself, and
    /// measured from when it was due.
    Each(Duration, Instant),
}

impl Pace {
    fn of(task: &Task) -> Result<Self> {
        Ok(match (task.rate, task.pause_us) {
            (0, 0) => Self::AtOnce,
            (0, pause) => Self::After(Duration::from_micros(pause)),
            (rate, _) => {
                sleep_exactly()?;
                Self::Each(Duration::from_secs_f64(1.0 / rate as f64), Instant::now())
            }
        })
    }

    /// What was late is forgotten.
    fn begin(&mut self) {
        if let Self::Each(_, due) = self {
            *due = Instant::now();
        }
    }

    /// Waits until it is time for the next message, and says from when on its time counts.
    fn next(&mut self, now: Instant) -> Instant {
        match self {
            Self::AtOnce => now,
            Self::After(pause) => {
                std::thread::sleep(*pause);
                Instant::now()
            }
            Self::Each(interval, due) => {
                *due += *interval;
                let left = due.saturating_duration_since(now);
                if !left.is_zero() {
                    std::thread::sleep(left);
                }
                *due
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_fixed_rate_what_waits_for_a_late_answer_is_late_too() {
        let began = Instant::now();
        let mut pace = Pace::Each(Duration::from_millis(1), began);
        let first = pace.next(began);
        assert!(first == began + Duration::from_millis(1) && Instant::now() >= first);
        // An answer took 100 ms: the next messages are those that were due meanwhile.
        let late = first + Duration::from_millis(100);
        let due: Vec<Instant> = (0..3).map(|_| pace.next(late)).collect();
        assert_eq!(due, [2, 3, 4].map(|ms| began + Duration::from_millis(ms)));
    }
}
