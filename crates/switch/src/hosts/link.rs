//! One connection to another host, from when it is there until it is lost: frames are gathered into
//! messages, messages are sealed and opened, and silence is noticed.
//!
//! Nothing here waits. A message that the other host does not take stays in its buffer; when all
//! buffers are full, frames are refused, and whoever sends them counts it.

mod in_place;
#[cfg(test)]
mod tests;

use super::handshake::Keys;
use super::message::{self, HEAD, Message, Seals};
use crate::loan::{Lender, Loan};
use crate::ring::{Region, Slices};
use crate::wire::MESSAGE;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a host says that it is alive.
pub const ALIVE: Duration = Duration::from_secs(1);
/// How long one that says nothing is taken for alive.
pub const SILENCE: Duration = Duration::from_millis(3500);
/// Messages on their way while more are gathered: what comes meanwhile goes together.
const AT_ONCE: usize = 2;
/// How often a message is left for more: when its turn ends, and when the next one begins.
const LEFT: u8 = 2;
/// How long a machine's memory may be lent: its queue waits for it. A host that takes nothing for
/// so long is lost.
pub const LENT: Duration = Duration::from_secs(1);
/// A host that needs so long for what it is lent is lent nothing more for a while …
pub const SLOW: Duration = Duration::from_millis(100);
/// … for so many times as long as it needed: a queue that sends to it waits for it no more than one
/// part in so many of its time.
const COPIES: u32 = 16;

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
    /// How many pieces of machines' memory a message may have behind its buffer.
    fn pieces(&self) -> usize {
        0
    }
    /// Can what lies in this region be sent from where it is?
    fn takes(&self, _region: &Arc<Region>) -> bool {
        false
    }
    /// Sends the first bytes of a buffer, and what is lent behind them: it keeps that until the
    /// memory is needed no more. False: not now.
    ///
    /// # Errors
    /// [`Lost`].
    fn send_with(&mut self, index: u32, len: usize, loan: Loan) -> Result<Option<Loan>, Lost>;
    /// The number of the first message on its way that has something lent, counted from the first
    /// such one.
    fn oldest(&self) -> Option<u64>;
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
#[derive(Debug)]
struct Batch {
    index: u32,
    /// Bytes so far.
    len: usize,
    frames: u32,
    /// It is whole, and waits for room alone.
    sealed: bool,
    /// How often it was left for more to join it.
    left: u8,
    /// The end of its one frame, where that lies.
    loan: Option<Loan>,
}

impl Batch {
    fn new(index: u32) -> Self {
        Self { index, len: 0, frames: 0, sealed: false, left: 0, loan: None }
    }
}

/// What became of a frame that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// There was no room, as the other host takes too little.
    Full,
    /// It was copied.
    Copied,
    /// It is sent from where it lies, which was lent.
    InPlace,
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
    /// The shortest frame that is sent from where it lies: bytes behind its [front](crate::wire).
    pub in_place: usize,
    /// Something is lent, as far as is known.
    lends: bool,
    /// The first loan on its way, and since when it was seen to be the first.
    waits: Option<(u64, Instant)>,
    /// Until then nothing is lent, as the host is [slow](SLOW). Whoever has the link hands that on
    /// to the next one of this host.
    pub slow: Option<Instant>,
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
        let (seals, batch, in_place) = (Seals::new(keys), None, usize::MAX);
        Self {
            wire,
            seals,
            proven,
            batch,
            heard: now,
            told: None,
            in_place,
            lends: false,
            waits: None,
            slow: None,
            sent: 0,
            received: 0,
        }
    }

    /// Is it shut to all who do not have the secret?
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.seals.is_secret()
    }

    /// Puts a frame, behind its header, into the message that is gathered, or into one of its own
    /// if it is long and can be lent.
    ///
    /// # Errors
    /// [`Lost`].
    #[inline]
    pub fn put(
        &mut self,
        key: u32,
        front: &[u8],
        rest: &Slices<'_>,
        lender: Option<&Lender<'_>>,
    ) -> Result<Put, Lost> {
        let len = front.len() + rest.len();
        let taken = message::taken(len);
        if let Some(lender) = lender
            && rest.len() >= self.in_place
            && self.put_in_place(key, front, rest, lender)?
        {
            return Ok(Put::InPlace);
        }
        let fits = |batch: &Batch| !batch.sealed && batch.len + taken <= MESSAGE;
        if self.batch.as_ref().is_some_and(|batch| !fits(batch)) {
            self.go()?;
        }
        // Filled where it is: each frame comes by here, and a batch is not small.
        let batch = match &mut self.batch {
            Some(batch) if !fits(batch) => return Ok(Put::Full),
            Some(batch) => batch,
            none => {
                if self.wire.sending() >= AT_ONCE {
                    self.wire.look()?;
                }
                let Some(index) = self.wire.take() else { return Ok(Put::Full) };
                none.insert(Batch { len: HEAD, ..Batch::new(index) })
            }
        };
        let buffer = self.wire.buffer(batch.index);
        let Some(place) = message::put(buffer, batch.len, key, len) else {
            if batch.frames == 0 {
                self.wire.untake(batch.index);
                self.batch = None;
            }
            return Ok(Put::Full);
        };
        let (head, tail) = place.split_at_mut(front.len());
        head.copy_from_slice(front);
        rest.copy_to(tail);
        batch.len += taken;
        batch.frames += 1;
        Ok(Put::Copied)
    }

    /// Sends what was gathered, or leaves it for when there is room: then more may join it. Where
    /// there is `more` to come at once it is left for that, for a turn.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn flush(&mut self, now: Instant, more: bool) -> Result<(), Lost> {
        self.watch_loans(now);
        if let Some(batch) = self.batch.as_mut().filter(|one| more && !one.sealed)
            && batch.left < LEFT
        {
            batch.left += 1;
            return Ok(());
        }
        if self.batch.is_some() && self.wire.sending() >= AT_ONCE {
            self.wire.look()?;
        }
        if self.wire.sending() < AT_ONCE { self.go() } else { Ok(()) }
    }

    /// Sends what was gathered, if it can be.
    fn go(&mut self) -> Result<(), Lost> {
        let Some(batch) = &mut self.batch else { return Ok(()) };
        let (index, len) = (batch.index, batch.len);
        if !batch.sealed {
            let message = self.wire.buffer(index).get_mut(..len);
            self.seals.frames(message.unwrap_or_default(), batch.frames);
            batch.sealed = true;
        }
        let sent = match batch.loan.take() {
            None => self.wire.send(index, len)?,
            Some(loan) => {
                batch.loan = self.wire.send_with(index, len, loan)?;
                batch.loan.is_none()
            }
        };
        if sent {
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
        if self.watch_loans(now) >= LENT {
            return Err(Lost("it takes nothing of what it is sent".into()));
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
        self.batch = Some(Batch { len, sealed: true, ..Batch::new(index) });
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
