//! What the loop does not look at for a moment: a door that nobody can be let in by for lack of
//! descriptors, a front end whose descriptors are still being closed, a tap device that has sent
//! what it may for now, or is gone. It is taken out of the epoll set, so that it is not reported
//! again and again, and put back later. Nobody sleeps for it.

use crate::poller::Token;
use std::time::{Duration, Instant};

/// How long a front end waits whose port is still closing things.
pub const CLOSING: Duration = Duration::from_millis(10);
/// How long a front end waits whose guest's memory is being sent from where it lies.
pub const LENDING: Duration = Duration::from_millis(1);
/// How long nobody is let in when that did not work.
pub const EXHAUSTED: Duration = Duration::from_millis(100);

/// How long until a tap device that is gone is opened again.
pub const GONE: Duration = Duration::from_secs(1);

/// What rests, and until when.
#[derive(Debug, Default)]
pub struct Rests(Vec<(Token, Instant)>);

impl Rests {
    /// Has it rest. It is no longer watched. One that rests already is watched again when this
    /// says.
    pub fn add(&mut self, what: Token, until: Instant) {
        self.0.retain(|(one, _)| *one != what);
        self.0.push((what, until));
    }

    /// When the first is to be watched again.
    #[must_use]
    pub fn first(&self) -> Option<Instant> {
        self.0.iter().map(|&(_, until)| until).min()
    }

    /// Takes out what is to be watched again.
    pub fn due(&mut self, now: Instant) -> Vec<Token> {
        let due = self.0.extract_if(.., |&mut (_, until)| until <= now);
        due.map(|(what, _)| what).collect()
    }
}
