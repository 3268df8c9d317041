//! A pair of queues between a client and a server: messages that are checked, time limits, and how
//! a peer that died is noticed.

use crate::failure::{Code, Failure, Result};
use crate::limit::Limit;
use crate::names;
use crate::raw::Bytes;
use crate::wire::{self, MOST_META, Message, Record};
use ginnel::{Error, Loan, Receiver, Sender};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest wait without a look at whether it is to stop.
const SLICE: Duration = Duration::from_millis(200);
/// Bytes at the end of a buffer that are kept for what says where the data belongs.
pub const TAIL: usize = 24 << 10;
/// Records in one message of data, at most: they fit into [`TAIL`].
pub const MOST_RECORDS: usize = 512;

/// One end of a conversation.
pub struct Link {
    tx: Sender,
    rx: Receiver,
    /// For how long a silent peer is waited for; `None`: for ever.
    pub patience: Option<Duration>,
    stop: Arc<AtomicBool>,
    limit: Limit,
    /// What the other end is called in messages: "server", "client".
    peer: &'static str,
}

/// A message that was copied out and decoded, and the data in front of it, which was not.
pub struct Incoming<'a> {
    /// What it says.
    pub message: Message,
    data: ginnel::Message<'a>,
    payload: usize,
}

impl Incoming<'_> {
    /// The data.
    #[must_use]
    pub fn bytes(&self) -> Bytes<'_> {
        Bytes::of(&self.data, self.payload)
    }
}

impl Link {
    /// From its two ends.
    #[must_use]
    pub fn new(tx: Sender, rx: Receiver, stop: Arc<AtomicBool>, peer: &'static str) -> Self {
        let patience = Some(Duration::from_secs(120));
        Self { tx, rx, patience, stop, limit: Limit::default(), peer }
    }

    /// Moves at most so many bytes of data a second.
    pub fn limit_to(&mut self, bytes_a_second: u64) {
        self.limit = Limit::new(bytes_a_second);
    }

    /// Bytes of the largest message that can be sent.
    #[must_use]
    pub fn room(&self) -> usize {
        usize::try_from(self.tx.message_size()).unwrap_or(usize::MAX)
    }

