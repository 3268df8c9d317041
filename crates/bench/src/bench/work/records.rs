//! Load for memcached as YCSB's workload B puts it on: 95 % reads and 5 % updates of records of 1
//! KiB, the popular ones far more often (zipfian, 0.99), at a fixed rate.
//!
//! A request is due at its time whether those before it were answered or not, and its latency
//! counts from then on: a server that stalls makes all late that were due meanwhile, which a client
//! that waits for each answer would not notice ("coordinated omission"). One thread, some
//! connections in turn, memcached's text protocol
//! (<https://github.com/memcached/memcached/blob/master/doc/protocol.txt>).

use super::{Measured, Phase, Task, histogram};
use crate::conn::{Address, Conn};
use anyhow::{Result, anyhow, bail, ensure};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes of a record.
pub const RECORD: usize = 1024;
/// Records that there are.
const RECORDS: usize = 10_000;
/// Exponent of the popularity: YCSB's.
const SKEW: f64 = 0.99;
const UPDATES: f64 = 0.05;
/// How long nothing may come: whoever measures has a shorter patience.
const PATIENCE: Duration = Duration::from_secs(60);
/// The timer, after the connections.
const TIMER: Token = Token(usize::MAX);
/// Any, but the same each time: the same requests in the same order for every transport.
const SEED: u64 = 5;

/// The record of a key, which begins with the key: who reads another's notices.
fn record(key: usize) -> Vec<u8> {
    let mut record = format!("user{key:08} ").into_bytes();
    record.resize(RECORD, b'.');
    record
}

fn get(key: usize) -> Vec<u8> {
    format!("get user{key:08}\r\n").into_bytes()
}

fn set(key: usize, more: &str) -> Vec<u8> {
    [format!("set user{key:08} 0 0 {RECORD}{more}\r\n").as_bytes(), &record(key), b"\r\n"].concat()
}

/// One request at a time, chosen by popularity.
struct Mix {
    random: SmallRng,
    popularity: Zipf<f64>,
}

impl Mix {
    fn new() -> Result<Self> {
        let popularity = Zipf::new(RECORDS as f64, SKEW).map_err(|error| anyhow!("{error}"))?;
        Ok(Self { random: SmallRng::seed_from_u64(SEED), popularity })
    }

    /// The key, and whether it is updated.
    fn next(&mut self) -> (usize, bool) {
        let rank = self.popularity.sample(&mut self.random) as usize;
        (rank.clamp(1, RECORDS) - 1, self.random.random_bool(UPDATES))
    }
}

/// A request that waits for its answer.
struct Asked {
    key: usize,
    update: bool,
    due: Instant,
}

/// A connection with requests under way, which are answered in their order.
struct Lane {
    conn: Conn,
    /// Not sent yet: the connection had no room.
    out: Vec<u8>,
    input: Vec<u8>,
    asked: VecDeque<Asked>,
}

