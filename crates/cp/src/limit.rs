//! `--bwlimit`: a token bucket, which is asked before bytes go on.

use crate::failure::Result;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// So many bytes a second, or as many as go.
#[derive(Debug, Default)]
pub struct Limit {
    rate: Option<u64>,
    /// When the bytes that were let through would have passed.
    due: Cell<Option<Instant>>,
}

impl Limit {
    /// Lets so many bytes through in a second.
    #[must_use]
    pub fn new(rate: u64) -> Self {
        Self { rate: Some(rate.max(1)), due: Cell::new(None) }
    }

    /// Bytes of one piece of data, so that a slow one does not look like a dead one.
    #[must_use]
    pub fn piece(rate: u64) -> u32 {
        u32::try_from(rate / 4).unwrap_or(u32::MAX).max(4096)
    }

    /// Waits until so many bytes may go on; `stopped` is asked meanwhile.
    ///
    /// # Errors
    /// Those of `stopped`.
    pub fn spend(&self, bytes: usize, stopped: impl Fn() -> Result<()>) -> Result<()> {
        let Some(rate) = self.rate.filter(|_| bytes > 0) else { return Ok(()) };
        let now = Instant::now();
        let due = self.due.get().map_or(now, |due| due.max(now));
        let nanos = u128::from(bytes as u64) * 1_000_000_000 / u128::from(rate);
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.due.set(due.checked_add(time));
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            stopped()?;
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time() {
        let (limit, began) = (Limit::new(1_000_000), Instant::now());
        for _ in 0..5 {
            limit.spend(10_000, || Ok(())).expect("not stopped");
        }
        // The first goes at once.
        assert!(began.elapsed() >= Duration::from_millis(40));
        Limit::default().spend(usize::MAX, || unreachable!()).expect("no limit");
    }
}