    fn stopped(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Failure::new(Code::Signal, "stopped by a signal"));
        }
        Ok(())
    }

    /// May this go on waiting, which it has since then?
    ///
    /// # Errors
    /// The peer was silent for too long, or a signal came.
    pub fn patient(&self, since: Instant) -> Result<()> {
        self.stopped()?;
        match self.patience {
            Some(patience) if since.elapsed() > patience => {
                let text = format!(
                    "the {} has been silent for {} s; is it stopped? --timeout gives it longer",
                    self.peer,
                    patience.as_secs()
                );
                Err(Failure::new(Code::Timeout, text))
            }
            _ => Ok(()),
        }
    }

    /// What an error of a queue means here.
    fn lost(&self, error: Error) -> Failure {
        match error {
            Error::Ended { died } => {
                let how = if died { "died" } else { "left before it was done" };
                let text = format!(
                    "the {} {how}; every file is the old one or the whole new one: copy again to \
                     go on",
                    self.peer
                );
                Failure::new(Code::Protocol, text)
            }
            error => error.into(),
        }
    }

    /// The next message, waiting for it.
    ///
    /// # Errors
    /// The peer died, was silent for too long, said that it failed, or sent nonsense.
    pub fn recv(&self) -> Result<Incoming<'_>> {
        let mut since = Instant::now();
        loop {
            match self.rx.recv_timeout(SLICE) {
                Ok(message) => match self.open(message)? {
                    Some(incoming) => return Ok(incoming),
                    None => since = Instant::now(),
                },
                Err(Error::TimedOut) => {}
                Err(error) => return Err(self.lost(error)),
            }
            self.patient(since)?;
        }
    }

    /// The next message, where there is one.
    ///
    /// # Errors
    /// As [`Self::recv`].
    pub fn try_recv(&self) -> Result<Option<Incoming<'_>>> {
        loop {
            match self.rx.try_recv() {
                Ok(message) => {
                    if let Some(incoming) = self.open(message)? {
                        return Ok(Some(incoming));
                    }
                }
                Err(Error::WouldBlock) => return Ok(None),
                Err(error) => return Err(self.lost(error)),
            }
        }
    }

    /// Copies what it says out of a message, and checks it. `None`: it only said that it lives.
    fn open<'a>(&self, data: ginnel::Message<'a>) -> Result<Option<Incoming<'a>>> {
        let mut last = [0; 4];
        let end =
            data.len().checked_sub(4).ok_or_else(|| Failure::broken("a message without end"))?;
        data.read(end, &mut last);
        let len = u32::from_le_bytes(last) as usize;
        if len > MOST_META || len > end {
            return Err(Failure::broken("a message longer than there is room for"));
        }
        let mut meta = vec![0; len];
        data.read(end - len, &mut meta);
        let message =
            wire::decode(&meta).ok_or_else(|| Failure::broken("a message that is none"))?;
        match message {
            Message::Fail { code, text } => {
                let text = format!("the {}: {}", self.peer, names::clean(&text));
                Err(Failure::new(Code::of(code), text))
            }
            Message::Alive => Ok(None),
            message => {
                let payload = if matches!(message, Message::Data(_)) { end - len } else { 0 };
                self.limit.spend(payload, || self.stopped())?;
                Ok(Some(Incoming { message, data, payload }))
            }
        }
    }

    /// A buffer for a whole message, where there is room within `time`.
    ///
    /// # Errors
    /// The peer died or left, in its own words where it left some.
    pub fn loan(&self, time: Duration) -> Result<Option<Loan<'_>>> {
        self.stopped()?;
        match self.tx.loan_timeout(self.room(), time) {
            Ok(loan) => Ok(Some(loan)),
            Err(Error::TimedOut | Error::WouldBlock) => Ok(None),
            Err(error) => Err(self.last_words(error)),
        }
    }

    /// A peer that gives up says why, then leaves.
    fn last_words(&self, error: Error) -> Failure {
        for _ in 0..wire::MOST_BATCHES * 8 {
            match self.rx.try_recv().map(|message| self.open(message)) {
                Ok(Err(failure)) => return failure,
                Ok(Ok(_)) => {}
                Err(_) => break,
            }
        }
        self.lost(error)
    }

    /// Sends a message without data, waiting for room.
    ///
    /// # Errors
    /// As [`Self::loan`], and where there is no room for too long.
    pub fn send(&self, message: &Message) -> Result<()> {
        let since = Instant::now();
        loop {
            if let Some(loan) = self.loan(SLICE)? {
                return self.put(loan, 0, message);
            }
            self.patient(since)?;
        }
    }

    /// Says that this end is at work, where there is room to. False: the other has died or left, or
    /// a signal came, which the next message will tell.
    pub fn alive(&self) -> bool {
        match self.tx.loan_timeout(self.room(), Duration::ZERO) {
            Ok(loan) => self.stopped().is_ok() && self.put(loan, 0, &Message::Alive).is_ok(),
            Err(Error::TimedOut | Error::WouldBlock) => self.stopped().is_ok(),
            Err(_) => false,
        }
    }

    /// Says why this end gives up, if the peer takes it soon.
    pub fn fail(&self, failure: &Failure) {
        let mut text = failure.text.clone();
        let short = (0..=text.len().min(1024)).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(short.unwrap_or(0));
        if let Ok(loan) = self.tx.loan_timeout(self.room(), Duration::from_secs(1)) {
            let _ = self.put(loan, 0, &Message::Fail { code: failure.code as u8, text });
        }
    }

    /// Sends what is in a loan: `payload` bytes of data, and what it says.
    ///
    /// # Errors
    /// Where it does not fit, or a signal came while the rate was kept.
    pub fn put(&self, mut loan: Loan<'_>, payload: usize, message: &Message) -> Result<()> {
        let meta = wire::encode(message);
        let len = payload.saturating_add(meta.len());
        if len > loan.len() || meta.len() > MOST_META {
            return Err(Failure::new(
                Code::Protocol,
                "too much for one message: fewer or shorter patterns to exclude",
            ));
        }
        self.limit.spend(payload, || self.stopped())?;
        loan.write(payload, &meta);
        loan.truncate(len);
        Ok(loan.send()?)
    }
}

/// Data that is being gathered for one message.
pub struct Packet<'a> {
    link: &'a Link,
    /// The buffer.
    pub loan: Loan<'a>,
    /// Bytes of data in it.
    pub used: usize,
    /// What is in it.
    pub records: Vec<Record>,
    /// Bytes of data that it takes.
    most: usize,
}

impl<'a> Packet<'a> {
    /// An empty one, for `most` bytes of data where the buffer takes so many.
    #[must_use]
    pub fn new(link: &'a Link, loan: Loan<'a>, most: u32) -> Self {
        // A page goes in any case.
        let most = (most as usize).max(4096).min(loan.len().saturating_sub(TAIL));
        Self { link, loan, used: 0, records: Vec::new(), most }
    }

    /// Tells the receiver that this takes its time. False: it need not go on.
    pub fn alive(&self) -> bool {
        self.link.alive()
    }

    /// Bytes of data that it still takes.
    #[must_use]
    pub fn room(&self) -> usize {
        self.most.saturating_sub(self.used)
    }

    /// Does it take no more records? One file adds three at most at a time.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.records.len() + 4 > MOST_RECORDS || self.room() == 0
    }

    /// Sends it, unless it is empty.
    ///
    /// # Errors
    /// As [`Link::put`].
    pub fn send(self) -> Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        self.link.put(self.loan, self.used, &Message::Data(self.records))
    }
}
