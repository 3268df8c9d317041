//! A program that was written from docs/sdk.md alone, as by somebody who sees it for the first
//! time: a server keeps a table, a client asks for its rows over a stream; an event says that it
//! serves.

use crate::stage::{Part, play, role};
use ginnel::{Event, Listener, LockError, Memory, Mutex, Reset, Segment, Stream};
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

type Done = Result<(), Box<dyn std::error::Error>>;

fn server() -> Done {
    let segment = Segment::own()?;
    let mut listener = Listener::bind(&segment, "table")?;
    let memory = Memory::open_or_create(&segment, "rows", 4096)?;
    let lock = Mutex::open_or_create(&segment, "rows lock")?;
    Event::open_or_create(&segment, "serves", Reset::Manual)?.set()?;
    let (read, mut write) = listener.accept()?.split();
    for line in BufReader::new(read).lines() {
        let row: usize = line?.parse()?;
        let guard = match lock.lock() {
            Ok(guard) => guard,
            Err(LockError::HolderDied(guard)) => {
                guard.mark_consistent();
                guard
            }
            Err(LockError::Failed(error)) => return Err(error.into()),
        };
        memory.write(row * 8, &(row as u64 * 7).to_le_bytes())?;
        drop(guard);
        writeln!(write, "row {row}")?;
    }
    Ok(())
}

fn client() -> Done {
    let segment = Segment::own()?;
    let serves = Event::open_or_create(&segment, "serves", Reset::Manual)?;
    serves.wait_timeout(Duration::from_secs(60))?;
    let (read, mut write) = Stream::connect(&segment, "table")?.split();
    let mut read = BufReader::new(read);
    let memory = Memory::open(&segment, "rows")?;
    for row in 0..100usize {
        writeln!(write, "{row}")?;
        let mut line = String::new();
        read.read_line(&mut line)?;
        assert_eq!(line, format!("row {row}\n"));
        let mut bytes = [0; 8];
        memory.read(row * 8, &mut bytes)?;
        assert_eq!(u64::from_le_bytes(bytes), row as u64 * 7);
    }
    Ok(())
}

#[test]
fn a_server_and_its_client() {
    play("newcomer::a_server_and_its_client", |part| match part {
        Part::Role(..) => server().expect("well"),
        Part::Test => {
            let serves = role("serves", "");
            client().expect("well");
            serves.ends();
        }
    });
}