impl Lane {
    fn ask(&mut self, asked: Asked) -> Result<()> {
        let request = if asked.update { set(asked.key, "") } else { get(asked.key) };
        self.out.extend(request);
        self.asked.push_back(asked);
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        while !self.out.is_empty() {
            match self.conn.write(&self.out) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads what is there, and takes the answers that are whole.
    fn answers(&mut self, mut each: impl FnMut(Asked)) -> Result<()> {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.conn.read(&mut buffer) {
                Ok(0) => bail!("memcached closed a connection"),
                Ok(n) => self.input.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        let mut taken = 0;
        while let Some(asked) = self.asked.front() {
            let Some(len) = answered(&self.input[taken..], asked)? else { break };
            taken += len;
            self.asked.pop_front().into_iter().for_each(&mut each);
        }
        ensure!(
            !self.asked.is_empty() || taken == self.input.len(),
            "memcached said more than it was asked"
        );
        self.input.drain(..taken);
        Ok(())
    }
}

/// Length of the answer at the start of `input`, once it is whole.
fn answered(input: &[u8], asked: &Asked) -> Result<Option<usize>> {
    let right = if asked.update {
        b"STORED\r\n".to_vec()
    } else {
        [
            format!("VALUE user{:08} 0 {RECORD}\r\n", asked.key).as_bytes(),
            &record(asked.key),
            b"\r\nEND\r\n",
        ]
        .concat()
    };
    let there = input.len().min(right.len());
    if input[..there] != right[..there] {
        let end = input.iter().position(|&byte| byte == b'\r').unwrap_or(input.len()).min(100);
        bail!("memcached answered {:?}", String::from_utf8_lossy(&input[..end]));
    }
    Ok((there == right.len()).then_some(there))
}

/// Stores all records.
fn store(address: &Address) -> Result<Measured> {
    let phase = Phase::begin();
    let mut conn = Conn::connect(address)?;
    for key in 0..RECORDS {
        conn.write_all(&set(key, " noreply"))?;
    }
    conn.write_all(&get(RECORDS - 1))?;
    let asked = Asked { key: RECORDS - 1, update: false, due: Instant::now() };
    let mut input = Vec::new();
    let mut buffer = [0; 2 * RECORD];
    while answered(&input, &asked)?.is_none() {
        let n = conn.read(&mut buffer)?;
        ensure!(n > 0, "memcached closed the connection");
        input.extend_from_slice(&buffer[..n]);
    }
    Ok(Measured::new().amount((RECORDS * RECORD) as u64, RECORDS as u64, &phase))
}

/// Puts the load on; without a rate: stores the records, which must come first.
pub fn ask(task: &Task, address: &Address) -> Result<Measured> {
    if task.rate == 0 {
        return store(address);
    }
    super::sleep_exactly()?;
    let mut poll = Poll::new()?;
    let mut lanes = Vec::with_capacity(task.connections);
    for i in 0..task.connections {
        let mut conn = Conn::connect(address)?;
        conn.set_nonblocking(true)?;
        poll.registry().register(
            &mut SourceFd(&conn.input_fd()),
            Token(i),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        lanes.push(Lane { conn, out: Vec::new(), input: Vec::new(), asked: VecDeque::new() });
    }
    let timer =
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;
    let interval = Duration::from_secs_f64(1.0 / task.rate as f64);
    // Each connection has some requests before measuring begins, however short the warm-up.
    let warm = (task.warm_up().as_secs_f64() * task.rate as f64) as u64;
    let warm = warm.max(8 * task.connections as u64);
    let all = warm + ((task.seconds * task.rate as f64) as u64).max(1);
    let mut mix = Mix::new()?;
    let mut events = Events::with_capacity(256);
    let (mut times, mut phase) = (histogram()?, Phase::begin());
    let began = Instant::now();
    let due = |number: u64| began + interval.mul_f64((number + 1) as f64);
    let measured = due(warm);
    let (mut sent, mut answers) = (0, 0);
    while answers < all {
        while sent < all && due(sent) <= Instant::now() {
            if sent == warm {
                phase = Phase::begin();
            }
            let (key, update) = mix.next();
            let lane = sent as usize % lanes.len();
            lanes[lane].ask(Asked { key, update, due: due(sent) })?;
            sent += 1;
        }
        if sent < all {
            set_timer(&timer, due(sent).saturating_duration_since(Instant::now()))?;
        }
        poll.poll(&mut events, Some(PATIENCE))?;
        ensure!(!events.is_empty(), "nothing came for {PATIENCE:?}");
        for event in events.iter().filter(|event| event.token() != TIMER) {
            let lane = &mut lanes[event.token().0];
            lane.flush()?;
            lane.answers(|asked| {
                answers += 1;
                if asked.due >= measured {
                    times.saturating_record(
                        u64::try_from(asked.due.elapsed().as_nanos()).unwrap_or(u64::MAX),
                    );
                }
            })?;
        }
    }
    phase.end();
    Ok(Measured::new().amount(times.len() * RECORD as u64, times.len(), &phase).times(&times, 1.0))
}

/// Makes it readable after so long; at once, where that is nothing.
fn set_timer(timer: &OwnedFd, after: Duration) -> Result<()> {
    let after = after.max(Duration::from_nanos(1));
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let value =
        Timespec { tv_sec: after.as_secs().try_into()?, tv_nsec: after.subsec_nanos().into() };
    timerfd_settime(
        timer,
        TimerfdTimerFlags::empty(),
        &Itimerspec { it_interval: none, it_value: value },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Pattern;
    use std::io::{BufRead, BufReader};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn popular_records_are_asked_for_as_often_as_the_distribution_says() {
        let mut mix = Mix::new().unwrap();
        let (mut first, mut updates, mut keys) = (0, 0, vec![false; RECORDS]);
        const N: u32 = 200_000;
        for _ in 0..N {
            let (key, update) = mix.next();
            first += u32::from(key == 0);
            updates += u32::from(update);
            keys[key] = true;
        }
        let all: f64 = (1..=RECORDS).map(|rank| (rank as f64).powf(-SKEW)).sum();
        let near =
            |count: u32, share: f64| (f64::from(count) / f64::from(N) / share - 1.0).abs() < 0.05;
        assert!(near(first, 1.0 / all) && near(updates, UPDATES), "{first} {updates}");
        assert!(keys.iter().filter(|asked| **asked).count() > RECORDS / 2);
    }

    #[test]
    fn answers_are_checked() {
        let asked = |update| Asked { key: 7, update, due: Instant::now() };
        let right =
            [b"VALUE user00000007 0 1024\r\n".as_slice(), &record(7), b"\r\nEND\r\n"].concat();
        assert_eq!(answered(&right, &asked(false)).unwrap(), Some(right.len()));
        assert_eq!(answered(&right[..900], &asked(false)).unwrap(), None);
        assert!(answered(b"END\r\n", &asked(false)).unwrap_err().to_string().contains("END"));
        let mut other = right.clone();
        other[40] = b'8';
        assert!(answered(&other, &asked(false)).is_err());
        assert_eq!(answered(b"STORED\r\nSTORED\r\n", &asked(true)).unwrap(), Some(8));
        assert!(answered(b"SERVER_ERROR out of memory\r\n", &asked(true)).is_err());
    }

    /// memcached's part of the protocol, for one connection, which sleeps once in the middle.
    fn answer(stream: TcpStream, stall: Option<Duration>) {
        let mut input = BufReader::new(stream.try_clone().unwrap());
        let mut output = stream;
        let (mut line, mut count) = (String::new(), 0);
        while input.read_line(&mut line).unwrap_or(0) > 0 {
            let key = line[8..16].parse().unwrap();
            let noreply = line.contains("noreply");
            if line.starts_with("set") {
                input.read_exact(&mut [0; RECORD + 2]).unwrap();
            } else {
                output
                    .write_all(
                        &[
                            format!("VALUE user{key:08} 0 {RECORD}\r\n").as_bytes(),
                            &record(key),
                            b"\r\nEND\r\n",
                        ]
                        .concat(),
                    )
                    .unwrap();
            }
            if line.starts_with("set") && !noreply {
                output.write_all(b"STORED\r\n").unwrap();
            }
            count += 1;
            if count == 100 {
                stall.into_iter().for_each(std::thread::sleep);
            }
            line.clear();
        }
    }

    #[test]
    fn a_server_that_stalls_makes_all_late_that_were_due_meanwhile() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for (i, stream) in listener.incoming().enumerate() {
                // The first connection stores the records.
                let stall = (i > 0).then_some(Duration::from_millis(250));
                std::thread::spawn(move || answer(stream.unwrap(), stall));
            }
        });
        store(&address).unwrap();
        let task = Task {
            server: false,
            pattern: Pattern::Memcached,
            address: String::new(),
            size: RECORD,
            connections: 1,
            seconds: 0.5,
            warm_up: 0.0,
            pause_us: 0,
            rate: 1000,
            cpu: None,
            host_cpu: None,
        };
        let values = ginnel_bench::child::parse(ask(&task, &address).unwrap().line());
        assert_eq!(values["count"], 500.0);
        // 250 requests were due in the stall, evenly: a tenth of all waited for more than 200 ms,
        // and a quarter for more than 100.
        assert!(values["p90_ns"] > 150e6 && values["p75_ns"] > 80e6, "{values:?}");
    }
}
