//! One connection to another host, from when it is there until it is lost: frames are gathered into
//! messages, messages are sealed and opened, and silence is noticed.
//!
//! Nothing here waits. A message that the other host does not take stays in its buffer; when all
//! buffers are full, frames are refused, and whoever sends them counts it.

use super::handshake::Keys;
use super::message::{self, HEAD, MESSAGE, Message, Seals};
use crate::ring::Slices;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How often a host says that it is alive.
pub const ALIVE: Duration = Duration::from_secs(1);
/// How long one that says nothing is taken for alive.
pub const SILENCE: Duration = Duration::from_millis(3500);
/// Messages on their way while more are gathered: what comes meanwhile goes together.
const AT_ONCE: usize = 2;

/// The connection is of no use any more, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost(pub String);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What carries messages to one other host and back, in order.
pub trait Wire: Send + fmt::Debug {
    /// A buffer of [`MESSAGE`] bytes to send from, if one is free.
    fn take(&mut self) -> Option<u32>;
    /// Gives one back that was not sent.
    fn untake(&mut self, index: u32);
    /// The bytes of a buffer that was taken or received.
    fn buffer(&mut self, index: u32) -> &mut [u8];
    /// How many buffers are on their way.
    fn sending(&self) -> usize;
    /// Sends the first bytes of a buffer. False: not now.
    ///
    /// # Errors
    /// [`Lost`].
    fn send(&mut self, index: u32, len: usize) -> Result<bool, Lost>;
    /// Looks what has come, and which buffers are free again.
    ///
    /// # Errors
    /// [`Lost`].
    fn look(&mut self) -> Result<(), Lost>;
    /// The next message: a buffer, and the length of what is in it.
    ///
    /// # Errors
    /// [`Lost`].
    fn receive(&mut self) -> Result<Option<(u32, usize)>, Lost>;
    /// Has a message come that was seen already?
    fn has_more(&self) -> bool;
    /// Has a buffer received into again.
    ///
    /// # Errors
    /// [`Lost`].
    fn give_back(&mut self, index: u32) -> Result<(), Lost>;
    /// May one sleep until the bell rings? Else there is something.
    fn may_sleep(&mut self) -> bool;
    /// What can be read once there is something.
    fn bell(&self) -> BorrowedFd<'_>;
    /// Its number among those of this process.
    fn id(&self) -> usize;
}

/// Frames that are gathered in one buffer.
#[derive(Debug, Clone, Copy)]
struct Batch {
    index: u32,
    /// Bytes so far.
    len: usize,
    frames: u32,
    /// It is whole, and waits for room alone.
    sealed: bool,
}

/// A connection.
#[derive(Debug)]
pub struct Link {
    /// What carries it.
    pub wire: Box<dyn Wire>,
    seals: Seals,
    /// The other host has shown who it is.
    pub proven: bool,
    batch: Option<Batch>,
    /// When the other was heard last, and told last that this host is alive.
    heard: Instant,
    told: Option<Instant>,
    /// Messages that were sent, and received.
    pub sent: u64,
    /// See above.
    pub received: u64,
}

/// A message that came: what [`Link::receive`] gives.
pub type Came = (u32, usize);

impl Link {
    /// A new one. `proven`: the other host has shown already that it has the secret.
    #[must_use]
    pub fn new(wire: Box<dyn Wire>, keys: Keys, proven: bool, now: Instant) -> Self {
        let (seals, batch) = (Seals::new(keys), None);
        Self { wire, seals, proven, batch, heard: now, told: None, sent: 0, received: 0 }
    }

