//! The time, read once in a turn.

use std::time::Instant;

/// When it is.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// When the switch began.
    pub began: Instant,
    /// The present turn.
    pub now: Instant,
    /// The same in seconds since it began.
    pub seconds: u32,
}

impl Clock {
    /// Begins now.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each has its own beginning")]
    pub fn new() -> Self {
        let now = Instant::now();
        Self { began: now, now, seconds: 0 }
    }

    /// Reads it.
    #[inline]
    pub fn read(&mut self) {
        self.now = Instant::now();
        self.seconds = self.now.saturating_duration_since(self.began).as_secs() as u32;
    }
}
