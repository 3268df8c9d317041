//! Token buckets: what a port may send.

use std::time::{Duration, Instant};

/// A bucket that fills at a steady rate, up to what it holds.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Tokens a second.
    rate: u64,
    /// Tokens that it holds at most.
    holds: u64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A full one.
    #[must_use]
    pub fn new(rate: u64, holds: u64, now: Instant) -> Self {
        Self { rate, holds, tokens: holds as f64, filled: now }
    }

    fn fill(&mut self, now: Instant) {
        let more = now.saturating_duration_since(self.filled).as_secs_f64() * self.rate as f64;
        self.tokens = (self.tokens + more).min(self.holds as f64);
        self.filled = now;
    }

    /// Takes tokens if it is not empty. One who takes more than there are leaves a debt, which the
    /// next has to wait for: a long frame is let through as a short one is.
    ///
    /// # Errors
    /// How long until there are any.
    pub fn take(&mut self, tokens: u64, now: Instant) -> Result<(), Duration> {
        self.check(now)?;
        self.tokens -= tokens as f64;
        Ok(())
    }

    /// Is it not empty?
    ///
    /// # Errors
    /// How long until it is not.
    pub fn check(&mut self, now: Instant) -> Result<(), Duration> {
        self.fill(now);
        if self.tokens > 0.0 {
            return Ok(());
        }
        let seconds = (1.0 - self.tokens) / self.rate.max(1) as f64;
        // At least what a sleep can be: else the switch would turn and turn.
        Err(Duration::from_secs_f64(seconds.min(10.0)).max(Duration::from_micros(50)))
    }

    /// Takes tokens, whether or not they are there.
    pub fn owe(&mut self, tokens: u64) {
        self.tokens -= tokens as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_up_to_what_it_holds_and_bears_a_debt() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut bucket = Bucket::new(1000, 100, start);
        assert_eq!(bucket.take(100, start), Ok(()));
        assert_eq!(bucket.check(start), Err(Duration::from_millis(1)));
        assert_eq!(bucket.take(1, at(2)), Ok(()));
        assert_eq!(bucket.take(500, at(10)), Ok(()), "not empty, so it goes, on credit");
        assert!(bucket.check(at(400)).is_err());
        assert_eq!(bucket.check(at(600)), Ok(()));
        bucket.check(at(100_000)).expect("full");
        bucket.owe(100);
        assert!(bucket.check(at(100_000)).is_err(), "it holds no more than 100");
    }
}