    /// Is it shut to all who do not have the secret?
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.seals.is_secret()
    }

    /// Puts a frame, behind its header, into the message that is gathered. False: there is no room,
    /// as the other host takes too little.
    ///
    /// # Errors
    /// [`Lost`].
    #[inline]
    pub fn put(&mut self, key: u32, front: &[u8], rest: &Slices<'_>) -> Result<bool, Lost> {
        let len = front.len() + rest.len();
        let taken = message::taken(len);
        let fits = |batch: &Batch| !batch.sealed && batch.len + taken <= MESSAGE;
        if self.batch.is_some_and(|batch| !fits(&batch)) {
            self.go()?;
        }
        let batch = match self.batch {
            Some(batch) if !fits(&batch) => return Ok(false),
            Some(batch) => batch,
            None => {
                if self.wire.sending() >= AT_ONCE {
                    self.wire.look()?;
                }
                let Some(index) = self.wire.take() else { return Ok(false) };
                Batch { index, len: HEAD, frames: 0, sealed: false }
            }
        };
        let buffer = self.wire.buffer(batch.index);
        let Some(place) = message::put(buffer, batch.len, key, len) else {
            if batch.frames == 0 {
                self.wire.untake(batch.index);
            }
            return Ok(false);
        };
        let (head, tail) = place.split_at_mut(front.len());
        head.copy_from_slice(front);
        rest.copy_to(tail);
        self.batch = Some(Batch { len: batch.len + taken, frames: batch.frames + 1, ..batch });
        Ok(true)
    }

    /// Sends what was gathered, or leaves it for when there is room: then more may join it.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn flush(&mut self) -> Result<(), Lost> {
        if self.batch.is_some() && self.wire.sending() >= AT_ONCE {
            self.wire.look()?;
        }
        if self.wire.sending() < AT_ONCE { self.go() } else { Ok(()) }
    }

    /// Sends what was gathered, if it can be.
    fn go(&mut self) -> Result<(), Lost> {
        let Some(batch) = &mut self.batch else { return Ok(()) };
        let Batch { index, len, frames, sealed } = *batch;
        if !sealed {
            let message = self.wire.buffer(index).get_mut(..len);
            self.seals.frames(message.unwrap_or_default(), frames);
            batch.sealed = true;
        }
        if self.wire.send(index, len)? {
            self.batch = None;
            self.sent += 1;
        }
        Ok(())
    }

    /// Tells the other host, if it is time, that this one is alive and has these keys.
    ///
    /// # Errors
    /// [`Lost`], also where the other was silent for long.
    pub fn keep(&mut self, now: Instant, keys: &[u32]) -> Result<(), Lost> {
        let silent = now.saturating_duration_since(self.heard);
        if silent > SILENCE {
            let what = if self.proven { "nothing was heard" } else { "it did not show who it is" };
            return Err(Lost(format!("{what} for {} s", silent.as_secs())));
        }
        // Who has proved nothing is told nothing.
        let due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= ALIVE);
        if !self.proven || !due {
            return Ok(());
        }
        // Messages are numbered in the order in which they are sealed.
        self.go()?;
        let None = self.batch else { return Ok(()) };
        let Some(index) = self.wire.take() else { return Ok(()) };
        let len = self.seals.alive(self.wire.buffer(index), keys);
        self.told = Some(now);
        self.batch = Some(Batch { index, len, frames: 0, sealed: true });
        self.go()
    }

    /// The next message, which [`Self::open`] opens and [`Self::done`] ends.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn receive(&mut self) -> Result<Option<Came>, Lost> {
        let came = self.wire.receive()?;
        if came.is_some() {
            self.received += 1;
        }
        Ok(came)
    }

    /// Opens a message that came.
    ///
    /// # Errors
    /// [`Lost`]: it is not what it should be.
    pub fn open(&mut self, (index, len): Came, now: Instant) -> Result<Message<'_>, Lost> {
        let bytes = self.wire.buffer(index).get_mut(..len).unwrap_or_default();
        let message = self.seals.open(bytes).map_err(|bad| Lost(bad.to_string()))?;
        (self.proven, self.heard) = (true, now);
        Ok(message)
    }

    /// A message was used: others may come into its place.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn done(&mut self, (index, _): Came) -> Result<(), Lost> {
        self.wire.give_back(index)
    }

    /// May one sleep until the wire's bell rings?
    pub fn may_sleep(&mut self) -> bool {
        self.wire.may_sleep()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::pair::{End, pair};
    use crate::wire::{HEADER, LONGEST};

    fn links(secret: bool) -> ([Link; 2], Instant) {
        let now = Instant::now();
        let [one, two] = pair().expect("a pair");
        let [a, b] = [1, 2].map(|n| secret.then_some([n; 32]));
        let new = |end: End, ours, theirs, proven| {
            Link::new(Box::new(end), Keys { ours, theirs }, proven, now)
        };
        ([new(one, a, b, true), new(two, b, a, false)], now)
    }

    fn frame(len: usize) -> Vec<u8> {
        vec![7; HEADER + len]
    }

    /// Frames of the next message, and how many bytes each has.
    fn frames(link: &mut Link, now: Instant) -> Vec<usize> {
        let Some(came) = link.receive().expect("there") else { return Vec::new() };
        let lens = match link.open(came, now).expect("good") {
            Message::Frames(frames) => frames.map(|(_, front)| front.len() - HEADER).collect(),
            Message::Alive(_) => vec![],
        };
        link.done(came).expect("there");
        lens
    }

    #[test]
    fn frames_go_together_as_far_as_they_fit_and_none_is_lost() {
        for secret in [false, true] {
            let ([mut a, mut b], now) = links(secret);
            let put = |a: &mut Link, len| a.put(3, &frame(len), &Slices::new()) == Ok(true);
            assert!(put(&mut a, 4000) && put(&mut a, 61) && put(&mut a, LONGEST));
            a.flush().expect("sent");
            assert_eq!(frames(&mut b, now), [4000, 61]);
            assert_eq!(frames(&mut b, now), [LONGEST]);
            // A host that takes nothing: all that can be on its way is, and then no more is taken.
            let mut count = 0;
            while put(&mut a, 60000) {
                a.flush().expect("sent");
                count += 1;
                assert!(count < 100);
            }
            assert!(count > 4);
            let mut got = 0;
            for _ in 0..count {
                got += frames(&mut b, now).len();
                a.flush().expect("sent");
            }
            assert_eq!((got, put(&mut a, 60)), (count, true));
        }
    }

    #[test]
    fn who_says_nothing_is_lost_and_who_lives_says_so() {
        let ([mut a, mut b], now) = links(true);
        let at = |millis| now + Duration::from_millis(millis);
        // Who has proved nothing is told nothing.
        b.keep(now, &[1]).expect("kept");
        assert!(a.receive().expect("there").is_none());
        a.keep(now, &[1, 2]).expect("kept");
        a.keep(at(500), &[1, 2]).expect("kept");
        let came = b.receive().expect("there").expect("it came");
        let Ok(Message::Alive(keys)) = b.open(came, at(500)) else { panic!("alive") };
        assert_eq!(keys.iter().collect::<Vec<_>>(), [1, 2]);
        assert!(b.proven && b.receive().expect("there").is_none(), "once a second");
        b.keep(at(600), &[1]).expect("kept");
        let came = a.receive().expect("there").expect("it came");
        assert!(matches!(a.open(came, at(600)), Ok(Message::Alive(_))));
        a.keep(at(4000), &[]).expect("kept");
        assert!(a.keep(at(4200), &[]).is_err_and(|lost| lost.0.contains("nothing was heard")));
        let ([_a, mut b], now) = links(true);
        let late = b.keep(now + Duration::from_secs(4), &[]);
        assert!(late.is_err_and(|lost| lost.0.contains("did not show")));
    }
}
