//! Messages through queues: both ends of each mode.

use crate::{Asked, Failed, retried, segment, tell};
use ginnel::{Error, Message, Queue, Receiver, Sender};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Exchanges that are timed together, as in `references.c`.
const BATCH: u32 = 16;
/// The queues of the two directions.
const THERE: &str = "there";
const BACK: &str = "back";
/// Bytes of the messages with pauses: when it was sent, and how long the one before took.
const STAMPED: usize = 16;
/// Messages of this many bytes and more have fewer buffers, for the segment's sake.
const LARGE: usize = 64 << 10;

/// What the first end sends by, and what it receives by: it makes both queues.
fn first_end(size: usize) -> Result<(Sender, Receiver), Failed> {
    let segment = segment()?;
    let capacity = if size < LARGE { 16 } else { 4 };
    let queue = Queue::new().capacity(capacity).message_size(size as u64).senders(1).loans(1);
    queue.create(&segment, THERE)?;
    queue.create(&segment, BACK)?;
    Ok((Sender::open(&segment, THERE)?, Receiver::open(&segment, BACK)?))
}

fn second_end() -> Result<(Receiver, Sender), Failed> {
    let segment = segment()?;
    let there = retried(|| Receiver::open(&segment, THERE))?;
    Ok((there, retried(|| Sender::open(&segment, BACK))?))
}

/// Sends a message. By a loan only its first bytes are written, so that its length costs nothing.
fn send(sender: &Sender, bytes: &[u8], by_loan: bool) -> ginnel::Result<()> {
    if !by_loan {
        return sender.send(bytes);
    }
    let mut loan = sender.loan(bytes.len())?;
    loan.write(0, &bytes[..bytes.len().min(8)]);
    loan.send()
}

/// Looks at a message: all of it, or its first bytes.
fn look(message: &Message<'_>, bytes: &mut [u8], by_loan: bool) {
    let len = if by_loan { bytes.len().min(8) } else { bytes.len() };
    message.read(0, &mut bytes[..len]);
}

/// Messages to and fro: half a round trip.
pub fn ping(asked: &Asked) -> Result<(), Failed> {
    let (there, back) = first_end(asked.size)?;
    let by_loan = asked.mode == "loan";
    let (message, mut answer) = (vec![1; asked.size], vec![0; asked.size]);
    let mut exchange = || -> ginnel::Result<()> {
        send(&there, &message, by_loan)?;
        look(&back.recv()?, &mut answer, by_loan);
        Ok(())
    };
    (0..asked.warm_up).try_for_each(|_| exchange())?;
    let (mut samples, until) = (Vec::new(), asked.until());
    while Instant::now() < until {
        let began = Instant::now();
        (0..BATCH).try_for_each(|_| exchange())?;
        samples.push(began.elapsed().as_nanos() as f64 / f64::from(2 * BATCH));
    }
    drop(there);
    tell(samples);
    Ok(())
}

/// Answers each message with one as long, until the other end has gone.
pub fn pong(asked: &Asked) -> Result<(), Failed> {
    let (there, back) = second_end()?;
    let by_loan = asked.mode == "loan";
    let mut bytes = vec![0; asked.size];
    until_the_end(|| {
        look(&there.recv()?, &mut bytes, by_loan);
        send(&back, &bytes, by_loan)
    })
}

/// Does a step again and again, until the other end has gone.
fn until_the_end(mut step: impl FnMut() -> ginnel::Result<()>) -> Result<(), Failed> {
    loop {
        match step() {
            Ok(()) => {}
            Err(Error::Ended { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Nanoseconds by the clock that both processes read.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Sends the time, after a pause, and how long the message before took that came here.
fn send_stamped(sender: &Sender, pause: Duration, took: u64) -> ginnel::Result<()> {
    std::thread::sleep(pause);
    let mut bytes = [0; STAMPED];
    bytes[8..].copy_from_slice(&took.to_le_bytes());
    bytes[..8].copy_from_slice(&now().to_le_bytes());
    sender.send(&bytes)
}

/// How long it took, and what the other end said of the one before.
fn receive_stamped(receiver: &Receiver) -> ginnel::Result<(u64, u64)> {
    let message = receiver.recv()?;
    let came = now();
    let mut words = [[0; 8]; 2];
    message.read(0, &mut words[0]);
    message.read(8, &mut words[1]);
    Ok((came.saturating_sub(u64::from_le_bytes(words[0])), u64::from_le_bytes(words[1])))
}

/// One way to an end that sleeps, in both directions.
pub fn ping_paused(asked: &Asked) -> Result<(), Failed> {
    let (there, back) = first_end(STAMPED)?;
    let mut samples = Vec::new();
    for number in 0..asked.warm_up + asked.count {
        send_stamped(&there, asked.pause, 0)?;
        let (own, theirs) = receive_stamped(&back)?;
        if number >= asked.warm_up {
            samples.extend([own as f64, theirs as f64]);
        }
    }
    drop(there);
    tell(samples);
    Ok(())
}

/// The other end of it.
pub fn pong_paused(asked: &Asked) -> Result<(), Failed> {
    let (there, back) = second_end()?;
    until_the_end(|| {
        let (took, _) = receive_stamped(&there)?;
        send_stamped(&back, asked.pause, took)
    })
}

/// Sends for as long as was asked for.
pub fn send_all(asked: &Asked) -> Result<(), Failed> {
    let segment = segment()?;
    let queue = Queue::new().capacity(1024).message_size(asked.size as u64).senders(1);
    queue.create(&segment, THERE)?;
    let sender = Sender::open(&segment, THERE)?;
    let (message, until) = (vec![1; asked.size], asked.until());
    while Instant::now() < until {
        (0..1024).try_for_each(|_| sender.send(&message))?;
    }
    Ok(())
}

/// Takes what comes, and tells how fast it came.
pub fn take_all() -> Result<(), Failed> {
    let segment = segment()?;
    let receiver = retried(|| Receiver::open(&segment, THERE))?;
    let (mut bytes, mut buffer, mut began) = (0, vec![0; 1 << 16], None);
    until_the_end(|| {
        let message = receiver.recv()?;
        began.get_or_insert_with(Instant::now);
        bytes += message.read(0, &mut buffer[..]);
        Ok(())
    })?;
    let elapsed = began.ok_or("nothing came")?.elapsed();
    let rate = bytes as f64 / elapsed.as_secs_f64();
    println!("result bytes={bytes} elapsed_ns={} bytes_per_s={rate:.0}", elapsed.as_nanos());
    println!("end");
    Ok(())
}
